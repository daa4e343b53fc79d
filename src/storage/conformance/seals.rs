//! The log of seals.

use super::*;
use crate::domain::audit::leaf::StoredRecord;
use crate::domain::audit::log::{AuditLog, StoredCheckpoint};
use crate::domain::audit::tree::{Frontier, frontier_of, leaf_hash};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::hex::{hex, parse_hex};
use crate::storage::kept::made_of;
use crate::storage::{AuditEntry, AuditQuery, CheckpointQuery, SealPass, Sealed};

const LEASE: Duration = Duration::from_secs(15);

pub(super) fn pass(holder: &str, limit: u32) -> SealPass {
    SealPass { holder: holder.to_owned(), lease: LEASE, limit, late: Vec::new() }
}

fn event(word: &str) -> AuditEvent {
    AuditEvent::about(AuditKind::ConsumeRefused, &subject(), None, word)
}

impl Fixture {
    pub(super) async fn log(&self) -> AuditLog {
        self.store.audit_log().await.unwrap().row.unwrap().log
    }

    pub(super) async fn entries(&self) -> Vec<AuditEntry> {
        self.store.audit_entries(0, 10_000).await.unwrap()
    }

    pub(super) async fn seal_all(&self, holder: &str) {
        while let Sealed::Done { more: true, .. } = self.store.seal(pass(holder, 50)).await.unwrap().row.sealed {}
    }

    /// Seals what there is, which is so much, and lets the records of leaves below this one be deleted.
    pub(super) async fn sealed(&self, records: u32, below: u64) {
        self.store.begin_audit_log("origin").await.unwrap();
        let sealed = self.store.seal(pass("sealer", 1_000)).await.unwrap().row.sealed;
        assert_eq!(sealed, Sealed::Done { seals: records, more: false });
        let checkpoint = self.checkpoint(below).await;
        assert!(self.store.add_checkpoint("sealer", "origin", checkpoint).await.unwrap());
    }

    /// Seals everything, and lets every record of it be deleted.
    pub(super) async fn gives_up(&self) {
        self.store.begin_audit_log("origin").await.unwrap();
        self.seal_all("sealer").await;
        let checkpoint = self.checkpoint(self.log().await.frontier.size()).await;
        assert!(self.store.add_checkpoint("sealer", "origin", checkpoint).await.unwrap());
    }

    async fn checkpoint(&self, deleted_below: u64) -> StoredCheckpoint {
        let size = self.log().await.frontier.size();
        let (key_id, note) = ("0011".to_owned(), format!("note {size} {deleted_below}"));
        StoredCheckpoint { size, deleted_below, time: self.now(), key_id, note }
    }

    /// Fails where the log is not that of its seals, or a seal is not that of its record.
    pub(super) async fn is_whole(&self) {
        let (log, entries) = (self.log().await, self.entries().await);
        let (mut frontier, mut nodes) = (Frontier::default(), Vec::new());
        for (leaf, entry) in (0_u64..).zip(&entries) {
            let record = entry.record.as_ref().unwrap();
            assert_eq!((entry.leaf, entry.position), (leaf, record.position));
            assert_eq!(entry.record_id, record.id());
            let hash = leaf_hash(record.leaf_text().as_bytes());
            assert_eq!(entry.leaf_hash, hex(&hash));
            frontier.push(hash, &mut nodes);
        }
        assert_eq!(log.frontier, frontier);
        let size = frontier.size();
        let kept = made_of(self.store.as_ref(), |kept| frontier_of(size, kept)).await.unwrap();
        assert_eq!(kept, Some(frontier));
        for node in nodes {
            let read = self.store.audit_hashes(node.level, node.index, 1).await.unwrap();
            assert_eq!(read.get(&node.index), Some(&node.hash));
        }
    }

    /// How many records there are.
    async fn records(&self) -> usize {
        let query = AuditQuery { limit: 10_000, ..AuditQuery::default() };
        self.store.audit_records(query).await.unwrap().row.len()
    }
}

