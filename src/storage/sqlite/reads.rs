//! The statements that read. Each function runs within what its caller began: one statement is consistent by itself, more
//! than one stand in a transaction.

use crate::domain::approval::{Approval, StateName};
use crate::domain::audit::AuditRecord;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::Execution;
use crate::domain::ids::{ApprovalId, ExecutionId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::rows::{self, subject_columns};
use crate::storage::time::StoreTime;
use crate::storage::{
    ApprovalQuery, AttemptKey, AuditQuery, Backlog, EarlierRequest, Loaded, StoreError, StoredKey, Viewer,
};
use sqlx::{Connection as _, Row as _, SqliteConnection, query};
use std::collections::BTreeSet;

/// The columns of an approval with its decisions, gathered in the same statement and so of the same instant.
macro_rules! approval_columns {
    () => {
        concat!(
            "id, version, state, decide_time, use_by, consume_time, execution_id, close_time, closed_by, state_reason, \
             create_time, decide_by, ends_by, ",
            subject_columns!(),
            ", connection, labels, requested_by, scope, tags, policy_revision, reason, rules, clauses, \
             exclude_requester, decide_within_us, use_within_us, requirement_digest, retry_of, retried_outcome, wait_id, \
             message, agent_note, omissions, preview_json, \
             (SELECT json_group_array(json_object('person', d.person, 'groups', d.groups, 'as_owner', d.as_owner, \
             'verdict', d.verdict, 'reason', d.reason, 'caller', d.caller, 'decide_time', d.decide_time) \
             ORDER BY d.sequence) FROM approval_decisions d WHERE d.approval_id = approvals.id) AS decisions"
        )
    };
}

macro_rules! execution_columns {
    () => {
        concat!(
            "id, version, state, report_time, reported_by, remote_reference, error_code, detail, duration_us, start_time, \
             report_by, approval_id, caller, attempt_id, idempotency_key, retry_of, policy_revision, ",
            subject_columns!(),
            ", connection, labels"
        )
    };
}

macro_rules! select_audit {
    ($condition:literal) => {
        concat!(
            "SELECT position, id, time, kind, caller, principal, agent, conversation, connector, account, action, \
             approval_id, execution_id, wait_id, fingerprint, policy_revision, person, decision, reason, note, labels \
             FROM audit_records WHERE ",
            $condition,
            " AND position < $5 ORDER BY position DESC LIMIT $6"
        )
    };
}

pub(super) use {approval_columns, execution_columns};

/// Touches the database, and in a transaction fixes what is seen in it.
pub(super) const SNAPSHOT: &str = "SELECT count(*) FROM (SELECT version FROM schema_migrations LIMIT 1)";
const APPROVAL: &str = concat!("SELECT ", approval_columns!(), " FROM approvals WHERE id = $1");
const APPROVAL_OF_AGENT: &str =
    concat!("SELECT ", approval_columns!(), " FROM approvals WHERE id = $1 AND principal = $2 AND agent = $3");
/// The audience is asked first: what the person does not see is not looked up.
const APPROVAL_OF_PERSON: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals WHERE id = (SELECT approval_id FROM approval_audience WHERE approval_id = $1 \
     AND (kind = 'person' AND name = $2 OR kind = 'group' AND name IN (SELECT value FROM json_each($3))) LIMIT 1)"
);
const APPROVALS: &str =
    concat!("SELECT ", approval_columns!(), " FROM approvals WHERE id IN (SELECT value FROM json_each($1))");
const EARLIER: &str = concat!(
    "SELECT request_ids.digest AS request_digest, ",
    "request_ids.approval_id AS approval_id FROM request_ids \
     WHERE caller = $1 AND principal = $2 AND agent = $3 AND request_id = $4"
);
/// One page of what one person or group sees that stands in the table as one state, newest first, whatever its deadline.
const AUDIENCE_NEWEST: &str = "SELECT create_time, approval_id FROM approval_audience
    WHERE kind = $1 AND name = $2 AND state = $3 AND (create_time, approval_id) < ($4, $5)
    ORDER BY create_time DESC, approval_id DESC LIMIT $6";
/// The same of what has its deadline within these two: steps over what has not.
const AUDIENCE_DUE: &str = "SELECT create_time, approval_id FROM approval_audience INDEXED BY approval_audience_newest
    WHERE kind = $1 AND name = $2 AND state = $3 AND (create_time, approval_id) < ($4, $5)
        AND open_until BETWEEN $7 AND $8
    ORDER BY create_time DESC, approval_id DESC LIMIT $6";
