"""An agent that stops for people, and those who watch."""

from __future__ import annotations

import json
import uuid

from client import Code, Sidecar, attempt, invocation, refused
from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import approval_pb2 as approvals
from countersign.v1 import approver_service_pb2 as approvers
from countersign.v1 import invocation_pb2 as invocations
from countersign.v1 import operator_service_pb2 as operators
from countersign.v1 import wait_pb2 as waits


def an_agent_stops_and_is_woken_with_every_verdict(sidecar: Sidecar) -> None:
    objective = invocations.Objective(transcript=str(uuid.uuid4()), id="input-1", revision=1)
    opening = agents.OpenWaitRequest(principal="pat", agent="assistant", objective=objective, summary="Two mails")
    wait = sidecar.agent.agent.OpenWait(opening).wait
    assert sidecar.agent.agent.OpenWait(opening).existing, "the transcript has one active wait"
    call = invocation(objective=objective)
    yes, no = (sidecar.ask(one, wait_id=wait.id) for one in (call, invocation({"subject": "No"}, objective=objective)))
    resuming = agents.ResumeWaitRequest(
        wait_id=wait.id, principal="pat", agent="assistant", transcript=objective.transcript,
        version=wait.version, attempt_id=attempt(),
    )
    pending = refused(sidecar.agent.agent.ResumeWait, resuming, Code.FAILED_PRECONDITION, "WAIT_PENDING")
    assert pending.metadata["pending"] == "2", pending
    sidecar.decide(yes.approval.id, "pat", approvals.VERDICT_APPROVE)
    sidecar.decide(no.approval.id, "pat", approvals.VERDICT_DENY, reason="Not today.")
    resumed = sidecar.agent.agent.ResumeWait(resuming)
    verdicts = {approval.id: (approval.state, approval.state_reason) for approval in resumed.approvals}
    assert verdicts[yes.approval.id] == (approvals.APPROVAL_STATE_APPROVED, "")
    assert verdicts[no.approval.id] == (approvals.APPROVAL_STATE_DENIED, "Not today.")
    assert sidecar.agent.agent.ResumeWait(resuming).replayed
    resuming.attempt_id = attempt()
    refused(sidecar.agent.agent.ResumeWait, resuming, Code.FAILED_PRECONDITION, "WAIT_ALREADY_RESUMED")
    closing = agents.CloseWaitRequest(principal="pat", agent="assistant", wait_id=wait.id, reason="Done.")
    assert sidecar.agent.agent.CloseWait(closing).wait.state == waits.WAIT_STATE_CLOSED
    assert sidecar.state(yes.approval) == "CANCELLED", "what was not used goes with its wait"


def who_watches_is_told_every_state(sidecar: Sidecar) -> None:
    people = sidecar.people.approver.WatchApprovals(approvers.WatchApprovalsRequest(principal="pat"))
    while not next(people).HasField("snapshot_complete"):
        pass
    asked = sidecar.ask(invocation()).approval
    watched = sidecar.agent.agent.WatchApproval(
        agents.WatchApprovalRequest(principal="pat", agent="assistant", approval_id=asked.id)
    )
    told = [next(watched).approval]
    sidecar.decide(asked.id, "pat", approvals.VERDICT_DENY)
    told += [answer.approval for answer in watched]
    assert [(approval.version, approval.state) for approval in told] == [
        (1, approvals.APPROVAL_STATE_PENDING),
        (2, approvals.APPROVAL_STATE_DENIED),
    ], told
    changes = [next(people).approval for _ in told]
    assert [(change.id, change.version) for change in changes] == [(asked.id, 1), (asked.id, 2)], changes
    people.cancel()


def a_person_reads_all_of_the_arguments(sidecar: Sidecar) -> None:
    arguments = {"recipient_email": "kim@acme.com", "body": "x" * 20_000, "password": "hunter2"}
    asked = sidecar.ask(invocation(arguments)).approval
    assert "hunter2" not in asked.preview_json
    reading = approvers.GetApprovalArgumentsRequest(principal="pat", approval_id=asked.id)
    read = sidecar.people.approver.GetApprovalArguments(reading)
    assert (json.loads(read.arguments_json), read.fingerprint) == (arguments, asked.fingerprint)
    reading.principal = "stranger"
    refused(sidecar.people.approver.GetApprovalArguments, reading, Code.NOT_FOUND, "APPROVAL_NOT_FOUND")


def executions_are_listed_for_the_operator(sidecar: Sidecar) -> None:
    call = invocation({}, action="GMAIL_FETCH_EMAILS")
    permit = sidecar.consume("", call, attempt()).permit
    listing = operators.ListExecutionsRequest(principal="pat", page_size=1)
    page = sidecar.operator.operator.ListExecutions(listing)
    assert [execution.id for execution in page.executions] == [permit.execution_id], page
