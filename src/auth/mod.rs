//! Who calls. A caller has one role, which is one service's door, and explicit bounds. There is no unauthenticated mode.

mod peer;
mod shared;
pub mod token;

pub use peer::{Peer, PeerCertificate, Trust};
pub use shared::{Credential, SharedCallers};

use crate::domain::pattern::{Pattern, any_matches};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use std::fmt;
use std::sync::Arc;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use token::TokenHash;

/// Which door a caller opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `AgentService`: the process that runs the agent.
    Agent,
    /// `ApproverService`: people.
    Approver,
    /// `OperatorService`: whoever runs the sidecar.
    Operator,
}

impl Role {
    /// The word for it in configurations and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Approver => "approver",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// An authenticated client of the sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its name, which the audit records.
    pub name: Identifier,
    /// What it may do, and for whom.
    pub powers: Powers,
}

/// What a caller may do, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Powers {
    /// Acts for these agents and principals.
    Agent(Arc<AgentBounds>),
    /// Is this person.
    Person(Identifier),
    /// Says which person it speaks for, within these patterns.
    Asserts(Vec<Pattern>),
    /// Runs the sidecar.
    Operator,
}

impl Powers {
    /// The role that they belong to.
    pub const fn role(&self) -> Role {
        match self {
            Self::Agent(_) => Role::Agent,
            Self::Person(_) | Self::Asserts(_) => Role::Approver,
            Self::Operator => Role::Operator,
        }
    }
}

/// Which agents and principals a caller may act for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentBounds {
    /// Patterns of agents; none: no agent.
    pub agents: Vec<Pattern>,
    /// Patterns of principals; none: no principal.
    pub principals: Vec<Pattern>,
}

impl AgentBounds {
    /// Whether the pair is within them.
    pub fn allow(&self, principal: &Identifier, agent: &Identifier) -> bool {
        any_matches(&self.principals, principal.as_str()) && any_matches(&self.agents, agent.as_str())
    }
}

/// Why a request has no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No credential came with it, or not in the form `Bearer TOKEN`.
    Missing,
    /// The credential is nobody's.
    Invalid,
    /// The credential has expired.
    Expired,
    /// The caller has another role than the service's.
    WrongRole {
        /// The caller's.
        has: Role,
        /// The service's.
        needs: Role,
    },
}

impl AuthError {
    /// The stable reason of it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "CREDENTIALS_MISSING",
            Self::Invalid => "CREDENTIALS_INVALID",
            Self::Expired => "CREDENTIALS_EXPIRED",
            Self::WrongRole { .. } => "ROLE_NOT_ALLOWED",
        }
    }
}

/// A caller with its credential, as a configuration has it.
#[derive(Clone, Debug)]
pub struct NewCaller {
    /// The hash of its token.
    pub hash: TokenHash,
    /// Who it is.
    pub caller: Caller,
    /// From when on the credential opens nothing, by the wall clock; none: it has no end.
    pub expires: Option<Timestamp>,
}

/// A caller that is known by its token.
#[derive(Debug)]
struct Entry {
    hash: TokenHash,
    caller: Arc<Caller>,
    expires: Option<Timestamp>,
}

impl Entry {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Every caller of the configuration, by the hash of its token.
#[derive(Clone, Debug, Default)]
pub struct Callers(Arc<Vec<Arc<Entry>>>);

impl Callers {
    /// The callers of these token hashes, whose credentials have no end.
    pub fn new(callers: Vec<(TokenHash, Caller)>) -> Self {
        Self::expiring(callers.into_iter().map(|(hash, caller)| NewCaller { hash, caller, expires: None }).collect())
    }

    /// These callers.
    pub fn expiring(callers: Vec<NewCaller>) -> Self {
        let entry =
            |new: NewCaller| Arc::new(Entry { hash: new.hash, caller: Arc::new(new.caller), expires: new.expires });
        Self(Arc::new(callers.into_iter().map(entry).collect()))
    }

