//! What the sidecar counts, and the text that `/metrics` answers.
//!
//! Every label value comes from an enum, a descriptor or a stable reason of ours, never from a request: no agent, person,
//! connector, action or argument is in any series, and the number of series has a bound that no caller moves. Counting
//! touches atomics alone. What is read from elsewhere (the store, the writer) is kept here by who asks for it, so that a
//! scrape waits for nobody.
//!
//! - `cells`: counters, gauges, histograms
//! - `connections`: what came to the listeners, before any call
//! - `calls`: calls by method; `reasons`: of what was refused
//! - `page`: the families, in the order in which they are shown
//! - `process`: what the system knows of this process

mod calls;
mod cells;
mod connections;
mod page;
mod process;
mod reasons;

pub use calls::{Calls, Method, MethodId};
pub use cells::{CALL_BOUNDS, Counter, CounterBy, Gauge, Histogram, Label, PEOPLE_BOUNDS};
pub use connections::{ConnectionRefusal, Connections, ListenerName};
pub use page::Format;
pub use reasons::REASONS;

use crate::domain::approval::Verdict;
use crate::domain::audit::AuditKind;
use crate::domain::decision::PolicyReason;
use crate::domain::execution::Outcome;
use crate::domain::time::Timestamp;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Everything that is counted.
pub struct Metrics {
    /// Connections.
    pub connections: Connections,
    /// Calls.
    pub calls: Calls,
    /// Credentials that were refused.
    pub credentials: CounterBy<CredentialRefusal>,
    /// What `Evaluate` answered.
    pub evaluations: CounterBy<PolicyReason>,
    /// The audit of evaluations, where there is one.
    pub evaluation_audit: EvaluationAudit,
    /// From the question to each person's answer.
    pub time_to_decide: TimeToDecide,
    /// Outcomes that were reported.
    pub executions_reported: CounterBy<Outcome>,
    /// Operations of the store.
    pub store: StoreOperations,
    /// What waits for people.
    pub backlog: Backlog,
    /// Streams that tell somebody of approvals.
    pub watchers: Watchers,
    /// Server secrets that the table wants and that are not at hand.
    pub secrets_missing: Gauge,
    /// The policy in force.
    pub policy: PolicyStatus,
    writer: OnceLock<Source<WriterFigures>>,
    sweeper: OnceLock<Source<SweeperFigures>>,
    sealer: OnceLock<Source<SealerFigures>>,
}

/// Where figures are read that somebody else keeps.
type Source<T> = Box<dyn Fn() -> Option<T> + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Nothing counted yet, of these methods.
    pub fn new(methods: Vec<Method>) -> Self {
        Self {
            connections: Connections::default(),
            calls: Calls::new(methods),
            credentials: CounterBy::default(),
            evaluations: CounterBy::default(),
            evaluation_audit: EvaluationAudit::default(),
            time_to_decide: TimeToDecide::default(),
            executions_reported: CounterBy::default(),
            store: StoreOperations::default(),
            backlog: Backlog::default(),
            watchers: Watchers::default(),
            secrets_missing: Gauge::default(),
            policy: PolicyStatus::default(),
            sweeper: OnceLock::new(),
            sealer: OnceLock::new(),
            writer: OnceLock::new(),
        }
    }

    /// Where the writer's figures are read at each scrape; it must not wait. The first one that is named stays.
    pub fn read_writer(&self, source: impl Fn() -> Option<WriterFigures> + Send + Sync + 'static) {
        // A second one would be of a second store, and a process has one.
        let _ = self.writer.set(Box::new(source));
    }

    /// What `/metrics` answers.
    pub fn text(self: &Arc<Self>, format: Format) -> String {
        page::text(self, format)
    }

    /// The same of the background work.
    pub fn read_sweeper(&self, source: impl Fn() -> Option<SweeperFigures> + Send + Sync + 'static) {
        // As above.
        let _ = self.sweeper.set(Box::new(source));
    }

    /// The same of whoever seals the audit.
    pub fn read_sealer(&self, source: impl Fn() -> Option<SealerFigures> + Send + Sync + 'static) {
        // As above.
        let _ = self.sealer.set(Box::new(source));
    }

    fn sealer(&self) -> Option<SealerFigures> {
        self.sealer.get().and_then(|source| source())
    }

    fn sweeper(&self) -> Option<SweeperFigures> {
        self.sweeper.get().and_then(|source| source())
    }

    fn writer(&self) -> Option<WriterFigures> {
        self.writer.get().and_then(|source| source())
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Label for Outcome {
    const ALL: &'static [Self] = &[Self::Succeeded, Self::Failed, Self::Unknown];

    fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl Label for PolicyReason {
    const ALL: &'static [Self] = &PolicyReason::ALL;

    fn text(self) -> &'static str {
        self.as_str()
    }
}

/// The decision that has this reason: each has one.
const fn decision_of(reason: PolicyReason) -> &'static str {
    match reason {
        PolicyReason::ConnectorUnknown
        | PolicyReason::ConnectorDisabled
        | PolicyReason::AgentNotAllowed
        | PolicyReason::AccountNotAllowed
        | PolicyReason::ActionUnknown
        | PolicyReason::ScopeExceedsCeiling
        | PolicyReason::ActionNotCurated
        | PolicyReason::DeniedByRule
        | PolicyReason::ToolDefinitionChanged
        | PolicyReason::NoEligibleApprover => "DENY",
        PolicyReason::ConfirmationByRule | PolicyReason::ConfirmationByMode => "CONFIRMATION_REQUIRED",
        PolicyReason::Allowed => "ALLOW",
    }
}

