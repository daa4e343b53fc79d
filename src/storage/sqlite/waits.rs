//! The statements of waits. What ends a wait, or moves its objective on, withdraws its approvals in the same transaction:
//! the one writer keeps a question and the end of its wait from missing each other.

use super::reads::{self, approval_columns};
use super::transaction::TransactionRows;
use super::writer::Write;
use crate::domain::approval::Approval;
use crate::domain::ids::{ApprovalId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opening, Resuming, Wait};
use crate::storage::changes::Touched;
use crate::storage::rows::{self, WaitColumns, subject_columns, wait_columns};
use crate::storage::time::StoreTime;
use crate::storage::{Loaded, OpenedWait, ResumedWait, StoreError, WaitRecord, Waited, script};
use async_trait::async_trait;
use sqlx::{Row as _, SqliteConnection, query};

const WAIT: &str = concat!("SELECT ", wait_columns!(), " FROM waits WHERE id = $1");
const ACTIVE_WAIT: &str = concat!(
    "SELECT ",
    wait_columns!(),
    " FROM waits WHERE principal = $1 AND agent = $2 AND objective_transcript = $3 AND state <> 'closed'"
);
const COUNT_ACTIVE: &str = "SELECT count(*) FROM (SELECT 1 FROM waits INDEXED BY waits_active
    WHERE principal = $1 AND agent = $2 AND state <> 'closed' LIMIT $3)";
const OVERDUE_WAITS: &str = concat!(
    "SELECT ",
    wait_columns!(),
    " FROM waits WHERE expire_time <= $1 AND state <> 'closed' ORDER BY expire_time LIMIT $2"
);
const APPROVALS_OF_WAIT: &str =
    "SELECT id FROM approvals WHERE wait_id = $1 ORDER BY create_time DESC, id DESC LIMIT $2";
const OPEN_OF_WAIT: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals WHERE wait_id = $1 AND open_until IS NOT NULL ORDER BY open_until"
);
const PENDING_OF_WAIT: &str =
    "SELECT count(*) FROM approvals WHERE wait_id = $1 AND open_until > $2 AND state = 'pending'";
const INSERT_WAIT: &str = concat!(
    "INSERT INTO waits (",
    wait_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);
const UPDATE_WAIT: &str = "UPDATE waits SET state = $1, resume_time = $2, resumed_by = $3, attempt_id = $4,
    close_time = $5, closed_by = $6, close_kind = $7, close_reason = $8, objective_revision = $9, summary = $10,
    update_time = $11, expire_time = $12, version = $13 WHERE id = $14 AND version = $15";

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 8] =
    [WAIT, ACTIVE_WAIT, COUNT_ACTIVE, OVERDUE_WAITS, APPROVALS_OF_WAIT, OPEN_OF_WAIT, PENDING_OF_WAIT, UPDATE_WAIT];

/// See `Store::wait`.
pub(super) async fn wait(
    connection: &mut SqliteConnection,
    id: WaitId,
    time: &StoreTime,
) -> Result<Loaded<Option<WaitRecord>>, StoreError> {
    // The time is read after what is seen is fixed, so that no row in it is of later.
    reads::touch(connection).await?;
    let now = time.now();
    let row = match by_id(connection, id).await? {
        Some(wait) => {
            let touched = &mut Touched::default();
            Some(script::wait_record(&mut TransactionRows { connection, now, touched }, wait).await?)
        }
        None => None,
    };
    Ok(Loaded { row, now })
}

/// See `Store::open_wait`.
pub(super) struct OpenWait(pub(super) Opening);

#[async_trait]
impl Write for OpenWait {
    type Answer = Loaded<Waited<OpenedWait>>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        script::open_wait(&mut TransactionRows { connection, now, touched }, &self.0).await
    }
}

/// See `Store::resume_wait`.
pub(super) struct ResumeWait {
    pub(super) id: WaitId,
    pub(super) resuming: Resuming,
}

