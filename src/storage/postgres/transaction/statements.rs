//! The rows of a transaction as the scripts need them.
//!
//! What a statement gathers from another table is of its snapshot, while a row that it locks is as it is once it is locked.
//! So approvals are locked by one statement and read, with their decisions, by the next.

use super::locks::{bind_same_question, lock_active_wait, lock_execution, lock_wait, open_of_waits};
use super::locks::{same_question, same_subject, texts};
use crate::domain::approval::{Approval, Question};
use crate::domain::audit::AuditEvent;
use crate::domain::change::Change;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::invocation::Subject;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::Wait;
use crate::storage::changes::Touched;
use crate::storage::postgres::columns::{approval_columns, question_columns, shared_columns};
use crate::storage::postgres::table::Fault;
use crate::storage::postgres::values::{Batch, Statement};
use crate::storage::postgres::writes::{DECISION_KINDS, RECORD, RECORD_KINDS, SAVE_APPROVAL};
use crate::storage::rows::{
    self, ApprovalColumns, Bind as _, WaitColumns, execution_columns, subject_columns, wait_columns,
};
use crate::storage::script::Rows;
use crate::storage::{Accepting, EarlierRequest, RequestKey, Saved, SealedArguments, StoreError};
use async_trait::async_trait;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, query};
use std::sync::Arc;

const COUNT_ACTIVE: &str = "SELECT count(*) FROM (
    SELECT 1 FROM waits WHERE principal = $1 AND agent = $2 AND state <> 'closed' LIMIT $3) counted";
const INSERT_WAIT: &str = concat!(
    "INSERT INTO waits (",
    wait_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)"
);
const UPDATE_WAIT: &str = "UPDATE waits SET state = $1, resume_time = $2, resumed_by = $3, attempt_id = $4,
    close_time = $5, closed_by = $6, close_kind = $7, close_reason = $8, objective_revision = $9, summary = $10,
    update_time = $11, expire_time = $12, version = $13 WHERE id = $14 AND version = $15";
const OPEN_OF_WAITS: &str =
    concat!("SELECT ", approval_columns!(), " FROM approvals WHERE ", open_of_waits!(), " ORDER BY open_until, id");
/// What is open is pending or approved. Said so, it is no reason to go through all that is pending, in whatever wait.
const PENDING_OF_WAIT: &str =
    "SELECT count(*) FROM approvals WHERE wait_id = $1 AND open_until > $2 AND state <> 'approved'";
const NEWEST_OF_WAIT: &str = "SELECT id FROM approvals WHERE wait_id = $1 ORDER BY create_time DESC, id DESC LIMIT $2";
const APPROVALS: &str = concat!("SELECT ", approval_columns!(), " FROM approvals WHERE id = ANY ($1)");
const EARLIER: &str = concat!(
    "SELECT request_digest, ",
    approval_columns!(),
    " FROM (SELECT digest AS request_digest, approval_id AS answer FROM request_ids \
     WHERE caller = $1 AND principal = $2 AND agent = $3 AND request_id = $4) earlier \
     JOIN approvals ON id = earlier.answer"
);
const SAME_QUESTION: &str =
    concat!("SELECT ", approval_columns!(), " FROM approvals WHERE ", same_question!(), " ORDER BY create_time, id");
const OPEN_OF_PRINCIPAL: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approvals WHERE requested_by = $1 AND principal = $2 AND open_until > $3 LIMIT $4) counted";
const OPEN_OF_AGENT: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approvals WHERE requested_by = $1 AND agent = $2 AND open_until > $3 LIMIT $4) counted";
const OPEN_OF_ACTION: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approvals WHERE requested_by = $1 AND principal = $2 AND open_until > $3 AND connector = $4
    AND action = $5 LIMIT $6) counted";
const ASKED_SINCE: &str = "SELECT time FROM audit_records
    WHERE kind = 'approval.requested' AND principal = $1 AND time > $2 ORDER BY time DESC LIMIT 1 OFFSET $3";
