//! The one gate, through gRPC: every reason in its order, and once means once.

use crate::harness::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

#[tokio::test]
async fn each_binding_changed_alone_is_refused_with_its_own_reason_and_leaves_the_approval_usable() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let objective = |transcript: &str, id: &str, revision| {
        Some(Objective { transcript: transcript.to_owned(), id: id.to_owned(), revision })
    };
    let text = str::to_owned;
    let changed = [
        (Invocation { principal: text("dana"), ..email() }, "PRINCIPAL_MISMATCH"),
        (Invocation { connector: text("outlook"), ..email() }, "CONNECTOR_MISMATCH"),
        (Invocation { action: text("GMAIL_REPLY"), ..email() }, "ACTION_MISMATCH"),
        (Invocation { conversation: text("conversation-2"), ..email() }, "CONVERSATION_MISMATCH"),
        (Invocation { conversation: String::new(), ..email() }, "CONVERSATION_MISMATCH"),
        (Invocation { agent: text("other-agent"), ..email() }, "AGENT_MISMATCH"),
        (Invocation { account: text("mailbox-b"), ..email() }, "ACCOUNT_MISMATCH"),
        (Invocation { account: String::new(), ..email() }, "ACCOUNT_MISMATCH"),
        (Invocation { objective: objective("t1", "input-1", 2), ..email() }, "OBJECTIVE_CHANGED"),
        (Invocation { objective: objective("t2", "input-1", 1), ..email() }, "OBJECTIVE_CHANGED"),
        (Invocation { objective: objective("t1", "input-2", 1), ..email() }, "OBJECTIVE_CHANGED"),
        (Invocation { objective: None, ..email() }, "OBJECTIVE_CHANGED"),
        (
            Invocation { arguments_json: text(r#"{"to":"b@example.com","body":"Hello"}"#), ..email() },
            "ARGUMENTS_CHANGED",
        ),
        (Invocation { arguments_json: String::new(), ..email() }, "ARGUMENTS_CHANGED"),
        (
            Invocation { tool_definition_digest: format!("td1:{}", "0".repeat(64)), ..email() },
            "TOOL_DEFINITION_CHANGED",
        ),
    ];
    for (invocation, why) in changed {
        refused(sidecar.consume(&token, invocation).await, Code::FailedPrecondition, why);
    }
    let unchanged = sidecar
        .agent()
        .get_approval(AgentServiceGetApprovalRequest {
            principal: text("olga"),
            agent: text("assistant"),
            approval_id: approval.id.clone(),
        })
        .await
        .unwrap()
        .into_inner()
        .approval
        .unwrap();
    assert_eq!(unchanged, approval, "refusals leave the approval as it was");
    let other_connection = Invocation { connection: text("connection-2"), labels: Default::default(), ..email() };
    sidecar.consume(&token, other_connection).await.unwrap();
}

#[tokio::test]
async fn of_a_hundred_simultaneous_consumes_exactly_one_succeeds() {
    let sidecar = Sidecar::start().await;
    let (_, token) = sidecar.approved(email()).await;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..100 {
        let mut agent = sidecar.agent_as(if index % 2 == 0 { "runtime" } else { "runtime-2" });
        let request = ConsumeRequest {
            consume_token: token.clone(),
            attempt_id: new_attempt(),
            invocation: Some(email()),
            retry_of: String::new(),
        };
        calls.spawn(async move { agent.consume(request).await });
    }
    let results = calls.join_all().await;
    let (passed, kept): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(passed.len(), 1);
    for result in kept {
        refused(result, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    }
}

#[tokio::test]
async fn an_approval_is_used_before_its_deadline_and_not_at_it() {
    for (micros, passes) in [(-1, true), (0, false), (1, false)] {
        let sidecar = Sidecar::start().await;
        let (_, token) = sidecar.approved(email()).await;
        // The store's time moves by itself only with its clocks, so this lands where it says.
        sidecar.clock.advance(Duration::from_secs(600));
        let (approval, token_2) = {
            let other = Invocation { conversation: "conversation-2".to_owned(), ..email() };
            sidecar.approved(other).await
        };
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        let use_by = approval.use_by.unwrap();
        let use_by = use_by.seconds * 1_000_000 + i64::from(use_by.nanos) / 1_000;
        let now = sidecar.running().engine().store().estimated_time().micros();
        sidecar.clock.advance(Duration::from_micros(u64::try_from(use_by - now + micros).unwrap()));
        let other = Invocation { conversation: "conversation-2".to_owned(), ..email() };
        let result = sidecar.consume(&token_2, other).await;
        if passes {
            result.unwrap();
        } else {
            refused(result, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        }
    }
}
