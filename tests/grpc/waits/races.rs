//! Real concurrency around a wait: whatever meets, one history comes of it. What was approved is used or withdrawn, never
//! both, and nothing is open in a wait that is over or has moved on.

use super::*;
use crate::grpc::steps::attempted;
use countersign::storage::Sweep;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Barrier;
use tonic::Code;

/// How often each pair meets.
const ROUNDS: usize = 8;

/// What may happen to a wait, or in it, at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Close,
    Replace,
    Supersede,
    Reopen,
    Resume,
    Expire,
    Ask,
    Decide,
    Revoke,
    Cancel,
    Consume,
}

use Act::*;

const ACTS: [Act; 11] = [Close, Replace, Supersede, Reopen, Resume, Expire, Ask, Decide, Revoke, Cancel, Consume];

/// One wait with an approval that may be used and one that waits for its owner.
struct Scene {
    sidecar: Arc<Sidecar>,
    principal: String,
    wait: Wait,
    approved: Approval,
    token: String,
    pending: Approval,
}

impl Scene {
    async fn new(sidecar: &Arc<Sidecar>, principal: String, with_pending: bool) -> Arc<Self> {
        let of = |request: OpenWaitRequest| OpenWaitRequest { principal: principal.clone(), ..request };
        let request = OpenWaitRequest { expire_after: span(300, 0), ..of(opening()) };
        let wait = sidecar.open_wait(request).await.unwrap().wait.unwrap();
        let call = Invocation { principal: principal.clone(), ..email() };
        let (approved, token) = sidecar.ask_in(&wait, call.clone()).await;
        let approved = sidecar.decide(&principal, &approved.id, Verdict::Approve).await.unwrap();
        let (pending, _) = sidecar.ask_in(&wait, Invocation { action: "GMAIL_REPLY".to_owned(), ..call }).await;
        if !with_pending {
            sidecar.decide(&principal, &pending.id, Verdict::Deny).await.unwrap();
        }
        Arc::new(Self { sidecar: Arc::clone(sidecar), principal, wait, approved, token, pending })
    }

    /// Does it; the reason of its refusal, or what it came to.
    async fn act(&self, act: Act) -> Result<(), Status> {
        let sidecar = &self.sidecar;
        let of = |request: OpenWaitRequest| OpenWaitRequest { principal: self.principal.clone(), ..request };
        let call = Invocation { principal: self.principal.clone(), ..email() };
        match act {
            Close => sidecar.close_wait(&self.wait).await.map(drop),
            Replace => {
                let request = OpenWaitRequest { replace: true, ..of(opening_for("input-2", 1)) };
                sidecar.open_wait(request).await.map(drop)
            }
            Supersede => sidecar.open_wait(of(opening_for("input-1", 2))).await.map(drop),
            Reopen => sidecar.open_wait(OpenWaitRequest { expire_after: None, ..of(opening()) }).await.map(drop),
            Resume => sidecar.resume_wait(&self.wait, &new_attempt()).await.map(drop),
            Expire => {
                // Time passes for everybody at once, and then somebody writes it down.
                let left = micros(&self.wait.expire_time) - sidecar.store_micros();
                if left > 0 {
                    sidecar.advance(std::time::Duration::from_micros(u64::try_from(left).unwrap()));
                }
                sidecar.running().engine().store().sweep(Sweep::ExpireWaits, 1).await.map(drop).unwrap();
                Ok(())
            }
            Ask => {
                let call = Invocation { conversation: "asked meanwhile".to_owned(), ..call };
                sidecar.request_in(&self.wait, call).await.map(drop)
            }
            Decide => sidecar.decide(&self.principal, &self.pending.id, Verdict::Approve).await.map(drop),
            Revoke => sidecar.take_back(&self.principal, &self.approved.id).await.map(drop),
            Cancel => sidecar.cancel_as("runtime", &self.approved).await.map(drop),
            Consume => {
                let request = attempted(&self.token, &new_attempt(), call);
                sidecar.agent().consume(request).await.map(drop)
            }
        }
    }

