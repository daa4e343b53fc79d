//! Limits against questions that wear people out, and what it is to reach one.

use crate::domain::approval::Approval;
use crate::domain::time::Timestamp;
use std::time::Duration;

/// Limits against fatigue. A question that is answered with an approval that there is counts against none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionLimits {
    /// Open approvals per caller and principal.
    pub per_principal: u32,
    /// Open approvals per caller and agent.
    pub per_agent: u32,
    /// Open approvals per caller, principal, connector and action.
    pub per_action: u32,
    /// New questions per principal, whichever callers ask them; none: as many as they like.
    pub asked: Option<AskedLimit>,
    /// For how long a question that a person has denied is not asked again, whoever asks; zero: not at all.
    pub cool_off: Duration,
}

/// So many new questions within any span of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedLimit {
    /// How many; at least one.
    pub most: u32,
    /// The length of the span: a question counts until it is this old.
    pub within: Duration,
}

/// Which limit of open approvals was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenLimit {
    /// Per caller and principal.
    PerPrincipal,
    /// Per caller and agent.
    PerAgent,
    /// Per caller, principal, connector and action.
    PerAction,
}

/// A question that a person has denied a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoolingOff {
    /// What was denied: the newest of it.
    pub denied: Approval,
    /// From this instant on it may be asked again.
    pub until: Timestamp,
}
