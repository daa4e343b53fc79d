//! The operations that write in one round trip: each a function of the database (see the migrations), to which the values go
//! as arrays or one by one, in the order of the binders in `rows`.

use super::schema;
use super::table::{Fault, Operation};
use super::time::TableTime;
use super::transaction;
use super::values::{Batch, Statement};
use crate::domain::approval::Approval;
use crate::domain::audit::AuditEvent;
use crate::domain::change::Change;
use crate::domain::execution::{Execution, Start};
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, ApprovalColumns, Bind as _, ExecutionColumns, event_columns};
use crate::storage::{Saved, StoreError, StoredKey};
use async_trait::async_trait;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, query};
use std::sync::{Arc, LazyLock};

/// Values of a record, those of its event and its id, as [`Batch`] tells their kinds.
pub(super) const RECORD_KINDS: &str = "ttttttttttttttttttt";
/// Values of a person's decision with its place among all.
pub(super) const DECISION_KINDS: &str = "ittittti";
/// What a function without columns of its own returns: the store's time, or nothing.
const DONE: &str = "done";
/// Values of an execution.
const EXECUTION_VALUES: usize = 31;

pub(super) static SAVE_APPROVAL: LazyLock<Arc<str>> =
    LazyLock::new(|| call("save_approval", 1 + 9 + 4 + DECISION_KINDS.len() + RECORD_KINDS.len(), DONE));
static START_EXECUTION: LazyLock<Arc<str>> =
    LazyLock::new(|| call("start_execution", 1 + EXECUTION_VALUES + RECORD_KINDS.len(), DONE));
static SAVE_EXECUTION: LazyLock<Arc<str>> =
    LazyLock::new(|| call("save_execution", 1 + 7 + 4 + RECORD_KINDS.len(), DONE));
pub(super) const RECORD: &str = concat!(
    "WITH time AS MATERIALIZED (SELECT store_now($1) AS store_now), recorded AS (INSERT INTO audit_records (",
    event_columns!(),
    ", id, time) SELECT kind, caller, principal, agent, conversation, connector, account, action, approval_id, \
     execution_id, wait_id, fingerprint, policy_revision, person, decision, reason, note, labels, id, store_now \
     FROM time, unnest($2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], \
     $6::TEXT[], $7::TEXT[], $8::TEXT[], $9::TEXT[], $10::TEXT[], $11::TEXT[], $12::TEXT[], $13::TEXT[], $14::TEXT[], \
     $15::TEXT[], $16::TEXT[], $17::TEXT[], $18::TEXT[], $19::TEXT[], $20::TEXT[]) AS event (",
    event_columns!(),
    ", id)) SELECT store_now FROM time"
);
/// What keeps everything from being done: whether nothing can be written, what the schema needs, whether rights are missing.
const TOUCH: &str = "SELECT store_now($1) AS store_now,
        pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
        (SELECT max(compatible_from) FROM schema_migrations) AS compatible_from,
        (SELECT string_agg(needed.name || ' (' || needed.privilege || ')', ', ') FROM (VALUES
            ('approvals', 'SELECT'), ('approvals', 'INSERT'), ('approvals', 'UPDATE'), ('approval_decisions', 'INSERT'),
            ('approval_audience', 'INSERT'), ('approval_audience', 'UPDATE'), ('approval_arguments', 'INSERT'),
            ('request_ids', 'INSERT'), ('executions', 'INSERT'), ('executions', 'UPDATE'), ('waits', 'INSERT'),
            ('waits', 'UPDATE'), ('audit_records', 'INSERT'), ('audit_log', 'UPDATE'), ('audit_seals', 'INSERT')
        ) AS needed (name, privilege) WHERE NOT has_table_privilege(needed.name, needed.privilege)) AS missing";
const NOTE_APPROVER: &str = "INSERT INTO approver_presence (id, seen_time) VALUES (1, store_now($1))
    ON CONFLICT (id) DO UPDATE SET seen_time = greatest(approver_presence.seen_time, excluded.seen_time)";
const ADD_KEY: &str = "INSERT INTO keys (id, check_value, create_time) VALUES ($2, $3, store_now($1))
    ON CONFLICT (id) DO NOTHING";

/// The text that calls a function with so many values, and reads these columns of what it returns.
pub(super) fn call(function: &str, values: usize, columns: &str) -> Arc<str> {
    let values: Vec<String> = (1..=values).map(|value| format!("${value}")).collect();
    format!("SELECT {columns} FROM {function}({}) AS done", values.join(", ")).into()
}

/// The statement of such a text.
pub(super) fn calling<'q>(text: &Arc<str>, time: &TableTime) -> Statement<'q> {
    query(AssertSqlSafe(Arc::clone(text))).bind(time.given())
}

/// Binds records as arrays. Their ids are made of the time as it is known here: they only have to be different.
pub(super) fn bind_records<'q>(statement: Statement<'q>, events: &[AuditEvent], time: &TableTime) -> Statement<'q> {
    let mut batch = Batch::of(RECORD_KINDS);
    for event in events {
        rows::bind_event(batch.row(), event).bind(rows::record_id(time.estimated()).to_string());
    }
    batch.bind_to(statement)
}