/// The same question by whoever asks it, denied.
const DENIED_SINCE: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals WHERE state = 'denied' AND principal = $1 AND fingerprint = $2 AND decide_time > $3 \
     AND agent = $4 AND conversation IS NOT DISTINCT FROM $5 ORDER BY decide_time DESC LIMIT 1"
);
const INSERT_APPROVAL: &str = concat!(
    "INSERT INTO approvals (id, version, create_time, decide_by, ends_by, update_time, ",
    subject_columns!(),
    ", connection, labels, requested_by, scope, tags, policy_revision, reason, rules, clauses, exclude_requester, \
     decide_within_us, use_within_us, requirement_digest, retry_of, retried_outcome, wait_id, message, agent_note, \
     omissions, preview_json, state, decide_time, use_by, consume_time, execution_id, close_time, closed_by, \
     state_reason, open_until) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, \
     $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, \
     $47)"
);
const INSERT_AUDIENCE: &str = "INSERT INTO approval_audience (approval_id, kind, name, state, create_time, open_until)
    SELECT $1, audience.kind, audience.name, $2, $3, $4 FROM unnest($5::TEXT[], $6::TEXT[]) AS audience (kind, name)";
const INSERT_ARGUMENTS: &str = "INSERT INTO approval_arguments (approval_id, key_id, sealed) VALUES ($1, $2, $3)";
const INSERT_REQUEST_ID: &str = "INSERT INTO request_ids
    (caller, principal, agent, request_id, digest, approval_id, create_time) VALUES ($1, $2, $3, $4, $5, $6, $7)";
const CLOSE_AUDIENCE: &str =
    "UPDATE approval_audience SET state = 'consumed', open_until = NULL WHERE approval_id = $1";
/// Uses an approval up that retries an execution, under every condition of the gate.
const USE_UP: &str = concat!(
    "UPDATE approvals SET state = 'consumed', consume_time = $14, execution_id = $15, open_until = NULL, \
     update_time = $14, version = version + 1 WHERE id = $1 AND state = 'approved' AND use_by > $14 AND ",
    same_subject!(),
    " AND ($16::TEXT IS NULL OR requirement_digest = $16) AND ($17::BIGINT IS NULL OR version = $17) \
     AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.caller = $18 AND executions.principal = $2 \
     AND executions.agent = $3 AND executions.attempt_id = $19) \
     AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = approvals.retry_of \
     AND executions.state = 'succeeded') RETURNING version, use_by"
);
/// Starts an execution, if its attempt is new.
const INSERT_EXECUTION: &str = concat!(
    "INSERT INTO executions (",
    execution_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, \
     $24, $25, $26, $27, $28, $29, $30, $31) ON CONFLICT (caller, principal, agent, attempt_id) DO NOTHING"
);

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(in super::super) const ALL: [&str; 15] = [
    COUNT_ACTIVE,
    UPDATE_WAIT,
    OPEN_OF_WAITS,
    PENDING_OF_WAIT,
    NEWEST_OF_WAIT,
    APPROVALS,
    EARLIER,
    SAME_QUESTION,
    OPEN_OF_PRINCIPAL,
    OPEN_OF_AGENT,
    OPEN_OF_ACTION,
    ASKED_SINCE,
    DENIED_SINCE,
    CLOSE_AUDIENCE,
    USE_UP,
];

/// The rows of one transaction, in which everything is locked that the scripts change or count on, and the store's time
/// since.
pub(super) struct TransactionRows<'a> {
    connection: &'a mut PgConnection,
    now: Timestamp,
    touched: &'a mut Touched,
    /// The wait that is locked, for as long as it is as it was then.
    wait: Option<Wait>,
}

impl<'a> TransactionRows<'a> {
    pub(super) fn new(connection: &'a mut PgConnection, now: Timestamp, touched: &'a mut Touched) -> Self {
        Self { connection, now, touched, wait: None }
    }

    /// With this wait, which has just been locked.
    pub(super) fn with_wait(self, wait: Option<Wait>) -> Self {
        Self { wait, ..self }
    }
}