    /// One history: the wait and every approval in it agree, and each has one end at most.
    async fn holds(&self, context: &str) -> (Wait, ApprovalState) {
        let wait = self.sidecar.get_wait(&self.wait).await;
        for id in &wait.approval_ids {
            let of = Approval { id: id.clone(), principal: self.principal.clone(), ..self.approved.clone() };
            let approval = self.sidecar.read(&of).await;
            self.sidecar.one_history(&approval).await;
            match approval.state() {
                ApprovalState::Pending | ApprovalState::Approved => {
                    assert!(wait.state() != WaitState::Closed, "{context}: open in {wait:?}");
                    assert_eq!(approval.objective, wait.objective, "{context}: of an objective that has moved on");
                    let asleep = wait.state() == WaitState::Open || approval.state() == ApprovalState::Approved;
                    assert!(asleep, "{context}: the agent goes on while something is pending");
                }
                ApprovalState::Cancelled => {
                    let by_the_wait = approval.state_reason.starts_with(&format!("wait {}", wait.id));
                    assert!(by_the_wait || approval.state_reason == "no longer needed", "{context}");
                }
                _ => {}
            }
        }
        let executions = self.sidecar.audit_of(&self.approved.id).await;
        let consumed = executions.iter().filter(|record| record.kind == "approval.consumed").count();
        let state = self.sidecar.read(&self.approved).await.state();
        assert_eq!(consumed, usize::from(state == ApprovalState::Consumed), "{context}");
        (wait, state)
    }
}

/// Does both at the same moment, each on a task of its own.
async fn at_once(scene: &Arc<Scene>, acts: [Act; 2]) -> [Result<(), Status>; 2] {
    let barrier = Arc::new(Barrier::new(2));
    let tasks = acts.map(|act| {
        let (barrier, scene) = (Arc::clone(&barrier), Arc::clone(scene));
        tokio::spawn(async move {
            barrier.wait().await;
            scene.act(act).await
        })
    });
    let [first, second] = tasks;
    [first.await.unwrap(), second.await.unwrap()]
}

fn told_of(result: &Result<(), Status>) -> String {
    result.as_ref().err().map_or_else(|| "OK".to_owned(), reason)
}

