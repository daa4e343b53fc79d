//! The background work: it writes down what reads said anyway, once, and removes what has been kept for long enough.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use countersign::sweeper::Report;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What `person` sees in one state.
async fn listed(sidecar: &Sidecar, state: ApprovalState) -> Vec<Approval> {
    let request = ListApprovalsRequest {
        principal: "olga".to_owned(),
        states: vec![state.into()],
        ..ListApprovalsRequest::default()
    };
    sidecar.approver().list_approvals(request).await.unwrap().into_inner().approvals
}

/// How often a kind stands in the audit of an approval.
async fn recorded(sidecar: &Sidecar, approval: &Approval, kind: &str) -> usize {
    sidecar.audit_of(&approval.id).await.iter().filter(|record| record.kind == kind).count()
}

#[tokio::test]
async fn what_is_overdue_looks_the_same_before_and_after_it_is_swept() {
    let mut sidecar = Sidecar::start().await;
    let (pending, _) = sidecar.ask(in_conversation("pending", email())).await;
    let (approved, token) = sidecar.approved(in_conversation("approved", email())).await;
    let (open, _) = sidecar.ask(in_conversation("open", deletion())).await;
    sidecar.move_to(approved.use_by, -1);
    assert_eq!(sidecar.sweep().await.expired, 0);
    sidecar.move_to(approved.use_by, 0);
    let (before, all) = (sidecar.get(&approved).await, sidecar.list("olga").await);
    assert_eq!(before.state(), ApprovalState::Expired);
    let listed_before = listed(&sidecar, ApprovalState::Expired).await;
    assert_eq!(recorded(&sidecar, &approved, "approval.expired").await, 0, "nobody has written it down");
    let swept = sidecar.sweep().await;
    assert_eq!((swept.expired, swept.lag), (3, Duration::ZERO), "{swept:?}");
    for _ in 0..2 {
        assert_eq!(sidecar.get(&approved).await, before);
        assert_eq!(sidecar.list("olga").await, all);
        assert_eq!(listed(&sidecar, ApprovalState::Expired).await, listed_before);
        assert!(listed(&sidecar, ApprovalState::Pending).await.is_empty());
        for approval in [&pending, &approved, &open] {
            assert_eq!(recorded(&sidecar, approval, "approval.expired").await, 1);
            assert_eq!(sidecar.one_history(approval).await, ApprovalState::Expired);
        }
        refused(
            sidecar.consume(&token, in_conversation("approved", email())).await,
            Code::FailedPrecondition,
            "APPROVAL_EXPIRED",
        );
        // Again, and after a restart.
        assert_eq!(sidecar.sweep().await.expired, 0);
        sidecar.restart().await;
        assert_eq!(sidecar.sweep().await.expired, 0);
    }
}

#[tokio::test]
async fn an_execution_that_nobody_reports_is_timed_out_once_and_can_still_be_settled() {
    let sidecar = Sidecar::start().await;
    let call = in_conversation("reads", fetch());
    let permit = sidecar.started(call.clone()).await;
    let reported = sidecar.started(in_conversation("reported", fetch())).await;
    sidecar.report(&reported.execution_id, Outcome::Succeeded, "").await.unwrap();
    sidecar.move_to(permit.report_by, -1);
    assert_eq!(sidecar.sweep().await.timed_out, 0);
    sidecar.move_to(permit.report_by, 0);
    assert_eq!(sidecar.count("execution.timed_out").await, 0);
    assert_eq!(sidecar.sweep().await.timed_out, 1);
    assert_eq!(sidecar.sweep().await.timed_out, 0);
    assert_eq!(sidecar.count("execution.timed_out").await, 1);
    let retry = sidecar.ask_to_retry(&permit.execution_id, email()).await.unwrap().approval.unwrap();
    assert_eq!(retry.retried.unwrap().state, "unknown");
    let report = sidecar.report(&permit.execution_id, Outcome::Succeeded, "").await;
    refused(report, Code::FailedPrecondition, "OUTCOME_EVIDENCE_MISSING");
    let settled = sidecar.report(&permit.execution_id, Outcome::Succeeded, "seen in the mailbox").await.unwrap();
    assert_eq!(settled.state(), ExecutionState::Succeeded);
    sidecar.advance(DAY);
    assert_eq!(sidecar.sweep().await.timed_out, 0, "what has an outcome keeps it");
    assert_eq!(sidecar.count("execution.timed_out").await, 1);
}

