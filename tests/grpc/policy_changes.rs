//! The policy changes between approval and use: the gate asks the one of its moment, and people's decisions are kept as
//! they were made.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

const SEND: &str = "actions: { GMAIL_SEND_EMAIL: { scope: write, curated: true } }";

/// A policy of these groups whose one connector `gmail` has these members.
fn policy(groups: &str, gmail: &str) -> String {
    format!("version: countersign.policy/v1\ngroups: {{ {groups} }}\nconnectors:\n  gmail: {{ {gmail} }}\n")
}

/// A policy in which one rule asks these approvers to confirm, and nothing else asks.
fn confirmed_by(groups: &str, approvers: &str) -> String {
    let rule = format!("{{ name: rule, effect: confirm, approvers: {approvers} }}");
    policy(groups, &format!("ceiling: write, confirm: never, {SEND}, rules: [{rule}]"))
}

/// One that asks the owner.
fn owner() -> String {
    policy("finance: [dana, eve]", &format!("ceiling: write, {SEND}"))
}

/// A call of the tool whose definition has this digest.
fn defined(digit: &str) -> Invocation {
    Invocation { tool_definition_digest: digest(digit), ..email() }
}

fn digest(digit: &str) -> String {
    format!("td1:{}", digit.repeat(64))
}

async fn revision(sidecar: &Sidecar) -> String {
    sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner().revision
}

#[tokio::test]
async fn whatever_denies_by_then_refuses_and_leaves_the_approval() {
    let mut sidecar = Sidecar::under(&owner()).await;
    let (approval, token) = sidecar.approved(defined("1")).await;
    let rule = |rule: &str| format!("ceiling: write, {SEND}, rules: [{rule}]");
    let pinned =
        format!("actions: {{ GMAIL_SEND_EMAIL: {{ scope: write, curated: true, definition: \"{}\" }} }}", digest("2"));
    for (gmail, why) in [
        (format!("enabled: false, ceiling: write, {SEND}"), "CONNECTOR_DISABLED"),
        (format!("agents: [another], ceiling: write, {SEND}"), "AGENT_NOT_ALLOWED"),
        (format!("agents: [], ceiling: write, {SEND}"), "AGENT_NOT_ALLOWED"),
        (format!("accounts: [mailbox-b], ceiling: write, {SEND}"), "ACCOUNT_NOT_ALLOWED"),
        (format!("accounts: none, ceiling: write, {SEND}"), "ACCOUNT_NOT_ALLOWED"),
        ("ceiling: write, actions: { GMAIL_REPLY: { scope: write, curated: true } }".to_owned(), "ACTION_UNKNOWN"),
        (format!("ceiling: read, {SEND}"), "SCOPE_EXCEEDS_CEILING"),
        (
            "ceiling: write, actions: { GMAIL_SEND_EMAIL: { scope: write, curated: false } }".to_owned(),
            "ACTION_NOT_CURATED",
        ),
        (rule("{ name: no, effect: deny }"), "DENIED_BY_RULE"),
        (rule("{ name: no, when: \"args.missing == 1\", effect: deny }"), "DENIED_BY_RULE"),
        (format!("ceiling: write, {pinned}"), "TOOL_DEFINITION_CHANGED"),
        (
            rule(
                "{ name: others, effect: confirm, approvers: [{ any_of: [\"group:own\"] }], exclude_requester: true }",
            ),
            "NO_ELIGIBLE_APPROVER",
        ),
    ] {
        sidecar.restart_under(&policy("own: [olga]", &gmail)).await;
        let denied = refused(sidecar.consume(&token, defined("1")).await, Code::PermissionDenied, "POLICY_DENIED");
        assert_eq!(told(&denied, "policy_reason"), why, "{gmail}");
        assert_eq!(sidecar.get(&approval).await, approval, "{why}");
    }
    let elsewhere = owner().replace("gmail:", "outlook:");
    sidecar.restart_under(&elsewhere).await;
    let denied = refused(sidecar.consume(&token, defined("1")).await, Code::PermissionDenied, "POLICY_DENIED");
    assert_eq!(told(&denied, "policy_reason"), "CONNECTOR_UNKNOWN");
    let refusal = sidecar.audit_of(&approval.id).await.pop().unwrap();
    assert_eq!((refusal.kind.as_str(), refusal.reason.as_str()), ("consume.refused", "CONNECTOR_UNKNOWN"));
    assert_eq!(refusal.policy_revision, revision(&sidecar).await);
    sidecar.restart_under(&owner()).await;
    sidecar.consume(&token, defined("1")).await.unwrap();
}

