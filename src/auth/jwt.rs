//! Tokens of an issuer: JSON Web Tokens in the compact form (RFC 7519, 7515), signed with an asymmetric key.
//!
//! Header and claims are read by the parser of canonical JSON, which refuses a name that is said twice, and nothing in them is
//! believed before the signature has been verified: the key comes from the configured issuer, never from the token, and
//! the algorithm must be one of the configured ones and of the key's own kind.

use super::AuthError;
use super::issuer::{Issuer, IssuerSettings};
use super::jwks::{Algorithm, FoundKey};
use crate::domain::canonical::{Canonical, Limits, Top};
use crate::domain::json::Json;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::sync::Arc;

/// What a token may measure, in bytes.
pub const TOKEN_BYTES: usize = 8 * 1024;
/// The last second of the year 9999, after which no time is one.
const LAST_SECOND: i64 = 253_402_300_799;

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtProblem {
    /// It is longer than is taken.
    TooLarge,
    /// Header or claims are no JSON object, say a name twice, or are not encoded as they must be.
    Malformed,
    /// Its `typ` is another kind of token's.
    Type,
    /// It has `crit`: extensions that it must not be taken without, of which none is known.
    Critical,
    /// Its `alg` is none that the issuer is configured with.
    Algorithm,
    /// Its `iss` is no configured issuer's.
    Issuer,
    /// Its key is for another algorithm, or it does not say which of several it is.
    Key,
    /// Its signature is not its key's.
    Signature,
    /// Its `aud` has none of the issuer's audiences.
    Audience,
    /// It has no `exp` that is a time.
    NoExpiry,
    /// Its `nbf` or `iat` is in the future, or no time.
    NotYetValid,
    /// The claim that is to name a person or a principal is missing, or no identifier.
    Principal,
}

impl JwtProblem {
    /// The word for it in metadata.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Type => "typ",
            Self::Critical => "crit",
            Self::Algorithm => "alg",
            Self::Issuer => "iss",
            Self::Key => "kid",
            Self::Signature => "signature",
            Self::Audience => "aud",
            Self::NoExpiry => "exp",
            Self::NotYetValid => "not_yet_valid",
            Self::Principal => "principal",
        }
    }
}

/// A token whose signature is good. What it claims is its issuer's word.
pub(super) struct Verified {
    pub(super) issuer: String,
    /// The key that signed it.
    key: [u8; 32],
    header: Json,
    claims: Json,
}

/// Nothing of what it claims.
impl fmt::Debug for Verified {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Verified").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Whether a bearer token has the form of an issuer's token.
pub(super) fn is_formed(token: &[u8]) -> bool {
    token.iter().filter(|byte| **byte == b'.').count() == 2
}

/// Verifies the signature of `token` with the key of whichever of `issuers` it says that it is from.
pub(super) fn verify<'a>(token: &[u8], issuers: impl Iterator<Item = &'a Issuer>) -> Result<Verified, AuthError> {
    let wrong = |problem| Err(AuthError::Jwt(problem));
    if token.len() > TOKEN_BYTES {
        return wrong(JwtProblem::TooLarge);
    }
    let malformed = || AuthError::Jwt(JwtProblem::Malformed);
    let token = std::str::from_utf8(token).map_err(|_| malformed())?;
    let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
    let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
    let header = object(header).ok_or_else(malformed)?;
    let claims = object(claims).ok_or_else(malformed)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
    let said = claims.get("iss").and_then(Json::as_str);
    let mut issuers = issuers.filter(|issuer| said == Some(&issuer.settings().issuer));
    let Some(issuer) = issuers.next() else { return wrong(JwtProblem::Issuer) };
    let algorithm = acceptable(&header, issuer.settings())?;
    let key_id = match header.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or_else(malformed)?),
    };
    let Some(keys) = issuer.keys().now() else { return Err(AuthError::KeysMissing) };
    let key = match keys.find(key_id, algorithm) {
        FoundKey::One(key) => key,
        FoundKey::Unfit => return wrong(JwtProblem::Key),
        FoundKey::Unknown => {
            issuer.keys().want();
            return Err(AuthError::KeyUnknown);
        }
    };
    if !key.verifies(signed.as_bytes(), &signature) {
        return wrong(JwtProblem::Signature);
    }
    Ok(Verified { issuer: issuer.settings().issuer.clone(), key: key.print(), header, claims })
}

