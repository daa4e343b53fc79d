//! The audit that can be proven: telling it whole, its checkpoints, and the proofs of parts of it.

use super::error::AuditRefusal;
use super::{Engine, EngineError};
use crate::domain::audit::checkpoint::{Checkpoint, Note, VerifierKey};
use crate::domain::audit::leaf::StoredRecord;
use crate::domain::audit::log::StoredCheckpoint;
use crate::domain::audit::tree::{self, Hash};
use crate::domain::time::Timestamp;
use crate::storage::kept::made_of;
use crate::storage::{AuditEntry, CheckpointQuery, Loaded, Store};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Exports under way at once: each reads as fast as it is taken.
const EXPORTS: usize = 4;
static UNDER_WAY: Semaphore = Semaphore::const_new(EXPORTS);
/// Rows that an export reads at once: what it holds in memory.
const ROWS: u32 = 256;
/// Newest checkpoints among which one is looked for that covers a record.
const NEWEST: u32 = 16;

/// The log of seals, to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTold {
    /// Which log.
    pub origin: String,
    /// Its seals.
    pub size: u64,
    /// The root over them as the table has it.
    pub root: Hash,
    /// Below which leaf records may have been deleted.
    pub deleted_below: u64,
    /// The store's time.
    pub time: Timestamp,
    /// The keys at hand by which checkpoints are verified, the one that signs first.
    pub keys: Vec<VerifierKey>,
}

/// A part of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The log.
    Log(LogTold),
    /// A checkpoint.
    Checkpoint(StoredCheckpoint),
    /// A seal with its record.
    Entry(AuditEntry),
    /// A record without a seal.
    Unsealed(StoredRecord),
    /// The end: how many entries and how many records without a seal were told.
    End(u64, u64),
}

/// A record with the way to a signed root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordProof {
    /// The seal with its record.
    pub entry: AuditEntry,
    /// The hashes beside the way.
    pub path: Vec<Hash>,
    /// The checkpoint of that root.
    pub checkpoint: StoredCheckpoint,
}

/// Tells the audit part by part.
#[derive(Debug)]
pub struct AuditExport {
    engine: Arc<Engine>,
    ready: VecDeque<Exported>,
    next: Next,
    from: u64,
    size: u64,
    time: Timestamp,
    sealed_to: i64,
    checkpoint: i64,
    entries: u64,
    unsealed: u64,
    _place: SemaphorePermit<'static>,
}

/// What an export tells next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Log,
    Checkpoints,
    /// From this leaf on.
    Entries(u64),
    /// Among the records after this position, below the highest that is sealed.
    Late(i64),
    /// The records after this position.
    Tail(i64),
    NewCheckpoints,
    End,
    Over,
}

impl Engine {
    /// The log of seals as it stands.
    ///
    /// # Errors
    /// It has not been begun; the store.
    pub async fn audit_log(&self) -> Result<LogTold, EngineError> {
        let mut loaded = self.store.audit_log().await?;
        if loaded.row.is_none()
            && let Some(sealer) = self.sealer.get()
        {
            // It is begun with the first pass, which nobody has to wait for.
            sealer.pass().await?;
            loaded = self.store.audit_log().await?;
        }
        let Loaded { row, now } = loaded;
        let Some(standing) = row else { return Err(EngineError::Audit(AuditRefusal::CheckpointUnknown)) };
        let log = standing.log;
        let key = |public: &[u8; 32]| VerifierKey { name: log.origin.clone(), public: *public };
        Ok(LogTold {
            size: log.frontier.size(),
            root: log.frontier.root(),
            deleted_below: log.deleted_below,
            time: now,
            keys: self.keys().all().map(|keys| key(keys.checkpoint().public())).collect(),
            origin: log.origin,
        })
    }

    /// The checkpoint of this size; without one the newest. `now`: what there is to seal and sign is first.
    ///
    /// # Errors
    /// There is none; the store.
    pub async fn audit_checkpoint(&self, size: Option<u64>, now: bool) -> Result<StoredCheckpoint, EngineError> {
        if now && let Some(sealer) = self.sealer.get() {
            sealer.checkpoint_now().await?;
        }
        let wanted = size.map_or(CheckpointQuery::Before(None), CheckpointQuery::OfSize);
        let found = self.store.audit_checkpoints(wanted, 1).await?;
        let newest = found.into_iter().next().map(|(_, checkpoint)| checkpoint);
        newest.ok_or(EngineError::Audit(AuditRefusal::CheckpointUnknown))
    }

    /// The proof that the record of this id is in the log.
    ///
    /// # Errors
    /// It is not sealed, or no checkpoint covers it yet; the log is damaged; the store.
    pub async fn prove_audit_record(&self, record_id: &str) -> Result<RecordProof, EngineError> {
        let entry = self.store.audit_entry_of(record_id).await?;
        let entry = entry.ok_or(EngineError::Audit(AuditRefusal::RecordNotSealed))?;
        let newest = self.store.audit_checkpoints(CheckpointQuery::Before(None), NEWEST).await?;
        let covering = newest.into_iter().find_map(|(_, stored)| {
            let said = Checkpoint::parse(&Note::parse(&stored.note)?.text)?;
            (said.size > entry.leaf).then_some((stored, said.size))
        });
        let (checkpoint, size) = covering.ok_or(EngineError::Audit(AuditRefusal::CheckpointUnknown))?;
        let path = made_of(self.store.as_ref(), |kept| tree::inclusion(entry.leaf, size, kept)).await?;
        let path = path.ok_or(EngineError::Audit(AuditRefusal::Damaged("a hash of the audit's tree is not there")))?;
        Ok(RecordProof { entry, path, checkpoint })
    }