/// The same of few: looks at nothing else, and sorts them.
const AUDIENCE_DUE_FEW: &str =
    "SELECT create_time, approval_id FROM approval_audience INDEXED BY approval_audience_by_deadline
    WHERE kind = $1 AND name = $2 AND state = $3 AND (create_time, approval_id) < ($4, $5)
        AND open_until BETWEEN $7 AND $8
    ORDER BY create_time DESC, approval_id DESC LIMIT $6";
/// Whether they are few.
const COUNT_AUDIENCE_DUE: &str = "SELECT count(*) FROM (
    SELECT 1 FROM approval_audience INDEXED BY approval_audience_by_deadline
    WHERE kind = $1 AND name = $2 AND state = $3 AND open_until BETWEEN $4 AND $5 LIMIT $6)";
const EXECUTION: &str = concat!("SELECT ", execution_columns!(), " FROM executions WHERE id = $1");
const ATTEMPT: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions WHERE caller = $1 AND principal = $2 AND agent = $3 AND attempt_id = $4"
);
const AUDIT: &str = select_audit!("($1 IS NULL AND $2 IS NULL AND $3 IS NULL AND $4 IS NULL)");
const AUDIT_OF_APPROVAL: &str = select_audit!(
    "approval_id = $1 AND ($2 IS NULL OR execution_id = $2) AND ($3 IS NULL OR wait_id = $3) \
     AND ($4 IS NULL OR principal = $4)"
);
const AUDIT_OF_EXECUTION: &str = select_audit!(
    "($1 IS NULL OR approval_id = $1) AND execution_id = $2 AND ($3 IS NULL OR wait_id = $3) \
     AND ($4 IS NULL OR principal = $4)"
);
const AUDIT_OF_WAIT: &str = select_audit!(
    "($1 IS NULL OR approval_id = $1) AND ($2 IS NULL OR execution_id = $2) AND wait_id = $3 \
     AND ($4 IS NULL OR principal = $4)"
);
const AUDIT_OF_PRINCIPAL: &str = select_audit!(
    "($1 IS NULL OR approval_id = $1) AND ($2 IS NULL OR execution_id = $2) AND ($3 IS NULL OR wait_id = $3) \
     AND principal = $4"
);
/// The oldest of what stands in the table as pending; overdue ones are left out after they are counted off.
const BACKLOG: &str = "SELECT count(*) AS pending, min(create_time) AS oldest,
    (SELECT seen_time FROM approver_presence WHERE id = 1) AS approver_seen FROM
    (SELECT create_time, open_until FROM approvals INDEXED BY approvals_pending
    WHERE state = 'pending' ORDER BY create_time LIMIT $2) WHERE open_until > $1";
const KEYS: &str = "SELECT id, check_value FROM keys ORDER BY create_time, id";

/// Entries of an audience that are sorted rather than sought among all others, newest first.
const FEW: i64 = 1_000;

/// Every statement of this file, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 20] = [
    SNAPSHOT,
    APPROVAL,
    APPROVAL_OF_AGENT,
    APPROVAL_OF_PERSON,
    APPROVALS,
    EARLIER,
    AUDIENCE_NEWEST,
    AUDIENCE_DUE,
    AUDIENCE_DUE_FEW,
    COUNT_AUDIENCE_DUE,
    EXECUTION,
    ATTEMPT,
    AUDIT,
    AUDIT_OF_APPROVAL,
    AUDIT_OF_EXECUTION,
    AUDIT_OF_WAIT,
    AUDIT_OF_PRINCIPAL,
    BACKLOG,
    KEYS,
    super::open::NEWEST,
];

pub(super) async fn touch(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    query(SNAPSHOT).fetch_one(connection).await?;
    Ok(())
}

