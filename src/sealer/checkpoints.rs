//! Signing what the log is, once it is seen to be an extension of what was signed before.

use super::{SealReport, Sealer, State, file};
use crate::domain::audit::checkpoint::{Checkpoint, Note, VerifierKey};
use crate::domain::audit::log::{AuditLog, StoredCheckpoint};
use crate::domain::audit::tree::{self, leaf_hash};
use crate::domain::hex::hex;
use crate::domain::time::Timestamp;
use crate::secrets::{Keyring, is_signed};
use crate::storage::kept::made_of;
use crate::storage::{CheckpointQuery, Loaded, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Checkpoints that are looked at for one that can be verified.
const LOOKED_AT: u32 = 64;
/// Key ids that are told of those at most.
const TOLD: usize = 8;
/// Records that are looked at at once, to be given up for deletion.
const ENTRIES: u32 = 512;
/// How often, for one checkpoint.
const LOOKS: usize = 16;

/// Why a checkpoint is not signed.
struct Refusal(String);

/// What comes of looking at the log before it is signed.
enum Looked {
    /// It may be signed; the newest checkpoint of the table that one of our keys signed.
    Good(Option<StoredCheckpoint>),
    Bad(Refusal),
}

impl Sealer {
    /// Signs the log as it stands, if there is anything new to sign and nothing against it.
    pub(super) async fn sign(
        &self,
        state: &mut State,
        until: Timestamp,
        at_once: bool,
        report: &mut SealReport,
    ) -> Result<(), StoreError> {
        // Secrets that the other sidecars may not know sign nothing.
        let Some(keyring) = (self.keys)() else { return Ok(()) };
        let Loaded { row: standing, now } = self.standing().await?;
        let log = standing.log;
        let newest = match self.look(state, &keyring, &log).await? {
            Looked::Good(newest) => newest,
            Looked::Bad(Refusal(cause)) => {
                state.due = Some(now.plus(self.settings.checkpoint_every));
                report.refused = true;
                tracing::error!(
                    cause,
                    "the audit is not what was signed before: no checkpoint is signed; see docs/audit.md"
                );
                return Ok(());
            }
        };
        if let Some(newest) = &newest {
            self.status.newest(newest);
            let next = newest.time.plus(self.settings.checkpoint_every);
            // The time beside a note is signed by nobody: it puts nothing off for longer than it may.
            if !at_once && now < next && next <= now.plus(self.settings.checkpoint_every) {
                state.due = Some(next);
                return Ok(());
            }
        }
        state.due = Some(now.plus(self.settings.checkpoint_every));
        let (below, more) = self.deletable(&log, now, report).await?;
        // A new secret signs at once what the one before it signed, which may be gone tomorrow.
        let is_new = newest.is_none_or(|newest| {
            (newest.size, newest.deleted_below) != (log.frontier.size(), below) || newest.key_id != keyring.first_id()
        });
        if log.frontier.size() == 0 || !is_new {
            return Ok(());
        }
        let checkpoint = log.checkpoint(Some(until), below);
        let Some(note) = signed(&keyring, &checkpoint) else {
            report.refused = true;
            tracing::error!("a checkpoint cannot be signed");
            return Ok(());
        };
        let stored = StoredCheckpoint {
            size: checkpoint.size,
            deleted_below: checkpoint.deleted_below,
            time: now,
            key_id: keyring.first_id().to_owned(),
            note: note.to_string(),
        };
        if !self.store.add_checkpoint(&self.holder, &log.origin, stored.clone()).await? {
            // It has grown since, or somebody else seals.
            state.due = None;
            return Ok(());
        }
        self.status.newest(&stored);
        state.last = Some(checkpoint);
        report.checkpoints = report.checkpoints.saturating_add(1);
        if more {
            state.due = None;
        }
        self.keep(note).await;
        Ok(())
    }

    /// Writes a checkpoint to its file, if it has one.
    async fn keep(&self, note: Note) {
        let Some(path) = self.settings.checkpoint_file.clone() else { return };
        let shown = path.display().to_string();
        let written = tokio::task::spawn_blocking(move || file::append(&path, &note)).await;
        if let Err(cause) = written.unwrap_or_else(|_| Err(std::io::Error::other("it panicked"))) {
            self.status.failed();
            tracing::error!(path = shown, %cause, "a checkpoint was signed, and its file cannot be written");
        }
    }

    /// Whether the log is an extension of the checkpoints that are known.
    async fn look(&self, state: &mut State, keyring: &Arc<Keyring>, log: &AuditLog) -> Result<Looked, StoreError> {
        let bad = |cause: String| Ok(Looked::Bad(Refusal(cause)));
        if let Some(origin) = self.settings.origin.as_ref().filter(|origin| **origin != log.origin) {
            return bad(format!("audit.origin is {origin:?}, and the log's is {:?}", log.origin));
        }
        let frontier = made_of(self.store.as_ref(), |kept| tree::frontier_of(log.frontier.size(), kept)).await?;
        if frontier.as_ref() != Some(&log.frontier) {
            return bad("the stored frontier is not that of the seals: seals or tree were changed".to_owned());
        }
        let keys = verifier_keys(keyring, &log.origin);
        if !state.file_read {
            match self.last_of_file().await {
                Ok(notes) => {
                    // Of another log, or of a secret that is gone, it says nothing.
                    state.last = notes.iter().rev().find_map(|note| verified(note, &keys));
                    if !notes.is_empty() && state.last.is_none() {
                        return bad(
                            "no checkpoint at the end of audit.checkpoint_file is of this log and its keys".to_owned()
                        );
                    }
                    state.file_read = true;
                }
                Err(cause) => return bad(format!("audit.checkpoint_file cannot be read: {cause}")),
            }
        }
        let found = self.store.audit_checkpoints(CheckpointQuery::Before(None), LOOKED_AT).await?;
        let known = found.into_iter().map(|(_, stored)| stored).collect::<Vec<_>>();
        let newest = known.iter().find_map(|stored| Some((stored, verified(&Note::parse(&stored.note)?, &keys)?)));
        if newest.is_none() && !known.is_empty() {
            let ids: BTreeSet<String> = known.iter().map(|stored| stored.key_id.escape_default().to_string()).collect();
            let ids = ids.into_iter().take(TOLD).collect::<Vec<_>>().join(", ");
            return bad(format!(
                "no earlier checkpoint can be verified: name the server secret of the key id {ids} in \
                 `store.further_secret_files`"
            ));
        }
        let deleted_below = state.last.iter().chain(newest.as_ref().map(|(_, known)| known));
        let deleted_below = deleted_below.map(|earlier| earlier.deleted_below).max().unwrap_or(0);
        if log.deleted_below != deleted_below {
            let says = log.deleted_below;
            return bad(format!(
                "the log says that records below {says} may be deleted, and {deleted_below} was signed"
            ));
        }
        for earlier in state.last.iter().chain(newest.as_ref().map(|(_, known)| known)) {
            if earlier.origin != log.origin {
                return bad(format!("the log was {:?}, and is {:?}", earlier.origin, log.origin));
            }
            if earlier.size > log.frontier.size() {
                let size = log.frontier.size();
                return bad(format!("the log had {} seals, and has {size}: it was cut", earlier.size));
            }
            let root = match earlier.size {
                0 => Some(tree::empty_root()),
                size => made_of(self.store.as_ref(), |kept| tree::root_of(0, size, kept)).await?,
            };
            if root != Some(earlier.root) {
                return bad(format!("the first {} seals are not what was signed", earlier.size));
            }
        }
        let Some((stored, checkpoint)) = newest else { return Ok(Looked::Good(None)) };
        if state.last.as_ref().is_none_or(|last| last.size <= checkpoint.size) {
            state.last = Some(checkpoint);
        }
        Ok(Looked::Good(Some(stored.clone())))
    }

    async fn last_of_file(&self) -> std::io::Result<Vec<Note>> {
        let Some(path) = self.settings.checkpoint_file.clone() else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || file::last(&path)).await;
        read.unwrap_or_else(|_| Err(std::io::Error::other("it panicked")))
    }

    /// Below which leaf records may be deleted from now on, and whether there may be more of them. Each was held against its
    /// seal: none is given up that was changed, or whose place is empty, for then that could not be seen any more.
    async fn deletable(
        &self,
        log: &AuditLog,
        now: Timestamp,
        report: &mut SealReport,
    ) -> Result<(u64, bool), StoreError> {
        let mut below = log.deleted_below;
        let Some(kept) = self.settings.deleted_after else { return Ok((below, false)) };
        let until = now.minus(kept);
        for _ in 0..LOOKS {
            let entries = self.store.audit_entries(below, ENTRIES).await?;
            for entry in &entries {
                let is_whole = entry.record.as_ref().is_some_and(|record| {
                    entry.leaf == below && hex(&leaf_hash(record.leaf_text().as_bytes())) == entry.leaf_hash
                });
                if !is_whole {
                    report.refused = true;
                    let (leaf, record_id) = (entry.leaf, entry.record_id.escape_default().to_string());
                    tracing::error!(
                        leaf,
                        record_id,
                        "a record is not there, or not as it was sealed: no record from there on is deleted; \
                         run `countersign audit verify`"
                    );
                    return Ok((below, false));
                }
                if entry.record.as_ref().is_some_and(|record| record.time > until) {
                    return Ok((below, false));
                }
                below = below.saturating_add(1);
            }
            if entries.len() < usize::try_from(ENTRIES).unwrap_or(usize::MAX) {
                return Ok((below, false));
            }
        }
        Ok((below, true))
    }
}

/// The keys by which the checkpoints of this log are verified, the one that signs first.
pub(super) fn verifier_keys(keyring: &Keyring, origin: &str) -> Vec<VerifierKey> {
    let key = |public: &[u8; 32]| VerifierKey { name: origin.to_owned(), public: *public };
    keyring.all().map(|keys| key(keys.checkpoint().public())).collect()
}

/// What the note says, if one of the keys signed it.
fn verified(note: &Note, keys: &[VerifierKey]) -> Option<Checkpoint> {
    let check = |key: &[u8; 32], message: &[u8], signature: &[u8]| is_signed(key, message, signature);
    note.verified(keys, &check).ok()??;
    Checkpoint::parse(&note.text)
}

/// The note of this checkpoint, signed by the secret that makes what is new.
fn signed(keyring: &Keyring, checkpoint: &Checkpoint) -> Option<Note> {
    let signer = keyring.first().checkpoint();
    let key = VerifierKey { name: checkpoint.origin.clone(), public: *signer.public() };
    let text = checkpoint.text();
    let signature = signer.sign(text.as_bytes()).ok()?;
    Some(Note::signed(text, &key, &signature))
}
