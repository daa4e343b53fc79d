//! The statements that read single rows. Each is one statement, and so of one instant. Its snapshot is taken before it reads
//! the clock, so that no row that it sees is of later than the time that comes with it.

use super::table::{Fault, Operation};
use super::time::TableTime;
use super::values::Statement;
use crate::domain::approval::Approval;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::Execution;
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::Wait;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, Columns, execution_columns, subject_columns, wait_columns};
use crate::storage::{
    AttemptKey, EarlierRequest, Loaded, SealedArguments, StoreError, StoredKey, Viewer, WaitRecord, WithArguments,
};
use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _, query};

/// What approvals and executions both have.
macro_rules! shared_columns {
    () => {
        concat!("id, version, state, ", subject_columns!(), ", connection, labels, retry_of, policy_revision")
    };
}

/// What approvals have beside that.
macro_rules! question_columns {
    () => {
        "decide_time, use_by, consume_time, execution_id, close_time, closed_by, state_reason, create_time, decide_by, \
         ends_by, requested_by, scope, tags, reason, rules, clauses, exclude_requester, decide_within_us, use_within_us, \
         requirement_digest, retried_outcome, wait_id, message, agent_note, omissions, preview_json"
    };
}

/// What executions have beside that.
macro_rules! outcome_columns {
    () => {
        "report_time, reported_by, remote_reference, error_code, detail, duration_us, start_time, report_by, \
         approval_id, caller, attempt_id, idempotency_key"
    };
}

/// The names of an approval's columns, where a part of the statement has gathered them.
macro_rules! approval_names {
    () => {
        concat!(shared_columns!(), ", ", question_columns!(), ", decisions")
    };
}

/// The columns of a row of `approvals` with its decisions. Within JSON an escaped U+0000 is written as JSON does.
macro_rules! approval_columns {
    () => {
        concat!(
            shared_columns!(),
            ", ",
            question_columns!(),
            ", (SELECT coalesce(replace(json_agg(json_build_object('person', d.person, 'groups', d.groups, \
             'as_owner', d.as_owner, 'verdict', d.verdict, 'reason', d.reason, 'caller', d.caller, \
             'decide_time', d.decide_time) ORDER BY d.sequence)::TEXT, chr(1114111) || '0', '\\u0000'), '[]') \
             FROM approval_decisions d WHERE d.approval_id = approvals.id) AS decisions"
        )
    };
}

/// The store's time as `store_now`, once, for whatever is joined to it: a row of it comes back even where nothing else does.
macro_rules! clock {
    () => {
        "(SELECT store_now($1) AS store_now) clock"
    };
}

/// The approval of the id `$2` that the agent `$4` of the principal `$3` sees.
macro_rules! seen_by_agent {
    () => {
        " LEFT JOIN approvals ON id = $2 AND principal = $3 AND agent = $4"
    };
}

/// The approval of the id `$2` that the person `$3` of the groups `$4` sees. The audience is asked first: what the person
/// does not see is not looked up.
macro_rules! seen_by_person {
    () => {
        " LEFT JOIN approvals ON id = (SELECT seen.approval_id FROM approval_audience seen WHERE seen.approval_id = $2 \
         AND (seen.kind = 'person' AND seen.name = $3 OR seen.kind = 'group' AND seen.name = ANY ($4)) LIMIT 1)"
    };
}

/// One execution among the facts of a consumption.
macro_rules! executed {
    ($fact:literal, $condition:literal) => {
        concat!(
            " UNION ALL SELECT '",
            $fact,
            "', ",
            shared_columns!(),
            ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ",
            outcome_columns!(),
            " FROM executions WHERE ",
            $condition
        )
    };
}

pub(super) use {approval_columns, approval_names, clock, question_columns, shared_columns};

const APPROVAL: &str =
    concat!("SELECT store_now, ", approval_columns!(), " FROM ", clock!(), " LEFT JOIN approvals ON id = $2");
const APPROVAL_OF_AGENT: &str =
    concat!("SELECT store_now, ", approval_columns!(), " FROM ", clock!(), seen_by_agent!());
const APPROVAL_OF_PERSON: &str =
    concat!("SELECT store_now, ", approval_columns!(), " FROM ", clock!(), seen_by_person!());
const APPROVALS: &str =
    concat!("SELECT store_now, ", approval_columns!(), " FROM ", clock!(), " LEFT JOIN approvals ON id = ANY ($2)");
