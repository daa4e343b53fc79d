//! The attempt: a lost answer is not a lost approval, and one attempt id starts one thing.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::collections::BTreeSet;
use std::time::Duration;
use tonic::Code;

/// The harness's policy with mail running as it is.
fn open() -> String {
    POLICY.replace("    ceiling: admin\n", "    ceiling: admin\n    confirm: never\n")
}

#[tokio::test]
async fn an_attempt_sent_again_gets_the_same_permit_again() {
    let mut sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let (with, without) = (new_attempt(), new_attempt());
    let first = sidecar.attempt(&token, &with, email()).await.unwrap();
    let first_allowed = sidecar.attempt("", &without, fetch()).await.unwrap();
    assert!(!first.replayed && !first_allowed.replayed);
    let consumed = sidecar.get(&approval).await;
    for round in 0..4 {
        sidecar.advance(Duration::from_secs(30));
        if round % 2 == 1 {
            sidecar.restart().await;
        }
        // What is recorded and not compared may differ.
        let mail = Invocation { connection: format!("connection-{round}"), labels: Default::default(), ..email() };
        let again = sidecar.attempt(&token, &with, mail).await.unwrap();
        assert_eq!(again, ConsumeResponse { replayed: true, ..first.clone() });
        let again = sidecar.attempt("", &without, fetch()).await.unwrap();
        assert_eq!(again, ConsumeResponse { replayed: true, ..first_allowed.clone() });
    }
    assert_eq!(sidecar.get(&approval).await, consumed, "a replay changes nothing");
    assert_eq!((sidecar.count("approval.consumed").await, sidecar.count("execution.started").await), (1, 1));
}

#[tokio::test]
async fn of_fifty_calls_with_one_attempt_exactly_one_is_the_first() {
    let sidecar = Sidecar::start().await;
    for (token, invocation) in [(sidecar.approved(email()).await.1, email()), (String::new(), fetch())] {
        let attempt = new_attempt();
        let agent = sidecar.agent();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let mut agent = agent.clone();
            let request = attempted(&token, &attempt, invocation.clone());
            calls.spawn(async move { agent.consume(request).await.unwrap().into_inner() });
        }
        let answers = calls.join_all().await;
        assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1);
        let permits: Vec<Permit> = answers.into_iter().map(|answer| answer.permit.unwrap()).collect();
        assert!(permits.iter().all(|permit| *permit == permits[0]), "{permits:?}");
    }
    assert_eq!((sidecar.count("approval.consumed").await, sidecar.count("execution.started").await), (1, 1));
}

#[tokio::test]
async fn one_attempt_for_two_approvals_at_once_uses_exactly_one() {
    let sidecar = Sidecar::start().await;
    for round in 0..10 {
        let (first, second) = (format!("first-{round}"), format!("second-{round}"));
        let one = sidecar.approved(in_conversation(&first, email())).await;
        let two = sidecar.approved(in_conversation(&second, email())).await;
        let attempt = new_attempt();
        let (a, b) = tokio::join!(
            sidecar.attempt(&one.1, &attempt, in_conversation(&first, email())),
            sidecar.attempt(&two.1, &attempt, in_conversation(&second, email())),
        );
        assert!(a.is_ok() != b.is_ok());
        let (lost, kept) = if a.is_ok() { (b, &two.0) } else { (a, &one.0) };
        refused(lost, Code::FailedPrecondition, "ATTEMPT_ID_REUSED");
        assert_eq!(sidecar.get(kept).await, *kept);
    }
}

