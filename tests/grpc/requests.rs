//! Asking: the same question once, request ids, and what is refused or needs no question.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

fn with_id(request_id: &str, invocation: Invocation) -> RequestApprovalRequest {
    RequestApprovalRequest { request_id: request_id.to_owned(), ..asking(invocation) }
}

fn objective(transcript: &str, id: &str, revision: u64) -> Option<Objective> {
    Some(Objective { transcript: transcript.to_owned(), id: id.to_owned(), revision })
}

/// The email with each of what a question is known by changed alone.
fn other_questions() -> Vec<(&'static str, Invocation)> {
    let text = str::to_owned;
    let digest = |digit: &str| format!("td1:{}", digit.repeat(64));
    vec![
        ("as it is", email()),
        ("principal", Invocation { principal: text("pia"), ..email() }),
        ("agent", Invocation { agent: text("other-1"), ..email() }),
        ("conversation", Invocation { conversation: text("conversation-2"), ..email() }),
        ("no conversation", Invocation { conversation: String::new(), ..email() }),
        ("connector", Invocation { connector: text("outlook"), ..email() }),
        ("account", Invocation { account: text("mailbox-b"), ..email() }),
        ("action", Invocation { action: text("GMAIL_REPLY"), ..email() }),
        ("arguments", Invocation { arguments_json: text(r#"{"to":"b@example.com","body":"Hello"}"#), ..email() }),
        ("a string for a number", Invocation { arguments_json: text(r#"{"to":"","n":"1"}"#), ..email() }),
        ("a number for a string", Invocation { arguments_json: text(r#"{"to":"","n":1}"#), ..email() }),
        ("null", Invocation { arguments_json: text(r#"{"to":"","n":null}"#), ..email() }),
        ("no arguments", Invocation { arguments_json: String::new(), ..email() }),
        ("revision", Invocation { objective: objective("t1", "input-1", 2), ..email() }),
        ("objective", Invocation { objective: objective("t1", "input-2", 1), ..email() }),
        ("transcript", Invocation { objective: objective("t2", "input-1", 1), ..email() }),
        ("transcript and objective exchanged", Invocation { objective: objective("input-1", "t1", 1), ..email() }),
        ("no objective", Invocation { objective: None, ..email() }),
        ("definition", Invocation { tool_definition_digest: digest("0"), ..email() }),
        ("another definition", Invocation { tool_definition_digest: digest("f"), ..email() }),
    ]
}

#[tokio::test]
async fn whatever_a_question_is_known_by_makes_another_question_alone() {
    let sidecar = Sidecar::start().await;
    let mut asked = Vec::new();
    for (what, invocation) in other_questions() {
        let answer = sidecar.request(invocation.clone()).await.unwrap();
        assert!(!answer.existing, "{what}");
        asked.push((what, invocation, answer.approval.unwrap(), answer.consume_token));
    }
    for (index, (what, _, approval, token)) in asked.iter().enumerate() {
        for (other_what, _, other, other_token) in &asked[..index] {
            assert!(approval.id != other.id && token != other_token, "{what}, {other_what}");
        }
    }
    // Each asked again is answered with its own, token included, and nothing more is recorded.
    let records = sidecar.audit().await.len();
    for (what, invocation, approval, token) in asked {
        let again = sidecar.request(invocation).await.unwrap();
        assert_eq!((again.approval.unwrap(), again.consume_token, again.existing), (approval, token, true), "{what}");
    }
    assert_eq!(sidecar.audit().await.len(), records);
}

#[tokio::test]
async fn what_does_not_make_a_question_does_not_make_another_one() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(email()).await;
    let text = str::to_owned;
    let same = [
        asking(Invocation { connection: text("connection-2"), ..email() }),
        asking(Invocation { connection: String::new(), ..email() }),
        asking(Invocation { labels: Default::default(), ..email() }),
        asking(Invocation {
            arguments_json: text(" {\"body\" : \"Hell\\u006f\",\"to\":\"a@example.com\"}"),
            ..email()
        }),
        RequestApprovalRequest { agent_note: text("please"), ..asking(email()) },
        RequestApprovalRequest { decide_within: span(1, 0), ..asking(email()) },
        with_id("request-1", email()),
        with_id("request-2", email()),
    ];
    for request in same {
        let answer = sidecar.request_as("runtime", request).await.unwrap();
        assert!(answer.existing);
        assert_eq!((answer.approval.unwrap(), answer.consume_token), (approval.clone(), token.clone()));
    }
}

#[tokio::test]
async fn each_caller_asks_for_itself_and_each_of_the_two_approvals_is_used_once() {
    let sidecar = Sidecar::start().await;
    let one = sidecar.request_as("runtime", asking(email())).await.unwrap();
    let other = sidecar.request_as("runtime-2", asking(email())).await.unwrap();
    assert!(!other.existing);
    let (one_approval, other_approval) = (one.approval.unwrap(), other.approval.unwrap());
    assert_ne!(one_approval.id, other_approval.id);
    assert_ne!(one.consume_token, other.consume_token);
    assert_eq!((one_approval.requested_by.as_str(), other_approval.requested_by.as_str()), ("runtime", "runtime-2"));
    sidecar.decide("olga", &one_approval.id, Verdict::Approve).await.unwrap();
    refused(sidecar.consume(&other.consume_token, email()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    sidecar.consume(&one.consume_token, email()).await.unwrap();
}

#[tokio::test]
async fn a_question_that_is_over_is_asked_anew() {
    let sidecar = Sidecar::start().await;
    for ending in ["denied", "cancelled while pending", "cancelled", "revoked", "consumed"] {
        let invocation = in_conversation(ending);
        let (first, token) = sidecar.ask(invocation.clone()).await;
        if !matches!(ending, "denied" | "cancelled while pending") {
            let open = sidecar.decide("olga", &first.id, Verdict::Approve).await.unwrap();
            let again = sidecar.request(invocation.clone()).await.unwrap();
            assert_eq!((again.approval.unwrap(), again.existing), (open, true), "approved and unused is still open");
        }
        let state = match ending {
            "denied" => sidecar.decide("olga", &first.id, Verdict::Deny).await.unwrap().state(),
            "revoked" => sidecar.take_back("olga", &first.id).await.unwrap().state(),
            "consumed" => {
                sidecar.consume(&token, invocation.clone()).await.unwrap();
                sidecar.read(&first).await.state()
            }
            _ => sidecar.cancel_as("runtime", &first).await.unwrap().state(),
        };
        let second = sidecar.request(invocation.clone()).await.unwrap();
        assert!(!second.existing, "{ending}");
        let (second, new_token) = (second.approval.unwrap(), second.consume_token);
        assert!(second.id != first.id && new_token != token, "{ending}");
        assert_eq!(second.state(), ApprovalState::Pending, "no earlier answer is taken over: {ending}");
        assert!(second.decisions.is_empty());
        assert_eq!(sidecar.read(&first).await.state(), state);
        refused(sidecar.consume(&new_token, invocation).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    }
}

#[tokio::test]
async fn an_overdue_question_reads_expired_and_is_asked_anew() {
    let sidecar = Sidecar::start().await;
    for approve in [false, true] {
        let invocation = in_conversation(&format!("approved: {approve}"));
        let (first, token) = sidecar.ask(invocation.clone()).await;
        let deadline = if approve {
            sidecar.decide("olga", &first.id, Verdict::Approve).await.unwrap().use_by
        } else {
            first.decide_by
        };
        sidecar.stand_at(&deadline, -1);
        assert!(sidecar.request(invocation.clone()).await.unwrap().existing);
        sidecar.stand_at(&deadline, 0);
        assert_eq!(sidecar.read(&first).await.state(), ApprovalState::Expired);
        let second = sidecar.request(invocation.clone()).await.unwrap();
        assert!(!second.existing);
        assert_ne!(second.approval.as_ref().unwrap().id, first.id);
        assert_eq!(micros(&second.approval.unwrap().decide_by), sidecar.store_micros() + 600_000_000);
        let old = sidecar.read(&first).await;
        assert_eq!(old.state(), ApprovalState::Expired);
        assert_eq!(sidecar.seen_by("olga", &first.id).await.unwrap(), old);
        refused(sidecar.consume(&token, invocation).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        let kinds: Vec<String> = sidecar.audit_of(&first.id).await.into_iter().map(|record| record.kind).collect();
        assert_eq!(kinds.iter().filter(|kind| *kind == "approval.expired").count(), 1, "written down once: {kinds:?}");
    }
}

#[tokio::test]
async fn a_request_id_answers_its_first_approval_in_whatever_state_it_is() {
    let sidecar = Sidecar::start().await;
    for ending in ["pending", "approved", "denied", "cancelled", "consumed", "expired"] {
        let request = with_id(&format!("request {ending}"), in_conversation(ending));
        let first = sidecar.request_as("runtime", request.clone()).await.unwrap();
        assert!(!first.existing);
        let (approval, token) = (first.approval.unwrap(), first.consume_token);
        match ending {
            "pending" => {}
            "denied" => drop(sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap()),
            "cancelled" => drop(sidecar.cancel_as("runtime", &approval).await.unwrap()),
            "expired" => sidecar.advance(Duration::from_secs(600)),
            _ => drop(sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap()),
        }
        if ending == "consumed" {
            sidecar.consume(&token, in_conversation(ending)).await.unwrap();
        }
        let now = sidecar.read(&approval).await;
        assert_eq!(now.state().as_str_name(), format!("APPROVAL_STATE_{}", ending.to_uppercase()));
        let again = sidecar.request_as("runtime", request).await.unwrap();
        assert_eq!((again.approval.unwrap(), again.consume_token, again.existing), (now, token, true), "{ending}");
        assert_eq!(again.decision, i32::from(Decision::ConfirmationRequired));
    }
}

#[tokio::test]
async fn a_request_id_of_another_request_is_refused_whatever_differs() {
    let sidecar = Sidecar::start().await;
    let used = in_conversation("used");
    let (_, token) = sidecar.approved(used.clone()).await;
    let execution = sidecar.consume(&token, used).await.unwrap().permit.unwrap().execution_id;
    let (first, _) = {
        let answer = sidecar.request_as("runtime", with_id("request-1", email())).await.unwrap();
        (answer.approval.unwrap(), answer.consume_token)
    };
    let records = sidecar.audit().await.len();
    let text = str::to_owned;
    let whole = with_id("request-1", email());
    // Of another principal or agent the same id is another one.
    let mut others: Vec<RequestApprovalRequest> = other_questions()
        .into_iter()
        .filter(|(what, _)| !matches!(*what, "as it is" | "principal" | "agent"))
        .map(|(_, invocation)| with_id("request-1", invocation))
        .collect();
    others.extend([
        with_id("request-1", Invocation { connection: text("connection-2"), ..email() }),
        with_id("request-1", Invocation { labels: Default::default(), ..email() }),
        with_id("request-1", fetch()),
        RequestApprovalRequest { agent_note: text("please"), ..whole.clone() },
        RequestApprovalRequest { decide_within: span(60, 0), ..whole.clone() },
        RequestApprovalRequest { retry_of: execution, ..whole.clone() },
    ]);
    let refusals = others.len();
    for request in others {
        refused(sidecar.request_as("runtime", request).await, Code::AlreadyExists, "REQUEST_ID_REUSED");
    }
    let audit = sidecar.audit().await;
    assert_eq!(audit.len(), records + refusals, "each refusal is recorded, and nothing else");
    assert!(audit.iter().skip(records).all(|record| record.reason == "REQUEST_ID_REUSED"));
    let again = sidecar.request_as("runtime", whole).await.unwrap();
    assert_eq!(again.approval.unwrap(), first);
    // Written otherwise, the same request is the same.
    let reordered = Invocation { arguments_json: text(r#"{ "body":"Hello", "to":"a@example.com" }"#), ..email() };
    assert!(sidecar.request_as("runtime", with_id("request-1", reordered)).await.unwrap().existing);
    // Ids are compared byte for byte.
    for other in ["Request-1", "request-11", "request-1\u{301}"] {
        let answer = sidecar.request_as("runtime", with_id(other, in_conversation(other))).await.unwrap();
        assert!(!answer.existing, "{other}");
    }
}

#[tokio::test]
async fn a_request_id_is_unique_per_caller_principal_and_agent() {
    let sidecar = Sidecar::start().await;
    let mut seen = Vec::new();
    for (caller, principal, agent) in [
        ("runtime", "olga", "assistant"),
        ("runtime-2", "olga", "assistant"),
        ("runtime", "pia", "assistant"),
        ("runtime", "olga", "other-1"),
    ] {
        let invocation = Invocation { principal: principal.to_owned(), agent: agent.to_owned(), ..email() };
        let answer = sidecar.request_as(caller, with_id("request-1", invocation)).await.unwrap();
        assert!(!answer.existing);
        seen.push(answer.approval.unwrap().id);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn a_second_request_id_of_an_open_question_stands_for_it_from_then_on() {
    let sidecar = Sidecar::start().await;
    let first = sidecar.request_as("runtime", with_id("request-1", email())).await.unwrap().approval.unwrap();
    let second = sidecar.request_as("runtime", with_id("request-2", email())).await.unwrap();
    assert_eq!((second.approval.unwrap(), second.existing), (first.clone(), true));
    let denied = sidecar.decide("olga", &first.id, Verdict::Deny).await.unwrap();
    for id in ["request-1", "request-2"] {
        let again = sidecar.request_as("runtime", with_id(id, email())).await.unwrap();
        assert_eq!(again.approval.unwrap(), denied, "{id}: a retry never asks anew");
    }
    let third = sidecar.request_as("runtime", with_id("request-3", email())).await.unwrap();
    assert!(!third.existing);
}

#[tokio::test]
async fn answers_without_an_approval_are_not_kept_under_their_request_id() {
    let sidecar = Sidecar::start().await;
    let allowed = sidecar.request_as("runtime", with_id("request-1", fetch())).await.unwrap();
    assert_eq!(allowed.decision(), Decision::Allow);
    let press = Invocation { arguments_json: r#"{"to":"x@press.example"}"#.to_owned(), ..email() };
    let denied = sidecar.request_as("runtime", with_id("request-1", press)).await;
    refused(denied, Code::PermissionDenied, "POLICY_DENIED");
    let asked = sidecar.request_as("runtime", with_id("request-1", email())).await.unwrap();
    assert!(!asked.existing);
    refused(
        sidecar.request_as("runtime", with_id("request-1", fetch())).await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
    );
}

#[tokio::test]
async fn a_request_id_answered_with_its_approval_whatever_the_policy_says_by_then() {
    let mut sidecar = Sidecar::start().await;
    let request = with_id("request-1", email());
    let first = sidecar.request_as("runtime", request.clone()).await.unwrap();
    let denying = POLICY.replace("  gmail:\n", "  gmail:\n    enabled: false\n");
    let allowing = POLICY.replace("  gmail:\n", "  gmail:\n    confirm: never\n");
    for policy in [denying.as_str(), allowing.as_str(), POLICY] {
        sidecar.restart_under(policy).await;
        let again = sidecar.request_as("runtime", request.clone()).await.unwrap();
        assert_eq!(again.decision(), Decision::ConfirmationRequired);
        assert_eq!(again.approval, first.approval);
        assert_eq!(again.consume_token, first.consume_token);
    }
    // Without the id the policy of the day answers.
    sidecar.restart_under(&denying).await;
    let status = refused(sidecar.request(email()).await, Code::PermissionDenied, "POLICY_DENIED");
    assert_eq!(told(&status, "policy_reason"), "CONNECTOR_DISABLED");
    sidecar.restart_under(&allowing).await;
    let allowed = sidecar.request(email()).await.unwrap();
    assert_eq!((allowed.decision(), allowed.approval, allowed.consume_token.as_str()), (Decision::Allow, None, ""));
}

#[tokio::test]
async fn another_requirement_makes_the_same_call_another_question() {
    let mut sidecar = Sidecar::start().await;
    let (first, _) = sidecar.ask(email()).await;
    let stricter = POLICY.replace(
        "      - name: deletion\n",
        "      - { name: two, actions: [GMAIL_SEND_EMAIL], effect: confirm, approvers: [{ any_of: [\"group:finance\"] }] }\n      - name: deletion\n",
    );
    assert_ne!(stricter, POLICY);
    sidecar.restart_under(&stricter).await;
    let second = sidecar.request(email()).await.unwrap();
    assert!(!second.existing);
    assert_eq!(second.reason, "CONFIRMATION_BY_RULE");
    assert_eq!(second.approval.as_ref().unwrap().requirement.as_ref().unwrap().clauses.len(), 2);
    // A policy that only renames things asks the same question.
    sidecar.restart_under(&POLICY.replace("name: deletion", "name: deletions")).await;
    let again = sidecar.request(email()).await.unwrap();
    assert_eq!((again.approval.unwrap().id, again.existing), (first.id, true));
}

#[tokio::test]
async fn of_many_simultaneous_equal_questions_one_is_recorded() {
    let sidecar = Sidecar::start().await;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..40 {
        let mut agent = sidecar.agent();
        let request =
            if index % 2 == 0 { asking(email()) } else { with_id(&format!("request {}", index % 4), email()) };
        calls.spawn(async move { agent.request_approval(request).await.unwrap().into_inner() });
    }
    let answers = calls.join_all().await;
    assert_eq!(answers.iter().filter(|answer| !answer.existing).count(), 1);
    let first = answers[0].approval.as_ref().unwrap();
    for answer in &answers {
        assert_eq!(answer.approval.as_ref(), Some(first));
        assert_eq!(answer.consume_token, answers[0].consume_token);
    }
    assert_eq!(sidecar.audit().await.len(), 1);
}

#[tokio::test]
async fn what_is_allowed_makes_no_approval_and_leaves_no_record() {
    let sidecar = Sidecar::start().await;
    let answer = sidecar.request(fetch()).await.unwrap();
    assert_eq!((answer.decision(), answer.reason.as_str()), (Decision::Allow, "ALLOWED"));
    assert_eq!((answer.approval, answer.consume_token.as_str(), answer.existing), (None, "", false));
    assert!(answer.message.contains("GMAIL_FETCH_EMAILS"));
    assert!(sidecar.listed("olga", &[]).await.is_empty());
    assert!(sidecar.audit().await.is_empty());
    sidecar.consume("", fetch()).await.unwrap();
}

#[tokio::test]
async fn what_the_policy_denies_is_refused_with_its_reason_rules_and_revision() {
    let sidecar = Sidecar::start().await;
    let revision = sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner().revision;
    let text = str::to_owned;
    let press = Invocation { arguments_json: text(r#"{"to":"secret-name@press.example"}"#), ..email() };
    let cases = [
        (press, "DENIED_BY_RULE", "never-to-the-press"),
        (Invocation { connector: text("nowhere"), ..email() }, "CONNECTOR_UNKNOWN", ""),
        (Invocation { connector: text("off"), ..email() }, "CONNECTOR_DISABLED", ""),
        (Invocation { agent: text("stranger"), ..email() }, "AGENT_NOT_ALLOWED", ""),
        (Invocation { account: String::new(), ..email() }, "ACCOUNT_NOT_ALLOWED", ""),
        (Invocation { action: text("GMAIL_UNKNOWN"), ..email() }, "ACTION_UNKNOWN", ""),
    ];
    for (invocation, why, rules) in cases {
        let evaluated = sidecar.evaluate(invocation.clone()).await.unwrap();
        assert_eq!((evaluated.decision(), evaluated.reason.as_str()), (Decision::Deny, why));
        let status = refused(sidecar.request(invocation).await, Code::PermissionDenied, "POLICY_DENIED");
        assert_eq!(told(&status, "policy_reason"), why);
        assert_eq!(told(&status, "rules"), rules);
        assert_eq!(told(&status, "policy_revision"), revision);
        assert!(status.message().contains(&evaluated.message), "{status:?}");
        assert!(!format!("{status:?}").contains("secret-name"), "no arguments in an error");
        let record = sidecar.audit().await.pop().unwrap();
        assert_eq!((record.kind.as_str(), record.decision.as_str()), ("request.refused", "DENY"));
        assert_eq!((record.reason.as_str(), record.policy_revision.as_str()), (why, revision.as_str()));
    }
    assert!(sidecar.listed("olga", &[]).await.is_empty());
}

#[tokio::test]
async fn an_invalid_request_is_recorded_nowhere() {
    let sidecar = Sidecar::start().await;
    wrong(sidecar.request_as("runtime", RequestApprovalRequest::default()).await, "invocation");
    wrong(sidecar.request(Invocation { principal: String::new(), ..email() }).await, "invocation.principal");
    wrong(sidecar.consume("", Invocation { action: " x".to_owned(), ..email() }).await, "invocation.action");
    wrong(sidecar.attempt("", "not-a-uuid", fetch()).await, "attempt_id");
    wrong(sidecar.decide("olga", "not-a-uuid", Verdict::Approve).await, "approval_id");
    wrong(sidecar.decide("", &new_attempt(), Verdict::Approve).await, "principal");
    let with_both = ConsumeRequest {
        consume_token: "x".to_owned(),
        attempt_id: new_attempt(),
        invocation: Some(fetch()),
        retry_of: new_attempt(),
    };
    wrong(sidecar.agent().consume(with_both).await, "retry_of");
    assert!(sidecar.audit().await.is_empty());
}
