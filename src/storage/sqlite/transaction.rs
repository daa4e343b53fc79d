//! The rows as the operations of several steps need them, within what the writer has begun. The one writer keeps whatever
//! is read in it as it is.

use super::{fatigue, reads, sealed, waits, writes};
use crate::domain::approval::{Approval, Question};
use crate::domain::audit::AuditEvent;
use crate::domain::change::Change;
use crate::domain::execution::Execution;
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::invocation::Subject;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::Wait;
use crate::storage::changes::Touched;
use crate::storage::script::Rows;
use crate::storage::{EarlierRequest, RequestKey, Saved, SealedArguments, StoreError};
use async_trait::async_trait;
use sqlx::SqliteConnection;

/// The rows of one transaction.
pub(super) struct TransactionRows<'a> {
    /// In a transaction.
    pub(super) connection: &'a mut SqliteConnection,
    /// The store's time in it.
    pub(super) now: Timestamp,
    /// Where it notes what it writes.
    pub(super) touched: &'a mut Touched,
}

#[async_trait]
impl Rows for TransactionRows<'_> {
    type Fault = StoreError;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn wait(&mut self, id: WaitId) -> Result<Option<Wait>, StoreError> {
        waits::by_id(self.connection, id).await
    }

    async fn active_wait(
        &mut self,
        principal: &Identifier,
        agent: &Identifier,
        transcript: &Identifier,
    ) -> Result<Option<Wait>, StoreError> {
        waits::active(self.connection, principal, agent, transcript).await
    }

    async fn active_waits(&mut self, principal: &Identifier, agent: &Identifier, most: u32) -> Result<u32, StoreError> {
        waits::count_active(self.connection, principal, agent, most).await
    }

    async fn insert_wait(&mut self, wait: &Wait) -> Result<(), StoreError> {
        waits::insert(self.connection, wait).await
    }

    async fn update_wait(&mut self, wait: &Wait, expected: u64) -> Result<bool, StoreError> {
        waits::update(self.connection, wait, expected).await
    }

    async fn open_of_wait(&mut self, id: WaitId) -> Result<Vec<Approval>, StoreError> {
        waits::open_approvals(self.connection, id).await
    }

    async fn pending_of_wait(&mut self, id: WaitId) -> Result<u32, StoreError> {
        waits::count_pending(self.connection, id, self.now).await
    }

    async fn newest_of_wait(&mut self, id: WaitId, most: u32) -> Result<Vec<ApprovalId>, StoreError> {
        waits::newest_approvals(self.connection, id, most).await
    }

    async fn approvals_of(&mut self, ids: &[ApprovalId]) -> Result<Vec<Approval>, StoreError> {
        reads::approvals_of(self.connection, ids).await
    }

    async fn earlier_request(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Option<EarlierRequest>, StoreError> {
        reads::earlier_request(self.connection, caller, principal, agent, id).await
    }

    async fn same_question(&mut self, question: &Question) -> Result<Vec<Approval>, StoreError> {
        writes::same_question(self.connection, question).await
    }

    async fn open_of_principal(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        most: u32,
    ) -> Result<u32, StoreError> {
        writes::count_open(self.connection, writes::OPEN_OF_PRINCIPAL, (caller, principal), most, self.now).await
    }

    async fn open_of_agent(&mut self, caller: &Identifier, agent: &Identifier, most: u32) -> Result<u32, StoreError> {
        writes::count_open(self.connection, writes::OPEN_OF_AGENT, (caller, agent), most, self.now).await
    }

    async fn open_of_action(&mut self, caller: &Identifier, subject: &Subject, most: u32) -> Result<u32, StoreError> {
        fatigue::open_of_action(self.connection, caller, subject, most, self.now).await
    }

    async fn asked_since(
        &mut self,
        principal: &Identifier,
        since: Timestamp,
        most: u32,
    ) -> Result<Option<Timestamp>, StoreError> {
        fatigue::asked_since(self.connection, principal, since, most).await
    }

    async fn denied_since(&mut self, subject: &Subject, since: Timestamp) -> Result<Option<Approval>, StoreError> {
        fatigue::denied_since(self.connection, subject, since).await
    }

    async fn insert_approval(&mut self, approval: &Approval, arguments: &SealedArguments) -> Result<(), StoreError> {
        writes::insert_approval(self.connection, approval, self.touched).await?;
        sealed::insert(self.connection, approval.id, arguments).await
    }

    async fn insert_request_id(&mut self, key: &RequestKey, approval: &Approval) -> Result<(), StoreError> {
        writes::insert_request_id(self.connection, key, approval, self.now).await
    }

    async fn save_approval(&mut self, change: &Change<Approval>, expected: u64) -> Result<Saved, StoreError> {
        writes::write_approval(self.connection, change, expected, self.now, self.touched).await
    }

    async fn close_audience(&mut self, id: ApprovalId) -> Result<(), StoreError> {
        writes::close_audience(self.connection, id).await
    }

    async fn execution(&mut self, id: ExecutionId) -> Result<Option<Execution>, StoreError> {
        reads::execution(self.connection, id).await
    }

    async fn insert_execution(&mut self, execution: &Execution) -> Result<bool, StoreError> {
        writes::insert_execution(self.connection, execution).await
    }

    async fn record(&mut self, events: &[AuditEvent]) -> Result<(), StoreError> {
        writes::record(self.connection, events, self.now, self.touched).await
    }
}
