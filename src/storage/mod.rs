//! The one trait behind which the approval table stands: whole operations, each one transaction. The store owns time:
//! every read returns its time with the rows, and every write stamps it.
//!
//! Backends keep no rule of the domain: where a write depends on one (the state at a time, what an equal question is),
//! they call the domain or carry its conditions as predicates, and the conformance suite holds them to it.

pub mod changes;
pub mod kept;
mod limits;
pub mod metered;
mod migrations;
pub mod postgres;
mod rows;
mod script;
mod seals;
mod seeding;
pub mod sqlite;
mod sweep;
mod time;
mod waits;

#[cfg(test)]
mod conformance;

pub use limits::{AskedLimit, CoolingOff, OpenLimit, QuestionLimits};
pub use seals::{AuditEntry, CheckpointQuery, LogStanding, SealPass, SealStore, Sealed, SealedSlice};
#[doc(hidden)]
pub use seeding::ApprovalCopy;
pub use sweep::{Retention, Sweep, Swept};
pub use waits::{OpenedWait, RefusedWait, ResumedWait, WaitRecord, Waited};

use crate::domain::approval::{Approval, Question, StateName};
use crate::domain::audit::{AuditEvent, AuditRecord};
use crate::domain::change::Change;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::{Execution, ExecutionStateName, Start};
use crate::domain::ids::{ApprovalId, AttemptId, ExecutionId, WaitId};
use crate::domain::requirement::RequirementDigest;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opening, Resuming, Wait};
use async_trait::async_trait;
use changes::Changes;
use std::fmt;
use std::time::Duration;

/// Rows, with the store's time when they were read.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// What was read. Approvals and executions come as they stand in the table: `as_of(now)` says how they stand now.
    pub row: T,
    /// The store's time, not before any time in the rows.
    pub now: Timestamp,
}

/// Why the store did not answer. The cause is for the log, never for a client.
#[derive(Debug)]
pub enum StoreError {
    /// It cannot be reached, is full, is read-only, or did not answer in time; nothing was written, or it is not known
    /// whether it was.
    Unavailable {
        /// What the driver said.
        cause: String,
    },
    /// It refuses what this binary wrote, or its file is damaged: trying again does not help.
    Inconsistent {
        /// What the driver said.
        cause: String,
    },
    /// A row fits no state of the domain. It is neither repaired nor defaulted.
    Corrupt {
        /// The table.
        table: &'static str,
        /// The row's id.
        id: String,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { cause } => write!(formatter, "the store does not answer: {cause}"),
            Self::Inconsistent { cause } => write!(formatter, "the store is not as it should be: {cause}"),
            Self::Corrupt { table, id } => write!(formatter, "the row {id} of {table} fits no state"),
        }
    }
}

impl std::error::Error for StoreError {}

/// What opening a database did to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaVersions {
    /// The schema's version as it was found; 0 is a new database.
    pub before: i64,
    /// The version that it has now.
    pub after: i64,
}

/// What a save that expects a version did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is committed, with its audit records.
    Yes,
    /// The row has another version, or the change no longer holds at the store's time. Nothing was written.
    Conflict,
}

/// A question that is to be recorded, unless it has been asked.
#[derive(Clone, Debug)]
pub struct NewApproval {
    /// The id of the approval if it is made.
    pub id: ApprovalId,
    /// What is asked.
    pub question: Question,
    /// The caller's own id of the request.
    pub request: Option<RequestKey>,
    /// All of the arguments, sealed for this id.
    pub arguments: SealedArguments,
    /// How much people are asked.
    pub limits: QuestionLimits,
}

/// The arguments of an approval, sealed. Only who has the server secret of `key_id` can open them.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedArguments {
    /// The id of the server secret.
    pub key_id: String,
    /// What was sealed; never empty.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for SealedArguments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealedArguments({} bytes, key {})", self.bytes.len(), self.key_id)
    }
}

/// An approval with what is kept of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithArguments {
    /// The approval, as it stands in the table.
    pub approval: Approval,
    /// Its arguments; none once they are erased, and of what was asked before any were kept.
    pub arguments: Option<SealedArguments>,
}

/// For whom an approval is read. What one is not to see is not loaded, so that it costs what an absent one costs.
#[derive(Clone, Copy, Debug)]
pub enum Viewer<'a> {
    /// The agent's side: approvals of this very pair.
    Agent {
        /// On whose behalf the agent acts.
        principal: &'a Identifier,
        /// The program that acts.
        agent: &'a Identifier,
    },
    /// A person: approvals that have the person or one of these groups in their audience.
    Person {
        /// Who.
        id: &'a Identifier,
        /// Every group of today's policy that the person is in.
        groups: &'a [Identifier],
    },
}

