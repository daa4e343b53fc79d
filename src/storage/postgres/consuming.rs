//! Passing the gate with an approval. Calls that wait while a statement is under way go into the next one together: what a
//! round trip and a commit cost is paid once for all of them. One statement at a time, since two would wait for each other
//! on the same commits and pages.

use super::table::{Fault, Operation, Table};
use super::time::TableTime;
use super::transaction;
use super::values::Batch;
use super::writes::{call, calling};
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, AttemptId};
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, Bind as _};
use crate::storage::{Accepting, StoreError};
use async_trait::async_trait;
use sqlx::{PgConnection, Row as _};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Calls in one statement at most.
const MOST: usize = 64;
/// Calls that may wait; more wait for a place.
const QUEUE: usize = 1_024;
/// How long a call waits for its statement to begin.
const PATIENCE: Duration = Duration::from_secs(15);
/// What is said of one that waited longer.
const TOO_LATE: &str = "the database did not take a call in time";
/// The values of a call, as [`Batch`] tells their kinds.
const KINDS: &str = "ttttttttittttttittttttittt";
static CONSUME: LazyLock<Arc<str>> =
    LazyLock::new(|| call("consume_approvals", 1 + KINDS.len(), "call, version, store_now"));

/// See `Store::consume`.
#[derive(Clone, Debug)]
pub(super) struct Consume {
    pub(super) start: Start,
    pub(super) approval: ApprovalId,
    pub(super) accepting: Accepting,
}

type Answer = Result<Option<Execution>, StoreError>;

/// A call, and where its answer goes.
#[derive(Debug)]
struct Waiting {
    call: Arc<Consume>,
    since: Instant,
    answer: oneshot::Sender<Answer>,
}

/// Where calls wait for their statement.
#[derive(Debug)]
pub(super) struct Consumer {
    own: Table,
    queue: Mutex<Option<mpsc::Sender<Waiting>>>,
    worker: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Consumer {
    /// Starts what runs the statements, on this runtime.
    ///
    /// `own` has a connection for them alone, so that nobody who waits for a lock elsewhere keeps them from it.
    pub(super) fn start(table: Table, own: Table) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let worker = tokio::spawn(work(table, own.clone(), waiting));
        Self { own, queue: Mutex::new(Some(queue)), worker: tokio::sync::Mutex::new(Some(worker)) }
    }

    /// Passes the gate, or does not. Once it is taken in, a call runs to its end though nobody waits for it.
    pub(super) async fn consume(&self, call: Consume) -> Answer {
        let closed = || StoreError::Unavailable { cause: "the store is closed".to_owned() };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { call: Arc::new(call), since: Instant::now(), answer };
        match queue.send_timeout(waiting, PATIENCE).await {
            Ok(()) => {}
            Err(SendTimeoutError::Timeout(_)) => return Err(StoreError::Unavailable { cause: TOO_LATE.to_owned() }),
            Err(SendTimeoutError::Closed(_)) => return Err(closed()),
        }
        answered.await.map_err(|_| closed())?
    }

    /// Takes nothing more in, and waits for what was.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(worker) = self.worker.lock().await.take() {
            let _ = worker.await;
        }
        self.own.close_pool().await;
    }
}

async fn work(table: Table, own: Table, mut queue: mpsc::Receiver<Waiting>) {
    let mut waiting: Vec<Waiting> = Vec::with_capacity(MOST);
    let mut later: Vec<Waiting> = Vec::new();
    loop {
        waiting.append(&mut later);
        if waiting.is_empty() && queue.recv_many(&mut waiting, MOST).await == 0 {
            return;
        }
        while waiting.len() < MOST
            && let Ok(next) = queue.try_recv()
        {
            waiting.push(next);
        }
        // Nothing has begun for who has gone away; and where the database stands still, those who have waited long are not
        // made to wait for everybody before them.
        waiting.retain(|waiting| !waiting.answer.is_closed());
        let (late, mut together) =
            std::mem::take(&mut waiting).into_iter().partition(|waiting| waiting.since.elapsed() > PATIENCE);
        refuse(late, TOO_LATE);
        later = set_apart(&mut together);
        if !together.is_empty() {
            answer(&table, &own, together).await;
        }
    }
}

/// Takes out those that cannot go into one statement with what is before them: an attempt starts once, which only a statement
/// that sees the first of two calls can tell. Of two attempts at one approval a statement takes one.
fn set_apart(waiting: &mut Vec<Waiting>) -> Vec<Waiting> {
    let mut attempts: BTreeSet<AttemptId> = BTreeSet::new();
    // Also an attempt of somebody else's: that two make up the same id is rarer than a statement is dear.
    let (together, later) =
        std::mem::take(waiting).into_iter().partition(|waiting| attempts.insert(waiting.call.start.attempt));
    *waiting = together;
    later
}

