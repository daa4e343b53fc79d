//! The statements of upkeep: each step finds the rows that have waited longest, and deals with all of them in a few
//! statements over the list of them.

use super::waits;
use super::writer::{Counters, Write};
use super::writes::record_id;
use crate::domain::audit::AuditKind;
use crate::domain::ids::ApprovalId;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::{StoreError, Sweep, Swept};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use sqlx::{Row as _, SqliteConnection, query};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the writer works on one slice where nobody else writes: about as long as a commit takes, for who comes in between.
const SHORT_SLICE: Duration = Duration::from_millis(1);
/// How long at most, where others write so much that it is no more than half of what they wait for anyway.
const LONG_SLICE: Duration = Duration::from_millis(4);

// `OR FAIL` in what changes many rows: what fails undoes the whole transaction, so that SQLite need not keep what would undo
// the statement alone.

/// Finds rows: how many, how long the first has been due, the list of them for the statements that follow, and of those
/// that are told, what they are about to be: id and version.
macro_rules! find {
    ($due:literal, $from:literal) => {
        find!($due, $from, "NULL", "min(told)")
    };
    (told $due:literal, $from:literal) => {
        find!($due, $from, "json_array(id, version + 1)", "json_group_array(json(told))")
    };
    ($due:literal, $from:literal, $told:literal, $all_told:literal) => {
        concat!(
            "SELECT count(*), min(due), json_group_array(row), ",
            $all_told,
            " FROM (SELECT rowid AS row, ",
            $due,
            " AS due, ",
            $told,
            " AS told FROM ",
            $from,
            " ORDER BY ",
            $due,
            " LIMIT $2)"
        )
    };
}

/// The rows of that list, by the place at which SQLite keeps them.
macro_rules! listed {
    () => {
        "rowid IN (SELECT value FROM json_each($1))"
    };
}

/// Records something about each row of a list of places and ids of records, in its order.
macro_rules! record_each {
    ($kind:literal, $decision:literal, $approval:literal, $execution:literal, $wait:literal, $table:literal) => {
        concat!(
            "INSERT OR FAIL INTO audit_records (kind, principal, agent, conversation, connector, account, action, \
             approval_id, execution_id, wait_id, fingerprint, decision, labels, id, time) SELECT '",
            $kind,
            "', principal, agent, conversation, connector, account, action, ",
            $approval,
            ", ",
            $execution,
            ", ",
            $wait,
            ", fingerprint, '",
            $decision,
            "', labels, json_each.value ->> 1, $2 FROM json_each($1) CROSS JOIN ",
            $table,
            " swept ON swept.rowid = json_each.value ->> 0"
        )
    };
}

const OVERDUE_APPROVALS: &str =
    find!(told "open_until", "approvals INDEXED BY approvals_by_deadline WHERE open_until <= $1");
const EXPIRE_APPROVALS: &str = concat!(
    "UPDATE OR FAIL approvals SET state = 'expired', close_time = open_until, open_until = NULL, version = version + 1 WHERE ",
    listed!()
);
const EXPIRE_AUDIENCE: &str = concat!(
    "UPDATE OR FAIL approval_audience SET state = 'expired', open_until = NULL \
     WHERE approval_id IN (SELECT id FROM approvals WHERE ",
    listed!(),
    ")"
);
const RECORD_EXPIRED: &str = record_each!("approval.expired", "EXPIRED", "swept.id", "NULL", "wait_id", "approvals");

const OVERDUE_EXECUTIONS: &str =
    find!("report_by", "executions INDEXED BY executions_by_deadline WHERE state = 'started' AND report_by <= $1");
const TIME_OUT_EXECUTIONS: &str =
    concat!("UPDATE OR FAIL executions SET state = 'unknown', version = version + 1 WHERE ", listed!());
const RECORD_TIMED_OUT: &str =
    record_each!("execution.timed_out", "UNKNOWN", "approval_id", "swept.id", "NULL", "executions");

