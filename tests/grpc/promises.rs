//! What is promised of the whole and belongs to no one call.

use crate::backend::{bring_back, every_row, take_away};
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use std::time::{Duration, Instant};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

async fn health(sidecar: &Sidecar, service: &str) -> ServingStatus {
    let channel = countersign::client::channel(sidecar.running().health_address()).unwrap();
    let request = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(channel).check(request).await.unwrap().into_inner().status()
}

/// Waits for a status; how long it takes decides nothing, but that it comes does.
async fn becomes(sidecar: &Sidecar, service: &str, status: ServingStatus) {
    let start = Instant::now();
    while health(sidecar, service).await != status {
        assert!(start.elapsed() < Duration::from_secs(60), "{service:?} did not become {status:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_store_turns_readiness_off_and_never_liveness_and_comes_back_by_itself() {
    let sidecar = Sidecar::start().await;
    let services = ["", "countersign.v1.AgentService", "countersign.v1.ApproverService"];
    for service in services.into_iter().chain(["liveness"]) {
        assert_eq!(health(&sidecar, service).await, ServingStatus::Serving, "{service:?}");
    }
    let away = take_away(&sidecar).await;
    becomes(&sidecar, "", ServingStatus::NotServing).await;
    for service in services {
        assert_eq!(health(&sidecar, service).await, ServingStatus::NotServing, "{service:?}");
    }
    assert_eq!(health(&sidecar, "liveness").await, ServingStatus::Serving, "a restart would not bring the store back");
    bring_back(&sidecar, away).await;
    becomes(&sidecar, "", ServingStatus::Serving).await;
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn reading_changes_neither_the_policy_nor_a_row() {
    let sidecar = Sidecar::start().await;
    let (pending, _) = sidecar.ask(in_conversation("pending")).await;
    let (approved, _) = sidecar.approved(in_conversation("approved")).await;
    // Also what is overdue and not yet written down as expired.
    sidecar.advance(Duration::from_secs(3_600));
    let policy = std::fs::read(sidecar.folder().join("policy.yaml")).unwrap();
    let before = every_row(&sidecar).await;
    assert!(before["approvals"].len() == 2 && before["audit_records"].len() == 4);
    sidecar.evaluate(email()).await.unwrap();
    let one = EvaluateRequest { invocation: Some(email()), explain: true };
    sidecar.agent().batch_evaluate(BatchEvaluateRequest { requests: vec![one; 3] }).await.unwrap();
    for approval in [&pending, &approved] {
        assert_eq!(sidecar.read(approval).await.state(), ApprovalState::Expired);
        assert_eq!(sidecar.seen_by("olga", &approval.id).await.unwrap().state(), ApprovalState::Expired);
    }
    assert_eq!(sidecar.listed("olga", &[ApprovalState::Expired]).await.len(), 2);
    sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap();
    assert_eq!(sidecar.audit().await.len(), 4);
    assert_eq!(every_row(&sidecar).await, before);
    assert_eq!(std::fs::read(sidecar.folder().join("policy.yaml")).unwrap(), policy);
}

#[tokio::test]
async fn a_time_that_is_not_is_absent_and_none_is_a_sentinel() {
    let sidecar = Sidecar::start().await;
    for state in ["pending", "approved", "denied", "cancelled", "revoked", "consumed", "undecided", "unused"] {
        let (approval, token) = sidecar.ask(in_conversation(state)).await;
        if matches!(state, "approved" | "revoked" | "consumed" | "unused") {
            sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        }
        match state {
            "denied" => drop(sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap()),
            "cancelled" => drop(sidecar.cancel_as("runtime", &approval).await.unwrap()),
            "revoked" => drop(sidecar.take_back("olga", &approval.id).await.unwrap()),
            "consumed" => drop(sidecar.consume(&token, in_conversation(state)).await.unwrap()),
            "undecided" | "unused" => sidecar.advance(Duration::from_secs(600)),
            _ => {}
        }
        let stands = sidecar.read(&approval).await;
        let is = |states: &[&str]| states.contains(&state);
        let has =
            [stands.decide_time, stands.use_by, stands.consume_time, stands.close_time].map(|time| time.is_some());
        let wanted = [
            is(&["approved", "denied", "revoked", "consumed", "unused"]),
            is(&["approved", "revoked", "consumed", "unused"]),
            is(&["consumed"]),
            !is(&["pending", "approved"]),
        ];
        assert_eq!(has, wanted, "{state}");
        let times = [stands.create_time, stands.decide_by, stands.decide_time, stands.use_by, stands.close_time];
        let day = 24 * 3_600 * 1_000_000;
        for time in times.into_iter().flatten() {
            assert!((micros(&Some(time)) - START.micros()).abs() < day, "{state}: {time:?} is no time of this story");
        }
    }
}

#[tokio::test]
async fn a_shared_question_is_used_once() {
    let sidecar = Sidecar::start().await;
    let ask = |id: &str| RequestApprovalRequest {
        request_id: id.to_owned(),
        invocation: Some(email()),
        ..RequestApprovalRequest::default()
    };
    let first = sidecar.request_as("runtime", ask("first")).await.unwrap();
    let second = sidecar.request_as("runtime", ask("second")).await.unwrap();
    assert!(second.existing && !first.existing);
    let (one, other) = (first.approval.unwrap(), second.approval.unwrap());
    assert_eq!(one, other);
    sidecar.decide("olga", &one.id, Verdict::Approve).await.unwrap();
    sidecar.consume(&first.consume_token, email()).await.unwrap();
    let late = sidecar.consume(&second.consume_token, email()).await;
    refused(late, Code::FailedPrecondition, "APPROVAL_CONSUMED");
}

#[tokio::test]
async fn an_answer_reaches_its_own_question_alone() {
    let sidecar = Sidecar::start().await;
    let mut open = Vec::new();
    for number in 0..6 {
        open.push(sidecar.ask(in_conversation(&number.to_string())).await.0);
    }
    for (place, verdict) in [(3, Verdict::Approve), (0, Verdict::Deny), (5, Verdict::Deny), (1, Verdict::Approve)] {
        open[place] = sidecar.decide("olga", &open[place].id, verdict).await.unwrap();
        for approval in &open {
            assert_eq!(sidecar.read(approval).await, *approval, "only the one that was answered has changed");
        }
    }
    let states: Vec<ApprovalState> = open.iter().map(Approval::state).collect();
    use ApprovalState::{Approved, Denied, Pending};
    assert_eq!(states, [Denied, Approved, Pending, Approved, Pending, Denied]);
}
