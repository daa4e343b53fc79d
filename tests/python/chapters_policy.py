"""What the policy answers, and what an invocation is."""

from __future__ import annotations

from client import Code, Sidecar, evaluation, invocation, refused
from countersign.v1 import agent_service_pb2 as agents
from countersign.v1 import decision_pb2 as decisions


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


def what_is_too_large_is_refused_with_a_reason(sidecar: Sidecar) -> None:
    large = evaluation(invocation({"body": "a" * (256 * 1024)}))
    refused(sidecar.agent.agent.Evaluate, large, Code.INVALID_ARGUMENT, "INVALID_ARGUMENTS_JSON")
    larger = evaluation(invocation({"body": "a" * (5 * 1024 * 1024)}))
    refused(sidecar.agent.agent.Evaluate, larger, Code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")


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