#[tokio::test]
async fn a_preview_is_erased_in_its_time_and_everything_else_stays() {
    let sidecar = Sidecar::start().await;
    let request = RequestApprovalRequest {
        invocation: Some(email()),
        agent_note: "SENTINEL of the agent".to_owned(),
        request_id: "r-1".to_owned(),
        ..RequestApprovalRequest::default()
    };
    let asked = sidecar.agent().request_approval(request.clone()).await.unwrap().into_inner().approval.unwrap();
    let denied = sidecar.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
    assert!(!denied.preview_json.is_empty() && !denied.agent_note.is_empty());
    sidecar.advance(DAY - Duration::from_micros(1));
    assert_eq!(sidecar.sweep().await.erased, 0);
    let audit = sidecar.audit_of(&asked.id).await;
    sidecar.advance(Duration::from_micros(1));
    assert_eq!(sidecar.sweep().await, Report { erased: 1, ..Report::default() });
    assert_eq!(sidecar.sweep().await, Report::default());
    let erased =
        Approval { preview_json: String::new(), omissions: Vec::new(), agent_note: String::new(), ..denied.clone() };
    assert_eq!(sidecar.get(&asked).await, erased);
    assert_eq!(sidecar.list("olga").await, std::slice::from_ref(&erased));
    assert_eq!(sidecar.audit_of(&asked.id).await, audit);
    let again = sidecar.agent().request_approval(request).await.unwrap().into_inner();
    assert_eq!((again.existing, again.approval), (true, Some(erased)), "the request id is known for longer");
}

#[tokio::test]
async fn what_is_deleted_is_not_found_and_its_request_id_asks_anew() {
    let mut sidecar = Sidecar::start().await;
    let request = RequestApprovalRequest {
        invocation: Some(email()),
        request_id: "r-1".to_owned(),
        ..RequestApprovalRequest::default()
    };
    let asked = sidecar.agent().request_approval(request.clone()).await.unwrap().into_inner();
    let (approval, token) = (asked.approval.unwrap(), asked.consume_token);
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    let attempt = new_attempt();
    let permit = sidecar.attempt(&token, &attempt, email()).await.unwrap().permit.unwrap();
    sidecar.report(&permit.execution_id, Outcome::Failed, "").await.unwrap();
    sidecar.advance(DAY * 90 - Duration::from_micros(1));
    let kept = sidecar.sweep().await;
    assert_eq!((kept.erased, kept.deleted), (1, 0));
    // A retry keeps what it retries.
    let retry = sidecar.ask_to_retry(&permit.execution_id, in_conversation("again", email())).await.unwrap();
    let retry = retry.approval.unwrap();
    sidecar.advance(Duration::from_micros(1));
    sidecar.restart().await;
    assert_eq!(sidecar.sweep().await.deleted, 1, "the approval");
    let get = AgentServiceGetApprovalRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        approval_id: approval.id.clone(),
    };
    refused(sidecar.agent().get_approval(get).await, Code::NotFound, "APPROVAL_NOT_FOUND");
    refused(sidecar.attempt(&token, &attempt, email()).await, Code::FailedPrecondition, "TOKEN_INVALID");
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "TOKEN_INVALID");
    assert_eq!(sidecar.list("olga").await.iter().map(|seen| &seen.id).collect::<Vec<_>>(), [&retry.id]);
    let kinds: BTreeSet<String> = sidecar.audit_of(&approval.id).await.into_iter().map(|record| record.kind).collect();
    assert!(kinds.contains("approval.requested") && kinds.contains("execution.reported"), "{kinds:?}");
    let anew = sidecar.agent().request_approval(request).await.unwrap().into_inner();
    assert!(!anew.existing && anew.approval.unwrap().id != approval.id);
    sidecar.decide("olga", &retry.id, Verdict::Deny).await.unwrap();
    assert_eq!(sidecar.sweep().await.deleted, 1, "the execution, which nothing open retries any more");
    let gone = sidecar.ask_to_retry(&permit.execution_id, email()).await;
    refused(gone, Code::NotFound, "EXECUTION_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sweeping_while_others_decide_and_consume_has_one_history() {
    let sidecar = Arc::new(Sidecar::start().await);
    let mut states = BTreeSet::new();
    for round in 0..24 {
        let call = in_conversation(round, email());
        let (approval, token) =
            if round % 2 == 0 { sidecar.approved(call.clone()).await } else { sidecar.ask(call.clone()).await };
        let deadline = if round % 2 == 0 { approval.use_by } else { approval.decide_by };
        sidecar.move_to(deadline, -1);
        let (acting, sweeping, passing) = (Arc::clone(&sidecar), Arc::clone(&sidecar), Arc::clone(&sidecar));
        let id = approval.id.clone();
        let act = tokio::spawn(async move {
            match round % 2 {
                0 => acting.consume(&token, call).await.is_ok(),
                _ => acting.decide("olga", &id, Verdict::Deny).await.is_ok(),
            }
        });
        let sweep = tokio::spawn(async move { sweeping.sweep().await.expired });
        let pass = tokio::spawn(async move {
            passing.advance(Duration::from_micros(1));
            passing.sweep().await.expired
        });
        let (acted, swept) = (act.await.unwrap(), sweep.await.unwrap() + pass.await.unwrap());
        // Sidecars step over rows that another is at: the next pass takes what this one left.
        let swept = swept + sidecar.sweep().await.expired;
        // Who decides too late may be the first to write down that it is.
        let expired = recorded(&sidecar, &approval, "approval.expired").await;
        assert_eq!((usize::from(acted) + expired, u64::from(acted) + swept < 2), (1, true), "round {round}");
        let state = sidecar.one_history(&approval).await;
        assert_eq!(acted, state != ApprovalState::Expired);
        states.insert(state.as_str_name());
    }
    assert!(!states.is_empty());
}

