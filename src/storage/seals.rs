//! Sealing: the operations of a store behind the audit that can be proven, and the script of the one that writes the seals,
//! the same for every database.

use super::{Loaded, StoreError};
use crate::domain::audit::leaf::StoredRecord;
use crate::domain::audit::log::{AuditLog, Lease, Sealing, StoredCheckpoint};
use crate::domain::audit::tree::Hash;
use crate::domain::time::Timestamp;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

/// The log as it stands, and what of it is not sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStanding {
    /// The log.
    pub log: AuditLog,
    /// When the oldest record was written that has no seal, as far as that is seen at once; none if every one has.
    pub oldest_unsealed: Option<Timestamp>,
}

/// One bounded run of sealing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealPass {
    /// Who seals: a name of this process.
    pub holder: String,
    /// For how long nobody else does from then on; zero lets go of it.
    pub lease: Duration,
    /// How many records at most.
    pub limit: u32,
    /// Positions of records without a seal that were found by looking through all of them.
    pub late: Vec<i64>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// The log has not been begun.
    NotBegun,
    /// Somebody else seals.
    Held,
    /// These many were sealed; nothing was written if none was.
    Done {
        /// How many.
        seals: u32,
        /// Whether there were as many as were allowed: there may be more.
        more: bool,
    },
}

/// What a run of sealing came to, with what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSlice {
    /// What it came to.
    pub sealed: Sealed,
    /// How long the store worked on it, without waiting and without its commit.
    pub elapsed: Duration,
    /// How long the next run may work, as the store sees who else has to wait for it.
    pub room: Duration,
    /// How long whoever seals leaves the store to everybody else after this run.
    pub rest: Duration,
}

/// A seal with what there is of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its place in the log, from 0.
    pub leaf: u64,
    /// The record's position.
    pub position: i64,
    /// The record's id when it was sealed.
    pub record_id: String,
    /// The hash that was sealed, in hexadecimal digits, as it stands in the table.
    pub leaf_hash: String,
    /// The record at that position; none if it is not there.
    pub record: Option<StoredRecord>,
}

/// Which checkpoints to read, in the order in which they were made unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointQuery {
    /// Those after this one.
    After(i64),
    /// Those before this one, newest first; none: the newest.
    Before(Option<i64>),
    /// Those of this size, newest first.
    OfSize(u64),
}

/// What a store does for the audit that can be proven.
#[async_trait]
pub trait SealStore: Send + Sync {
    /// The log; none if it has not been begun.
    async fn audit_log(&self) -> Result<Loaded<Option<LogStanding>>, StoreError>;

    /// Begins the log, unless it was.
    async fn begin_audit_log(&self, origin: &str) -> Result<(), StoreError>;

    /// Seals records that have no seal, lowest position first, in one transaction, unless somebody else holds the lease.
    async fn seal(&self, pass: SealPass) -> Result<Loaded<SealedSlice>, StoreError>;

    /// Of the records after this position, no more than so many of them and none beyond what is sealed: the positions of
    /// those without a seal, and the last that was looked at; none at the end.
    async fn look_for_unsealed(&self, after: i64, limit: u32) -> Result<(Vec<i64>, Option<i64>), StoreError>;

