//! The audit as it is told at the operator's door.

use super::{errors, render};
use crate::domain::audit::log::StoredCheckpoint;
use crate::domain::audit::tree::Hash;
use crate::engine::{AuditExport, EngineError, Exported, LogTold};
use crate::proto::{self, export_audit_response::Part};
use crate::storage::AuditEntry;
use futures_util::Stream;
use futures_util::stream::unfold;
use tonic::Status;

/// The parts of an export, as they are taken.
pub(super) fn parts(export: AuditExport) -> impl Stream<Item = Result<proto::ExportAuditResponse, Status>> + Send {
    unfold(export, |mut export| async move {
        let part = export.next().await?;
        let answer = part.map(|part| proto::ExportAuditResponse { part: Some(rendered(part)) });
        Some((answer.map_err(|error: EngineError| errors::status(&error)), export))
    })
}

fn rendered(part: Exported) -> Part {
    match part {
        Exported::Log(told) => Part::Log(log(told)),
        Exported::Checkpoint(stored) => Part::Checkpoint(checkpoint(stored)),
        Exported::Entry(sealed) => Part::Entry(entry(sealed)),
        Exported::Unsealed(record) => Part::Unsealed(proto::UnsealedAuditRecord { leaf_text: record.leaf_text() }),
        Exported::End(entries, unsealed) => Part::End(proto::AuditExportEnd { entries, unsealed }),
    }
}

pub(super) fn log(told: LogTold) -> proto::AuditLog {
    proto::AuditLog {
        origin: told.origin,
        size: told.size,
        root: told.root.to_vec(),
        records_deleted_below: told.deleted_below,
        time: Some(render::time(told.time)),
        keys: told.keys.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn checkpoint(stored: StoredCheckpoint) -> proto::AuditCheckpoint {
    proto::AuditCheckpoint { note: stored.note, time: Some(render::time(stored.time)), key_id: stored.key_id }
}

pub(super) fn entry(sealed: AuditEntry) -> proto::AuditEntry {
    proto::AuditEntry {
        leaf: sealed.leaf,
        position: sealed.position,
        record_id: sealed.record_id,
        leaf_hash: sealed.leaf_hash,
        leaf_text: sealed.record.map(|record| record.leaf_text()).unwrap_or_default(),
    }
}

pub(super) fn hashes(path: Vec<Hash>) -> Vec<Vec<u8>> {
    path.into_iter().map(|hash| hash.to_vec()).collect()
}