/// The algorithm of a header that asks for nothing that is not offered.
fn acceptable(header: &Json, settings: &IssuerSettings) -> Result<Algorithm, AuthError> {
    if header.get("crit").is_some() || header.get("b64").is_some() {
        return Err(AuthError::Jwt(JwtProblem::Critical));
    }
    let is_allowed = |said: Option<&str>| match (&settings.types, said) {
        (Some(types), Some(said)) => types.iter().any(|allowed| same_type(allowed, said)),
        (Some(_), None) => false,
        (None, Some(said)) => same_type("JWT", said) || same_type("at+jwt", said),
        (None, None) => true,
    };
    let said = match header.get("typ") {
        None => None,
        Some(said) => Some(said.as_str().ok_or(AuthError::Jwt(JwtProblem::Type))?),
    };
    if !is_allowed(said) {
        return Err(AuthError::Jwt(JwtProblem::Type));
    }
    let algorithm = header.get("alg").and_then(Json::as_str).and_then(Algorithm::parse);
    algorithm.filter(|algorithm| settings.algorithms.contains(algorithm)).ok_or(AuthError::Jwt(JwtProblem::Algorithm))
}

/// Media types, of which the long form may be written short (RFC 7515, 4.1.9).
fn same_type(allowed: &str, said: &str) -> bool {
    let short = |text: &str| -> String {
        let text = text.to_ascii_lowercase();
        text.strip_prefix("application/").map_or(text.clone(), str::to_owned)
    };
    short(allowed) == short(said)
}

/// The object of one part of a token.
fn object(part: &str) -> Option<Json> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok().filter(|bytes| !bytes.is_empty())?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let canonical = Canonical::of(text, Limits { max_bytes: TOKEN_BYTES, top: Top::Object }).ok()?;
    Some(Json::read(&canonical))
}

impl Verified {
    /// Whether it is good at `now`, for this issuer as it is configured and with the keys that it has by then; if so, from
    /// when on it is not.
    pub(super) fn good_until(&self, issuer: &Issuer, now: Timestamp) -> Result<Timestamp, AuthError> {
        let settings = issuer.settings();
        // Also of one whose signature was found good under another configuration.
        acceptable(&self.header, settings)?;
        if !issuer.keys().now().is_some_and(|keys| keys.has(&self.key)) {
            return Err(AuthError::KeyUnknown);
        }
        let is_meant = |audience: &str| settings.audience.iter().any(|one| one == audience);
        if !self.texts("aud").any(is_meant) {
            return Err(AuthError::Jwt(JwtProblem::Audience));
        }
        let Some(expires) = self.claims.get("exp").and_then(instant) else {
            return Err(AuthError::Jwt(JwtProblem::NoExpiry));
        };
        for name in ["nbf", "iat"] {
            let begins = self.claims.get(name).map(instant);
            if begins.is_some_and(|begins| begins.is_none_or(|begins| begins > now.plus(settings.tolerance))) {
                return Err(AuthError::Jwt(JwtProblem::NotYetValid));
            }
        }
        let until = expires.plus(settings.tolerance);
        if until <= now { Err(AuthError::Expired) } else { Ok(until) }
    }

    /// Whether the claim is this text, or a list that has it.
    pub(super) fn says(&self, name: &str, text: &str) -> bool {
        self.texts(name).any(|said| said == text)
    }

    /// The identifier that a claim is.
    pub(super) fn identifier(&self, name: &str) -> Result<Identifier, AuthError> {
        let text = self.claims.get(name).and_then(Json::as_str);
        text.and_then(|text| Identifier::parse(text).ok()).ok_or(AuthError::Jwt(JwtProblem::Principal))
    }

    /// The groups of the policy that the issuer's table maps its groups to; sorted, each once.
    pub(super) fn groups(&self, settings: &IssuerSettings) -> Arc<[Identifier]> {
        let said = settings.groups_claim.iter().flat_map(|name| self.texts(name));
        let mut groups: Vec<Identifier> = said.filter_map(|group| settings.groups.get(group)).cloned().collect();
        groups.sort();
        groups.dedup();
        groups.into()
    }

    /// The text of a claim, or those of a list.
    fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let claim = self.claims.get(name);
        let listed = claim.and_then(Json::as_array).unwrap_or_default();
        claim.and_then(Json::as_str).into_iter().chain(listed.iter().filter_map(Json::as_str))
    }
}

/// A number of seconds, perhaps with a fraction, since the Unix epoch; none before it or after the year 9999.
fn instant(claim: &Json) -> Option<Timestamp> {
    let Json::Number(number) = claim else { return None };
    let (seconds, fraction) = number.as_str().split_once('.').unwrap_or((number.as_str(), ""));
    let seconds: i64 = seconds.parse().ok().filter(|seconds| (0..=LAST_SECOND).contains(seconds))?;
    // A fraction is digits alone, or the number is none of seconds. Below a microsecond nothing counts.
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()).then_some(fraction)?;
    let micros: i64 = format!("{digits:0<6}").get(..6)?.parse().ok()?;
    Some(Timestamp::from_micros(seconds * 1_000_000 + micros))
}
