//! Running an operation on a connection of the pool: within its time, again where that is safe and helps, and telling what
//! it changed once it is committed.

use super::counters::{Counters, Statistics};
use super::pool::{NoConnection, Pool};
use super::telling::Teller;
use super::time::TableTime;
use crate::storage::StoreError;
use crate::storage::changes::{Changes, Touched};
use async_trait::async_trait;
use sqlx::PgConnection;
use std::sync::Arc;
use std::time::Duration;

pub(super) use super::fault::Fault;

/// An operation that others are in the way of runs so often in all.
const TRIES: u32 = 4;
/// Before it runs again it waits for a random part of this, times how often it has run.
const PAUSE: Duration = Duration::from_millis(20);
/// What a database that does answer needs beyond its own time-out of a statement.
const GRACE: Duration = Duration::from_secs(1);

/// One whole operation. It may run again after what it did was undone, or where it is not known whether it was done: done
/// twice it is as done once, but for what it answers and for audit records of refusals.
#[async_trait]
pub(super) trait Operation: Send + Sync {
    /// What it answers.
    type Answer: Send;

    /// Does it. Whatever is more than one statement begins a transaction of its own. An error leaves nothing of it. Every
    /// approval that it writes it notes in `touched`.
    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault>;

    /// How many of the store's operations it is.
    fn writes(&self) -> u64 {
        1
    }
}

/// The database, to whoever runs operations on it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pool: Pool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    time: Arc<TableTime>,
    teller: Teller,
    counters: Counters,
    statement_timeout: Duration,
}

impl Table {
    /// The database behind this pool.
    pub(super) fn new(pool: Pool, time: Arc<TableTime>, teller: Teller, statement_timeout: Duration) -> Self {
        let counters = Counters::default();
        Self { pool, shared: Arc::new(Shared { time, teller, counters, statement_timeout }) }
    }

    /// The same over other connections.
    pub(super) fn over(&self, pool: Pool) -> Self {
        Self { pool, shared: Arc::clone(&self.shared) }
    }

    /// Ends these connections, once what is in flight on them has come to its end.
    pub(super) async fn close_pool(&self) {
        self.pool.close(self.shared.statement_timeout + GRACE).await;
    }

    /// The store's time.
    pub(super) fn time(&self) -> &TableTime {
        &self.shared.time
    }

    /// Hears which approvals change, here and elsewhere.
    pub(super) fn changes(&self) -> Changes {
        self.shared.teller.changes()
    }

    /// How much was written.
    pub(super) fn statistics(&self) -> Statistics {
        self.shared.counters.read(self.pool.given_up())
    }

    /// Runs an operation that writes, to its end, whether or not anybody waits for the answer.
    pub(super) async fn run<O: Operation + 'static>(&self, operation: O) -> Result<O::Answer, StoreError>
    where
        O::Answer: 'static,
    {
        let table = self.clone();
        let done = tokio::spawn(async move {
            let answer = table.attempt(&operation).await;
            if answer.is_ok() {
                table.shared.counters.wrote(operation.writes());
            }
            answer
        });
        done.await.unwrap_or_else(|error| match error.is_panic() {
            true => Err(StoreError::Inconsistent { cause: "a write panicked".to_owned() }),
            false => Err(unavailable("the process is ending")),
        })
    }

    /// Runs an operation for as long as its caller waits.
    pub(super) async fn read<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        self.attempt(&operation).await
    }

    async fn attempt<O: Operation>(&self, operation: &O) -> Result<O::Answer, StoreError> {
        let mut tries: u32 = 0;
        let mut broken = false;
        loop {
            tries = tries.saturating_add(1);
            match self.once(operation).await {
                Ok(answer) => return Ok(answer),
                Err(Fault::Again(_)) if tries < TRIES => {
                    self.shared.counters.retried();
                    tokio::time::sleep(PAUSE.mul_f64(random() * f64::from(tries))).await;
                }
                // The operation may have been done; done again, it answers what is so.
                Err(Fault::Broken(_)) if !broken => broken = true,
                Err(Fault::Again(cause) | Fault::Broken(cause)) => return Err(unavailable(&cause)),
                Err(Fault::Store(error)) => return Err(error),
            }
        }
    }

    async fn once<O: Operation>(&self, operation: &O) -> Result<O::Answer, Fault> {
        let shared = &self.shared;
        let mut lease = self.pool.acquire().await?;
        let Some(connection) = lease.connection() else { return Err(Fault::Broken("no connection".to_owned())) };
        let mut touched = Touched::default();
        let ran = operation.run(connection, &shared.time, &mut touched);
        match tokio::time::timeout(shared.statement_timeout + GRACE, ran).await {
            Ok(Ok(answer)) => {
                lease.give_back();
                shared.counters.committed(&touched);
                shared.teller.committed(&touched);
                Ok(answer)
            }
            Ok(Err(Fault::Broken(cause))) => {
                lease.throw_away(&cause);
                shared.teller.unsure();
                Err(Fault::Broken(cause))
            }
            // Dropped, the connection ends what was begun on it before anybody else has it.
            Ok(Err(fault)) => Err(fault),
            Err(_) => {
                let cause = "the database did not answer within the time of a statement";
                lease.hangs(cause);
                shared.teller.unsure();
                Err(Fault::Store(unavailable(cause)))
            }
        }
    }

    /// Finishes what is in flight and gives every connection back.
    pub(super) async fn close(&self) {
        self.close_pool().await;
        self.shared.teller.close().await;
    }
}

impl From<NoConnection> for Fault {
    fn from(none: NoConnection) -> Self {
        Self::Store(match none {
            NoConnection::Full => unavailable("every connection of the pool is in use"),
            NoConnection::Failed(cause) => unavailable(&cause),
            NoConnection::Closed => unavailable("the store is closed"),
        })
    }
}

fn unavailable(cause: &str) -> StoreError {
    StoreError::Unavailable { cause: cause.to_owned() }
}

/// From 0 to 1.
fn random() -> f64 {
    let (_, bits) = uuid::Uuid::new_v4().as_u64_pair();
    f64::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(0)) / f64::from(u32::MAX)
}