const ARGUMENTS_OF_AGENT: &str = concat!(
    "SELECT store_now, kept.key_id, kept.sealed, ",
    approval_columns!(),
    " FROM ",
    clock!(),
    seen_by_agent!(),
    " LEFT JOIN approval_arguments kept ON kept.approval_id = id"
);
const ARGUMENTS_OF_PERSON: &str = concat!(
    "SELECT store_now, kept.key_id, kept.sealed, ",
    approval_columns!(),
    " FROM ",
    clock!(),
    seen_by_person!(),
    " LEFT JOIN approval_arguments kept ON kept.approval_id = id"
);
const EARLIER: &str = concat!(
    "SELECT store_now, earlier.request_digest, earlier.answer, ",
    approval_columns!(),
    " FROM ",
    clock!(),
    " LEFT JOIN (SELECT digest AS request_digest, approval_id AS answer FROM request_ids \
     WHERE caller = $2 AND principal = $3 AND agent = $4 AND request_id = $5) earlier ON true \
     LEFT JOIN approvals ON id = earlier.answer"
);
const EXECUTION: &str =
    concat!("SELECT store_now, ", execution_columns!(), " FROM ", clock!(), " LEFT JOIN executions ON id = $2");
/// Each fact is a row, with NULL for what only the others have. With a token the approval says what is retried.
const FACTS: &str = concat!(
    "SELECT store_now, fact, ",
    approval_names!(),
    ", ",
    outcome_columns!(),
    " FROM ",
    clock!(),
    " LEFT JOIN (SELECT 'approval' AS fact, ",
    approval_columns!(),
    ", NULL::BIGINT AS report_time, NULL AS reported_by, NULL AS remote_reference, NULL AS error_code, NULL AS detail, \
     NULL::BIGINT AS duration_us, NULL::BIGINT AS start_time, NULL::BIGINT AS report_by, NULL AS approval_id, \
     NULL AS caller, NULL AS attempt_id, NULL AS idempotency_key FROM approvals WHERE id = $2",
    executed!("attempt", "caller = $3 AND principal = $4 AND agent = $5 AND attempt_id = $6"),
    executed!(
        "retried",
        "id = CASE WHEN $2 IS NULL THEN $7 ELSE (SELECT asked.retry_of FROM approvals asked WHERE asked.id = $2) END"
    ),
    ") facts ON true"
);
const WAIT_ALONE: &str =
    concat!("SELECT store_now, ", wait_columns!(), " FROM ", clock!(), " LEFT JOIN waits ON id = $2");
/// What is pending is counted among what is open of the wait: no index of all that is pending is of use for it.
const WAIT: &str = concat!(
    "SELECT store_now, ",
    wait_columns!(),
    ", ARRAY(SELECT asked.id FROM approvals asked WHERE asked.wait_id = waits.id \
     ORDER BY asked.create_time DESC, asked.id DESC LIMIT $3) AS newest, \
     (SELECT count(*) FILTER (WHERE asked.state = 'pending') FROM approvals asked \
     WHERE asked.wait_id = waits.id AND asked.open_until > store_now) AS pending FROM ",
    clock!(),
    " LEFT JOIN waits ON id = $2"
);
const KEYS: &str = "SELECT id, check_value FROM keys ORDER BY create_time, id";
/// From one key to the next in the index, and never over the rows of a key.
const KEYS_IN_USE: &str = "WITH RECURSIVE used (key_id) AS (
        (SELECT key_id FROM approval_arguments ORDER BY key_id LIMIT 1)
        UNION ALL
        SELECT (SELECT kept.key_id FROM approval_arguments kept WHERE kept.key_id > used.key_id
                ORDER BY kept.key_id LIMIT 1)
            FROM used WHERE used.key_id IS NOT NULL
    ) SELECT key_id FROM used WHERE key_id IS NOT NULL";

/// Every statement of this file, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 13] = [
    APPROVAL,
    APPROVAL_OF_AGENT,
    APPROVAL_OF_PERSON,
    APPROVALS,
    ARGUMENTS_OF_AGENT,
    ARGUMENTS_OF_PERSON,
    EARLIER,
    EXECUTION,
    FACTS,
    WAIT_ALONE,
    WAIT,
    KEYS,
    KEYS_IN_USE,
];

/// Begins a statement: `$1` is what takes the place of the database's clock.
pub(super) fn timed<'q>(statement: &'static str, time: &TableTime) -> Statement<'q> {
    query(statement).bind(time.given())
}

/// What a statement's first column says the store's time is. Every row of it says the same.
pub(super) fn store_now(rows: &[PgRow], time: &TableTime) -> Result<Timestamp, Fault> {
    let told = rows.first().and_then(|row| Columns::integer(row, "store_now")).flatten();
    let Some(told) = told else {
        let cause = "a statement did not tell the time".to_owned();
        return Err(Fault::Store(StoreError::Inconsistent { cause }));
    };
    // An injected clock is read before the statement is sent, and so before what is seen is fixed: it is read again.
    let now = Timestamp::from_micros(time.given().unwrap_or(told));
    time.told(now);
    Ok(now)
}