/// A credential that did not open a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialRefusal {
    /// None came, or not one.
    Missing,
    /// It is nobody's.
    Invalid,
    /// It has expired.
    Expired,
    /// It is more than one caller's.
    Ambiguous,
    /// A certificate that the listener's authorities no longer vouch for.
    Untrusted,
    /// A token of an issuer that is not good.
    Jwt,
    /// One that is signed with a key that is not known.
    KeyUnknown,
    /// One of an issuer whose keys have not been had so far.
    KeysMissing,
    /// It opens another door.
    WrongRole,
}

impl Label for CredentialRefusal {
    const ALL: &'static [Self] = &[
        Self::Missing,
        Self::Invalid,
        Self::Expired,
        Self::Ambiguous,
        Self::Untrusted,
        Self::Jwt,
        Self::KeyUnknown,
        Self::KeysMissing,
        Self::WrongRole,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Missing => "CREDENTIALS_MISSING",
            Self::Invalid => "CREDENTIALS_INVALID",
            Self::Expired => "CREDENTIALS_EXPIRED",
            Self::Ambiguous => "CREDENTIALS_AMBIGUOUS",
            Self::Untrusted => "CERTIFICATE_NOT_TRUSTED",
            Self::Jwt => "JWT_INVALID",
            Self::KeyUnknown => "JWT_KEY_UNKNOWN",
            Self::KeysMissing => "ISSUER_KEYS_MISSING",
            Self::WrongRole => "ROLE_NOT_ALLOWED",
        }
    }
}

/// The audit of evaluations: how much waits to be written, and what that cost callers.
#[derive(Debug, Default)]
pub struct EvaluationAudit {
    /// Records that are answered for and not committed yet.
    pub waiting: Gauge,
    /// Evaluations that waited for a place.
    pub held: Counter,
    /// Evaluations that were answered with `UNAVAILABLE`, for want of a place.
    pub refused: Counter,
}

/// How an operation of the store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// It did not answer.
    Unavailable,
    /// It is not as it should be.
    Inconsistent,
    /// A row fits no state.
    Corrupt,
}

impl Label for StoreFailure {
    const ALL: &'static [Self] = &[Self::Unavailable, Self::Inconsistent, Self::Corrupt];

    fn text(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Inconsistent => "inconsistent",
            Self::Corrupt => "corrupt",
        }
    }
}

/// One operation's counts.
#[derive(Debug)]
pub struct OperationFigures {
    /// Its name.
    pub name: &'static str,
    /// How long each took, failed or not.
    pub duration: Histogram,
    /// Those that failed.
    pub failures: CounterBy<StoreFailure>,
}

/// The store's operations, which whoever wraps the store names once.
#[derive(Debug, Default)]
pub struct StoreOperations(OnceLock<Arc<[OperationFigures]>>);

impl StoreOperations {
    /// The counts of these operations, in this order. A second list of names is of no use and changes nothing.
    pub fn of(&self, names: &[&'static str]) -> Arc<[OperationFigures]> {
        let figures = self.0.get_or_init(|| {
            let figures = names.iter().map(|name| OperationFigures {
                name,
                duration: Histogram::new(CALL_BOUNDS),
                failures: CounterBy::default(),
            });
            figures.collect()
        });
        Arc::clone(figures)
    }

    fn read(&self) -> &[OperationFigures] {
        self.0.get().map_or(&[], |figures| figures)
    }
}

/// What was written to the store, by this process since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterFigures {
    /// Writes that were committed.
    pub writes: u64,
    /// Commits that they shared.
    pub commits: u64,
    /// Batches that were undone because one of their writes failed; none where each write is committed by itself.
    pub undone: Option<u64>,
    /// Writes that ran again because others were in the way; none where there are no others.
    pub retries: Option<u64>,
    /// Times that a connection was given up.
    pub reconnects: u64,
    /// Audit records that were committed, by kind: what became of approvals and executions is counted by what the audit
    /// says of it.
    pub records: Vec<(AuditKind, u64)>,
}

