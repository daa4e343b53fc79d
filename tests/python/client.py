"""A client of the sidecar: its doors, each with its caller's credentials, refusals read as a client reads them, and the
few steps that most chapters of the story take."""

from __future__ import annotations

import dataclasses
import json
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2

from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import agent_service_pb2_grpc, approver_service_pb2_grpc, operator_service_pb2_grpc
from countersign.v1 import approval_pb2 as approvals
from countersign.v1 import approver_service_pb2 as approvers
from countersign.v1 import invocation_pb2 as invocations
from countersign.v1 import operator_service_pb2 as operators

Code = grpc.StatusCode
DOMAIN = "countersign.v1"
SERVICES = ["AgentService", "ApproverService", "OperatorService"]
# A call that takes longer than this hangs.
DEADLINE_SECONDS = 20


class _Credentials(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
):
    """Adds one bearer token and a deadline to every call."""

    def __init__(self, token: str | None):
        self._metadata = [] if token is None else [("authorization", f"Bearer {token}")]

    def _with_token(self, details):
        class Details(grpc.ClientCallDetails):
            method = details.method
            timeout = DEADLINE_SECONDS
            metadata = [*(details.metadata or []), *self._metadata]
            credentials = details.credentials
            wait_for_ready = details.wait_for_ready
            compression = details.compression

        return Details()

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(self._with_token(details), request)

    def intercept_unary_stream(self, continuation, details, request):
        return continuation(self._with_token(details), request)


def open_channel(address: str) -> grpc.Channel:
    """A channel to `host:port` or `unix:/path`. Of a path grpcio would make an authority that HTTP/2 does not allow."""
    options = [("grpc.default_authority", "localhost")] if address.startswith("unix:") else []
    return grpc.insecure_channel(address, options=options)


class Doors:
    """Every service of the sidecar behind one channel, called with one token (or none)."""

    def __init__(self, address: str, token: str | None):
        self._channel = open_channel(address)
        channel = grpc.intercept_channel(self._channel, _Credentials(token))
        self.agent = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.approver = approver_service_pb2_grpc.ApproverServiceStub(channel)
        self.operator = operator_service_pb2_grpc.OperatorServiceStub(channel)

    def close(self) -> None:
        self._channel.close()


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A refused call: its code, and what `google.rpc.Status` in the trailers says about it."""

    code: grpc.StatusCode
    reason: str
    message: str
    metadata: dict[str, str]
    # The violated fields of a `google.rpc.BadRequest`, in order.
    fields: list[str]


def read_refusal(error: grpc.RpcError) -> Refusal:
    """Reads `grpc-status-details-bin`, the binary trailer with a `google.rpc.Status`."""
    trailers = dict(error.trailing_metadata() or ())
    packed = trailers.get("grpc-status-details-bin")
    assert packed is not None, f"a refusal without details: {error.code()}: {error.details()}"
    status = status_pb2.Status.FromString(packed)
    assert status.code == error.code().value[0], f"{status.code} inside, {error.code()} outside"
    assert status.message == error.details(), f"{status.message!r} inside, {error.details()!r} outside"
    infos, fields = [], []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            infos.append(info)
        elif detail.Unpack(bad_request):
            fields += [violation.field for violation in bad_request.field_violations]
    assert len(infos) == 1, f"{len(infos)} ErrorInfos in {status}"
    assert infos[0].domain == DOMAIN, infos[0].domain
    return Refusal(error.code(), infos[0].reason, status.message, dict(infos[0].metadata), fields)


def refused(call, request, code: grpc.StatusCode, reason: str) -> Refusal:
    """Makes a call that must be refused with this code and reason; an answer is a failure."""
    try:
        answer = call(request)
        if hasattr(answer, "__next__"):
            # A stream is refused where its first answer would be.
            answer = next(answer)
    except grpc.RpcError as error:
        refusal = read_refusal(error)
        assert (refusal.code, refusal.reason) == (code, reason), f"wanted {code} {reason}, got {refusal}"
        return refusal
    raise AssertionError(f"wanted {code} {reason}, but it was answered: {type(answer).__name__}")


def invocation(arguments: object = None, **changed) -> invocations.Invocation:
    """An email to a colleague, unless told otherwise. `arguments` is JSON text, or a value to be written as JSON."""
    if arguments is None:
        arguments = {"recipient_email": "kim@acme.com", "subject": "Lunch", "body": "At noon?"}
    fields = {
        "principal": "pat",
        "agent": "assistant",
        "conversation": f"conversation-{uuid.uuid4()}",
        "connector": "gmail",
        "account": "work-mailbox-a",
        "connection": "connection-1",
        "action": "GMAIL_SEND_EMAIL",
        "arguments_json": arguments if isinstance(arguments, str) else json.dumps(arguments),
        "objective": invocations.Objective(transcript="transcript-1", id="objective-1", revision=3),
    }
    return invocations.Invocation(**{**fields, **changed})


def but(original: invocations.Invocation, **changed) -> invocations.Invocation:
    """The same invocation, but for these fields."""
    copy = invocations.Invocation()
    copy.CopyFrom(original)
    for field, value in changed.items():
        if field == "objective":
            copy.ClearField(field)
            if value is not None:
                copy.objective.CopyFrom(value)
        else:
            setattr(copy, field, value)
    return copy


def attempt() -> str:
    """A new attempt's id."""
    return str(uuid.uuid4())


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
