//! Rows and the domain's values: strict in one direction, complete in the other. A row that fits no state, an id, word or
//! list that does not parse, or a digest that is not its requirement's, is corrupt; nothing is repaired or defaulted.
//!
//! The same for every database: a driver's statement is a [`Bind`], its row is [`Columns`].

mod approval;
mod audit;
mod execution;
mod lists;
mod seals;
mod wait;

pub(super) use approval::{ApprovalColumns, approval, audience, bind_decision, bind_question};
pub(super) use audit::{audit_record, bind_event, record_id};
pub(super) use execution::{ExecutionColumns, bind_execution, execution};
pub(super) use lists::list;
pub(super) use seals::{audit_entry, audit_hash, audit_log, bind_log, checkpoint, gaps_text, stored_record};
pub(super) use wait::{WaitColumns, bind_wait, wait, wait_columns};

use crate::domain::audit::leaf::Stored;
use crate::domain::fingerprint::{ArgumentsDigest, DefinitionDigest, Fingerprint};
use crate::domain::ids::{ApprovalId, ExecutionId};
use crate::domain::invocation::{Objective, Subject};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::{StoreError, StoredKey};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::time::Duration;

/// A value of one of the kinds that columns have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Text, or NULL.
    Text(Option<String>),
    /// An integer, or NULL.
    Integer(Option<i64>),
}

/// What takes values in their order: a statement, or a list of them.
pub(super) trait Bind: Sized {
    /// Takes the next value.
    fn bind_value(self, value: Value) -> Self;

    /// Takes the next value, of whatever kind it is.
    fn bind(self, value: impl Into<Value>) -> Self {
        self.bind_value(value.into())
    }
}

/// A row as a driver returned it. A column that is not there, or of another kind, is an error without a cause: the row is
/// corrupt.
pub(super) trait Columns {
    /// A text, or NULL.
    fn text(&self, column: &str) -> Option<Option<Cow<'_, str>>>;

    /// An integer, or NULL.
    fn integer(&self, column: &str) -> Option<Option<i64>>;

    /// A text, or NULL, whatever bytes it has.
    fn stored(&self, column: &str) -> Option<Option<Stored>>;
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<i64> for Value {
    fn from(integer: i64) -> Self {
        Self::Integer(Some(integer))
    }
}

impl From<Option<i64>> for Value {
    fn from(integer: Option<i64>) -> Self {
        Self::Integer(integer)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Integer(Some(i64::from(flag)))
    }
}

/// The columns of an invocation that bind, in the order in which [`bind_subject`] binds them.
macro_rules! subject_columns {
    () => {
        "principal, agent, conversation, connector, account, action, objective_transcript, objective_id, \
         objective_revision, fingerprint, arguments_digest, tool_definition_digest"
    };
}

/// Every binding of an invocation, compared with the values that [`bind_subject`] binds as `$2` to `$13`. NULL is a value
/// of its own: absent equals only absent. The same list as `Subject::first_difference`.
macro_rules! same_subject {
    () => {
        "principal = $2 AND agent = $3 AND conversation IS $4 AND connector = $5 AND account IS $6 AND action = $7 \
         AND objective_transcript IS $8 AND objective_id IS $9 AND objective_revision IS $10 AND fingerprint = $11 \
         AND arguments_digest = $12 AND tool_definition_digest IS $13"
    };
}

/// The columns of an execution, in the order in which [`bind_execution`] binds them.
macro_rules! execution_columns {
    () => {
        concat!(
            subject_columns!(),
            ", connection, labels, id, version, start_time, report_by, approval_id, caller, attempt_id, idempotency_key, \
             retry_of, policy_revision, state, report_time, reported_by, remote_reference, error_code, detail, duration_us"
        )
    };
}

/// The columns of an audit record but its id and time, in the order in which [`bind_event`] binds them.
macro_rules! event_columns {
    () => {
        "kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id, \
         fingerprint, policy_revision, person, decision, reason, note, labels"
    };
}

pub(super) use {event_columns, execution_columns, same_subject, subject_columns};

/// Binds twelve values: see `subject_columns`.
pub(super) fn bind_subject<S: Bind>(statement: S, subject: &Subject) -> S {
    let objective = subject.objective.as_ref();
    statement
        .bind(text(&subject.principal))
        .bind(text(&subject.agent))
        .bind(maybe_text(subject.conversation.as_ref()))
        .bind(text(&subject.connector))
        .bind(maybe_text(subject.account.as_ref()))
        .bind(text(&subject.action))
        .bind(maybe_text(objective.map(|objective| &objective.transcript)))
        .bind(maybe_text(objective.map(|objective| &objective.id)))
        .bind(objective.map(|objective| integer(objective.revision)))
        .bind(subject.fingerprint.to_string())
        .bind(subject.arguments_digest.to_string())
        .bind(subject.tool_definition_digest.map(|digest| digest.to_string()))
}

/// An identifier as it is bound.
pub(super) fn text(identifier: &Identifier) -> String {
    identifier.as_str().to_owned()
}

/// An identifier, or NULL.
pub(super) fn maybe_text(identifier: Option<&Identifier>) -> Option<String> {
    identifier.map(text)
}

/// A count as it is bound. SQLite's integers end before ours; no version or revision comes near either.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A span in microseconds as it is bound.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// What a column is read as.
trait Column<'r>: Sized {
    fn read(row: &'r dyn Columns, column: &str) -> Option<Self>;
}

impl<'r> Column<'r> for Option<Cow<'r, str>> {
    fn read(row: &'r dyn Columns, column: &str) -> Option<Self> {
        row.text(column)
    }
}

