//! Watching while the database restarts: a watch goes on, or ends with what says that it is to be opened again; either way
//! whoever watches learns of everything.

use crate::cluster::Cluster;
use crate::load::Load;
use crate::place::{PATIENCE, PAUSE, Place, blocking};
use crate::process::Clients;
use crate::process::calls::{AGENT, PRINCIPAL};
use crate::{CALLS, holds, run};
use countersign::proto::watch_approvals_response::Event;
use countersign::proto::{Approval, ApprovalState, WatchApprovalRequest, WatchApprovalsRequest};
use sqlx::{Row as _, query};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tonic::Code;

/// What a watcher knows, and how often its watch was opened.
#[derive(Default)]
struct Known {
    states: HashMap<String, (u64, ApprovalState)>,
    opened: usize,
    /// What ended a watch and does not say that it is to be opened again.
    ended: Vec<String>,
}

type Shared = Arc<Mutex<Known>>;

fn learns(known: &Shared, approval: &Approval) {
    let mut known = known.lock().unwrap();
    let (version, state) = (approval.version, approval.state());
    let told = known.states.entry(approval.id.clone()).or_insert((version, state));
    // What is told late is never older than what was told before it.
    if version >= told.0 {
        *told = (version, state);
    } else {
        let older = format!("version {version} of {} was told after {}", approval.id, told.0);
        known.ended.push(older);
    }
}

fn ends(known: &Shared, status: &tonic::Status) {
    if status.code() != Code::Unavailable {
        known.lock().unwrap().ended.push(format!("{status:?}"));
    }
}

/// Watches everything, for ever.
async fn watch_all(clients: Clients, known: Shared) {
    loop {
        let request = WatchApprovalsRequest { principal: PRINCIPAL.to_owned(), ..WatchApprovalsRequest::default() };
        match clients.approver.clone().watch_approvals(request).await {
            Ok(answer) => {
                known.lock().unwrap().opened += 1;
                let mut stream = answer.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(told)) => match told.event {
                            Some(Event::Approval(approval)) => learns(&known, &approval),
                            Some(Event::SnapshotComplete(_)) | None => {}
                        },
                        Ok(None) => break,
                        Err(status) => {
                            ends(&known, &status);
                            break;
                        }
                    }
                }
            }
            Err(status) => ends(&known, &status),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches one approval until it is final.
async fn watch_one(clients: Clients, id: String) -> Result<ApprovalState, String> {
    let since = Instant::now();
    loop {
        let request =
            WatchApprovalRequest { principal: PRINCIPAL.to_owned(), agent: AGENT.to_owned(), approval_id: id.clone() };
        if let Ok(answer) = clients.agent.clone().watch_approval(request).await {
            let mut stream = answer.into_inner();
            let mut last = None;
            loop {
                match stream.message().await {
                    Ok(Some(told)) => last = told.approval.map(|approval| approval.state()),
                    // The stream of one approval ends by itself when there is nothing more to tell.
                    Ok(None) => return last.ok_or_else(|| "it ended with nothing told".to_owned()),
                    Err(status) if status.code() == Code::Unavailable => break,
                    Err(status) => return Err(format!("{status:?}")),
                }
            }
        }
        if since.elapsed() > PATIENCE {
            return Err("nothing is told".to_owned());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[test]
fn who_watches_while_the_database_restarts_misses_nothing() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::of(&cluster);
        let load = Load::on(&place, random);
        load.answers(CALLS).await;
        let watchers: Vec<(Shared, _)> = (0..place.sidecars())
            .map(|seat| {
                let known = Shared::default();
                let watch = tokio::spawn(watch_all(place.callers.of(seat), Arc::clone(&known)));
                (known, watch)
            })
            .collect();
        load.answers(CALLS).await;
        // Those that are open in the middle of it are watched one by one, through either sidecar.
        let mut connection = place.connection().await;
        let open =
            query("SELECT id FROM approvals WHERE open_until IS NOT NULL").fetch_all(&mut connection).await.unwrap();
        let watched: Vec<(String, _)> = open
            .iter()
            .zip(0..)
            .map(|(row, number)| (row.get::<String, _>(0), number % place.sidecars()))
            .map(|(id, seat)| (id.clone(), tokio::spawn(watch_one(place.callers.of(seat), id))))
            .collect();
        blocking(|| cluster.stop_immediate());
        blocking(|| cluster.start_again());
        holds(&place, load, random).await;

        let mut connection = place.connection().await;
        let rows = query("SELECT id, state, update_time FROM approvals").fetch_all(&mut connection).await.unwrap();
        let is: HashMap<String, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for (known, watch) in watchers {
            let since = Instant::now();
            loop {
                let behind: Vec<String> = {
                    let known = known.lock().unwrap();
                    let told = |id: &String| known.states.get(id).map(|(_, state)| state.as_str_name());
                    let differs = |(id, state): &(&String, &String)| {
                        told(id) != Some(format!("APPROVAL_STATE_{}", state.to_uppercase()).as_str())
                    };
                    is.iter()
                        .filter(differs)
                        .map(|(id, state)| format!("{id} is {state}, told {:?}", told(id)))
                        .collect()
                };
                if behind.is_empty() {
                    break;
                }
                assert!(since.elapsed() < PATIENCE, "{behind:?}");
                tokio::time::sleep(PAUSE).await;
            }
            watch.abort();
            let known = known.lock().unwrap();
            println!("{} approvals told, {} watches", known.states.len(), known.opened);
            assert!(known.ended.is_empty(), "{:?}", known.ended);
        }
        for (id, watch) in watched {
            let told = watch.await.unwrap().unwrap_or_else(|why| panic!("{id}: {why}"));
            assert_eq!(told.as_str_name(), format!("APPROVAL_STATE_{}", is[&id].to_uppercase()), "{id}");
        }
    });
}
