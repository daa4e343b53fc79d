//! A row of `audit_records`.

use super::{Bind, Columns, Fields, list, maybe_text, text};
use crate::domain::audit::{AuditEvent, AuditKind, AuditRecord};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{ApprovalId, AuditRecordId, ExecutionId, WaitId};
use crate::domain::time::Timestamp;
use crate::storage::StoreError;
use uuid::Uuid;

/// Binds an event: `kind`, `caller`, `principal`, `agent`, `conversation`, `connector`, `account`, `action`,
/// `approval_id`, `execution_id`, `wait_id`, `fingerprint`, `policy_revision`, `person`, `decision`, `reason`, `note` and `labels`.
pub(in crate::storage) fn bind_event<S: Bind>(statement: S, event: &AuditEvent) -> S {
    statement
        .bind(event.kind.as_str())
        .bind(maybe_text(event.caller.as_ref()))
        .bind(text(&event.principal))
        .bind(text(&event.agent))
        .bind(maybe_text(event.conversation.as_ref()))
        .bind(maybe_text(event.connector.as_ref()))
        .bind(maybe_text(event.account.as_ref()))
        .bind(maybe_text(event.action.as_ref()))
        .bind(event.approval.map(|id| id.to_string()))
        .bind(event.execution.map(|id| id.to_string()))
        .bind(event.wait.map(|id| id.to_string()))
        .bind(event.fingerprint.map(|fingerprint| fingerprint.to_string()))
        .bind(event.policy_revision.clone())
        .bind(maybe_text(event.person.as_ref()))
        .bind(event.decision.clone())
        .bind(event.reason.clone())
        .bind(event.note.clone())
        .bind(list(&event.labels))
}

/// Reads an audit record.
pub(in crate::storage) fn audit_record(row: &impl Columns) -> Result<AuditRecord, StoreError> {
    let fields = Fields::new(row, "audit_records", "position");
    Ok(AuditRecord {
        id: fields.parsed("id", AuditRecordId::parse)?,
        position: fields.get("position")?,
        time: fields.time("time")?,
        event: AuditEvent {
            kind: fields.parsed("kind", AuditKind::parse)?,
            caller: fields.maybe_identifier("caller")?,
            principal: fields.identifier("principal")?,
            agent: fields.identifier("agent")?,
            conversation: fields.maybe_identifier("conversation")?,
            connector: fields.maybe_identifier("connector")?,
            account: fields.maybe_identifier("account")?,
            action: fields.maybe_identifier("action")?,
            approval: fields.maybe_parsed("approval_id", ApprovalId::parse)?,
            execution: fields.maybe_parsed("execution_id", ExecutionId::parse)?,
            wait: fields.maybe_parsed("wait_id", WaitId::parse)?,
            fingerprint: fields.maybe_parsed("fingerprint", |text| Fingerprint::parse(text).ok())?,
            policy_revision: fields.get("policy_revision")?,
            person: fields.maybe_identifier("person")?,
            decision: fields.get("decision")?,
            reason: fields.get("reason")?,
            note: fields.get("note")?,
            labels: fields.list("labels")?,
        },
    })
}

/// The id of a new record: a UUIDv7 of the store's time.
pub(in crate::storage) fn record_id(now: Timestamp) -> Uuid {
    let micros = u64::try_from(now.micros()).unwrap_or(0);
    let nanos = u32::try_from((micros % 1_000_000) * 1_000).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, micros / 1_000_000, nanos))
}
