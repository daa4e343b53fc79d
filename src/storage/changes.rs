//! Which approvals changed, told after each commit: hints for who watches. The table alone says what is so.
//!
//! - [`Touched`]: what one transaction wrote, gathered where rows of approvals are written
//! - [`Feed`]: where a backend tells it, once it is committed
//! - [`Changes`]: where it is heard

use crate::domain::audit::AuditKind;
use crate::domain::ids::ApprovalId;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// What is told at once, at most: a commit of more is told in parts, so that none holds much memory.
const AT_ONCE: usize = 256;
/// Parts that may wait for a slow listener; with more than that it is told that it missed some.
const WAITING: usize = 1_024;

/// One approval, and the version that it now has or has already left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Which.
    pub id: ApprovalId,
    /// The version that was written.
    pub version: u64,
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// These approvals changed, in the order of their commits.
    Touched(Arc<[Touch]>),
    /// Some changes were not told: whatever is known from before may be out of date, and is to be read again.
    Lagged,
}

/// The approvals that one transaction created or changed the state of, in order, and the audit records that it wrote.
/// Whatever writes such a row is given one and says so, also in bulk; what is undone is never told. Erasing what a person
/// is shown is no change.
#[derive(Debug, Default)]
pub struct Touched {
    approvals: Vec<Touch>,
    records: Vec<(AuditKind, u64)>,
}

impl Touched {
    /// Notes that this approval was written with this version.
    pub fn approval(&mut self, id: ApprovalId, version: u64) {
        self.approvals.push(Touch { id, version });
    }

    /// Notes that so many audit records of this kind were written.
    pub fn recorded(&mut self, kind: AuditKind, number: u64) {
        self.records.push((kind, number));
    }

    /// The approvals that were written, in order.
    pub fn approvals(&self) -> &[Touch] {
        &self.approvals
    }

    /// How many audit records of which kinds were written; a kind may be there several times.
    pub fn records(&self) -> &[(AuditKind, u64)] {
        &self.records
    }
}

/// Where a backend tells what it committed.
#[derive(Clone, Debug)]
pub struct Feed(broadcast::Sender<Told>);

impl Default for Feed {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl Feed {
    /// Tells what a transaction touched. To be called after its commit, in the order of the commits, and before or while
    /// its writes are answered. Costs nothing while nobody listens.
    pub fn committed(&self, touched: &Touched) {
        self.tell(&touched.approvals);
    }

    /// The same of changes that another process committed.
    pub fn tell(&self, touches: &[Touch]) {
        if !self.is_heard() {
            return;
        }
        for part in touches.chunks(AT_ONCE) {
            // The last listener may just have gone.
            let _ = self.0.send(Told::Touched(part.into()));
        }
    }

    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Tells that something may have been committed of which nothing is known.
    pub fn missed(&self) {
        let _ = self.0.send(Told::Lagged);
    }

    /// Hears everything that is told from now on.
    pub fn listen(&self) -> Changes {
        Changes(self.0.subscribe())
    }
}

/// What is told, from when this was made.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Told>);

impl Changes {
    /// Waits for what is told next; none once the store is gone.
    pub async fn next(&mut self) -> Option<Told> {
        match self.0.recv().await {
            Ok(told) => Some(told),
            Err(RecvError::Lagged(_)) => Some(Told::Lagged),
            Err(RecvError::Closed) => None,
        }
    }

    /// What has been told already, without waiting.
    pub fn now(&mut self) -> Option<Told> {
        match self.0.try_recv() {
            Ok(told) => Some(told),
            Err(broadcast::error::TryRecvError::Lagged(_)) => Some(Told::Lagged),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn touched(count: u64) -> Touched {
        let mut touched = Touched::default();
        for number in 1..=count {
            touched.approval(ApprovalId::new(Uuid::from_u64_pair(7, number)), number);
        }
        touched
    }

    #[test]
    fn what_was_committed_is_told_in_order_and_in_parts() {
        let feed = Feed::default();
        feed.committed(&touched(3));
        let mut changes = feed.listen();
        assert_eq!(changes.now(), None, "nothing of before");
        feed.committed(&touched(600));
        let mut versions = Vec::new();
        while let Some(Told::Touched(part)) = changes.now() {
            assert!(part.len() <= AT_ONCE);
            versions.extend(part.iter().map(|touch| touch.version));
        }
        assert_eq!(versions, (1..=600).collect::<Vec<_>>());
    }

    #[test]
    fn who_is_too_slow_is_told_that_something_is_missing() {
        let feed = Feed::default();
        let mut changes = feed.listen();
        for _ in 0..=WAITING {
            feed.committed(&touched(1));
        }
        assert_eq!(changes.now(), Some(Told::Lagged));
        assert!(matches!(changes.now(), Some(Told::Touched(_))), "and hears the rest");
        feed.missed();
        while let Some(told) = changes.now() {
            if told == Told::Lagged {
                return;
            }
        }
        panic!("what is unknown was not told");
    }
}
