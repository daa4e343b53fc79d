//! The states of an approval, with the facts of each, and the two answers that people give.

use crate::domain::ids::ExecutionId;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use std::fmt;

/// The completing decision: when, and until when the agent may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// When the requirement was met.
    pub at: Timestamp,
    /// From this instant on it can no longer be used.
    pub use_by: Timestamp,
}

/// Where an approval stands, with the facts of that state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// Waits for people.
    Pending,
    /// People confirmed it.
    Approved(Confirmed),
    /// Somebody refused it; the last decision says who and why.
    Denied {
        /// When.
        at: Timestamp,
    },
    /// The agent's side withdrew it.
    Cancelled {
        /// When.
        at: Timestamp,
        /// The caller that did.
        by: Identifier,
        /// Why.
        reason: Option<String>,
        /// The confirmation it had, if any.
        confirmed: Option<Confirmed>,
    },
    /// A person took the confirmation back.
    Revoked {
        /// When.
        at: Timestamp,
        /// The person who did.
        by: Identifier,
        /// Why.
        reason: Option<String>,
        /// The confirmation it had.
        confirmed: Confirmed,
    },
    /// A deadline passed: `decide_by` where it was never confirmed, else `use_by`.
    Expired {
        /// The deadline.
        at: Timestamp,
        /// The confirmation that was not used, if any.
        confirmed: Option<Confirmed>,
    },
    /// It was used, once.
    Consumed {
        /// When.
        at: Timestamp,
        /// The execution that it started.
        execution: ExecutionId,
        /// The confirmation that was used.
        confirmed: Confirmed,
    },
}

impl ApprovalState {
    /// The name of the state, without its facts.
    pub const fn name(&self) -> StateName {
        match self {
            Self::Pending => StateName::Pending,
            Self::Approved(_) => StateName::Approved,
            Self::Denied { .. } => StateName::Denied,
            Self::Cancelled { .. } => StateName::Cancelled,
            Self::Revoked { .. } => StateName::Revoked,
            Self::Expired { .. } => StateName::Expired,
            Self::Consumed { .. } => StateName::Consumed,
        }
    }

    /// Who withdrew it or took it back, if somebody did: a caller, or a person.
    pub const fn closed_by(&self) -> Option<&Identifier> {
        match self {
            Self::Cancelled { by, .. } | Self::Revoked { by, .. } => Some(by),
            Self::Pending | Self::Approved(_) | Self::Denied { .. } | Self::Expired { .. } | Self::Consumed { .. } => {
                None
            }
        }
    }

    /// The completing decision, if there was one.
    pub const fn confirmed(&self) -> Option<Confirmed> {
        match self {
            Self::Pending | Self::Denied { .. } => None,
            Self::Approved(confirmed) | Self::Revoked { confirmed, .. } | Self::Consumed { confirmed, .. } => {
                Some(*confirmed)
            }
            Self::Cancelled { confirmed, .. } | Self::Expired { confirmed, .. } => *confirmed,
        }
    }
}

/// The name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// Waits for people.
    Pending,
    /// Confirmed, not used.
    Approved,
    /// Refused by a person.
    Denied,
    /// Withdrawn by the agent's side.
    Cancelled,
    /// Taken back by a person.
    Revoked,
    /// A deadline passed.
    Expired,
    /// Used.
    Consumed,
}

impl StateName {
    /// Every state.
    pub const ALL: [Self; 7] =
        [Self::Pending, Self::Approved, Self::Denied, Self::Cancelled, Self::Revoked, Self::Expired, Self::Consumed];

    /// The word for it in tables and the audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Consumed => "consumed",
        }
    }

    /// The state of that word, if it is one.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The stable reason of a refusal because an approval is in this state.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Pending => "APPROVAL_PENDING",
            Self::Approved => "APPROVAL_APPROVED",
            Self::Denied => "APPROVAL_DENIED",
            Self::Cancelled => "APPROVAL_CANCELLED",
            Self::Revoked => "APPROVAL_REVOKED",
            Self::Expired => "APPROVAL_EXPIRED",
            Self::Consumed => "APPROVAL_CONSUMED",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A person's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// This action may run once.
    Approve,
    /// It may not.
    Deny,
}

impl Verdict {
    /// The word for it in tables and the audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "APPROVE",
            Self::Deny => "DENY",
        }
    }

    /// The verdict of that word, if it is one.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Approve, Self::Deny].into_iter().find(|verdict| verdict.as_str() == word)
    }
}
