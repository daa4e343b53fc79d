//! Who calls. A caller has one role, which is one service's door, and explicit bounds. There is no unauthenticated mode.

mod callers;
mod error;
mod issuer;
mod jwks;
mod jwt;
mod known_by;
mod peer;
mod recent;
mod shared;
pub mod token;
mod usage;

pub use callers::{Authorization, Callers, NewCaller, Presented};
pub use error::AuthError;
pub use issuer::{Issuer, IssuerKeys, IssuerSettings, KeySource};
pub use jwks::{Algorithm, KEY_SET_BYTES, KeySet};
pub use jwt::{JwtProblem, TOKEN_BYTES};
pub use known_by::{CertificateName, KnownBy, RequiredClaims, SpiffePattern};
pub use peer::{Peer, PeerCertificate, Trust};
pub use shared::{Credential, SharedCallers};
pub use usage::{CallerLimits, LimitReached, Place, Rate, Usage};

use crate::domain::pattern::{Pattern, any_matches};
use crate::domain::text::Identifier;
use std::fmt;
use std::sync::Arc;

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
    /// Is the person whom its token names. A call is never from this one: it is from the [`Powers::Person`] that comes of it.
    Claimed,
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
            Self::Person(_) | Self::Claimed | Self::Asserts(_) => Role::Approver,
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

#[cfg(test)]
mod tests;
