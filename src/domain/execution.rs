//! What happened after an action was let through. Consumed does not mean sent: the table of approvals says what was
//! authorised; only the outside world says what happened, through whoever made the call.
//!
//! ```text
//! started ──report──▶ succeeded | failed | unknown        unknown ──report, with evidence──▶ succeeded | failed
//!    │ report_by passes ▶ unknown
//! ```
//!
//! What each report does: the state that is reached, `=` where it had been said before, `final` where another outcome is
//! known, `no evidence` where what was unknown is to be settled without `remote_reference` or `detail`. Overdue is
//! started, from `report_by` on; timed out is the same, once it is written down.
//!
//! ```text
//!                           started      overdue      timed out    unknown      succeeded    failed
//! SUCCEEDED                 succeeded    no evidence  no evidence  no evidence  =            final
//! SUCCEEDED, with evidence  succeeded    succeeded    succeeded    succeeded    =            final
//! FAILED                    failed       no evidence  no evidence  no evidence  final        =
//! FAILED, with evidence     failed       failed       failed       failed       final        =
//! UNKNOWN                   unknown      unknown      unknown      =            final        final
//! UNKNOWN, with evidence    unknown      unknown      unknown      =            final        final
//! ```

use super::approval::KnownOutcome;
use super::audit::{AuditEvent, AuditKind};
use super::change::Change;
use super::decision::PolicyReason;
use super::ids::{ApprovalId, AttemptId, ExecutionId};
use super::invocation::Subject;
use super::text::Identifier;
use super::time::Timestamp;
use std::fmt;
use std::time::Duration;

/// One call that was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its id.
    pub id: ExecutionId,
    /// The approval that it used up; none where the policy let the call through without one.
    pub approval: Option<ApprovalId>,
    /// The invocation's identities, fingerprint and digests.
    pub subject: Subject,
    /// The caller that consumed.
    pub caller: Identifier,
    /// The agent's id of this attempt.
    pub attempt: AttemptId,
    /// The key for the remote service; an equal retry has the same.
    pub idempotency_key: String,
    /// The execution that it retries.
    pub retry_of: Option<ExecutionId>,
    /// The revision of the policy that let it through.
    pub policy_revision: String,
    /// When.
    pub start_time: Timestamp,
    /// From this instant on an unreported execution is unknown.
    pub report_by: Timestamp,
    /// What is known of it.
    pub state: ExecutionState,
    /// Grows with every change, from 1.
    pub version: u64,
}

/// What is known of an execution, with the facts of that state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// Nobody has reported yet.
    Started,
    /// The effect happened.
    Succeeded(Report),
    /// The effect did not happen.
    Failed(Report),
    /// Nobody knows: somebody reported so, or nobody reported in time.
    Unknown(Option<Report>),
}

impl ExecutionState {
    /// The name of the state, without its facts.
    pub const fn name(&self) -> ExecutionStateName {
        match self {
            Self::Started => ExecutionStateName::Started,
            Self::Succeeded(_) => ExecutionStateName::Succeeded,
            Self::Failed(_) => ExecutionStateName::Failed,
            Self::Unknown(_) => ExecutionStateName::Unknown,
        }
    }

    /// The report it rests on, if it rests on one.
    pub const fn report(&self) -> Option<&Report> {
        match self {
            Self::Started => None,
            Self::Succeeded(report) | Self::Failed(report) => Some(report),
            Self::Unknown(report) => report.as_ref(),
        }
    }
}

/// The name of an execution's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExecutionStateName {
    /// Nobody has reported yet.
    Started,
    /// The effect happened.
    Succeeded,
    /// The effect did not happen.
    Failed,
    /// Nobody knows.
    Unknown,
}

impl ExecutionStateName {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Started, Self::Succeeded, Self::Failed, Self::Unknown];

    /// The word for it in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// The state of that word, if it is one.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What the enforcing process says became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The effect happened.
    Succeeded,
    /// The effect did not happen.
    Failed,
    /// It may or may not have happened.
    Unknown,
}