impl<'r> Column<'r> for Cow<'r, str> {
    fn read(row: &'r dyn Columns, column: &str) -> Option<Self> {
        row.text(column)?
    }
}

impl Column<'_> for Option<String> {
    fn read(row: &dyn Columns, column: &str) -> Option<Self> {
        Some(row.text(column)?.map(Cow::into_owned))
    }
}

impl Column<'_> for String {
    fn read(row: &dyn Columns, column: &str) -> Option<Self> {
        row.text(column)?.map(Cow::into_owned)
    }
}

impl Column<'_> for Option<i64> {
    fn read(row: &dyn Columns, column: &str) -> Option<Self> {
        row.integer(column)
    }
}

impl Column<'_> for i64 {
    fn read(row: &dyn Columns, column: &str) -> Option<Self> {
        row.integer(column)?
    }
}

/// A row while it is read.
pub(super) struct Fields<'r> {
    row: &'r dyn Columns,
    table: &'static str,
    id: String,
}

impl<'r> Fields<'r> {
    /// A row of `table`, told apart by the column `id`.
    fn new(row: &'r dyn Columns, table: &'static str, id: &str) -> Self {
        let text = row.text(id).flatten().map(Cow::into_owned);
        // A row without a readable id is reported as such by whoever then reads its id.
        let id = text.or_else(|| row.integer(id).flatten().map(|id| id.to_string())).unwrap_or_else(|| "?".to_owned());
        Self { row, table, id }
    }

    fn corrupt(&self) -> StoreError {
        StoreError::Corrupt { table: self.table, id: self.id.clone() }
    }

    fn known<T>(&self, value: Option<T>) -> Result<T, StoreError> {
        value.ok_or_else(|| self.corrupt())
    }