#[tokio::test]
async fn loosened_to_allow_the_approval_is_used_up_all_the_same() {
    let mut sidecar = Sidecar::under(&owner()).await;
    let (approval, token) = sidecar.approved(email()).await;
    let (pending, unanswered) = sidecar.ask(in_conversation("pending", email())).await;
    let asked_under = revision(&sidecar).await;
    assert_eq!(approval.policy_revision, asked_under);
    sidecar
        .restart_under(&policy("", &format!("ceiling: write, confirm: never, {SEND}")).replace("groups: {  }\n", ""))
        .await;
    let consumed = sidecar.consume(&token, email()).await.unwrap();
    assert_eq!((consumed.decision(), consumed.reason.as_str()), (Decision::Allow, "ALLOWED"));
    assert_eq!(consumed.permit.unwrap().approval_id, approval.id);
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    let stands = sidecar.get(&approval).await;
    assert_eq!((stands.state(), &stands.policy_revision), (ApprovalState::Consumed, &asked_under));
    let used = sidecar.audit_of(&approval.id).await.into_iter().find(|it| it.kind == "approval.consumed").unwrap();
    assert_eq!((used.decision.as_str(), used.reason.as_str()), ("ALLOW", "ALLOWED"));
    assert_eq!(used.policy_revision, revision(&sidecar).await);
    assert_ne!(used.policy_revision, asked_under);
    // Who presents an unanswered question has not been answered, whatever runs without one today.
    let open = in_conversation("pending", email());
    refused(sidecar.consume(&unanswered, open.clone()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    sidecar.started(open).await;
    assert_eq!(sidecar.get(&pending).await, pending);
}

#[tokio::test]
async fn asking_more_people_by_then_means_asking_again() {
    let mut sidecar = Sidecar::under(&owner()).await;
    let (approval, token) = sidecar.approved(email()).await;
    let two = "[{ any_of: [owner] }, { any_of: [\"group:finance\"] }]";
    for stricter in [
        confirmed_by("finance: [dana, eve]", two),
        confirmed_by("finance: [dana, eve]", "[{ any_of: [owner, \"group:finance\"], quorum: 2 }]"),
        confirmed_by("finance: [dana, eve]", "[{ any_of: [\"group:finance\"] }]"),
        confirmed_by("finance: [dana, olga]", "[{ any_of: [\"group:finance\"] }]"),
        confirmed_by("finance: [dana]", "[{ any_of: [\"person:kim\"] }]"),
        confirmed_by("finance: [dana]", "[{ any_of: [owner, \"person:kim\"] }]")
            .replace("effect: confirm", "exclude_requester: true, effect: confirm"),
    ] {
        sidecar.restart_under(&stricter).await;
        let raised = sidecar.consume(&token, email()).await;
        refused(raised, Code::FailedPrecondition, "CONFIRMATION_RAISED");
        assert_eq!(sidecar.get(&approval).await, approval);
    }
    // The way out is a new question, under today's requirement; the old approval is not it.
    sidecar.restart_under(&confirmed_by("finance: [dana, eve]", two)).await;
    let asked = sidecar.request(email()).await.unwrap();
    assert!(!asked.existing);
    let again = asked.approval.unwrap();
    sidecar.decide("olga", &again.id, Verdict::Approve).await.unwrap();
    sidecar.decide("dana", &again.id, Verdict::Approve).await.unwrap();
    sidecar.consume(&asked.consume_token, email()).await.unwrap();
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "CONFIRMATION_RAISED");
    sidecar.restart_under(&owner()).await;
    assert!(sidecar.request(email()).await.unwrap().existing, "the first question again, still open");
    sidecar.consume(&token, email()).await.unwrap();
}

#[tokio::test]
async fn a_requirement_that_the_recorded_decisions_meet_lets_it_pass() {
    let groups = "finance: [dana, eve, olga], security: [sam, dana]";
    let strict = "[{ any_of: [owner] }, { any_of: [\"group:finance\"], quorum: 2 }]";
    for (name, met) in [
        ("fewer", "[{ any_of: [\"group:finance\"], quorum: 2 }]"),
        ("one", "[{ any_of: [owner] }]"),
        ("a person", "[{ any_of: [\"person:eve\"] }]"),
        ("by another group", "[{ any_of: [\"group:security\"] }, { any_of: [\"group:finance\"], quorum: 2 }]"),
        ("three of one clause", "[{ any_of: [owner, \"group:finance\"], quorum: 3 }]"),
        // Assigned greedily, `dana` would stand for finance, and nobody for security.
        (
            "a matching",
            "[{ any_of: [\"group:finance\"] }, { any_of: [\"group:security\"] }, { any_of: [\"person:eve\"] }]",
        ),
    ] {
        let mut sidecar = Sidecar::under(&confirmed_by(groups, strict)).await;
        let (approval, token) = sidecar.ask(email()).await;
        for person in ["olga", "dana", "eve"] {
            sidecar.decide(person, &approval.id, Verdict::Approve).await.unwrap();
        }
        sidecar.restart_under(&confirmed_by(groups, met)).await;
        let consumed = sidecar.consume(&token, email()).await.unwrap();
        assert_eq!(consumed.decision(), Decision::ConfirmationRequired, "{name}");
        assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Consumed);
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    }
}