pub(super) async fn approval(
    connection: &mut SqliteConnection,
    id: ApprovalId,
) -> Result<Option<Approval>, StoreError> {
    let row = query(APPROVAL).bind(id.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(rows::approval).transpose()
}

pub(super) async fn approval_seen_by(
    connection: &mut SqliteConnection,
    id: ApprovalId,
    viewer: Viewer<'_>,
) -> Result<Option<Approval>, StoreError> {
    let statement = match viewer {
        Viewer::Agent { principal, agent } => {
            query(APPROVAL_OF_AGENT).bind(id.to_string()).bind(rows::text(principal)).bind(rows::text(agent))
        }
        Viewer::Person { id: person, groups } => {
            let groups: Vec<&str> = groups.iter().map(Identifier::as_str).collect();
            query(APPROVAL_OF_PERSON).bind(id.to_string()).bind(rows::text(person)).bind(rows::list(&groups))
        }
    };
    let row = statement.fetch_optional(connection).await?;
    row.as_ref().map(rows::approval).transpose()
}

pub(super) async fn approvals_of(
    connection: &mut SqliteConnection,
    ids: &[ApprovalId],
) -> Result<Vec<Approval>, StoreError> {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let rows = query(APPROVALS).bind(rows::list(&ids)).fetch_all(connection).await?;
    rows.iter().map(rows::approval).collect()
}

pub(super) async fn earlier_request(
    connection: &mut SqliteConnection,
    caller: &Identifier,
    principal: &Identifier,
    agent: &Identifier,
    id: &Identifier,
) -> Result<Option<EarlierRequest>, StoreError> {
    let row = query(EARLIER)
        .bind(rows::text(caller))
        .bind(rows::text(principal))
        .bind(rows::text(agent))
        .bind(rows::text(id))
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let corrupt = || StoreError::Corrupt { table: "request_ids", id: id.as_str().to_owned() };
    let digest: String = row.try_get("request_digest").map_err(|_| corrupt())?;
    let approval_id: &str = row.try_get("approval_id").map_err(|_| corrupt())?;
    let approval_id = ApprovalId::parse(approval_id).ok_or_else(corrupt)?;
    // The foreign key keeps it for as long as this row.
    let approval = approval(connection, approval_id).await?.ok_or_else(corrupt)?;
    Ok(Some(EarlierRequest { digest, approval }))
}

pub(super) async fn approvals(
    connection: &mut SqliteConnection,
    wanted: &ApprovalQuery,
    time: &StoreTime,
) -> Result<Loaded<Vec<Approval>>, StoreError> {
    // The time is read after what is seen is fixed, so that no row in it is of later.
    touch(connection).await?;
    let now = time.now();
    let mut page: BTreeSet<(Timestamp, ApprovalId)> = BTreeSet::new();
    let person = std::iter::once(("person", &wanted.person));
    let groups: BTreeSet<&Identifier> = wanted.groups.iter().collect();
    for (kind, name) in person.chain(groups.into_iter().map(|group| ("group", group))) {
        for state in StateName::ALL {
            page.extend(audience_page(connection, wanted, (kind, name), state, now).await?);
        }
    }
    let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let ids: Vec<ApprovalId> = page.iter().rev().take(limit).map(|(_, id)| *id).collect();
    let mut approvals = approvals_of(connection, &ids).await?;
    approvals.sort_by_key(|approval| std::cmp::Reverse((approval.create_time, approval.id)));
    Ok(Loaded { row: approvals, now })
}

/// The newest of what one person or group sees that stands in the table as `state` and is wanted at `now`.
async fn audience_page(
    connection: &mut SqliteConnection,
    wanted: &ApprovalQuery,
    (kind, name): (&'static str, &Identifier),
    state: StateName,
    now: Timestamp,
) -> Result<Vec<(Timestamp, ApprovalId)>, StoreError> {
    let wants = |state: StateName| wanted.states.is_empty() || wanted.states.contains(&state);
    let is_open = matches!(state, StateName::Pending | StateName::Approved);
    // What is overdue stands in the table as open until somebody writes it down.
    let deadlines = match (wants(state), is_open && wants(StateName::Expired)) {
        (false, false) => return Ok(Vec::new()),
        (true, false) if is_open => Some((now.micros().saturating_add(1), i64::MAX)),
        (false, true) => Some((i64::MIN, now.micros())),
        (true, _) => None,
    };
    let (before_time, before_id) = match wanted.before {
        Some((time, id)) => (time.micros(), id.to_string()),
        None => (i64::MAX, String::new()),
    };
    let statement = match deadlines {
        None => AUDIENCE_NEWEST,
        Some((from, to)) => {
            let few: i64 = query(COUNT_AUDIENCE_DUE)
                .bind(kind)
                .bind(rows::text(name))
                .bind(state.as_str())
                .bind(from)
                .bind(to)
                .bind(FEW)
                .fetch_one(&mut *connection)
                .await?
                .try_get(0)?;
            if few < FEW { AUDIENCE_DUE_FEW } else { AUDIENCE_DUE }
        }
    };
    let statement = query(statement)
        .bind(kind)
        .bind(rows::text(name))
        .bind(state.as_str())
        .bind(before_time)
        .bind(before_id)
        .bind(i64::from(wanted.limit));
    let statement = match deadlines {
        Some((from, to)) => statement.bind(from).bind(to),
        None => statement,
    };
    let rows = statement.fetch_all(connection).await?;
    rows.iter().map(rows::audience_entry).collect()
}

pub(super) async fn execution(
    connection: &mut SqliteConnection,
    id: ExecutionId,
) -> Result<Option<Execution>, StoreError> {
    let row = query(EXECUTION).bind(id.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(rows::execution).transpose()
}

async fn attempt(connection: &mut SqliteConnection, key: &AttemptKey) -> Result<Option<Execution>, StoreError> {
    let row = query(ATTEMPT)
        .bind(rows::text(&key.caller))
        .bind(rows::text(&key.principal))
        .bind(rows::text(&key.agent))
        .bind(key.attempt.to_string())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(rows::execution).transpose()
}

pub(super) async fn consume_facts(
    connection: &mut SqliteConnection,
    approval_id: Option<ApprovalId>,
    key: &AttemptKey,
    retry_of: Option<ExecutionId>,
) -> Result<ConsumeFacts, StoreError> {
    let approval = match approval_id {
        Some(id) => approval(connection, id).await?,
        None => None,
    };
    let retried = match approval_id {
        // With a token the approval says what is retried.
        Some(_) => approval.as_ref().and_then(|approval| approval.question.retry_of).map(|retried| retried.id),
        None => retry_of,
    };
    Ok(ConsumeFacts {
        approval,
        attempt: attempt(connection, key).await?,
        retried: match retried {
            Some(id) => execution(connection, id).await?,
            None => None,
        },
    })
}

pub(super) async fn audit_records(
    connection: &mut SqliteConnection,
    wanted: &AuditQuery,
) -> Result<Vec<AuditRecord>, StoreError> {
    let statement = match wanted {
        AuditQuery { execution: Some(_), .. } => AUDIT_OF_EXECUTION,
        AuditQuery { approval: Some(_), .. } => AUDIT_OF_APPROVAL,
        AuditQuery { wait: Some(_), .. } => AUDIT_OF_WAIT,
        AuditQuery { principal: Some(_), .. } => AUDIT_OF_PRINCIPAL,
        AuditQuery { .. } => AUDIT,
    };
    let rows = query(statement)
        .bind(wanted.approval.map(|id| id.to_string()))
        .bind(wanted.execution.map(|id| id.to_string()))
        .bind(wanted.wait.map(|id| id.to_string()))
        .bind(rows::maybe_text(wanted.principal.as_ref()))
        .bind(wanted.before.unwrap_or(i64::MAX))
        .bind(i64::from(wanted.limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(rows::audit_record).collect()
}

pub(super) async fn backlog(
    connection: &mut SqliteConnection,
    time: &StoreTime,
) -> Result<Loaded<Backlog>, StoreError> {
    let mut transaction = connection.begin().await?;
    // The time is read after what is seen is fixed, so that no row in it is of later.
    touch(&mut transaction).await?;
    let now = time.now();
    let most = i64::try_from(Backlog::MOST).unwrap_or(i64::MAX);
    let row = query(BACKLOG).bind(now.micros()).bind(most).fetch_one(&mut *transaction).await?;
    let (pending, oldest): (i64, Option<i64>) = (row.try_get("pending")?, row.try_get("oldest")?);
    let approver_seen: Option<i64> = row.try_get("approver_seen")?;
    let row = Backlog {
        pending: u64::try_from(pending).unwrap_or(0),
        oldest: oldest.map(Timestamp::from_micros),
        approver_seen: approver_seen.map(Timestamp::from_micros),
    };
    Ok(Loaded { row, now })
}

pub(super) async fn keys(connection: &mut SqliteConnection) -> Result<Vec<StoredKey>, StoreError> {
    let rows = query(KEYS).fetch_all(connection).await?;
    rows.iter().map(rows::stored_key).collect()
}