impl Outcome {
    /// The word for it in the audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A report's facts. Its `Debug` leaves out what was said in free text.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    /// When it came.
    pub at: Timestamp,
    /// The caller that reported.
    pub by: Identifier,
    /// The remote resource's id.
    pub remote_reference: Option<String>,
    /// The remote service's error code.
    pub error_code: Option<String>,
    /// Anything else.
    pub detail: Option<String>,
    /// How long the call took, to the microsecond.
    pub duration: Option<Duration>,
}

impl Report {
    /// Whether it says how the outcome is known. White space says nothing.
    fn is_evidence(&self) -> bool {
        [&self.remote_reference, &self.detail].into_iter().flatten().any(|said| !said.trim().is_empty())
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Report").field("at", &self.at).field("by", &self.by).finish_non_exhaustive()
    }
}

/// Why a report was refused. The record is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportRefusal {
    /// Another outcome is known.
    OutcomeFinal(ExecutionStateName),
    /// What was unknown is settled only by who can say how it is known: with `remote_reference` or `detail`.
    EvidenceMissing,
}

impl ReportRefusal {
    /// The stable reason of it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::OutcomeFinal(_) => "OUTCOME_FINAL",
            Self::EvidenceMissing => "OUTCOME_EVIDENCE_MISSING",
        }
    }
}

/// What a report did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It changes the record: to be saved.
    Changed(Box<Change<Execution>>),
    /// The same outcome had been reported before.
    AsItWas,
}

/// A call that is about to be let through: an execution before the store has given it its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The execution's id.
    pub id: ExecutionId,
    /// The approval that is used up; none where the policy lets the call through without one.
    pub approval: Option<ApprovalId>,
    /// The invocation, as it is about to be made.
    pub subject: Subject,
    /// The caller that consumes.
    pub caller: Identifier,
    /// The agent's id of this attempt.
    pub attempt: AttemptId,
    /// The key for the remote service, unless it is an equal retry.
    pub new_idempotency_key: String,
    /// The execution that it retries. With an approval the store takes the approval's own.
    pub retry_of: Option<ExecutionId>,
    /// The revision of the policy that lets it through.
    pub policy_revision: String,
    /// That policy's decision, for the audit.
    pub decision: &'static str,
    /// That policy's reason, for the audit.
    pub reason: PolicyReason,
    /// How long the enforcing process has to report.
    pub report_within: Duration,
}

impl Start {
    /// The execution that starts at `now`, retrying what `retried` says.
    pub fn at(self, retried: Option<&Execution>, now: Timestamp) -> Change<Execution> {
        let kind = if self.approval.is_some() { AuditKind::ApprovalConsumed } else { AuditKind::ExecutionStarted };
        let event = AuditEvent {
            approval: self.approval,
            execution: Some(self.id),
            policy_revision: Some(self.policy_revision.clone()),
            reason: Some(self.reason.as_str().to_owned()),
            ..AuditEvent::about(kind, &self.subject, Some(&self.caller), self.decision)
        };
        let inherited = retried.filter(|retried| retried.is_equal_call(&self.subject));
        let next = Execution {
            id: self.id,
            approval: self.approval,
            caller: self.caller,
            attempt: self.attempt,
            idempotency_key: inherited.map_or(self.new_idempotency_key, |retried| retried.idempotency_key.clone()),
            retry_of: retried.map(|retried| retried.id),
            policy_revision: self.policy_revision,
            start_time: now,
            report_by: now.plus(self.report_within),
            state: ExecutionState::Started,
            version: 1,
            subject: self.subject,
        };
        Change { next, events: vec![event], valid_before: None }
    }
}

impl Execution {
    /// Whether the execution may be named as the one that `subject` retries: it is of the same principal and agent.
    pub fn is_theirs(&self, subject: &Subject) -> bool {
        self.subject.principal == subject.principal && self.subject.agent == subject.agent
    }

    /// Whether its effect is known to have happened, so that doing it again is not a retry.
    pub fn has_succeeded(&self) -> bool {
        matches!(self.state, ExecutionState::Succeeded(_))
    }

    /// Whether `subject` is the same call to the remote service: connector, account, action and arguments. Who asks for
    /// it, in which conversation and for which objective, is nothing to the remote service.
    pub fn is_equal_call(&self, subject: &Subject) -> bool {
        self.subject.connector == subject.connector
            && self.subject.account == subject.account
            && self.subject.action == subject.action
            && self.subject.arguments_digest == subject.arguments_digest
    }