/// The rows of what is joined to the clock: those with something in `column`.
pub(super) fn present<'r>(rows: &'r [PgRow], column: &'static str) -> impl Iterator<Item = &'r PgRow> {
    rows.iter().filter(move |row| !matches!(Columns::text(*row, column), Some(None)))
}

/// See `Store::earlier_request`.
pub(super) struct FindRequest<'a> {
    pub(super) caller: &'a Identifier,
    pub(super) principal: &'a Identifier,
    pub(super) agent: &'a Identifier,
    pub(super) id: &'a Identifier,
}

#[async_trait]
impl Operation for FindRequest<'_> {
    type Answer = Loaded<Option<EarlierRequest>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = timed(EARLIER, time)
            .bind(rows::text(self.caller))
            .bind(rows::text(self.principal))
            .bind(rows::text(self.agent))
            .bind(rows::text(self.id))
            .fetch_all(connection)
            .await?;
        let now = store_now(&found, time)?;
        let corrupt = || StoreError::Corrupt { table: "request_ids", id: self.id.as_str().to_owned() };
        let row = match present(&found, "request_digest").next() {
            None => None,
            Some(row) => {
                let digest = row.text("request_digest").flatten().ok_or_else(corrupt)?.into_owned();
                // The foreign key keeps it for as long as this row.
                present(std::slice::from_ref(row), "id").next().ok_or_else(corrupt)?;
                Some(EarlierRequest { digest, approval: rows::approval(row)? })
            }
        };
        Ok(Loaded { row, now })
    }
}

/// See `Store::approval` and `Store::approval_seen_by`.
pub(super) struct FindApproval<'a> {
    pub(super) id: ApprovalId,
    /// Who reads it; none: whoever may see every one.
    pub(super) viewer: Option<Viewer<'a>>,
}

#[async_trait]
impl Operation for FindApproval<'_> {
    type Answer = Loaded<Option<Approval>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let statement = match self.viewer {
            None => timed(APPROVAL, time).bind(self.id.to_string()),
            Some(viewer) => seen_by(viewer, self.id, (APPROVAL_OF_AGENT, APPROVAL_OF_PERSON), time),
        };
        let found = statement.fetch_all(connection).await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").next().map(rows::approval).transpose()?;
        Ok(Loaded { row, now })
    }
}

/// The statement for this viewer, of one for agents and one for people.
fn seen_by<'q>(
    viewer: Viewer<'_>,
    id: ApprovalId,
    (of_agent, of_person): (&'static str, &'static str),
    time: &TableTime,
) -> Statement<'q> {
    match viewer {
        Viewer::Agent { principal, agent } => {
            timed(of_agent, time).bind(id.to_string()).bind(rows::text(principal)).bind(rows::text(agent))
        }
        Viewer::Person { id: person, groups } => {
            let groups: Vec<String> = groups.iter().map(rows::text).collect();
            timed(of_person, time).bind(id.to_string()).bind(rows::text(person)).bind(groups)
        }
    }
}

/// See `Store::approvals_of`.
pub(super) struct FindApprovals<'a> {
    pub(super) ids: &'a [ApprovalId],
}

#[async_trait]
impl Operation for FindApprovals<'_> {
    type Answer = Loaded<Vec<Approval>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let ids: Vec<String> = self.ids.iter().map(ToString::to_string).collect();
        let found = timed(APPROVALS, time).bind(ids).fetch_all(connection).await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").map(rows::approval).collect::<Result<_, _>>()?;
        Ok(Loaded { row, now })
    }
}

/// See `Store::arguments_seen_by`.
pub(super) struct FindArguments<'a> {
    pub(super) id: ApprovalId,
    pub(super) viewer: Viewer<'a>,
}

#[async_trait]
impl Operation for FindArguments<'_> {
    type Answer = Loaded<Option<WithArguments>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let statement = seen_by(self.viewer, self.id, (ARGUMENTS_OF_AGENT, ARGUMENTS_OF_PERSON), time);
        let found = statement.fetch_all(connection).await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").next().map(with_arguments).transpose()?;
        Ok(Loaded { row, now })
    }
}

fn with_arguments(row: &PgRow) -> Result<WithArguments, StoreError> {
    let approval = rows::approval(row)?;
    let corrupt = || StoreError::Corrupt { table: "approval_arguments", id: approval.id.to_string() };
    let Some(key_id) = row.text("key_id").ok_or_else(corrupt)? else {
        // Only what is final is erased.
        approval.closed().ok_or_else(corrupt)?;
        return Ok(WithArguments { approval, arguments: None });
    };
    let bytes: Vec<u8> = row.try_get("sealed").map_err(|_| corrupt())?;
    // Of what was asked before any arguments were kept, the row only says which secret the token is of.
    let arguments = (!bytes.is_empty()).then(|| SealedArguments { key_id: key_id.into_owned(), bytes });
    Ok(WithArguments { approval, arguments })
}