const ERASABLE_APPROVALS: &str = find!(
    "coalesce(consume_time, close_time, decide_time)",
    "approvals INDEXED BY approvals_to_erase WHERE open_until IS NULL AND preview_json <> '' \
     AND coalesce(consume_time, close_time, decide_time) <= $1"
);
/// The empty text is no preview.
const ERASE_APPROVALS: &str =
    concat!("UPDATE OR FAIL approvals SET preview_json = '', omissions = '[]', agent_note = NULL WHERE ", listed!());
const ERASE_ARGUMENTS: &str =
    concat!("DELETE FROM approval_arguments WHERE approval_id IN (SELECT id FROM approvals WHERE ", listed!(), ")");

/// What an agent still waits for, and what it may still ask for again, is kept.
const DELETABLE_APPROVALS: &str = find!(
    "coalesce(consume_time, close_time, decide_time)",
    "approvals INDEXED BY approvals_to_delete WHERE open_until IS NULL AND preview_json = '' \
     AND coalesce(consume_time, close_time, decide_time) <= $1 \
     AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.id = approvals.wait_id AND waits.state <> 'closed') \
     AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = approvals.execution_id \
     AND executions.state = 'started')"
);
/// The foreign keys take what belongs to it along.
const DELETE_APPROVALS: &str = concat!("DELETE FROM approvals WHERE ", listed!());

const DELETABLE_EXECUTIONS: &str = find!(
    "coalesce(report_time, report_by)",
    "executions INDEXED BY executions_to_delete WHERE state <> 'started' AND coalesce(report_time, report_by) <= $1 \
     AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.retry_of = executions.id AND open_until IS NOT NULL)"
);
const DELETE_EXECUTIONS: &str = concat!("DELETE FROM executions WHERE ", listed!());

const DELETABLE_WAITS: &str =
    find!("close_time", "waits INDEXED BY waits_to_delete WHERE state = 'closed' AND close_time <= $1");
const DELETE_WAITS: &str = concat!("DELETE FROM waits WHERE ", listed!());

/// Records are in the order of their times: the oldest are looked at, and no others. Only those whose absence a checkpoint
/// accounts for.
const DELETABLE_AUDIT_RECORDS: &str = "SELECT count(*), min(time), json_group_array(position), NULL FROM (
    SELECT position, time FROM audit_records ORDER BY position LIMIT $2) WHERE time <= $1
    AND EXISTS (SELECT 1 FROM audit_seals WHERE record_position = position
        AND leaf < (SELECT deleted_below FROM audit_log WHERE id = 1))";
const DELETE_AUDIT_RECORDS: &str = concat!("DELETE FROM audit_records WHERE ", listed!());

/// Every statement of this file, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 17] = [
    OVERDUE_APPROVALS,
    EXPIRE_APPROVALS,
    EXPIRE_AUDIENCE,
    RECORD_EXPIRED,
    OVERDUE_EXECUTIONS,
    TIME_OUT_EXECUTIONS,
    RECORD_TIMED_OUT,
    ERASABLE_APPROVALS,
    ERASE_APPROVALS,
    ERASE_ARGUMENTS,
    DELETABLE_APPROVALS,
    DELETE_APPROVALS,
    DELETABLE_EXECUTIONS,
    DELETE_EXECUTIONS,
    DELETABLE_WAITS,
    DELETE_WAITS,
    DELETABLE_AUDIT_RECORDS,
];

/// See `Store::sweep`.
pub(super) struct SweepStep {
    pub(super) step: Sweep,
    pub(super) limit: u32,
    pub(super) counters: Arc<Counters>,
}

/// What a step runs over the rows that it found.
struct Statements {
    find: &'static str,
    /// How long a row must have been due.
    kept: Duration,
    change: &'static [&'static str],
    record: Option<(&'static str, AuditKind)>,
}

