"""Who is let in, and where."""

from __future__ import annotations

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from client import SERVICES, Code, Doors, Sidecar, evaluation, invocation, open_channel, refused


def health_says_serving_without_credentials(sidecar: Sidecar) -> None:
    services = [f"countersign.v1.{service}" for service in SERVICES]
    for address in (sidecar.address, sidecar.health_address):
        with open_channel(address) as channel:
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
    with open_channel(sidecar.address) as channel:
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
