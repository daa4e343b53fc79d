//! Running an operation on a connection of the pool: within its time, again where that is safe and helps, and telling what
//! it changed once it is committed.

use super::telling::Teller;
use super::time::TableTime;
use crate::domain::audit::AuditKind;
use crate::storage::StoreError;
use crate::storage::changes::{Changes, Touched};
use async_trait::async_trait;
use sqlx::PgConnection;
use sqlx::postgres::PgPool;
use std::sync::Arc;
use std::time::Duration;

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
}

/// Why an operation did not come to its end.
#[derive(Debug)]
pub(super) enum Fault {
    /// Others were in the way: nothing was done, and doing it again may succeed.
    Again(String),
    /// The connection is of no more use. Whether it was done is not known.
    Broken(String),
    /// Anything else.
    Store(StoreError),
}

/// How much was written since the database was opened, by this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Operations that wrote.
    pub writes: u64,
    /// Transactions that they were committed in.
    pub commits: u64,
    /// Operations that ran again because others were in the way.
    pub retries: u64,
    /// Connections that were given up.
    pub reconnects: u64,
    /// Audit records that were committed, by kind.
    pub records: Vec<(AuditKind, u64)>,
}

/// The database, to whoever runs operations on it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: PgPool,
    time: TableTime,
    teller: Teller,
    statement_timeout: Duration,
}

impl Table {
    /// The database behind this pool.
    pub(super) fn new(pool: PgPool, time: TableTime, teller: Teller, statement_timeout: Duration) -> Self {
        Self { shared: Arc::new(Shared { pool, time, teller, statement_timeout }) }
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
        Statistics::default()
    }

    /// Runs an operation that writes, to its end, whether or not anybody waits for the answer.
    pub(super) async fn run<O: Operation + 'static>(&self, operation: O) -> Result<O::Answer, StoreError>
    where
        O::Answer: 'static,
    {
        let table = self.clone();
        let done = tokio::spawn(async move { table.read(operation).await }).await;
        done.unwrap_or_else(|error| Err(StoreError::Unavailable { cause: error.to_string() }))
    }

    /// Runs an operation for as long as its caller waits.
    pub(super) async fn read<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        let mut touched = Touched::default();
        let mut connection = self.shared.pool.acquire().await.map_err(|error| Fault::from(error).into_error())?;
        let ran = operation.run(&mut connection, &self.shared.time, &mut touched);
        match tokio::time::timeout(self.shared.statement_timeout, ran).await {
            Ok(Ok(answer)) => {
                self.shared.teller.committed(&touched);
                Ok(answer)
            }
            Ok(Err(fault)) => Err(fault.into_error()),
            Err(_) => {
                connection.close_on_drop();
                Err(StoreError::Unavailable { cause: "a statement took longer than it may".to_owned() })
            }
        }
    }

    /// Finishes what is in flight and gives every connection back.
    pub(super) async fn close(&self) {
        self.shared.pool.close().await;
    }
}

impl Fault {
    fn into_error(self) -> StoreError {
        match self {
            Self::Again(cause) | Self::Broken(cause) => StoreError::Unavailable { cause },
            Self::Store(error) => error,
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