#[tokio::test]
async fn of_a_hundred_consumes_under_a_changed_requirement_exactly_one_succeeds() {
    let mut sidecar = Sidecar::under(&owner()).await;
    let (approval, token) = sidecar.approved(email()).await;
    sidecar.restart_under(&confirmed_by("finance: [dana]", "[{ any_of: [owner, \"group:finance\"] }]")).await;
    let agent = sidecar.agent();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (mut agent, request) = (agent.clone(), attempted(&token, &new_attempt(), email()));
        calls.spawn(async move { agent.consume(request).await });
    }
    let (passed, kept): (Vec<_>, Vec<_>) = calls.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(passed.len(), 1);
    for result in kept {
        refused(result, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    }
    assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Consumed);
}

#[tokio::test]
async fn who_was_in_a_group_when_deciding_counts_for_it_and_who_joined_later_does_not() {
    let finance = "[{ any_of: [\"group:finance\"] }]";
    // Left after deciding: the question is the same, and its answer stays an answer.
    let mut sidecar = Sidecar::under(&confirmed_by("finance: [dana, eve]", finance)).await;
    let (approval, token) = sidecar.ask(email()).await;
    sidecar.decide("dana", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.restart_under(&confirmed_by("finance: [eve]", finance)).await;
    sidecar.consume(&token, email()).await.unwrap();

    // The same where the requirement changed too.
    let mut sidecar = Sidecar::under(&policy("finance: [olga]", &format!("ceiling: write, {SEND}"))).await;
    let (approval, token) = sidecar.approved(email()).await;
    assert_eq!(approval.decisions[0].groups, ["finance"]);
    sidecar.restart_under(&confirmed_by("finance: [eve]", finance)).await;
    sidecar.consume(&token, email()).await.unwrap();

    // Joined after deciding: what was decided was decided as an owner.
    let mut sidecar = Sidecar::under(&owner()).await;
    let (approval, token) = sidecar.approved(email()).await;
    assert!(approval.decisions[0].groups.is_empty());
    sidecar.restart_under(&confirmed_by("finance: [eve, olga]", finance)).await;
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "CONFIRMATION_RAISED");
}

