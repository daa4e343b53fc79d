"""The whole story of an approval, told by a Python client against a running sidecar.

An agent's process, a chat backend that speaks for people, and an operator each call with a token of their own, through
stubs that grpcio-tools generated from `proto/`. The sidecar serves `deploy/policy/gmail.yaml`. Each chapter below is a
claim; the first that does not hold ends the story with exit code 1. `tests/python_story.rs` runs this; by hand:

    python -m grpc_tools.protoc -I proto --python_out GEN --grpc_python_out GEN proto/countersign/v1/*.proto
    countersign serve --dev
    PYTHONPATH=GEN python tests/python/story.py --address 127.0.0.1:7400 --health-address 127.0.0.1:7401 \
        --agent-token .countersign-dev/agent.token --approver-token .countersign-dev/approver.token \
        --operator-token .countersign-dev/operator.token
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import traceback
import uuid

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import approval_pb2 as approvals
from countersign.v1 import approver_service_pb2 as approvers
from countersign.v1 import decision_pb2 as decisions
from countersign.v1 import execution_pb2 as executions
from countersign.v1 import invocation_pb2 as invocations
from countersign.v1 import operator_service_pb2 as operators
from doors import Doors, attempt, but, invocation, refused

Code = grpc.StatusCode
SERVICES = ["AgentService", "ApproverService", "OperatorService"]


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """A running sidecar, and a client of each role."""

    address: str
    health_address: str
    agent_token: str
    agent: Doors
    people: Doors
    operator: Doors
    nobody: Doors
    stranger: Doors

    def ask(self, call: invocations.Invocation, **more) -> agents.RequestApprovalResponse:
        return self.agent.agent.RequestApproval(agents.RequestApprovalRequest(invocation=call, **more))

    def decide(self, approval_id: str, person: str, verdict: int, **more) -> approvals.Approval:
        request = approvers.DecideRequest(approval_id=approval_id, principal=person, verdict=verdict, **more)
        return self.people.approver.Decide(request).approval

    def approved(self, call: invocations.Invocation) -> agents.RequestApprovalResponse:
        """Asks, and lets the owner approve."""
        asked = self.ask(call)
        answered = self.decide(asked.approval.id, call.principal, approvals.VERDICT_APPROVE)
        assert answered.state == approvals.APPROVAL_STATE_APPROVED, answered.state
        return asked

    def consume(self, token: str, call: invocations.Invocation, attempt_id: str) -> agents.ConsumeResponse:
        return self.agent.agent.Consume(consumption(token, call, attempt_id))

    def state(self, approval: approvals.Approval) -> str:
        request = agents.AgentServiceGetApprovalRequest(
            principal=approval.principal, agent=approval.agent, approval_id=approval.id
        )
        state = self.agent.agent.GetApproval(request).approval.state
        return approvals.ApprovalState.Name(state).removeprefix("APPROVAL_STATE_")

    def records(self, **which) -> list[operators.AuditRecord]:
        """Every audit record, oldest first, read in pages of three."""
        found, token = [], ""
        while True:
            request = operators.ListAuditRecordsRequest(page_size=3, page_token=token, **which)
            page = self.operator.operator.ListAuditRecords(request)
            assert len(page.records) <= 3
            found += page.records
            token = page.next_page_token
            if not token:
                return found[::-1]


def consumption(token: str, call: invocations.Invocation, attempt_id: str) -> agents.ConsumeRequest:
    return agents.ConsumeRequest(consume_token=token, attempt_id=attempt_id, invocation=call)


def evaluation(call: invocations.Invocation, explain: bool = False) -> agents.EvaluateRequest:
    return agents.EvaluateRequest(invocation=call, explain=explain)


# --- Before anything is asked ---


def health_says_serving_without_credentials(sidecar: Sidecar) -> None:
    services = [f"countersign.v1.{service}" for service in SERVICES]
    for address in (sidecar.address, sidecar.health_address):
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ["", "liveness", *services]:
                answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING, f"{address} {service!r}: {answer}"


def the_health_listener_opens_no_door(sidecar: Sidecar) -> None:
    doors = Doors(sidecar.health_address, sidecar.agent_token)
    try:
        doors.agent.Evaluate(evaluation(invocation()))
    except grpc.RpcError as error:
        assert error.code() == Code.UNIMPLEMENTED, error
    else:
        raise AssertionError("the health listener evaluates")
    finally:
        doors.close()


def reflection_lists_the_services_to_old_clients(sidecar: Sidecar) -> None:
    with grpc.insecure_channel(sidecar.address) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = list(reflection.ServerReflectionInfo(iter([question]), timeout=20))
    listed = {service.name for service in answers[0].list_services_response.service}
    assert {f"countersign.v1.{service}" for service in SERVICES} <= listed, listed
    assert "grpc.health.v1.Health" in listed, listed


def every_rpc_of_every_door_wants_credentials(sidecar: Sidecar) -> None:
    for service in SERVICES:
        for doors, reason in ((sidecar.nobody, "CREDENTIALS_MISSING"), (sidecar.stranger, "CREDENTIALS_INVALID")):
            for name, call, request in every_rpc(doors, service):
                refused(call, request, Code.UNAUTHENTICATED, reason)


def no_agent_opens_the_approvers_or_the_operators_door(sidecar: Sidecar) -> None:
    for service, needed in (("ApproverService", "approver"), ("OperatorService", "operator")):
        for name, call, request in every_rpc(sidecar.agent, service):
            refusal = refused(call, request, Code.PERMISSION_DENIED, "ROLE_NOT_ALLOWED")
            assert refusal.metadata == {"role": "agent", "needed_role": needed}, f"{name}: {refusal}"


def no_approver_and_no_operator_opens_another_door(sidecar: Sidecar) -> None:
    for doors, closed in (
        (sidecar.people, ("AgentService", "OperatorService")),
        (sidecar.operator, ("AgentService", "ApproverService")),
    ):
        for service in closed:
            for name, call, request in every_rpc(doors, service):
                refused(call, request, Code.PERMISSION_DENIED, "ROLE_NOT_ALLOWED")


def every_rpc(doors: Doors, service: str):
    """Each RPC that the contract declares of a service, with an empty request."""
    stub = {"AgentService": doors.agent, "ApproverService": doors.approver, "OperatorService": doors.operator}[service]
    methods = descriptor_pool.Default().FindServiceByName(f"countersign.v1.{service}").methods
    assert methods, service
    for method in methods:
        yield method.name, getattr(stub, method.name), message_factory.GetMessageClass(method.input_type)()


# --- Decide ---


def reading_is_allowed_and_explained(sidecar: Sidecar) -> None:
    call = invocation({"query": "from:kim"}, action="GMAIL_FETCH_EMAILS")
    answer = sidecar.agent.agent.Evaluate(evaluation(call, explain=True))
    assert (answer.decision, answer.reason) == (decisions.DECISION_ALLOW, "ALLOWED"), answer
    assert answer.scope == decisions.SCOPE_READ
    assert not answer.HasField("requirement")
    assert answer.checks[0].name == "connector_known", answer.checks
    outcomes = [check.outcome for check in answer.checks]
    assert outcomes == [decisions.CHECK_OUTCOME_PASSED] * (len(outcomes) - 1) + [decisions.CHECK_OUTCOME_DECIDED]
    assert not sidecar.agent.agent.Evaluate(evaluation(call)).checks, "not asked to explain"


def what_the_policy_rules_out_is_denied_as_an_answer(sidecar: Sidecar) -> None:
    for call, reason in (
        (invocation(connector="github"), "CONNECTOR_UNKNOWN"),
        (invocation(agent="intruder"), "AGENT_NOT_ALLOWED"),
        (invocation(account="private-mailbox"), "ACCOUNT_NOT_ALLOWED"),
        (invocation(account=""), "ACCOUNT_NOT_ALLOWED"),
        (invocation(action="gmail_send_email"), "ACTION_UNKNOWN"),
        (invocation(action="GMAIL_DELETE_EMAIL"), "SCOPE_EXCEEDS_CEILING"),
        (invocation(action="GMAIL_CREATE_EMAIL_DRAFT"), "ACTION_NOT_CURATED"),
    ):
        answer = sidecar.agent.agent.Evaluate(evaluation(call, explain=True))
        assert (answer.decision, answer.reason) == (decisions.DECISION_DENY, reason), answer
        deciding = [check for check in answer.checks if check.outcome == decisions.CHECK_OUTCOME_DECIDED]
        assert len(deciding) == 1, answer.checks
        after = [check.outcome for check in answer.checks if check.number > deciding[0].number]
        assert set(after) == {decisions.CHECK_OUTCOME_NOT_REACHED}, answer.checks


def writing_needs_confirmation_and_says_whose(sidecar: Sidecar) -> None:
    inside = sidecar.agent.agent.Evaluate(evaluation(invocation()))
    assert inside.decision == decisions.DECISION_CONFIRMATION_REQUIRED, inside
    assert inside.reason == "CONFIRMATION_BY_MODE", inside
    assert [list(clause.any_of) for clause in inside.requirement.clauses] == [["owner"]], inside.requirement
    assert inside.requirement.decide_within.seconds == 300, inside.requirement
    outside = sidecar.agent.agent.Evaluate(evaluation(invocation({"recipient_email": "kim@elsewhere.example"})))
    assert outside.reason == "CONFIRMATION_BY_RULE", outside
    assert [rule.name for rule in outside.rules] == ["outside-recipients"], outside.rules
    clauses = [list(clause.any_of) for clause in outside.requirement.clauses]
    assert sorted(clauses) == [["group:finance"], ["owner"]], clauses


def a_rule_that_cannot_be_evaluated_asks_and_says_so(sidecar: Sidecar) -> None:
    answer = sidecar.agent.agent.Evaluate(evaluation(invocation({"subject": "To whom?"})))
    assert answer.reason == "CONFIRMATION_BY_RULE", answer
    assert answer.rules[0].error, answer.rules


def a_batch_is_answered_in_order_each_on_its_own(sidecar: Sidecar) -> None:
    read = invocation({}, action="GMAIL_FETCH_EMAILS")
    batch = [read, invocation(), read, invocation('{"a": 1, "a": 2}'), invocation(connector="github")]
    request = agents.BatchEvaluateRequest(requests=[evaluation(call) for call in batch])
    results = sidecar.agent.agent.BatchEvaluate(request).results
    got = [result.response.reason or result.error.reason for result in results]
    wanted = ["ALLOWED", "CONFIRMATION_BY_MODE", "ALLOWED", "INVALID_ARGUMENTS_JSON", "CONNECTOR_UNKNOWN"]
    assert got == wanted, got
    assert results[3].error.code == Code.INVALID_ARGUMENT.value[0]
    assert results[0].response.fingerprint == results[2].response.fingerprint
    refused(
        sidecar.agent.agent.BatchEvaluate,
        agents.BatchEvaluateRequest(requests=[evaluation(read)] * 101),
        Code.INVALID_ARGUMENT,
        "INVALID_REQUEST",
    )


def arguments_that_could_be_read_two_ways_are_refused(sidecar: Sidecar) -> None:
    for text in ('{"to": "a", "t\\u006f": "b"}', '{"to": "\\ud800"}', "[]", "null", '{"to": 1e999}', '{"to": 1} {}'):
        request = evaluation(invocation(text))
        refusal = refused(sidecar.agent.agent.Evaluate, request, Code.INVALID_ARGUMENT, "INVALID_ARGUMENTS_JSON")
        assert refusal.fields == ["invocation.arguments_json"], refusal
    request = evaluation(invocation(principal=" pat", action=""))
    refusal = refused(sidecar.agent.agent.Evaluate, request, Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.fields == ["invocation.principal", "invocation.action"], refusal


def spelling_is_no_difference_and_every_digit_is(sidecar: Sidecar) -> None:
    def fingerprint(text: str) -> str:
        return sidecar.agent.agent.Evaluate(evaluation(invocation(text))).fingerprint

    one = fingerprint('{"amount": 1, "to": "kim@acme.com"}')
    assert one.startswith("v1:") and len(one) == 67, one
    for same in ('{"to":"kim@acme.com","amount":1.0}', '{"t\\u006f": "kim@acme.com", "amount": 1e0}'):
        assert fingerprint(same) == one, same
    # As doubles these would be one number.
    assert fingerprint('{"amount": 9007199254740993}') != fingerprint('{"amount": 9007199254740992}')
    assert float(9007199254740993) == float(9007199254740992)
    assert fingerprint('{"name": "é"}') != fingerprint('{"name": "e\u0301"}')


# --- Ask and answer ---


def asking_makes_an_approval_that_shows_what_a_person_needs(sidecar: Sidecar) -> None:
    secret = "correct horse battery staple"
    call = invocation({"recipient_email": "kim@acme.com", "password": secret, "subject": "a\u202eb"})
    asked = sidecar.ask(call, agent_note="She asked for it.")
    assert asked.decision == decisions.DECISION_CONFIRMATION_REQUIRED, asked.decision
    assert asked.consume_token.startswith("cs1.") and not asked.existing
    approval = asked.approval
    assert approval.state == approvals.APPROVAL_STATE_PENDING
    assert (approval.principal, approval.agent, approval.account) == ("pat", "assistant", "work-mailbox-a")
    assert approval.agent_note == "She asked for it."
    assert (approval.decide_by.ToMicroseconds() - approval.create_time.ToMicroseconds()) == 300_000_000
    preview = json.loads(approval.preview_json)
    assert preview["recipient_email"] == "kim@acme.com", preview
    assert secret not in approval.preview_json and "\u202e" not in preview["subject"], preview
    omissions = {(omission.pointer, omission.kind) for omission in approval.omissions}
    assert ("/password", approvals.OMISSION_KIND_MASKED) in omissions, omissions
    assert ("/subject", approvals.OMISSION_KIND_NEUTRALISED) in omissions, omissions
    assert secret not in approval.message


def the_same_question_is_asked_once(sidecar: Sidecar) -> None:
    call = invocation({"recipient_email": "kim@acme.com", "subject": "Once"})
    first = sidecar.ask(call)
    reordered = but(call, arguments_json='{"subject": "Once", "recipient_email": "kim@acme.com"}', connection="another")
    again = sidecar.ask(reordered)
    assert again.existing and again.approval.id == first.approval.id
    assert again.consume_token == first.consume_token
    other = sidecar.ask(but(call, arguments_json='{"subject": "Twice", "recipient_email": "kim@acme.com"}'))
    assert not other.existing and other.approval.id != first.approval.id


def a_request_id_stands_for_one_request(sidecar: Sidecar) -> None:
    call, request_id = invocation(), f"request-{uuid.uuid4()}"
    first = sidecar.ask(call, request_id=request_id)
    sidecar.decide(first.approval.id, "pat", approvals.VERDICT_DENY)
    again = sidecar.ask(call, request_id=request_id)
    assert again.approval.id == first.approval.id and again.existing
    assert again.approval.state == approvals.APPROVAL_STATE_DENIED, "its present state"
    other = agents.RequestApprovalRequest(invocation=invocation(), request_id=request_id)
    refused(sidecar.agent.agent.RequestApproval, other, Code.ALREADY_EXISTS, "REQUEST_ID_REUSED")


def nothing_is_asked_where_nothing_is_to_confirm_or_to_be_had(sidecar: Sidecar) -> None:
    allowed = sidecar.ask(invocation({}, action="GMAIL_FETCH_EMAILS"))
    assert allowed.decision == decisions.DECISION_ALLOW
    assert not allowed.HasField("approval") and not allowed.consume_token
    denied = agents.RequestApprovalRequest(invocation=invocation(action="GMAIL_DELETE_EMAIL"))
    refusal = refused(sidecar.agent.agent.RequestApproval, denied, Code.PERMISSION_DENIED, "POLICY_DENIED")
    assert refusal.metadata["policy_reason"] == "SCOPE_EXCEEDS_CEILING", refusal


def only_people_of_the_requirement_decide_and_each_clause_needs_its_own(sidecar: Sidecar) -> None:
    asked = sidecar.ask(invocation({"recipient_email": "kim@elsewhere.example"}))
    request = approvers.DecideRequest(approval_id=asked.approval.id, verdict=approvals.VERDICT_APPROVE)
    refused(sidecar.people.approver.Decide, request, Code.INVALID_ARGUMENT, "PRINCIPAL_REQUIRED")
    # Whoever has no part in it cannot tell it from one that is not there.
    request.principal = "mallory"
    hidden = refused(sidecar.people.approver.Decide, request, Code.NOT_FOUND, "APPROVAL_NOT_FOUND")
    request.approval_id = str(uuid.uuid4())
    absent = refused(sidecar.people.approver.Decide, request, Code.NOT_FOUND, "APPROVAL_NOT_FOUND")
    assert hidden == absent, (hidden, absent)

    owner = sidecar.decide(asked.approval.id, "pat", approvals.VERDICT_APPROVE, reason="I know them.")
    assert owner.state == approvals.APPROVAL_STATE_PENDING, "finance has not answered"
    early = consumption(asked.consume_token, invocation(), attempt())
    early.invocation.CopyFrom(invocation({"recipient_email": "kim@elsewhere.example"}, conversation=owner.conversation))
    refused(sidecar.agent.agent.Consume, early, Code.FAILED_PRECONDITION, "APPROVAL_PENDING")
    finance = sidecar.decide(asked.approval.id, "dana", approvals.VERDICT_APPROVE)
    assert finance.state == approvals.APPROVAL_STATE_APPROVED, finance.state
    assert [(decision.principal, decision.as_owner, list(decision.groups)) for decision in finance.decisions] == [
        ("pat", True, []),
        ("dana", False, ["finance"]),
    ], finance.decisions
    same = sidecar.decide(asked.approval.id, "dana", approvals.VERDICT_APPROVE)
    assert same.version == finance.version, "the same verdict again changes nothing"


def what_was_shown_must_be_what_is_decided(sidecar: Sidecar) -> None:
    asked = sidecar.ask(invocation())
    request = approvers.DecideRequest(
        approval_id=asked.approval.id,
        principal="pat",
        verdict=approvals.VERDICT_APPROVE,
        shown_fingerprint="v1:" + "0" * 64,
    )
    refused(sidecar.people.approver.Decide, request, Code.FAILED_PRECONDITION, "SHOWN_FINGERPRINT_DIFFERS")
    assert sidecar.state(asked.approval) == "PENDING"
    request.shown_fingerprint = asked.approval.fingerprint
    sidecar.people.approver.Decide(request)
    assert sidecar.state(asked.approval) == "APPROVED"


def a_denial_ends_it_and_says_who(sidecar: Sidecar) -> None:
    call = invocation()
    asked = sidecar.ask(call)
    sidecar.decide(asked.approval.id, "pat", approvals.VERDICT_DENY, reason="Not today.")
    refusal = refused(
        sidecar.agent.agent.Consume,
        consumption(asked.consume_token, call, attempt()),
        Code.FAILED_PRECONDITION,
        "APPROVAL_DENIED",
    )
    assert (refusal.metadata["decided_by"], refusal.metadata["verdict"]) == ("pat", "DENY"), refusal
    late = approvers.DecideRequest(approval_id=asked.approval.id, principal="pat", verdict=approvals.VERDICT_APPROVE)
    refusal = refused(sidecar.people.approver.Decide, late, Code.FAILED_PRECONDITION, "APPROVAL_DENIED")
    assert refusal.metadata["decided_by"] == "pat", refusal


def what_was_cancelled_or_revoked_is_not_used(sidecar: Sidecar) -> None:
    call = invocation()
    asked = sidecar.approved(call)
    cancel = agents.CancelApprovalRequest(principal="pat", agent="assistant", approval_id=asked.approval.id)
    for _ in range(2):
        assert sidecar.agent.agent.CancelApproval(cancel).approval.state == approvals.APPROVAL_STATE_CANCELLED
    consume = consumption(asked.consume_token, call, attempt())
    refused(sidecar.agent.agent.Consume, consume, Code.FAILED_PRECONDITION, "APPROVAL_CANCELLED")

    call = invocation()
    asked = sidecar.approved(call)
    revoke = approvers.RevokeApprovalRequest(approval_id=asked.approval.id, principal="pat", reason="A mistake.")
    for _ in range(2):
        assert sidecar.people.approver.RevokeApproval(revoke).approval.state == approvals.APPROVAL_STATE_REVOKED
    consume = consumption(asked.consume_token, call, attempt())
    refused(sidecar.agent.agent.Consume, consume, Code.FAILED_PRECONDITION, "APPROVAL_REVOKED")


def people_list_what_is_theirs_page_by_page(sidecar: Sidecar) -> None:
    owner = f"owner-{uuid.uuid4()}"
    made = [sidecar.ask(invocation(principal=owner)).approval.id for _ in range(5)]
    listed, token, pages = [], "", 0
    while True:
        request = approvers.ListApprovalsRequest(principal=owner, page_size=2, page_token=token)
        page = sidecar.people.approver.ListApprovals(request)
        listed += [approval.id for approval in page.approvals]
        pages, token = pages + 1, page.next_page_token
        if not token:
            break
        other = approvers.ListApprovalsRequest(principal="dana", page_size=2, page_token=token)
        refused(sidecar.people.approver.ListApprovals, other, Code.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")
    assert (listed, pages) == (made[::-1], 3), (listed, made, pages)
    denied = [approvals.APPROVAL_STATE_DENIED]
    request = approvers.ListApprovalsRequest(principal=owner, states=denied)
    assert not sidecar.people.approver.ListApprovals(request).approvals
    sidecar.decide(made[1], owner, approvals.VERDICT_DENY)
    assert [approval.id for approval in sidecar.people.approver.ListApprovals(request).approvals] == [made[1]]


# --- Use once ---


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


# --- What became of it ---


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


STORY = [
    health_says_serving_without_credentials,
    the_health_listener_opens_no_door,
    reflection_lists_the_services_to_old_clients,
    every_rpc_of_every_door_wants_credentials,
    no_agent_opens_the_approvers_or_the_operators_door,
    no_approver_and_no_operator_opens_another_door,
    reading_is_allowed_and_explained,
    what_the_policy_rules_out_is_denied_as_an_answer,
    writing_needs_confirmation_and_says_whose,
    a_rule_that_cannot_be_evaluated_asks_and_says_so,
    a_batch_is_answered_in_order_each_on_its_own,
    arguments_that_could_be_read_two_ways_are_refused,
    spelling_is_no_difference_and_every_digit_is,
    asking_makes_an_approval_that_shows_what_a_person_needs,
    the_same_question_is_asked_once,
    a_request_id_stands_for_one_request,
    nothing_is_asked_where_nothing_is_to_confirm_or_to_be_had,
    only_people_of_the_requirement_decide_and_each_clause_needs_its_own,
    what_was_shown_must_be_what_is_decided,
    a_denial_ends_it_and_says_who,
    what_was_cancelled_or_revoked_is_not_used,
    people_list_what_is_theirs_page_by_page,
    what_is_not_what_was_approved_is_refused_by_name,
    a_token_that_is_none_is_refused_with_one_text,
    an_approval_is_used_once_and_a_lost_answer_is_not_a_lost_approval,
    without_a_token_only_what_is_allowed_passes,
    an_outcome_is_reported_once,
    nobody_knows_may_become_known_with_evidence,
    the_audit_joins_the_story_and_tells_no_secrets,
    the_operator_sees_the_policy_in_force,
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--health-address", required=True)
    for role in ("agent", "approver", "operator"):
        parser.add_argument(f"--{role}-token", required=True, type=pathlib.Path, metavar="FILE")
    told = parser.parse_args()
    doors = {
        "agent": Doors(told.address, told.agent_token.read_text().strip()),
        "people": Doors(told.address, told.approver_token.read_text().strip()),
        "operator": Doors(told.address, told.operator_token.read_text().strip()),
        "nobody": Doors(told.address, None),
        "stranger": Doors(told.address, "cs_" + "0" * 64),
    }
    sidecar = Sidecar(
        address=told.address,
        health_address=told.health_address,
        agent_token=told.agent_token.read_text().strip(),
        **doors,
    )
    try:
        for chapter in STORY:
            name = chapter.__name__.replace("_", " ")
            try:
                chapter(sidecar)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                print(f"does not hold: {name}")
                return 1
            print(f"holds: {name}", flush=True)
    finally:
        for door in doors.values():
            door.close()
    print(f"the story holds: {len(STORY)} chapters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
