//! An approval as it stood at an earlier version. Decisions are only ever added, one to a version, and a closing keeps
//! the confirmation that it ended: so the record holds its own past.

use super::{Approval, ApprovalState};
use crate::domain::time::Timestamp;

impl Approval {
    /// The version of the last change of state or decisions. Erasing what a person is shown comes later and is neither.
    pub fn last_change(&self) -> u64 {
        let closed = match &self.state {
            ApprovalState::Pending | ApprovalState::Approved(_) | ApprovalState::Denied { .. } => 0,
            ApprovalState::Cancelled { .. }
            | ApprovalState::Revoked { .. }
            | ApprovalState::Expired { .. }
            | ApprovalState::Consumed { .. } => 1,
        };
        self.version.min(self.decided_at().saturating_add(closed))
    }

    /// Whether nothing of it can change any more.
    pub const fn is_final(&self) -> bool {
        self.deadline().is_none()
    }

    /// The instant from which on it is expired; none once it is final.
    pub const fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            ApprovalState::Pending => Some(self.decide_by),
            ApprovalState::Approved(confirmed) => Some(confirmed.use_by),
            ApprovalState::Denied { .. }
            | ApprovalState::Cancelled { .. }
            | ApprovalState::Revoked { .. }
            | ApprovalState::Expired { .. }
            | ApprovalState::Consumed { .. } => None,
        }
    }

    /// The record as it was saved with `version`, from 1 to its last change; none for any other version.
    pub fn at_version(&self, version: u64) -> Option<Self> {
        if version == 0 || version > self.last_change() {
            return None;
        }
        if version == self.last_change() {
            return Some(Self { version, ..self.clone() });
        }
        let decided = usize::try_from(version - 1).ok()?;
        let decisions = self.decisions.get(..decided)?.to_vec();
        // All have answered and it has been closed since: it was approved, unless its people were still at it.
        let confirmed = if version == self.decided_at() { self.state.confirmed() } else { None };
        let state = confirmed.map_or(ApprovalState::Pending, ApprovalState::Approved);
        Some(Self { version, decisions, state, ..self.clone() })
    }

    /// The version that the last decision made, or the question itself.
    fn decided_at(&self) -> u64 {
        u64::try_from(self.decisions.len()).unwrap_or(u64::MAX).saturating_add(1)
    }
}
