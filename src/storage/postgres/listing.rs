//! The statements that list and count. As those of `reads`, each is one statement, and looks at a bounded number of rows.

use super::columns::{approval_columns, approval_names, clock, question_columns, shared_columns};
use super::reads::{present, store_now, timed};
use super::table::{Fault, Operation};
use super::time::TableTime;
use crate::domain::approval::{Approval, StateName};
use crate::domain::audit::AuditRecord;
use crate::domain::execution::ExecutionStateName;
use crate::domain::ids::ExecutionId;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, Columns as _, event_columns, execution_columns, subject_columns};
use crate::storage::{ApprovalQuery, AuditQuery, Backlog, ExecutionPage, ExecutionQuery, Loaded, StoreError};
use async_trait::async_trait;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use std::collections::BTreeSet;

/// The store's time for a statement that asks it in several places.
macro_rules! with_clock {
    () => {
        "WITH clock AS MATERIALIZED (SELECT store_now($1) AS store_now)"
    };
}

/// Entries of one audience that stand in the table as one state and have their deadlines within these two: so many, by
/// their deadlines. What are fewer is looked at whole and sorted; of more, the newest are sought among all others.
macro_rules! due {
    ($columns:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM approval_audience seen WHERE ",
            $condition,
            "seen.kind = wanted.kind AND seen.name = wanted.name AND seen.state = wanted.state \
             AND seen.open_until BETWEEN wanted.due_from AND wanted.due_to ORDER BY seen.open_until LIMIT 1000"
        )
    };
}

/// One page of what each of `$2` and `$3`, people and groups, sees that stands in the table as the state of `$4` and has,
/// as `$5` says, its deadline still to come, or behind it, or either or none; of all these the newest; then the approvals
/// themselves, which are sought one by one, whatever is believed of their number.
const APPROVALS: &str = concat!(
    with_clock!(),
    ", wanted AS MATERIALIZED (SELECT kind, name, state, deadline, \
     CASE deadline WHEN 'to come' THEN store_now + 1 ELSE -9223372036854775808 END AS due_from, \
     CASE deadline WHEN 'to come' THEN 9223372036854775807 ELSE store_now END AS due_to \
     FROM clock CROSS JOIN unnest($2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[]) listed (kind, name, state, deadline)) \
     SELECT store_now, ",
    approval_names!(),
    " FROM clock LEFT JOIN (SELECT ",
    approval_names!(),
    " FROM (SELECT DISTINCT asked, approval FROM (\
     SELECT page.asked, page.approval FROM wanted CROSS JOIN LATERAL (\
     SELECT seen.create_time AS asked, seen.approval_id AS approval FROM approval_audience seen \
     WHERE seen.kind = wanted.kind AND seen.name = wanted.name AND seen.state = wanted.state \
     AND (seen.create_time, seen.approval_id) < ($6, $7) \
     ORDER BY seen.create_time DESC, seen.approval_id DESC LIMIT $8) page WHERE wanted.deadline = 'any' \
     UNION ALL \
     SELECT page.asked, page.approval FROM wanted CROSS JOIN LATERAL (SELECT count(*) AS number FROM (",
    due!("1", ""),
    ") due) few CROSS JOIN LATERAL (\
     (SELECT due.create_time AS asked, due.approval_id AS approval FROM (",
    due!("seen.create_time, seen.approval_id", "few.number < 1000 AND "),
    ") due WHERE (due.create_time, due.approval_id) < ($6, $7) \
     ORDER BY due.create_time DESC, due.approval_id DESC LIMIT $8) \
     UNION ALL \
     (SELECT seen.create_time, seen.approval_id FROM (\
     SELECT seen.create_time, seen.approval_id, seen.open_until FROM approval_audience seen WHERE few.number >= 1000 \
     AND seen.kind = wanted.kind AND seen.name = wanted.name AND seen.state = wanted.state \
     AND (seen.create_time, seen.approval_id) < ($6, $7) \
     ORDER BY seen.create_time DESC, seen.approval_id DESC OFFSET 0) seen \
     WHERE seen.open_until BETWEEN wanted.due_from AND wanted.due_to LIMIT $8)) page WHERE wanted.deadline <> 'any'\
     ) pages ORDER BY asked DESC, approval DESC LIMIT $8) page CROSS JOIN LATERAL (SELECT ",
    approval_columns!(),
    " FROM approvals WHERE id = page.approval OFFSET 0) approvals) listed ON true ORDER BY create_time DESC, id DESC"
);

