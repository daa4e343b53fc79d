//! The parts of an export: as a sidecar tells them, and as lines of a file (`docs/audit.md` has the format).

use super::super::show;
use crate::domain::audit::verify::{EntrySaid, LogSaid};
use crate::proto::{self, export_audit_response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// What the first line of a file says that it is.
pub(super) const EXPORT_VERSION: &str = "countersign.audit-export/v1";
/// What the proof of one record says that it is.
pub(super) const PROOF_VERSION: &str = "countersign.audit-proof/v1";

/// A part of an export: one line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Part {
    Log(Log),
    Checkpoint(Checkpoint),
    Entry(Entry),
    Unsealed { leaf_text: String },
    End { entries: u64, unsealed: u64 },
}

/// The log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Log {
    pub(super) v: String,
    pub(super) origin: String,
    pub(super) size: u64,
    /// In base64.
    pub(super) root: String,
    pub(super) records_deleted_below: u64,
    pub(super) time: String,
    pub(super) keys: Vec<String>,
}

/// A checkpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) note: String,
    pub(super) time: String,
    pub(super) key_id: String,
}

/// A seal with its record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) leaf: u64,
    pub(super) position: i64,
    pub(super) record_id: String,
    pub(super) leaf_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leaf_text: Option<String>,
}

/// The proof of one record, which can be checked without anything else but a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Proof {
    pub(super) v: String,
    pub(super) entry: Entry,
    /// In base64, from the bottom up.
    pub(super) path: Vec<String>,
    pub(super) checkpoint: String,
    pub(super) keys: Vec<String>,
}

impl From<proto::AuditLog> for Log {
    fn from(log: proto::AuditLog) -> Self {
        Self {
            v: EXPORT_VERSION.to_owned(),
            origin: log.origin,
            size: log.size,
            root: STANDARD.encode(log.root),
            records_deleted_below: log.records_deleted_below,
            time: show::time(log.time.as_ref()),
            keys: log.keys,
        }
    }
}

impl From<proto::AuditCheckpoint> for Checkpoint {
    fn from(checkpoint: proto::AuditCheckpoint) -> Self {
        let time = show::time(checkpoint.time.as_ref());
        Self { note: checkpoint.note, time, key_id: checkpoint.key_id }
    }
}

impl From<proto::AuditEntry> for Entry {
    fn from(entry: proto::AuditEntry) -> Self {
        let leaf_text = (!entry.leaf_text.is_empty()).then_some(entry.leaf_text);
        let proto::AuditEntry { leaf, position, record_id, leaf_hash, .. } = entry;
        Self { leaf, position, record_id, leaf_hash, leaf_text }
    }
}

impl Part {
    /// The part of an answer; none if it has none.
    pub(super) fn of(answer: proto::ExportAuditResponse) -> Option<Self> {
        Some(match answer.part? {
            export_audit_response::Part::Log(log) => Self::Log(log.into()),
            export_audit_response::Part::Checkpoint(checkpoint) => Self::Checkpoint(checkpoint.into()),
            export_audit_response::Part::Entry(entry) => Self::Entry(entry.into()),
            export_audit_response::Part::Unsealed(record) => Self::Unsealed { leaf_text: record.leaf_text },
            export_audit_response::Part::End(end) => Self::End { entries: end.entries, unsealed: end.unsealed },
        })
    }
}

impl Log {
    /// The same, to be verified.
    pub(super) fn said(&self) -> LogSaid {
        LogSaid {
            origin: self.origin.clone(),
            size: self.size,
            root: Some(STANDARD.decode(&self.root).ok().and_then(|root| root.try_into().ok()).unwrap_or_default()),
            deleted_below: self.records_deleted_below,
        }
    }
}

impl Entry {
    /// The same, to be verified.
    pub(super) fn said(self) -> EntrySaid {
        let Self { leaf, position, record_id, leaf_hash, leaf_text } = self;
        EntrySaid { leaf, position, record_id, leaf_hash, leaf_text }
    }
}