pub(in super::super) async fn every_record_is_sealed_once_in_its_order_slice_by_slice(fixture: Fixture) {
    assert_eq!(fixture.store.audit_log().await.unwrap().row, None);
    assert_eq!(fixture.store.seal(pass("a", 9)).await.unwrap().row.sealed, Sealed::NotBegun);
    fixture.store.begin_audit_log("origin").await.unwrap();
    fixture.store.begin_audit_log("another").await.unwrap();
    assert_eq!(fixture.log().await, AuditLog::new("origin".to_owned()));
    assert_eq!(fixture.store.seal(pass("a", 9)).await.unwrap().row.sealed, Sealed::Done { seals: 0, more: false });
    assert_eq!(fixture.log().await.lease, None, "who does nothing holds nothing");

    fixture.consumed(question()).await;
    let written = fixture.now();
    fixture.clock.advance(Duration::from_secs(1));
    fixture
        .store
        .record(vec![event("1"), event("'; DROP TABLE audit_seals; --\u{0}"), event("\u{10ffff}0")])
        .await
        .unwrap();
    let standing = fixture.store.audit_log().await.unwrap().row.unwrap();
    assert_eq!(standing.oldest_unsealed, Some(written));
    let all = u32::try_from(fixture.records().await).unwrap();
    assert_eq!(all, 7);
    for (seals, more) in [(3, true), (3, true), (1, false), (0, false)] {
        assert_eq!(fixture.store.seal(pass("a", 3)).await.unwrap().row.sealed, Sealed::Done { seals, more });
        fixture.is_whole().await;
    }
    let positions: Vec<i64> = fixture.entries().await.iter().map(|entry| entry.position).collect();
    assert!(positions.is_sorted() && positions.len() == 7, "{positions:?}");
    assert_eq!(fixture.store.audit_log().await.unwrap().row.unwrap().oldest_unsealed, None);
    let fixture = fixture.reopen().await;
    fixture.store.record(vec![event("2")]).await.unwrap();
    assert_eq!(fixture.store.seal(pass("a", 3)).await.unwrap().row.sealed, Sealed::Done { seals: 1, more: false });
    fixture.is_whole().await;
}

pub(in super::super) async fn a_lease_keeps_others_out_until_it_ends(fixture: Fixture) {
    fixture.store.begin_audit_log("origin").await.unwrap();
    fixture.store.record(vec![event("1")]).await.unwrap();
    let begun = fixture.now();
    assert!(matches!(fixture.store.seal(pass("a", 9)).await.unwrap().row.sealed, Sealed::Done { seals: 1, .. }));
    fixture.store.record(vec![event("2")]).await.unwrap();
    let checkpoint = fixture.checkpoint(0).await;
    for instant in [begun, begun.plus(LEASE).minus(TICK)] {
        fixture.advance_to(instant);
        assert_eq!(fixture.store.seal(pass("b", 9)).await.unwrap().row.sealed, Sealed::Held);
        assert!(!fixture.store.add_checkpoint("b", "origin", checkpoint.clone()).await.unwrap());
    }
    assert!(fixture.store.add_checkpoint("a", "origin", checkpoint).await.unwrap());
    fixture.advance_to(begun.plus(LEASE));
    assert!(matches!(fixture.store.seal(pass("b", 9)).await.unwrap().row.sealed, Sealed::Done { seals: 1, .. }));
    assert_eq!(fixture.store.seal(pass("a", 9)).await.unwrap().row.sealed, Sealed::Held);
    // Who lets go of it keeps nobody waiting.
    let done = SealPass { lease: Duration::ZERO, ..pass("b", 9) };
    assert_eq!(fixture.store.seal(done).await.unwrap().row.sealed, Sealed::Done { seals: 0, more: false });
    assert!(matches!(fixture.store.seal(pass("a", 9)).await.unwrap().row.sealed, Sealed::Done { seals: 0, .. }));
    fixture.is_whole().await;
}

pub(in super::super) async fn what_is_kept_of_the_tree_is_that_of_the_seals(fixture: Fixture) {
    fixture.store.begin_audit_log("origin").await.unwrap();
    for _ in 0..3 {
        fixture.store.record((0..200).map(|number| event(&number.to_string())).collect()).await.unwrap();
        fixture.seal_all("a").await;
    }
    assert_eq!(fixture.log().await.frontier.size(), 600);
    fixture.is_whole().await;
    let hashes = fixture.store.audit_hashes(0, 598, 10).await.unwrap();
    let entries = fixture.store.audit_entries(598, 10).await.unwrap();
    let of_entries = entries.iter().map(|entry| (entry.leaf, parse_hex(&entry.leaf_hash).unwrap()));
    assert_eq!(hashes, of_entries.collect());
    assert_eq!(fixture.store.audit_hashes(8, 0, 10).await.unwrap().len(), 2);
    assert!(fixture.store.audit_hashes(16, 0, 10).await.unwrap().is_empty());
}

