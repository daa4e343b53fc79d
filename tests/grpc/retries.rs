//! Doing it again: only knowingly, only where it is needed, and under the same key where it is the same call.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use tonic::Code;

/// Mail that runs as it is.
fn open() -> String {
    POLICY.replace("    ceiling: admin\n", "    ceiling: admin\n    confirm: never\n")
}

#[tokio::test]
async fn a_person_is_shown_what_is_known_of_the_earlier_attempt() {
    let sidecar = Sidecar::start().await;
    let again = " doing it again may do it twice.";
    for (name, outcome, late, state, warning) in [
        ("started", None, false, "started", Some(again)),
        ("overdue", None, true, "unknown", Some(again)),
        ("unknown", Some(Outcome::Unknown), false, "unknown", Some(again)),
        ("failed", Some(Outcome::Failed), false, "failed", None),
    ] {
        let earlier = sidecar.started(in_conversation(name, fetch())).await;
        if late {
            sidecar.move_to(earlier.report_by, 0);
        }
        if let Some(outcome) = outcome {
            sidecar.report(&earlier.execution_id, outcome, "").await.unwrap();
        }
        let asked = sidecar.ask_to_retry(&earlier.execution_id, in_conversation(name, email())).await.unwrap();
        let approval = asked.approval.unwrap();
        assert_eq!(approval.retry_of, earlier.execution_id);
        let retried = approval.retried.clone().unwrap();
        assert_eq!((retried.execution_id.as_str(), retried.state.as_str()), (earlier.execution_id.as_str(), state));
        assert_eq!(retried.may_do_twice, warning.is_some(), "{name}");
        let plain = sidecar.ask(in_conversation("plain", email())).await.0;
        assert!(plain.retried.is_none() && plain.retry_of.is_empty());
        assert!(approval.message.starts_with(&plain.message) && approval.message != plain.message, "{name}");
        assert_eq!(approval.message.ends_with(again), warning.is_some(), "{}", approval.message);
        assert_eq!(asked.message, approval.message);
        // It is the approver who must see it.
        let seen = sidecar.list("olga").await.into_iter().find(|seen| seen.id == approval.id).unwrap();
        assert_eq!(seen, approval);
    }
}

#[tokio::test]
async fn what_is_shown_is_what_was_known_when_it_was_asked() {
    let sidecar = Sidecar::start().await;
    let earlier = sidecar.started(fetch()).await;
    let asked = sidecar.ask_to_retry(&earlier.execution_id, email()).await.unwrap();
    sidecar.report(&earlier.execution_id, Outcome::Failed, "").await.unwrap();
    let again = sidecar.ask_to_retry(&earlier.execution_id, email()).await.unwrap();
    assert!(again.existing, "the same question, though more is known by now");
    assert_eq!(again.approval, asked.approval);
}