impl Statements {
    /// None where a step is more than that.
    fn of(step: Sweep) -> Option<Self> {
        let due = |find, change, record| Self { find, kept: Duration::ZERO, change, record: Some(record) };
        let old = |find, kept, change| Self { find, kept, change, record: None };
        Some(match step {
            Sweep::ExpireWaits => return None,
            Sweep::ExpireApprovals => due(
                OVERDUE_APPROVALS,
                &[EXPIRE_APPROVALS, EXPIRE_AUDIENCE],
                (RECORD_EXPIRED, AuditKind::ApprovalExpired),
            ),
            Sweep::TimeOutExecutions => {
                due(OVERDUE_EXECUTIONS, &[TIME_OUT_EXECUTIONS], (RECORD_TIMED_OUT, AuditKind::ExecutionTimedOut))
            }
            Sweep::EraseApprovals { kept } => old(ERASABLE_APPROVALS, kept, &[ERASE_APPROVALS, ERASE_ARGUMENTS]),
            Sweep::DeleteApprovals { kept } => old(DELETABLE_APPROVALS, kept, &[DELETE_APPROVALS]),
            Sweep::DeleteExecutions { kept } => old(DELETABLE_EXECUTIONS, kept, &[DELETE_EXECUTIONS]),
            Sweep::DeleteWaits { kept } => old(DELETABLE_WAITS, kept, &[DELETE_WAITS]),
            Sweep::DeleteAuditRecords { kept } => old(DELETABLE_AUDIT_RECORDS, kept, &[DELETE_AUDIT_RECORDS]),
        })
    }
}

#[async_trait]
impl Write for SweepStep {
    type Answer = Swept;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Swept, StoreError> {
        let started = Instant::now();
        let Some(statements) = Statements::of(self.step) else {
            // Of a wait the domain says what becomes of its approvals, so each is dealt with by itself.
            let (rows, first) = waits::expire(connection, self.limit, now, touched).await?;
            let overdue = first.map_or(Duration::ZERO, |first| now.since(first));
            return Ok(self.swept(rows, overdue, started.elapsed()));
        };
        let Statements { find, kept, change, record } = statements;
        let until = now.minus(kept);
        let found = query(find).bind(until.micros()).bind(i64::from(self.limit)).fetch_one(&mut *connection).await?;
        let (rows, first): (u32, Option<i64>) = (found.try_get(0)?, found.try_get(1)?);
        if rows > 0 {
            let list: String = found.try_get(2)?;
            for statement in change {
                query(*statement).bind(list.clone()).execute(&mut *connection).await?;
            }
            if let Some((statement, kind)) = record {
                let records = with_record_ids(&list, now)?;
                let written = query(statement).bind(records).bind(now.micros()).execute(&mut *connection).await?;
                touched.recorded(kind, written.rows_affected());
            }
            for (id, version) in listed::<(String, u64)>(found.try_get::<Option<&str>, _>(3)?.unwrap_or("[]"))? {
                let corrupt = || StoreError::Corrupt { table: "approvals", id: id.clone() };
                touched.approval(ApprovalId::parse(&id).ok_or_else(corrupt)?, version);
            }
        }
        let overdue = first.map_or(Duration::ZERO, |first| until.since(Timestamp::from_micros(first)));
        Ok(self.swept(rows, overdue, started.elapsed()))
    }
}

impl SweepStep {
    /// What a slice came to.
    fn swept(&self, rows: u32, overdue: Duration, elapsed: Duration) -> Swept {
        Swept { rows, overdue, elapsed, room: room(&self.counters), rest: slice_rest(elapsed) }
    }
}

/// How long a slice of background work may take. The next one may take half as long as the writer has worked for others in
/// the same transaction.
pub(super) fn room(counters: &Counters) -> Duration {
    (counters.others() / 2).clamp(SHORT_SLICE, LONG_SLICE)
}

/// How long the writer is everybody else's after a slice that took so long: of a processor a fifth is left to them.
pub(super) fn slice_rest(elapsed: Duration) -> Duration {
    elapsed / 4
}

/// Each row of a list with the id of a record about it.
fn with_record_ids(list: &str, now: Timestamp) -> Result<String, StoreError> {
    let places: Vec<i64> = listed(list)?;
    let rows: Vec<(i64, String)> = places.into_iter().map(|place| (place, record_id(now).to_string())).collect();
    Ok(crate::storage::rows::list(&rows))
}

/// What a list of a statement of ours holds.
fn listed<T: DeserializeOwned>(list: &str) -> Result<Vec<T>, StoreError> {
    serde_json::from_str(list).map_err(|error| StoreError::Inconsistent { cause: error.to_string() })
}