/// See `Store::consume_facts`.
pub(super) struct FindFacts<'a> {
    pub(super) approval: Option<ApprovalId>,
    pub(super) attempt: &'a AttemptKey,
    pub(super) retry_of: Option<ExecutionId>,
}

#[async_trait]
impl Operation for FindFacts<'_> {
    type Answer = Loaded<ConsumeFacts>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let key = self.attempt;
        let found = timed(FACTS, time)
            .bind(self.approval.map(|id| id.to_string()))
            .bind(rows::text(&key.caller))
            .bind(rows::text(&key.principal))
            .bind(rows::text(&key.agent))
            .bind(key.attempt.to_string())
            .bind(self.retry_of.map(|id| id.to_string()))
            .fetch_all(connection)
            .await?;
        let now = store_now(&found, time)?;
        let fact = |fact: &str| found.iter().find(|row| row.text("fact").flatten().is_some_and(|found| found == fact));
        let row = ConsumeFacts {
            approval: fact("approval").map(rows::approval).transpose()?,
            attempt: fact("attempt").map(rows::execution).transpose()?,
            retried: fact("retried").map(rows::execution).transpose()?,
        };
        Ok(Loaded { row, now })
    }
}

/// See `Store::execution`.
pub(super) struct FindExecution {
    pub(super) id: ExecutionId,
}

#[async_trait]
impl Operation for FindExecution {
    type Answer = Loaded<Option<Execution>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = timed(EXECUTION, time).bind(self.id.to_string()).fetch_all(connection).await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").next().map(rows::execution).transpose()?;
        Ok(Loaded { row, now })
    }
}

/// See `Store::wait_alone`.
pub(super) struct FindWaitAlone {
    pub(super) id: WaitId,
}

#[async_trait]
impl Operation for FindWaitAlone {
    type Answer = Loaded<Option<Wait>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = timed(WAIT_ALONE, time).bind(self.id.to_string()).fetch_all(connection).await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").next().map(rows::wait).transpose()?;
        Ok(Loaded { row, now })
    }
}

/// See `Store::wait`.
pub(super) struct FindWait {
    pub(super) id: WaitId,
}

#[async_trait]
impl Operation for FindWait {
    type Answer = Loaded<Option<WaitRecord>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = timed(WAIT, time)
            .bind(self.id.to_string())
            .bind(i64::from(limits::WAIT_APPROVALS) + 1)
            .fetch_all(connection)
            .await?;
        let now = store_now(&found, time)?;
        let row = present(&found, "id").next().map(wait_record).transpose()?;
        Ok(Loaded { row, now })
    }
}

fn wait_record(row: &PgRow) -> Result<WaitRecord, StoreError> {
    let wait = rows::wait(row)?;
    let corrupt = || StoreError::Corrupt { table: "waits", id: wait.id.to_string() };
    let newest: Vec<String> = row.try_get("newest").map_err(|_| corrupt())?;
    let most = limits::WAIT_APPROVALS as usize;
    let mut approvals = Vec::with_capacity(newest.len().min(most));
    for id in newest.iter().take(most).rev() {
        approvals
            .push(ApprovalId::parse(id).ok_or_else(|| StoreError::Corrupt { table: "approvals", id: id.to_owned() })?);
    }
    let pending: i64 = row.try_get("pending").map_err(|_| corrupt())?;
    let pending = u32::try_from(pending).unwrap_or(u32::MAX);
    Ok(WaitRecord { wait, approvals, more_approvals: newest.len() > most, pending })
}

/// See `Store::keys`.
pub(super) struct ListKeys;

#[async_trait]
impl Operation for ListKeys {
    type Answer = Vec<StoredKey>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        _time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = query(KEYS).fetch_all(connection).await?;
        Ok(found.iter().map(rows::stored_key).collect::<Result<_, _>>()?)
    }
}

/// See `Store::keys_in_use`.
pub(super) struct ListKeysInUse;

#[async_trait]
impl Operation for ListKeysInUse {
    type Answer = Vec<String>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        _time: &TableTime,
        _touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = query(KEYS_IN_USE).fetch_all(connection).await?;
        let corrupt = || StoreError::Corrupt { table: "approval_arguments", id: "?".to_owned() };
        let keys = found.iter().map(|row| Some(row.text("key_id").flatten()?.into_owned()));
        Ok(keys.collect::<Option<_>>().ok_or_else(corrupt)?)
    }
}
