"""The one gate before an effect."""

from __future__ import annotations

from concurrent import futures

import grpc

from client import Code, Sidecar, attempt, but, consumption, invocation, read_refusal, refused
from countersign.v1 import decision_pb2 as decisions
from countersign.v1 import invocation_pb2 as invocations


def what_is_not_what_was_approved_is_refused_by_name(sidecar: Sidecar) -> None:
    call = invocation({"recipient_email": "kim@acme.com", "amount": 9007199254740993})
    asked = sidecar.approved(call)
    objective = invocations.Objective
    for changed, reason in (
        ({"principal": "sam"}, "PRINCIPAL_MISMATCH"),
        ({"connector": "outlook"}, "CONNECTOR_MISMATCH"),
        ({"action": "GMAIL_FETCH_EMAILS"}, "ACTION_MISMATCH"),
        ({"conversation": "another"}, "CONVERSATION_MISMATCH"),
        ({"conversation": ""}, "CONVERSATION_MISMATCH"),
        ({"agent": "intruder"}, "AGENT_MISMATCH"),
        ({"account": "work-mailbox-b"}, "ACCOUNT_MISMATCH"),
        ({"account": ""}, "ACCOUNT_MISMATCH"),
        ({"objective": None}, "OBJECTIVE_CHANGED"),
        ({"objective": objective(transcript="transcript-2", id="objective-1", revision=3)}, "OBJECTIVE_CHANGED"),
        ({"objective": objective(transcript="transcript-1", id="objective-2", revision=3)}, "OBJECTIVE_CHANGED"),
        ({"objective": objective(transcript="transcript-1", id="objective-1", revision=4)}, "OBJECTIVE_CHANGED"),
        ({"arguments_json": "{}"}, "ARGUMENTS_CHANGED"),
        ({"arguments_json": call.arguments_json.replace("0993", "0992")}, "ARGUMENTS_CHANGED"),
        ({"arguments_json": call.arguments_json.replace("kim@", "eve@")}, "ARGUMENTS_CHANGED"),
        ({"tool_definition_digest": "td1:" + "0" * 64}, "TOOL_DEFINITION_CHANGED"),
        # The first difference of the fixed order is the one that is named.
        ({"account": "work-mailbox-b", "arguments_json": "{}"}, "ACCOUNT_MISMATCH"),
    ):
        request = consumption(asked.consume_token, but(call, **changed), attempt())
        refusal = refused(sidecar.agent.agent.Consume, request, Code.FAILED_PRECONDITION, reason)
        assert refusal.metadata["binding"], refusal
        assert sidecar.state(asked.approval) == "APPROVED", f"{changed} used it up"
    assert sidecar.consume(asked.consume_token, call, attempt()).permit.execution_id


def a_token_that_is_none_is_refused_with_one_text(sidecar: Sidecar) -> None:
    call = invocation()
    token = sidecar.approved(call).consume_token
    other = sidecar.ask(invocation())
    start, _, mac = token.rpartition(".")
    swapped = ".".join([*other.consume_token.split(".")[:3], mac])
    forged = start + "." + ("A" if mac[0] != "A" else "B") + mac[1:]
    texts = set()
    for bad in ("nonsense", token + "A", token[:-1], token.upper(), forged, swapped, other.approval.id):
        request = consumption(bad, call, attempt())
        refusal = refused(sidecar.agent.agent.Consume, request, Code.FAILED_PRECONDITION, "TOKEN_INVALID")
        texts.add((refusal.message, tuple(refusal.metadata.items())))
    assert len(texts) == 1, texts


def an_approval_is_used_once_and_a_lost_answer_is_not_a_lost_approval(sidecar: Sidecar) -> None:
    call = invocation({"recipient_email": "kim@acme.com", "subject": "Once only"})
    asked = sidecar.approved(call)
    reordered = but(
        call, arguments_json='{"subject":"Once \\u006fnly","recipient_email":"kim@acme.com"}', connection="connection-2"
    )
    first = attempt()
    opened = sidecar.consume(asked.consume_token, reordered, first)
    assert opened.decision == decisions.DECISION_CONFIRMATION_REQUIRED and not opened.replayed
    assert opened.permit.approval_id == asked.approval.id and opened.permit.idempotency_key
    again = sidecar.consume(asked.consume_token, call, first)
    assert again.replayed and again.permit == opened.permit, (again, opened)
    assert sidecar.state(asked.approval) == "CONSUMED"
    second = consumption(asked.consume_token, call, attempt())
    refusal = refused(sidecar.agent.agent.Consume, second, Code.FAILED_PRECONDITION, "APPROVAL_CONSUMED")
    assert refusal.metadata["decided_by"] == "pat", refusal
    other = invocation()
    reused = consumption(sidecar.approved(other).consume_token, other, first)
    refused(sidecar.agent.agent.Consume, reused, Code.FAILED_PRECONDITION, "ATTEMPT_ID_REUSED")
    asked_anew = sidecar.ask(call)
    assert not asked_anew.existing, "a used approval answers no new question"


def of_many_who_try_at_once_one_passes(sidecar: Sidecar) -> None:
    call = invocation()
    token = sidecar.approved(call).consume_token

    def try_once(_: int) -> str:
        try:
            return sidecar.consume(token, call, attempt()).permit.execution_id
        except grpc.RpcError as error:
            refusal = read_refusal(error)
            assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "APPROVAL_CONSUMED"), refusal
            return ""

    with futures.ThreadPoolExecutor(max_workers=16) as threads:
        permits = [permit for permit in threads.map(try_once, range(64)) if permit]
    assert len(permits) == 1, permits


def without_a_token_only_what_is_allowed_passes(sidecar: Sidecar) -> None:
    read = invocation({}, action="GMAIL_FETCH_EMAILS")
    opened = sidecar.consume("", read, attempt())
    assert opened.decision == decisions.DECISION_ALLOW and not opened.permit.approval_id
    assert opened.permit.execution_id and opened.permit.HasField("report_by")
    write = consumption("", invocation(), attempt())
    refused(sidecar.agent.agent.Consume, write, Code.FAILED_PRECONDITION, "APPROVAL_REQUIRED")
    admin = consumption("", invocation(action="GMAIL_DELETE_EMAIL"), attempt())
    refusal = refused(sidecar.agent.agent.Consume, admin, Code.PERMISSION_DENIED, "POLICY_DENIED")
    assert refusal.metadata["policy_reason"] == "SCOPE_EXCEEDS_CEILING", refusal
