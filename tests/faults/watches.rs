//! Watching while the database restarts: a watch goes on, or ends with what says that it is to be opened again; either way
//! whoever watches learns of everything.

use crate::check::state;
use crate::cluster::Cluster;
use crate::history::{Call, Question};
use crate::load::Load;
use crate::place::{Callers, PATIENCE, PAUSE, Place, Way, blocking};
use crate::process::Clients;
use crate::process::calls::{AGENT, PRINCIPAL};
use crate::{CALLS, holds, run};
use countersign::proto::watch_approvals_response::Event;
use countersign::proto::{
    Approval, ApprovalState, Verdict, WatchApprovalRequest, WatchApprovalsRequest, WatchApprovalsResponse,
};
use sqlx::{Row as _, query};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::task::JoinHandle;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;
use uuid::Uuid;

/// Of whatever is in one of these the snapshot tells.
const EVERY: [ApprovalState; 7] = [
    ApprovalState::Pending,
    ApprovalState::Approved,
    ApprovalState::Denied,
    ApprovalState::Cancelled,
    ApprovalState::Revoked,
    ApprovalState::Expired,
    ApprovalState::Consumed,
];

/// What a watcher knows, and how often its watch was opened.
#[derive(Default)]
struct Known {
    states: HashMap<String, ApprovalState>,
    opened: usize,
    /// What was told and must not be.
    broken: Vec<String>,
}

type Shared = Arc<Mutex<Known>>;

fn learns(known: &Shared, stream: &mut HashMap<String, u64>, approval: &Approval) {
    let mut known = known.lock().unwrap();
    let version = approval.version;
    // Within one stream none is left out and none is told twice.
    if let Some(before) = stream.insert(approval.id.clone(), version)
        && version != before + 1
    {
        known.broken.push(format!("version {version} of {} was told after {before}", approval.id));
    }
    known.states.insert(approval.id.clone(), approval.state());
}

/// A sidecar says that a watch is to be opened again; one that is killed says nothing.
fn ends(known: &Shared, status: &Status) {
    if status.code() != Code::Unavailable && status.get_details_error_info().is_some() {
        known.lock().unwrap().broken.push(format!("{status:?}"));
    }
}

/// Whoever watches everything through one sidecar each, and opens a watch that ended again.
pub struct Watchers(Vec<(Shared, JoinHandle<()>)>);

impl Watchers {
    pub fn on(place: &Place) -> Self {
        let watch = |seat| {
            let (known, callers) = (Shared::default(), Arc::clone(&place.callers));
            (Arc::clone(&known), tokio::spawn(watch_all(callers, seat, known)))
        };
        Self((0..place.sidecars()).map(watch).collect())
    }

    /// Waits until each has been told of so many.
    async fn know(&self, approvals: usize) {
        let since = Instant::now();
        for (known, _) in &self.0 {
            while known.lock().unwrap().states.len() < approvals {
                assert!(since.elapsed() < PATIENCE, "the snapshot is not told");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits until each knows what the tables say, once nothing changes any more.
    pub async fn hold(self, place: &Place) {
        let mut connection = place.connection().await;
        let rows = query("SELECT id, state FROM approvals").fetch_all(&mut connection).await.unwrap();
        let is: HashMap<String, ApprovalState> = rows.iter().map(|row| (row.get(0), state(row.get(1)))).collect();
        for (known, watch) in self.0 {
            let since = Instant::now();
            loop {
                let behind: Vec<String> = {
                    let known = known.lock().unwrap();
                    let differs = |(id, state): &(&String, &ApprovalState)| known.states.get(*id) != Some(*state);
                    let show = |(id, state): (&String, &ApprovalState)| {
                        format!("{id} is {state:?}, and {:?} was told", known.states.get(id))
                    };
                    is.iter().filter(differs).map(show).collect()
                };
                if behind.is_empty() {
                    break;
                }
                assert!(since.elapsed() < PATIENCE, "{behind:?}\n{}", place.logs());
                tokio::time::sleep(PAUSE).await;
            }
            watch.abort();
            let known = known.lock().unwrap();
            println!("{} approvals told, {} watches", known.states.len(), known.opened);
            assert!(known.broken.is_empty(), "{:?}", known.broken);
        }
    }
}

/// Watches everything through this sidecar, for ever.
async fn watch_all(callers: Arc<Callers>, seat: usize, known: Shared) {
    loop {
        let states = EVERY.map(i32::from).to_vec();
        let request = WatchApprovalsRequest { principal: PRINCIPAL.to_owned(), states };
        match callers.of(seat).approver.clone().watch_approvals(request).await {
            Ok(answer) => {
                known.lock().unwrap().opened += 1;
                if let Err(status) = hear(answer.into_inner(), &known).await {
                    ends(&known, &status);
                }
            }
            Err(status) => ends(&known, &status),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn hear(mut stream: Streaming<WatchApprovalsResponse>, known: &Shared) -> Result<(), Status> {
    let mut versions = HashMap::new();
    while let Some(told) = stream.message().await? {
        if let Some(Event::Approval(approval)) = told.event {
            learns(known, &mut versions, &approval);
        }
    }
    Ok(())
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
        let watchers = Watchers::on(&place);
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

        watchers.hold(&place).await;
        let mut connection = place.connection().await;
        for (id, watch) in watched {
            let told = watch.await.unwrap().unwrap_or_else(|why| panic!("{id}: {why}"));
            let asked = query("SELECT state FROM approvals WHERE id = $1").bind(&id).fetch_one(&mut connection);
            assert_eq!(told, state(asked.await.unwrap().get(0)), "{id}");
        }
    });
}

#[test]
fn changes_that_are_found_as_one_are_told_one_by_one() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::empty(cluster.url("postgres"));
        // Nobody is told; who watches looks now and then, and finds what has happened since.
        let way = || Way { poll_every: "3s", notify: false, ..Way::to(cluster.url("postgres")) };
        place.start(&[way(), way()]);
        let mut questions: Vec<Question> = (0..6).map(|_| place.history.question(random, false, false)).collect();
        let tell = async |question: &mut Question, call: Call| {
            let told = place.callers.call(&place.history, question, call, 0).await;
            question.learns(told.done().unwrap_or_else(|| panic!("{told:?}")));
        };
        for question in &mut questions {
            tell(question, Call::Ask).await;
        }
        // So long ago that no look finds it any more: it is in the snapshot alone.
        let aged = query("UPDATE approvals SET update_time = update_time - 60000000");
        aged.execute(&mut place.connection().await).await.unwrap();
        let watchers = Watchers::on(&place);
        watchers.know(questions.len()).await;
        for question in &mut questions {
            tell(question, Call::Decide(Verdict::Approve)).await;
            tell(question, Call::Consume(Uuid::new_v4().to_string())).await;
        }
        watchers.hold(&place).await;
        place.check(random.seed()).await;
    });
}
