//! The store in one SQLite file, for one process.
//!
//! - `open`: the lock beside the file, whose file it is, whether its times make sense
//! - `presence`: whether the file is still where it was
//! - `schema`: the migrations
//! - `writer`: the one connection that writes, many writes to a commit
//! - `checkpoints`: from the log into the file, beside the writer
//! - `writes`, `consuming`, `reads`, `listing`, `sweeps`, `waits`: the statements
//! - `seals`: the audit's log of seals; `sealed`: the sealed arguments; `transaction`: the rows as the operations of several steps need them
//! - `values`: how the driver takes values and gives rows
//! - `seeding`: for measurements alone
//!
//! WAL with `synchronous=FULL`: what was answered is on the disk. Readers see everything that was answered before they
//! began. No statement's text or file's name leaves this folder but in a [`StoreError`]'s cause, which is for the log.

mod checkpoints;
mod consuming;
mod fatigue;
mod listing;
mod open;
mod presence;
mod reads;
pub(super) mod schema;
mod sealed;
mod seals;
mod seeding;
mod sweeps;
mod transaction;
mod values;
mod waits;
mod writer;
mod writes;

pub use open::OpenError;
#[doc(hidden)]
pub use seeding::BareConnection;
pub use writer::Statistics;

use super::changes::{Changes, Feed};
use super::{
    Accepting, ApprovalQuery, AttemptKey, AuditQuery, Backlog, EarlierRequest, ExecutionPage, ExecutionQuery, Loaded,
    NewApproval, OpenedWait, Requested, ResumedWait, Saved, SchemaVersions, Store, StoreError, StoredKey, Sweep, Swept,
    Viewer, WaitRecord, Waited, WithArguments,
};
use crate::clock::Clock;
use crate::domain::approval::Approval;
use crate::domain::audit::{AuditEvent, AuditRecord};
use crate::domain::change::Change;
use crate::domain::consume::ConsumeFacts;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opening, Resuming, Wait};
use crate::storage::time::StoreTime;
use async_trait::async_trait;
use checkpoints::Log;
use consuming::Consume;
use presence::Presence;
use sqlx::error::ErrorKind;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Sqlite};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use writer::{Counters, Write, WriterHandle, WriterSettings};

/// How a SQLite store is opened.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The database. Made, readable and writable for its owner alone, if it is not there; its directory must be. Beside it
    /// stand SQLite's own `-wal` and `-shm`, and a `.lock` with the pid of who has it open.
    pub path: PathBuf,
    /// The clocks that the store's time is made of.
    pub clock: Arc<dyn Clock>,
    /// Whether to go on from the newest committed time where that is more than five minutes ahead of the wall clock.
    /// Default: no.
    pub accept_clock: bool,
    /// Connections that read, at most. Default: 4; each costs a thread and up to 4 MiB.
    pub readers: u32,
    /// How long to wait for the lock while another process has the database open. Default: 2 s.
    pub lock_timeout: Duration,
    /// How long an operation waits for a reader, or for a place in the writer's queue. Default: 2 s.
    pub acquire_timeout: Duration,
    /// How long a read may take. Default: 5 s.
    pub statement_timeout: Duration,
    /// How long an operation waits for its commit, after which it may still succeed. Default: 10 s.
    pub write_timeout: Duration,
    /// Pages of the log, of 4 KiB, after which it is moved into the database. Default: 4,096.
    pub log_pages: u32,
    /// Writes that may wait; more wait for a place. Default: 1,024.
    pub queue: usize,
}

impl SqliteOptions {
    /// The defaults for the database at `path`.
    pub fn new(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            path: path.into(),
            clock,
            accept_clock: false,
            readers: 4,
            lock_timeout: Duration::from_secs(2),
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
            log_pages: 4_096,
            queue: 1_024,
        }
    }
}

/// The store in one SQLite file. Dropping it lets go of the file once everything accepted is written; [`Store::close`]
/// waits for that.
#[derive(Debug)]
pub struct SqliteStore {
    time: Arc<StoreTime>,
    readers: SqlitePool,
    statement_timeout: Duration,
    writer: Mutex<Option<WriterHandle>>,
    writer_task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    counters: Arc<Counters>,
    feed: Feed,
    log: Log,
    schema: SchemaVersions,
}

