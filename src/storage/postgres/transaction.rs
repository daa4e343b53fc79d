//! Stub.
#![allow(unused_imports, dead_code)]

use super::table::{Fault, Operation};
use super::time::TableTime;
use crate::domain::approval::Approval;
use crate::domain::audit::{AuditEvent, AuditRecord};
use crate::domain::change::Change;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opening, Resuming, Wait};
use crate::storage::changes::Touched;
use crate::storage::{
    ApprovalQuery, AttemptKey, AuditQuery, Backlog, EarlierRequest, ExecutionPage, ExecutionQuery, Loaded, NewApproval,
    OpenedWait, Requested, ResumedWait, Saved, StoreError, StoredKey, Sweep, Swept, Viewer, WaitRecord, Waited,
    WithArguments,
};
use async_trait::async_trait;
use sqlx::PgConnection;

pub(super) struct OpenWait(pub(super) Opening);

#[async_trait]
impl Operation for OpenWait {
    type Answer = Loaded<Waited<OpenedWait>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let _ = (connection, time, touched);
        Err(Fault::Store(StoreError::Unavailable { cause: "not built".to_owned() }))
    }
}

pub(super) struct ResumeWait {
    pub(super) id: WaitId,
    pub(super) resuming: Resuming,
}

#[async_trait]
impl Operation for ResumeWait {
    type Answer = Loaded<Option<Waited<ResumedWait>>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let _ = (connection, time, touched);
        Err(Fault::Store(StoreError::Unavailable { cause: "not built".to_owned() }))
    }
}

pub(super) struct CloseWait {
    pub(super) id: WaitId,
    pub(super) caller: Identifier,
    pub(super) reason: Option<String>,
}

#[async_trait]
impl Operation for CloseWait {
    type Answer = Loaded<Option<Waited<WaitRecord>>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let _ = (connection, time, touched);
        Err(Fault::Store(StoreError::Unavailable { cause: "not built".to_owned() }))
    }
}

pub(super) async fn start_slowly(
    _: &mut PgConnection,
    _: &TableTime,
    _: &mut Touched,
    _: &Start,
) -> Result<Option<Execution>, Fault> {
    Err(Fault::Again(String::new()))
}
pub(super) async fn request_slowly(
    _: &mut PgConnection,
    _: &TableTime,
    _: &mut Touched,
    _: &NewApproval,
) -> Result<(Requested, Timestamp), Fault> {
    Err(Fault::Again(String::new()))
}
pub(super) async fn retry_slowly(
    _: &mut PgConnection,
    _: &TableTime,
    _: &mut Touched,
    _: &Start,
    _: ApprovalId,
    _: crate::storage::Accepting,
) -> Result<Option<Execution>, Fault> {
    Err(Fault::Again(String::new()))
}
/// Stub.
pub(super) async fn expire_waits(
    connection: &mut PgConnection,
    time: &TableTime,
    touched: &mut Touched,
    limit: u32,
) -> Result<(u32, Option<Timestamp>), Fault> {
    let _ = (connection, time, touched, limit);
    Err(Fault::Store(StoreError::Unavailable { cause: "not built".to_owned() }))
}
