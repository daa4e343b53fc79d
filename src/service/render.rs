//! Writes what the domain holds into messages.

use crate::domain::approval::{self, ApprovalState, Closed, PersonDecision, StateName, Verdict};
use crate::domain::audit::AuditRecord;
use crate::domain::decision::{Check, CheckOutcome, Decision, MatchedRule, PolicyAnswer};
use crate::domain::execution::{Execution, ExecutionStateName};
use crate::domain::invocation::Objective;
use crate::domain::preview::{Omission, OmissionKind};
use crate::domain::requirement::Requirement;
use crate::domain::scope::Scope;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Ending, Wait, WaitState};
use crate::engine::{Permit, ResumedWait, WaitRecord};
use crate::proto;
use std::time::Duration;

pub(super) fn time(time: Timestamp) -> prost_types::Timestamp {
    let micros = time.micros();
    prost_types::Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: i32::try_from(micros.rem_euclid(1_000_000) * 1_000).unwrap_or(0),
    }
}

fn span(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or(0),
    }
}

fn optional(text: Option<&Identifier>) -> String {
    text.map_or(String::new(), ToString::to_string)
}

pub(super) fn decision(decision: &Decision) -> i32 {
    match decision {
        Decision::Allow => proto::Decision::Allow,
        Decision::Deny => proto::Decision::Deny,
        Decision::ConfirmationRequired(_) => proto::Decision::ConfirmationRequired,
    }
    .into()
}

fn scope(scope: Scope) -> i32 {
    match scope {
        Scope::Read => proto::Scope::Read,
        Scope::Write => proto::Scope::Write,
        Scope::Admin => proto::Scope::Admin,
    }
    .into()
}

fn requirement(requirement: &Requirement) -> proto::Requirement {
    proto::Requirement {
        clauses: requirement
            .clauses()
            .iter()
            .map(|clause| proto::Clause {
                any_of: clause.any_of().iter().map(ToString::to_string).collect(),
                quorum: clause.quorum(),
            })
            .collect(),
        exclude_requester: requirement.exclude_requester(),
        decide_within: Some(span(requirement.decide_within())),
        use_within: Some(span(requirement.use_within())),
        always_approve_offered: false,
    }
}

pub(super) fn rules(rules: &[MatchedRule]) -> Vec<proto::MatchedRule> {
    rules
        .iter()
        .map(|rule| proto::MatchedRule {
            connector: rule.connector.clone(),
            name: rule.name.clone(),
            effect: rule.effect.as_str().to_owned(),
            error: rule.error.clone().unwrap_or_default(),
        })
        .collect()
}

fn check(check: Check) -> proto::Check {
    let outcome = match check.outcome {
        CheckOutcome::Passed => proto::CheckOutcome::Passed,
        CheckOutcome::Decided => proto::CheckOutcome::Decided,
        CheckOutcome::NotReached => proto::CheckOutcome::NotReached,
    };
    proto::Check { number: check.number, name: check.name.to_owned(), outcome: outcome.into(), detail: check.detail }
}

pub(super) fn evaluation(answer: PolicyAnswer, fingerprint: String, evaluation_id: String) -> proto::EvaluateResponse {
    proto::EvaluateResponse {
        decision: decision(&answer.decision),
        reason: answer.reason.as_str().to_owned(),
        message: answer.message,
        rules: rules(&answer.rules),
        policy_revision: answer.policy_revision,
        fingerprint,
        evaluation_id,
        requirement: match &answer.decision {
            Decision::ConfirmationRequired(asked) => Some(requirement(asked)),
            Decision::Allow | Decision::Deny => None,
        },
        checks: answer.checks.into_iter().map(check).collect(),
        scope: answer.scope.map_or(proto::Scope::Unspecified.into(), scope),
    }
}

fn objective(objective: &Objective) -> proto::Objective {
    proto::Objective {
        transcript: objective.transcript.to_string(),
        id: objective.id.to_string(),
        revision: objective.revision,
    }
}