#[tokio::test]
async fn it_goes_on_by_itself_and_ends_with_the_sidecar() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let mut config = config_in(folder.path());
    config.sweep_every = Duration::from_millis(1);
    let clock = Arc::new(countersign::clock::ManualClock::at(START));
    let running = serve(&config, Arc::<countersign::clock::ManualClock>::clone(&clock)).await.unwrap();
    let bearer = countersign::client::Bearer::new(&token("runtime")).unwrap();
    let mut agent = countersign::client::agent(countersign::client::channel(running.address()).unwrap(), bearer);
    let request = RequestApprovalRequest { invocation: Some(email()), ..RequestApprovalRequest::default() };
    agent.request_approval(request).await.unwrap();
    clock.advance(Duration::from_secs(600));
    let status = Arc::clone(running.sweeper().status());
    while status.read().expired == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let read = status.read();
    assert_eq!((read.expired, read.lag, read.failures), (1, Duration::ZERO, 0));
    assert!(read.passes > 0);
    drop(agent);
    assert!(running.stop().await);
    let passes = status.read().passes;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(status.read().passes, passes);
}

#[tokio::test]
async fn what_an_agent_still_waits_for_is_kept_however_short_the_retention() {
    let sidecar = Sidecar::start().await;
    let wait = sidecar.open_wait(OpenWaitRequest {
        expire_after: Some(prost_types::Duration { seconds: 7 * 24 * 60 * 60, nanos: 0 }),
        ..crate::grpc::waits::opening()
    });
    let wait = wait.await.unwrap().wait.unwrap();
    let (asked, _) = sidecar.ask_in(&wait, email()).await;
    sidecar.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
    let store = sidecar.running().engine().store();
    sidecar.advance(3 * DAY);
    sidecar.sweep().await;
    let step = countersign::storage::Sweep::DeleteApprovals { kept: DAY };
    assert_eq!(store.sweep(step, 10).await.unwrap().rows, 0, "its wait is active");
    let resumed = sidecar.resume_wait(&wait, &new_attempt()).await.unwrap();
    assert_eq!(resumed.approvals[0].state(), ApprovalState::Denied, "a denial wakes the agent");
    sidecar.close_wait(&resumed.wait.unwrap()).await.unwrap();
    assert_eq!(store.sweep(step, 10).await.unwrap().rows, 1);
}
