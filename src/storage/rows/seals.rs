//! Rows of the log of seals, and records as they stand, whatever stands there.

use super::{Bind, Columns, Fields, list};
use crate::domain::audit::leaf::{StoredRecord, TEXTS};
use crate::domain::audit::log::{AuditLog, Gap, Lease, StoredCheckpoint};
use crate::domain::audit::tree::{Frontier, Hash};
use crate::domain::hex::{hex, parse_hex};
use crate::domain::time::Timestamp;
use crate::storage::StoreError;
use crate::storage::seals::AuditEntry;

/// Reads a record as it stands. One that no binary of ours would write is read as well.
pub(in crate::storage) fn stored_record(row: &impl Columns) -> Result<StoredRecord, StoreError> {
    let fields = Fields::new(row, "audit_records", "position");
    let mut texts = std::collections::BTreeMap::new();
    for name in TEXTS {
        if let Some(text) = fields.known(row.stored(name))? {
            texts.insert(name, text);
        }
    }
    Ok(StoredRecord { position: fields.get("position")?, time: fields.time("time")?, texts })
}

/// Reads a seal, with its record where one is joined to it.
pub(in crate::storage) fn audit_entry(row: &impl Columns) -> Result<AuditEntry, StoreError> {
    let fields = Fields::new(row, "audit_seals", "leaf");
    let joined: Option<i64> = fields.get("position")?;
    Ok(AuditEntry {
        leaf: fields.count("leaf")?,
        position: fields.get("record_position")?,
        record_id: fields.get("record_id")?,
        leaf_hash: fields.get("leaf_hash")?,
        record: joined.map(|_| stored_record(row)).transpose()?,
    })
}

/// Reads a hash of the tree with its place.
pub(in crate::storage) fn audit_hash(row: &impl Columns) -> Result<(u64, Hash), StoreError> {
    let fields = Fields::new(row, "audit_nodes", "place");
    Ok((fields.count("place")?, fields.parsed("hash", parse_hex)?))
}

/// Reads the log.
pub(in crate::storage) fn audit_log(row: &impl Columns) -> Result<AuditLog, StoreError> {
    let fields = Fields::new(row, "audit_log", "origin");
    let hashes: Vec<String> = fields.list("frontier")?;
    let hashes: Option<Vec<Hash>> = hashes.iter().map(|hash| parse_hex(hash)).collect();
    let frontier = hashes.and_then(|hashes| Frontier::new(fields.count("size").ok()?, hashes));
    let gaps: Vec<(i64, i64, i64)> = fields.list("gaps")?;
    let lease: (Option<String>, Option<i64>) = (fields.get("lease_holder")?, fields.get("lease_until")?);
    Ok(AuditLog {
        origin: fields.get("origin")?,
        frontier: fields.known(frontier)?,
        sealed_to: fields.get("sealed_to")?,
        gaps: gaps
            .into_iter()
            .map(|(first, last, seen)| Gap { first, last, seen: Timestamp::from_micros(seen) })
            .collect(),
        deleted_below: fields.count("deleted_below")?,
        lease: match lease {
            (Some(holder), Some(until)) => Some(Lease { holder, until: Timestamp::from_micros(until) }),
            _ => None,
        },
    })
}

/// The hashes of a frontier as they are written down.
fn hashes_text(log: &AuditLog) -> String {
    list(&log.frontier.hashes().iter().map(|hash| hex(hash)).collect::<Vec<_>>())
}

/// Gaps as they are written down.
pub(in crate::storage) fn gaps_text(log: &AuditLog) -> String {
    list(&log.gaps.iter().map(|gap| (gap.first, gap.last, gap.seen.micros())).collect::<Vec<_>>())
}

/// Binds a log but its origin: `size`, `frontier`, `sealed_to`, `gaps`, `deleted_below`, `lease_holder` and `lease_until`.
pub(in crate::storage) fn bind_log<S: Bind>(statement: S, log: &AuditLog) -> S {
    statement
        .bind(super::integer(log.frontier.size()))
        .bind(hashes_text(log))
        .bind(log.sealed_to)
        .bind(gaps_text(log))
        .bind(super::integer(log.deleted_below))
        .bind(log.lease.as_ref().map(|lease| lease.holder.clone()))
        .bind(log.lease.as_ref().map(|lease| lease.until.micros()))
}

/// Reads a checkpoint with its number.
pub(in crate::storage) fn checkpoint(row: &impl Columns) -> Result<(i64, StoredCheckpoint), StoreError> {
    let fields = Fields::new(row, "audit_checkpoints", "sequence");
    let checkpoint = StoredCheckpoint {
        size: fields.count("size")?,
        deleted_below: fields.count("deleted_below")?,
        time: fields.time("time")?,
        key_id: fields.get("key_id")?,
        note: fields.get("note")?,
    };
    Ok((fields.get("sequence")?, checkpoint))
}
