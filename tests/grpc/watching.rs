//! Watching: every state once and in order, for however many watch, and an end that says why.

mod ends;
mod many;

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use crate::grpc::tenants::{alike, nothing};
use countersign::proto::watch_approvals_response::Event;
use countersign::proto::*;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use ApprovalState::{Approved, Cancelled, Consumed, Denied, Expired, Pending};

/// The next message of a stream, or its end.
pub async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>, Status> {
    tokio::time::timeout(Duration::from_secs(30), stream.message()).await.expect("something is told")
}

/// The state that is told next.
pub async fn state(stream: &mut Streaming<WatchApprovalResponse>) -> Approval {
    next(stream).await.unwrap().expect("no end yet").approval.unwrap()
}

/// All that is told until the stream ends well.
pub async fn all(mut stream: Streaming<WatchApprovalResponse>) -> Vec<Approval> {
    let mut told = Vec::new();
    while let Some(answer) = next(&mut stream).await.unwrap() {
        told.push(answer.approval.unwrap());
    }
    told
}

/// What is told next of a person's approvals.
pub async fn event(stream: &mut Streaming<WatchApprovalsResponse>) -> Event {
    next(stream).await.unwrap().expect("no end of its own").event.unwrap()
}

/// The change that is told next.
pub async fn change(stream: &mut Streaming<WatchApprovalsResponse>) -> Approval {
    match event(stream).await {
        Event::Approval(approval) => approval,
        Event::SnapshotComplete(_) => panic!("the snapshot was complete before"),
    }
}

/// Everything up to the marker.
pub async fn snapshot(stream: &mut Streaming<WatchApprovalsResponse>) -> Vec<Approval> {
    let mut told = Vec::new();
    loop {
        match event(stream).await {
            Event::Approval(approval) => told.push(approval),
            Event::SnapshotComplete(complete) => {
                assert!(!complete.left_out);
                return told;
            }
        }
    }
}

pub fn request_of(approval: &Approval) -> WatchApprovalRequest {
    WatchApprovalRequest {
        principal: approval.principal.clone(),
        agent: approval.agent.clone(),
        approval_id: approval.id.clone(),
    }
}

pub fn request_for(person: &str) -> WatchApprovalsRequest {
    WatchApprovalsRequest { principal: person.to_owned(), states: Vec::new() }
}

impl Sidecar {
    /// A connection of its own.
    pub fn another_channel(&self) -> Channel {
        countersign::client::channel(self.running().address()).unwrap()
    }

    pub async fn watch_as(
        &self,
        caller: &str,
        approval: &Approval,
    ) -> Result<Streaming<WatchApprovalResponse>, Status> {
        self.agent_as(caller).watch_approval(request_of(approval)).await.map(tonic::Response::into_inner)
    }

    pub async fn watch(&self, approval: &Approval) -> Streaming<WatchApprovalResponse> {
        self.watch_as("runtime", approval).await.unwrap()
    }

    /// Watches what a person sees.
    pub async fn watch_for(&self, person: &str) -> Streaming<WatchApprovalsResponse> {
        self.approver().watch_approvals(request_for(person)).await.unwrap().into_inner()
    }

    /// Waits until as many watch; a client that went away is noticed by the sidecar in its own time.
    pub async fn has_watchers(&self, count: usize) {
        for _ in 0..3_000 {
            if self.running().engine().watchers() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} watch, not {count}", self.running().engine().watchers());
    }
}

#[tokio::test]
async fn every_state_is_told_as_it_was_until_the_last_and_then_the_stream_ends() {
    let sidecar = Sidecar::start().await;
    let (asked, token) = sidecar.ask(deletion()).await;
    let mut watched = sidecar.watch(&asked).await;
    assert_eq!(state(&mut watched).await, asked);
    for (person, reached) in [("dana", Pending), ("eve", Pending), ("olga", Approved)] {
        sidecar.advance(Duration::from_secs(1));
        let decided = sidecar.decide(person, &asked.id, Verdict::Approve).await.unwrap();
        let told = state(&mut watched).await;
        assert_eq!((told.state(), &told), (reached, &decided));
    }
    sidecar.consume(&token, deletion()).await.unwrap();
    let told = state(&mut watched).await;
    assert_eq!((told.state(), told.version), (Consumed, 5));
    assert_eq!(told, sidecar.read(&asked).await);
    assert!(next(&mut watched).await.unwrap().is_none(), "nothing follows what is final");
    // What is final already is told, and that is all.
    let told = all(sidecar.watch(&asked).await).await;
    assert_eq!(told, [sidecar.read(&asked).await]);
    sidecar.has_watchers(0).await;
}

