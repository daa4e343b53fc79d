"""What became of it, and what is kept."""

from __future__ import annotations

import uuid

from client import Code, Sidecar, attempt, but, consumption, evaluation, invocation, refused
from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import approval_pb2 as approvals
from countersign.v1 import execution_pb2 as executions
from countersign.v1 import operator_service_pb2 as operators


def report(execution_id: str, outcome: int, **more) -> agents.ReportOutcomeRequest:
    return agents.ReportOutcomeRequest(
        principal="pat", agent="assistant", execution_id=execution_id, outcome=outcome, **more
    )


def an_outcome_is_reported_once(sidecar: Sidecar) -> None:
    permit = sidecar.consume("", invocation({}, action="GMAIL_FETCH_EMAILS"), attempt()).permit
    tell = sidecar.agent.agent.ReportOutcome
    succeeded = report(permit.execution_id, executions.OUTCOME_SUCCEEDED, remote_reference="message-17")
    for _ in range(2):
        execution = tell(succeeded).execution
        assert execution.state == executions.EXECUTION_STATE_SUCCEEDED, execution.state
        assert execution.remote_reference == "message-17"
    failed = report(permit.execution_id, executions.OUTCOME_FAILED)
    refusal = refused(tell, failed, Code.FAILED_PRECONDITION, "OUTCOME_FINAL")
    assert refusal.metadata["state"] == "succeeded", refusal
    refused(tell, report(str(uuid.uuid4()), executions.OUTCOME_FAILED), Code.NOT_FOUND, "EXECUTION_NOT_FOUND")


def nobody_knows_may_become_known_with_evidence(sidecar: Sidecar) -> None:
    permit = sidecar.consume("", invocation({}, action="GMAIL_FETCH_EMAILS"), attempt()).permit
    tell = sidecar.agent.agent.ReportOutcome
    tell(report(permit.execution_id, executions.OUTCOME_UNKNOWN, error_code="TIMEOUT"))
    bare = report(permit.execution_id, executions.OUTCOME_SUCCEEDED)
    refused(tell, bare, Code.FAILED_PRECONDITION, "OUTCOME_EVIDENCE_MISSING")
    known = report(permit.execution_id, executions.OUTCOME_SUCCEEDED, detail="Found in the outbox.")
    assert tell(known).execution.state == executions.EXECUTION_STATE_SUCCEEDED
    failed = report(permit.execution_id, executions.OUTCOME_FAILED, detail="It bounced.")
    refused(tell, failed, Code.FAILED_PRECONDITION, "OUTCOME_FINAL")


def the_audit_joins_the_story_and_tells_no_secrets(sidecar: Sidecar) -> None:
    marker = f"marker{uuid.uuid4().hex}"
    call = invocation({"recipient_email": f"{marker}@acme.com"}, labels={"ticket": "T-1"})
    asked = sidecar.ask(call, agent_note=f"{marker} note")
    sidecar.decide(asked.approval.id, "pat", approvals.VERDICT_APPROVE)
    changed = consumption(asked.consume_token, but(call, arguments_json="{}"), attempt())
    refused(sidecar.agent.agent.Consume, changed, Code.FAILED_PRECONDITION, "ARGUMENTS_CHANGED")
    permit = sidecar.consume(asked.consume_token, call, attempt()).permit
    sidecar.agent.agent.ReportOutcome(
        report(permit.execution_id, executions.OUTCOME_SUCCEEDED, remote_reference="message-18")
    )
    records = sidecar.records(approval_id=asked.approval.id)
    kinds = [record.kind for record in records]
    assert kinds == [
        "approval.requested",
        "approval.decided",
        "approval.approved",
        "consume.refused",
        "approval.consumed",
        "execution.reported",
    ], kinds
    times = [record.time.ToMicroseconds() for record in records]
    assert times == sorted(times), times
    by_kind = {record.kind: record for record in records}
    assert by_kind["approval.requested"].caller == "dev-agent"
    assert by_kind["approval.requested"].labels == {"ticket": "T-1"}
    assert by_kind["approval.requested"].policy_revision == asked.approval.policy_revision
    decided = by_kind["approval.decided"]
    assert (decided.caller, decided.person, decided.decision) == ("dev-approver", "pat", "APPROVE"), decided
    assert by_kind["consume.refused"].reason == "ARGUMENTS_CHANGED"
    # The consumption is the execution's start, as one record.
    assert by_kind["approval.consumed"].execution_id == permit.execution_id
    reported = by_kind["execution.reported"]
    assert (reported.execution_id, reported.decision) == (permit.execution_id, "SUCCEEDED"), reported
    for kind in ("approval.requested", "approval.consumed", "execution.reported"):
        assert by_kind[kind].fingerprint == asked.approval.fingerprint, kind
    joined = sidecar.records(execution_id=permit.execution_id)
    assert [record.kind for record in joined] == ["approval.consumed", "execution.reported"], joined
    assert all(record.approval_id == asked.approval.id for record in joined), joined
    everything = sidecar.records()
    assert any(record.kind == "execution.started" and not record.approval_id for record in everything)
    for record in everything:
        text = record.SerializeToString()
        assert marker.encode() not in text, record.kind
        assert asked.consume_token.rpartition(".")[2].encode() not in text, record.kind


def the_operator_sees_the_policy_in_force(sidecar: Sidecar) -> None:
    policy = sidecar.operator.operator.GetPolicy(operators.GetPolicyRequest())
    assert [connector.name for connector in policy.connectors] == ["gmail"], policy
    assert policy.connectors[0].enabled and policy.connectors[0].rules == 1, policy
    assert not policy.problems
    revision = sidecar.agent.agent.Evaluate(evaluation(invocation())).policy_revision
    assert policy.revision == revision, (policy.revision, revision)