/// Runs the calls together and answers each; where they cannot be run together, each runs by itself, so that none fails for
/// its neighbours.
async fn answer(table: &Table, own: &Table, waiting: Vec<Waiting>) {
    let calls: Vec<Arc<Consume>> = waiting.iter().map(|waiting| Arc::clone(&waiting.call)).collect();
    let alone = calls.len() == 1;
    match own.run(ConsumeTogether(calls)).await {
        Ok(outcomes) => {
            for (waiting, outcome) in waiting.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Answered(execution) => {
                        drop(waiting.answer.send(Ok(execution.map(|execution| *execution))));
                    }
                    Outcome::Apart => apart(table, waiting),
                }
            }
        }
        Err(StoreError::Unavailable { cause }) => refuse(waiting, &cause),
        Err(error) if alone => {
            // One at most.
            if let Some(only) = waiting.into_iter().next() {
                drop(only.answer.send(Err(error)));
            }
        }
        // Whose fault it is shows where each is by itself.
        Err(_) => waiting.into_iter().for_each(|waiting| apart(table, waiting)),
    }
}

fn refuse(waiting: Vec<Waiting>, cause: &str) {
    for waiting in waiting {
        drop(waiting.answer.send(Err(StoreError::Unavailable { cause: cause.to_owned() })));
    }
}

/// What somebody else is at, and what retries, takes several steps: nobody waits for them.
fn apart(table: &Table, waiting: Waiting) {
    let table = table.clone();
    tokio::spawn(async move {
        let done = table.run(ConsumeApart(waiting.call)).await;
        drop(waiting.answer.send(done));
    });
}

/// What became of one of the calls.
pub(super) enum Outcome {
    /// This.
    Answered(Option<Box<Execution>>),
    /// Its approval retries an execution, or somebody else is at it: nothing was done.
    Apart,
}

/// These calls, in one statement.
pub(super) struct ConsumeTogether(pub(super) Vec<Arc<Consume>>);

#[async_trait]
impl Operation for ConsumeTogether {
    type Answer = Vec<Outcome>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let mut batch = Batch::of(KINDS);
        for call in &self.0 {
            let (digest, version) = match call.accepting {
                Accepting::AnyRequirement => (None, None),
                Accepting::Digest(digest) => (Some(digest.to_string()), None),
                Accepting::Version(version) => (None, Some(rows::integer(version))),
            };
            let start = &call.start;
            rows::bind_subject(batch.row(), &start.subject)
                .bind(rows::maybe_text(start.subject.connection.as_ref()))
                .bind(rows::list(&start.subject.labels))
                .bind(start.id.to_string())
                .bind(rows::micros(start.report_within))
                .bind(call.approval.to_string())
                .bind(rows::text(&start.caller))
                .bind(start.attempt.to_string())
                .bind(start.new_idempotency_key.clone())
                .bind(start.policy_revision.clone())
                .bind(digest)
                .bind(version)
                .bind(start.decision)
                .bind(start.reason.as_str())
                .bind(rows::record_id(time.estimated()).to_string());
        }
        let mut outcomes: Vec<Outcome> = self.0.iter().map(|_| Outcome::Answered(None)).collect();
        for row in batch.bind_to(calling(&CONSUME, time)).fetch_all(connection).await? {
            let (place, version, now): (i64, Option<i64>, i64) =
                (row.try_get("call")?, row.try_get("version")?, row.try_get("store_now")?);
            let now = Timestamp::from_micros(now);
            time.told(now);
            let place = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
            let found = place.and_then(|place| Some((outcomes.get_mut(place)?, self.0.get(place)?)));
            let Some((outcome, call)) = found else { continue };
            *outcome = match version.and_then(|version| u64::try_from(version).ok()) {
                None => Outcome::Apart,
                Some(version) => {
                    let started = call.start.clone().at(None, now);
                    touched.approval(call.approval, version);
                    started.events.iter().for_each(|event| touched.recorded(event.kind, 1));
                    Outcome::Answered(Some(Box::new(started.next)))
                }
            };
        }
        Ok(outcomes)
    }

    fn writes(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }
}

/// A call that is looked at by itself.
struct ConsumeApart(Arc<Consume>);

#[async_trait]
impl Operation for ConsumeApart {
    type Answer = Option<Execution>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let Consume { start, approval, accepting } = &*self.0;
        transaction::consume_slowly(connection, time, touched, start, *approval, *accepting).await
    }
}