/// The executions that one page looks at, newest first: 5,000 of them, some tens of milliseconds. The statement says so
/// itself, so that it is planned for it.
macro_rules! looked_at {
    () => {
        " FROM executions WHERE (start_time, id) < ($2, $3) AND start_time >= $4 ORDER BY start_time DESC, id DESC"
    };
}

/// Those of the executions looked at that are wanted, with the last one looked at. What is overdue stands in the table as
/// started until somebody writes it down.
const EXECUTIONS: &str = concat!(
    with_clock!(),
    ", last AS MATERIALIZED (SELECT start_time, id",
    looked_at!(),
    " OFFSET 4999 LIMIT 1) \
     SELECT store_now, (SELECT last.start_time FROM last) AS last_time, (SELECT last.id FROM last) AS last_id, ",
    execution_columns!(),
    " FROM clock LEFT JOIN LATERAL (SELECT ",
    execution_columns!(),
    " FROM (SELECT ",
    execution_columns!(),
    looked_at!(),
    " LIMIT 5000) looked_at WHERE ($5::TEXT IS NULL OR principal = $5) AND ($6::TEXT IS NULL OR agent = $6) \
     AND ($7::TEXT IS NULL OR connector = $7) AND ($8::TEXT[] IS NULL \
     OR CASE WHEN state = 'started' AND report_by <= store_now THEN 'unknown' ELSE state END = ANY ($8)) \
     ORDER BY start_time DESC, id DESC LIMIT $9) page ON true ORDER BY start_time DESC, id DESC"
);
/// The one that an approval started. Its id is with the approval, and with the audit for longer.
const EXECUTION_OF_APPROVAL: &str = concat!(
    "SELECT store_now, ",
    execution_columns!(),
    " FROM ",
    clock!(),
    " LEFT JOIN executions ON approval_id = $2 AND id = ANY (ARRAY(\
     SELECT asked.execution_id FROM approvals asked WHERE asked.id = $2 AND asked.execution_id IS NOT NULL UNION \
     SELECT noted.execution_id FROM audit_records noted WHERE noted.approval_id = $2 AND noted.execution_id IS NOT NULL))"
);

macro_rules! select_audit {
    ($condition:literal) => {
        concat!(
            "SELECT store_now, position, id, time, ",
            event_columns!(),
            " FROM ",
            clock!(),
            " LEFT JOIN (SELECT position, id, time, ",
            event_columns!(),
            " FROM audit_records WHERE ",
            $condition,
            " AND position < $6 ORDER BY position DESC LIMIT $7) noted ON true ORDER BY position DESC"
        )
    };
}

const AUDIT: &str = select_audit!("$2::TEXT IS NULL AND $3::TEXT IS NULL AND $4::TEXT IS NULL AND $5::TEXT IS NULL");
const AUDIT_OF_APPROVAL: &str = select_audit!(
    "approval_id = $2 AND ($3::TEXT IS NULL OR execution_id = $3) AND ($4::TEXT IS NULL OR wait_id = $4) \
     AND ($5::TEXT IS NULL OR principal = $5)"
);
const AUDIT_OF_EXECUTION: &str = select_audit!(
    "($2::TEXT IS NULL OR approval_id = $2) AND execution_id = $3 AND ($4::TEXT IS NULL OR wait_id = $4) \
     AND ($5::TEXT IS NULL OR principal = $5)"
);
const AUDIT_OF_WAIT: &str = select_audit!(
    "($2::TEXT IS NULL OR approval_id = $2) AND ($3::TEXT IS NULL OR execution_id = $3) AND wait_id = $4 \
     AND ($5::TEXT IS NULL OR principal = $5)"
);
const AUDIT_OF_PRINCIPAL: &str =
    select_audit!("$2::TEXT IS NULL AND $3::TEXT IS NULL AND $4::TEXT IS NULL AND principal = $5");

