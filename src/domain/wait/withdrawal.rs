//! What becomes of a wait's approvals when it ends, or when its objective moves on.

use crate::domain::approval::{Approval, ApprovalState, StateName};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::change::Change;
use crate::domain::ids::WaitId;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;

/// Why approvals are withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Their wait was closed.
    Closed,
    /// Another wait took its place.
    Replaced,
    /// Its time was over.
    Expired,
    /// It is for a later revision of its objective now.
    Superseded,
}

impl Cause {
    /// The stable reason that the audit keeps.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Closed => "WAIT_CLOSED",
            Self::Replaced => "WAIT_REPLACED",
            Self::Expired => "WAIT_EXPIRED",
            Self::Superseded => "OBJECTIVE_SUPERSEDED",
        }
    }
}

/// All approvals of a wait that are open are withdrawn, in the transaction of the wait's own change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// The wait.
    pub wait: WaitId,
    /// Why.
    pub cause: Cause,
    /// The caller that caused it; none where a time was over.
    pub caller: Option<Identifier>,
    /// The caller that opened the wait, in whose name an approval is withdrawn where nobody else did it.
    pub opened_by: Identifier,
    /// What the caller said about it, neutralised.
    pub said: Option<String>,
}

impl Withdrawal {
    /// The change that withdraws `approval`: cancelled if it is open, expired if it is overdue; none if it is final.
    ///
    /// An approval is never open for longer than its wait, so what an expired wait has left is overdue as well.
    pub fn of(&self, approval: &Approval, now: Timestamp) -> Option<Change<Approval>> {
        match approval.state_at(now) {
            StateName::Pending | StateName::Approved => {}
            StateName::Expired => return approval.expired(now),
            StateName::Denied | StateName::Cancelled | StateName::Revoked | StateName::Consumed => return None,
        }
        let state = ApprovalState::Cancelled {
            at: now,
            by: self.caller.as_ref().unwrap_or(&self.opened_by).clone(),
            reason: Some(self.state_reason()),
            confirmed: approval.state.confirmed(),
        };
        let event = AuditEvent {
            reason: Some(self.cause.reason().to_owned()),
            note: self.said.clone(),
            ..approval.event(AuditKind::ApprovalCancelled, self.caller.as_ref(), "CANCELLED")
        };
        let next = Approval { state, version: approval.version.saturating_add(1), ..approval.clone() };
        Some(Change { next, events: vec![event], valid_before: None })
    }

    /// The sentence that people and agents are shown.
    fn state_reason(&self) -> String {
        let what = match self.cause {
            Cause::Closed => "was closed",
            Cause::Replaced => "was replaced by one for another objective",
            Cause::Expired => "has expired",
            Cause::Superseded => "is for a later revision of its objective",
        };
        let said = self.said.as_ref().map_or(String::new(), |said| format!(": {said}"));
        format!("wait {} {what}{said}", self.wait)
    }
}