/// A `request_id` with what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The id, unique per caller, principal and agent.
    pub id: Identifier,
    /// SHA-256 over the request, in hexadecimal digits.
    pub digest: String,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requested {
    /// It was recorded.
    Created(Approval),
    /// The same question is open, or the same `request_id` was answered with this approval: as it stands now.
    Existing(Approval),
    /// The `request_id` stands for another request.
    RequestIdReused,
    /// Too many are open. Nothing was recorded.
    LimitReached(OpenLimit),
    /// The principal was asked too much of late. Nothing was recorded.
    AskedTooOften {
        /// From this instant on there is room for one more.
        again_at: Timestamp,
    },
    /// A person has just denied this very question. Nothing was recorded.
    CoolingOff(Box<CoolingOff>),
    /// There is no such wait of the question's principal and agent.
    WaitUnknown,
    /// Its wait does not take it.
    WaitRefused(Box<RefusedWait>),
}

/// What a `request_id` stood for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierRequest {
    /// The digest of that request.
    pub digest: String,
    /// The approval that answered it, as it stands in the table.
    pub approval: Approval,
}

/// Under which requirement an approval may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// Any: today's policy allows the call as it is.
    AnyRequirement,
    /// The stored requirement must have this digest.
    Digest(RequirementDigest),
    /// The row must have this version: its decisions were tested against today's requirement.
    Version(u64),
}

/// Who made an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptKey {
    /// The caller.
    pub caller: Identifier,
    /// The principal.
    pub principal: Identifier,
    /// The agent.
    pub agent: Identifier,
    /// The agent's id of the attempt.
    pub attempt: AttemptId,
}

/// Which approvals a person sees.
#[derive(Clone, Debug)]
pub struct ApprovalQuery {
    /// The person.
    pub person: Identifier,
    /// Every group of today's policy that the person is in.
    pub groups: Vec<Identifier>,
    /// Only those in one of these states at the store's time; empty means all.
    pub states: Vec<StateName>,
    /// Only those older than this (creation, then id), the last of the page before.
    pub before: Option<(Timestamp, ApprovalId)>,
    /// How many at most.
    pub limit: u32,
}

/// Which executions to list. What is none or empty wants all.
#[derive(Clone, Debug, Default)]
pub struct ExecutionQuery {
    /// Only those of this principal.
    pub principal: Option<Identifier>,
    /// Only those of this agent.
    pub agent: Option<Identifier>,
    /// Only those of this connector.
    pub connector: Option<Identifier>,
    /// Only those in one of these states at the store's time.
    pub states: Vec<ExecutionStateName>,
    /// Only the one that this approval started.
    pub approval: Option<ApprovalId>,
    /// Only those that started at this instant or later.
    pub started_from: Option<Timestamp>,
    /// Only those that started before this instant.
    pub started_before: Option<Timestamp>,
    /// Only those older than this (start, then id): how far the page before has looked.
    pub before: Option<(Timestamp, ExecutionId)>,
    /// How many at most.
    pub limit: u32,
}

impl ExecutionQuery {
    /// Whether it wants this execution, as the store's time is `now`.
    pub fn wants(&self, execution: &Execution, now: Timestamp) -> bool {
        let subject = &execution.subject;
        let is = |wanted: &Option<Identifier>, it: &Identifier| wanted.as_ref().is_none_or(|wanted| wanted == it);
        is(&self.principal, &subject.principal)
            && is(&self.agent, &subject.agent)
            && is(&self.connector, &subject.connector)
            && (self.states.is_empty() || self.states.contains(&execution.clone().as_of(now).state.name()))
            && self.approval.is_none_or(|wanted| execution.approval == Some(wanted))
            && self.started_from.is_none_or(|from| execution.start_time >= from)
            && self.started_before.is_none_or(|bound| execution.start_time < bound)
            && self.before.is_none_or(|before| (execution.start_time, execution.id) < before)
    }
}

/// A page of executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionPage {
    /// Newest first, as they stand in the table.
    pub executions: Vec<Execution>,
    /// Where the looking ended before there was a full page, if it did: there may be more before that.
    pub looked_until: Option<(Timestamp, ExecutionId)>,
}

