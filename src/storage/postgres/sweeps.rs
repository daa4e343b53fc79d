//! The statements of upkeep: each step is one, which finds the rows that have waited longest and deals with all of them.
//!
//! Every sidecar sweeps, and none waits for another: what another has locked is passed over. No step locks a row that a
//! call could still use. What somebody changes while the statement runs is left to the next: rows are changed at the place
//! where the statement's snapshot saw them, and what has changed since stands elsewhere.

use super::reads::{store_now, timed};
use super::table::{Fault, Operation};
use super::time::TableTime;
use super::transaction;
use crate::domain::audit::AuditKind;
use crate::domain::ids::ApprovalId;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, Columns as _};
use crate::storage::{StoreError, Sweep, Swept};
use async_trait::async_trait;
use sqlx::{PgConnection, Row as _};
use std::time::{Duration, Instant};

/// How long a slice may take. Nobody waits for it but for the processor and the disk: long beside what a round trip costs,
/// and short beside what people notice.
const ROOM: Duration = Duration::from_millis(6);

/// What a slice came to. After it everybody else has the server for as long.
fn slice(rows: u32, overdue: Duration, elapsed: Duration) -> Swept {
    Swept { rows, overdue, elapsed, room: ROOM, rest: elapsed }
}

/// The store's time, until when rows must have been due, and the rows that have been due longest: at most `$2`, and each for
/// `$3` at least.
macro_rules! find {
    ($due:literal, $from:literal, $lock:literal) => {
        concat!(
            "WITH clock AS MATERIALIZED (SELECT store_now, store_now - $3 AS until FROM (SELECT store_now($1) AS store_now) \
             read), due AS MATERIALIZED (SELECT ctid AS place FROM ",
            $from,
            " AND ",
            $due,
            " <= (SELECT until FROM clock) ORDER BY ",
            $due,
            " LIMIT $2 FOR ",
            $lock,
            " SKIP LOCKED), "
        )
    };
}

/// Those rows.
macro_rules! found {
    () => {
        "ctid = ANY (ARRAY(SELECT place FROM due))"
    };
}

/// Records something about each row that was changed, the longest overdue first. The ids are UUIDs of version 7.
macro_rules! record_each {
    ($kind:literal, $decision:literal, $approval:literal, $execution:literal, $wait:literal) => {
        concat!(
            ", noted AS (INSERT INTO audit_records (kind, principal, agent, conversation, connector, account, action, \
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
            "', labels, substr(millis, 1, 8) || '-' || substr(millis, 9) || '-7' \
             || substr(gen_random_uuid()::TEXT, 16), store_now \
             FROM (SELECT store_now, lpad(to_hex(store_now / 1000), 12, '0') AS millis FROM clock) clock \
             CROSS JOIN changed ORDER BY due, changed.id)"
        )
    };
}

/// What the changed rows come to: how many, since when the first was due, and of those that are told, id and version.
macro_rules! told {
    ($ids:literal, $versions:literal) => {
        concat!(
            " SELECT store_now, until, number, first, ids, versions FROM clock CROSS JOIN (SELECT count(*) AS number, \
             min(due) AS first, ",
            $ids,
            " AS ids, ",
            $versions,
            " AS versions FROM changed) come_to"
        )
    };
    () => {
        told!("NULL::TEXT[]", "NULL::BIGINT[]")
    };
}

const EXPIRE_APPROVALS: &str = concat!(
    find!("open_until", "approvals WHERE open_until IS NOT NULL", "NO KEY UPDATE"),
    "changed AS (UPDATE approvals SET state = 'expired', close_time = open_until, open_until = NULL, \
     version = version + 1, update_time = (SELECT store_now FROM clock) WHERE ",
    found!(),
    " RETURNING id, version, close_time AS due, principal, agent, conversation, connector, account, action, wait_id, \
     fingerprint, labels), \
     audience AS (UPDATE approval_audience SET state = 'expired', open_until = NULL \
     WHERE approval_id = ANY (ARRAY(SELECT id FROM changed)))",
    record_each!("approval.expired", "EXPIRED", "changed.id", "NULL", "wait_id"),
    told!("array_agg(id ORDER BY due)", "array_agg(version ORDER BY due)")
);

const TIME_OUT_EXECUTIONS: &str = concat!(
    find!("report_by", "executions WHERE state = 'started'", "NO KEY UPDATE"),
    "changed AS (UPDATE executions SET state = 'unknown', version = version + 1 WHERE ",
    found!(),
    " RETURNING id, report_by AS due, principal, agent, conversation, connector, account, action, approval_id, \
     fingerprint, labels)",
    record_each!("execution.timed_out", "UNKNOWN", "approval_id", "changed.id", "NULL"),
    told!()
);

/// The empty text is no preview.
const ERASE_APPROVALS: &str = concat!(
    find!(
        "coalesce(consume_time, close_time, decide_time)",
        "approvals WHERE open_until IS NULL AND preview_json <> ''",
        "NO KEY UPDATE"
    ),
    "changed AS (UPDATE approvals SET preview_json = '', omissions = '[]', agent_note = NULL WHERE ",
    found!(),
    " RETURNING id, coalesce(consume_time, close_time, decide_time) AS due), \
     arguments AS (DELETE FROM approval_arguments WHERE approval_id = ANY (ARRAY(SELECT id FROM changed)))",
    told!()
);

