//! The statements of waits. What ends a wait, or moves its objective on, withdraws its approvals in the same transaction:
//! the one writer keeps a question and the end of its wait from missing each other.

use super::reads::{self, approval_columns};
use super::writer::Write;
use super::writes;
use crate::domain::approval::{Approval, Question};
use crate::domain::change::Change;
use crate::domain::ids::{ApprovalId, WaitId};
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opened, Opening, Resumed, Resuming, Wait, WaitChange, WaitRefusal, Withdrawal};
use crate::storage::changes::Touched;
use crate::storage::rows::{self, WaitColumns, subject_columns, wait_columns};
use crate::storage::time::StoreTime;
use crate::storage::{Loaded, OpenedWait, RefusedWait, Requested, ResumedWait, Saved, StoreError, WaitRecord, Waited};
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
const OVERDUE_WAITS: &str =
    "SELECT id FROM waits WHERE expire_time <= $1 AND state <> 'closed' ORDER BY expire_time LIMIT $2";
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
        Some(wait) => Some(record(connection, wait, now).await?),
        None => None,
    };
    Ok(Loaded { row, now })
}

/// Until when at most an approval of this question is open; none without a wait. A wait that does not take it answers
/// instead.
pub(super) async fn room(
    connection: &mut SqliteConnection,
    question: &Question,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<Result<Option<Timestamp>, Requested>, StoreError> {
    let Some(id) = question.wait else { return Ok(Ok(None)) };
    let subject = &question.subject;
    let wait =
        current(connection, id, now, touched).await?.filter(|wait| wait.is_of(&subject.principal, &subject.agent));
    let Some(wait) = wait else { return Ok(Err(Requested::WaitUnknown)) };
    Ok(match wait.accepts(subject, now) {
        Ok(ends_by) => Ok(Some(ends_by)),
        Err(refusal) => Err(Requested::WaitRefused(Box::new(RefusedWait { refusal, wait }))),
    })
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
        let opening = &self.0;
        let active = query(ACTIVE_WAIT)
            .bind(rows::text(&opening.principal))
            .bind(rows::text(&opening.agent))
            .bind(rows::text(&opening.objective.transcript))
            .fetch_optional(&mut *connection)
            .await?;
        let active = active.as_ref().map(rows::wait).transpose()?;
        let (wait, existing) = match (opening.against(active.as_ref(), now), active) {
            (Ok(Opened::AsItWas), Some(active)) => (active, true),
            (Ok(Opened::Changed(change)), Some(active)) => {
                write_wait(connection, &change, active.version, now, touched).await?;
                (change.change.next, true)
            }
            (Ok(Opened::Made { instead_of: None, wait }), _) if is_full(connection, opening).await? => {
                let refusal = WaitRefusal::TooMany(limits::WAITS_ACTIVE);
                return Ok(Loaded { row: Err(Box::new(RefusedWait { refusal, wait: wait.next })), now });
            }
            (Ok(Opened::Made { instead_of, wait }), active) => {
                if let (Some(first), Some(active)) = (instead_of, active) {
                    write_wait(connection, &first, active.version, now, touched).await?;
                }
                insert_wait(connection, &wait, now, touched).await?;
                (wait.next, false)
            }
            (Err(refusal), Some(wait)) => {
                return Ok(Loaded { row: Err(Box::new(RefusedWait { refusal, wait })), now });
            }
            // Without an active wait there is none to stay as it is, to change, or to stand in the way.
            (Ok(Opened::AsItWas | Opened::Changed(_)) | Err(_), None) => return Err(corrupt(opening.id)),
        };
        let record = record(connection, wait, now).await?;
        Ok(Loaded { row: Ok(OpenedWait { record, existing }), now })
    }
}

/// Whether as many waits of this principal and agent are active as may be; counts no further.
async fn is_full(connection: &mut SqliteConnection, opening: &Opening) -> Result<bool, StoreError> {
    let active: i64 = query(COUNT_ACTIVE)
        .bind(rows::text(&opening.principal))
        .bind(rows::text(&opening.agent))
        .bind(i64::from(limits::WAITS_ACTIVE))
        .fetch_one(connection)
        .await?
        .try_get(0)?;
    Ok(active >= i64::from(limits::WAITS_ACTIVE))
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
        let Some(wait) = current(connection, self.id, now, touched).await? else {
            return Ok(Loaded { row: None, now });
        };
        let pending = pending(connection, self.id, now).await?;
        let (wait, replayed) = match wait.resume(&self.resuming, pending, now) {
            Ok(Resumed::Replayed) => (wait, true),
            Ok(Resumed::Changed(change)) => {
                let change = WaitChange { change: *change, withdrawal: None };
                write_wait(connection, &change, wait.version, now, touched).await?;
                (change.change.next, false)
            }
            Err(refusal) => {
                return Ok(Loaded { row: Some(Err(Box::new(RefusedWait { refusal, wait }))), now });
            }
        };
        let record = record(connection, wait, now).await?;
        let mut approvals = Vec::with_capacity(record.approvals.len());
        for id in &record.approvals {
            approvals.extend(reads::approval(connection, *id).await?);
        }
        Ok(Loaded { row: Some(Ok(ResumedWait { record, approvals, replayed })), now })
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
        let Some(wait) = current(connection, self.id, now, touched).await? else {
            return Ok(Loaded { row: None, now });
        };
        let wait = match wait.close(&self.caller, self.reason.as_deref(), now) {
            Ok(None) => wait,
            Ok(Some(change)) => {
                write_wait(connection, &change, wait.version, now, touched).await?;
                change.change.next
            }
            Err(refusal) => {
                return Ok(Loaded { row: Some(Err(Box::new(RefusedWait { refusal, wait }))), now });
            }
        };
        let record = record(connection, wait, now).await?;
        Ok(Loaded { row: Some(Ok(record)), now })
    }
}

