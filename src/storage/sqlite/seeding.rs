//! For measurements, and no part of the store's contract: filling a table fast, and running the writer's statements without
//! the writer.

use super::consuming::Consume;
use super::open::{self, FileLock, OpenError};
use super::writer::Write;
use super::writes::Touch;
use super::{SqliteOptions, SqliteStore};
use crate::domain::execution::Start;
use crate::domain::ids::ApprovalId;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::seeding::{ApprovalCopy, copied_columns};
use crate::storage::time::StoreTime;
use crate::storage::{Accepting, StoreError};
use async_trait::async_trait;
use serde_json::json;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, query};

const COPY_APPROVAL: &str = concat!(
    "INSERT INTO approvals (id, fingerprint, arguments_digest, ",
    copied_columns!(),
    ") SELECT copy.id, copy.fingerprint, copy.arguments, ",
    copied_columns!(),
    " FROM (SELECT value ->> 0 AS id, value ->> 1 AS fingerprint, value ->> 2 AS arguments FROM json_each($2)) copy \
     CROSS JOIN (SELECT ",
    copied_columns!(),
    " FROM approvals WHERE id = $1)"
);
const COPY_DECISIONS: &str = "INSERT INTO approval_decisions
    (approval_id, sequence, person, groups, as_owner, verdict, reason, caller, decide_time)
    SELECT copies.value ->> 0, sequence, person, groups, as_owner, verdict, reason, caller, decide_time
    FROM json_each($2) copies CROSS JOIN approval_decisions WHERE approval_id = $1";
const COPY_AUDIENCE: &str = "INSERT INTO approval_audience (approval_id, kind, name, state, create_time, open_until)
    SELECT copies.value ->> 0, kind, name, state, create_time, open_until
    FROM json_each($2) copies CROSS JOIN approval_audience WHERE approval_id = $1";

/// Copies of one approval.
struct Copies {
    template: ApprovalId,
    copies: String,
}

#[async_trait]
impl Write for Copies {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, _: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        for statement in [COPY_APPROVAL, COPY_DECISIONS, COPY_AUDIENCE] {
            query(statement).bind(self.template.to_string()).bind(&*self.copies).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl SqliteStore {
    /// Copies the approval `template`, with its decisions and audience, in one transaction. Some ten thousand copies are
    /// written within the time that one write may take.
    ///
    /// # Errors
    /// The store; an id that is there already.
    #[doc(hidden)]
    pub async fn seed(&self, template: ApprovalId, copies: &[ApprovalCopy]) -> Result<(), StoreError> {
        let rows = copies
            .iter()
            .map(|copy| json!([copy.id.to_string(), copy.fingerprint.to_string(), copy.arguments.to_string()]));
        let copies = serde_json::Value::from_iter(rows).to_string();
        self.write(Copies { template, copies }).await
    }
}

/// One connection that runs the writer's own statements with nothing around them: what the writer is measured against.
#[doc(hidden)]
#[derive(Debug)]
pub struct BareConnection {
    connection: SqliteConnection,
    time: StoreTime,
    _lock: FileLock,
}

impl BareConnection {
    /// Connects as the writer does, to a database that a store has made.
    ///
    /// # Errors
    /// The database is in use, or cannot be opened.
    pub async fn open(options: &SqliteOptions) -> Result<Self, OpenError> {
        let (path, lock) = open::lock(&options.path, options.lock_timeout).await?;
        let fault = |error| OpenError::of(&error, &path);
        let mut connection = open::writer_options(&path).connect().await.map_err(fault)?;
        let newest = open::newest_time(&mut connection).await.map_err(fault)?;
        let time = StoreTime::since(newest, std::sync::Arc::clone(&options.clock));
        Ok(Self { connection, time, _lock: lock })
    }

    /// Consumes one after the other, in one transaction; how many were.
    ///
    /// # Errors
    /// The store.
    pub async fn consume(&mut self, calls: &[(Start, Accepting)]) -> Result<usize, StoreError> {
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        let (mut consumed, mut touched) = (0_usize, Touched::default());
        for (start, accepting) in calls {
            let Some(approval) = start.approval else { continue };
            let write = Consume { start: start.clone(), approval, accepting: *accepting };
            if write.run(&mut transaction, self.time.now(), &mut touched).await?.is_some() {
                consumed = consumed.saturating_add(1);
            }
        }
        transaction.commit().await?;
        Ok(consumed)
    }

    /// A transaction that writes one small row.
    ///
    /// # Errors
    /// The store.
    pub async fn commit(&mut self) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        Touch { for_real: true }.run(&mut transaction, self.time.now(), &mut Touched::default()).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Moves the log into the file and lets go of it.
    ///
    /// # Errors
    /// The store.
    pub async fn close(self) -> Result<(), StoreError> {
        Ok(self.connection.close().await?)
    }
}