/// The oldest of what stands in the table as pending; overdue ones are left out after they are counted off.
const BACKLOG: &str = concat!(
    "SELECT store_now, number, oldest, (SELECT seen_time FROM approver_presence WHERE id = 1) AS approver_seen FROM ",
    clock!(),
    " CROSS JOIN LATERAL (SELECT count(*) AS number, min(create_time) AS oldest FROM \
     (SELECT create_time, open_until FROM approvals WHERE state = 'pending' ORDER BY create_time LIMIT $2) asked \
     WHERE open_until > store_now) backlog"
);

/// Every statement of this file, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 9] = [
    APPROVALS,
    EXECUTIONS,
    EXECUTION_OF_APPROVAL,
    AUDIT,
    AUDIT_OF_APPROVAL,
    AUDIT_OF_EXECUTION,
    AUDIT_OF_WAIT,
    AUDIT_OF_PRINCIPAL,
    BACKLOG,
];

/// See `Store::approvals`.
pub(super) struct ListApprovals<'a>(pub(super) &'a ApprovalQuery);

#[async_trait]
impl Operation for ListApprovals<'_> {
    type Answer = Loaded<Vec<Approval>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let wanted = Wanted::of(self.0);
        let (before_time, before_id) = match self.0.before {
            Some((time, id)) => (time.micros(), id.to_string()),
            None => (i64::MAX, String::new()),
        };
        let found = timed(APPROVALS, time)
            .bind(wanted.kinds)
            .bind(wanted.names)
            .bind(wanted.states)
            .bind(wanted.deadlines)
            .bind(before_time)
            .bind(before_id)
            .bind(i64::from(self.0.limit))
            .fetch_all(connection)
            .await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").map(rows::approval).collect::<Result<_, _>>()?;
        Ok(Loaded { row, now })
    }
}

/// Which parts of the audience's index a list is made of.
#[derive(Debug, Default)]
struct Wanted {
    kinds: Vec<&'static str>,
    names: Vec<String>,
    states: Vec<&'static str>,
    deadlines: Vec<&'static str>,
}

impl Wanted {
    fn of(query: &ApprovalQuery) -> Self {
        let mut wanted = Self::default();
        let groups: BTreeSet<&Identifier> = query.groups.iter().collect();
        let audience =
            std::iter::once(("person", &query.person)).chain(groups.into_iter().map(|group| ("group", group)));
        for (kind, name) in audience {
            for state in StateName::ALL {
                let Some(deadline) = wanted_deadline(query, state) else { continue };
                wanted.kinds.push(kind);
                wanted.names.push(rows::text(name));
                wanted.states.push(state.as_str());
                wanted.deadlines.push(deadline);
            }
        }
        wanted
    }
}

/// Which deadlines are wanted of what stands in the table as `state`; none if nothing is. What is overdue stands in the
/// table as open until somebody writes it down.
fn wanted_deadline(query: &ApprovalQuery, state: StateName) -> Option<&'static str> {
    let wants = |state: StateName| query.states.is_empty() || query.states.contains(&state);
    let is_open = matches!(state, StateName::Pending | StateName::Approved);
    match (wants(state), is_open && wants(StateName::Expired)) {
        (false, false) => None,
        (true, false) if is_open => Some("to come"),
        (false, true) => Some("past"),
        (true, _) => Some("any"),
    }
}

/// See `Store::executions`.
pub(super) struct ListExecutions<'a>(pub(super) &'a ExecutionQuery);

