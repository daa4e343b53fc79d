//! The one writer: all waiting writes go into one commit, and each is answered after it.
//!
//! A write that was accepted runs to its end, whether or not anybody still waits for the answer. Where one of a batch
//! fails, the batch is undone and each write runs alone, so that none fails for its neighbours. Where a commit fails, it
//! is not known what is on the disk: everyone in it is told so, and the connection is made anew.

use super::checkpoints::{self, Log};
use super::consuming::{Consume, consume_all};
use super::presence::Presence;
use crate::domain::audit::AuditKind;
use crate::domain::execution::Execution;
use crate::domain::time::Timestamp;
use crate::storage::StoreError;
use crate::storage::changes::{Feed, Touched};
use crate::storage::time::StoreTime;
use async_trait::async_trait;
use futures_util::FutureExt as _;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long background work waits for another write to share its commit with, where there have been any: beside another
/// it costs that one little, and alone it would make the next one wait.
const COMPANY: Duration = Duration::from_millis(2);

/// Writes in one commit at most. More would gain little and make the first wait for the last.
const BATCH: usize = 256;

/// One whole operation. It may run again after what it did was undone, and it is given the store's time each time.
#[async_trait]
pub(super) trait Write: Send + Sync + 'static {
    /// What it answers.
    type Answer: Send + 'static;

    /// Does it, within a transaction. An error undoes everything that it did; an answer does not. Every approval that it
    /// writes it notes in `touched`.
    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError>;
}

/// How much was written since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Writes that were committed.
    pub writes: u64,
    /// Commits that they shared.
    pub commits: u64,
    /// Batches that were undone because one of their writes failed.
    pub undone: u64,
    /// Times that the writer's connection was given up.
    pub reconnects: u64,
    /// Audit records that were committed, by kind.
    pub records: Vec<(AuditKind, u64)>,
}

/// The same, counting.
#[derive(Debug)]
pub(super) struct Counters {
    writes: AtomicU64,
    commits: AtomicU64,
    undone: AtomicU64,
    reconnects: AtomicU64,
    records: [AtomicU64; AuditKind::ALL.len()],
    failing: AtomicBool,
    others_us: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            writes: AtomicU64::default(),
            commits: AtomicU64::default(),
            undone: AtomicU64::default(),
            reconnects: AtomicU64::default(),
            records: std::array::from_fn(|_| AtomicU64::default()),
            failing: AtomicBool::default(),
            others_us: AtomicU64::default(),
        }
    }
}

impl Counters {
    /// Whether the last transaction did not begin, or was not committed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// For background work: how long the writer has worked for others in the transaction that it shares with them.
    pub(super) fn others(&self) -> Duration {
        Duration::from_micros(self.others_us.load(Ordering::Relaxed))
    }

    pub(super) fn read(&self) -> Statistics {
        Statistics {
            writes: self.writes.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            undone: self.undone.load(Ordering::Relaxed),
            reconnects: self.reconnects.load(Ordering::Relaxed),
            records: AuditKind::ALL
                .into_iter()
                .zip(self.records.iter().map(|count| count.load(Ordering::Relaxed)))
                .collect(),
        }
    }

    /// A transaction of so many writes was committed.
    fn committed(&self, writes: u64, touched: &Touched) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
        for (kind, number) in touched.records() {
            let place = AuditKind::ALL.iter().position(|known| known == kind);
            if let Some(count) = place.and_then(|place| self.records.get(place)) {
                count.fetch_add(*number, Ordering::Relaxed);
            }
        }
    }
}

/// The way to the writer.
#[derive(Clone, Debug)]
pub(super) struct WriterHandle {
    queue: mpsc::Sender<Queued>,
    background: mpsc::Sender<Queued>,
    acquire_timeout: Duration,
    write_timeout: Duration,
}

