//! A store whose operations are timed and whose failures are counted, with how long people took and what was reported, each
//! once it is known to be committed. Backends know nothing of it.

use super::changes::Changes;
use super::{
    Accepting, ApprovalQuery, AttemptKey, AuditEntry, AuditQuery, Backlog, CheckpointQuery, EarlierRequest,
    ExecutionPage, ExecutionQuery, Loaded, LogStanding, NewApproval, OpenedWait, Requested, ResumedWait, Saved,
    SealPass, SealStore, SealedSlice, Store, StoreError, StoredKey, Sweep, Swept, Viewer, WaitRecord, Waited,
    WithArguments,
};
use crate::domain::approval::Approval;
use crate::domain::audit::leaf::StoredRecord;
use crate::domain::audit::log::StoredCheckpoint;
use crate::domain::audit::tree::Hash;
use crate::domain::audit::{AuditEvent, AuditKind, AuditRecord};
use crate::domain::change::Change;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::{Execution, ExecutionStateName, Outcome, Start};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opening, Resuming, Wait};
use crate::metrics::{Metrics, OperationFigures, StoreFailure};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The operations that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Time,
    Request,
    EarlierRequest,
    Approval,
    ApprovalsOf,
    Approvals,
    SaveApproval,
    Consume,
    Start,
    ConsumeFacts,
    Execution,
    SaveExecution,
    Arguments,
    Executions,
    Record,
    OpenWait,
    Wait,
    ResumeWait,
    CloseWait,
    Sweep,
    AuditRecords,
    Backlog,
    NoteApprover,
    Keys,
    AddKey,
    AuditLog,
    Seal,
    AuditEntries,
    AuditHashes,
    AuditCheckpoints,
    AddCheckpoint,
}

impl Operation {
    const ALL: [Self; 31] = [
        Self::Time,
        Self::Request,
        Self::EarlierRequest,
        Self::Approval,
        Self::ApprovalsOf,
        Self::Approvals,
        Self::SaveApproval,
        Self::Consume,
        Self::Start,
        Self::ConsumeFacts,
        Self::Execution,
        Self::SaveExecution,
        Self::Arguments,
        Self::Executions,
        Self::Record,
        Self::OpenWait,
        Self::Wait,
        Self::ResumeWait,
        Self::CloseWait,
        Self::Sweep,
        Self::AuditRecords,
        Self::Backlog,
        Self::NoteApprover,
        Self::Keys,
        Self::AddKey,
        Self::AuditLog,
        Self::Seal,
        Self::AuditEntries,
        Self::AuditHashes,
        Self::AuditCheckpoints,
        Self::AddCheckpoint,
    ];

    /// The name of it, as the trait says it.
    const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Request => "request",
            Self::EarlierRequest => "earlier_request",
            Self::Approval => "approval",
            Self::ApprovalsOf => "approvals_of",
            Self::Approvals => "approvals",
            Self::SaveApproval => "save_approval",
            Self::Consume => "consume",
            Self::Start => "start",
            Self::ConsumeFacts => "consume_facts",
            Self::Execution => "execution",
            Self::SaveExecution => "save_execution",
            Self::Arguments => "arguments",
            Self::Executions => "executions",
            Self::Record => "record",
            Self::OpenWait => "open_wait",
            Self::Wait => "wait",
            Self::ResumeWait => "resume_wait",
            Self::CloseWait => "close_wait",
            Self::Sweep => "sweep",
            Self::AuditRecords => "audit_records",
            Self::Backlog => "backlog",
            Self::NoteApprover => "note_approver",
            Self::Keys => "keys",
            Self::AddKey => "add_key",
            Self::AuditLog => "audit_log",
            Self::Seal => "seal",
            Self::AuditEntries => "audit_entries",
            Self::AuditHashes => "audit_hashes",
            Self::AuditCheckpoints => "audit_checkpoints",
            Self::AddCheckpoint => "add_checkpoint",
        }
    }
}

/// A store, counted.
#[derive(Debug)]
pub struct Metered<S> {
    store: Arc<S>,
    metrics: Arc<Metrics>,
    operations: Arc<[OperationFigures]>,
}

impl<S: Store> Metered<S> {
    /// The same store, counted.
    pub fn new(store: Arc<S>, metrics: Arc<Metrics>) -> Self {
        let operations = metrics.store.of(&Operation::ALL.map(Operation::name));
        Self { store, metrics, operations }
    }