#[tokio::test]
async fn who_was_not_reading_is_told_every_state_all_the_same() {
    let sidecar = Sidecar::start().await;
    let (asked, token) = sidecar.ask(deletion()).await;
    let watched = sidecar.watch(&asked).await;
    let one = sidecar.decide("dana", &asked.id, Verdict::Approve).await.unwrap();
    let two = sidecar.decide("eve", &asked.id, Verdict::Approve).await.unwrap();
    let three = sidecar.decide("olga", &asked.id, Verdict::Approve).await.unwrap();
    sidecar.consume(&token, deletion()).await.unwrap();
    let last = sidecar.read(&asked).await;
    assert_eq!(all(watched).await, [asked, one, two, three, last]);
}

#[tokio::test]
async fn a_deadline_is_told_when_it_passes_and_once() {
    let sidecar = Sidecar::start().await;
    let (pending, _) = sidecar.ask(email()).await;
    let (approved, _) = sidecar.approved(in_conversation("approved")).await;
    for (approval, deadline) in [(&pending, &pending.decide_by), (&approved, &approved.use_by)] {
        let mut watched = sidecar.watch(approval).await;
        assert_eq!(state(&mut watched).await, *approval);
        sidecar.stand_at(deadline, 0);
        let told = state(&mut watched).await;
        assert_eq!((told.state(), told.version), (Expired, approval.version + 1));
        assert_eq!(&told.close_time, deadline);
        assert!(next(&mut watched).await.unwrap().is_none());
        assert_eq!(sidecar.read(approval).await, told);
        // What is overdue already is told as what it is.
        assert_eq!(all(sidecar.watch(approval).await).await, [told]);
        let expired = sidecar.audit_of(&approval.id).await.into_iter().filter(|one| one.kind == "approval.expired");
        assert_eq!(expired.count(), 1);
        if sidecar.read(&approved).await.state() == Expired {
            break;
        }
    }
}

#[tokio::test]
async fn an_overdue_approval_is_told_as_expired_from_the_first() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    sidecar.stand_at(&asked.decide_by, 0);
    let told = all(sidecar.watch(&asked).await).await;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].state(), told[0].version), (Expired, 2));
    assert_eq!(sidecar.read(&asked).await, told[0]);
}

#[tokio::test]
async fn a_person_is_told_what_is_open_and_then_every_change() {
    let sidecar = Sidecar::start().await;
    let (first, _) = sidecar.ask(email()).await;
    let (second, token) = sidecar.approved(in_conversation("2")).await;
    let (gone, _) = sidecar.ask(in_conversation("gone")).await;
    sidecar.cancel_as("runtime", &gone).await.unwrap();
    let mut watched = sidecar.watch_for("olga").await;
    assert_eq!(snapshot(&mut watched).await, [second.clone(), first.clone()], "newest first, and open");

    let (third, _) = sidecar.ask(in_conversation("3")).await;
    assert_eq!(change(&mut watched).await, third);
    let denied = sidecar.decide("olga", &first.id, Verdict::Deny).await.unwrap();
    assert_eq!((change(&mut watched).await, denied.state()), (denied, Denied));
    sidecar.consume(&token, in_conversation("2")).await.unwrap();
    let consumed = change(&mut watched).await;
    assert_eq!((consumed.state(), &consumed), (Consumed, &sidecar.read(&second).await));
    let cancelled = sidecar.cancel_as("runtime", &third).await.unwrap();
    assert_eq!((change(&mut watched).await, cancelled.state()), (cancelled, Cancelled));
    // What somebody sees to be overdue is written down, and so told.
    let (late, _) = sidecar.ask(in_conversation("late")).await;
    assert_eq!(change(&mut watched).await, late);
    sidecar.stand_at(&late.decide_by, 0);
    sidecar.decide("olga", &late.id, Verdict::Approve).await.unwrap_err();
    let expired = change(&mut watched).await;
    assert_eq!((expired.state(), expired.version, &expired.id), (Expired, 2, &late.id));
}