/// An approval that was used up.
pub(super) struct UsedUp {
    /// Its version since.
    pub(super) version: u64,
    /// When it would have expired.
    pub(super) use_by: Timestamp,
}

/// Uses up an approval that is a retry: the version that it has since, if every condition is met.
pub(super) async fn use_up(
    connection: &mut PgConnection,
    start: &Start,
    approval: ApprovalId,
    accepting: Accepting,
    now: Timestamp,
) -> Result<Option<UsedUp>, Fault> {
    let (digest, version) = match accepting {
        Accepting::AnyRequirement => (None, None),
        Accepting::Digest(digest) => (Some(digest.to_string()), None),
        Accepting::Version(version) => (None, Some(rows::integer(version))),
    };
    let used = rows::bind_subject(query(USE_UP).bind(approval.to_string()), &start.subject)
        .bind(now.micros())
        .bind(start.id.to_string())
        .bind(digest)
        .bind(version)
        .bind(rows::text(&start.caller))
        .bind(start.attempt.to_string())
        .fetch_optional(connection)
        .await?;
    let Some(used) = used else { return Ok(None) };
    let (version, use_by): (i64, i64) = (used.try_get("version")?, used.try_get("use_by")?);
    let corrupt = || StoreError::Corrupt { table: "approvals", id: approval.to_string() };
    let version = u64::try_from(version).map_err(|_| corrupt())?;
    Ok(Some(UsedUp { version, use_by: Timestamp::from_micros(use_by) }))
}