    fn get<T: Column<'r>>(&self, column: &str) -> Result<T, StoreError> {
        self.known(T::read(self.row, column))
    }

    fn time(&self, column: &str) -> Result<Timestamp, StoreError> {
        self.get(column).map(Timestamp::from_micros)
    }

    fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp::from_micros))
    }

    fn count(&self, column: &str) -> Result<u64, StoreError> {
        self.known(u64::try_from(self.get::<i64>(column)?).ok())
    }

    fn span(&self, column: &str) -> Result<Duration, StoreError> {
        self.count(column).map(Duration::from_micros)
    }

    fn flag(&self, column: &str) -> Result<bool, StoreError> {
        match self.get::<i64>(column)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.corrupt()),
        }
    }

    fn parsed<T>(&self, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
        let text: Cow<'_, str> = self.get(column)?;
        self.known(parse(&text))
    }

    fn maybe_parsed<T>(&self, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
        self.get::<Option<Cow<'_, str>>>(column)?.map(|text| self.known(parse(&text))).transpose()
    }

    fn identifier(&self, column: &str) -> Result<Identifier, StoreError> {
        self.parsed(column, identifier)
    }

    fn maybe_identifier(&self, column: &str) -> Result<Option<Identifier>, StoreError> {
        self.maybe_parsed(column, identifier)
    }

    fn list<T: DeserializeOwned>(&self, column: &str) -> Result<T, StoreError> {
        let text: Cow<'_, str> = self.get(column)?;
        self.known(serde_json::from_str(&text).ok())
    }

    fn subject(&self) -> Result<Subject, StoreError> {
        let objective = (
            self.maybe_identifier("objective_transcript")?,
            self.maybe_identifier("objective_id")?,
            self.get::<Option<i64>>("objective_revision")?,
        );
        let objective = match objective {
            (None, None, None) => None,
            (Some(transcript), Some(id), Some(revision)) => {
                Some(Objective { transcript, id, revision: self.known(u64::try_from(revision).ok())? })
            }
            _ => return Err(self.corrupt()),
        };
        Ok(Subject {
            principal: self.identifier("principal")?,
            agent: self.identifier("agent")?,
            conversation: self.maybe_identifier("conversation")?,
            connector: self.identifier("connector")?,
            account: self.maybe_identifier("account")?,
            connection: self.maybe_identifier("connection")?,
            action: self.identifier("action")?,
            objective,
            fingerprint: self.parsed("fingerprint", |text| Fingerprint::parse(text).ok())?,
            arguments_digest: self.parsed("arguments_digest", |text| ArgumentsDigest::parse(text).ok())?,
            tool_definition_digest: self
                .maybe_parsed("tool_definition_digest", |text| DefinitionDigest::parse(text).ok())?,
            labels: self.list("labels")?,
        })
    }
}

/// Reads one entry of an audience: the key by which lists are ordered.
pub(super) fn audience_entry(row: &impl Columns) -> Result<(Timestamp, ApprovalId), StoreError> {
    let fields = Fields::new(row, "approval_audience", "approval_id");
    Ok((fields.time("create_time")?, fields.parsed("approval_id", ApprovalId::parse)?))
}

/// Reads the id of an approval.
pub(super) fn approval_id(row: &impl Columns) -> Result<ApprovalId, StoreError> {
    Fields::new(row, "approvals", "id").parsed("id", ApprovalId::parse)
}

/// Reads the key by which executions are listed.
pub(super) fn execution_key(row: &impl Columns) -> Result<(Timestamp, ExecutionId), StoreError> {
    let fields = Fields::new(row, "executions", "id");
    Ok((fields.time("start_time")?, fields.parsed("id", ExecutionId::parse)?))
}

/// What using an approval up returned.
pub(super) struct Used {
    /// Which of the calls did.
    pub(super) call: usize,
    /// The execution that the approval retries.
    pub(super) retry_of: Option<ExecutionId>,
    /// The approval's version since.
    pub(super) version: u64,
}

/// Reads what using an approval up returned.
pub(super) fn used(row: &impl Columns) -> Result<Used, StoreError> {
    let fields = Fields::new(row, "approvals", "id");
    Ok(Used {
        call: fields.known(usize::try_from(fields.get::<i64>("call")?).ok())?,
        retry_of: fields.maybe_parsed("retry_of", ExecutionId::parse)?,
        version: fields.count("version")?,
    })
}

/// Reads a server secret's id and check value.
pub(super) fn stored_key(row: &impl Columns) -> Result<StoredKey, StoreError> {
    let fields = Fields::new(row, "keys", "id");
    Ok(StoredKey { id: fields.get("id")?, check: fields.get("check_value")? })
}

fn identifier(text: &str) -> Option<Identifier> {
    Identifier::parse(text).ok()
}
