//! A row of `approvals`.

use super::lists::{ClauseEntry, DecisionEntry, OmissionEntry, RuleEntry};
use super::{Bind, Columns, Fields, bind_subject, list, maybe_text, micros, text};
use crate::domain::approval::{
    Approval, ApprovalState, Confirmed, KnownOutcome, PersonDecision, Question, RetriedExecution, StateName,
};
use crate::domain::decision::PolicyReason;
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::preview::{Omission, Preview};
use crate::domain::requirement::{Approver, Requirement};
use crate::domain::scope::Scope;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::StoreError;
use std::collections::BTreeSet;

/// What stands for a preview that was erased: no preview is empty.
const ERASED: &str = "";

/// The columns of a state's facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct ApprovalColumns {
    pub(in crate::storage) state: StateName,
    decide_time: Option<Timestamp>,
    use_by: Option<Timestamp>,
    consume_time: Option<Timestamp>,
    execution: Option<ExecutionId>,
    close_time: Option<Timestamp>,
    closed_by: Option<Identifier>,
    state_reason: Option<String>,
}

impl ApprovalColumns {
    /// The facts of `state`, each in its column and every other column empty.
    pub(in crate::storage) fn of(state: &ApprovalState) -> Self {
        let confirmed = state.confirmed();
        let columns = Self {
            state: state.name(),
            decide_time: confirmed.map(|confirmed| confirmed.at),
            use_by: confirmed.map(|confirmed| confirmed.use_by),
            consume_time: None,
            execution: None,
            close_time: None,
            closed_by: None,
            state_reason: None,
        };
        match state {
            ApprovalState::Pending | ApprovalState::Approved(_) => columns,
            ApprovalState::Denied { at } => Self { decide_time: Some(*at), ..columns },
            ApprovalState::Cancelled { at, by, reason, .. } | ApprovalState::Revoked { at, by, reason, .. } => {
                Self { close_time: Some(*at), closed_by: Some(by.clone()), state_reason: reason.clone(), ..columns }
            }
            ApprovalState::Expired { at, .. } => Self { close_time: Some(*at), ..columns },
            ApprovalState::Consumed { at, execution, .. } => {
                Self { consume_time: Some(*at), execution: Some(*execution), ..columns }
            }
        }
    }

    /// The state that has exactly these facts.
    fn state(&self) -> Option<ApprovalState> {
        let confirmed = match (self.decide_time, self.use_by) {
            (Some(at), Some(use_by)) => Some(Confirmed { at, use_by }),
            _ => None,
        };
        let reason = self.state_reason.clone();
        let state = match self.state {
            StateName::Pending => ApprovalState::Pending,
            StateName::Approved => ApprovalState::Approved(confirmed?),
            StateName::Denied => ApprovalState::Denied { at: self.decide_time? },
            StateName::Cancelled => {
                ApprovalState::Cancelled { at: self.close_time?, by: self.closed_by.clone()?, reason, confirmed }
            }
            StateName::Revoked => ApprovalState::Revoked {
                at: self.close_time?,
                by: self.closed_by.clone()?,
                reason,
                confirmed: confirmed?,
            },
            StateName::Expired => ApprovalState::Expired { at: self.close_time?, confirmed },
            StateName::Consumed => {
                ApprovalState::Consumed { at: self.consume_time?, execution: self.execution?, confirmed: confirmed? }
            }
        };
        // A fact of another state beside these is as wrong as a missing one.
        (Self::of(&state) == *self).then_some(state)
    }

    /// Binds nine values: state, `decide_time`, `use_by`, `consume_time`, `execution_id`, `close_time`, `closed_by`,
    /// `state_reason` and `open_until`.
    pub(in crate::storage) fn bind<S: Bind>(&self, statement: S, decide_by: Timestamp) -> S {
        statement
            .bind(self.state.as_str())
            .bind(self.decide_time.map(Timestamp::micros))
            .bind(self.use_by.map(Timestamp::micros))
            .bind(self.consume_time.map(Timestamp::micros))
            .bind(self.execution.map(|id| id.to_string()))
            .bind(self.close_time.map(Timestamp::micros))
            .bind(maybe_text(self.closed_by.as_ref()))
            .bind(self.state_reason.clone())
            .bind(self.open_until(decide_by))
    }