#[tokio::test]
async fn a_retry_is_a_question_of_its_own() {
    let sidecar = Sidecar::start().await;
    let (first, second) = (sidecar.started(fetch()).await, sidecar.started(fetch()).await);
    let mut ids = std::collections::BTreeSet::new();
    for retry_of in ["", &first.execution_id, &second.execution_id] {
        let asked = sidecar.ask_to_retry(retry_of, email()).await.unwrap();
        assert!(!asked.existing);
        ids.insert(asked.approval.unwrap().id);
        assert!(sidecar.ask_to_retry(retry_of, email()).await.unwrap().existing);
    }
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn what_does_not_exist_for_this_principal_and_agent_cannot_be_retried() {
    let sidecar = Sidecar::start().await;
    let text = str::to_owned;
    let theirs = sidecar.started(Invocation { principal: text("dana"), ..fetch() }).await.execution_id;
    let other_agents = sidecar.started(Invocation { agent: text("other-agent"), ..fetch() }).await.execution_id;
    let unknown = new_attempt();
    let mut texts = Vec::new();
    for retry_of in [theirs.as_str(), other_agents.as_str(), unknown.as_str()] {
        let asked = sidecar.ask_to_retry(retry_of, email()).await;
        let status = refused(asked, Code::NotFound, "EXECUTION_NOT_FOUND");
        texts.push(learnt(&status));
        let consumed = sidecar.retry(retry_of, fetch()).await;
        assert_eq!(learnt(&refused(consumed, Code::NotFound, "EXECUTION_NOT_FOUND")), learnt(&status));
        // Also where nothing is to be confirmed.
        refused(sidecar.ask_to_retry(retry_of, fetch()).await, Code::NotFound, "EXECUTION_NOT_FOUND");
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "absent and foreign are told alike");
    assert_eq!((sidecar.count("approval.requested").await, sidecar.count("execution.started").await), (0, 2));
    for invalid in ["x", "00000000-0000-0000-0000-000000000000"] {
        refused(sidecar.ask_to_retry(invalid, email()).await, Code::InvalidArgument, "INVALID_REQUEST");
        refused(sidecar.retry(invalid, fetch()).await, Code::InvalidArgument, "INVALID_REQUEST");
    }
}

#[tokio::test]
async fn what_has_succeeded_is_not_done_again() {
    let sidecar = Sidecar::start().await;
    let done = sidecar.started(fetch()).await.execution_id;
    sidecar.report(&done, Outcome::Succeeded, "").await.unwrap();
    for refusal in [
        sidecar.ask_to_retry(&done, email()).await.map(drop),
        sidecar.ask_to_retry(&done, fetch()).await.map(drop),
        sidecar.retry(&done, fetch()).await.map(drop),
    ] {
        let status = refused(refusal, Code::FailedPrecondition, "RETRY_NOT_NEEDED");
        assert_eq!(told(&status, "execution_id"), done);
    }
    assert_eq!((sidecar.count("approval.requested").await, sidecar.count("execution.started").await), (0, 1));
}

#[tokio::test]
async fn a_retry_whose_first_attempt_turns_out_to_have_succeeded_is_refused_also_after_its_approval() {
    let sidecar = Sidecar::start().await;
    let earlier = sidecar.started(fetch()).await.execution_id;
    sidecar.report(&earlier, Outcome::Unknown, "").await.unwrap();
    let asked = sidecar.ask_to_retry(&earlier, email()).await.unwrap();
    let approval = asked.approval.unwrap();
    let approval = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.report(&earlier, Outcome::Succeeded, "it is in the folder `sent`").await.unwrap();
    let late = sidecar.consume(&asked.consume_token, email()).await;
    let late = refused(late, Code::FailedPrecondition, "RETRY_NOT_NEEDED");
    assert_eq!(told(&late, "execution_id"), earlier);
    assert_eq!(sidecar.get(&approval).await, approval, "unused, and still to be withdrawn");
    assert_eq!(sidecar.cancel(&approval).await.unwrap().state(), ApprovalState::Cancelled);
}

#[tokio::test]
async fn with_a_token_the_approval_says_what_is_retried() {
    let sidecar = Sidecar::start().await;
    let earlier = sidecar.started(fetch()).await.execution_id;
    let asked = sidecar.ask_to_retry(&earlier, email()).await.unwrap();
    let approval = asked.approval.unwrap();
    let approval = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    for token in [asked.consume_token.as_str(), "cs1.none"] {
        let request = ConsumeRequest { retry_of: earlier.clone(), ..attempted(token, &new_attempt(), email()) };
        let status = refused(sidecar.agent().consume(request).await, Code::InvalidArgument, "INVALID_REQUEST");
        assert_eq!(told(&status, "field"), "retry_of");
    }
    assert_eq!(sidecar.get(&approval).await, approval);
    let permit = sidecar.consume(&asked.consume_token, email()).await.unwrap().permit.unwrap();
    let execution = sidecar.report(&permit.execution_id, Outcome::Failed, "").await.unwrap();
    assert_eq!(execution.retry_of, earlier);
}

#[tokio::test]
async fn an_equal_retry_has_the_same_key_and_any_other_a_new_one() {
    let sidecar = Sidecar::under(&open()).await;
    let first = sidecar.started(email()).await;
    let text = str::to_owned;
    let objective = Objective { transcript: text("t9"), id: text("input-9"), revision: 9 };
    for equal in [
        email(),
        in_conversation("another", email()),
        in_conversation("", email()),
        Invocation { objective: None, ..email() },
        Invocation { objective: Some(objective), ..email() },
        Invocation { connection: text("connection-9"), labels: Default::default(), ..email() },
        Invocation { arguments_json: text(r#" { "body" : "Hello", "to" : "a@example.com" } "#), ..email() },
        Invocation { tool_definition_digest: format!("td1:{}", "1".repeat(64)), ..email() },
    ] {
        let retry = sidecar.retry(&first.execution_id, equal.clone()).await.unwrap();
        assert_eq!(retry.idempotency_key, first.idempotency_key, "{equal:?}");
        assert_ne!(retry.execution_id, first.execution_id);
        let third = sidecar.retry(&retry.execution_id, equal).await.unwrap();
        assert_eq!(third.idempotency_key, first.idempotency_key, "a retry of a retry");
    }
    let mut keys = std::collections::BTreeSet::from([first.idempotency_key.clone()]);
    for other in [
        Invocation { arguments_json: text(r#"{"to":"a@example.com","body":"Hello!"}"#), ..email() },
        Invocation { arguments_json: String::new(), ..email() },
        Invocation { account: text("mailbox-b"), ..email() },
        Invocation { action: text("GMAIL_REPLY"), ..email() },
        fetch(),
    ] {
        let retry = sidecar.retry(&first.execution_id, other.clone()).await.unwrap();
        assert!(keys.insert(retry.idempotency_key), "{other:?}");
    }
    // Nobody else said that it is the same attempt, so it is not.
    let unrelated = sidecar.started(email()).await;
    assert!(keys.insert(unrelated.idempotency_key));
}

#[tokio::test]
async fn an_approved_retry_inherits_the_key_too_and_under_its_own_account_only() {
    let mut sidecar = Sidecar::start().await;
    let (_, token) = sidecar.approved(email()).await;
    let first = sidecar.consume(&token, email()).await.unwrap().permit.unwrap();
    sidecar.report(&first.execution_id, Outcome::Unknown, "").await.unwrap();
    for (name, account, inherits) in [("same", "work-mailbox-a", true), ("other", "mailbox-b", false)] {
        let call = Invocation { account: account.to_owned(), ..in_conversation(name, email()) };
        let asked = sidecar.ask_to_retry(&first.execution_id, call.clone()).await.unwrap();
        sidecar.decide("olga", &asked.approval.unwrap().id, Verdict::Approve).await.unwrap();
        sidecar.restart().await;
        let attempt = new_attempt();
        let permit = sidecar.attempt(&asked.consume_token, &attempt, call.clone()).await.unwrap().permit.unwrap();
        assert_eq!(permit.idempotency_key == first.idempotency_key, inherits);
        let replay = sidecar.attempt(&asked.consume_token, &attempt, call).await.unwrap().permit.unwrap();
        assert_eq!(replay, permit);
        let execution = sidecar.report(&permit.execution_id, Outcome::Failed, "").await.unwrap();
        assert_eq!(execution.retry_of, first.execution_id);
    }
}

#[tokio::test]
async fn a_request_sent_again_answered_though_its_retry_is_no_longer_needed() {
    let sidecar = Sidecar::start().await;
    let earlier = sidecar.started(fetch()).await.execution_id;
    let request = RequestApprovalRequest {
        request_id: "request-1".to_owned(),
        invocation: Some(email()),
        retry_of: earlier.clone(),
        ..Default::default()
    };
    let first = sidecar.agent().request_approval(request.clone()).await.unwrap().into_inner();
    sidecar.report(&earlier, Outcome::Succeeded, "").await.unwrap();
    let again = sidecar.agent().request_approval(request.clone()).await.unwrap().into_inner();
    assert_eq!((again.existing, again.approval), (true, first.approval));
    for other in [RequestApprovalRequest { retry_of: String::new(), ..request }] {
        refused(sidecar.agent().request_approval(other).await, Code::AlreadyExists, "REQUEST_ID_REUSED");
    }
}