    /// The record as it stands at `now`: unknown if nobody reported by `report_by`, as the sweeper would write it.
    #[must_use]
    pub fn as_of(self, now: Timestamp) -> Self {
        if self.is_overdue(now) {
            Self { state: ExecutionState::Unknown(None), version: self.version.saturating_add(1), ..self }
        } else {
            self
        }
    }

    /// The change that writes down that nobody reported in time; none if somebody did, or still may.
    pub fn timed_out(&self, now: Timestamp) -> Option<Change<Self>> {
        self.is_overdue(now).then(|| Change {
            next: self.clone().as_of(now),
            events: vec![self.event(AuditKind::ExecutionTimedOut, None, Outcome::Unknown.as_str())],
            valid_before: None,
        })
    }

    /// Whether the same permit may be handed out again: no outcome yet, and time to report one.
    pub fn may_be_replayed(&self, now: Timestamp) -> bool {
        self.state == ExecutionState::Started && now < self.report_by
    }

    /// What a person should know of it before it is done again; none if it succeeded.
    pub fn known_outcome(&self, now: Timestamp) -> Option<KnownOutcome> {
        match &self.state {
            ExecutionState::Started if self.is_overdue(now) => Some(KnownOutcome::Unknown),
            ExecutionState::Started => Some(KnownOutcome::Started),
            ExecutionState::Failed(_) => Some(KnownOutcome::Failed),
            ExecutionState::Unknown(_) => Some(KnownOutcome::Unknown),
            ExecutionState::Succeeded(_) => None,
        }
    }

    /// Says what became of it. The same outcome again changes nothing; what is unknown may be settled once.
    ///
    /// # Errors
    /// Another outcome is known; or what was unknown is to be settled without evidence.
    pub fn report(&self, outcome: Outcome, report: Report) -> Result<Reported, ReportRefusal> {
        let now = report.at;
        let state = match (&self.clone().as_of(now).state, outcome) {
            (ExecutionState::Succeeded(_), Outcome::Succeeded)
            | (ExecutionState::Failed(_), Outcome::Failed)
            | (ExecutionState::Unknown(Some(_)), Outcome::Unknown) => return Ok(Reported::AsItWas),
            (ExecutionState::Succeeded(_) | ExecutionState::Failed(_), _) => {
                return Err(ReportRefusal::OutcomeFinal(self.state.name()));
            }
            (ExecutionState::Unknown(_), Outcome::Succeeded | Outcome::Failed) if !report.is_evidence() => {
                return Err(ReportRefusal::EvidenceMissing);
            }
            (ExecutionState::Started | ExecutionState::Unknown(_), Outcome::Succeeded) => {
                ExecutionState::Succeeded(report)
            }
            (ExecutionState::Started | ExecutionState::Unknown(_), Outcome::Failed) => ExecutionState::Failed(report),
            (ExecutionState::Started | ExecutionState::Unknown(None), Outcome::Unknown) => {
                ExecutionState::Unknown(Some(report))
            }
        };
        let by = state.report().map(|report| report.by.clone());
        let event = self.event(AuditKind::ExecutionReported, by.as_ref(), outcome.as_str());
        let next = Self { state, version: self.version.saturating_add(1), ..self.clone() };
        // A report in time may save what came too late as unknown: `Started` is left only before `report_by`.
        let valid_before = (self.state == ExecutionState::Started && now < self.report_by).then_some(self.report_by);
        Ok(Reported::Changed(Box::new(Change { next, events: vec![event], valid_before })))
    }

    fn event(&self, kind: AuditKind, caller: Option<&Identifier>, decision: &str) -> AuditEvent {
        AuditEvent {
            approval: self.approval,
            execution: Some(self.id),
            ..AuditEvent::about(kind, &self.subject, caller, decision)
        }
    }

    fn is_overdue(&self, now: Timestamp) -> bool {
        self.state == ExecutionState::Started && now >= self.report_by
    }
}

#[cfg(test)]
mod tests;
