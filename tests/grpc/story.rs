//! The approval story, step by step, with a restart between any two of them.

use crate::grpc::harness::*;
use countersign::proto::*;
use tonic::Code;

#[tokio::test]
async fn the_story_is_told_whole() {
    let sidecar = Sidecar::start().await;
    let evaluated = sidecar
        .agent()
        .evaluate(EvaluateRequest { invocation: Some(email()), explain: true })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(evaluated.decision(), Decision::ConfirmationRequired);
    assert_eq!(evaluated.reason, "CONFIRMATION_BY_MODE");
    assert_eq!(evaluated.checks.last().unwrap().number, 13);

    let (approval, token) = sidecar.ask(email()).await;
    assert_eq!(approval.state(), ApprovalState::Pending);
    assert_eq!(approval.fingerprint, evaluated.fingerprint);
    assert_eq!(approval.fingerprint, "v1:d6c96a75e92fd4fadab4fa26bc7fbdb2702662826c5113663099b6f443cadfcf");
    assert_eq!(approval.preview_json, r#"{"body":"Hello","to":"a@example.com"}"#);
    assert_eq!(
        approval.message,
        "assistant asks to run GMAIL_SEND_EMAIL of gmail as work-mailbox-a on behalf of olga."
    );
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_PENDING");

    let approved = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(approved.state(), ApprovalState::Approved);
    assert!(approved.decisions[0].as_owner);

    let reordered = Invocation { arguments_json: r#" {"body":"Hello", "to":"a@example.com"} "#.to_owned(), ..email() };
    let consumed = sidecar.consume(&token, reordered).await.unwrap();
    let permit = consumed.permit.unwrap();
    assert_eq!((permit.approval_id.as_str(), consumed.replayed), (approval.id.as_str(), false));
    let again = refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    assert_eq!(told(&again, "decided_by"), "olga");

    let report = ReportOutcomeRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        execution_id: permit.execution_id.clone(),
        outcome: Outcome::Succeeded.into(),
        remote_reference: "message-1".to_owned(),
        ..Default::default()
    };
    let execution = sidecar.agent().report_outcome(report).await.unwrap().into_inner().execution.unwrap();
    assert_eq!(execution.state(), ExecutionState::Succeeded);

    let kinds: Vec<String> = sidecar.audit_of(&approval.id).await.into_iter().map(|record| record.kind).collect();
    assert_eq!(
        kinds,
        [
            "approval.requested",
            "consume.refused",
            "approval.decided",
            "approval.approved",
            "approval.consumed",
            "consume.refused",
            "execution.reported",
        ]
    );
}

#[tokio::test]
async fn a_restart_between_any_two_steps_changes_nothing() {
    let mut sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(deletion()).await;
    sidecar.restart().await;
    assert_eq!(sidecar.ask(deletion()).await, (approval.clone(), token.clone()), "the same question, the same token");
    sidecar.restart().await;
    let half = sidecar.decide("dana", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(half.state(), ApprovalState::Pending);
    sidecar.restart().await;
    let attempt = new_attempt();
    refused(sidecar.attempt(&token, &attempt, deletion()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    sidecar.restart().await;
    let done = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(done.state(), ApprovalState::Pending, "the owner is asked by mode, and finance still lacks one");
    sidecar.restart().await;
    let done = sidecar.decide("eve", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(done.state(), ApprovalState::Approved);
    sidecar.restart().await;
    let first = sidecar.attempt(&token, &attempt, deletion()).await.unwrap();
    sidecar.restart().await;
    let replay = sidecar.attempt(&token, &attempt, deletion()).await.unwrap();
    assert!(replay.replayed && !first.replayed);
    assert_eq!(replay.permit, first.permit);
    sidecar.restart().await;
    refused(sidecar.consume(&token, deletion()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    let report = ReportOutcomeRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        execution_id: first.permit.unwrap().execution_id,
        outcome: Outcome::Unknown.into(),
        ..Default::default()
    };
    sidecar.agent().report_outcome(report.clone()).await.unwrap();
    sidecar.restart().await;
    let settled = ReportOutcomeRequest { outcome: Outcome::Succeeded.into(), detail: "seen".to_owned(), ..report };
    let execution = sidecar.agent().report_outcome(settled).await.unwrap().into_inner().execution.unwrap();
    assert_eq!(execution.state(), ExecutionState::Succeeded);
    sidecar.restart().await;
    assert_eq!(sidecar.audit_of(&approval.id).await.len(), 11);
}

#[tokio::test]
async fn a_restart_after_any_other_ending_changes_nothing() {
    let mut sidecar = Sidecar::start().await;
    let mut ended = Vec::new();
    for ending in ["denied", "cancelled", "revoked", "expired"] {
        let invocation = Invocation { conversation: ending.to_owned(), ..email() };
        let (approval, token) = sidecar.ask(invocation.clone()).await;
        sidecar.restart().await;
        if matches!(ending, "revoked" | "expired") {
            sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
            sidecar.restart().await;
        }
        match ending {
            "denied" => drop(sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap()),
            "cancelled" => drop(sidecar.cancel(&approval).await.unwrap()),
            "revoked" => drop(sidecar.revoke("olga", &approval).await.unwrap()),
            _ => sidecar.advance(std::time::Duration::from_secs(600)),
        }
        ended.push((sidecar.get(&approval).await, token, invocation));
        sidecar.restart().await;
    }
    for (approval, token, invocation) in ended {
        assert_eq!(sidecar.get(&approval).await, approval);
        let why = format!("APPROVAL_{}", invocation.conversation.to_uppercase());
        refused(sidecar.consume(&token, invocation.clone()).await, Code::FailedPrecondition, &why);
        sidecar.restart().await;
        let again = sidecar.decide("olga", &approval.id, Verdict::Approve).await;
        if approval.decisions.iter().any(|decision| decision.verdict() == Verdict::Approve) {
            assert_eq!(again.unwrap().state(), approval.state(), "repeating an answer is no new one");
        } else {
            refused(again, Code::FailedPrecondition, &why);
        }
        let (new, _) = sidecar.ask(invocation).await;
        assert_ne!(new.id, approval.id, "what is over is asked anew");
    }
}