impl WriterHandle {
    /// Hands over a write and waits for its commit.
    pub(super) async fn write<W: Write>(&self, write: W) -> Result<W::Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.wait(&self.queue, Queued::Other(Box::new(Pending { write, answer: None, reply })), answer).await
    }

    /// Hands over a write that nobody is waiting for: others come first, and it shares their commits where it can.
    pub(super) async fn write_behind<W: Write>(&self, write: W) -> Result<W::Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.wait(&self.background, Queued::Behind(Box::new(Pending { write, answer: None, reply })), answer).await
    }

    /// Hands over a consumption, which is run together with all others that wait, and waits for its commit.
    pub(super) async fn consume(&self, write: Consume) -> Result<Option<Execution>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.wait(&self.queue, Queued::Consume(Box::new(Pending { write, answer: None, reply })), answer).await
    }

    async fn wait<A>(
        &self,
        queue: &mpsc::Sender<Queued>,
        waiting: Queued,
        answer: oneshot::Receiver<Result<A, StoreError>>,
    ) -> Result<A, StoreError> {
        match tokio::time::timeout(self.acquire_timeout, queue.reserve()).await {
            Ok(Ok(place)) => place.send(waiting),
            Ok(Err(_)) => return Err(unavailable("the writer has ended")),
            Err(_) => return Err(unavailable("too many writes are waiting")),
        }
        match tokio::time::timeout(self.write_timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unavailable("the writer ended before its commit")),
            Err(_) => Err(unavailable("the commit takes too long; it may still succeed")),
        }
    }
}

/// What the writer needs; `guard` lives exactly as long as something may still be written.
pub(super) struct WriterSettings<G> {
    pub(super) options: SqliteConnectOptions,
    pub(super) connection: SqliteConnection,
    pub(super) time: Arc<StoreTime>,
    pub(super) counters: Arc<Counters>,
    pub(super) feed: Feed,
    pub(super) queue: usize,
    pub(super) acquire_timeout: Duration,
    pub(super) write_timeout: Duration,
    pub(super) presence: Presence,
    pub(super) log: Log,
    pub(super) guard: G,
}

/// Starts the writer on this runtime. It ends once every handle is gone and everything accepted is answered.
pub(super) fn spawn<G: Send + 'static>(settings: WriterSettings<G>) -> (WriterHandle, tokio::task::JoinHandle<()>) {
    let (queue, waiting) = mpsc::channel(settings.queue);
    let (background, behind) = mpsc::channel(1);
    let (acquire_timeout, write_timeout) = (settings.acquire_timeout, settings.write_timeout);
    let handle = WriterHandle { queue, background, acquire_timeout, write_timeout };
    let mut arriving = Arriving { waiting, behind, last: None };
    let WriterSettings { options, connection, time, counters, feed, presence, log, guard, .. } = settings;
    let task = tokio::spawn(async move {
        let checkpoints = checkpoints::start(options.clone(), log.clone()).await;
        let mut writer = Writer { options, connection: Some(connection), presence, time, counters, feed, log };
        loop {
            let batch = arriving.next().await;
            if batch.is_empty() {
                break;
            }
            // A panic ends one batch (whose callers are told) and not the writer.
            if AssertUnwindSafe(writer.settle(batch)).catch_unwind().await.is_err() {
                tracing::error!("a write panicked; its batch is undone");
                writer.connection = None;
                writer.counters.reconnects.fetch_add(1, Ordering::Relaxed);
                writer.feed.missed();
            }
        }
        // The last connection to close moves the log into the file, and that is the writer's.
        checkpoints.end().await;
        if let Some(connection) = writer.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the writer's connection did not close cleanly");
        }
        drop(guard);
    });
    (handle, task)
}

/// What waits for the writer. What waits together has no order of its own: nobody has been told of any of it.
enum Queued {
    /// A consumption.
    Consume(Box<Pending<Consume>>),
    /// Anything else.
    Other(Box<dyn Waiting>),
    /// What comes after all others.
    Behind(Box<dyn Waiting>),
}

/// What arrives at the writer.
struct Arriving {
    waiting: mpsc::Receiver<Queued>,
    behind: mpsc::Receiver<Queued>,
    /// When others than the background work came last.
    last: Option<Instant>,
}