    /// The proof that the log of the older size is what that of the newer one began with, and the newer size: without one
    /// that of the newest checkpoint.
    ///
    /// # Errors
    /// The log never had such sizes; it is damaged; the store.
    pub async fn prove_audit_consistency(
        &self,
        older: u64,
        newer: Option<u64>,
    ) -> Result<(u64, Vec<Hash>), EngineError> {
        let newer = match newer {
            Some(newer) => newer,
            None => self.audit_checkpoint(None, false).await?.size,
        };
        let size = self.audit_log().await?.size;
        if older == 0 || older > newer || newer > size {
            return Err(EngineError::Audit(AuditRefusal::SizeUnknown));
        }
        let path = made_of(self.store.as_ref(), |kept| tree::consistency(older, newer, kept)).await?;
        let path = path.ok_or(EngineError::Audit(AuditRefusal::Damaged("a hash of the audit's tree is not there")))?;
        Ok((newer, path))
    }

    /// The audit from this leaf on.
    ///
    /// # Errors
    /// Too many are at it.
    pub fn export_audit(self: &Arc<Self>, from: u64) -> Result<AuditExport, EngineError> {
        let place = UNDER_WAY.try_acquire().map_err(|_| EngineError::Audit(AuditRefusal::TooManyExports))?;
        Ok(AuditExport {
            engine: Arc::clone(self),
            ready: VecDeque::new(),
            next: Next::Log,
            from,
            size: 0,
            time: Timestamp::from_micros(i64::MIN),
            sealed_to: i64::MIN,
            checkpoint: i64::MIN,
            entries: 0,
            unsealed: 0,
            _place: place,
        })
    }
}

impl AuditExport {
    /// The next part; none after the last.
    pub async fn next(&mut self) -> Option<Result<Exported, EngineError>> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Some(Ok(part));
            }
            if matches!(self.next, Next::Over) {
                return None;
            }
            if let Err(error) = self.read().await {
                self.next = Next::Over;
                return Some(Err(error));
            }
        }
    }

    /// Reads some more.
    async fn read(&mut self) -> Result<(), EngineError> {
        let engine = Arc::clone(&self.engine);
        let store = engine.store.as_ref();
        self.next = match self.next {
            Next::Log => {
                let told = engine.audit_log().await?;
                let standing = store.audit_log().await?.row;
                self.sealed_to = standing.map_or(i64::MIN, |standing| standing.log.sealed_to);
                (self.size, self.time) = (told.size, told.time);
                self.ready.push_back(Exported::Log(told));
                Next::Checkpoints
            }
            Next::Checkpoints => {
                if self.checkpoints(store).await? {
                    Next::Checkpoints
                } else {
                    Next::Entries(self.from)
                }
            }
            Next::Entries(from) => {
                let entries = store.audit_entries(from, ROWS).await?;
                let last = entries.last().map(|entry| entry.leaf);
                for entry in entries.into_iter().filter(|entry| entry.leaf < self.size) {
                    self.entries = self.entries.saturating_add(1);
                    self.ready.push_back(Exported::Entry(entry));
                }
                match last.and_then(|last| last.checked_add(1)) {
                    Some(next) if next < self.size => Next::Entries(next),
                    _ => Next::Late(i64::MIN),
                }
            }
            Next::Late(after) => {
                let (late, last) = store.look_for_unsealed(after, ROWS).await?;
                for position in late {
                    let found = store.records_after(position.saturating_sub(1), 1).await?;
                    self.unsealed(found.into_iter().filter(|(record, _)| record.position == position));
                }
                last.map_or(Next::Tail(self.sealed_to), Next::Late)
            }
            Next::Tail(after) => {
                let found = store.records_after(after, ROWS).await?;
                // What was written since is of the next export.
                let last = found.last().map(|(record, _)| record).filter(|last| last.time <= self.time);
                let next = last.map_or(Next::NewCheckpoints, |last| Next::Tail(last.position));
                self.unsealed(found.into_iter());
                next
            }
            Next::NewCheckpoints => {
                if self.checkpoints(store).await? {
                    Next::NewCheckpoints
                } else {
                    Next::End
                }
            }
            Next::End => {
                self.ready.push_back(Exported::End(self.entries, self.unsealed));
                Next::Over
            }
            Next::Over => Next::Over,
        };
        Ok(())
    }

    /// Whether there were more checkpoints.
    async fn checkpoints(&mut self, store: &dyn Store) -> Result<bool, EngineError> {
        let found = store.audit_checkpoints(CheckpointQuery::After(self.checkpoint), ROWS).await?;
        let Some((last, _)) = found.last() else { return Ok(false) };
        self.checkpoint = *last;
        self.ready.extend(found.into_iter().map(|(_, checkpoint)| Exported::Checkpoint(checkpoint)));
        Ok(true)
    }

    fn unsealed(&mut self, found: impl Iterator<Item = (StoredRecord, bool)>) {
        for (record, _) in found.filter(|(_, sealed)| !sealed) {
            self.unsealed = self.unsealed.saturating_add(1);
            self.ready.push_back(Exported::Unsealed(record));
        }
    }
}
