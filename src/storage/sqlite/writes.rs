//! The statements that write, each operation a [`Write`] that the writer runs within a transaction.

use super::reads::approval_columns;
use super::transaction::TransactionRows;
use super::writer::Write;
use crate::domain::approval::{Approval, Question, StateName};
use crate::domain::audit::AuditEvent;
use crate::domain::change::Change;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::ApprovalId;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
pub(super) use crate::storage::rows::record_id;
use crate::storage::rows::{
    self, ApprovalColumns, ExecutionColumns, event_columns, execution_columns, same_subject, subject_columns,
};
use crate::storage::{NewApproval, RequestKey, Requested, Saved, StoreError, StoredKey, script};
use async_trait::async_trait;
use sqlx::{Row as _, SqliteConnection, query};

/// The same question, open or overdue: same caller, every binding, retried execution and requirement. The
/// connection is no part of it.
const SAME_QUESTION: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals INDEXED BY approvals_same_question \
     WHERE open_until IS NOT NULL AND requested_by = $1 AND ",
    same_subject!(),
    " AND retry_of IS $14 AND requirement_digest = $15 AND wait_id IS $16 ORDER BY create_time, id"
);
pub(super) const OPEN_OF_PRINCIPAL: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approvals WHERE requested_by = $1 AND principal = $2 AND open_until > $3 LIMIT $4)";
pub(super) const OPEN_OF_AGENT: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approvals WHERE requested_by = $1 AND agent = $2 AND open_until > $3 LIMIT $4)";
const INSERT_APPROVAL: &str = concat!(
    "INSERT INTO approvals (id, version, create_time, decide_by, ends_by, ",
    subject_columns!(),
    ", connection, labels, requested_by, scope, tags, policy_revision, reason, rules, clauses, exclude_requester, \
     decide_within_us, use_within_us, requirement_digest, retry_of, retried_outcome, wait_id, message, agent_note, \
     omissions, preview_json, state, decide_time, use_by, consume_time, execution_id, close_time, closed_by, \
     state_reason, open_until) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, \
     ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);
const UPDATE_APPROVAL: &str = "UPDATE approvals SET state = $1, decide_time = $2, use_by = $3, consume_time = $4,
    execution_id = $5, close_time = $6, closed_by = $7, state_reason = $8, open_until = $9, version = $10
    WHERE id = $11 AND version = $12";
const COUNT_DECISIONS: &str = "SELECT count(*) FROM approval_decisions WHERE approval_id = $1";
const INSERT_DECISION: &str = "INSERT INTO approval_decisions
    (approval_id, sequence, person, groups, as_owner, verdict, reason, caller, decide_time)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
const INSERT_AUDIENCE: &str = "INSERT INTO approval_audience (approval_id, kind, name, state, create_time, open_until)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (approval_id, kind, name) DO NOTHING";
const UPDATE_AUDIENCE: &str = "UPDATE approval_audience SET state = $2, open_until = $3
    WHERE approval_id = $1 AND state <> $2";
/// What is left of using up an approval that is a retry.
const CLOSE_AUDIENCE: &str = "UPDATE approval_audience SET state = 'consumed', open_until = NULL
    WHERE approval_id = $1 AND state <> 'consumed'";
const INSERT_REQUEST_ID: &str = "INSERT INTO request_ids
    (caller, principal, agent, request_id, digest, approval_id, create_time) VALUES (?, ?, ?, ?, ?, ?, ?)";
/// Starts an execution, if its attempt is new.
const INSERT_EXECUTION: &str = concat!(
    "INSERT INTO executions (",
    execution_columns!(),
    ") SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, \
     $24, $25, $26, $27, $28, $29, $30, $31 \
     WHERE NOT EXISTS (SELECT 1 FROM executions WHERE caller = $20 AND principal = $1 AND agent = $2 \
     AND attempt_id = $21)"
);
const UPDATE_EXECUTION: &str = "UPDATE executions SET state = $1, report_time = $2, reported_by = $3,
    remote_reference = $4, error_code = $5, detail = $6, duration_us = $7, version = $8
    WHERE id = $9 AND version = $10";
const INSERT_AUDIT: &str = concat!(
    "INSERT INTO audit_records (",
    event_columns!(),
    ", id, time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);
/// Changes the file, and nothing that anybody reads.
const TOUCH: &str = "INSERT INTO touches (id, time) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET time = excluded.time";
const INSERT_KEY: &str = "INSERT INTO keys (id, check_value, create_time) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING";

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 9] = [
    SAME_QUESTION,
    OPEN_OF_PRINCIPAL,
    OPEN_OF_AGENT,
    UPDATE_APPROVAL,
    COUNT_DECISIONS,
    UPDATE_AUDIENCE,
    CLOSE_AUDIENCE,
    INSERT_EXECUTION,
    UPDATE_EXECUTION,
];

/// See `Store::time`. A transaction that begins and commits; `for_real`, one that changes the file.
pub(super) struct Touch {
    pub(super) for_real: bool,
}

#[async_trait]
impl Write for Touch {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, now: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        if self.for_real {
            query(TOUCH).bind(now.micros()).execute(connection).await?;
        }
        Ok(())
    }
}

