//! The log of seals as it stands, and what sealing some more records makes of it.
//!
//! Positions are given before a transaction is committed, and one that is undone leaves a gap: so a record may turn up below
//! one that is sealed. What is missing is noted, and looked for until nothing can be committed there any more.

use super::checkpoint::Checkpoint;
use super::leaf::StoredRecord;
use super::tree::{Frontier, Hash, Node, leaf_hash};
use crate::domain::time::Timestamp;
use std::time::Duration;

/// For how long a position that is missing is looked for: several times what the transaction that has it may take.
pub const GAP_KEPT: Duration = Duration::from_secs(5 * 60);
/// Gaps that are noted at most. What turns up in one that is not is found by looking through all records.
pub const GAPS: usize = 1_024;

/// The log of seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    /// Which log it is: made once.
    pub origin: String,
    /// The tree over its seals.
    pub frontier: Frontier,
    /// The highest position that was sealed.
    pub sealed_to: i64,
    /// The positions below it that were missing.
    pub gaps: Vec<Gap>,
    /// Records of leaves below this one may be deleted: a checkpoint says so.
    pub deleted_below: u64,
    /// Who seals, until when.
    pub lease: Option<Lease>,
}

/// Positions without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first: i64,
    /// The last of them.
    pub last: i64,
    /// When it was noted.
    pub seen: Timestamp,
}

/// Who seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// A sidecar, by a name of its own.
    pub holder: String,
    /// Until then nobody else does.
    pub until: Timestamp,
}

/// The seal of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Its place in the log, from 0 without gaps.
    pub leaf: u64,
    /// The record's position.
    pub position: i64,
    /// The record's id, as it stands there.
    pub record_id: String,
    /// The hash of its leaf.
    pub hash: Hash,
}

/// A checkpoint as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// The log's size.
    pub size: u64,
    /// Below which leaf records may be deleted.
    pub deleted_below: u64,
    /// When it was made, by the store's time.
    pub time: Timestamp,
    /// The id of the server secret that it was signed under.
    pub key_id: String,
    /// The signed note.
    pub note: String,
}

/// What is written down of some seals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealing {
    /// The seals.
    pub seals: Vec<Seal>,
    /// The subtrees that they complete.
    pub nodes: Vec<Node>,
}

impl AuditLog {
    /// A log of nothing.
    pub fn new(origin: String) -> Self {
        Self { origin, frontier: Frontier::default(), sealed_to: 0, gaps: Vec::new(), deleted_below: 0, lease: None }
    }