#[async_trait]
impl Write for ResumeWait {
    type Answer = Loaded<Option<Waited<ResumedWait>>>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        script::resume_wait(&mut TransactionRows { connection, now, touched }, self.id, &self.resuming).await
    }
}

/// See `Store::close_wait`.
pub(super) struct CloseWait {
    pub(super) id: WaitId,
    pub(super) caller: Identifier,
    pub(super) reason: Option<String>,
}

#[async_trait]
impl Write for CloseWait {
    type Answer = Loaded<Option<Waited<WaitRecord>>>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        let rows = &mut TransactionRows { connection, now, touched };
        script::close_wait(rows, self.id, &self.caller, self.reason.as_deref()).await
    }
}

/// Expires at most `limit` waits whose time is over, longest overdue first: how many, and when the first of them was over.
pub(super) async fn expire(
    connection: &mut SqliteConnection,
    limit: u32,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<(u32, Option<Timestamp>), StoreError> {
    let overdue = query(OVERDUE_WAITS).bind(now.micros()).bind(i64::from(limit)).fetch_all(&mut *connection).await?;
    let overdue = overdue.iter().map(rows::wait).collect::<Result<Vec<_>, _>>()?;
    script::expire_waits(&mut TransactionRows { connection, now, touched }, overdue).await
}

pub(super) async fn by_id(connection: &mut SqliteConnection, id: WaitId) -> Result<Option<Wait>, StoreError> {
    let row = query(WAIT).bind(id.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(rows::wait).transpose()
}

pub(super) async fn active(
    connection: &mut SqliteConnection,
    principal: &Identifier,
    agent: &Identifier,
    transcript: &Identifier,
) -> Result<Option<Wait>, StoreError> {
    let row = query(ACTIVE_WAIT)
        .bind(rows::text(principal))
        .bind(rows::text(agent))
        .bind(rows::text(transcript))
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rows::wait).transpose()
}

/// How many waits of this principal and agent are active; counts no further than `most`.
pub(super) async fn count_active(
    connection: &mut SqliteConnection,
    principal: &Identifier,
    agent: &Identifier,
    most: u32,
) -> Result<u32, StoreError> {
    let active: i64 = query(COUNT_ACTIVE)
        .bind(rows::text(principal))
        .bind(rows::text(agent))
        .bind(i64::from(most))
        .fetch_one(connection)
        .await?
        .try_get(0)?;
    Ok(u32::try_from(active).unwrap_or(u32::MAX))
}

pub(super) async fn open_approvals(connection: &mut SqliteConnection, id: WaitId) -> Result<Vec<Approval>, StoreError> {
    let rows = query(OPEN_OF_WAIT).bind(id.to_string()).fetch_all(connection).await?;
    rows.iter().map(rows::approval).collect()
}

pub(super) async fn count_pending(
    connection: &mut SqliteConnection,
    id: WaitId,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let count: i64 =
        query(PENDING_OF_WAIT).bind(id.to_string()).bind(now.micros()).fetch_one(connection).await?.try_get(0)?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The newest approvals of a wait, newest first.
pub(super) async fn newest_approvals(
    connection: &mut SqliteConnection,
    id: WaitId,
    most: u32,
) -> Result<Vec<ApprovalId>, StoreError> {
    let rows = query(APPROVALS_OF_WAIT).bind(id.to_string()).bind(i64::from(most)).fetch_all(connection).await?;
    rows.iter().map(rows::approval_id).collect()
}

pub(super) async fn insert(connection: &mut SqliteConnection, wait: &Wait) -> Result<(), StoreError> {
    rows::bind_wait(query(INSERT_WAIT), wait).execute(connection).await?;
    Ok(())
}

/// Saves a changed wait whose row has the version `expected`; whether it had.
pub(super) async fn update(connection: &mut SqliteConnection, wait: &Wait, expected: u64) -> Result<bool, StoreError> {
    let updated = WaitColumns::of(&wait.state)
        .bind(query(UPDATE_WAIT), wait)
        .bind(wait.id.to_string())
        .bind(rows::integer(expected))
        .execute(connection)
        .await?;
    Ok(updated.rows_affected() > 0)
}