#[tokio::test]
async fn who_may_decide_is_who_is_in_the_group_when_deciding() {
    let finance = "[{ any_of: [\"group:finance\"], quorum: 2 }]";
    let mut sidecar = Sidecar::under(&confirmed_by("finance: [dana, eve]", finance)).await;
    let (approval, _) = sidecar.ask(email()).await;
    let outside = sidecar.decide("kim", &approval.id, Verdict::Approve).await;
    refused(outside, Code::NotFound, "APPROVAL_NOT_FOUND");
    sidecar.decide("dana", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.restart_under(&confirmed_by("finance: [eve, kim]", finance)).await;
    let left = sidecar.decide("dana", &approval.id, Verdict::Deny).await;
    refused(left, Code::PermissionDenied, "NOT_AN_APPROVER");
    let joined = sidecar.decide("kim", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(joined.state(), ApprovalState::Approved, "with what was recorded of who has left");
}

#[tokio::test]
async fn other_times_change_nothing_of_what_is_open() {
    let times = |times: &str| policy("finance: [dana]", &format!("ceiling: write, {times}, {SEND}"));
    for (was, is) in [
        ("decide_within: 10m, use_within: 10m", "decide_within: 1m, use_within: 1m"),
        ("decide_within: 10m, use_within: 10m", "decide_within: 1h, use_within: 1h"),
    ] {
        let mut sidecar = Sidecar::under(&times(was)).await;
        let (asked, token) = sidecar.ask(email()).await;
        sidecar.restart_under(&times(is)).await;
        let again = sidecar.request(email()).await.unwrap();
        assert_eq!(
            (again.existing, again.approval.unwrap()),
            (true, asked.clone()),
            "times are no part of the question"
        );
        sidecar.move_to(asked.decide_by, -1);
        let approved = sidecar.decide("olga", &asked.id, Verdict::Approve).await.unwrap();
        assert_eq!(micros(approved.use_by), micros(approved.decide_time) + 600_000_000);
        sidecar.restart_under(&times(is)).await;
        sidecar.move_to(approved.use_by, -1);
        sidecar.consume(&token, email()).await.unwrap();
    }
    for late in ["decide", "use"] {
        let mut sidecar = Sidecar::under(&times("decide_within: 1m, use_within: 1m")).await;
        let (mut approval, token) = sidecar.ask(email()).await;
        sidecar.restart_under(&times("decide_within: 1h, use_within: 1h")).await;
        if late == "use" {
            approval = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        }
        sidecar.advance(Duration::from_secs(60));
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        let approve = sidecar.decide("olga", &approval.id, Verdict::Approve).await;
        if late == "decide" {
            refused(approve, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        } else {
            assert_eq!(approve.unwrap().state(), ApprovalState::Expired, "the same verdict again, whatever the state");
        }
    }
}

#[tokio::test]
async fn a_definition_pinned_anew_is_asked_of_what_was_approved_before() {
    let pinned = |digit: &str| {
        let action = format!("{{ scope: write, curated: true, definition: \"{}\" }}", digest(digit));
        policy("finance: [dana]", &format!("ceiling: write, actions: {{ GMAIL_SEND_EMAIL: {action} }}"))
    };
    let mut sidecar = Sidecar::under(&owner()).await;
    let (with, with_token) = sidecar.approved(defined("1")).await;
    let (without, without_token) = sidecar.approved(in_conversation("without", email())).await;
    let denied = |status: tonic::Status| assert_eq!(told(&status, "policy_reason"), "TOOL_DEFINITION_CHANGED");
    sidecar.restart_under(&pinned("2")).await;
    let old = sidecar.consume(&with_token, defined("1")).await;
    denied(refused(old, Code::PermissionDenied, "POLICY_DENIED"));
    let absent = sidecar.consume(&without_token, in_conversation("without", email())).await;
    denied(refused(absent, Code::PermissionDenied, "POLICY_DENIED"));
    // The tool as it is now is not the one that was approved.
    let new = sidecar.consume(&with_token, defined("2")).await;
    refused(new, Code::FailedPrecondition, "TOOL_DEFINITION_CHANGED");
    let new = sidecar.consume(&without_token, in_conversation("without", defined("2"))).await;
    refused(new, Code::FailedPrecondition, "TOOL_DEFINITION_CHANGED");
    assert_eq!((sidecar.get(&with).await, sidecar.get(&without).await), (with, without));
    sidecar.restart_under(&pinned("1")).await;
    sidecar.consume(&with_token, defined("1")).await.unwrap();
    sidecar.restart_under(&owner()).await;
    sidecar.consume(&without_token, in_conversation("without", email())).await.unwrap();
}

#[tokio::test]
async fn a_question_is_decided_under_the_requirement_that_it_was_asked_with() {
    let mut sidecar = Sidecar::under(&owner()).await;
    let (approval, token) = sidecar.ask(email()).await;
    sidecar.restart_under(&confirmed_by("finance: [dana]", "[{ any_of: [\"group:finance\"] }]")).await;
    let approved = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(approved.state(), ApprovalState::Approved);
    assert_eq!(approved.requirement, approval.requirement);
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "CONFIRMATION_RAISED");
    let disabled = owner().replace("ceiling", "enabled: false, ceiling");
    sidecar.restart_under(&disabled).await;
    let request = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let asked = sidecar.agent().request_approval(request).await;
    let denied = refused(asked, Code::PermissionDenied, "POLICY_DENIED");
    assert_eq!(told(&denied, "policy_reason"), "CONNECTOR_DISABLED");
    assert_eq!(sidecar.revoke("olga", &approval).await.unwrap().state(), ApprovalState::Revoked);
}
