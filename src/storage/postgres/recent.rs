//! Open approvals as this process last saw them. Whoever decides has just been shown what is decided: so the row that the
//! decision is made on need not be asked for again, since it is saved only over the very version that it was made on.

use crate::domain::approval::{Approval, ApprovalState};
use crate::domain::ids::ApprovalId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Approvals that are kept at most, the last that were seen. Each has a preview of some kilobytes.
const MOST: usize = 512;

/// The last open approvals that were seen.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    approvals: HashMap<ApprovalId, Approval>,
    /// The same, the longest known first.
    order: VecDeque<ApprovalId>,
}

impl Recent {
    /// Takes in an approval as it was read or written. An older version than the one that is known changes nothing; of
    /// what is final nothing is kept.
    pub(super) fn saw(&self, approval: &Approval) {
        let mut seen = self.seen();
        let open = matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved(_));
        match seen.approvals.get_mut(&approval.id) {
            Some(known) if known.version > approval.version => {}
            Some(known) if open => known.clone_from(approval),
            Some(_) => seen.forget(approval.id),
            None if !open => {}
            None => {
                while seen.order.len() >= MOST
                    && let Some(oldest) = seen.order.pop_front()
                {
                    seen.approvals.remove(&oldest);
                }
                seen.order.push_back(approval.id);
                seen.approvals.insert(approval.id, approval.clone());
            }
        }
    }

    /// The approval as it was last seen, once: whoever finds that it has changed since does not find it again.
    pub(super) fn take(&self, id: ApprovalId) -> Option<Approval> {
        let mut seen = self.seen();
        let approval = seen.approvals.get(&id).cloned();
        seen.forget(id);
        approval
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn forget(&mut self, id: ApprovalId) {
        if self.approvals.remove(&id).is_some() {
            self.order.retain(|known| *known != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use crate::storage::conformance::{approval_id, question};

    fn asked() -> Approval {
        Approval::ask(approval_id(), question(), None, Timestamp::from_micros(7)).next
    }

    #[test]
    fn the_newest_version_that_was_seen_is_given_once() {
        let recent = Recent::default();
        let first = asked();
        let second = Approval { version: 2, ..first.clone() };
        recent.saw(&second);
        recent.saw(&first);
        assert_eq!(recent.take(first.id), Some(second));
        assert_eq!(recent.take(first.id), None);
    }

    #[test]
    fn what_is_final_is_not_kept() {
        let recent = Recent::default();
        let open = asked();
        let denied =
            Approval { version: 2, state: ApprovalState::Denied { at: Timestamp::from_micros(8) }, ..open.clone() };
        recent.saw(&denied);
        assert_eq!(recent.take(open.id), None);
        recent.saw(&open);
        recent.saw(&denied);
        assert_eq!(recent.take(open.id), None);
    }

    #[test]
    fn only_the_last_are_kept() {
        let recent = Recent::default();
        let all: Vec<Approval> = (0..MOST + 3).map(|_| asked()).collect();
        all.iter().for_each(|approval| recent.saw(approval));
        assert_eq!(all.iter().filter(|approval| recent.take(approval.id).is_some()).count(), MOST);
        assert_eq!(recent.take(all[0].id), None);
    }
}