fn omission(omission: Omission) -> proto::Omission {
    let kind = match omission.kind {
        OmissionKind::Masked => proto::OmissionKind::Masked,
        OmissionKind::Truncated => proto::OmissionKind::Truncated,
        OmissionKind::Elided => proto::OmissionKind::Elided,
        OmissionKind::Nested => proto::OmissionKind::Nested,
        OmissionKind::Neutralised => proto::OmissionKind::Neutralised,
        OmissionKind::Confusable => proto::OmissionKind::Confusable,
    };
    proto::Omission {
        pointer: omission.pointer,
        kind: kind.into(),
        count: omission.count,
        field: omission.field.unwrap_or_default(),
    }
}

fn person_decision(decision: PersonDecision, asked: Timestamp) -> proto::PersonDecision {
    let took = decision.took(asked);
    let verdict = match decision.verdict {
        Verdict::Approve => proto::Verdict::Approve,
        Verdict::Deny => proto::Verdict::Deny,
    };
    proto::PersonDecision {
        principal: decision.person.to_string(),
        groups: decision.groups.iter().map(ToString::to_string).collect(),
        as_owner: decision.as_owner,
        verdict: verdict.into(),
        reason: decision.reason.unwrap_or_default(),
        decide_time: Some(time(decision.at)),
        took: Some(span(took)),
    }
}

fn state(state: StateName) -> proto::ApprovalState {
    match state {
        StateName::Pending => proto::ApprovalState::Pending,
        StateName::Approved => proto::ApprovalState::Approved,
        StateName::Denied => proto::ApprovalState::Denied,
        StateName::Cancelled => proto::ApprovalState::Cancelled,
        StateName::Revoked => proto::ApprovalState::Revoked,
        StateName::Expired => proto::ApprovalState::Expired,
        StateName::Consumed => proto::ApprovalState::Consumed,
    }
}

/// The name of a state on input; none for what is unspecified or unknown.
pub(super) fn state_name(number: i32) -> Option<StateName> {
    StateName::ALL.into_iter().find(|name| i32::from(state(*name)) == number)
}

/// An approval as it stands: the domain's `as_of(now)` has been applied.
pub(super) fn approval(approval: approval::Approval) -> proto::Approval {
    let (close_time, closed_by, state_reason) = match approval.closed() {
        Some(Closed { at, by, reason }) => (Some(time(at)), optional(by), reason.unwrap_or_default().to_owned()),
        None => (None, String::new(), String::new()),
    };
    let question = approval.question;
    let subject = question.subject;
    let (preview_json, omissions) =
        question.preview.map(|preview| (preview.json, preview.omissions)).unwrap_or_default();
    let confirmed = approval.state.confirmed();
    let (denied_at, consume_time, execution_id) = match &approval.state {
        ApprovalState::Denied { at } => (Some(*at), None, String::new()),
        ApprovalState::Consumed { at, execution, .. } => (None, Some(*at), execution.to_string()),
        ApprovalState::Pending
        | ApprovalState::Approved(_)
        | ApprovalState::Cancelled { .. }
        | ApprovalState::Revoked { .. }
        | ApprovalState::Expired { .. } => (None, None, String::new()),
    };
    proto::Approval {
        id: approval.id.to_string(),
        state: state(approval.state.name()).into(),
        principal: subject.principal.to_string(),
        agent: subject.agent.to_string(),
        conversation: optional(subject.conversation.as_ref()),
        connector: subject.connector.to_string(),
        account: optional(subject.account.as_ref()),
        connection: optional(subject.connection.as_ref()),
        action: subject.action.to_string(),
        objective: subject.objective.as_ref().map(objective),
        scope: scope(question.scope),
        tags: question.tags,
        fingerprint: subject.fingerprint.to_string(),
        tool_definition_digest: subject.tool_definition_digest.map_or(String::new(), |digest| digest.to_string()),
        preview_json,
        omissions: omissions.into_iter().map(omission).collect(),
        message: question.message,
        agent_note: question.agent_note.unwrap_or_default(),
        policy_revision: question.policy_revision,
        rules: rules(&question.rules),
        requirement: Some(requirement(&question.requirement)),
        decisions: approval
            .decisions
            .into_iter()
            .map(|decision| person_decision(decision, approval.create_time))
            .collect(),
        requested_by: question.requested_by.to_string(),
        create_time: Some(time(approval.create_time)),
        decide_by: Some(time(approval.decide_by)),
        decide_time: denied_at.or_else(|| confirmed.map(|confirmed| confirmed.at)).map(time),
        use_by: confirmed.map(|confirmed| time(confirmed.use_by)),
        consume_time: consume_time.map(time),
        execution_id,
        close_time,
        closed_by,
        wait_id: question.wait.map_or(String::new(), |id| id.to_string()),
        retry_of: question.retry_of.map_or(String::new(), |retried| retried.id.to_string()),
        state_reason,
        version: approval.version,
        retried: question.retry_of.map(|retried| proto::RetriedExecution {
            execution_id: retried.id.to_string(),
            state: retried.known.as_str().to_owned(),
            may_do_twice: retried.known.may_do_twice(),
        }),
        reason: question.reason.as_str().to_owned(),
    }
}