    /// The deadline of what is open, as it is bound; final approvals have none.
    pub(in crate::storage) fn open_until(&self, decide_by: Timestamp) -> Option<i64> {
        let open_until = match self.state {
            StateName::Pending => Some(decide_by),
            StateName::Approved => self.use_by,
            StateName::Denied
            | StateName::Cancelled
            | StateName::Revoked
            | StateName::Expired
            | StateName::Consumed => None,
        };
        open_until.map(Timestamp::micros)
    }

    fn read(fields: &Fields<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            state: fields.parsed("state", StateName::parse)?,
            decide_time: fields.maybe_time("decide_time")?,
            use_by: fields.maybe_time("use_by")?,
            consume_time: fields.maybe_time("consume_time")?,
            execution: fields.maybe_parsed("execution_id", ExecutionId::parse)?,
            close_time: fields.maybe_time("close_time")?,
            closed_by: fields.maybe_identifier("closed_by")?,
            state_reason: fields.get("state_reason")?,
        })
    }
}

/// Binds a question: the invocation's columns (see `bind_subject`), `connection`, `labels`, `requested_by`, `scope`,
/// `tags`, `policy_revision`, `reason`, `rules`, `clauses`, `exclude_requester`, `decide_within_us`, `use_within_us`,
/// `requirement_digest`, `retry_of`, `retried_outcome`, `wait_id`, `message`, `agent_note`, `omissions` and `preview_json`.
pub(in crate::storage) fn bind_question<S: Bind>(statement: S, question: &Question) -> S {
    let requirement = &question.requirement;
    let clauses: Vec<ClauseEntry> = requirement.clauses().iter().map(ClauseEntry::of).collect();
    let rules: Vec<RuleEntry> = question.rules.iter().map(RuleEntry::of).collect();
    let preview = question.preview.as_ref();
    let omissions: Vec<OmissionEntry> =
        preview.map(|preview| preview.omissions.iter().map(OmissionEntry::of).collect()).unwrap_or_default();
    bind_subject(statement, &question.subject)
        .bind(maybe_text(question.subject.connection.as_ref()))
        .bind(list(&question.subject.labels))
        .bind(text(&question.requested_by))
        .bind(question.scope.as_str())
        .bind(list(&question.tags))
        .bind(question.policy_revision.clone())
        .bind(question.reason.as_str())
        .bind(list(&rules))
        .bind(list(&clauses))
        .bind(requirement.exclude_requester())
        .bind(micros(requirement.decide_within()))
        .bind(micros(requirement.use_within()))
        .bind(requirement.digest().to_string())
        .bind(question.retry_of.map(|retried| retried.id.to_string()))
        .bind(question.retry_of.map(|retried| retried.known.as_str()))
        .bind(question.wait.map(|id| id.to_string()))
        .bind(question.message.clone())
        .bind(question.agent_note.clone())
        .bind(list(&omissions))
        .bind(preview.map_or(ERASED, |preview| preview.json.as_str()).to_owned())
}

/// Binds a person's decision: `person`, `groups`, `as_owner`, `verdict`, `reason`, `caller` and `decide_time`.
pub(in crate::storage) fn bind_decision<S: Bind>(statement: S, decision: &PersonDecision) -> S {
    let groups: Vec<&str> = decision.groups.iter().map(Identifier::as_str).collect();
    statement
        .bind(text(&decision.person))
        .bind(list(&groups))
        .bind(decision.as_owner)
        .bind(decision.verdict.as_str())
        .bind(decision.reason.clone())
        .bind(text(&decision.caller))
        .bind(decision.at.micros())
}

