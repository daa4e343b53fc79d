//! An approval for programs: the names of its proto, times as RFC 3339, enums by their short words, what is absent `null`.

use crate::cli::show::{duration, short, state, time};
use crate::domain::span::show_span;
use crate::proto;
use serde_json::{Value, json};

/// Everything of an approval, as it came.
pub(super) fn approval(approval: &proto::Approval) -> Value {
    json!({
        "id": approval.id,
        "state": state(approval.state()),
        "principal": approval.principal,
        "agent": approval.agent,
        "conversation": approval.conversation,
        "connector": approval.connector,
        "account": approval.account,
        "connection": approval.connection,
        "action": approval.action,
        "objective": approval.objective.as_ref().map(|objective| json!({
            "transcript": objective.transcript,
            "id": objective.id,
            "revision": objective.revision,
        })),
        "scope": short(approval.scope().as_str_name(), "SCOPE_"),
        "tags": approval.tags,
        "fingerprint": approval.fingerprint,
        "tool_definition_digest": approval.tool_definition_digest,
        "preview_json": approval.preview_json,
        "omissions": list(&approval.omissions, |omission| json!({
            "pointer": omission.pointer,
            "kind": short(omission.kind().as_str_name(), "OMISSION_KIND_"),
            "count": omission.count,
            "field": omission.field,
        })),
        "message": approval.message,
        "agent_note": approval.agent_note,
        "policy_revision": approval.policy_revision,
        "rules": list(&approval.rules, |rule| json!({
            "connector": rule.connector,
            "name": rule.name,
            "effect": rule.effect,
            "error": rule.error,
        })),
        "requirement": approval.requirement.as_ref().map(requirement),
        "decisions": list(&approval.decisions, |decision| json!({
            "principal": decision.principal,
            "groups": decision.groups,
            "as_owner": decision.as_owner,
            "verdict": short(decision.verdict().as_str_name(), "VERDICT_"),
            "reason": decision.reason,
            "decide_time": instant(decision.decide_time.as_ref()),
        })),
        "requested_by": approval.requested_by,
        "create_time": instant(approval.create_time.as_ref()),
        "decide_by": instant(approval.decide_by.as_ref()),
        "decide_time": instant(approval.decide_time.as_ref()),
        "use_by": instant(approval.use_by.as_ref()),
        "consume_time": instant(approval.consume_time.as_ref()),
        "execution_id": approval.execution_id,
        "wait_id": approval.wait_id,
        "retry_of": approval.retry_of,
        "retried": approval.retried.as_ref().map(|retried| json!({
            "execution_id": retried.execution_id,
            "state": retried.state,
            "may_do_twice": retried.may_do_twice,
        })),
        "state_reason": approval.state_reason,
        "reason": approval.reason,
        "version": approval.version,
    })
}

fn requirement(requirement: &proto::Requirement) -> Value {
    json!({
        "clauses": list(&requirement.clauses, |clause| json!({ "any_of": clause.any_of, "quorum": clause.quorum })),
        "exclude_requester": requirement.exclude_requester,
        "decide_within": within(requirement.decide_within.as_ref()),
        "use_within": within(requirement.use_within.as_ref()),
        "always_approve_offered": requirement.always_approve_offered,
    })
}

fn list<T>(items: &[T], one: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(one).collect())
}

fn instant(instant: Option<&prost_types::Timestamp>) -> Option<String> {
    instant.map(|instant| time(Some(instant)))
}

fn within(within: Option<&prost_types::Duration>) -> Option<String> {
    duration(within).map(show_span)
}
