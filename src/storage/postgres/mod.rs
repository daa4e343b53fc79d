//! The store in a Postgres database that many sidecars share.
//!
//! - `options`, `connecting`: what it is reached by, and making a connection
//! - `open`, `refusals`: whether the database can be served, and why not
//! - `schema`: the migrations
//! - `pool`: the connections of operations
//! - `table`, `fault`, `counters`: running an operation: time-outs, what is tried again, what is told after it
//! - `warnings`: that of many one is enough
//! - `time`: the store's time, which is the database's
//! - `consuming`, `requesting`, `writes`: the operations of one round trip
//! - `transaction`: the rows as the operations of several steps need them
//! - `reads`, `listing`, `sweeps`: the statements; `seals`: those of the audit's log of seals
//! - `recent`: open approvals as they were last seen, for who decides on them
//! - `telling`: what changes, to and from the other sidecars
//! - `values`: how the driver takes values and gives rows
//! - `seeding`, `scratch`: for measurements alone
//!
//! Every statement runs under READ COMMITTED: what decides is a predicate of the write itself, after the row is locked.
//! No statement's text leaves this folder but in a [`StoreError`]'s cause, which is for the log.

mod columns;
mod connecting;
mod consuming;
mod counters;
mod fault;
mod listing;
mod open;
mod options;
mod pool;
mod reads;
mod recent;
mod refusals;
mod requesting;
mod schema;
mod scratch;
mod seals;
mod seeding;
mod sweeps;
mod table;
mod telling;
#[cfg(test)]
mod tests;
mod time;
mod transaction;
mod values;
mod warnings;
mod writes;

pub use counters::Statistics;
pub use options::{PostgresOptions, TlsMode};
pub use refusals::OpenError;
#[doc(hidden)]
pub use scratch::Scratch;

use super::changes::Changes;
use super::{
    Accepting, ApprovalQuery, AttemptKey, AuditQuery, Backlog, EarlierRequest, ExecutionPage, ExecutionQuery, Loaded,
    NewApproval, OpenedWait, Requested, ResumedWait, Saved, Store, StoreError, StoredKey, Sweep, Swept, Viewer,
    WaitRecord, Waited, WithArguments,
};
use crate::domain::approval::Approval;
use crate::domain::audit::{AuditEvent, AuditRecord};
use crate::domain::change::Change;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opening, Resuming, Wait};
use crate::storage::SchemaVersions;
use async_trait::async_trait;
use consuming::Consumer;
use recent::Recent;
use table::Table;

/// The store in a Postgres database. Dropping it gives its connections back; [`Store::close`] waits for what is in flight.
#[derive(Debug)]
pub struct PostgresStore {
    table: Table,
    consumer: Consumer,
    recent: Recent,
    schema: SchemaVersions,
}

impl PostgresStore {
    /// Opens the database, migrating it where it has to be and may be, and starts what listens and tells on this runtime.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing stays open or locked.
    pub async fn open(options: PostgresOptions) -> Result<Self, OpenError> {
        let (table, consuming, schema) = open::open(options).await?;
        Ok(Self { consumer: Consumer::start(table.clone(), consuming), recent: Recent::default(), table, schema })
    }

    /// The schema's version before it was opened, and since.
    pub fn schema(&self) -> SchemaVersions {
        self.schema
    }