pub(super) fn permit(permit: Permit) -> proto::ConsumeResponse {
    let execution = permit.execution;
    proto::ConsumeResponse {
        decision: decision(&permit.answer.decision),
        reason: permit.answer.reason.as_str().to_owned(),
        replayed: permit.replayed,
        permit: Some(proto::Permit {
            execution_id: execution.id.to_string(),
            approval_id: execution.approval.map_or(String::new(), |id| id.to_string()),
            idempotency_key: execution.idempotency_key,
            report_by: Some(time(execution.report_by)),
            permit_jwt: permit.token.map_or(String::new(), |token| token.as_str().to_owned()),
        }),
    }
}

fn execution_state(state: ExecutionStateName) -> proto::ExecutionState {
    match state {
        ExecutionStateName::Started => proto::ExecutionState::Started,
        ExecutionStateName::Succeeded => proto::ExecutionState::Succeeded,
        ExecutionStateName::Failed => proto::ExecutionState::Failed,
        ExecutionStateName::Unknown => proto::ExecutionState::Unknown,
    }
}

/// The name of an execution's state on input; none for what is unspecified or unknown.
pub(super) fn execution_state_name(number: i32) -> Option<ExecutionStateName> {
    ExecutionStateName::ALL.into_iter().find(|name| i32::from(execution_state(*name)) == number)
}

/// An execution as it stands: the domain's `as_of(now)` has been applied.
pub(super) fn execution(execution: Execution) -> proto::Execution {
    let report = execution.state.report().cloned();
    let said = |pick: fn(&crate::domain::execution::Report) -> Option<String>| {
        report.as_ref().and_then(pick).unwrap_or_default()
    };
    let subject = execution.subject;
    proto::Execution {
        id: execution.id.to_string(),
        approval_id: execution.approval.map_or(String::new(), |id| id.to_string()),
        state: execution_state(execution.state.name()).into(),
        principal: subject.principal.to_string(),
        agent: subject.agent.to_string(),
        conversation: optional(subject.conversation.as_ref()),
        connector: subject.connector.to_string(),
        account: optional(subject.account.as_ref()),
        action: subject.action.to_string(),
        fingerprint: subject.fingerprint.to_string(),
        attempt_id: execution.attempt.to_string(),
        idempotency_key: execution.idempotency_key,
        retry_of: execution.retry_of.map_or(String::new(), |id| id.to_string()),
        start_time: Some(time(execution.start_time)),
        report_by: Some(time(execution.report_by)),
        outcome_time: report.as_ref().map(|report| time(report.at)),
        reported_by: said(|report| Some(report.by.to_string())),
        remote_reference: said(|report| report.remote_reference.clone()),
        error_code: said(|report| report.error_code.clone()),
        detail: said(|report| report.detail.clone()),
        duration: report.as_ref().and_then(|report| report.duration).map(span),
        connection: optional(subject.connection.as_ref()),
        objective: subject.objective.as_ref().map(objective),
        caller: execution.caller.to_string(),
        policy_revision: execution.policy_revision,
    }
}