    /// Every caller, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Caller> {
        self.0.iter().map(|entry| entry.caller.as_ref())
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those whose credentials have expired at `now`.
    pub fn expired(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Caller>> {
        self.0.iter().filter(move |entry| entry.has_expired(now)).map(|entry| &entry.caller)
    }

    /// The names of the callers that differ between this and `other`: there in one of them alone, or with another
    /// credential, other powers or another end.
    pub fn changed(&self, other: &Self) -> Vec<Identifier> {
        let without = |one: &Self, other: &Self| -> Vec<Identifier> {
            let is_there = |entry: &Entry| {
                other.find(&entry.hash).is_some_and(|it| it.caller == entry.caller && it.expires == entry.expires)
            };
            one.0.iter().filter(|entry| !is_there(entry)).map(|entry| entry.caller.name.clone()).collect()
        };
        let mut names = [without(self, other), without(other, self)].concat();
        names.sort();
        names.dedup();
        names
    }

    /// The entry of the `authorization` header `header`.
    fn entry(&self, header: Option<&[u8]>) -> Result<Arc<Entry>, AuthError> {
        let token = header.and_then(bearer).ok_or(AuthError::Missing)?;
        self.find(&TokenHash::of(token)).ok_or(AuthError::Invalid)
    }

    /// Compares with every caller, always, so that time tells nothing about which or how much of a hash was right.
    fn find(&self, hash: &TokenHash) -> Option<Arc<Entry>> {
        let mut found = u64::MAX;
        for (index, known) in (0_u64..).zip(self.0.iter()) {
            let equal: Choice = known.hash.bytes().ct_eq(hash.bytes());
            found = u64::conditional_select(&found, &index, equal);
        }
        self.0.get(usize::try_from(found).ok()?).map(Arc::clone)
    }
}

/// The token of a `Bearer` credential (RFC 6750, section 2.1). The scheme's case does not matter (RFC 9110, 11.1).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    let usable = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    (scheme.eq_ignore_ascii_case(b"bearer ") && usable).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn callers() -> Callers {
        let caller = |name: &str, powers| Caller { name: Identifier::parse(name).unwrap(), powers };
        Callers::new(vec![
            (TokenHash::of(b"agent-token"), caller("runtime", Powers::Agent(Arc::default()))),
            (TokenHash::of(b"dana-token"), caller("dana-cli", Powers::Person(Identifier::parse("dana").unwrap()))),
            (TokenHash::of(b"chat-token"), caller("chat", Powers::Asserts(vec![Pattern::new("*")]))),
            (TokenHash::of(b"operator-token"), caller("ops", Powers::Operator)),
        ])
    }

    fn name(header: &str, role: Role) -> Result<String, AuthError> {
        let shared = SharedCallers::new(callers(), Arc::new(ManualClock::at(Timestamp::from_micros(0))));
        shared.authenticate(Some(header.as_bytes()), role).map(|credential| credential.caller().name.to_string())
    }

    #[test]
    fn a_token_opens_the_door_of_its_own_role_alone() {
        let tokens = [
            ("agent-token", "runtime", Role::Agent),
            ("dana-token", "dana-cli", Role::Approver),
            ("chat-token", "chat", Role::Approver),
            ("operator-token", "ops", Role::Operator),
        ];
        for (token, caller, has) in tokens {
            for needs in [Role::Agent, Role::Approver, Role::Operator] {
                let got = name(&format!("Bearer {token}"), needs);
                if has == needs {
                    assert_eq!(got, Ok(caller.to_owned()));
                } else {
                    assert_eq!(got, Err(AuthError::WrongRole { has, needs }));
                }
            }
        }
    }

    #[test]
    fn what_is_not_exactly_a_known_token_is_nobody() {
        for header in ["Bearer agent-toke", "Bearer agent-tokenx", "Bearer AGENT-TOKEN", "bearer x"] {
            assert_eq!(name(header, Role::Agent), Err(AuthError::Invalid), "{header:?}");
        }
        for header in ["", "Bearer", "Bearer ", "Basic agent-token", "agent-token", "Bearer  agent-token", "Bearer a b"]
        {
            assert_eq!(name(header, Role::Agent), Err(AuthError::Missing), "{header:?}");
        }
        assert_eq!(callers().entry(None).err(), Some(AuthError::Missing));
        assert_eq!(Callers::default().entry(Some(b"Bearer x")).err(), Some(AuthError::Invalid));
    }

    #[test]
    fn bounds_that_are_omitted_allow_nobody() {
        let dana = Identifier::parse("dana").unwrap();
        let assistant = Identifier::parse("assistant").unwrap();
        let bounds = |agents: &[&str], principals: &[&str]| AgentBounds {
            agents: agents.iter().map(|text| Pattern::new(text)).collect(),
            principals: principals.iter().map(|text| Pattern::new(text)).collect(),
        };
        assert!(!bounds(&[], &[]).allow(&dana, &assistant));
        assert!(!bounds(&["*"], &[]).allow(&dana, &assistant));
        assert!(!bounds(&[], &["*"]).allow(&dana, &assistant));
        assert!(bounds(&["assist*"], &["dana"]).allow(&dana, &assistant));
        assert!(!bounds(&["dana"], &["assistant"]).allow(&dana, &assistant), "the fields are not to be exchanged");
    }
}
