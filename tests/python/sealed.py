"""A Python client that calls through TLS and shows a certificate of its own: `sealed.py ADDRESS TOKEN FOLDER`, with `ca.pem`,
`chat.pem` and `chat.key` in the folder. It exits with 0 if every line below holds."""

from __future__ import annotations

import pathlib
import sys

import grpc

from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import agent_service_pb2_grpc
from countersign.v1 import invocation_pb2 as invocations


def evaluate(channel: grpc.Channel, token: str) -> agents.EvaluateResponse:
    call = invocations.Invocation(principal="olga", agent="assistant", connector="none", action="LIST", arguments_json="{}")
    stub = agent_service_pb2_grpc.AgentServiceStub(channel)
    return stub.Evaluate(
        agents.EvaluateRequest(invocation=call), metadata=[("authorization", f"Bearer {token}")], timeout=20
    )


def refused(channel: grpc.Channel, token: str) -> grpc.StatusCode:
    try:
        answer = evaluate(channel, token)
    except grpc.RpcError as error:
        return error.code()
    raise AssertionError(f"it was answered: {answer}")


def main() -> int:
    address, token, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    read = lambda name: (folder / name).read_bytes()  # noqa: E731
    shows = grpc.ssl_channel_credentials(read("ca.pem"), read("chat.key"), read("chat.pem"))
    with grpc.secure_channel(address, shows) as channel:
        assert evaluate(channel, token).reason == "CONNECTOR_UNKNOWN"
        assert refused(channel, token + "x") == grpc.StatusCode.UNAUTHENTICATED
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(read("ca.pem"))) as channel:
        assert refused(channel, token) == grpc.StatusCode.UNAVAILABLE
    with grpc.insecure_channel(address) as channel:
        assert refused(channel, token) == grpc.StatusCode.UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