#[async_trait]
impl Operation for ListExecutions<'_> {
    type Answer = Loaded<ExecutionPage>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let wanted = self.0;
        if let Some(approval) = wanted.approval {
            let found = timed(EXECUTION_OF_APPROVAL, time).bind(approval.to_string()).fetch_all(connection).await?;
            let now = store_now(&found, time)?;
            let mut executions = present(&found, "id").map(rows::execution).collect::<Result<Vec<_>, _>>()?;
            executions.retain(|execution| wanted.wants(execution, now));
            return Ok(Loaded { row: ExecutionPage { executions, looked_until: None }, now });
        }
        let before = match (wanted.before, wanted.started_before) {
            (Some((time, id)), Some(bound)) if time < bound => (time.micros(), id.to_string()),
            (Some((time, id)), None) => (time.micros(), id.to_string()),
            // No id stands before the empty text.
            (_, Some(bound)) => (bound.micros(), String::new()),
            (None, None) => (i64::MAX, String::new()),
        };
        let states: Vec<&str> = wanted.states.iter().copied().map(ExecutionStateName::as_str).collect();
        let found = timed(EXECUTIONS, time)
            .bind(before.0)
            .bind(before.1)
            .bind(wanted.started_from.map_or(i64::MIN, Timestamp::micros))
            .bind(rows::maybe_text(wanted.principal.as_ref()))
            .bind(rows::maybe_text(wanted.agent.as_ref()))
            .bind(rows::maybe_text(wanted.connector.as_ref()))
            .bind((!states.is_empty()).then_some(states))
            .bind(i64::from(wanted.limit))
            .fetch_all(connection)
            .await?;
        let now = store_now(&found, time)?;
        let looked_until = found.first().map(last_looked_at).transpose()?.flatten();
        let executions = present(&found, "id").map(rows::execution).collect::<Result<_, _>>()?;
        Ok(Loaded { row: ExecutionPage { executions, looked_until }, now })
    }
}

fn last_looked_at(row: &PgRow) -> Result<Option<(Timestamp, ExecutionId)>, StoreError> {
    let (Some(time), Some(id)) = (row.integer("last_time").flatten(), row.text("last_id").flatten()) else {
        return Ok(None);
    };
    let corrupt = || StoreError::Corrupt { table: "executions", id: id.clone().into_owned() };
    Ok(Some((Timestamp::from_micros(time), ExecutionId::parse(&id).ok_or_else(corrupt)?)))
}

/// See `Store::audit_records`.
pub(super) struct ListAuditRecords<'a>(pub(super) &'a AuditQuery);

#[async_trait]
impl Operation for ListAuditRecords<'_> {
    type Answer = Loaded<Vec<AuditRecord>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let wanted = self.0;
        let statement = match wanted {
            AuditQuery { execution: Some(_), .. } => AUDIT_OF_EXECUTION,
            AuditQuery { approval: Some(_), .. } => AUDIT_OF_APPROVAL,
            AuditQuery { wait: Some(_), .. } => AUDIT_OF_WAIT,
            AuditQuery { principal: Some(_), .. } => AUDIT_OF_PRINCIPAL,
            AuditQuery { .. } => AUDIT,
        };
        let found = timed(statement, time)
            .bind(wanted.approval.map(|id| id.to_string()))
            .bind(wanted.execution.map(|id| id.to_string()))
            .bind(wanted.wait.map(|id| id.to_string()))
            .bind(rows::maybe_text(wanted.principal.as_ref()))
            .bind(wanted.before.unwrap_or(i64::MAX))
            .bind(i64::from(wanted.limit))
            .fetch_all(connection)
            .await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").map(rows::audit_record).collect::<Result<_, _>>()?;
        Ok(Loaded { row, now })
    }
}

/// See `Store::backlog`.
pub(super) struct CountBacklog;

#[async_trait]
impl Operation for CountBacklog {
    type Answer = Loaded<Backlog>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let most = i64::try_from(Backlog::MOST).unwrap_or(i64::MAX);
        let found = timed(BACKLOG, time).bind(most).fetch_all(connection).await?;
        let now = store_now(&found, time)?;
        let column = |name| found.first().and_then(|row| row.integer(name)).flatten();
        let pending = column("number").and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        let time = |name| column(name).map(Timestamp::from_micros);
        Ok(Loaded { row: Backlog { pending, oldest: time("oldest"), approver_seen: time("approver_seen") }, now })
    }
}