#[tokio::test]
async fn an_attempt_id_that_started_something_else_is_refused() {
    let mut sidecar = Sidecar::start().await;
    // Two approvals of the same call, told apart by who asked.
    let (_, token) = sidecar.approved(email()).await;
    let request = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let twin = sidecar.agent_as("runtime-2").request_approval(request).await.unwrap().into_inner();
    let twin_id = twin.approval.unwrap().id;
    let twin_approval = sidecar.decide("olga", &twin_id, Verdict::Approve).await.unwrap();
    let attempt = new_attempt();
    sidecar.attempt(&token, &attempt, email()).await.unwrap();
    let another_approval = sidecar.attempt(&twin.consume_token, &attempt, email()).await;
    refused(another_approval, Code::FailedPrecondition, "ATTEMPT_ID_REUSED");
    assert_eq!(sidecar.get(&twin_approval).await, twin_approval);

    sidecar.restart_under(&open()).await;
    let no_approval = sidecar.attempt("", &attempt, email()).await;
    refused(no_approval, Code::FailedPrecondition, "ATTEMPT_ID_REUSED");
    let unasked = new_attempt();
    sidecar.attempt("", &unasked, email()).await.unwrap();
    let an_approval = sidecar.attempt(&twin.consume_token, &unasked, email()).await;
    refused(an_approval, Code::FailedPrecondition, "ATTEMPT_ID_REUSED");
    assert_eq!(sidecar.get(&twin_approval).await, twin_approval);

    let text = str::to_owned;
    let digest = |digit: &str| format!("td1:{}", digit.repeat(64));
    for other in [
        Invocation { conversation: text("another"), ..email() },
        Invocation { conversation: String::new(), ..email() },
        Invocation { tool_definition_digest: digest("1"), ..email() },
        Invocation { arguments_json: text(r#"{"to":"b@example.com"}"#), ..email() },
        Invocation { objective: None, ..email() },
        Invocation { account: text("mailbox-b"), ..email() },
        Invocation { action: text("GMAIL_REPLY"), ..email() },
        Invocation { connector: text("calendar"), action: text("ADD_EVENT"), account: String::new(), ..email() },
    ] {
        let result = sidecar.attempt("", &unasked, other.clone()).await;
        refused(result, Code::FailedPrecondition, "ATTEMPT_ID_REUSED");
        sidecar.attempt("", &new_attempt(), other).await.unwrap();
    }
    let defined = new_attempt();
    sidecar.attempt("", &defined, Invocation { tool_definition_digest: digest("1"), ..email() }).await.unwrap();
    for other in [digest("2"), String::new()] {
        let other = Invocation { tool_definition_digest: other, ..email() };
        refused(sidecar.attempt("", &defined, other).await, Code::FailedPrecondition, "ATTEMPT_ID_REUSED");
    }
}

#[tokio::test]
async fn an_attempt_id_is_unique_per_caller_principal_and_agent() {
    let sidecar = Sidecar::start().await;
    let attempt = new_attempt();
    let mut executions = BTreeSet::new();
    for caller in ["runtime", "runtime-2"] {
        for principal in ["olga", "dana"] {
            for agent in ["assistant", "other-agent"] {
                let call = Invocation { principal: principal.to_owned(), agent: agent.to_owned(), ..fetch() };
                let first = sidecar.attempt_as(caller, "", &attempt, call.clone()).await.unwrap();
                assert!(!first.replayed);
                let again = sidecar.attempt_as(caller, "", &attempt, call).await.unwrap();
                assert!(again.replayed);
                assert_eq!(again.permit, first.permit);
                executions.insert(first.permit.unwrap().execution_id);
            }
        }
    }
    assert_eq!(executions.len(), 8);
    // Another caller's attempt with the same id neither replays nor uses what the first one used.
    let (_, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    sidecar.attempt(&token, &attempt, email()).await.unwrap();
    let other = sidecar.attempt_as("runtime-2", &token, &attempt, email()).await;
    refused(other, Code::FailedPrecondition, "APPROVAL_CONSUMED");
}

#[tokio::test]
async fn an_attempt_with_an_outcome_is_over() {
    let sidecar = Sidecar::start().await;
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Unknown] {
        let mail = in_conversation(outcome.as_str_name(), email());
        let (_, token) = sidecar.approved(mail.clone()).await;
        let read = in_conversation(outcome.as_str_name(), fetch());
        for (token, call) in [(token, mail), (String::new(), read)] {
            let attempt = new_attempt();
            let permit = sidecar.attempt(&token, &attempt, call.clone()).await.unwrap().permit.unwrap();
            sidecar.report(&permit.execution_id, outcome, "").await.unwrap();
            let over = sidecar.attempt(&token, &attempt, call.clone()).await;
            let over = refused(over, Code::FailedPrecondition, "ATTEMPT_OVER");
            assert_eq!(told(&over, "execution_id"), permit.execution_id);
            // A difference is told before the end.
            let reused = in_conversation("another", call);
            let why = if token.is_empty() { "ATTEMPT_ID_REUSED" } else { "CONVERSATION_MISMATCH" };
            refused(sidecar.attempt(&token, &attempt, reused).await, Code::FailedPrecondition, why);
        }
    }
}

#[tokio::test]
async fn an_attempt_is_replayed_before_its_report_is_due_and_not_from_then_on() {
    for (offset, replays) in [(-1, true), (0, false), (1, false)] {
        let sidecar = Sidecar::start().await;
        let (approval, token) = sidecar.approved(email()).await;
        let attempts = (new_attempt(), new_attempt());
        let first = sidecar.attempt(&token, &attempts.0, email()).await.unwrap();
        let allowed = sidecar.attempt("", &attempts.1, fetch()).await.unwrap();
        sidecar.move_to(first.permit.as_ref().unwrap().report_by, offset);
        for (first, again) in [
            (first, sidecar.attempt(&token, &attempts.0, email()).await),
            (allowed, sidecar.attempt("", &attempts.1, fetch()).await),
        ] {
            if replays {
                assert_eq!(again.unwrap(), ConsumeResponse { replayed: true, ..first });
            } else {
                refused(again, Code::FailedPrecondition, "ATTEMPT_OVER");
            }
        }
        // Long after the approval's own deadline too, the attempt is what is told, and it is still consumed.
        sidecar.advance(Duration::from_secs(3_600));
        refused(sidecar.attempt(&token, &attempts.0, email()).await, Code::FailedPrecondition, "ATTEMPT_OVER");
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
        assert_eq!(sidecar.get(&approval).await.state(), ApprovalState::Consumed);
    }
}

#[tokio::test]
async fn a_replay_outlives_the_deadline_of_its_approval() {
    let policy = POLICY.replace("    ceiling: admin\n", "    ceiling: admin\n    report_within: 1h\n");
    let sidecar = Sidecar::under(&policy).await;
    let (approval, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    sidecar.move_to(approval.use_by, -1);
    let first = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    sidecar.advance(Duration::from_secs(1_800));
    assert_eq!(sidecar.attempt(&token, &attempt, email()).await.unwrap().permit, first.permit);
}

#[tokio::test]
async fn a_replay_asks_the_policy_of_its_moment() {
    let mut sidecar = Sidecar::start().await;
    let (_, token) = sidecar.approved(email()).await;
    let attempts = (new_attempt(), new_attempt());
    let first = sidecar.attempt(&token, &attempts.0, email()).await.unwrap();
    let allowed = sidecar.attempt("", &attempts.1, fetch()).await.unwrap();

    let denies = POLICY.replace("    ceiling: admin\n", "    ceiling: admin\n    enabled: false\n");
    sidecar.restart_under(&denies).await;
    for again in [sidecar.attempt(&token, &attempts.0, email()).await, sidecar.attempt("", &attempts.1, fetch()).await]
    {
        let denied = refused(again, Code::PermissionDenied, "POLICY_DENIED");
        assert_eq!(told(&denied, "policy_reason"), "CONNECTOR_DISABLED");
    }
    // What only asks for more, or for less, is past: it has been let through.
    let asks_more = POLICY
        .replace("    ceiling: admin\n", "    ceiling: admin\n    confirm: always\n")
        .replace(
            "        effect: deny",
            "        effect: confirm\n        approvers: [{ any_of: [\"group:finance\"], quorum: 3 }]",
        )
        .replace("when: \"has(args.to) && args.to.endsWith('@press.example')\"", "when: \"true\"");
    for (policy, decision) in [(asks_more, Decision::ConfirmationRequired), (open(), Decision::Allow)] {
        sidecar.restart_under(&policy).await;
        let again = sidecar.attempt(&token, &attempts.0, email()).await.unwrap();
        assert_eq!((again.decision(), again.replayed, &again.permit), (decision, true, &first.permit));
        let again = sidecar.attempt("", &attempts.1, fetch()).await.unwrap();
        assert_eq!((again.decision(), again.replayed, &again.permit), (decision, true, &allowed.permit));
    }
    // Over is told only to what the policy lets through.
    sidecar.report(&first.permit.unwrap().execution_id, Outcome::Succeeded, "").await.unwrap();
    sidecar.restart_under(&denies).await;
    refused(sidecar.attempt(&token, &attempts.0, email()).await, Code::PermissionDenied, "POLICY_DENIED");
    sidecar.restart_under(POLICY).await;
    refused(sidecar.attempt(&token, &attempts.0, email()).await, Code::FailedPrecondition, "ATTEMPT_OVER");
}

#[tokio::test]
async fn an_attempt_id_is_a_uuid_of_one_spelling() {
    let sidecar = Sidecar::start().await;
    let uuid = "0190b6c0-0000-7000-8000-00000000000a";
    for invalid in [
        String::new(),
        "attempt-1".to_owned(),
        "00000000-0000-0000-0000-000000000000".to_owned(),
        uuid.replace('-', ""),
        format!("{{{uuid}}}"),
        format!("urn:uuid:{uuid}"),
        format!(" {uuid}"),
        format!("{uuid}\n"),
        uuid[..35].to_owned(),
        format!("{uuid}a"),
        uuid.replace('a', "g"),
        uuid.replace('-', "_"),
        "x".repeat(1 << 20),
    ] {
        let status = refused(sidecar.attempt("", &invalid, fetch()).await, Code::InvalidArgument, "INVALID_REQUEST");
        assert_eq!(told(&status, "field"), "attempt_id", "{invalid:.40}");
        assert!(status.message().len() < 200);
    }
    assert_eq!(sidecar.count("execution.started").await, 0);
    let first = sidecar.attempt("", uuid, fetch()).await.unwrap();
    let upper = sidecar.attempt("", &uuid.to_uppercase(), fetch()).await.unwrap();
    assert_eq!(upper, ConsumeResponse { replayed: true, ..first });
}