/// How long people took, by what they answered.
#[derive(Debug)]
pub struct TimeToDecide {
    approvals: Histogram,
    denials: Histogram,
}

impl Default for TimeToDecide {
    fn default() -> Self {
        Self { approvals: Histogram::new(PEOPLE_BOUNDS), denials: Histogram::new(PEOPLE_BOUNDS) }
    }
}

impl TimeToDecide {
    /// One answer that took so long.
    pub fn observe(&self, verdict: Verdict, took: Duration) {
        match verdict {
            Verdict::Approve => self.approvals.observe(took),
            Verdict::Deny => self.denials.observe(took),
        }
    }

    fn read(&self) -> [(&'static str, &Histogram); 2] {
        [(Verdict::Approve.as_str(), &self.approvals), (Verdict::Deny.as_str(), &self.denials)]
    }
}

/// Approvals that wait for people, as last read.
#[derive(Debug, Default)]
pub struct Backlog(Mutex<Option<Waiting>>);

/// What waits for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many.
    pub pending: u64,
    /// The oldest for so long.
    pub oldest_age: Duration,
    /// Whether nobody looks.
    pub is_unwatched: bool,
}

impl Backlog {
    /// So it stands.
    pub fn read(&self, waiting: Waiting) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }

    /// Nobody knows: the store does not say. Better no figure than an old one.
    pub fn unknown(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get(&self) -> Option<Waiting> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom a stream tells of approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// An agent that waits for an answer.
    Agent,
    /// Somebody who may give one. None open, and nobody is told that something waits.
    Approver,
}

impl Label for Watcher {
    const ALL: &'static [Self] = &[Self::Agent, Self::Approver];

    fn text(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Approver => "approver",
        }
    }
}

/// Streams that tell somebody of approvals.
#[derive(Debug, Default)]
pub struct Watchers {
    agents: Gauge,
    approvers: Gauge,
    approver_called: AtomicBool,
}

impl Watchers {
    /// Somebody who may answer has called.
    pub fn approver_called(&self) {
        self.approver_called.store(true, Ordering::Relaxed);
    }

    /// Whether anybody who may answer watches now, or has called since this was last asked.
    pub fn approver_looks(&self) -> bool {
        let called = self.approver_called.swap(false, Ordering::Relaxed);
        called || self.approvers.get() > 0
    }

    fn of(&self, watcher: Watcher) -> &Gauge {
        match watcher {
            Watcher::Agent => &self.agents,
            Watcher::Approver => &self.approvers,
        }
    }
}

/// A stream that is open until this is dropped.
#[derive(Debug)]
pub struct Watching(Arc<Metrics>, Watcher);

impl Watching {
    /// One more stream for such a watcher.
    pub fn begin(metrics: &Arc<Metrics>, watcher: Watcher) -> Self {
        metrics.watchers.of(watcher).add(1);
        Self(Arc::clone(metrics), watcher)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.of(self.1).add(-1);
    }
}

/// Which policy is in force since when, and how often it was read.
#[derive(Debug, Default)]
pub struct PolicyStatus {
    in_force: Mutex<Option<(String, Timestamp)>>,
    loaded: Counter,
    refused: Counter,
}

impl PolicyStatus {
    /// A policy of this revision was loaded at this time, at the start or again.
    pub fn loaded(&self, revision: &str, at: Timestamp) {
        self.loaded.one();
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = Some((revision.to_owned(), at));
    }

    /// What was found is no policy: the last good one stays in force.
    pub fn refused(&self) {
        self.refused.one();
    }

    fn in_force(&self) -> Option<(String, Timestamp)> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the background work did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweeperFigures {
    /// Passes that came to their end.
    pub passes: u64,
    /// Passes that failed.
    pub failures: u64,
    /// How overdue the most overdue is that is not written down.
    pub lag: Duration,
    /// Approvals that expired.
    pub expired: u64,
    /// Executions that nobody reported in time.
    pub timed_out: u64,
    /// Approvals that were erased.
    pub erased: u64,
    /// Rows that were deleted.
    pub deleted: u64,
}

/// What sealing the audit came to since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealerFigures {
    /// Passes that failed, and checkpoints that could not be written to their file.
    pub failures: u64,
    /// Records that this process sealed.
    pub sealed: u64,
    /// Checkpoints that this process signed.
    pub checkpoints: u64,
    /// Checkpoints that were due and not signed, because the log is not what was signed before.
    pub refusals: u64,
    /// For how long the oldest record that has no seal has had none.
    pub lag: Duration,
    /// The size and the time, in seconds since the epoch, of the newest checkpoint.
    pub newest: Option<(u64, i64)>,
}

#[cfg(test)]
mod tests;