/// Expires at most `limit` waits whose time is over, longest overdue first, with all of their approvals that still stand in
/// the table as open: how many, and when the first of them was over.
pub(super) async fn expire(
    connection: &mut SqliteConnection,
    limit: u32,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<(u32, Option<Timestamp>), StoreError> {
    let overdue = query(OVERDUE_WAITS).bind(now.micros()).bind(i64::from(limit)).fetch_all(&mut *connection).await?;
    let (mut expired, mut first) = (0, None);
    for row in &overdue {
        let id = rows::wait_id(row)?;
        let wait = by_id(connection, id).await?.ok_or_else(|| corrupt(id))?;
        let change = wait.expired(now).ok_or_else(|| corrupt(id))?;
        write_wait(connection, &change, wait.version, now, touched).await?;
        first = first.or(Some(wait.expire_time));
        expired += 1;
    }
    Ok((expired, first))
}

pub(super) async fn by_id(connection: &mut SqliteConnection, id: WaitId) -> Result<Option<Wait>, StoreError> {
    let row = query(WAIT).bind(id.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(rows::wait).transpose()
}

/// A wait that is written down as expired first, if its time is over.
async fn current(
    connection: &mut SqliteConnection,
    id: WaitId,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<Option<Wait>, StoreError> {
    let Some(wait) = by_id(connection, id).await? else { return Ok(None) };
    let Some(change) = wait.expired(now) else { return Ok(Some(wait)) };
    write_wait(connection, &change, wait.version, now, touched).await?;
    Ok(Some(change.change.next))
}

async fn pending(connection: &mut SqliteConnection, id: WaitId, now: Timestamp) -> Result<u32, StoreError> {
    let count: i64 =
        query(PENDING_OF_WAIT).bind(id.to_string()).bind(now.micros()).fetch_one(connection).await?.try_get(0)?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

async fn record(connection: &mut SqliteConnection, wait: Wait, now: Timestamp) -> Result<WaitRecord, StoreError> {
    let most = limits::WAIT_APPROVALS as usize;
    let rows = query(APPROVALS_OF_WAIT)
        .bind(wait.id.to_string())
        .bind(i64::from(limits::WAIT_APPROVALS) + 1)
        .fetch_all(&mut *connection)
        .await?;
    let mut approvals = rows.iter().take(most).map(rows::approval_id).collect::<Result<Vec<ApprovalId>, _>>()?;
    approvals.reverse();
    let pending = pending(connection, wait.id, now).await?;
    Ok(WaitRecord { wait, approvals, more_approvals: rows.len() > most, pending })
}

pub(super) async fn insert_wait(
    connection: &mut SqliteConnection,
    change: &Change<Wait>,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    rows::bind_wait(query(INSERT_WAIT), &change.next).execute(&mut *connection).await?;
    writes::record(connection, &change.events, now, touched).await
}

/// Saves a changed wait, withdraws its approvals where the change says so, and writes the audit.
async fn write_wait(
    connection: &mut SqliteConnection,
    change: &WaitChange,
    expected: u64,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    let Change { next, events, .. } = &change.change;
    let updated = WaitColumns::of(&next.state)
        .bind(query(UPDATE_WAIT), next)
        .bind(next.id.to_string())
        .bind(rows::integer(expected))
        .execute(&mut *connection)
        .await?;
    if updated.rows_affected() != 1 {
        // It was read in this very transaction.
        return Err(corrupt(next.id));
    }
    writes::record(connection, events, now, touched).await?;
    match &change.withdrawal {
        Some(withdrawal) => withdraw(connection, withdrawal, now, touched).await,
        None => Ok(()),
    }
}

async fn withdraw(
    connection: &mut SqliteConnection,
    withdrawal: &Withdrawal,
    now: Timestamp,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    let open = query(OPEN_OF_WAIT).bind(withdrawal.wait.to_string()).fetch_all(&mut *connection).await?;
    for row in &open {
        let approval: Approval = rows::approval(row)?;
        let Some(change) = withdrawal.of(&approval, now) else { continue };
        if writes::write_approval(connection, &change, approval.version, now, touched).await? == Saved::Conflict {
            return Err(StoreError::Corrupt { table: "approvals", id: approval.id.to_string() });
        }
    }
    Ok(())
}

fn corrupt(id: WaitId) -> StoreError {
    StoreError::Corrupt { table: "waits", id: id.to_string() }
}