pub(in super::super) async fn a_checkpoint_is_of_the_log_as_it_is(fixture: Fixture) {
    fixture.store.record(vec![event("1"), event("2")]).await.unwrap();
    fixture.sealed(2, 0).await;
    let known = fixture.checkpoint(1).await;
    for (origin, wrong) in [
        ("another", known.clone()),
        ("origin", StoredCheckpoint { size: 1, ..known.clone() }),
        ("origin", StoredCheckpoint { size: 3, ..known.clone() }),
    ] {
        assert!(!fixture.store.add_checkpoint("sealer", origin, wrong).await.unwrap());
    }
    assert!(fixture.store.add_checkpoint("sealer", "origin", known.clone()).await.unwrap());
    assert_eq!(fixture.log().await.deleted_below, 1);
    fixture.store.record(vec![event("3")]).await.unwrap();
    fixture.sealed(1, 0).await;
    assert_eq!(fixture.log().await.deleted_below, 1, "what may be deleted does not become less");
    let read = async |query, limit| {
        let found = fixture.store.audit_checkpoints(query, limit).await.unwrap();
        found.into_iter().map(|(number, read)| (number, read.size, read.deleted_below)).collect::<Vec<_>>()
    };
    let all = read(CheckpointQuery::After(i64::MIN), 9).await;
    assert_eq!(all.iter().map(|(_, size, below)| (*size, *below)).collect::<Vec<_>>(), [(2, 0), (2, 1), (3, 0)]);
    assert_eq!(read(CheckpointQuery::After(all[0].0), 1).await, all[1..2]);
    assert_eq!(read(CheckpointQuery::Before(None), 2).await, [all[2], all[1]]);
    assert_eq!(read(CheckpointQuery::Before(Some(all[1].0)), 2).await, [all[0]]);
    assert_eq!(read(CheckpointQuery::OfSize(2), 9).await, [all[1], all[0]]);
    assert_eq!(read(CheckpointQuery::OfSize(1), 9).await, []);
    assert_eq!(fixture.store.audit_checkpoints(CheckpointQuery::OfSize(2), 1).await.unwrap()[0].1, known);
}

pub(in super::super) async fn what_was_passed_over_is_found_and_sealed(fixture: Fixture) {
    fixture.store.record(vec![event("1"), event("2"), event("3")]).await.unwrap();
    fixture.sealed(3, 0).await;
    assert_eq!(fixture.store.look_for_unsealed(i64::MIN, 2).await.unwrap(), (Vec::new(), Some(2)));
    assert_eq!(fixture.store.look_for_unsealed(2, 2).await.unwrap(), (Vec::new(), Some(3)));
    assert_eq!(fixture.store.look_for_unsealed(3, 2).await.unwrap(), (Vec::new(), None));
    fixture.store.record(vec![event("4")]).await.unwrap();
    assert_eq!(fixture.store.look_for_unsealed(3, 2).await.unwrap(), (Vec::new(), None), "that is no more than new");
    let after = fixture.store.records_after(2, 9).await.unwrap();
    let after: Vec<(i64, bool)> = after.iter().map(|(record, sealed)| (record.position, *sealed)).collect();
    assert_eq!(after, [(3, true), (4, false)]);
    // Named once more, what is sealed is not sealed again.
    let again = SealPass { late: vec![1, 2, 4, 99], ..pass("sealer", 9) };
    assert_eq!(fixture.store.seal(again).await.unwrap().row.sealed, Sealed::Done { seals: 1, more: false });
    fixture.is_whole().await;
}

pub(in super::super) async fn a_seal_is_found_by_its_record_and_keeps_what_it_was_of(fixture: Fixture) {
    fixture.store.record(vec![event("1"), event("2")]).await.unwrap();
    let written = fixture.now();
    fixture.sealed(2, 1).await;
    let entries = fixture.entries().await;
    let found = fixture.store.audit_entry_of(&entries[1].record_id).await.unwrap();
    assert_eq!(found.as_ref(), Some(&entries[1]));
    assert_eq!(fixture.store.audit_entry_of("nobody's").await.unwrap(), None);
    fixture.advance_to(written.plus(Duration::from_secs(1)));
    let delete = crate::storage::Sweep::DeleteAuditRecords { kept: Duration::from_secs(1) };
    assert_eq!(fixture.store.sweep(delete, 9).await.unwrap().rows, 1);
    let gone = fixture.store.audit_entry_of(&entries[0].record_id).await.unwrap().unwrap();
    assert_eq!(gone, AuditEntry { record: None::<StoredRecord>, ..entries[0].clone() });
    assert_eq!(fixture.store.audit_entries(1, 9).await.unwrap(), entries[1..]);
}