    /// The records after this position, lowest first, and whether each has a seal.
    async fn records_after(&self, after: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, StoreError>;

    /// Seals from this leaf on.
    async fn audit_entries(&self, from: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError>;

    /// The seal of the record with this id; of several, the first.
    async fn audit_entry_of(&self, record_id: &str) -> Result<Option<AuditEntry>, StoreError>;

    /// Hashes of the tree that are kept, of one level, with their places.
    async fn audit_hashes(&self, level: u8, first: u64, count: u32) -> Result<BTreeMap<u64, Hash>, StoreError>;

    /// Checkpoints, each with its number.
    async fn audit_checkpoints(
        &self,
        wanted: CheckpointQuery,
        limit: u32,
    ) -> Result<Vec<(i64, StoredCheckpoint)>, StoreError>;

    /// Adds a checkpoint, and lets records be deleted as it says, if the log has its very size and origin and nobody but
    /// `holder` holds the lease. Whether it was added.
    async fn add_checkpoint(
        &self,
        holder: &str,
        origin: &str,
        checkpoint: StoredCheckpoint,
    ) -> Result<bool, StoreError>;
}

/// The rows of the log within one transaction, as the scripts need them.
#[async_trait]
pub(super) trait LogRows: Send {
    /// Why it cannot go on.
    type Fault: From<StoreError> + Send;

    /// The store's time.
    fn now(&self) -> Timestamp;

    /// The log, kept from everybody else until the end.
    async fn log(&mut self) -> Result<Option<AuditLog>, Self::Fault>;

    /// Records after this position, lowest first, and whether each has a seal.
    async fn after(&mut self, position: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, Self::Fault>;

    /// Records within these ranges, and whether each has a seal.
    async fn within(&mut self, ranges: &[(i64, i64)], limit: u32) -> Result<Vec<(StoredRecord, bool)>, Self::Fault>;

    /// Adds seals, and the subtrees that they complete.
    async fn insert(&mut self, sealing: &Sealing) -> Result<(), Self::Fault>;

    /// Saves the log, if it still has this size.
    async fn save(&mut self, log: &AuditLog, size: u64) -> Result<bool, Self::Fault>;

    /// Adds a checkpoint.
    async fn insert_checkpoint(&mut self, checkpoint: &StoredCheckpoint) -> Result<(), Self::Fault>;
}

/// See [`SealStore::seal`].
pub(super) async fn seal<R: LogRows>(rows: &mut R, pass: &SealPass) -> Result<Sealed, R::Fault> {
    let now = rows.now();
    let Some(mut log) = rows.log().await? else { return Ok(Sealed::NotBegun) };
    if log.is_held(&pass.holder, now) {
        return Ok(Sealed::Held);
    }
    let size = log.frontier.size();
    let mut ranges: Vec<(i64, i64)> = log.gaps.iter().map(|gap| (gap.first, gap.last)).collect();
    ranges.extend(pass.late.iter().map(|position| (*position, *position)));
    let mut found = if ranges.is_empty() { Vec::new() } else { rows.within(&ranges, pass.limit).await? };
    let above = rows.after(log.sealed_to, pass.limit).await?;
    let is_full = |found: usize| u32::try_from(found).is_ok_and(|found| found >= pass.limit);
    let more = is_full(found.len()) || is_full(above.len());
    found.extend(above);
    let (sealed, unsealed): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, sealed)| *sealed);
    let unsealed: Vec<StoredRecord> = unsealed.into_iter().map(|(record, _)| record).collect();
    let lets_go = pass.lease.is_zero() && log.lease.is_some();
    if unsealed.is_empty() && sealed.is_empty() && !lets_go {
        return Ok(Sealed::Done { seals: 0, more: false });
    }
    let sealing = log.seal(&unsealed, now);
    sealed.iter().for_each(|(record, _)| log.pass(record.position, now));
    let lease = Lease { holder: pass.holder.clone(), until: now.plus(pass.lease) };
    log.lease = (!pass.lease.is_zero()).then_some(lease);
    if !sealing.seals.is_empty() {
        rows.insert(&sealing).await?;
    }
    if !rows.save(&log, size).await? {
        return Err(StoreError::Unavailable { cause: "others seal at the same time".to_owned() }.into());
    }
    Ok(Sealed::Done { seals: u32::try_from(sealing.seals.len()).unwrap_or(u32::MAX), more })
}

/// See [`SealStore::add_checkpoint`].
pub(super) async fn add_checkpoint<R: LogRows>(
    rows: &mut R,
    holder: &str,
    origin: &str,
    checkpoint: &StoredCheckpoint,
) -> Result<bool, R::Fault> {
    let now = rows.now();
    let Some(mut log) = rows.log().await? else { return Ok(false) };
    let size = log.frontier.size();
    if log.is_held(holder, now) || size != checkpoint.size || log.origin != origin {
        return Ok(false);
    }
    rows.insert_checkpoint(checkpoint).await?;
    if checkpoint.deleted_below > log.deleted_below {
        log.deleted_below = checkpoint.deleted_below;
        return rows.save(&log, size).await;
    }
    Ok(true)
}