/// Which audit records to read.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only those about this approval.
    pub approval: Option<ApprovalId>,
    /// Only those about this execution.
    pub execution: Option<ExecutionId>,
    /// Only those about this wait and what was asked in it.
    pub wait: Option<WaitId>,
    /// Only those on behalf of this principal.
    pub principal: Option<Identifier>,
    /// Only those written before this position, the last of the page before.
    pub before: Option<i64>,
    /// How many at most.
    pub limit: u32,
}

/// What waits for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Approvals that are pending at the store's time; no more than [`Backlog::MOST`] are counted.
    pub pending: u64,
    /// When the oldest of them was asked; none if none is pending.
    pub oldest: Option<Timestamp>,
    /// When a sidecar last noted that somebody looks; none if none ever has.
    pub approver_seen: Option<Timestamp>,
}

impl Backlog {
    /// More than people will ever get through; what is beyond is not worth the reading.
    pub const MOST: u64 = 100_000;

    /// Whether something has waited for so long and nobody has looked for as long, through any sidecar of the table.
    pub fn is_unwatched(&self, now: Timestamp, after: Duration) -> bool {
        let long_ago = |then| now.since(then) >= after;
        self.oldest.is_some_and(long_ago) && self.approver_seen.is_none_or(long_ago)
    }
}

/// A server secret, as the table knows it: enough to tell whether a sidecar holds it, and of no other use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// A value that only the secret's holder can make, in hexadecimal digits.
    pub check: String,
}

