//! The table cannot be written, or holds what cannot be: nothing is allowed that needs it, what needs none goes on, and
//! afterwards the same ids give their answers.

use crate::backend::{
    hold_writes, intruder, let_write, refuse_poison, refuse_records, run, take_records, without_checks,
};
use crate::grpc::harness::{token as harness_token, *};
use crate::grpc::steps::*;
use countersign::auth::SharedCallers;
use countersign::clock::ManualClock;
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::*;
use countersign::service::{Doors, EdgeLayer};
use sqlx::Connection as _;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower_layer::Layer as _;

fn unavailable<T: std::fmt::Debug>(result: Result<T, Status>) {
    let status = refused(result, Code::Unavailable, "STORE_UNAVAILABLE");
    assert!(status.get_details_retry_info().unwrap().retry_delay.is_some());
    for word in ["sqlite", "postgres", "database", "locked", "trigger", ".db", "audit_records"] {
        assert!(!status.message().to_lowercase().contains(word), "{}", status.message());
    }
}

/// Everything that writes, once each, at the same time.
struct Attempts {
    request: RequestApprovalRequest,
    consume: ConsumeRequest,
    start: ConsumeRequest,
    report: ReportOutcomeRequest,
    pending: Approval,
    approved: Approval,
    withdrawn: Approval,
    revoked: Approval,
}

impl Attempts {
    async fn prepare(sidecar: &Sidecar) -> Self {
        let (approved, token) = sidecar.approved(email()).await;
        Self {
            request: RequestApprovalRequest {
                request_id: "request-1".to_owned(),
                invocation: Some(in_conversation("new", email())),
                ..RequestApprovalRequest::default()
            },
            consume: attempted(&token, &new_attempt(), email()),
            start: attempted("", &new_attempt(), fetch()),
            report: reported(&sidecar.started(fetch()).await.execution_id, Outcome::Succeeded),
            pending: sidecar.ask(in_conversation("pending", email())).await.0,
            withdrawn: sidecar.ask(in_conversation("withdrawn", email())).await.0,
            revoked: sidecar.approved(in_conversation("revoked", email())).await.0,
            approved,
        }
    }

    async fn all(&self, sidecar: &Sidecar) -> Vec<(&'static str, Result<(), Status>)> {
        let mut agents = [sidecar.agent(), sidecar.agent(), sidecar.agent(), sidecar.agent()];
        let [one, two, three, four] = &mut agents;
        let done = tokio::join!(
            one.request_approval(self.request.clone()),
            two.consume(self.consume.clone()),
            three.consume(self.start.clone()),
            four.report_outcome(self.report.clone()),
            sidecar.decide("olga", &self.pending.id, Verdict::Approve),
            sidecar.cancel(&self.withdrawn),
            sidecar.revoke("olga", &self.revoked),
        );
        vec![
            ("request", done.0.map(drop)),
            ("consume", done.1.map(drop)),
            ("start", done.2.map(drop)),
            ("report", done.3.map(drop)),
            ("decide", done.4.map(drop)),
            ("cancel", done.5.map(drop)),
            ("revoke", done.6.map(drop)),
        ]
    }

    async fn stand_as_before(&self, sidecar: &Sidecar) {
        for approval in [&self.pending, &self.approved, &self.withdrawn, &self.revoked] {
            assert_eq!(sidecar.get(approval).await, *approval);
        }
        assert_eq!(sidecar.list("olga").await.len(), 4);
    }

