//! What transactions lock, and the time that they read once they have.

use crate::domain::approval::Question;
use crate::domain::execution::Execution;
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::Wait;
use crate::storage::StoreError;
use crate::storage::postgres::table::Fault;
use crate::storage::postgres::time::TableTime;
use crate::storage::postgres::values::Statement;
use crate::storage::rows::{self, execution_columns, subject_columns, wait_columns};
use sqlx::{PgConnection, query, query_scalar};

/// Every binding of an invocation, compared with the values that `rows::bind_subject` binds as `$2` to `$13`. NULL is a
/// value of its own: absent equals only absent.
macro_rules! same_subject {
    () => {
        "principal = $2 AND agent = $3 AND conversation IS NOT DISTINCT FROM $4 AND connector = $5 \
         AND account IS NOT DISTINCT FROM $6 AND action = $7 AND objective_transcript IS NOT DISTINCT FROM $8 \
         AND objective_id IS NOT DISTINCT FROM $9 AND objective_revision IS NOT DISTINCT FROM $10 AND fingerprint = $11 \
         AND arguments_digest = $12 AND tool_definition_digest IS NOT DISTINCT FROM $13"
    };
}

/// The same question, open or overdue: same caller, every binding, retried execution, requirement and wait. The connection
/// is no part of it.
macro_rules! same_question {
    () => {
        concat!(
            "open_until IS NOT NULL AND requested_by = $1 AND ",
            same_subject!(),
            " AND retry_of IS NOT DISTINCT FROM $14 AND requirement_digest = $15 AND wait_id IS NOT DISTINCT FROM $16"
        )
    };
}

/// The approvals of these waits that are open or overdue.
macro_rules! open_of_waits {
    () => {
        "wait_id = ANY ($1) AND open_until IS NOT NULL"
    };
}

pub(super) use {open_of_waits, same_question, same_subject};

const LOCK: &str = "SELECT pg_advisory_xact_lock($1)";
const NOW: &str = "SELECT store_now($1)";
const LOCK_WAIT: &str = concat!("SELECT ", wait_columns!(), " FROM waits WHERE id = $1 FOR NO KEY UPDATE");
const LOCK_ACTIVE_WAIT: &str = concat!(
    "SELECT ",
    wait_columns!(),
    " FROM waits WHERE principal = $1 AND agent = $2 AND objective_transcript = $3 AND state <> 'closed' \
     FOR NO KEY UPDATE"
);
const LOCK_OVERDUE_WAITS: &str = concat!(
    "SELECT ",
    wait_columns!(),
    " FROM waits WHERE expire_time <= (SELECT store_now($1)) AND state <> 'closed' ORDER BY expire_time LIMIT $2 \
     FOR NO KEY UPDATE SKIP LOCKED"
);
const LOCK_OPEN_OF_WAITS: &str =
    concat!("SELECT 1 FROM approvals WHERE ", open_of_waits!(), " ORDER BY id FOR NO KEY UPDATE");
const LOCK_SAME_QUESTION: &str =
    concat!("SELECT 1 FROM approvals WHERE ", same_question!(), " ORDER BY id FOR NO KEY UPDATE");
const LOCK_APPROVAL: &str = "SELECT retry_of FROM approvals WHERE id = $1 FOR NO KEY UPDATE";
const LOCK_EXECUTION: &str = concat!("SELECT ", execution_columns!(), " FROM executions WHERE id = $1 FOR SHARE");

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(in super::super) const ALL: [&str; 7] = [
    LOCK_WAIT,
    LOCK_ACTIVE_WAIT,
    LOCK_OVERDUE_WAITS,
    LOCK_OPEN_OF_WAITS,
    LOCK_SAME_QUESTION,
    LOCK_APPROVAL,
    LOCK_EXECUTION,
];

/// Takes the lock of this key, until the transaction ends.
pub(super) async fn lock(connection: &mut PgConnection, key: i64) -> Result<(), Fault> {
    query(LOCK).bind(key).execute(connection).await?;
    Ok(())
}