#[async_trait]
impl Rows for TransactionRows<'_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn wait(&mut self, id: WaitId) -> Result<Option<Wait>, Fault> {
        match &self.wait {
            Some(wait) if wait.id == id => Ok(Some(wait.clone())),
            _ => lock_wait(self.connection, id).await,
        }
    }

    async fn active_wait(
        &mut self,
        principal: &Identifier,
        agent: &Identifier,
        transcript: &Identifier,
    ) -> Result<Option<Wait>, Fault> {
        match &self.wait {
            Some(wait) => Ok(Some(wait.clone())),
            None => lock_active_wait(self.connection, principal, agent, transcript).await,
        }
    }

    async fn active_waits(&mut self, principal: &Identifier, agent: &Identifier, most: u32) -> Result<u32, Fault> {
        let statement = query(COUNT_ACTIVE).bind(rows::text(principal)).bind(rows::text(agent)).bind(i64::from(most));
        count(statement, self.connection).await
    }

    async fn insert_wait(&mut self, wait: &Wait) -> Result<(), Fault> {
        rows::bind_wait(query(INSERT_WAIT), wait).execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn update_wait(&mut self, wait: &Wait, expected: u64) -> Result<bool, Fault> {
        self.wait = None;
        let updated = WaitColumns::of(&wait.state)
            .bind(query(UPDATE_WAIT), wait)
            .bind(wait.id.to_string())
            .bind(rows::integer(expected))
            .execute(&mut *self.connection)
            .await?;
        Ok(updated.rows_affected() > 0)
    }

    async fn open_of_wait(&mut self, id: WaitId) -> Result<Vec<Approval>, Fault> {
        let rows = query(OPEN_OF_WAITS).bind(texts(&[id])).fetch_all(&mut *self.connection).await?;
        Ok(rows.iter().map(rows::approval).collect::<Result<_, _>>()?)
    }

    async fn pending_of_wait(&mut self, id: WaitId) -> Result<u32, Fault> {
        let statement = query(PENDING_OF_WAIT).bind(id.to_string()).bind(self.now.micros());
        count(statement, self.connection).await
    }

    async fn newest_of_wait(&mut self, id: WaitId, most: u32) -> Result<Vec<ApprovalId>, Fault> {
        let statement = query(NEWEST_OF_WAIT).bind(id.to_string()).bind(i64::from(most));
        let rows = statement.fetch_all(&mut *self.connection).await?;
        Ok(rows.iter().map(rows::approval_id).collect::<Result<_, _>>()?)
    }

    async fn approvals_of(&mut self, ids: &[ApprovalId]) -> Result<Vec<Approval>, Fault> {
        let rows = query(APPROVALS).bind(texts(ids)).fetch_all(&mut *self.connection).await?;
        Ok(rows.iter().map(rows::approval).collect::<Result<_, _>>()?)
    }

    async fn earlier_request(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Option<EarlierRequest>, Fault> {
        let row = query(EARLIER)
            .bind(rows::text(caller))
            .bind(rows::text(principal))
            .bind(rows::text(agent))
            .bind(rows::text(id))
            .fetch_optional(&mut *self.connection)
            .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(EarlierRequest { digest: row.try_get("request_digest")?, approval: rows::approval(&row)? }))
    }

    async fn same_question(&mut self, question: &Question) -> Result<Vec<Approval>, Fault> {
        let rows = bind_same_question(query(SAME_QUESTION), question).fetch_all(&mut *self.connection).await?;
        Ok(rows.iter().map(rows::approval).collect::<Result<_, _>>()?)
    }

    async fn open_of_principal(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        most: u32,
    ) -> Result<u32, Fault> {
        count(bind_limit(query(OPEN_OF_PRINCIPAL), caller, principal, most, self.now), self.connection).await
    }

    async fn open_of_agent(&mut self, caller: &Identifier, agent: &Identifier, most: u32) -> Result<u32, Fault> {
        count(bind_limit(query(OPEN_OF_AGENT), caller, agent, most, self.now), self.connection).await
    }

    async fn open_of_action(&mut self, caller: &Identifier, subject: &Subject, most: u32) -> Result<u32, Fault> {
        let statement = query(OPEN_OF_ACTION)
            .bind(rows::text(caller))
            .bind(rows::text(&subject.principal))
            .bind(self.now.micros())
            .bind(rows::text(&subject.connector))
            .bind(rows::text(&subject.action))
            .bind(i64::from(most));
        count(statement, self.connection).await
    }

    async fn asked_since(
        &mut self,
        principal: &Identifier,
        since: Timestamp,
        most: u32,
    ) -> Result<Option<Timestamp>, Fault> {
        let row = query(ASKED_SINCE)
            .bind(rows::text(principal))
            .bind(since.micros())
            .bind(i64::from(most).saturating_sub(1))
            .fetch_optional(&mut *self.connection)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(Timestamp::from_micros))
    }

    async fn denied_since(&mut self, subject: &Subject, since: Timestamp) -> Result<Option<Approval>, Fault> {
        let row = query(DENIED_SINCE)
            .bind(rows::text(&subject.principal))
            .bind(subject.fingerprint.to_string())
            .bind(since.micros())
            .bind(rows::text(&subject.agent))
            .bind(rows::maybe_text(subject.conversation.as_ref()))
            .fetch_optional(&mut *self.connection)
            .await?;
        Ok(row.as_ref().map(rows::approval).transpose()?)
    }

    async fn insert_approval(&mut self, approval: &Approval, arguments: &SealedArguments) -> Result<(), Fault> {
        let columns = ApprovalColumns::of(&approval.state);
        let statement = query(INSERT_APPROVAL)
            .bind(approval.id.to_string())
            .bind(rows::integer(approval.version))
            .bind(approval.create_time.micros())
            .bind(approval.decide_by.micros())
            .bind(approval.ends_by.map(Timestamp::micros))
            .bind(self.now.micros());
        let statement = rows::bind_question(statement, &approval.question);
        columns.bind(statement, approval.decide_by).execute(&mut *self.connection).await?;
        let (kinds, names): (Vec<&str>, Vec<&str>) =
            rows::audience(&approval.question).into_iter().map(|(kind, name)| (kind, name.as_str())).unzip();
        query(INSERT_AUDIENCE)
            .bind(approval.id.to_string())
            .bind(columns.state.as_str())
            .bind(approval.create_time.micros())
            .bind(columns.open_until(approval.decide_by))
            .bind(kinds)
            .bind(names)
            .execute(&mut *self.connection)
            .await?;
        query(INSERT_ARGUMENTS)
            .bind(approval.id.to_string())
            .bind(arguments.key_id.clone())
            .bind(arguments.bytes.as_slice())
            .execute(&mut *self.connection)
            .await?;
        self.touched.approval(approval.id, approval.version);
        Ok(())
    }

    async fn insert_request_id(&mut self, key: &RequestKey, approval: &Approval) -> Result<(), Fault> {
        query(INSERT_REQUEST_ID)
            .bind(rows::text(&approval.question.requested_by))
            .bind(rows::text(&approval.question.subject.principal))
            .bind(rows::text(&approval.question.subject.agent))
            .bind(rows::text(&key.id))
            .bind(key.digest.clone())
            .bind(approval.id.to_string())
            .bind(self.now.micros())
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }

    async fn save_approval(&mut self, change: &Change<Approval>, expected: u64) -> Result<Saved, Fault> {
        let Change { next, events, valid_before } = change;
        // The time of this transaction stands for the database's clock.
        let statement = query(AssertSqlSafe(Arc::clone(&SAVE_APPROVAL))).bind(self.now.micros());
        let statement = ApprovalColumns::of(&next.state)
            .bind(statement, next.decide_by)
            .bind(rows::integer(next.version))
            .bind(next.id.to_string())
            .bind(rows::integer(expected))
            .bind(valid_before.map(Timestamp::micros));
        let mut decisions = Batch::of(DECISION_KINDS);
        for (sequence, decision) in (0_i64..).zip(&next.decisions) {
            rows::bind_decision(decisions.row().bind(sequence), decision);
        }
        let statement = bind_records(decisions.bind_to(statement), events, self.now);
        let saved: Option<i64> = statement.fetch_one(&mut *self.connection).await?.try_get(0)?;
        if saved.is_none() {
            return Ok(Saved::Conflict);
        }
        self.touched.approval(next.id, next.version);
        events.iter().for_each(|event| self.touched.recorded(event.kind, 1));
        Ok(Saved::Yes)
    }

    async fn close_audience(&mut self, id: ApprovalId) -> Result<(), Fault> {
        query(CLOSE_AUDIENCE).bind(id.to_string()).execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn execution(&mut self, id: ExecutionId) -> Result<Option<Execution>, Fault> {
        lock_execution(self.connection, id).await
    }

    async fn insert_execution(&mut self, execution: &Execution) -> Result<bool, Fault> {
        let statement = rows::bind_execution(query(INSERT_EXECUTION), execution);
        Ok(statement.execute(&mut *self.connection).await?.rows_affected() > 0)
    }

    async fn record(&mut self, events: &[AuditEvent]) -> Result<(), Fault> {
        bind_records(query(RECORD).bind(self.now.micros()), events, self.now).execute(&mut *self.connection).await?;
        events.iter().for_each(|event| self.touched.recorded(event.kind, 1));
        Ok(())
    }
}

fn bind_limit<'q>(
    statement: Statement<'q>,
    caller: &Identifier,
    name: &Identifier,
    most: u32,
    now: Timestamp,
) -> Statement<'q> {
    statement.bind(rows::text(caller)).bind(rows::text(name)).bind(now.micros()).bind(i64::from(most))
}

/// Binds records as arrays.
fn bind_records<'q>(statement: Statement<'q>, events: &[AuditEvent], now: Timestamp) -> Statement<'q> {
    let mut batch = Batch::of(RECORD_KINDS);
    for event in events {
        rows::bind_event(batch.row(), event).bind(rows::record_id(now).to_string());
    }
    batch.bind_to(statement)
}

async fn count(statement: Statement<'_>, connection: &mut PgConnection) -> Result<u32, Fault> {
    let count: i64 = statement.fetch_one(connection).await?.try_get(0)?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}