/// The time that a function returned; none if it did nothing.
async fn time_of(
    statement: Statement<'_>,
    connection: &mut PgConnection,
    time: &TableTime,
) -> Result<Option<Timestamp>, Fault> {
    let now: Option<i64> = statement.fetch_one(connection).await?.try_get(0)?;
    let now = now.map(Timestamp::from_micros);
    if let Some(now) = now {
        time.told(now);
    }
    Ok(now)
}

/// See `Store::time`. It writes nothing, and yet asks for what only a database that takes writes gives.
pub(super) struct Touch;

#[async_trait]
impl Operation for Touch {
    type Answer = Timestamp;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let row = query(TOUCH).bind(time.given()).fetch_one(connection).await?;
        let (now, read_only): (i64, bool) = (row.try_get("store_now")?, row.try_get("read_only")?);
        if read_only {
            return Err(Fault::Broken("the database takes no writes".to_owned()));
        }
        let needed: Option<i64> = row.try_get("compatible_from")?;
        if needed.is_some_and(|needed| needed > schema::known()) {
            let cause =
                "the schema has become one that this version does not serve: start the version that migrated it";
            return Err(StoreError::Inconsistent { cause: cause.to_owned() }.into());
        }
        let missing: Option<String> = row.try_get("missing")?;
        if let Some(missing) = missing {
            let cause = format!("this role has no right to {missing}: run deploy/postgres/role.sql again");
            return Err(StoreError::Inconsistent { cause }.into());
        }
        let now = Timestamp::from_micros(now);
        time.told(now);
        Ok(now)
    }
}

/// See `Store::save_approval`.
pub(super) struct SaveApproval {
    pub(super) change: Change<Approval>,
    pub(super) expected: u64,
}

#[async_trait]
impl Operation for SaveApproval {
    type Answer = Saved;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let Change { next, events, valid_before } = &self.change;
        let statement = ApprovalColumns::of(&next.state)
            .bind(calling(&SAVE_APPROVAL, time), next.decide_by)
            .bind(rows::integer(next.version))
            .bind(next.id.to_string())
            .bind(rows::integer(self.expected))
            .bind(valid_before.map(Timestamp::micros));
        let mut decisions = Batch::of(DECISION_KINDS);
        for (sequence, decision) in (0_i64..).zip(&next.decisions) {
            rows::bind_decision(decisions.row().bind(sequence), decision);
        }
        let statement = bind_records(decisions.bind_to(statement), events, time);
        if time_of(statement, connection, time).await?.is_none() {
            return Ok(Saved::Conflict);
        }
        touched.approval(next.id, next.version);
        events.iter().for_each(|event| touched.recorded(event.kind, 1));
        Ok(Saved::Yes)
    }
}

/// See `Store::start`.
pub(super) struct StartExecution(pub(super) Start);

#[async_trait]
impl Operation for StartExecution {
    type Answer = Option<Execution>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        if self.0.retry_of.is_some() {
            return transaction::start_slowly(connection, time, touched, &self.0).await;
        }
        // The times of it are relative to the store's, which is known once it has started.
        let relative = self.0.clone().at(None, Timestamp::from_micros(0));
        let mut statement = rows::bind_execution(calling(&START_EXECUTION, time), &relative.next);
        for event in &relative.events {
            statement = rows::bind_event(statement, event).bind(rows::record_id(time.estimated()).to_string());
        }
        let Some(now) = time_of(statement, connection, time).await? else { return Ok(None) };
        relative.events.iter().for_each(|event| touched.recorded(event.kind, 1));
        Ok(Some(self.0.clone().at(None, now).next))
    }
}

/// See `Store::save_execution`.
pub(super) struct SaveExecution {
    pub(super) change: Change<Execution>,
    pub(super) expected: u64,
}

#[async_trait]
impl Operation for SaveExecution {
    type Answer = Saved;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let Change { next, events, valid_before } = &self.change;
        let statement = ExecutionColumns::of(&next.state)
            .bind(calling(&SAVE_EXECUTION, time))
            .bind(rows::integer(next.version))
            .bind(next.id.to_string())
            .bind(rows::integer(self.expected))
            .bind(valid_before.map(Timestamp::micros));
        if time_of(bind_records(statement, events, time), connection, time).await?.is_none() {
            return Ok(Saved::Conflict);
        }
        events.iter().for_each(|event| touched.recorded(event.kind, 1));
        Ok(Saved::Yes)
    }
}

/// See `Store::record`.
pub(super) struct Record(pub(super) Vec<AuditEvent>);

#[async_trait]
impl Operation for Record {
    type Answer = ();

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        time_of(bind_records(query(RECORD).bind(time.given()), &self.0, time), connection, time).await?;
        self.0.iter().for_each(|event| touched.recorded(event.kind, 1));
        Ok(())
    }
}

/// See `Store::note_approver`.
pub(super) struct NoteApprover;

#[async_trait]
impl Operation for NoteApprover {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, time: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        query(NOTE_APPROVER).bind(time.given()).execute(connection).await?;
        Ok(())
    }
}

/// See `Store::add_key`.
pub(super) struct AddKey(pub(super) StoredKey);

#[async_trait]
impl Operation for AddKey {
    type Answer = ();

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        query(ADD_KEY)
            .bind(time.given())
            .bind(self.0.id.clone())
            .bind(self.0.check.clone())
            .execute(connection)
            .await?;
        Ok(())
    }
}