/// What an agent still waits for, and what it may still ask for again, is kept. The foreign keys take what belongs to an
/// approval along.
const DELETE_APPROVALS: &str = concat!(
    find!(
        "coalesce(consume_time, close_time, decide_time)",
        "approvals WHERE open_until IS NULL AND preview_json = '' \
         AND coalesce((SELECT waits.state FROM waits WHERE waits.id = approvals.wait_id), 'closed') = 'closed' \
         AND (SELECT executions.state FROM executions WHERE executions.id = approvals.execution_id) \
         IS DISTINCT FROM 'started'",
        "UPDATE"
    ),
    "changed AS (DELETE FROM approvals WHERE ",
    found!(),
    " RETURNING coalesce(consume_time, close_time, decide_time) AS due)",
    told!()
);

const DELETE_EXECUTIONS: &str = concat!(
    find!(
        "coalesce(report_time, report_by)",
        "executions WHERE state <> 'started' AND NOT EXISTS (SELECT 1 FROM approvals \
         WHERE approvals.retry_of = executions.id AND approvals.open_until IS NOT NULL OFFSET 0)",
        "UPDATE"
    ),
    "changed AS (DELETE FROM executions WHERE ",
    found!(),
    " RETURNING coalesce(report_time, report_by) AS due)",
    told!()
);

const DELETE_WAITS: &str = concat!(
    find!("close_time", "waits WHERE state = 'closed'", "UPDATE"),
    "changed AS (DELETE FROM waits WHERE ",
    found!(),
    " RETURNING close_time AS due)",
    told!()
);

/// Records are in the order of their times, but for those that were written at once: the oldest are looked at, and twice as
/// many as may be deleted, so that another sidecar finds some as well. Only those whose absence a checkpoint accounts for.
const DELETE_AUDIT_RECORDS: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT store_now, store_now - $3 AS until FROM (SELECT store_now($1) AS store_now) read), \
     due AS MATERIALIZED (SELECT ctid AS place FROM audit_records WHERE position <= \
     (SELECT max(position) FROM (SELECT position FROM audit_records ORDER BY position LIMIT 2 * $2::BIGINT) oldest) \
     AND time <= (SELECT until FROM clock) AND EXISTS (SELECT 1 FROM audit_seals WHERE record_position = position \
     AND leaf < (SELECT deleted_below FROM audit_log WHERE audit_log.id = 1)) \
     ORDER BY position LIMIT $2 FOR UPDATE SKIP LOCKED), \
     changed AS (DELETE FROM audit_records WHERE ",
    found!(),
    " RETURNING time AS due)",
    told!()
);

/// Every statement of this file, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 7] = [
    EXPIRE_APPROVALS,
    TIME_OUT_EXECUTIONS,
    ERASE_APPROVALS,
    DELETE_APPROVALS,
    DELETE_EXECUTIONS,
    DELETE_WAITS,
    DELETE_AUDIT_RECORDS,
];

/// See `Store::sweep`.
pub(super) struct SweepStep {
    pub(super) step: Sweep,
    pub(super) limit: u32,
}

#[async_trait]
impl Operation for SweepStep {
    type Answer = Swept;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let started = Instant::now();
        let (statement, kept, record) = match self.step {
            Sweep::ExpireWaits => {
                // Of a wait the domain says what becomes of its approvals, so each is dealt with by itself.
                let (rows, first) = transaction::expire_waits(connection, time, touched, self.limit).await?;
                let overdue = first.map_or(Duration::ZERO, |first| time.estimated().since(first));
                return Ok(slice(rows, overdue, started.elapsed()));
            }
            Sweep::ExpireApprovals => (EXPIRE_APPROVALS, Duration::ZERO, Some(AuditKind::ApprovalExpired)),
            Sweep::TimeOutExecutions => (TIME_OUT_EXECUTIONS, Duration::ZERO, Some(AuditKind::ExecutionTimedOut)),
            Sweep::EraseApprovals { kept } => (ERASE_APPROVALS, kept, None),
            Sweep::DeleteApprovals { kept } => (DELETE_APPROVALS, kept, None),
            Sweep::DeleteExecutions { kept } => (DELETE_EXECUTIONS, kept, None),
            Sweep::DeleteWaits { kept } => (DELETE_WAITS, kept, None),
            Sweep::DeleteAuditRecords { kept } => (DELETE_AUDIT_RECORDS, kept, None),
        };
        let swept =
            timed(statement, time).bind(i64::from(self.limit)).bind(rows::micros(kept)).fetch_all(connection).await?;
        store_now(&swept, time)?;
        let told = || StoreError::Inconsistent { cause: "a sweep did not tell what it did".to_owned() };
        let row = swept.first().ok_or_else(told)?;
        let number = row.integer("number").flatten().ok_or_else(told)?;
        let rows = u32::try_from(number).map_err(|_| told())?;
        if let Some(kind) = record {
            touched.recorded(kind, u64::from(rows));
        }
        let ids: Option<Vec<String>> = row.try_get("ids")?;
        let versions: Option<Vec<i64>> = row.try_get("versions")?;
        for (id, version) in ids.unwrap_or_default().iter().zip(versions.unwrap_or_default()) {
            let corrupt = || StoreError::Corrupt { table: "approvals", id: id.clone() };
            let version = u64::try_from(version).map_err(|_| corrupt())?;
            touched.approval(ApprovalId::parse(id).ok_or_else(corrupt)?, version);
        }
        let overdue = match (row.integer("until").flatten(), row.integer("first").flatten()) {
            (Some(until), Some(first)) => Timestamp::from_micros(until).since(Timestamp::from_micros(first)),
            _ => Duration::ZERO,
        };
        Ok(slice(rows, overdue, started.elapsed()))
    }
}