#[tokio::test]
async fn a_snapshot_has_the_states_that_are_asked_for_as_they_are_now() {
    let sidecar = Sidecar::start().await;
    let (overdue, _) = sidecar.ask(email()).await;
    sidecar.stand_at(&overdue.decide_by, 0);
    let (open, _) = sidecar.ask(in_conversation("open")).await;
    let watch = async |states: &[ApprovalState]| {
        let states = states.iter().map(|state| i32::from(*state)).collect();
        let request = WatchApprovalsRequest { states, ..request_for("olga") };
        sidecar.approver().watch_approvals(request).await.map(tonic::Response::into_inner)
    };
    let mut expired = watch(&[Expired, Expired]).await.unwrap();
    let told = snapshot(&mut expired).await;
    assert_eq!(told, [sidecar.read(&overdue).await]);
    assert_eq!((told[0].state(), told[0].version), (Expired, 2));
    assert_eq!(snapshot(&mut watch(&[]).await.unwrap()).await, std::slice::from_ref(&open));
    assert_eq!(snapshot(&mut watch(&[Denied]).await.unwrap()).await, []);
    // Writing it down later is no change that was not told.
    sidecar.decide("olga", &overdue.id, Verdict::Approve).await.unwrap_err();
    let cancelled = sidecar.cancel_as("runtime", &open).await.unwrap();
    assert_eq!(change(&mut expired).await, cancelled);
    for state in [0, -1, 99] {
        let request = WatchApprovalsRequest { states: vec![state], ..request_for("olga") };
        wrong(sidecar.approver().watch_approvals(request).await.map(|_| ()), "states");
    }
}

#[tokio::test]
async fn nobody_is_told_of_what_is_not_theirs_nor_that_there_is_any() {
    let sidecar = Sidecar::start().await;
    let of = |principal: &str, name: &str| Invocation { principal: principal.to_owned(), ..in_conversation(name) };
    let ask = async |caller: &str, principal: &str, name: &str| {
        let request = RequestApprovalRequest { invocation: Some(of(principal, name)), ..Default::default() };
        sidecar.request_as(caller, request).await.unwrap().approval.unwrap()
    };
    let theirs = ask("tenant-b", "tenant-b", "1").await;
    // By id: another's is as absent as nothing, under whatever name.
    for (principal, agent) in [("tenant-b", "assistant"), ("tenant-a", "assistant"), ("tenant-b", "other-1")] {
        let named = |id: &str| Approval {
            id: id.to_owned(),
            principal: principal.to_owned(),
            agent: agent.to_owned(),
            ..Default::default()
        };
        let one = sidecar.watch_as("tenant-a", &named(&theirs.id)).await.map(|_| ());
        let other = sidecar.watch_as("tenant-a", &named(&nothing())).await.map(|_| ());
        alike(one, other, "APPROVAL_NOT_FOUND");
    }
    sidecar.has_watchers(0).await;

    let mut of_a = sidecar.watch_for("tenant-a").await;
    let mut of_b = sidecar.watch_for("tenant-b").await;
    assert_eq!(snapshot(&mut of_a).await, []);
    assert_eq!(snapshot(&mut of_b).await, std::slice::from_ref(&theirs));
    for number in 0..5 {
        ask("tenant-b", "tenant-b", &format!("more {number}")).await;
    }
    let denied = sidecar.decide("tenant-b", &theirs.id, Verdict::Deny).await.unwrap();
    let mine = ask("tenant-a", "tenant-a", "mine").await;
    assert_eq!(change(&mut of_a).await, mine, "the first that A is told is A's own");
    for _ in 0..5 {
        assert_eq!(change(&mut of_b).await.principal, "tenant-b");
    }
    assert_eq!(change(&mut of_b).await, denied);

    // An approver's caller speaks for those that it may.
    let watch = async |caller: &str, person: &str| {
        sidecar.approver_as(caller).watch_approvals(request_for(person)).await.map(|_| ())
    };
    refused(watch("dana", "eve").await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    refused(watch("team", "olga").await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    refused(watch("chat", "").await, Code::InvalidArgument, "PRINCIPAL_REQUIRED");
    watch("dana", "").await.unwrap();
}

#[tokio::test]
async fn a_group_is_told_and_who_is_in_none_is_not() {
    let sidecar = Sidecar::start().await;
    let mut of_dana = sidecar.watch_for("dana").await;
    let mut of_sam = sidecar.watch_for("sam").await;
    assert_eq!((snapshot(&mut of_dana).await, snapshot(&mut of_sam).await), (vec![], vec![]));
    let (asked, _) = sidecar.ask(deletion()).await;
    assert_eq!(change(&mut of_dana).await, asked);
    let decided = sidecar.decide("eve", &asked.id, Verdict::Approve).await.unwrap();
    assert_eq!(change(&mut of_dana).await, decided);
    let (of_sams, _) = sidecar.ask(Invocation { principal: "sam".to_owned(), ..email() }).await;
    assert_eq!(change(&mut of_sam).await, of_sams);
}
