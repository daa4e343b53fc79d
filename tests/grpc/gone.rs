//! The client goes away in the middle: what was begun is whole or was never begun, and asking again with the same ids gives
//! the answer that was missed.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tonic::{Code, Request};

/// How often the runtime goes around before a call is let go: anywhere between not sent and answered.
pub fn turns() -> impl Iterator<Item = u32> {
    (0..16).chain((16..100).step_by(12)).chain((100..1_000).step_by(300))
}

/// Lets go of a call after the runtime has gone around so often, wherever the call is then.
pub async fn let_go<T>(turns: u32, call: impl Future<Output = T>) -> Option<T> {
    let given_up = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        answer = call => Some(answer),
        () = given_up => None,
    }
}

/// The approvals of which the audit says this.
async fn recorded(sidecar: &Sidecar, kind: &str) -> BTreeSet<String> {
    let records = sidecar.audit().await.into_iter().filter(|record| record.kind == kind);
    records.map(|record| record.approval_id).collect()
}

#[tokio::test]
async fn a_request_let_go_is_recorded_whole_or_not_at_all() {
    let mut sidecar = Sidecar::start().await;
    let requests: Vec<_> = turns()
        .map(|turns| {
            let request = RequestApprovalRequest {
                request_id: format!("request-{turns}"),
                invocation: Some(in_conversation(turns, email())),
                ..RequestApprovalRequest::default()
            };
            (turns, request)
        })
        .collect();
    let agent = sidecar.agent();
    let mut answered = BTreeMap::new();
    for (turns, request) in &requests {
        if let Some(answer) = let_go(*turns, agent.clone().request_approval(request.clone())).await {
            answered.insert(request.request_id.clone(), answer.unwrap().into_inner());
        }
    }
    sidecar.restart().await;
    let rows: BTreeSet<String> = sidecar.list("olga").await.into_iter().map(|approval| approval.id).collect();
    assert_eq!(rows, recorded(&sidecar, "approval.requested").await, "a row and its record, or neither");
    assert!(rows.len() > answered.len(), "what was begun ran to its end though nobody waited for it");
    let mut agent = sidecar.agent();
    for (_, request) in &requests {
        let again = agent.request_approval(request.clone()).await.unwrap().into_inner();
        let approval = again.approval.clone().unwrap();
        assert_eq!(again.existing, rows.contains(&approval.id));
        if let Some(answer) = answered.get(&request.request_id) {
            assert_eq!((&answer.approval, &answer.consume_token), (&again.approval, &again.consume_token));
        }
    }
    assert_eq!(sidecar.list("olga").await.len(), requests.len(), "each once");
    assert_eq!(sidecar.count("approval.requested").await, requests.len());
}

#[tokio::test]
async fn a_decision_let_go_is_made_whole_or_not_at_all() {
    let mut sidecar = Sidecar::start().await;
    let mut asked = Vec::new();
    for turns in turns() {
        asked.push((turns, sidecar.ask(in_conversation(turns, email())).await.0));
    }
    let approver = sidecar.approver();
    let answer = |approval: &Approval| DecideRequest {
        approval_id: approval.id.clone(),
        principal: "olga".to_owned(),
        verdict: Verdict::Approve.into(),
        ..DecideRequest::default()
    };
    for (turns, approval) in &asked {
        let_go(*turns, approver.clone().decide(answer(approval))).await;
    }
    sidecar.restart().await;
    for (_, approval) in &asked {
        let state = sidecar.one_history(approval).await;
        assert!(matches!(state, ApprovalState::Pending | ApprovalState::Approved), "{state:?}");
        let again = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        assert_eq!((again.state(), again.decisions.len()), (ApprovalState::Approved, 1));
        assert_eq!(sidecar.one_history(approval).await, ApprovalState::Approved);
    }
}

