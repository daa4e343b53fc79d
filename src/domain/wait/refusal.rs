//! Why a command on a wait is refused.

use super::WaitStateName;

/// Why a command on a wait was refused. The record is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRefusal {
    /// It is over, in this way.
    Over(WaitStateName),
    /// It is of another principal.
    PrincipalMismatch,
    /// It is of another agent.
    AgentMismatch,
    /// It is of another transcript.
    TranscriptChanged,
    /// Another attempt has resumed it.
    AlreadyResumed,
    /// It has changed since the agent saw it.
    VersionChanged,
    /// So many of its approvals wait for people.
    Pending(u32),
    /// The transcript's active wait is for another objective.
    ObjectiveConflict,
    /// The active wait is for a later revision of the objective.
    ObjectiveStale,
    /// It was resumed: nothing is asked in it until it is opened again.
    NotOpen,
    /// So many waits of its principal and agent are active already.
    TooMany(u32),
    /// The call that is asked about is for another objective, or another revision of it.
    ObjectiveDiffers,
}

impl WaitRefusal {
    /// Every stable reason.
    pub const REASONS: [&str; 14] = [
        "WAIT_CLOSED",
        "WAIT_REPLACED",
        "WAIT_EXPIRED",
        "PRINCIPAL_MISMATCH",
        "AGENT_MISMATCH",
        "TRANSCRIPT_CHANGED",
        "WAIT_ALREADY_RESUMED",
        "WAIT_VERSION_CHANGED",
        "WAIT_PENDING",
        "OBJECTIVE_CONFLICT",
        "OBJECTIVE_STALE",
        "WAIT_NOT_OPEN",
        "WAIT_OBJECTIVE_DIFFERS",
        "TOO_MANY_WAITS",
    ];

    /// The stable reason of it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Over(WaitStateName::Replaced) => "WAIT_REPLACED",
            Self::Over(WaitStateName::Expired) => "WAIT_EXPIRED",
            Self::Over(WaitStateName::Closed | WaitStateName::Open | WaitStateName::Resumed) => "WAIT_CLOSED",
            Self::PrincipalMismatch => "PRINCIPAL_MISMATCH",
            Self::AgentMismatch => "AGENT_MISMATCH",
            Self::TranscriptChanged => "TRANSCRIPT_CHANGED",
            Self::AlreadyResumed => "WAIT_ALREADY_RESUMED",
            Self::VersionChanged => "WAIT_VERSION_CHANGED",
            Self::Pending(_) => "WAIT_PENDING",
            Self::ObjectiveConflict => "OBJECTIVE_CONFLICT",
            Self::ObjectiveStale => "OBJECTIVE_STALE",
            Self::NotOpen => "WAIT_NOT_OPEN",
            Self::ObjectiveDiffers => "WAIT_OBJECTIVE_DIFFERS",
            Self::TooMany(_) => "TOO_MANY_WAITS",
        }
    }
}