impl SqliteStore {
    /// Opens the database, making or migrating it, and starts the writer on this runtime.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing stays open or locked.
    pub async fn open(options: SqliteOptions) -> Result<Self, OpenError> {
        let (path, lock) = open::lock(&options.path, options.lock_timeout).await?;
        let fault = |error| OpenError::of(&error, &path);
        open::look(&path).await?;
        let writer_options = open::writer_options(&path);
        let mut connection = writer_options.connect().await.map_err(fault)?;
        let schema = schema::migrate(&mut connection, schema::MIGRATIONS, options.clock.wall(), &path).await?;
        seals::let_go(&mut connection).await.map_err(fault)?;
        let newest = open::newest_time(&mut connection).await.map_err(fault)?;
        let wall = options.clock.wall();
        if newest > wall.plus(open::CLOCK_TOLERANCE) && !options.accept_clock {
            return Err(OpenError::ClockBehind { newest, wall });
        }
        let not_readable = |cause| OpenError::NotWritable { path: path.clone(), cause };
        let presence = Presence::of(&path).map_err(not_readable)?;
        let time = Arc::new(StoreTime::since(newest, options.clock));
        let counters = Arc::new(Counters::default());
        let feed = Feed::default();
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers.max(1))
            .acquire_timeout(options.acquire_timeout)
            // A connection to a file neither ages nor goes away.
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(open::reader_options(&path));
        let log = Log::of(options.log_pages);
        let (writer, writer_task) = writer::spawn(WriterSettings {
            options: writer_options,
            connection,
            time: Arc::clone(&time),
            counters: Arc::clone(&counters),
            feed: feed.clone(),
            queue: options.queue.max(1),
            acquire_timeout: options.acquire_timeout,
            write_timeout: options.write_timeout,
            presence,
            log: log.clone(),
            guard: lock,
        });
        Ok(Self {
            time,
            readers,
            statement_timeout: options.statement_timeout,
            writer: Mutex::new(Some(writer)),
            writer_task: tokio::sync::Mutex::new(Some(writer_task)),
            counters,
            feed,
            log,
            schema,
        })
    }

    /// The schema's version before it was opened, and since.
    pub fn schema(&self) -> SchemaVersions {
        self.schema
    }

    /// How much was written since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.counters.read()
    }

    async fn write<W: Write>(&self, write: W) -> Result<W::Answer, StoreError> {
        self.writer()?.write(write).await
    }

    fn writer(&self) -> Result<WriterHandle, StoreError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.clone().ok_or_else(|| StoreError::Unavailable { cause: "the store is closed".to_owned() })
    }

    async fn reader(&self) -> Result<PoolConnection<Sqlite>, StoreError> {
        Ok(self.readers.acquire().await?)
    }

    async fn within<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> ReadOutcome<T> {
        tokio::time::timeout(self.statement_timeout, read).await
    }
}

/// What a read came to, within its time.
type ReadOutcome<T> = Result<Result<T, StoreError>, Elapsed>;

/// Gives a reader back. One that is still busy is closed as soon as it can be, and its place is free for another.
fn finish<T>(mut reader: PoolConnection<Sqlite>, outcome: ReadOutcome<T>) -> Result<T, StoreError> {
    outcome.unwrap_or_else(|_| {
        reader.close_on_drop();
        Err(StoreError::Unavailable { cause: "a read took longer than it may".to_owned() })
    })
}

/// SQLite's primary result codes of a file that is damaged, and of one that is no database (`SQLITE_CORRUPT`,
/// `SQLITE_NOTADB`). The low byte of an extended code is the primary one.
const DAMAGED: [i64; 2] = [11, 26];