/// See `Store::request`.
pub(super) struct Request(pub(super) NewApproval);

#[async_trait]
impl Write for Request {
    type Answer = (Requested, Timestamp);

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        let requested = script::request(&mut TransactionRows { connection, now, touched }, &self.0).await?;
        Ok((requested, now))
    }
}

/// See `Store::save_approval`.
pub(super) struct SaveApproval {
    pub(super) change: Change<Approval>,
    pub(super) expected: u64,
}

#[async_trait]
impl Write for SaveApproval {
    type Answer = Saved;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Saved, StoreError> {
        write_approval(connection, &self.change, self.expected, now, touched).await
    }
}

/// See `Store::start`.
pub(super) struct StartExecution(pub(super) Start);

#[async_trait]
impl Write for StartExecution {
    type Answer = Option<Execution>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        script::start(&mut TransactionRows { connection, now, touched }, &self.0).await
    }
}

/// See `Store::save_execution`.
pub(super) struct SaveExecution {
    pub(super) change: Change<Execution>,
    pub(super) expected: u64,
}

#[async_trait]
impl Write for SaveExecution {
    type Answer = Saved;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Saved, StoreError> {
        let Change { next, events, valid_before } = &self.change;
        if valid_before.is_some_and(|deadline| now >= deadline) {
            return Ok(Saved::Conflict);
        }
        let updated = ExecutionColumns::of(&next.state)
            .bind(query(UPDATE_EXECUTION))
            .bind(rows::integer(next.version))
            .bind(next.id.to_string())
            .bind(rows::integer(self.expected))
            .execute(&mut *connection)
            .await?;
        if updated.rows_affected() == 0 {
            return Ok(Saved::Conflict);
        }
        record(connection, events, now, touched).await?;
        Ok(Saved::Yes)
    }
}

/// See `Store::record`.
pub(super) struct Record(pub(super) Vec<AuditEvent>);

#[async_trait]
impl Write for Record {
    type Answer = ();

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<(), StoreError> {
        record(connection, &self.0, now, touched).await
    }
}

/// See `Store::add_key`.
pub(super) struct AddKey(pub(super) StoredKey);

#[async_trait]
impl Write for AddKey {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, now: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        query(INSERT_KEY)
            .bind(self.0.id.clone())
            .bind(self.0.check.clone())
            .bind(now.micros())
            .execute(connection)
            .await?;
        Ok(())
    }
}

pub(super) async fn same_question(
    connection: &mut SqliteConnection,
    question: &Question,
) -> Result<Vec<Approval>, StoreError> {
    let rows = rows::bind_subject(query(SAME_QUESTION).bind(rows::text(&question.requested_by)), &question.subject)
        .bind(question.retry_of.map(|retried| retried.id.to_string()))
        .bind(question.requirement.digest().to_string())
        .bind(question.wait.map(|id| id.to_string()))
        .fetch_all(connection)
        .await?;
    rows.iter().map(rows::approval).collect()
}

/// How many approvals of the caller and `name` are open, by [`OPEN_OF_PRINCIPAL`] or [`OPEN_OF_AGENT`]; counts no further
/// than `most`.
pub(super) async fn count_open(
    connection: &mut SqliteConnection,
    statement: &'static str,
    (caller, name): (&Identifier, &Identifier),
    most: u32,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let open: i64 = query(statement)
        .bind(rows::text(caller))
        .bind(rows::text(name))
        .bind(now.micros())
        .bind(i64::from(most))
        .fetch_one(connection)
        .await?
        .try_get(0)?;
    Ok(u32::try_from(open).unwrap_or(u32::MAX))
}

/// Inserts an approval in whatever state, with its decisions and audience.
pub(super) async fn insert_approval(
    connection: &mut SqliteConnection,
    approval: &Approval,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    let statement = query(INSERT_APPROVAL)
        .bind(approval.id.to_string())
        .bind(rows::integer(approval.version))
        .bind(approval.create_time.micros())
        .bind(approval.decide_by.micros())
        .bind(approval.ends_by.map(Timestamp::micros));
    let statement = rows::bind_question(statement, &approval.question);
    ApprovalColumns::of(&approval.state).bind(statement, approval.decide_by).execute(&mut *connection).await?;
    touched.approval(approval.id, approval.version);
    for (kind, name) in rows::audience(&approval.question) {
        insert_audience(connection, approval, kind, name).await?;
    }
    insert_decisions(connection, approval).await
}