impl Arriving {
    /// Everything that waits, and one piece of background work; nothing once every handle is gone.
    async fn next(&mut self) -> Vec<Queued> {
        let mut batch = Vec::new();
        let (waiting, behind) = (&mut self.waiting, &mut self.behind);
        let company = self.last.map(|last| last + COMPANY);
        let alone = async {
            if let Some(until) = company.filter(|until| *until > Instant::now()) {
                tokio::time::sleep_until(until).await;
            }
            behind.recv().await
        };
        tokio::select! {
            biased;
            count = waiting.recv_many(&mut batch, BATCH) => {
                if count > 0 {
                    self.last = Some(Instant::now());
                }
                batch.extend(self.behind.try_recv());
            }
            Some(alone) = alone => batch.push(alone),
        }
        batch
    }
}

impl Queued {
    /// Gives the kept answer, or `failure` in its place.
    fn answer(self, failure: Option<&str>) {
        match self {
            Self::Consume(waiting) => waiting.answer(failure),
            Self::Other(waiting) | Self::Behind(waiting) => waiting.answer(failure),
        }
    }
}

/// A write with whoever waits for it, its type hidden.
#[async_trait]
trait Waiting: Send {
    /// Runs it and keeps the answer; false if it failed.
    async fn run(&mut self, connection: &mut SqliteConnection, now: Timestamp, touched: &mut Touched) -> bool;

    /// Gives the kept answer, or `failure` in its place.
    fn answer(self: Box<Self>, failure: Option<&str>);
}

struct Pending<W: Write> {
    write: W,
    answer: Option<Result<W::Answer, StoreError>>,
    reply: oneshot::Sender<Result<W::Answer, StoreError>>,
}

#[async_trait]
impl<W: Write> Waiting for Pending<W> {
    async fn run(&mut self, connection: &mut SqliteConnection, now: Timestamp, touched: &mut Touched) -> bool {
        // A write that panics fails alone: what it did is undone, and its neighbours run again without it.
        let run = AssertUnwindSafe(self.write.run(connection, now, touched)).catch_unwind();
        let answer =
            run.await.unwrap_or_else(|_| Err(StoreError::Inconsistent { cause: "a write panicked".to_owned() }));
        let done = answer.is_ok();
        self.answer = Some(answer);
        done
    }

    fn answer(self: Box<Self>, failure: Option<&str>) {
        let answer = match (failure, self.answer) {
            (None, Some(answer)) => answer,
            (Some(cause), _) => Err(unavailable(cause)),
            (None, None) => Err(unavailable("the write did not run")),
        };
        // Nobody may be waiting any more; what was written stays written.
        let _ = self.reply.send(answer);
    }
}

struct Writer {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
    presence: Presence,
    time: Arc<StoreTime>,
    counters: Arc<Counters>,
    feed: Feed,
    log: Log,
}

/// How a transaction over some writes ended.
enum Ended {
    /// With its commit.
    Committed,
    /// One of them failed, and everything was undone.
    Undone,
    /// It did not begin, or its commit failed: then nobody can say what is on the disk.
    Broken(String),
}

impl Writer {
    /// Runs a batch and answers everyone in it.
    async fn settle(&mut self, mut batch: Vec<Queued>) {
        let ended = self.together(&mut batch).await;
        if !matches!(ended, Ended::Undone) || batch.len() == 1 {
            return answer(batch, &ended);
        }
        self.counters.undone.fetch_add(1, Ordering::Relaxed);
        for waiting in batch {
            let mut alone = vec![waiting];
            let ended = self.together(&mut alone).await;
            answer(alone, &ended);
        }
    }

