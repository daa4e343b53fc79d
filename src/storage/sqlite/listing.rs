//! Listing executions. Any filter goes with any other, and each page looks at a bounded number of rows: an index for each
//! filter would be paid for by every call that is let through.

use super::reads::{execution_columns, touch};
use crate::domain::execution::{Execution, ExecutionStateName};
use crate::domain::ids::{ApprovalId, ExecutionId};
use crate::domain::time::Timestamp;
use crate::storage::rows::{self, subject_columns};
use crate::storage::time::StoreTime;
use crate::storage::{ExecutionPage, ExecutionQuery, Loaded, StoreError};
use sqlx::{SqliteConnection, query};

/// Executions that one page looks at: some tens of milliseconds.
const LOOKED_AT: i64 = 5_000;

/// The last one that a page looks at.
const LAST: &str = "SELECT start_time, id FROM executions
    WHERE (start_time, id) < ($1, $2) AND start_time >= $3
    ORDER BY start_time DESC, id DESC LIMIT 1 OFFSET $4";
/// Those of them that are wanted. What is overdue stands in the table as started until somebody writes it down.
const PAGE: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions WHERE (start_time, id) < ($1, $2) AND (start_time, id) >= ($3, $4) \
     AND ($5 IS NULL OR principal = $5) AND ($6 IS NULL OR agent = $6) AND ($7 IS NULL OR connector = $7) \
     AND ($8 IS NULL OR CASE WHEN state = 'started' AND report_by <= $9 THEN 'unknown' ELSE state END \
     IN (SELECT value FROM json_each($8))) \
     ORDER BY start_time DESC, id DESC LIMIT $10"
);
/// The one that an approval started. Its id is with the approval, and with the audit for longer.
const OF_APPROVAL: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions WHERE approval_id = $1 AND (id IN (SELECT execution_id FROM approvals WHERE id = $1) \
     OR id IN (SELECT execution_id FROM audit_records WHERE approval_id = $1))"
);

/// Every statement of this file, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 3] = [LAST, PAGE, OF_APPROVAL];

/// See `Store::executions`.
pub(super) async fn executions(
    connection: &mut SqliteConnection,
    wanted: &ExecutionQuery,
    time: &StoreTime,
) -> Result<Loaded<ExecutionPage>, StoreError> {
    // The time is read after what is seen is fixed, so that no row in it is of later.
    touch(connection).await?;
    let now = time.now();
    let row = match wanted.approval {
        Some(approval) => of_approval(connection, wanted, approval, now).await?,
        None => page(connection, wanted, now).await?,
    };
    Ok(Loaded { row, now })
}

async fn of_approval(
    connection: &mut SqliteConnection,
    wanted: &ExecutionQuery,
    approval: ApprovalId,
    now: Timestamp,
) -> Result<ExecutionPage, StoreError> {
    let rows = query(OF_APPROVAL).bind(approval.to_string()).fetch_all(connection).await?;
    let mut found = rows.iter().map(rows::execution).collect::<Result<Vec<Execution>, _>>()?;
    found.retain(|execution| wanted.wants(execution, now));
    Ok(ExecutionPage { executions: found, looked_until: None })
}

async fn page(
    connection: &mut SqliteConnection,
    wanted: &ExecutionQuery,
    now: Timestamp,
) -> Result<ExecutionPage, StoreError> {
    let before = match (wanted.before, wanted.started_before) {
        (Some((time, id)), Some(bound)) if time < bound => (time.micros(), id.to_string()),
        (Some((time, id)), None) => (time.micros(), id.to_string()),
        // No id stands before the empty text.
        (_, Some(bound)) => (bound.micros(), String::new()),
        (None, None) => (i64::MAX, String::new()),
    };
    let from = wanted.started_from.map_or(i64::MIN, Timestamp::micros);
    let last = query(LAST)
        .bind(before.0)
        .bind(before.1.clone())
        .bind(from)
        .bind(LOOKED_AT - 1)
        .fetch_optional(&mut *connection)
        .await?;
    let last: Option<(Timestamp, ExecutionId)> = last.as_ref().map(rows::execution_key).transpose()?;
    let until = last.map_or_else(|| (from, String::new()), |(time, id)| (time.micros(), id.to_string()));
    let states: Vec<&str> = wanted.states.iter().copied().map(ExecutionStateName::as_str).collect();
    let rows = query(PAGE)
        .bind(before.0)
        .bind(before.1)
        .bind(until.0)
        .bind(until.1)
        .bind(rows::maybe_text(wanted.principal.as_ref()))
        .bind(rows::maybe_text(wanted.agent.as_ref()))
        .bind(rows::maybe_text(wanted.connector.as_ref()))
        .bind((!states.is_empty()).then(|| rows::list(&states)))
        .bind(now.micros())
        .bind(i64::from(wanted.limit))
        .fetch_all(connection)
        .await?;
    let executions = rows.iter().map(rows::execution).collect::<Result<Vec<_>, _>>()?;
    Ok(ExecutionPage { executions, looked_until: last })
}