/// The approval table. Every operation is whole or not at all; an acknowledged write survives the process and the power.
#[async_trait]
pub trait Store: SealStore + 'static {
    /// The store's time. Answers only if the store does: this is what readiness asks.
    async fn time(&self) -> Result<Timestamp, StoreError>;

    /// The store's time as last read, plus the monotonic time since: for what must not wait for the store.
    fn estimated_time(&self) -> Timestamp;

    /// Records a question, in one transaction: a `request_id` seen before is answered with its approval; the wait that it
    /// names must be of its principal and agent and take it ([`crate::domain::wait::Wait::accepts`]), which bounds the
    /// approval's deadlines; overdue approvals of the same question are expired first; the same question still open (same caller, every identity but the
    /// connection, fingerprint, tool definition, `retry_of` and requirement digest) is returned, and a new `request_id`
    /// then stands for it; a question of these identities and this fingerprint that a person has denied within `cool_off` is
    /// not asked again, whoever asks and however else it differs; limits are checked; else the approval is made, with its
    /// audience, its sealed arguments, its `request_id` and its audit record.
    async fn request(&self, new: NewApproval) -> Result<Loaded<Requested>, StoreError>;

    /// What a `request_id` stood for, if it is known.
    async fn earlier_request(
        &self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Loaded<Option<EarlierRequest>>, StoreError>;

    /// One approval.
    async fn approval(&self, id: ApprovalId) -> Result<Loaded<Option<Approval>>, StoreError>;

    /// One approval, if this viewer may see it.
    async fn approval_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError>;

    /// The same, for who changes it and saves it over the version that it had: it may be as it was a moment ago, and a
    /// person may not see it. Whatever is not a change that is then saved is to be asked of [`Store::approval_seen_by`].
    async fn approval_to_change(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError> {
        self.approval_seen_by(id, viewer).await
    }

    /// The same with its sealed arguments, of the same instant. An open approval without them is corrupt.
    async fn arguments_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<WithArguments>>, StoreError>;

    /// These approvals, in any order; those that there are.
    async fn approvals_of(&self, ids: &[ApprovalId]) -> Result<Loaded<Vec<Approval>>, StoreError>;

    /// Which approvals change from now on: who listens first and then reads misses nothing. Each approval that is created
    /// or whose state or decisions change is told once that is committed, with its version, in the order of the commits.
    /// What is told is a hint: several changes of one approval may be told as one with the last version, and one may be
    /// told again. None is lost without [`changes::Told::Lagged`].
    fn changes(&self) -> Changes;

    /// The approvals that a person sees, newest first.
    async fn approvals(&self, query: ApprovalQuery) -> Result<Loaded<Vec<Approval>>, StoreError>;

    /// Saves a changed approval and its audit records, if the row still has the version `expected` and the store's time is
    /// before the change's `valid_before`.
    async fn save_approval(&self, change: Change<Approval>, expected: u64) -> Result<Saved, StoreError>;

    /// Uses an approval, once: one conditional statement whose predicates are every binding of `start.subject`, the state,
    /// `use_by` against the store's own time, what `accepting` says, that the attempt is new, and that what it retries has
    /// not succeeded; the execution and the audit record are of the same transaction. None if the statement changed
    /// nothing.
    async fn consume(&self, start: Start, accepting: Accepting) -> Result<Option<Execution>, StoreError>;

    /// Starts an execution without an approval, if the attempt is new and what it retries is of the same principal and
    /// agent and has not succeeded. None if nothing was written.
    async fn start(&self, start: Start) -> Result<Option<Execution>, StoreError>;

    /// The rows that a consumption depends on, in one transaction: the approval, the attempt, and the execution that the
    /// approval (or, without one, `retry_of`) retries.
    async fn consume_facts(
        &self,
        approval: Option<ApprovalId>,
        attempt: &AttemptKey,
        retry_of: Option<ExecutionId>,
    ) -> Result<Loaded<ConsumeFacts>, StoreError>;

    /// One execution.
    async fn execution(&self, id: ExecutionId) -> Result<Loaded<Option<Execution>>, StoreError>;

    /// Executions, newest first. It looks at a bounded number of them, so that whatever is wanted costs no more than a page:
    /// a page may be short, or empty, and yet not the last.
    async fn executions(&self, query: ExecutionQuery) -> Result<Loaded<ExecutionPage>, StoreError>;

    /// Saves a changed execution and its audit records, under the same conditions as [`Store::save_approval`].
    async fn save_execution(&self, change: Change<Execution>, expected: u64) -> Result<Saved, StoreError>;

    /// Opens a wait, in one transaction: the transcript's active wait is read, the domain decides
    /// ([`Opening::against`]), and what ends or moves on withdraws its approvals.
    async fn open_wait(&self, opening: Opening) -> Result<Loaded<Waited<OpenedWait>>, StoreError>;

    /// One wait's own row; none if there is none of that id. Whose a wait is never changes, so this is asked before anything
    /// else of it is read.
    async fn wait_alone(&self, id: WaitId) -> Result<Loaded<Option<Wait>>, StoreError>;

    /// One wait; none if there is none of that id.
    async fn wait(&self, id: WaitId) -> Result<Loaded<Option<WaitRecord>>, StoreError>;

    /// Lets an agent go on, in one transaction, unless one of the wait's approvals is pending; none if there is no such
    /// wait. One that is overdue is expired first.
    async fn resume_wait(
        &self,
        id: WaitId,
        resuming: Resuming,
    ) -> Result<Loaded<Option<Waited<ResumedWait>>>, StoreError>;

    /// Closes a wait and withdraws its approvals, in one transaction; none if there is no such wait. One that is overdue
    /// is expired instead.
    async fn close_wait(
        &self,
        id: WaitId,
        caller: &Identifier,
        reason: Option<&str>,
    ) -> Result<Loaded<Option<Waited<WaitRecord>>>, StoreError>;

    /// Writes audit records that go with no other change: refusals.
    async fn record(&self, events: Vec<AuditEvent>) -> Result<(), StoreError>;

    /// Audit records, newest first.
    async fn audit_records(&self, query: AuditQuery) -> Result<Loaded<Vec<AuditRecord>>, StoreError>;

    /// Runs one step of upkeep over the `limit` rows that have waited longest, in one transaction.
    async fn sweep(&self, step: Sweep, limit: u32) -> Result<Swept, StoreError>;

    /// How many approvals wait for people, and since when. It reads no more than [`Backlog::MOST`] of those that stand in the
    /// table as pending, the oldest first: where so many of them are overdue, the rest is not seen.
    async fn backlog(&self) -> Result<Loaded<Backlog>, StoreError>;

    /// Notes, at the store's time, that somebody who may answer looks at what waits.
    async fn note_approver(&self) -> Result<(), StoreError>;

    /// Every server secret that this table has been used with.
    async fn keys(&self) -> Result<Vec<StoredKey>, StoreError>;

    /// The ids of the server secrets that arguments are sealed under, however many rows there are.
    async fn keys_in_use(&self) -> Result<Vec<String>, StoreError>;

    /// Notes a server secret as known, unless its id is there.
    async fn add_key(&self, key: StoredKey) -> Result<(), StoreError>;

    /// Finishes what is in flight and lets go of the table.
    async fn close(&self);
}
