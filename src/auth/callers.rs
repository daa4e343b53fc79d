//! Every caller of a configuration, and the one that a call is from.
//!
//! An `authorization` header decides alone: a bad one is refused, and never falls back on the connection. Without one, what
//! the connection says of its other end decides. Whatever is more than one caller's is nobody's.

use super::issuer::Issuer;
use super::jwt::{self, Verified};
use super::known_by::{CertificateName, KnownBy, RequiredClaims};
use super::recent::{Recent, Seen};
use super::token::TokenHash;
use super::usage::{CallerLimits, Usage};
use super::{AgentBounds, AuthError, Caller, JwtProblem, Peer, PeerCertificate, Powers};
use crate::domain::pattern::{Pattern, any_matches};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use subtle::ConstantTimeEq as _;

/// What came with a call to tell who calls.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// Its `authorization` headers.
    pub authorization: Authorization<'a>,
    /// What its connection says.
    pub peer: Option<&'a Peer>,
}

/// The `authorization` headers of a call.
#[derive(Clone, Copy)]
pub enum Authorization<'a> {
    /// There is none.
    None,
    /// There is one.
    One(&'a [u8]),
    /// There are several, which are ambiguous, so they are no credential.
    Several,
}

/// Nothing of a credential.
impl std::fmt::Debug for Authorization<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::One(_) => "One(..)",
            Self::Several => "Several",
        })
    }
}

/// A caller with its credential, as a configuration has it.
#[derive(Clone, Debug)]
pub struct NewCaller {
    /// What it is known by.
    pub known_by: KnownBy,
    /// Who it is.
    pub caller: Caller,
    /// From when on the credential opens nothing, by the wall clock; none: it has no end of its own.
    pub expires: Option<Timestamp>,
    /// What it may do at once and how fast.
    pub limits: CallerLimits,
}

impl NewCaller {
    /// A caller with a bearer token of this hash that has no end, and the limits that hold where nothing is said.
    pub fn bearer(hash: TokenHash, caller: Caller) -> Self {
        Self { known_by: KnownBy::Token(hash), caller, expires: None, limits: CallerLimits::default() }
    }
}

/// A caller that is known by its credential.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    known_by: KnownBy,
    pub(super) caller: Arc<Caller>,
    pub(super) expires: Option<Timestamp>,
    pub(super) limits: CallerLimits,
    pub(super) usage: Arc<Usage>,
}

impl Entry {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.known_by == other.known_by
            && self.caller == other.caller
            && self.expires == other.expires
            && self.limits == other.limits
    }
}

/// Every caller of the configuration. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Callers(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    entries: Vec<Arc<Entry>>,
    issuers: Vec<Arc<Issuer>>,
    /// By what is looked up at once. The hasher has a key of this process.
    tokens: HashMap<[u8; 32], Vec<Arc<Entry>>>,
    users: HashMap<u32, Vec<Arc<Entry>>>,
    /// DNS names, URIs and SPIFFE ids without a wildcard.
    names: HashMap<String, Vec<Arc<Entry>>>,
    /// Those with one.
    patterns: Vec<Arc<Entry>>,
    /// By the name of the issuer.
    claims: HashMap<Identifier, Vec<Arc<Entry>>>,
    /// Tokens of issuers that were verified a short while ago.
    recent: Recent,
}

/// Whom a call is from, and how that is known.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) entry: Arc<Entry>,
    /// The entry's, or, where a token says who its person is, that one.
    pub(super) caller: Arc<Caller>,
    /// Groups of the policy that the person's token puts it in.
    pub(super) groups: Arc<[Identifier]>,
    pub(super) proof: Proof,
}

/// How a caller is known. It can be asked again whether it still holds.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    Token(TokenHash),
    User(u32),
    Certificate(Arc<PeerCertificate>),
    Jwt(Arc<Verified>),
}

impl Proof {
    /// Whether it can end without the configuration being read again, or an entry of it having an end.
    pub(super) fn ends_by_itself(&self) -> bool {
        match self {
            Self::Token(_) | Self::User(_) => false,
            Self::Certificate(_) | Self::Jwt(_) => true,
        }
    }
}

impl Callers {
    /// The callers of these token hashes, whose credentials have no end.
    pub fn new(callers: Vec<(TokenHash, Caller)>) -> Self {
        Self::expiring(callers.into_iter().map(|(hash, caller)| NewCaller::bearer(hash, caller)).collect())
    }