/// Who sees an approval of this question from its first instant on, each as kind and name: its principal, and every person
/// and group of its requirement.
pub(in crate::storage) fn audience(question: &Question) -> BTreeSet<(&'static str, &Identifier)> {
    let entries = question.requirement.clauses().iter().flat_map(|clause| clause.any_of());
    let mut audience = BTreeSet::from([("person", &question.subject.principal)]);
    audience.extend(entries.filter_map(|entry| match entry {
        Approver::Owner => None,
        Approver::Group(name) => Some(("group", name)),
        Approver::Person(id) => Some(("person", id)),
    }));
    audience
}

/// Reads an approval with its decisions.
pub(in crate::storage) fn approval(row: &impl Columns) -> Result<Approval, StoreError> {
    let fields = Fields::new(row, "approvals", "id");
    let decisions: Vec<DecisionEntry> = fields.list("decisions")?;
    let decisions: Option<Vec<_>> = decisions.into_iter().map(DecisionEntry::decision).collect();
    let question = question(&fields)?;
    let ends_by = fields.maybe_time("ends_by")?;
    if ends_by.is_some() != question.wait.is_some() {
        return Err(fields.corrupt());
    }
    Ok(Approval {
        id: fields.parsed("id", ApprovalId::parse)?,
        question,
        create_time: fields.time("create_time")?,
        decide_by: fields.time("decide_by")?,
        ends_by,
        decisions: fields.known(decisions)?,
        state: fields.known(ApprovalColumns::read(&fields)?.state())?,
        version: fields.count("version")?,
    })
}

fn question(fields: &Fields<'_>) -> Result<Question, StoreError> {
    let rules: Vec<RuleEntry> = fields.list("rules")?;
    let rules: Option<Vec<_>> = rules.into_iter().map(RuleEntry::rule).collect();
    let omissions: Vec<OmissionEntry> = fields.list("omissions")?;
    let omissions: Option<Vec<_>> = omissions.into_iter().map(OmissionEntry::omission).collect();
    let retried = fields.maybe_parsed("retry_of", ExecutionId::parse)?;
    let retry_of = match (retried, fields.maybe_parsed("retried_outcome", KnownOutcome::parse)?) {
        (None, None) => None,
        (Some(id), Some(known)) => Some(RetriedExecution { id, known }),
        _ => return Err(fields.corrupt()),
    };
    Ok(Question {
        subject: fields.subject()?,
        requested_by: fields.identifier("requested_by")?,
        scope: fields.parsed("scope", Scope::parse)?,
        tags: fields.list("tags")?,
        preview: preview(fields, fields.known(omissions)?)?,
        message: fields.get("message")?,
        agent_note: fields.get("agent_note")?,
        policy_revision: fields.get("policy_revision")?,
        reason: fields.parsed("reason", PolicyReason::parse)?,
        rules: fields.known(rules)?,
        requirement: requirement(fields)?,
        retry_of,
        wait: fields.maybe_parsed("wait_id", WaitId::parse)?,
    })
}

fn preview(fields: &Fields<'_>, omissions: Vec<Omission>) -> Result<Option<Preview>, StoreError> {
    let json: String = fields.get("preview_json")?;
    match (json.as_str(), omissions.is_empty()) {
        (ERASED, true) => Ok(None),
        (ERASED, false) => Err(fields.corrupt()),
        _ => Ok(Some(Preview { json, omissions })),
    }
}

fn requirement(fields: &Fields<'_>) -> Result<Requirement, StoreError> {
    let clauses: Vec<ClauseEntry> = fields.list("clauses")?;
    let clauses: Option<Vec<_>> = clauses.iter().map(ClauseEntry::clause).collect();
    let requirement = Requirement::new(
        fields.known(clauses)?,
        fields.flag("exclude_requester")?,
        fields.span("decide_within_us")?,
        fields.span("use_within_us")?,
    );
    let requirement = fields.known(requirement)?;
    // The digest is what consuming compares: one that is not this requirement's would let the wrong people's word count.
    let digest: String = fields.get("requirement_digest")?;
    fields.known((requirement.digest().to_string() == digest).then_some(requirement))
}
