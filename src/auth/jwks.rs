//! The public keys of an issuer, from its JSON Web Key Set (RFC 7517).

use crate::domain::canonical::{Canonical, Limits, Top};
use crate::domain::json::Json;
use aws_lc_rs::signature::{self, ParsedPublicKey, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// What a key set may measure, in bytes.
pub const KEY_SET_BYTES: usize = 256 * 1024;
/// How many keys of it are looked at.
const KEYS: usize = 100;
/// The least modulus of an RSA key, in bytes: 2048 bits.
const RSA_LEAST: usize = 256;

/// How a token may be signed. There is no `none` and nothing symmetric: with those, whoever can verify could sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA, PKCS #1 v1.5, SHA-256.
    Rs256,
    /// The same with SHA-384.
    Rs384,
    /// The same with SHA-512.
    Rs512,
    /// RSA-PSS, SHA-256.
    Ps256,
    /// The same with SHA-384.
    Ps384,
    /// The same with SHA-512.
    Ps512,
    /// ECDSA on P-256, SHA-256.
    Es256,
    /// ECDSA on P-384, SHA-384.
    Es384,
    /// ECDSA on P-521, SHA-512.
    Es512,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];
    /// Those of an issuer of which nothing is said.
    pub const DEFAULT: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// Its name in tokens, keys and configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// That of this name, exactly.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    fn of_rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            Self::Es256 | Self::Es384 | Self::Es512 | Self::EdDsa => None,
        }
    }
}

/// The keys of an issuer at one time.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    /// Which set it is.
    digest: [u8; 32],
}

/// One key for one algorithm.
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    /// Which key it is, for which algorithm: a hash of both.
    print: [u8; 32],
    public: ParsedPublicKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({:?}, {})", self.id, self.algorithm.as_str())
    }
}

impl Key {
    /// Whether `signed` is what this key has signed.
    pub(super) fn verifies(&self, message: &[u8], signed: &[u8]) -> bool {
        self.public.verify_sig(message, signed).is_ok()
    }

    pub(super) fn print(&self) -> [u8; 32] {
        self.print
    }
}

/// What was found for a token's header.
pub(super) enum FoundKey<'a> {
    /// Its key.
    One(&'a Key),
    /// None of that name.
    Unknown,
    /// One of that name that is not for that algorithm, or several.
    Unfit,
}

impl KeySet {
    /// Reads a key set. Keys of other kinds or for other uses are left out; symmetric ones always are.
    ///
    /// # Errors
    /// It is too large, no key set, says a name twice, has a private key in it, or no key that can verify.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?;
        let canonical = Canonical::of(text, Limits { max_bytes: KEY_SET_BYTES, top: Top::Object })
            .map_err(|refusal| format!("is no key set: {refusal}"))?;
        let set = Json::read(&canonical);
        let listed = set.get("keys").and_then(Json::as_array).ok_or("is no key set: it has no list `keys`")?;
        if listed.len() > KEYS {
            return Err(format!("has {} keys; at most {KEYS} are taken", listed.len()));
        }
        if listed.iter().any(|key| ["d", "p", "q", "k"].iter().any(|member| key.get(member).is_some())) {
            return Err("has a private or symmetric key in it: whoever reads it could make tokens".to_owned());
        }
        let keys: Vec<Key> = listed.iter().flat_map(keys_of).collect();
        if keys.is_empty() {
            return Err("has no key that verifies signatures of a kind that is taken".to_owned());
        }
        Ok(Self { keys, digest: Sha256::digest(canonical.as_str().as_bytes()).into() })
    }

    /// Which set it is.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The key of a header that says this key id and algorithm.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> FoundKey<'_> {
        let named = |key: &&Key| id.is_none() || key.id.as_deref() == id;
        let mut fit = self.keys.iter().filter(named).filter(|key| key.algorithm == algorithm);
        match (fit.next(), fit.next()) {
            (Some(key), None) => FoundKey::One(key),
            (Some(_), Some(_)) => FoundKey::Unfit,
            (None, _) if self.keys.iter().any(|key| named(&key)) => FoundKey::Unfit,
            (None, _) => FoundKey::Unknown,
        }
    }

    /// Whether it has the key of this print.
    pub(super) fn has(&self, print: &[u8; 32]) -> bool {
        self.keys.iter().any(|key| key.print == *print)
    }
}

/// A key for each algorithm that it may be used with; none where it is of no use.
fn keys_of(jwk: &Json) -> Vec<Key> {
    let text = |name: &str| jwk.get(name).and_then(Json::as_str);
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    let verifies = |operations: &Json| {
        operations.as_array().is_some_and(|all| all.iter().any(|one| one.as_str() == Some("verify")))
    };
    let for_signatures = jwk.get("use").is_none_or(|usage| usage.as_str() == Some("sig"))
        && jwk.get("key_ops").is_none_or(verifies)
        // A key with a name that is no text is nobody's.
        && jwk.get("kid").is_none_or(|id| id.as_str().is_some());
    if !for_signatures {
        return Vec::new();
    }
    // A key may say which one algorithm it is for.
    let allowed = |algorithm: Algorithm| match jwk.get("alg") {
        None => true,
        Some(said) => {
            said.as_str() == Some(algorithm.as_str())
                || (algorithm == Algorithm::EdDsa && said.as_str() == Some("Ed25519"))
        }
    };
    let made = |algorithm: Algorithm, public: Option<ParsedPublicKey>| {
        let public = public.filter(|_| allowed(algorithm))?;
        let mut print = Sha256::new();
        print.update(algorithm.as_str());
        print.update([0]);
        print.update(public.as_ref());
        Some(Key { id: text("kid").map(str::to_owned), algorithm, print: print.finalize().into(), public })
    };
    let parsed =
        |algorithm: &'static dyn VerificationAlgorithm, bytes: Vec<u8>| ParsedPublicKey::new(algorithm, bytes).ok();
    let point = |size: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        (x.len() == size && y.len() == size).then(|| [vec![4], x, y].concat())
    };
    match (text("kty"), text("crv")) {
        (Some("RSA"), _) => {
            let Some((n, e)) = bytes("n").zip(bytes("e")) else { return Vec::new() };
            if n.len() < RSA_LEAST {
                return Vec::new();
            }
            let components = RsaPublicKeyComponents { n, e };
            let all = Algorithm::ALL
                .into_iter()
                .filter_map(|algorithm| made(algorithm, components.to_parsed_public_key(algorithm.of_rsa()?).ok()));
            all.collect()
        }
        (Some("EC"), Some("P-256")) => {
            let key = point(32).and_then(|point| parsed(&signature::ECDSA_P256_SHA256_FIXED, point));
            made(Algorithm::Es256, key).into_iter().collect()
        }
        (Some("EC"), Some("P-384")) => {
            let key = point(48).and_then(|point| parsed(&signature::ECDSA_P384_SHA384_FIXED, point));
            made(Algorithm::Es384, key).into_iter().collect()
        }
        (Some("EC"), Some("P-521")) => {
            let key = point(66).and_then(|point| parsed(&signature::ECDSA_P521_SHA512_FIXED, point));
            made(Algorithm::Es512, key).into_iter().collect()
        }
        (Some("OKP"), Some("Ed25519")) => {
            let key = bytes("x").filter(|x| x.len() == 32).and_then(|x| parsed(&signature::ED25519, x));
            made(Algorithm::EdDsa, key).into_iter().collect()
        }
        _ => Vec::new(),
    }
}