    /// These callers.
    pub fn expiring(callers: Vec<NewCaller>) -> Self {
        Self::of_issuers(callers, Vec::new())
    }

    /// These callers, some of them known by tokens of these issuers.
    pub fn of_issuers(callers: Vec<NewCaller>, issuers: Vec<Issuer>) -> Self {
        let entry = |new: NewCaller| Entry {
            known_by: new.known_by,
            caller: Arc::new(new.caller),
            expires: new.expires,
            limits: new.limits,
            usage: Arc::default(),
        };
        Self::known(callers.into_iter().map(entry).collect(), issuers)
    }

    /// The same, going on with what `before` has of the same callers (what they do now) and issuers (their keys).
    pub(super) fn after(&self, before: &Self) -> Self {
        let used: HashMap<&Identifier, &Arc<Usage>> =
            before.0.entries.iter().map(|entry| (&entry.caller.name, &entry.usage)).collect();
        let entries = self.0.entries.iter().map(|entry| {
            let usage = used.get(&entry.caller.name).map_or(&entry.usage, |usage| *usage);
            Entry { usage: Arc::clone(usage), ..Entry::clone(entry) }
        });
        let issuers = self.0.issuers.iter().map(|issuer| {
            let name = &issuer.settings().name;
            issuer.after(before.0.issuers.iter().find(|before| before.settings().name == *name).map(Arc::as_ref))
        });
        Self::known(entries.collect(), issuers.collect())
    }

    fn known(entries: Vec<Entry>, issuers: Vec<Issuer>) -> Self {
        let mut known = Known { issuers: issuers.into_iter().map(Arc::new).collect(), ..Known::default() };
        for entry in entries {
            let entry = Arc::new(entry);
            let group = match &entry.known_by {
                KnownBy::Token(hash) => known.tokens.entry(*hash.bytes()).or_default(),
                KnownBy::User(uid) => known.users.entry(*uid).or_default(),
                KnownBy::Claims(claims) => known.claims.entry(claims.issuer.clone()).or_default(),
                KnownBy::Certificate(CertificateName::Dns(name)) => known.names.entry(dns_key(name)).or_default(),
                KnownBy::Certificate(CertificateName::Uri(uri)) => known.names.entry(uri_key(uri)).or_default(),
                KnownBy::Certificate(CertificateName::Spiffe(pattern)) => match pattern.exact() {
                    Some(id) => known.names.entry(spiffe_key(&id)).or_default(),
                    None => &mut known.patterns,
                },
            };
            group.push(Arc::clone(&entry));
            known.entries.push(entry);
        }
        Self(Arc::new(known))
    }

    /// Every caller, in the order of the configuration. Where a token names the person, [`Powers::Claimed`] stands for it.
    pub fn iter(&self) -> impl Iterator<Item = &Caller> {
        self.0.entries.iter().map(|entry| entry.caller.as_ref())
    }

    /// Every issuer.
    pub fn issuers(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        self.0.issuers.iter()
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }

    /// Those whose credentials have expired at `now`.
    pub fn expired(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Caller>> {
        self.0.entries.iter().filter(move |entry| entry.has_expired(now)).map(|entry| &entry.caller)
    }

    /// The names of the callers that differ between this and `other`: there in one of them alone, or with another
    /// credential, other powers, other limits, another end or another issuer.
    pub fn changed(&self, other: &Self) -> Vec<Identifier> {
        let without = |one: &Self, other: &Self| -> Vec<Identifier> {
            let mut named: HashMap<&Identifier, Vec<&Entry>> = HashMap::new();
            for entry in &other.0.entries {
                named.entry(&entry.caller.name).or_default().push(entry);
            }
            let is_there = |entry: &Entry| {
                let same =
                    named.get(&entry.caller.name).is_some_and(|all| all.iter().any(|other| other.is_same(entry)));
                same && one.issuer_of(entry).map(Issuer::settings) == other.issuer_of(entry).map(Issuer::settings)
            };
            let changed = one.0.entries.iter().filter(|entry| !is_there(entry));
            changed.map(|entry| entry.caller.name.clone()).collect()
        };
        let mut names = [without(self, other), without(other, self)].concat();
        names.sort();
        names.dedup();
        names
    }

    fn issuer_of(&self, entry: &Entry) -> Option<&Issuer> {
        let KnownBy::Claims(claims) = &entry.known_by else { return None };
        self.0.issuers.iter().find(|issuer| issuer.settings().name == claims.issuer).map(Arc::as_ref)
    }

    /// Whom a call is from with which this came, at `now` by the wall clock, which is read only where something has an end.
    pub(super) fn find(&self, presented: Presented<'_>, now: &dyn Fn() -> Timestamp) -> Result<Found, AuthError> {
        match presented.authorization {
            Authorization::One(header) => self.of_header(header, now),
            Authorization::Several => Err(AuthError::Missing),
            Authorization::None => match presented.peer {
                Some(Peer::Process { uid, .. }) => match self.again(&Proof::User(*uid), now) {
                    // Every process has a user id: one that is nobody's is no credential.
                    Err(AuthError::Invalid) => Err(AuthError::Missing),
                    found => found,
                },
                Some(Peer::Certificate { certificate, .. }) => {
                    self.again(&Proof::Certificate(Arc::clone(certificate)), now)
                }
                Some(Peer::Address(_) | Peer::Unknown) | None => Err(AuthError::Missing),
            },
        }
    }

    fn of_header(&self, header: &[u8], now: &dyn Fn() -> Timestamp) -> Result<Found, AuthError> {
        let token = bearer(header).ok_or(AuthError::Missing)?;
        let hash = TokenHash::of(token);
        match self.again(&Proof::Token(hash.clone()), now) {
            Err(AuthError::Invalid) if !self.0.issuers.is_empty() && jwt::is_formed(token) => {}
            decided => return decided,
        }
        let generation = self.generation();
        if let Some(seen) = self.0.recent.get(hash.bytes(), generation) {
            let now = now();
            return if seen.until <= now || seen.found.entry.has_expired(now) {
                Err(AuthError::Expired)
            } else {
                Ok(seen.found)
            };
        }
        let verified = jwt::verify(token, self.0.issuers.iter().map(Arc::as_ref))?;
        let (found, until) = self.of_claims(&Arc::new(verified), now())?;
        self.0.recent.put(*hash.bytes(), Seen { generation, until, found: found.clone() });
        Ok(found)
    }

    /// As if no token of an issuer had come so far.
    #[cfg(test)]
    pub(super) fn forget_tokens(&self) {
        self.0.recent.forget();
    }

    /// Which keys the issuers have, all together: a number that only grows.
    fn generation(&self) -> u64 {
        self.0.issuers.iter().map(|issuer| issuer.keys().generation()).sum()
    }

    /// Whose credential this is now.
    pub(super) fn again(&self, proof: &Proof, now: &dyn Fn() -> Timestamp) -> Result<Found, AuthError> {
        let known = &*self.0;
        let entry = match proof {
            Proof::Token(hash) => {
                // The map is asked with what the caller sent hashed twice, and whatever it finds is compared whole.
                let found = known.tokens.get(hash.bytes()).map(Vec::as_slice).unwrap_or_default();
                the_only(found.iter().filter(|entry| is_token(&entry.known_by, hash)))?
            }
            Proof::User(uid) => the_only(known.users.get(uid).into_iter().flatten())?,
            Proof::Certificate(certificate) => self.of_certificate(certificate, now())?,
            Proof::Jwt(verified) => return self.of_claims(verified, now()).map(|(found, _)| found),
        };
        // Most have no end, and then no clock is read.
        if entry.expires.is_some_and(|expires| expires <= now()) {
            return Err(AuthError::Expired);
        }
        let (entry, caller) = (Arc::clone(entry), Arc::clone(&entry.caller));
        Ok(Found { entry, caller, groups: no_groups(), proof: proof.clone() })
    }

    fn of_certificate(&self, certificate: &PeerCertificate, now: Timestamp) -> Result<&Arc<Entry>, AuthError> {
        if certificate.not_after <= now {
            return Err(AuthError::Expired);
        }
        if !certificate.trust.holds() {
            return Err(AuthError::Untrusted);
        }
        let known = &*self.0;
        let dns = certificate.dns_names.iter().map(|name| dns_key(name));
        let uris = certificate.uris.iter().map(|uri| uri_key(uri));
        // A SPIFFE id is the only URI of its certificate.
        let id = match certificate.uris.as_slice() {
            [id] => Some(id),
            _ => None,
        };
        let keys = dns.chain(uris).chain(id.map(|id| spiffe_key(id)));
        let named = keys.filter_map(|key| known.names.get(&key)).flatten();
        let of_pattern = known.patterns.iter().filter(|entry| match &entry.known_by {
            KnownBy::Certificate(CertificateName::Spiffe(pattern)) => id.is_some_and(|id| pattern.matches(id)),
            KnownBy::Certificate(_) | KnownBy::Token(_) | KnownBy::User(_) | KnownBy::Claims(_) => false,
        });
        the_only(named.chain(of_pattern))
    }

    fn of_claims(&self, verified: &Arc<Verified>, now: Timestamp) -> Result<(Found, Timestamp), AuthError> {
        let known = &*self.0;
        let issuer = known.issuers.iter().find(|issuer| issuer.settings().issuer == verified.issuer);
        let issuer = issuer.ok_or(AuthError::Jwt(JwtProblem::Issuer))?;
        let until = verified.good_until(issuer, now)?;
        let of_issuer = known.claims.get(&issuer.settings().name).into_iter().flatten();
        let claims = |entry: &'_ Arc<Entry>| match &entry.known_by {
            KnownBy::Claims(required) if required.claims.iter().all(|(name, text)| verified.says(name, text)) => {
                Some(required.clone())
            }
            KnownBy::Claims(_) | KnownBy::Token(_) | KnownBy::User(_) | KnownBy::Certificate(_) => None,
        };
        let entry = the_only(of_issuer.filter(|entry| claims(entry).is_some()))?;
        let required = claims(entry).ok_or(AuthError::Invalid)?;
        if entry.has_expired(now) {
            return Err(AuthError::Expired);
        }
        let until = entry.expires.map_or(until, |expires| until.min(expires));
        let caller = claimed(entry, &required, verified)?;
        // Groups are those of the person whose token it is, and of nobody for whom its holder may speak.
        let groups = match entry.caller.powers {
            Powers::Claimed => verified.groups(issuer.settings()),
            Powers::Agent(_) | Powers::Person(_) | Powers::Asserts(_) | Powers::Operator => no_groups(),
        };
        let proof = Proof::Jwt(Arc::clone(verified));
        Ok((Found { entry: Arc::clone(entry), caller, groups, proof }, until))
    }
}

