//! Many sidecars, one table: what is asked through one is decided through another and consumed through a third.

use crate::backend::share;
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

impl Sidecar {
    /// Another one on the same table, with the same secret and time, as it runs on another machine.
    pub async fn beside(&self) -> Self {
        let folder = Folder::of(|new| share(self.folder(), new));
        let mut beside = Self::stopped(folder, Arc::clone(&self.clock));
        beside.restart_stopped().await;
        beside
    }
}

#[tokio::test]
async fn what_is_asked_through_one_is_decided_through_another_and_consumed_through_a_third() {
    let one = Sidecar::start().await;
    let (another, third) = (one.beside().await, one.beside().await);
    let (asked, token) = one.ask(email()).await;
    assert_eq!(another.read(&asked).await, asked);
    assert_eq!(another.listed("olga", &[ApprovalState::Pending]).await, std::slice::from_ref(&asked.id));
    let approved = another.decide("olga", &asked.id, Verdict::Approve).await.unwrap();
    assert_eq!(third.read(&asked).await, approved);
    let permit = third.consume(&token, email()).await.unwrap().permit.unwrap();
    assert_eq!(permit.approval_id, asked.id);
    for sidecar in [&one, &another, &third] {
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
        assert_eq!(sidecar.read(&asked).await.state(), ApprovalState::Consumed);
    }
}

#[tokio::test]
async fn one_permit_is_given_however_many_sidecars_are_asked_at_once() {
    let one = Sidecar::start().await;
    let sidecars = [one.beside().await, one.beside().await, one];
    for round in 0..10 {
        let call = in_conversation(&round.to_string());
        let (approval, token) = sidecars[0].approved(call.clone()).await;
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..60 {
            let mut agent = sidecars[number % sidecars.len()].agent();
            let request = ConsumeRequest {
                consume_token: token.clone(),
                attempt_id: new_attempt(),
                invocation: Some(call.clone()),
                retry_of: String::new(),
            };
            calls.spawn(async move { agent.consume(request).await });
        }
        let mut permits = 0;
        for answer in calls.join_all().await {
            match answer {
                Ok(answer) => {
                    assert_eq!(answer.into_inner().permit.unwrap().approval_id, approval.id);
                    permits += 1;
                }
                Err(status) => drop(refused(Err::<(), _>(status), Code::FailedPrecondition, "APPROVAL_CONSUMED")),
            }
        }
        assert_eq!(permits, 1, "round {round}");
        let records = sidecars[1].audit_of(&approval.id).await;
        assert_eq!(records.iter().filter(|record| record.kind == "approval.consumed").count(), 1);
    }
}

#[tokio::test]
async fn the_same_attempt_at_another_sidecar_is_answered_with_the_same_permit() {
    let one = Sidecar::start().await;
    let other = one.beside().await;
    let (_, token) = one.approved(email()).await;
    let attempt = new_attempt();
    let first = one.attempt(&token, &attempt, email()).await.unwrap();
    let again = other.attempt(&token, &attempt, email()).await.unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!(first.permit, again.permit);
}

#[tokio::test]
async fn who_watches_at_one_sidecar_is_told_what_is_decided_at_another() {
    let one = Sidecar::start().await;
    let other = one.beside().await;
    for round in 0..5 {
        let (asked, _) = one.ask(in_conversation(&round.to_string())).await;
        let mut stream = other.watch(&asked).await;
        assert_eq!(crate::grpc::watching::state(&mut stream).await, asked);
        let decided = one.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
        assert_eq!(crate::grpc::watching::all(stream).await, [decided]);
    }
}

#[tokio::test]
async fn what_one_sweeps_no_other_sweeps_again() {
    let one = Sidecar::start().await;
    let other = one.beside().await;
    for call in 0..20 {
        one.ask(in_conversation(&call.to_string())).await;
    }
    one.advance(Duration::from_secs(24 * 60 * 60));
    let (first, second) = tokio::join!(one.sweep(), other.sweep());
    assert_eq!(first.expired + second.expired, 20);
    let expired = one.audit().await.into_iter().filter(|record| record.kind == "approval.expired").count();
    assert_eq!(expired, 20);
}

#[tokio::test]
async fn one_sidecar_that_stops_takes_nothing_from_another() {
    let mut one = Sidecar::start().await;
    let other = one.beside().await;
    let (asked, token) = one.approved(email()).await;
    assert!(one.stop().await);
    assert_eq!(other.read(&asked).await.state(), ApprovalState::Approved);
    other.consume(&token, email()).await.unwrap();
    one.restart_stopped().await;
    refused(one.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
}

#[tokio::test]
async fn one_sidecar_seals_and_another_goes_on_when_it_is_gone() {
    let one = Sidecar::start().await;
    let another = one.beside().await;
    one.ask(email()).await;
    assert_eq!(one.running().sealer().checkpoint_now().await.unwrap().sealed, 1);
    one.ask(in_conversation("2")).await;
    let held = another.running().sealer().checkpoint_now().await.unwrap();
    assert!(held.held && held.sealed == 0, "{held:?}");
    // The first one is never heard of again.
    one.advance(Duration::from_secs(15));
    let report = another.running().sealer().checkpoint_now().await.unwrap();
    assert_eq!((report.held, report.sealed, report.checkpoints), (false, 1, 1));
    assert!(one.running().sealer().pass().await.unwrap().held);
    let verdict = one.verdict(&[]).await;
    assert!(verdict.is_good() && verdict.signed == 2, "{verdict:?}");
    // One that stops lets go at once.
    let mut another = another;
    one.ask(in_conversation("3")).await;
    assert!(another.stop().await);
    one.ask(in_conversation("4")).await;
    assert_eq!(one.running().sealer().pass().await.unwrap().sealed, 1);
    assert!(one.verdict(&[]).await.is_good());
}

#[tokio::test]
async fn a_record_that_is_committed_late_is_sealed_when_it_is_there() {
    let sidecar = Sidecar::start().await;
    sidecar.ask(email()).await;
    let mut slow = crate::backend::intruder(&sidecar).await;
    crate::backend::run(
        &mut slow,
        "BEGIN; INSERT INTO audit_records (id, time, kind, principal, agent, decision, labels) \
         SELECT 'slow', max(time), 'consume.refused', 'olga', 'assistant', 'DENY', '{}' FROM audit_records",
    )
    .await;
    sidecar.ask(in_conversation("2")).await;
    let sealer = sidecar.running().sealer();
    assert_eq!(sealer.checkpoint_now().await.unwrap().sealed, 2, "nothing waits for it");
    crate::backend::run(&mut slow, "COMMIT").await;
    assert_eq!(sealer.checkpoint_now().await.unwrap().sealed, 1);
    let positions: Vec<i64> = sidecar.entries().await.iter().map(|entry| entry.position).collect();
    assert_eq!(positions, [1, 3, 2]);
    let verdict = sidecar.verdict(&[]).await;
    assert!(verdict.is_good() && verdict.signed == 3, "{verdict:?}");
}