/// The store's time.
pub(super) async fn now(connection: &mut PgConnection, time: &TableTime) -> Result<Timestamp, Fault> {
    let now: i64 = query_scalar(NOW).bind(time.given()).fetch_one(connection).await?;
    let now = Timestamp::from_micros(now);
    time.told(now);
    Ok(now)
}

pub(super) async fn lock_wait(connection: &mut PgConnection, id: WaitId) -> Result<Option<Wait>, Fault> {
    let row = query(LOCK_WAIT).bind(id.to_string()).fetch_optional(connection).await?;
    Ok(row.as_ref().map(rows::wait).transpose()?)
}

pub(super) async fn lock_active_wait(
    connection: &mut PgConnection,
    principal: &Identifier,
    agent: &Identifier,
    transcript: &Identifier,
) -> Result<Option<Wait>, Fault> {
    let row = query(LOCK_ACTIVE_WAIT)
        .bind(rows::text(principal))
        .bind(rows::text(agent))
        .bind(rows::text(transcript))
        .fetch_optional(connection)
        .await?;
    Ok(row.as_ref().map(rows::wait).transpose()?)
}

/// The waits that have been over for longest, but for those that others have locked.
pub(super) async fn lock_overdue_waits(
    connection: &mut PgConnection,
    time: &TableTime,
    limit: u32,
) -> Result<Vec<Wait>, Fault> {
    let rows = query(LOCK_OVERDUE_WAITS).bind(time.given()).bind(i64::from(limit)).fetch_all(connection).await?;
    Ok(rows.iter().map(rows::wait).collect::<Result<_, _>>()?)
}

/// Locks what is open of these waits.
pub(super) async fn lock_open_of_waits(connection: &mut PgConnection, ids: &[WaitId]) -> Result<(), Fault> {
    if !ids.is_empty() {
        query(LOCK_OPEN_OF_WAITS).bind(texts(ids)).execute(connection).await?;
    }
    Ok(())
}

/// Locks whatever is the same question; whether there is any.
pub(super) async fn lock_same_question(connection: &mut PgConnection, question: &Question) -> Result<bool, Fault> {
    let locked = bind_same_question(query(LOCK_SAME_QUESTION), question).fetch_all(connection).await?;
    Ok(!locked.is_empty())
}

/// Locks an approval: which execution it retries, if it does; none where there is no such approval.
pub(super) async fn lock_approval(
    connection: &mut PgConnection,
    id: ApprovalId,
) -> Result<Option<Option<ExecutionId>>, Fault> {
    let found: Option<Option<String>> =
        query_scalar(LOCK_APPROVAL).bind(id.to_string()).fetch_optional(connection).await?;
    let corrupt = || StoreError::Corrupt { table: "approvals", id: id.to_string() };
    let parsed = |retried: String| ExecutionId::parse(&retried).ok_or_else(corrupt);
    Ok(found.map(|retried| retried.map(parsed).transpose()).transpose()?)
}

/// An execution that nobody reports on until the transaction ends.
pub(super) async fn lock_execution(connection: &mut PgConnection, id: ExecutionId) -> Result<Option<Execution>, Fault> {
    let row = query(LOCK_EXECUTION).bind(id.to_string()).fetch_optional(connection).await?;
    Ok(row.as_ref().map(rows::execution).transpose()?)
}

pub(super) fn bind_same_question<'q>(statement: Statement<'q>, question: &Question) -> Statement<'q> {
    rows::bind_subject(statement.bind(rows::text(&question.requested_by)), &question.subject)
        .bind(question.retry_of.map(|retried| retried.id.to_string()))
        .bind(question.requirement.digest().to_string())
        .bind(question.wait.map(|id| id.to_string()))
}

/// These ids as they are bound.
pub(super) fn texts<I: ToString>(ids: &[I]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
