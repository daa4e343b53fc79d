//! Whatever the domain can hold comes back from its row as it was.

use super::super::{reads, schema, waits, writes};
use crate::domain::approval::Approval;
use crate::domain::execution::Execution;
use crate::domain::time::Timestamp;
use crate::domain::wait::Wait;
use crate::storage::changes::Touched;
use crate::storage::conformance::any;
use proptest::prelude::*;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use std::path::Path;

/// Runs `case` on an empty database in memory, over and over.
struct Memory {
    runtime: tokio::runtime::Runtime,
    connection: tokio::sync::Mutex<SqliteConnection>,
}

impl Memory {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(async {
            let mut connection = SqliteConnectOptions::new().in_memory(true).connect().await.unwrap();
            let now = Timestamp::from_micros(0);
            schema::migrate(&mut connection, schema::MIGRATIONS, now, Path::new("memory")).await.unwrap();
            connection
        });
        Self { runtime, connection: tokio::sync::Mutex::new(connection) }
    }

    fn through_approvals(&self, approval: &Approval) -> Approval {
        self.runtime.block_on(async {
            let connection = &mut *self.connection.lock().await;
            sqlx::query("DELETE FROM approvals").execute(&mut *connection).await.unwrap();
            writes::insert_approval(connection, approval, &mut Touched::default()).await.unwrap();
            reads::approval(connection, approval.id).await.unwrap().unwrap()
        })
    }

    fn through_waits(&self, wait: &Wait) -> Wait {
        self.runtime.block_on(async {
            let connection = &mut *self.connection.lock().await;
            sqlx::query("DELETE FROM waits").execute(&mut *connection).await.unwrap();
            waits::insert(connection, wait).await.unwrap();
            waits::by_id(connection, wait.id).await.unwrap().unwrap()
        })
    }

    fn through_executions(&self, execution: &Execution) -> Execution {
        self.runtime.block_on(async {
            let connection = &mut *self.connection.lock().await;
            sqlx::query("DELETE FROM executions").execute(&mut *connection).await.unwrap();
            assert!(writes::insert_execution(connection, execution).await.unwrap());
            reads::execution(connection, execution.id).await.unwrap().unwrap()
        })
    }
}

#[test]
fn any_approval_comes_back_as_it_was() {
    let memory = Memory::new();
    proptest!(ProptestConfig::with_cases(300), |(approval in any::approval())| {
        let read = memory.through_approvals(&approval);
        prop_assert_eq!(&read.question.preview, &approval.question.preview);
        prop_assert_eq!(read, approval);
    });
}

#[test]
fn any_execution_comes_back_as_it_was() {
    let memory = Memory::new();
    proptest!(ProptestConfig::with_cases(300), |(execution in any::execution())| {
        let read = memory.through_executions(&execution);
        prop_assert_eq!(read, execution);
    });
}

#[test]
fn any_wait_comes_back_as_it_was() {
    let memory = Memory::new();
    proptest!(ProptestConfig::with_cases(300), |(wait in any::wait())| {
        let read = memory.through_waits(&wait);
        prop_assert_eq!(&read.summary, &wait.summary);
        prop_assert_eq!(read, wait);
    });
}