pub(super) fn audit_record(record: AuditRecord) -> proto::AuditRecord {
    let event = record.event;
    proto::AuditRecord {
        id: record.id.to_string(),
        time: Some(time(record.time)),
        kind: event.kind.as_str().to_owned(),
        caller: optional(event.caller.as_ref()),
        principal: event.principal.to_string(),
        agent: event.agent.to_string(),
        conversation: optional(event.conversation.as_ref()),
        connector: optional(event.connector.as_ref()),
        account: optional(event.account.as_ref()),
        action: optional(event.action.as_ref()),
        approval_id: event.approval.map_or(String::new(), |id| id.to_string()),
        execution_id: event.execution.map_or(String::new(), |id| id.to_string()),
        fingerprint: event.fingerprint.map_or(String::new(), |fingerprint| fingerprint.to_string()),
        policy_revision: event.policy_revision.unwrap_or_default(),
        person: optional(event.person.as_ref()),
        decision: event.decision,
        reason: event.reason.unwrap_or_default(),
        note: event.note.unwrap_or_default(),
        labels: event.labels.into_iter().collect(),
        wait_id: event.wait.map_or(String::new(), |id| id.to_string()),
    }
}

/// A wait as it stands: the domain's `as_of(now)` has been applied.
pub(super) fn wait(record: WaitRecord) -> proto::Wait {
    let WaitRecord { wait, approvals, more_approvals, pending } = record;
    let Wait { id, opened_by, principal, agent, conversation, objective: said, summary, .. } = wait;
    let empty = proto::Wait::default();
    let in_state = match wait.state {
        WaitState::Open => proto::Wait { state: proto::WaitState::Open.into(), ..empty },
        WaitState::Resumed(resumption) => proto::Wait {
            state: proto::WaitState::Resumed.into(),
            resume_time: Some(time(resumption.at)),
            resumed_by: resumption.by.to_string(),
            ..empty
        },
        WaitState::Closed { at, ending } => {
            let (kind, by, reason) = match ending {
                Ending::Closed { by, reason } => (proto::WaitCloseKind::Closed, by.to_string(), reason),
                Ending::Replaced { by } => (proto::WaitCloseKind::Replaced, by.to_string(), None),
                Ending::Expired => (proto::WaitCloseKind::Expired, String::new(), None),
            };
            proto::Wait {
                state: proto::WaitState::Closed.into(),
                close_kind: kind.into(),
                close_time: Some(time(at)),
                closed_by: by,
                close_reason: reason.unwrap_or_default(),
                ..empty
            }
        }
    };
    proto::Wait {
        id: id.to_string(),
        principal: principal.to_string(),
        agent: agent.to_string(),
        conversation: optional(conversation.as_ref()),
        objective: Some(objective(&said)),
        summary,
        version: wait.version,
        approval_ids: approvals.iter().map(ToString::to_string).collect(),
        more_approvals,
        pending_approvals: pending,
        opened_by: opened_by.to_string(),
        create_time: Some(time(wait.create_time)),
        update_time: Some(time(wait.update_time)),
        expire_time: Some(time(wait.expire_time)),
        ..in_state
    }
}

/// A wait whose agent goes on, with its approvals as they stand and without what is for people alone.
pub(super) fn resumed(resumed: ResumedWait) -> proto::ResumeWaitResponse {
    let approvals = resumed.approvals.into_iter().map(|mut one| {
        one.question.preview = None;
        approval(one)
    });
    proto::ResumeWaitResponse {
        approvals: approvals.collect(),
        wait: Some(wait(resumed.record)),
        replayed: resumed.replayed,
    }
}
