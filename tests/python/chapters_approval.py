"""Asking people, and their answers."""

from __future__ import annotations

import json
import uuid

from client import Code, Sidecar, attempt, but, consumption, invocation, refused
from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import approval_pb2 as approvals
from countersign.v1 import approver_service_pb2 as approvers
from countersign.v1 import decision_pb2 as decisions


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
