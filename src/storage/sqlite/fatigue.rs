//! What limits how much people are asked, beside what is open: how much they were asked of late, what they have just denied,
//! and whether anybody looks.

use super::reads::approval_columns;
use super::writer::Write;
use crate::domain::approval::Approval;
use crate::domain::invocation::Subject;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::StoreError;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, subject_columns};
use async_trait::async_trait;
use sqlx::{Row as _, SqliteConnection, query};

/// Goes through what is open of the principal, which has a limit of its own: no index by the action costs each question.
const OPEN_OF_ACTION: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approvals INDEXED BY approvals_open_by_principal
    WHERE requested_by = $1 AND principal = $2 AND open_until > $3 AND connector = $4 AND action = $5 LIMIT $6)";
/// The record of a question is written with it, and never changed: its index costs nothing when the approval is decided or
/// used.
const ASKED_SINCE: &str = "SELECT time FROM audit_records INDEXED BY audit_records_asked
    WHERE kind = 'approval.requested' AND principal = $1 AND time > $2 ORDER BY time DESC LIMIT 1 OFFSET $3";
/// The same question by whoever asks it, denied.
const DENIED_SINCE: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals INDEXED BY approvals_denied WHERE state = 'denied' AND principal = $1 AND fingerprint = $2 \
     AND decide_time > $3 AND agent = $4 AND conversation IS $5 ORDER BY decide_time DESC LIMIT 1"
);
const NOTE_APPROVER: &str = "INSERT INTO approver_presence (id, seen_time) VALUES (1, ?)
    ON CONFLICT (id) DO UPDATE SET seen_time = max(seen_time, excluded.seen_time)";

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 3] = [OPEN_OF_ACTION, ASKED_SINCE, DENIED_SINCE];

/// See `Store::note_approver`.
pub(super) struct NoteApprover;

#[async_trait]
impl Write for NoteApprover {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, now: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        query(NOTE_APPROVER).bind(now.micros()).execute(connection).await?;
        Ok(())
    }
}

/// See `Rows::open_of_action`.
pub(super) async fn open_of_action(
    connection: &mut SqliteConnection,
    caller: &Identifier,
    subject: &Subject,
    most: u32,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let open: i64 = query(OPEN_OF_ACTION)
        .bind(rows::text(caller))
        .bind(rows::text(&subject.principal))
        .bind(now.micros())
        .bind(rows::text(&subject.connector))
        .bind(rows::text(&subject.action))
        .bind(i64::from(most))
        .fetch_one(connection)
        .await?
        .try_get(0)?;
    Ok(u32::try_from(open).unwrap_or(u32::MAX))
}

/// See `Rows::asked_since`.
pub(super) async fn asked_since(
    connection: &mut SqliteConnection,
    principal: &Identifier,
    since: Timestamp,
    most: u32,
) -> Result<Option<Timestamp>, StoreError> {
    let row = query(ASKED_SINCE)
        .bind(rows::text(principal))
        .bind(since.micros())
        .bind(i64::from(most).saturating_sub(1))
        .fetch_optional(connection)
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.map(Timestamp::from_micros))
}

/// See `Rows::denied_since`.
pub(super) async fn denied_since(
    connection: &mut SqliteConnection,
    subject: &Subject,
    since: Timestamp,
) -> Result<Option<Approval>, StoreError> {
    let row = query(DENIED_SINCE)
        .bind(rows::text(&subject.principal))
        .bind(subject.fingerprint.to_string())
        .bind(since.micros())
        .bind(rows::text(&subject.agent))
        .bind(rows::maybe_text(subject.conversation.as_ref()))
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rows::approval).transpose()
}
