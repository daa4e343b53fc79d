//! The operations of several steps, each the same on every database: what is read, what the domain says of it, what is
//! written. A database gives the [`Rows`] of one transaction; the scripts run on them.

use super::StoreError;
use super::{EarlierRequest, NewApproval, RequestKey, Saved, SealedArguments};
use crate::domain::approval::{Approval, Question};
use crate::domain::audit::AuditEvent;
use crate::domain::change::Change;
use crate::domain::execution::Execution;
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::Wait;
use async_trait::async_trait;

/// The rows that one transaction reads and writes. Whatever is read to be changed is locked until the transaction ends,
/// where the database has more than one writer.
#[async_trait]
pub(super) trait Rows: Send {
    /// The store's time in this transaction: read after whatever the transaction had to wait for.
    fn now(&self) -> Timestamp;

    /// A wait, to be changed or to be counted on.
    async fn wait(&mut self, id: WaitId) -> Result<Option<Wait>, StoreError>;

    /// The active wait of this principal, agent and transcript, to be changed.
    async fn active_wait(
        &mut self,
        principal: &Identifier,
        agent: &Identifier,
        transcript: &Identifier,
    ) -> Result<Option<Wait>, StoreError>;

    /// How many waits of this principal and agent are active; counts no further than `most`.
    async fn active_waits(&mut self, principal: &Identifier, agent: &Identifier, most: u32) -> Result<u32, StoreError>;

    /// Waits whose time is over and that are not closed, the longest overdue first, to be changed; not those that another
    /// transaction has.
    async fn overdue_waits(&mut self, most: u32) -> Result<Vec<Wait>, StoreError>;

    /// Inserts a wait.
    async fn insert_wait(&mut self, wait: &Wait) -> Result<(), StoreError>;

    /// Saves a wait whose row has the version `expected`; whether it had.
    async fn update_wait(&mut self, wait: &Wait, expected: u64) -> Result<bool, StoreError>;

    /// The approvals of a wait that are open or overdue, to be changed.
    async fn open_of_wait(&mut self, id: WaitId) -> Result<Vec<Approval>, StoreError>;

    /// How many approvals of a wait wait for people at the store's time.
    async fn pending_of_wait(&mut self, id: WaitId) -> Result<u32, StoreError>;

    /// The newest approvals of a wait, newest first, at most `most`.
    async fn newest_of_wait(&mut self, id: WaitId, most: u32) -> Result<Vec<ApprovalId>, StoreError>;

    /// These approvals, in any order; those that there are.
    async fn approvals_of(&mut self, ids: &[ApprovalId]) -> Result<Vec<Approval>, StoreError>;

    /// What a `request_id` stood for.
    async fn earlier_request(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Option<EarlierRequest>, StoreError>;

    /// The same question, open or overdue, oldest first, to be changed.
    async fn same_question(&mut self, question: &Question) -> Result<Vec<Approval>, StoreError>;

    /// How many approvals are open that this caller asked for this principal; counts no further than `most`.
    async fn open_of_principal(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        most: u32,
    ) -> Result<u32, StoreError>;

    /// How many approvals are open that this caller asked for this agent; counts no further than `most`.
    async fn open_of_agent(&mut self, caller: &Identifier, agent: &Identifier, most: u32) -> Result<u32, StoreError>;

    /// Inserts a new approval, with its audience and its sealed arguments.
    async fn insert_approval(&mut self, approval: &Approval, arguments: &SealedArguments) -> Result<(), StoreError>;

    /// Has a `request_id` stand for this approval.
    async fn insert_request_id(&mut self, key: &RequestKey, approval: &Approval) -> Result<(), StoreError>;

    /// Saves a changed approval with its audit records, under the conditions of `Store::save_approval`.
    async fn save_approval(&mut self, change: &Change<Approval>, expected: u64) -> Result<Saved, StoreError>;

    /// One execution, to be counted on.
    async fn execution(&mut self, id: ExecutionId) -> Result<Option<Execution>, StoreError>;

    /// Inserts an execution; false, and nothing inserted, if its attempt is known.
    async fn insert_execution(&mut self, execution: &Execution) -> Result<bool, StoreError>;

    /// Writes audit records, each with an id and the store's time.
    async fn record(&mut self, events: &[AuditEvent]) -> Result<(), StoreError>;
}

/// STUB
pub(super) fn lock_key(parts: &[&str]) -> i64 {
    parts.len() as i64
}