/// What comes of the two one after the other, in both orders: each answer, where the wait stands, where the approval.
type Outcome = (String, String, String, &'static str);

async fn in_order(sidecar: &Arc<Sidecar>, acts: [Act; 2], pending: bool, name: &str) -> Outcome {
    let scene = Scene::new(sidecar, name.to_owned(), pending).await;
    let first = scene.act(acts[0]).await;
    let second = scene.act(acts[1]).await;
    outcome(&scene, &first, &second, name).await
}

async fn outcome(scene: &Scene, first: &Result<(), Status>, second: &Result<(), Status>, context: &str) -> Outcome {
    let (wait, approved) = scene.holds(context).await;
    let wait = format!("{} {} {}", wait.state().as_str_name(), wait.close_kind().as_str_name(), wait.version);
    (told_of(first), told_of(second), wait, approved.as_str_name())
}

/// Every pair meets, and what comes of it is what would have come of one after the other.
async fn every_pair_of(acts: &[Act]) {
    let mut seen: BTreeMap<(Act, Act), BTreeSet<Outcome>> = BTreeMap::new();
    for (index, first) in acts.iter().enumerate() {
        for second in ACTS.iter().filter(|other| acts.get(..index).is_none_or(|done| !done.contains(other))) {
            // Time that passes is passed for all that follows, so each pair has a sidecar of its own.
            let sidecar = Arc::new(Sidecar::start().await);
            // Nothing may be pending where an agent is to go on; something must be where it is to be decided.
            let pending = [*first, *second].contains(&Decide);
            let one = in_order(&sidecar, [*first, *second], pending, "in order").await;
            let (second_first, first_second, wait, approval) =
                in_order(&sidecar, [*second, *first], pending, "the other way").await;
            let possible = BTreeSet::from([one, (first_second, second_first, wait, approval)]);
            for round in 0..ROUNDS {
                let context = format!("{first:?} against {second:?}, round {round}");
                let scene = Scene::new(&sidecar, format!("round-{round}"), pending).await;
                let [one, two] = at_once(&scene, [*first, *second]).await;
                let outcome = outcome(&scene, &one, &two, &context).await;
                assert!(possible.contains(&outcome), "{context}: {outcome:?} is none of {possible:#?}");
                seen.entry((*first, *second)).or_default().insert(outcome);
            }
        }
    }
    assert!(!seen.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closing_or_replacing_against_anything_is_one_after_the_other() {
    every_pair_of(&[Close, Replace]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn moving_on_or_opening_again_against_anything_is_one_after_the_other() {
    every_pair_of(&[Supersede, Reopen]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn resuming_or_expiring_against_anything_is_one_after_the_other() {
    every_pair_of(&[Resume, Expire]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn asking_in_a_wait_against_anything_is_one_after_the_other() {
    every_pair_of(&[Ask]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_people_and_agents_do_in_a_wait_is_one_after_the_other() {
    every_pair_of(&[Decide, Revoke, Cancel, Consume]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_attempts_one_resumes() {
    let sidecar = Arc::new(Sidecar::start().await);
    let wait = sidecar.waiting().await;
    let attempts: Vec<_> = (0..100)
        .map(|_| {
            let (sidecar, wait) = (Arc::clone(&sidecar), wait.clone());
            tokio::spawn(async move {
                let attempt = new_attempt();
                (sidecar.resume_wait(&wait, &attempt).await, attempt)
            })
        })
        .collect();
    let mut winners = Vec::new();
    for attempt in attempts {
        match attempt.await.unwrap() {
            (Ok(resumed), attempt) => {
                assert!(!resumed.replayed);
                winners.push((resumed, attempt));
            }
            (late, _) => {
                let late = refused(late, Code::FailedPrecondition, "WAIT_ALREADY_RESUMED");
                assert_eq!(told(&late, "state_by"), "runtime");
            }
        }
    }
    let [(resumed, attempt)] = &winners[..] else { panic!("{} won", winners.len()) };
    let again = sidecar.resume_wait(&wait, attempt).await.unwrap();
    assert_eq!((again.replayed, &again.wait), (true, &resumed.wait));
    let kinds = sidecar.kinds_of_wait(&wait).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "wait.resumed").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| *kind == "wait.refused").count(), 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_attempt_from_fifty_tasks_gets_one_answer() {
    let sidecar = Arc::new(Sidecar::start().await);
    let wait = sidecar.waiting().await;
    let attempt = new_attempt();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (sidecar, wait, attempt) = (Arc::clone(&sidecar), wait.clone(), attempt.clone());
            tokio::spawn(async move { sidecar.resume_wait(&wait, &attempt).await.unwrap() })
        })
        .collect();
    let mut first = 0;
    for task in tasks {
        let resumed = task.await.unwrap();
        first += usize::from(!resumed.replayed);
        assert_eq!((resumed.wait.unwrap().version, resumed.approvals.len()), (2, 0));
    }
    assert_eq!(first, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_simultaneous_openings_make_one_wait() {
    let sidecar = Arc::new(Sidecar::start().await);
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let sidecar = Arc::clone(&sidecar);
            // Every second one is for another objective, and wants the transcript for itself.
            let request = OpenWaitRequest {
                replace: false,
                expire_after: None,
                ..opening_for(["input-1", "input-2"][number % 2], 1)
            };
            tokio::spawn(async move { sidecar.open_wait(request).await })
        })
        .collect();
    let (mut made, mut ids, mut conflicts) = (0, BTreeSet::new(), 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(opened) => {
                made += usize::from(!opened.existing);
                ids.insert(opened.wait.unwrap().id);
            }
            conflict => {
                refused(conflict, Code::FailedPrecondition, "OBJECTIVE_CONFLICT");
                conflicts += 1;
            }
        }
    }
    assert_eq!((made, ids.len(), conflicts), (1, 1, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn questions_that_meet_the_end_of_their_wait_are_refused_or_withdrawn() {
    let sidecar = Arc::new(Sidecar::start().await);
    for round in 0..ROUNDS {
        let principal = format!("principal-{round}");
        let request = OpenWaitRequest { principal: principal.clone(), ..opening() };
        let wait = sidecar.open_wait(request).await.unwrap().wait.unwrap();
        let asking: Vec<_> = (0..20)
            .map(|number| {
                let (sidecar, wait) = (Arc::clone(&sidecar), wait.clone());
                let call =
                    Invocation { principal: principal.clone(), conversation: format!("question {number}"), ..email() };
                tokio::spawn(async move { sidecar.request_in(&wait, call).await })
            })
            .collect();
        let closing = {
            let (sidecar, wait) = (Arc::clone(&sidecar), wait.clone());
            tokio::spawn(async move { sidecar.close_wait(&wait).await })
        };
        closing.await.unwrap().unwrap();
        for asked in asking {
            match asked.await.unwrap() {
                Ok(asked) => {
                    let state = sidecar.read(&asked.approval.unwrap()).await.state();
                    assert_eq!(state, ApprovalState::Cancelled);
                }
                late => drop(refused(late, Code::FailedPrecondition, "WAIT_CLOSED")),
            }
        }
        assert!(sidecar.listed(&principal, &[ApprovalState::Pending]).await.is_empty());
    }
}
