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

pub(super) struct FindRequest<'a> {
    pub(super) caller: &'a Identifier,
    pub(super) principal: &'a Identifier,
    pub(super) agent: &'a Identifier,
    pub(super) id: &'a Identifier,
}

#[async_trait]
impl Operation for FindRequest<'_> {
    type Answer = Loaded<Option<EarlierRequest>>;

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

pub(super) struct FindApproval<'a> {
    pub(super) id: ApprovalId,
    pub(super) viewer: Option<Viewer<'a>>,
}

#[async_trait]
impl Operation for FindApproval<'_> {
    type Answer = Loaded<Option<Approval>>;

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

pub(super) struct FindApprovals<'a> {
    pub(super) ids: &'a [ApprovalId],
}

#[async_trait]
impl Operation for FindApprovals<'_> {
    type Answer = Loaded<Vec<Approval>>;

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

pub(super) struct FindArguments<'a> {
    pub(super) id: ApprovalId,
    pub(super) viewer: Viewer<'a>,
}

#[async_trait]
impl Operation for FindArguments<'_> {
    type Answer = Loaded<Option<WithArguments>>;

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

pub(super) struct FindFacts<'a> {
    pub(super) approval: Option<ApprovalId>,
    pub(super) attempt: &'a AttemptKey,
    pub(super) retry_of: Option<ExecutionId>,
}

#[async_trait]
impl Operation for FindFacts<'_> {
    type Answer = Loaded<ConsumeFacts>;

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

pub(super) struct FindExecution {
    pub(super) id: ExecutionId,
}

#[async_trait]
impl Operation for FindExecution {
    type Answer = Loaded<Option<Execution>>;

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

pub(super) struct FindWaitAlone {
    pub(super) id: WaitId,
}

#[async_trait]
impl Operation for FindWaitAlone {
    type Answer = Loaded<Option<Wait>>;

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

pub(super) struct FindWait {
    pub(super) id: WaitId,
}

#[async_trait]
impl Operation for FindWait {
    type Answer = Loaded<Option<WaitRecord>>;

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

pub(super) struct ListKeys;

#[async_trait]
impl Operation for ListKeys {
    type Answer = Vec<StoredKey>;

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

pub(super) struct ListKeysInUse;

#[async_trait]
impl Operation for ListKeysInUse {
    type Answer = Vec<String>;

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
