"""The doors of a sidecar, each with its caller's credentials, and refusals as a client reads them."""

from __future__ import annotations

import dataclasses
import json
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2

from countersign.v1 import (
    agent_service_pb2_grpc,
    approver_service_pb2_grpc,
    invocation_pb2,
    operator_service_pb2_grpc,
)

DOMAIN = "countersign.v1"
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


class Doors:
    """Every service of the sidecar behind one channel, called with one token (or none)."""

    def __init__(self, address: str, token: str | None):
        self._channel = grpc.insecure_channel(address)
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
    except grpc.RpcError as error:
        refusal = read_refusal(error)
        assert (refusal.code, refusal.reason) == (code, reason), f"wanted {code} {reason}, got {refusal}"
        return refusal
    raise AssertionError(f"wanted {code} {reason}, but it was answered: {type(answer).__name__}")


def invocation(arguments: object = None, **changed) -> invocation_pb2.Invocation:
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
        "objective": invocation_pb2.Objective(transcript="transcript-1", id="objective-1", revision=3),
    }
    return invocation_pb2.Invocation(**{**fields, **changed})


def but(original: invocation_pb2.Invocation, **changed) -> invocation_pb2.Invocation:
    """The same invocation, but for these fields."""
    copy = invocation_pb2.Invocation()
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