    /// Times an operation, and counts it where it fails. One that nobody waits for any more is not counted: it runs on.
    async fn timed<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let done = work.await;
        if let Some(figures) = self.operations.get(operation as usize) {
            figures.duration.observe(begun.elapsed());
            if let Err(error) = &done {
                figures.failures.one(match error {
                    StoreError::Unavailable { .. } => StoreFailure::Unavailable,
                    StoreError::Inconsistent { .. } => StoreFailure::Inconsistent,
                    StoreError::Corrupt { .. } => StoreFailure::Corrupt,
                });
            }
        }
        done
    }
}

#[async_trait]
impl<S: Store> Store for Metered<S> {
    async fn time(&self) -> Result<Timestamp, StoreError> {
        self.timed(Operation::Time, self.store.time()).await
    }

    fn estimated_time(&self) -> Timestamp {
        self.store.estimated_time()
    }

    async fn request(&self, new: NewApproval) -> Result<Loaded<Requested>, StoreError> {
        self.timed(Operation::Request, self.store.request(new)).await
    }

    async fn earlier_request(
        &self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Loaded<Option<EarlierRequest>>, StoreError> {
        self.timed(Operation::EarlierRequest, self.store.earlier_request(caller, principal, agent, id)).await
    }

    async fn approval(&self, id: ApprovalId) -> Result<Loaded<Option<Approval>>, StoreError> {
        self.timed(Operation::Approval, self.store.approval(id)).await
    }

    async fn approvals_of(&self, ids: &[ApprovalId]) -> Result<Loaded<Vec<Approval>>, StoreError> {
        self.timed(Operation::ApprovalsOf, self.store.approvals_of(ids)).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Loaded<Vec<Approval>>, StoreError> {
        self.timed(Operation::Approvals, self.store.approvals(query)).await
    }

    async fn save_approval(&self, change: Change<Approval>, expected: u64) -> Result<Saved, StoreError> {
        let decided = change.events.iter().any(|event| event.kind == AuditKind::ApprovalDecided);
        let asked = change.next.create_time;
        let took = change.next.decisions.last().filter(|_| decided);
        let took = took.map(|decision| (decision.verdict, decision.took(asked)));
        let saved = self.timed(Operation::SaveApproval, self.store.save_approval(change, expected)).await?;
        if let Some((verdict, took)) = took.filter(|_| saved == Saved::Yes) {
            self.metrics.time_to_decide.observe(verdict, took);
        }
        Ok(saved)
    }

    async fn consume(&self, start: Start, accepting: Accepting) -> Result<Option<Execution>, StoreError> {
        self.timed(Operation::Consume, self.store.consume(start, accepting)).await
    }

    async fn start(&self, start: Start) -> Result<Option<Execution>, StoreError> {
        self.timed(Operation::Start, self.store.start(start)).await
    }

    async fn consume_facts(
        &self,
        approval: Option<ApprovalId>,
        attempt: &AttemptKey,
        retry_of: Option<ExecutionId>,
    ) -> Result<Loaded<ConsumeFacts>, StoreError> {
        self.timed(Operation::ConsumeFacts, self.store.consume_facts(approval, attempt, retry_of)).await
    }

    async fn execution(&self, id: ExecutionId) -> Result<Loaded<Option<Execution>>, StoreError> {
        self.timed(Operation::Execution, self.store.execution(id)).await
    }

    async fn save_execution(&self, change: Change<Execution>, expected: u64) -> Result<Saved, StoreError> {
        let reported = change.events.iter().any(|event| event.kind == AuditKind::ExecutionReported);
        let outcome = outcome(change.next.state.name()).filter(|_| reported);
        let saved = self.timed(Operation::SaveExecution, self.store.save_execution(change, expected)).await?;
        if let Some(outcome) = outcome.filter(|_| saved == Saved::Yes) {
            self.metrics.executions_reported.one(outcome);
        }
        Ok(saved)
    }

    async fn record(&self, events: Vec<AuditEvent>) -> Result<(), StoreError> {
        self.timed(Operation::Record, self.store.record(events)).await
    }

    async fn open_wait(&self, opening: Opening) -> Result<Loaded<Waited<OpenedWait>>, StoreError> {
        self.timed(Operation::OpenWait, self.store.open_wait(opening)).await
    }

    async fn wait_alone(&self, id: WaitId) -> Result<Loaded<Option<Wait>>, StoreError> {
        self.timed(Operation::Wait, self.store.wait_alone(id)).await
    }

    async fn wait(&self, id: WaitId) -> Result<Loaded<Option<WaitRecord>>, StoreError> {
        self.timed(Operation::Wait, self.store.wait(id)).await
    }

    async fn resume_wait(
        &self,
        id: WaitId,
        resuming: Resuming,
    ) -> Result<Loaded<Option<Waited<ResumedWait>>>, StoreError> {
        self.timed(Operation::ResumeWait, self.store.resume_wait(id, resuming)).await
    }

    async fn close_wait(
        &self,
        id: WaitId,
        caller: &Identifier,
        reason: Option<&str>,
    ) -> Result<Loaded<Option<Waited<WaitRecord>>>, StoreError> {
        self.timed(Operation::CloseWait, self.store.close_wait(id, caller, reason)).await
    }

    async fn approval_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError> {
        self.timed(Operation::Approval, self.store.approval_seen_by(id, viewer)).await
    }

    async fn approval_to_change(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError> {
        self.timed(Operation::Approval, self.store.approval_to_change(id, viewer)).await
    }

    async fn arguments_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<WithArguments>>, StoreError> {
        self.timed(Operation::Arguments, self.store.arguments_seen_by(id, viewer)).await
    }

    async fn keys_in_use(&self) -> Result<Vec<String>, StoreError> {
        self.timed(Operation::Keys, self.store.keys_in_use()).await
    }

    async fn executions(&self, query: ExecutionQuery) -> Result<Loaded<ExecutionPage>, StoreError> {
        self.timed(Operation::Executions, self.store.executions(query)).await
    }

    async fn audit_records(&self, query: AuditQuery) -> Result<Loaded<Vec<AuditRecord>>, StoreError> {
        self.timed(Operation::AuditRecords, self.store.audit_records(query)).await
    }

    async fn backlog(&self) -> Result<Loaded<Backlog>, StoreError> {
        self.timed(Operation::Backlog, self.store.backlog()).await
    }

    async fn note_approver(&self) -> Result<(), StoreError> {
        self.timed(Operation::NoteApprover, self.store.note_approver()).await
    }

    async fn sweep(&self, step: Sweep, limit: u32) -> Result<Swept, StoreError> {
        self.timed(Operation::Sweep, self.store.sweep(step, limit)).await
    }

    async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        self.timed(Operation::Keys, self.store.keys()).await
    }

    async fn add_key(&self, key: StoredKey) -> Result<(), StoreError> {
        self.timed(Operation::AddKey, self.store.add_key(key)).await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

#[async_trait]
impl<S: Store> SealStore for Metered<S> {
    async fn audit_log(&self) -> Result<Loaded<Option<LogStanding>>, StoreError> {
        self.timed(Operation::AuditLog, self.store.audit_log()).await
    }

    async fn begin_audit_log(&self, origin: &str) -> Result<(), StoreError> {
        self.timed(Operation::AuditLog, self.store.begin_audit_log(origin)).await
    }

    async fn seal(&self, pass: SealPass) -> Result<Loaded<SealedSlice>, StoreError> {
        self.timed(Operation::Seal, self.store.seal(pass)).await
    }

    async fn look_for_unsealed(&self, after: i64, limit: u32) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        self.timed(Operation::AuditLog, self.store.look_for_unsealed(after, limit)).await
    }

    async fn records_after(&self, after: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, StoreError> {
        self.timed(Operation::AuditRecords, self.store.records_after(after, limit)).await
    }

    async fn audit_entries(&self, from: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        self.timed(Operation::AuditEntries, self.store.audit_entries(from, limit)).await
    }

    async fn audit_entry_of(&self, record_id: &str) -> Result<Option<AuditEntry>, StoreError> {
        self.timed(Operation::AuditEntries, self.store.audit_entry_of(record_id)).await
    }

    async fn audit_hashes(&self, level: u8, first: u64, count: u32) -> Result<BTreeMap<u64, Hash>, StoreError> {
        self.timed(Operation::AuditHashes, self.store.audit_hashes(level, first, count)).await
    }

    async fn audit_checkpoints(
        &self,
        wanted: CheckpointQuery,
        limit: u32,
    ) -> Result<Vec<(i64, StoredCheckpoint)>, StoreError> {
        self.timed(Operation::AuditCheckpoints, self.store.audit_checkpoints(wanted, limit)).await
    }

    async fn add_checkpoint(
        &self,
        holder: &str,
        origin: &str,
        checkpoint: StoredCheckpoint,
    ) -> Result<bool, StoreError> {
        self.timed(Operation::AddCheckpoint, self.store.add_checkpoint(holder, origin, checkpoint)).await
    }
}

const fn outcome(state: ExecutionStateName) -> Option<Outcome> {
    match state {
        ExecutionStateName::Started => None,
        ExecutionStateName::Succeeded => Some(Outcome::Succeeded),
        ExecutionStateName::Failed => Some(Outcome::Failed),
        ExecutionStateName::Unknown => Some(Outcome::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::Operation;

    #[test]
    fn each_operation_is_counted_in_its_own_place() {
        for (place, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, place, "{operation:?}");
        }
    }
}