    /// How much was written since it was opened, by this process.
    pub fn statistics(&self) -> Statistics {
        self.table.statistics()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn time(&self) -> Result<Timestamp, StoreError> {
        self.table.run(writes::Touch).await
    }

    fn estimated_time(&self) -> Timestamp {
        self.table.time().estimated()
    }

    async fn request(&self, new: NewApproval) -> Result<Loaded<Requested>, StoreError> {
        let loaded = self.table.run(requesting::Request(new)).await?;
        if let Requested::Created(approval) = &loaded.row {
            self.recent.saw(approval);
        }
        Ok(loaded)
    }

    async fn earlier_request(
        &self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Loaded<Option<EarlierRequest>>, StoreError> {
        self.table.read(reads::FindRequest { caller, principal, agent, id }).await
    }

    async fn approval(&self, id: ApprovalId) -> Result<Loaded<Option<Approval>>, StoreError> {
        self.table.read(reads::FindApproval { id, viewer: None }).await
    }

    async fn approval_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError> {
        let loaded = self.table.read(reads::FindApproval { id, viewer: Some(viewer) }).await?;
        loaded.row.iter().for_each(|approval| self.recent.saw(approval));
        Ok(loaded)
    }

    async fn approval_to_change(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError> {
        // Who may see it the engine asks of the row itself; what an agent asks for is not kept for it.
        match (viewer, self.recent.take(id)) {
            (Viewer::Person { .. }, Some(approval)) => {
                Ok(Loaded { row: Some(approval), now: self.table.time().estimated() })
            }
            (viewer, _) => self.approval_seen_by(id, viewer).await,
        }
    }

    async fn approvals_of(&self, ids: &[ApprovalId]) -> Result<Loaded<Vec<Approval>>, StoreError> {
        let loaded = self.table.read(reads::FindApprovals { ids }).await?;
        loaded.row.iter().for_each(|approval| self.recent.saw(approval));
        Ok(loaded)
    }

    async fn arguments_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<WithArguments>>, StoreError> {
        self.table.read(reads::FindArguments { id, viewer }).await
    }

    fn changes(&self) -> Changes {
        self.table.changes()
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Loaded<Vec<Approval>>, StoreError> {
        let loaded = self.table.read(listing::ListApprovals(&query)).await?;
        loaded.row.iter().for_each(|approval| self.recent.saw(approval));
        Ok(loaded)
    }

    async fn save_approval(&self, change: Change<Approval>, expected: u64) -> Result<Saved, StoreError> {
        let next = change.next.clone();
        let saved = self.table.run(writes::SaveApproval { change, expected }).await?;
        if saved == Saved::Yes {
            self.recent.saw(&next);
        }
        Ok(saved)
    }

    async fn consume(&self, start: Start, accepting: Accepting) -> Result<Option<Execution>, StoreError> {
        // Without an approval there is nothing to use up, and nothing may run.
        let Some(approval) = start.approval else { return Ok(None) };
        self.consumer.consume(consuming::Consume { start, approval, accepting }).await
    }

    async fn start(&self, start: Start) -> Result<Option<Execution>, StoreError> {
        // An approval is used up by `consume` alone.
        if start.approval.is_some() {
            return Ok(None);
        }
        self.table.run(writes::StartExecution(start)).await
    }

    async fn consume_facts(
        &self,
        approval: Option<ApprovalId>,
        attempt: &AttemptKey,
        retry_of: Option<ExecutionId>,
    ) -> Result<Loaded<ConsumeFacts>, StoreError> {
        self.table.read(reads::FindFacts { approval, attempt, retry_of }).await
    }

    async fn execution(&self, id: ExecutionId) -> Result<Loaded<Option<Execution>>, StoreError> {
        self.table.read(reads::FindExecution { id }).await
    }

    async fn executions(&self, query: ExecutionQuery) -> Result<Loaded<ExecutionPage>, StoreError> {
        self.table.read(listing::ListExecutions(&query)).await
    }

    async fn save_execution(&self, change: Change<Execution>, expected: u64) -> Result<Saved, StoreError> {
        self.table.run(writes::SaveExecution { change, expected }).await
    }

    async fn open_wait(&self, opening: Opening) -> Result<Loaded<Waited<OpenedWait>>, StoreError> {
        self.table.run(transaction::OpenWait(opening)).await
    }

    async fn wait_alone(&self, id: WaitId) -> Result<Loaded<Option<Wait>>, StoreError> {
        self.table.read(reads::FindWaitAlone { id }).await
    }

    async fn wait(&self, id: WaitId) -> Result<Loaded<Option<WaitRecord>>, StoreError> {
        self.table.read(reads::FindWait { id }).await
    }

    async fn resume_wait(
        &self,
        id: WaitId,
        resuming: Resuming,
    ) -> Result<Loaded<Option<Waited<ResumedWait>>>, StoreError> {
        self.table.run(transaction::ResumeWait { id, resuming }).await
    }

    async fn close_wait(
        &self,
        id: WaitId,
        caller: &Identifier,
        reason: Option<&str>,
    ) -> Result<Loaded<Option<Waited<WaitRecord>>>, StoreError> {
        let (caller, reason) = (caller.clone(), reason.map(str::to_owned));
        self.table.run(transaction::CloseWait { id, caller, reason }).await
    }

    async fn record(&self, events: Vec<AuditEvent>) -> Result<(), StoreError> {
        self.table.run(writes::Record(events)).await
    }

    async fn audit_records(&self, query: AuditQuery) -> Result<Loaded<Vec<AuditRecord>>, StoreError> {
        self.table.read(listing::ListAuditRecords(&query)).await
    }

    async fn sweep(&self, step: Sweep, limit: u32) -> Result<Swept, StoreError> {
        self.table.run(sweeps::SweepStep { step, limit }).await
    }

    async fn backlog(&self) -> Result<Loaded<Backlog>, StoreError> {
        self.table.read(listing::CountBacklog).await
    }

    async fn note_approver(&self) -> Result<(), StoreError> {
        self.table.run(writes::NoteApprover).await
    }

    async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        self.table.read(reads::ListKeys).await
    }

    async fn keys_in_use(&self) -> Result<Vec<String>, StoreError> {
        self.table.read(reads::ListKeysInUse).await
    }

    async fn add_key(&self, key: StoredKey) -> Result<(), StoreError> {
        self.table.run(writes::AddKey(key)).await
    }

    async fn close(&self) {
        self.consumer.close().await;
        self.table.close().await;
    }
}
