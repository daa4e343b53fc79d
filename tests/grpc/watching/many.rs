//! Many who watch at once, while much happens.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Waits until everyone is there. Where one has failed, nobody waits for ever.
async fn meet(barrier: &Barrier) {
    tokio::time::timeout(Duration::from_secs(120), barrier.wait()).await.expect("everyone gets this far");
}

/// Every state that was told, by its version: they follow on one another, up to the one that is final.
#[track_caller]
fn one_by_one(told: &[Approval]) -> &Approval {
    let first = told.first().expect("a state now").version;
    let versions: Vec<u64> = told.iter().map(|approval| approval.version).collect();
    let want: Vec<u64> = (first..first + told.len() as u64).collect();
    assert_eq!(versions, want);
    told.last().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn versions_follow_on_one_another_whatever_races() {
    let sidecar = Arc::new(Sidecar::start().await);
    for round in 0..15 {
        let call = Invocation { conversation: round.to_string(), ..deletion() };
        let (asked, token) = sidecar.ask(call.clone()).await;
        let barrier = Arc::new(Barrier::new(26));
        let mut watching = JoinSet::new();
        for _ in 0..20 {
            let (sidecar, barrier, asked) = (Arc::clone(&sidecar), Arc::clone(&barrier), asked.clone());
            watching.spawn(async move {
                meet(&barrier).await;
                all(sidecar.watch(&asked).await).await
            });
        }
        let mut acting = JoinSet::new();
        for act in 0..6 {
            let (sidecar, barrier) = (Arc::clone(&sidecar), Arc::clone(&barrier));
            let (asked, token, call) = (asked.clone(), token.clone(), call.clone());
            acting.spawn(async move {
                meet(&barrier).await;
                match act {
                    0 => drop(sidecar.decide("dana", &asked.id, Verdict::Approve).await),
                    1 => drop(sidecar.decide("eve", &asked.id, Verdict::Approve).await),
                    2 => drop(sidecar.decide("olga", &asked.id, Verdict::Approve).await),
                    3 => drop(sidecar.consume(&token, call).await),
                    4 if round % 3 == 0 => drop(sidecar.cancel_as("runtime", &asked).await),
                    5 if round % 3 == 1 => drop(sidecar.take_back("olga", &asked.id).await),
                    _ => {}
                }
            });
        }
        acting.join_all().await;
        // Whatever came of it, this ends it.
        let _ = sidecar.cancel_as("runtime", &asked).await;
        let last = sidecar.read(&asked).await;
        let mut states = BTreeMap::from([(last.version, last.clone())]);
        for told in watching.join_all().await {
            assert_eq!(*one_by_one(&told), last);
            // Two that are told the same version are told the same.
            for approval in told {
                assert_eq!(states.entry(approval.version).or_insert_with(|| approval.clone()), &approval);
            }
        }
    }
    sidecar.has_watchers(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_see_every_change_once() {
    let sidecar = Arc::new(Sidecar::with(POLICY, (10_000, 10_000)).await);
    let (watched, token) = sidecar.ask(deletion()).await;
    let mut single = JoinSet::new();
    let mut lists = JoinSet::new();
    let barrier = Arc::new(Barrier::new(501));
    let channels: Vec<Channel> = (0..5).map(|_| sidecar.another_channel()).collect();
    for number in 0..300 {
        let (barrier, watched, channel) = (Arc::clone(&barrier), watched.clone(), channels[number % 5].clone());
        single.spawn(async move {
            let mut client = countersign::client::agent(channel, bearer("runtime"));
            let stream = client.watch_approval(request_of(&watched)).await.unwrap().into_inner();
            meet(&barrier).await;
            all(stream).await
        });
    }
    const CHANGES: usize = 5 + 60;
    for number in 0..200 {
        let (barrier, channel) = (Arc::clone(&barrier), channels[number % 5].clone());
        lists.spawn(async move {
            let mut client = countersign::client::approver(channel, bearer("chat"));
            let person = ["dana", "eve", "finn"][number % 3];
            let mut stream = client.watch_approvals(request_for(person)).await.unwrap().into_inner();
            let mut told = snapshot(&mut stream).await;
            assert_eq!(told.len(), 1);
            meet(&barrier).await;
            while told.len() < CHANGES {
                told.push(change(&mut stream).await);
            }
            told
        });
    }
    meet(&barrier).await;
    sidecar.has_watchers(500).await;
    let mut asking = JoinSet::new();
    for task in 0..5 {
        let sidecar = Arc::clone(&sidecar);
        asking.spawn(async move {
            for number in 0..6 {
                let call = Invocation { conversation: format!("{task} {number}"), ..deletion() };
                let (asked, _) = sidecar.ask(call).await;
                sidecar.decide("dana", &asked.id, Verdict::Deny).await.unwrap();
            }
        });
    }
    for person in ["dana", "finn", "olga"] {
        sidecar.decide(person, &watched.id, Verdict::Approve).await.unwrap();
    }
    sidecar.consume(&token, deletion()).await.unwrap();
    asking.join_all().await;
    let last = sidecar.read(&watched).await;
    for told in single.join_all().await {
        assert_eq!((*one_by_one(&told)).clone(), last);
        assert_eq!(told[0], watched);
    }
    for told in lists.join_all().await {
        let mut by_id: BTreeMap<&str, Vec<Approval>> = BTreeMap::new();
        for approval in &told {
            by_id.entry(&approval.id).or_default().push(approval.clone());
        }
        assert_eq!(by_id.len(), 31);
        for states in by_id.values() {
            assert_eq!(one_by_one(states).version, if states[0].id == watched.id { 5 } else { 2 });
            assert_eq!(states[0].version, 1);
        }
    }
    sidecar.has_watchers(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_begins_to_watch_while_something_changes_misses_nothing() {
    let sidecar = Arc::new(Sidecar::start().await);
    for round in 0..60 {
        let call = in_conversation(&round.to_string());
        let (asked, token) = sidecar.ask(call.clone()).await;
        let barrier = Arc::new(Barrier::new(3));
        let single = {
            let (sidecar, barrier, asked) = (Arc::clone(&sidecar), Arc::clone(&barrier), asked.clone());
            tokio::spawn(async move {
                meet(&barrier).await;
                all(sidecar.watch(&asked).await).await
            })
        };
        let list = {
            let (sidecar, barrier, id) = (Arc::clone(&sidecar), Arc::clone(&barrier), asked.id.clone());
            tokio::spawn(async move {
                meet(&barrier).await;
                let mut stream = sidecar.watch_for("olga").await;
                let mut told: Vec<Approval> = Vec::new();
                // Until the last state, or until the one after it where it was final before.
                loop {
                    match event(&mut stream).await {
                        Event::SnapshotComplete(_) => {}
                        Event::Approval(approval) if approval.id == id => told.push(approval),
                        Event::Approval(other) if other.conversation == format!("after {round}") => return told,
                        Event::Approval(_) => {}
                    }
                }
            })
        };
        meet(&barrier).await;
        sidecar.decide("olga", &asked.id, Verdict::Approve).await.unwrap();
        sidecar.consume(&token, call).await.unwrap();
        let told = single.await.unwrap();
        assert_eq!(one_by_one(&told).state(), Consumed);
        sidecar.has_watchers(1).await;
        let (after, _) = sidecar.ask(in_conversation(&format!("after {round}"))).await;
        let told = list.await.unwrap();
        if !told.is_empty() {
            assert_eq!(one_by_one(&told).state(), Consumed);
        }
        sidecar.cancel_as("runtime", &after).await.unwrap();
    }
}

fn bearer(caller: &str) -> countersign::client::Bearer {
    countersign::client::Bearer::new(&token(caller)).unwrap()
}