    async fn succeed(&self, sidecar: &Sidecar) {
        for (what, result) in self.all(sidecar).await {
            result.unwrap_or_else(|status| panic!("{what}: {status:?}"));
        }
        let counts = sidecar.counts().await;
        for (kind, count) in [
            ("approval.requested", 5),
            ("approval.approved", 3),
            ("approval.consumed", 1),
            ("approval.cancelled", 1),
            ("approval.revoked", 1),
            ("execution.started", 2),
            ("execution.reported", 1),
        ] {
            assert_eq!(counts[kind], count, "{kind}: {counts:?}");
        }
        for approval in [&self.pending, &self.approved, &self.withdrawn, &self.revoked] {
            sidecar.one_history(approval).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_table_cannot_be_written_nothing_that_needs_it_is_allowed() {
    let sidecar = Sidecar::start().await;
    let attempts = Attempts::prepare(&sidecar).await;
    let mut other = intruder(&sidecar).await;
    hold_writes(&mut other).await;
    let reads = async {
        // What decides in memory, and what only reads, goes on.
        let request = EvaluateRequest { invocation: Some(email()), explain: true };
        let evaluated = sidecar.agent().evaluate(request).await.unwrap().into_inner();
        assert_eq!(evaluated.decision(), Decision::ConfirmationRequired);
        attempts.stand_as_before(&sidecar).await;
        // A refusal is not let through unrecorded either.
        unavailable(sidecar.consume("cs1.none", email()).await);
        unavailable(sidecar.consume("", email()).await);
    };
    let (results, ()) = tokio::join!(attempts.all(&sidecar), reads);
    for (_, result) in results {
        unavailable(result);
    }
    attempts.stand_as_before(&sidecar).await;
    let_write(&mut other).await;
    attempts.succeed(&sidecar).await;
    attempts_replay(&sidecar, &attempts).await;
    other.close().await.unwrap();
}

/// Answers that were missed and answers that were given are the same ones.
async fn attempts_replay(sidecar: &Sidecar, attempts: &Attempts) {
    let again = sidecar.agent().request_approval(attempts.request.clone()).await.unwrap().into_inner();
    assert!(again.existing);
    let again = sidecar.agent().consume(attempts.consume.clone()).await.unwrap().into_inner();
    assert!(again.replayed);
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen() {
    let sidecar = Sidecar::start().await;
    let attempts = Attempts::prepare(&sidecar).await;
    let before = sidecar.counts().await;
    let mut other = intruder(&sidecar).await;
    refuse_records(&mut other, None).await;
    for (_, result) in attempts.all(&sidecar).await {
        unavailable(result);
    }
    unavailable(sidecar.consume("cs1.none", email()).await);
    let denied = Invocation { connector: "off".to_owned(), ..email() };
    unavailable(sidecar.request(denied).await);
    attempts.stand_as_before(&sidecar).await;
    assert_eq!(sidecar.counts().await, before);
    take_records(&mut other).await;
    attempts.succeed(&sidecar).await;
    other.close().await.unwrap();
}

#[tokio::test]
async fn one_write_that_fails_takes_no_other_with_it() {
    let sidecar = Sidecar::start().await;
    let mut other = intruder(&sidecar).await;
    refuse_poison(&mut other).await;
    let agent = sidecar.agent();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..60 {
        let poisoned = number % 10 == 0;
        let name = if poisoned { "poison".to_owned() } else { number.to_string() };
        let mut agent = agent.clone();
        let request = attempted("", &new_attempt(), in_conversation(name, fetch()));
        calls.spawn(async move { (poisoned, agent.consume(request).await) });
    }
    for (poisoned, result) in calls.join_all().await {
        if poisoned {
            unavailable(result);
        } else {
            assert!(!result.unwrap().into_inner().replayed);
        }
    }
    assert_eq!(sidecar.count("execution.started").await, 54);
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_row_that_fits_no_state_is_neither_repaired_nor_used() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let mut other = intruder(&sidecar).await;
    without_checks(&mut other).await;
    for statement in
        ["UPDATE approvals SET state = 'approved and more'", "UPDATE approvals SET state = 'approved', use_by = NULL"]
    {
        run(&mut other, statement).await;
        let results = [
            sidecar.consume(&token, email()).await.map(drop),
            sidecar.decide("olga", &approval.id, Verdict::Approve).await.map(drop),
            sidecar.cancel(&approval).await.map(drop),
        ];
        for result in results {
            let status = refused(result, Code::Internal, "INTERNAL");
            assert!(!told(&status, "error_id").is_empty());
            assert!(!status.message().contains("approvals") && !status.message().contains(&approval.id));
        }
    }
    assert_eq!(sidecar.count("approval.consumed").await, 0);
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_deadline_that_passes_while_the_table_waits_is_told_as_one_and_loses_nothing() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    // The door itself, without the client's own clock before it.
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let callers = SharedCallers::new(callers(), Arc::<ManualClock>::clone(&sidecar.clock));
    let door = Doors::new(Arc::clone(sidecar.running().engine()), 1 << 18).agent(&callers);
    let door = EdgeLayer::new(stopped).layer(tonic::service::Routes::new(door).prepare());
    let mut agent = AgentServiceClient::new(door);
    let authorised = |request: ConsumeRequest| {
        let mut request = tonic::Request::new(request);
        let credential = format!("Bearer {}", harness_token("runtime")).parse().unwrap();
        request.metadata_mut().insert("authorization", credential);
        request
    };
    let mut other = intruder(&sidecar).await;
    hold_writes(&mut other).await;
    let consume = attempted(&token, &new_attempt(), email());
    let mut hurried = authorised(consume.clone());
    hurried.set_timeout(Duration::from_millis(20));
    let late = refused(agent.consume(hurried).await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert!(late.message().contains("same ids"));
    let_write(&mut other).await;
    let answer = agent.consume(authorised(consume)).await.unwrap().into_inner();
    assert_eq!(answer.permit.unwrap().approval_id, approval.id);
    assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Consumed);
    assert!(answer.replayed, "it had been carried out when nobody waited any more");
    other.close().await.unwrap();
}