/// The caller that an entry is for the holder of this token.
fn claimed(entry: &Arc<Entry>, required: &RequiredClaims, verified: &Verified) -> Result<Arc<Caller>, AuthError> {
    let Some(claim) = &required.principal_claim else { return Ok(Arc::clone(&entry.caller)) };
    let principal = verified.identifier(claim)?;
    let powers = match &entry.caller.powers {
        Powers::Claimed => Powers::Person(principal),
        Powers::Agent(bounds) => {
            let within = any_matches(&bounds.principals, principal.as_str());
            // What a token says is a name: a `*` in it is no wildcard.
            let principals = within.then(|| Pattern::exactly(principal.as_str())).into_iter().collect();
            Powers::Agent(Arc::new(AgentBounds { agents: bounds.agents.clone(), principals }))
        }
        Powers::Person(_) | Powers::Asserts(_) | Powers::Operator => entry.caller.powers.clone(),
    };
    Ok(Arc::new(Caller { name: entry.caller.name.clone(), powers }))
}

/// The one that there is.
fn the_only<'a>(mut entries: impl Iterator<Item = &'a Arc<Entry>>) -> Result<&'a Arc<Entry>, AuthError> {
    let first = entries.next().ok_or(AuthError::Invalid)?;
    // One caller may be found by two of its names.
    if entries.all(|other| Arc::ptr_eq(first, other)) { Ok(first) } else { Err(AuthError::Ambiguous) }
}

fn is_token(known_by: &KnownBy, hash: &TokenHash) -> bool {
    match known_by {
        KnownBy::Token(known) => known.bytes().ct_eq(hash.bytes()).into(),
        KnownBy::Certificate(_) | KnownBy::User(_) | KnownBy::Claims(_) => false,
    }
}

/// A name of one kind is none of another.
fn dns_key(name: &str) -> String {
    format!("dns:{name}")
}

fn uri_key(uri: &str) -> String {
    format!("uri:{uri}")
}

fn spiffe_key(id: &str) -> String {
    format!("spiffe-id:{id}")
}

fn no_groups() -> Arc<[Identifier]> {
    static NONE: OnceLock<Arc<[Identifier]>> = OnceLock::new();
    Arc::clone(NONE.get_or_init(|| Arc::from([])))
}

/// The token of a `Bearer` credential (RFC 6750, section 2.1). The scheme's case does not matter (RFC 9110, 11.1).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    let usable = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    (scheme.eq_ignore_ascii_case(b"bearer ") && usable).then_some(token)
}