    /// Runs these writes in one transaction. The connection is kept only where it is known to be in no transaction.
    async fn together(&mut self, writes: &mut [Queued]) -> Ended {
        // Nor is a new file made in its place: nothing is acknowledged that nobody would find again.
        if !self.presence.is_there() {
            self.counters.failing.store(true, Ordering::Relaxed);
            return Ended::Broken("the database was removed or replaced while it was open: restart".to_owned());
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.options.connect().await {
                Ok(connection) => connection,
                Err(error) => {
                    self.counters.failing.store(true, Ordering::Relaxed);
                    return Ended::Broken(error.to_string());
                }
            },
        };
        self.log.finish(&mut connection).await;
        let (ended, clean) = self.transact(&mut connection, writes).await;
        match ended {
            Ended::Committed => self.counters.failing.store(false, Ordering::Relaxed),
            // Whether the next one would fail as well is found out by who asks for the time.
            Ended::Undone | Ended::Broken(_) => self.counters.failing.store(true, Ordering::Relaxed),
        }
        if clean {
            self.connection = Some(connection);
        } else {
            self.counters.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        ended
    }

    /// How it ended, and whether the connection is out of the transaction.
    async fn transact(&self, connection: &mut SqliteConnection, writes: &mut [Queued]) -> (Ended, bool) {
        // A transaction that begins as a reader and then writes fails at once where another one holds the lock.
        let mut transaction = match connection.begin_with("BEGIN IMMEDIATE").await {
            Ok(transaction) => transaction,
            Err(error) => return (Ended::Broken(error.to_string()), false),
        };
        let mut touched = Touched::default();
        let begun = Instant::now();
        let mut done = consume(&mut transaction, writes, self.time.now(), &mut touched).await;
        for write in writes.iter_mut() {
            let write = match write {
                Queued::Consume(_) => continue,
                Queued::Other(write) => write,
                Queued::Behind(write) => {
                    self.counters.others_us.store(micros(begun.elapsed()), Ordering::Relaxed);
                    write
                }
            };
            done = done && write.run(&mut transaction, self.time.now(), &mut touched).await;
        }
        if !done {
            // SQLite may have undone it by itself; without a commit nothing of it stays in any case.
            return (Ended::Undone, transaction.rollback().await.is_ok());
        }
        let count = u64::try_from(writes.len()).unwrap_or(u64::MAX);
        if let Err(error) = transaction.commit().await {
            tracing::error!(%error, "a commit failed");
            // It may be on the disk all the same.
            self.feed.missed();
            return (Ended::Broken(error.to_string()), false);
        }
        self.log.written();
        self.feed.committed(&touched);
        self.counters.committed(count, &touched);
        (Ended::Committed, true)
    }
}

/// Runs every consumption among these writes, and keeps the answers; false if one failed, and so all.
async fn consume(
    connection: &mut SqliteConnection,
    writes: &mut [Queued],
    now: Timestamp,
    touched: &mut Touched,
) -> bool {
    let mut waiting: Vec<&mut Pending<Consume>> = writes
        .iter_mut()
        .filter_map(|write| match write {
            Queued::Consume(waiting) => Some(&mut **waiting),
            Queued::Other(_) | Queued::Behind(_) => None,
        })
        .collect();
    if waiting.is_empty() {
        return true;
    }
    let calls: Vec<&Consume> = waiting.iter().map(|waiting| &waiting.write).collect();
    let run = AssertUnwindSafe(consume_all(connection, &calls, now, touched)).catch_unwind();
    match run.await.unwrap_or_else(|_| Err(StoreError::Inconsistent { cause: "a write panicked".to_owned() })) {
        Ok(answers) => {
            for (waiting, answer) in waiting.into_iter().zip(answers) {
                waiting.answer = Some(Ok(answer));
            }
            true
        }
        Err(error) => {
            // Where it ran alone, this is its answer; else each is yet to be run alone.
            if let [waiting] = waiting.as_mut_slice() {
                waiting.answer = Some(Err(error));
            }
            false
        }
    }
}

fn answer(writes: Vec<Queued>, ended: &Ended) {
    let failure = match ended {
        Ended::Committed | Ended::Undone => None,
        Ended::Broken(cause) => Some(cause.as_str()),
    };
    for write in writes {
        write.answer(failure);
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn unavailable(cause: &str) -> StoreError {
    StoreError::Unavailable { cause: cause.to_owned() }
}