    /// Whether somebody else than `holder` seals.
    pub fn is_held(&self, holder: &str, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.holder != holder && now < lease.until)
    }

    /// Seals these records, which have none yet, in the order of their positions.
    pub fn seal(&mut self, records: &[StoredRecord], now: Timestamp) -> Sealing {
        let mut sorted: Vec<&StoredRecord> = records.iter().collect();
        sorted.sort_by_key(|record| record.position);
        sorted.dedup_by_key(|record| record.position);
        let mut sealing = Sealing::default();
        for record in sorted {
            let hash = leaf_hash(record.leaf_text().as_bytes());
            let seal =
                Seal { leaf: self.frontier.size(), position: record.position, record_id: record.id().to_owned(), hash };
            self.frontier.push(hash, &mut sealing.nodes);
            sealing.seals.push(seal);
            self.note(record.position, now);
        }
        self.gaps.retain(|gap| now.since(gap.seen) < GAP_KEPT);
        // The oldest first: what is noted last is what is still under way.
        let over = self.gaps.len().saturating_sub(GAPS);
        self.gaps.drain(..over);
        sealing
    }

    /// What is sealed up to this size, for a checkpoint.
    pub fn checkpoint(&self, until: Option<Timestamp>, deleted_below: u64) -> Checkpoint {
        Checkpoint {
            origin: self.origin.clone(),
            size: self.frontier.size(),
            root: self.frontier.root(),
            until,
            deleted_below,
        }
    }

    /// Notes that the record at this position is sealed, though nothing is sealed now.
    pub fn pass(&mut self, position: i64, now: Timestamp) {
        self.note(position, now);
    }

    /// Notes that the record at this position is sealed.
    fn note(&mut self, position: i64, now: Timestamp) {
        if position > self.sealed_to {
            let first = self.sealed_to.saturating_add(1);
            if first < position {
                self.gaps.push(Gap { first, last: position.saturating_sub(1), seen: now });
            }
            self.sealed_to = position;
            return;
        }
        let Some(place) = self.gaps.iter().position(|gap| (gap.first..=gap.last).contains(&position)) else { return };
        let gap = self.gaps.remove(place);
        let before = Gap { last: position.saturating_sub(1), ..gap };
        let after = Gap { first: position.saturating_add(1), ..gap };
        for left in [after, before] {
            if left.first <= left.last {
                self.gaps.insert(place, left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn records(positions: &[i64]) -> Vec<StoredRecord> {
        let record = |position: &i64| StoredRecord { position: *position, time: NOW, texts: Default::default() };
        positions.iter().map(record).collect()
    }

    fn gaps(log: &AuditLog) -> Vec<(i64, i64)> {
        log.gaps.iter().map(|gap| (gap.first, gap.last)).collect()
    }

    #[test]
    fn what_is_missing_is_noted_and_forgotten_in_time() {
        let mut log = AuditLog::new("o".to_owned());
        let sealed = log.seal(&records(&[5, 2, 9]), NOW);
        assert_eq!(
            sealed.seals.iter().map(|seal| (seal.leaf, seal.position)).collect::<Vec<_>>(),
            [(0, 2), (1, 5), (2, 9)]
        );
        assert_eq!((log.sealed_to, gaps(&log)), (9, vec![(1, 1), (3, 4), (6, 8)]));
        let later = NOW.plus(GAP_KEPT / 2);
        log.seal(&records(&[7, 1, 12]), later);
        assert_eq!((log.sealed_to, gaps(&log)), (12, vec![(3, 4), (6, 6), (8, 8), (10, 11)]));
        log.seal(&records(&[13]), NOW.plus(GAP_KEPT));
        assert_eq!(gaps(&log), [(10, 11)]);
        assert_eq!(log.frontier.size(), 7);
        // Later than that it is sealed all the same.
        log.seal(&records(&[3]), NOW.plus(GAP_KEPT));
        assert_eq!((log.frontier.size(), log.sealed_to), (8, 13));
    }

    #[test]
    fn a_lease_is_its_holders_until_its_end() {
        let mut log = AuditLog::new("o".to_owned());
        assert!(!log.is_held("a", NOW));
        log.lease = Some(Lease { holder: "b".to_owned(), until: NOW });
        assert!(!log.is_held("a", NOW), "its end is no part of it");
        assert!(log.is_held("a", NOW.minus(Duration::from_micros(1))));
        assert!(!log.is_held("b", NOW.minus(Duration::from_micros(1))));
    }

    proptest! {
        #[test]
        fn each_position_is_sealed_or_in_a_gap(slices in prop::collection::vec(prop::collection::btree_set(1_i64..60, 0..6), 0..12)) {
            let mut log = AuditLog::new("o".to_owned());
            let mut sealed = BTreeSet::new();
            for slice in slices {
                let new: Vec<i64> = slice.into_iter().filter(|position| !sealed.contains(position)).collect();
                let made = log.seal(&records(&new), NOW);
                prop_assert_eq!(made.seals.len(), new.len());
                sealed.extend(new);
                prop_assert_eq!(log.frontier.size(), u64::try_from(sealed.len()).unwrap());
                prop_assert_eq!(log.sealed_to, sealed.last().copied().unwrap_or(0));
                let missing: BTreeSet<i64> = log.gaps.iter().flat_map(|gap| gap.first..=gap.last).collect();
                let all: BTreeSet<i64> = (1..=log.sealed_to).collect();
                prop_assert_eq!(&missing | &sealed, all);
                prop_assert!(missing.is_disjoint(&sealed));
            }
        }
    }
}
