//! Which versions have been told, so that what is found again is not told again.

use crate::domain::ids::ApprovalId;
use crate::storage::changes::Touch;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How many are remembered at most, twice. With more than that, some are told again.
const MOST: usize = 100_000;

/// What has been told, for a while: remembered in two halves, of which the older one is forgotten whole.
#[derive(Debug)]
pub(super) struct Known {
    young: HashMap<ApprovalId, Told>,
    old: HashMap<ApprovalId, Told>,
    turned: Instant,
    every: Duration,
}

/// What has been told of one approval.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The greatest version that is known to be in the table.
    sure: u64,
    /// The last version that a notification spoke of. Anybody who may connect to the database can send one: it never keeps
    /// another version from being told.
    heard: u64,
}

impl Known {
    /// Remembers for at least this long, and at most for twice as long.
    pub(super) fn for_at_least(span: Duration) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), turned: Instant::now(), every: span }
    }

    /// What is to be told of what this process committed.
    pub(super) fn committed(&mut self, touches: &[Touch]) -> Vec<Touch> {
        self.news(touches, |told, version| {
            let new = version > told.sure;
            told.sure = told.sure.max(version);
            new
        })
    }

    /// What is to be told of what was found in the table.
    pub(super) fn found(&mut self, touches: &[Touch]) -> Vec<Touch> {
        self.news(touches, |told, version| {
            let new = version > told.sure && version != told.heard;
            told.sure = told.sure.max(version);
            new
        })
    }

    /// What is to be told of what a notification says.
    pub(super) fn heard(&mut self, touches: &[Touch]) -> Vec<Touch> {
        self.news(touches, |told, version| {
            let new = version > told.sure && version != told.heard;
            told.heard = version;
            new
        })
    }

    fn news(&mut self, touches: &[Touch], mut is_new: impl FnMut(&mut Told, u64) -> bool) -> Vec<Touch> {
        self.turn();
        let mut news = Vec::new();
        for touch in touches {
            let told = match self.young.get_mut(&touch.id) {
                Some(told) => told,
                None => {
                    let told = self.old.remove(&touch.id).unwrap_or_default();
                    self.young.entry(touch.id).or_insert(told)
                }
            };
            if is_new(told, touch.version) {
                news.push(*touch);
            }
        }
        news
    }

    fn turn(&mut self) {
        if self.young.len() >= MOST || self.turned.elapsed() >= self.every {
            self.old = std::mem::take(&mut self.young);
            self.turned = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn touch(number: u64, version: u64) -> Touch {
        Touch { id: ApprovalId::new(Uuid::from_u64_pair(7, number)), version }
    }

    fn known() -> Known {
        Known::for_at_least(Duration::from_secs(60))
    }

    #[test]
    fn what_is_told_is_not_told_again_however_it_is_found() {
        let mut known = known();
        assert_eq!(known.committed(&[touch(1, 1), touch(2, 1)]), [touch(1, 1), touch(2, 1)]);
        assert_eq!(known.found(&[touch(1, 1), touch(2, 2)]), [touch(2, 2)]);
        assert_eq!(known.committed(&[touch(2, 2)]), [], "found in the table before the answer came");
        assert_eq!(known.heard(&[touch(1, 1), touch(1, 2)]), [touch(1, 2)]);
        assert_eq!(known.found(&[touch(1, 2)]), [], "heard of before");
        assert_eq!(known.found(&[touch(1, 3)]), [touch(1, 3)]);
    }

    #[test]
    fn a_forged_notification_keeps_nothing_from_being_told() {
        let mut known = known();
        known.heard(&[touch(1, u64::MAX)]);
        assert_eq!(known.found(&[touch(1, 2)]), [touch(1, 2)]);
        assert_eq!(known.heard(&[touch(1, 3)]), [touch(1, 3)]);
        assert_eq!(known.committed(&[touch(1, 4)]), [touch(1, 4)]);
    }

    #[test]
    fn what_is_remembered_is_bounded_in_time_and_number() {
        let mut known = known();
        let later = |known: &mut Known| known.turned = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        known.committed(&[touch(1, 1)]);
        later(&mut known);
        known.committed(&[touch(2, 1)]);
        assert_eq!(known.found(&[touch(1, 1)]), [], "for at least as long as was asked");
        later(&mut known);
        known.committed(&[touch(2, 1)]);
        later(&mut known);
        assert_eq!(known.found(&[touch(1, 1)]), [touch(1, 1)], "and not for ever");
        for number in 0..250_000 {
            known.committed(&[touch(number, 9)]);
            assert!(known.young.len() <= MOST && known.old.len() <= MOST);
        }
    }
}