#[tokio::test]
async fn a_consumption_let_go_is_made_whole_or_not_at_all() {
    let mut sidecar = Sidecar::start().await;
    let mut approved = Vec::new();
    for turns in turns() {
        let (approval, token) = sidecar.approved(in_conversation(turns, email())).await;
        let request = attempted(&token, &new_attempt(), in_conversation(turns, email()));
        approved.push((turns, approval, request));
    }
    let agent = sidecar.agent();
    for (turns, _, request) in &approved {
        let_go(*turns, agent.clone().consume(request.clone())).await;
    }
    sidecar.restart().await;
    let mut agent = sidecar.agent();
    for (_, approval, request) in &approved {
        let state = sidecar.one_history(approval).await;
        let used = sidecar.get(approval).await;
        let answer = agent.consume(request.clone()).await.unwrap().into_inner();
        let permit = answer.permit.unwrap();
        match state {
            ApprovalState::Consumed => {
                assert!(answer.replayed);
                assert_eq!(permit.execution_id, used.execution_id);
            }
            state => assert_eq!((state, answer.replayed), (ApprovalState::Approved, false)),
        }
        assert_eq!(sidecar.one_history(approval).await, ApprovalState::Consumed);
        // And once still means once.
        let other = attempted(&request.consume_token, &new_attempt(), request.invocation.clone().unwrap());
        refused(agent.consume(other).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    }
}

#[tokio::test]
async fn an_outcome_or_a_cancellation_let_go_is_whole_or_not_at_all() {
    let mut sidecar = Sidecar::start().await;
    let mut all = Vec::new();
    for turns in turns() {
        let execution = sidecar.started(fetch()).await.execution_id;
        all.push((turns, execution, sidecar.ask(in_conversation(turns, email())).await.0));
    }
    let agent = sidecar.agent();
    for (turns, execution, approval) in &all {
        let_go(*turns, agent.clone().report_outcome(reported(execution, Outcome::Succeeded))).await;
        let cancel = CancelApprovalRequest {
            principal: "olga".to_owned(),
            agent: "assistant".to_owned(),
            approval_id: approval.id.clone(),
            reason: String::new(),
        };
        let_go(*turns, agent.clone().cancel_approval(cancel)).await;
    }
    sidecar.restart().await;
    for (_, execution, approval) in &all {
        let request = ListAuditRecordsRequest { execution_id: execution.clone(), ..Default::default() };
        let before = sidecar.operator().list_audit_records(request.clone()).await.unwrap().into_inner().records.len();
        let report = sidecar.report(execution, Outcome::Succeeded, "").await.unwrap();
        assert_eq!(report.state(), ExecutionState::Succeeded);
        let after = sidecar.operator().list_audit_records(request).await.unwrap().into_inner().records.len();
        assert!((before == 1 || before == 2) && after == 2, "started, and reported once");
        let state = sidecar.one_history(approval).await;
        assert!(matches!(state, ApprovalState::Pending | ApprovalState::Cancelled), "{state:?}");
        assert_eq!(sidecar.cancel(approval).await.unwrap().state(), ApprovalState::Cancelled);
        assert_eq!(sidecar.one_history(approval).await, ApprovalState::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_of_the_client_cuts_nothing_in_two() {
    let sidecar = Sidecar::start().await;
    let agent = sidecar.agent();
    let mut missed = 0;
    for round in 0..40_u64 {
        let within = Duration::from_micros([1, 5, 50, 500, 1_000, 2_000, 4_000, 10_000][(round % 8) as usize]);
        let call = in_conversation(round, email());
        let ask = RequestApprovalRequest {
            request_id: format!("request-{round}"),
            invocation: Some(call.clone()),
            ..RequestApprovalRequest::default()
        };
        let hurried = |ask: &RequestApprovalRequest| {
            let mut request = Request::new(ask.clone());
            request.set_timeout(within);
            request
        };
        let first = agent.clone().request_approval(hurried(&ask)).await;
        missed += usize::from(first.is_err());
        let answer = agent.clone().request_approval(ask).await.unwrap().into_inner();
        let approval = answer.approval.unwrap();
        if let Ok(first) = first {
            assert_eq!(first.into_inner().approval.as_ref(), Some(&approval));
        }
        sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        let consume = attempted(&answer.consume_token, &new_attempt(), call);
        let mut request = Request::new(consume.clone());
        request.set_timeout(within);
        let first = agent.clone().consume(request).await;
        missed += usize::from(first.is_err());
        let permit = agent.clone().consume(consume).await.unwrap().into_inner().permit;
        if let Ok(first) = first {
            assert_eq!(first.into_inner().permit, permit);
        }
        assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Consumed);
    }
    assert!(missed > 0, "some were too late");
    assert_eq!(sidecar.count("approval.requested").await, 40);
    assert_eq!(sidecar.count("approval.consumed").await, 40);
}