/// Saves a changed approval: state, new decisions, audience and audit.
pub(super) async fn write_approval(
    connection: &mut SqliteConnection,
    change: &Change<Approval>,
    expected: u64,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<Saved, StoreError> {
    let Change { next, events, valid_before } = change;
    if valid_before.is_some_and(|deadline| now >= deadline) {
        return Ok(Saved::Conflict);
    }
    let columns = ApprovalColumns::of(&next.state);
    let updated = columns
        .bind(query(UPDATE_APPROVAL), next.decide_by)
        .bind(rows::integer(next.version))
        .bind(next.id.to_string())
        .bind(rows::integer(expected))
        .execute(&mut *connection)
        .await?;
    if updated.rows_affected() == 0 {
        return Ok(Saved::Conflict);
    }
    touched.approval(next.id, next.version);
    set_audience(connection, next.id, columns.state, columns.open_until(next.decide_by)).await?;
    insert_decisions(connection, next).await?;
    record(connection, events, now, touched).await?;
    Ok(Saved::Yes)
}

/// Inserts the decisions that are not in the table yet: they are only ever added at the end.
async fn insert_decisions(connection: &mut SqliteConnection, approval: &Approval) -> Result<(), StoreError> {
    if approval.decisions.is_empty() {
        return Ok(());
    }
    let id = approval.id.to_string();
    let stored: i64 = query(COUNT_DECISIONS).bind(id.clone()).fetch_one(&mut *connection).await?.try_get(0)?;
    for (sequence, decision) in (0_i64..).zip(&approval.decisions).skip_while(|(sequence, _)| *sequence < stored) {
        rows::bind_decision(query(INSERT_DECISION).bind(id.clone()).bind(sequence), decision)
            .execute(&mut *connection)
            .await?;
        insert_audience(connection, approval, "person", &decision.person).await?;
    }
    Ok(())
}

async fn insert_audience(
    connection: &mut SqliteConnection,
    approval: &Approval,
    kind: &'static str,
    name: &Identifier,
) -> Result<(), StoreError> {
    query(INSERT_AUDIENCE)
        .bind(approval.id.to_string())
        .bind(kind)
        .bind(rows::text(name))
        .bind(approval.state.name().as_str())
        .bind(approval.create_time.micros())
        .bind(ApprovalColumns::of(&approval.state).open_until(approval.decide_by))
        .execute(connection)
        .await?;
    Ok(())
}

/// Has everyone who sees this approval see that it is used up.
pub(super) async fn close_audience(connection: &mut SqliteConnection, id: ApprovalId) -> Result<(), StoreError> {
    query(CLOSE_AUDIENCE).bind(id.to_string()).execute(connection).await?;
    Ok(())
}

async fn set_audience(
    connection: &mut SqliteConnection,
    id: ApprovalId,
    state: StateName,
    open_until: Option<i64>,
) -> Result<(), StoreError> {
    query(UPDATE_AUDIENCE).bind(id.to_string()).bind(state.as_str()).bind(open_until).execute(connection).await?;
    Ok(())
}

pub(super) async fn insert_request_id(
    connection: &mut SqliteConnection,
    key: &RequestKey,
    approval: &Approval,
    now: Timestamp,
) -> Result<(), StoreError> {
    query(INSERT_REQUEST_ID)
        .bind(rows::text(&approval.question.requested_by))
        .bind(rows::text(&approval.question.subject.principal))
        .bind(rows::text(&approval.question.subject.agent))
        .bind(rows::text(&key.id))
        .bind(key.digest.clone())
        .bind(approval.id.to_string())
        .bind(now.micros())
        .execute(connection)
        .await?;
    Ok(())
}

/// Inserts an execution in whatever state; false, and nothing inserted, if its attempt is known.
pub(super) async fn insert_execution(
    connection: &mut SqliteConnection,
    execution: &Execution,
) -> Result<bool, StoreError> {
    let inserted = rows::bind_execution(query(INSERT_EXECUTION), execution).execute(connection).await?;
    Ok(inserted.rows_affected() > 0)
}

/// Writes audit records, each with an id and the store's time.
pub(super) async fn record(
    connection: &mut SqliteConnection,
    events: &[AuditEvent],
    now: Timestamp,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    for event in events {
        rows::bind_event(query(INSERT_AUDIT), event)
            .bind(record_id(now).to_string())
            .bind(now.micros())
            .execute(&mut *connection)
            .await?;
        touched.recorded(event.kind, 1);
    }
    Ok(())
}