/// Errors of the driver are the store's absence, which may pass; but a row that a constraint refuses and a file that is
/// damaged do not get better by trying again. Rows that do not fit are found by `rows` and told apart.
impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<i64>().ok());
        let refused = error.as_database_error().is_some_and(|error| !matches!(error.kind(), ErrorKind::Other));
        if refused || code.is_some_and(|code| DAMAGED.contains(&(code & 0xff))) {
            return Self::Inconsistent { cause: error.to_string() };
        }
        Self::Unavailable { cause: error.to_string() }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn time(&self) -> Result<Timestamp, StoreError> {
        // Who can read and not write can let nothing through, so it is the writer that has to answer; where its last
        // commit failed, with a commit that changes something.
        self.write(writes::Touch { for_real: self.counters.is_failing() }).await?;
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::touch(&mut reader)).await;
        finish(reader, outcome)?;
        Ok(self.time.now())
    }

    fn estimated_time(&self) -> Timestamp {
        self.time.now()
    }

    async fn request(&self, new: NewApproval) -> Result<Loaded<Requested>, StoreError> {
        let (row, now) = self.write(writes::Request(new)).await?;
        Ok(Loaded { row, now })
    }

    async fn earlier_request(
        &self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Loaded<Option<EarlierRequest>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                reads::earlier_request(&mut transaction, caller, principal, agent, id).await
            })
            .await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn approval(&self, id: ApprovalId) -> Result<Loaded<Option<Approval>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::approval(&mut reader, id)).await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn approval_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<Approval>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::approval_seen_by(&mut reader, id, viewer)).await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn approvals_of(&self, ids: &[ApprovalId]) -> Result<Loaded<Vec<Approval>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::approvals_of(&mut reader, ids)).await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn arguments_seen_by(
        &self,
        id: ApprovalId,
        viewer: Viewer<'_>,
    ) -> Result<Loaded<Option<WithArguments>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                sealed::seen_by(&mut transaction, id, viewer).await
            })
            .await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    fn changes(&self) -> Changes {
        self.feed.listen()
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Loaded<Vec<Approval>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                reads::approvals(&mut transaction, &query, &self.time).await
            })
            .await;
        finish(reader, outcome)
    }

    async fn save_approval(&self, change: Change<Approval>, expected: u64) -> Result<Saved, StoreError> {
        self.write(writes::SaveApproval { change, expected }).await
    }

    async fn consume(&self, start: Start, accepting: Accepting) -> Result<Option<Execution>, StoreError> {
        // Without an approval there is nothing to use up, and nothing may run.
        let Some(approval) = start.approval else { return Ok(None) };
        self.writer()?.consume(Consume { start, approval, accepting }).await
    }

    async fn start(&self, start: Start) -> Result<Option<Execution>, StoreError> {
        // An approval is used up by `consume` alone.
        if start.approval.is_some() {
            return Ok(None);
        }
        self.write(writes::StartExecution(start)).await
    }

    async fn consume_facts(
        &self,
        approval: Option<ApprovalId>,
        attempt: &AttemptKey,
        retry_of: Option<ExecutionId>,
    ) -> Result<Loaded<ConsumeFacts>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                reads::consume_facts(&mut transaction, approval, attempt, retry_of).await
            })
            .await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn execution(&self, id: ExecutionId) -> Result<Loaded<Option<Execution>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::execution(&mut reader, id)).await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn executions(&self, query: ExecutionQuery) -> Result<Loaded<ExecutionPage>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                listing::executions(&mut transaction, &query, &self.time).await
            })
            .await;
        finish(reader, outcome)
    }

    async fn save_execution(&self, change: Change<Execution>, expected: u64) -> Result<Saved, StoreError> {
        self.write(writes::SaveExecution { change, expected }).await
    }

    async fn open_wait(&self, opening: Opening) -> Result<Loaded<Waited<OpenedWait>>, StoreError> {
        self.write(waits::OpenWait(opening)).await
    }

    async fn wait_alone(&self, id: WaitId) -> Result<Loaded<Option<Wait>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(waits::by_id(&mut reader, id)).await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn wait(&self, id: WaitId) -> Result<Loaded<Option<WaitRecord>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                waits::wait(&mut transaction, id, &self.time).await
            })
            .await;
        finish(reader, outcome)
    }

    async fn resume_wait(
        &self,
        id: WaitId,
        resuming: Resuming,
    ) -> Result<Loaded<Option<Waited<ResumedWait>>>, StoreError> {
        self.write(waits::ResumeWait { id, resuming }).await
    }

    async fn close_wait(
        &self,
        id: WaitId,
        caller: &Identifier,
        reason: Option<&str>,
    ) -> Result<Loaded<Option<Waited<WaitRecord>>>, StoreError> {
        self.write(waits::CloseWait { id, caller: caller.clone(), reason: reason.map(str::to_owned) }).await
    }

    async fn record(&self, events: Vec<AuditEvent>) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        self.write(writes::Record(events)).await
    }

    async fn audit_records(&self, query: AuditQuery) -> Result<Loaded<Vec<AuditRecord>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::audit_records(&mut reader, &query)).await;
        let row = finish(reader, outcome)?;
        Ok(Loaded { row, now: self.time.now() })
    }

    async fn sweep(&self, step: Sweep, limit: u32) -> Result<Swept, StoreError> {
        let swept = self
            .writer()?
            .write_behind(sweeps::SweepStep { step, limit, counters: Arc::clone(&self.counters) })
            .await?;
        if swept.rows > 0 && matches!(step, Sweep::EraseApprovals { .. } | Sweep::DeleteApprovals { .. }) {
            self.log.erased();
        }
        Ok(swept)
    }

    async fn backlog(&self) -> Result<Loaded<Backlog>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::backlog(&mut reader, &self.time)).await;
        finish(reader, outcome)
    }

    async fn note_approver(&self) -> Result<(), StoreError> {
        self.write(fatigue::NoteApprover).await
    }

    async fn keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(reads::keys(&mut reader)).await;
        finish(reader, outcome)
    }

    async fn keys_in_use(&self) -> Result<Vec<String>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(sealed::keys_in_use(&mut reader)).await;
        finish(reader, outcome)
    }

    async fn add_key(&self, key: StoredKey) -> Result<(), StoreError> {
        self.write(writes::AddKey(key)).await
    }

    async fn close(&self) {
        // The last connection to close moves the log into the file, which only the writer can.
        self.readers.close().await;
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(task) = self.writer_task.lock().await.take()
            && task.await.is_err()
        {
            tracing::error!("the writer did not end by itself");
        }
    }
}

#[cfg(test)]
mod tests;
