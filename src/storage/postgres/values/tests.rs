//! Whatever the domain can hold comes back from its row as it was.

use super::super::tests::fresh;
use super::*;
use crate::domain::approval::Approval;
use crate::domain::execution::Execution;
use crate::domain::text::Identifier;
use crate::domain::wait::Wait;
use crate::storage::Store;
use crate::storage::conformance::any;
use crate::storage::postgres::PostgresStore;
use crate::storage::rows::{self, ApprovalColumns, execution_columns, subject_columns, wait_columns};
use proptest::prelude::*;
use sqlx::{AssertSqlSafe, PgConnection, query};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[\\x0001a\u{10ffff}\u{10fffe}]{0,12}"]
}

#[test]
fn what_the_database_would_refuse_is_not_kept_as_it_is() {
    for (text, as_kept) in [
        ("", ""),
        ("plain", "plain"),
        ("a\0b", "a\u{10ffff}0b"),
        ("\u{10ffff}", "\u{10ffff}1"),
        ("\u{10ffff}0", "\u{10ffff}10"),
        ("\0\u{10ffff}", "\u{10ffff}0\u{10ffff}1"),
    ] {
        assert_eq!(kept(text.to_owned()), as_kept);
        assert_eq!(given(as_kept).as_deref(), Some(text));
    }
}

#[test]
fn what_is_never_kept_is_no_text() {
    for broken in ["\u{10ffff}", "a\u{10ffff}", "\u{10ffff}2", "\u{10ffff}\u{10ffff}"] {
        assert_eq!(given(broken), None, "{broken:?}");
    }
}

#[test]
fn rows_of_mixed_kinds_become_columns() {
    let mut batch = Batch::of("titi");
    batch.row().bind("first").bind(1).bind(Some("a\0b")).bind(true);
    batch.row().bind("second".to_owned()).bind(None::<i64>).bind(None::<String>).bind(false);
    assert_eq!(
        format!("{:?}", batch.columns),
        "[Text([Some(\"first\"), Some(\"second\")]), Integer([Some(1), None]), \
         Text([Some(\"a\\u{10ffff}0b\"), None]), Integer([Some(1), Some(0)])]"
    );
}

proptest! {
    #[test]
    fn any_text_comes_back_as_it_was(text in text()) {
        let as_kept = kept(text.clone());
        prop_assert!(!as_kept.contains('\0'));
        let given = given(&as_kept);
        prop_assert_eq!(given.as_deref(), Some(text.as_str()));
    }
}

const INSERT_APPROVAL: &str = concat!(
    "INSERT INTO approvals (id, version, create_time, decide_by, ends_by, ",
    subject_columns!(),
    ", connection, labels, requested_by, scope, tags, policy_revision, reason, rules, clauses, exclude_requester, \
     decide_within_us, use_within_us, requirement_digest, retry_of, retried_outcome, wait_id, message, agent_note, \
     omissions, preview_json, state, decide_time, use_by, consume_time, execution_id, close_time, closed_by, \
     state_reason, open_until) VALUES "
);
const INSERT_DECISION: &str = "INSERT INTO approval_decisions \
    (approval_id, sequence, person, groups, as_owner, verdict, reason, caller, decide_time) VALUES ";
const INSERT_EXECUTION: &str = concat!("INSERT INTO executions (", execution_columns!(), ") VALUES ");
const INSERT_WAIT: &str = concat!("INSERT INTO waits (", wait_columns!(), ") VALUES ");

/// Writes rows and reads them as the store does, over and over.
struct Real {
    runtime: tokio::runtime::Runtime,
    connection: tokio::sync::Mutex<PgConnection>,
    store: PostgresStore,
    /// It is removed when this is dropped.
    _database: Box<dyn std::any::Any>,
}

impl Real {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (connection, store, database) = runtime.block_on(async {
            let database = fresh().await;
            let store = PostgresStore::open(super::super::tests::options(&database, None)).await.unwrap();
            (database.connect().await, store, database)
        });
        Self { runtime, connection: tokio::sync::Mutex::new(connection), store, _database: Box::new(database) }
    }

    fn through_approvals(&self, approval: &Approval) -> Approval {
        self.runtime.block_on(async {
            let connection = &mut *self.connection.lock().await;
            clear(connection, "approvals").await;
            let statement = query(AssertSqlSafe(with_places(INSERT_APPROVAL, 46)))
                .bind(approval.id.to_string())
                .bind(rows::integer(approval.version))
                .bind(approval.create_time.micros())
                .bind(approval.decide_by.micros())
                .bind(approval.ends_by.map(|time| time.micros()));
            let statement = rows::bind_question(statement, &approval.question);
            let statement = ApprovalColumns::of(&approval.state).bind(statement, approval.decide_by);
            statement.execute(&mut *connection).await.unwrap();
            for (sequence, decision) in (0_i64..).zip(&approval.decisions) {
                let statement = query(AssertSqlSafe(with_places(INSERT_DECISION, 9)));
                let statement = statement.bind(approval.id.to_string()).bind(sequence);
                rows::bind_decision(statement, decision).execute(&mut *connection).await.unwrap();
            }
            self.store.approval(approval.id).await.unwrap().row.unwrap()
        })
    }

    fn through_waits(&self, wait: &Wait) -> Wait {
        self.runtime.block_on(async {
            let connection = &mut *self.connection.lock().await;
            clear(connection, "waits").await;
            let statement = query(AssertSqlSafe(with_places(INSERT_WAIT, 21)));
            rows::bind_wait(statement, wait).execute(connection).await.unwrap();
            self.store.wait_alone(wait.id).await.unwrap().row.unwrap()
        })
    }

    fn through_executions(&self, execution: &Execution) -> Execution {
        self.runtime.block_on(async {
            let connection = &mut *self.connection.lock().await;
            clear(connection, "executions").await;
            let statement = query(AssertSqlSafe(with_places(INSERT_EXECUTION, 31)));
            rows::bind_execution(statement, execution).execute(connection).await.unwrap();
            self.store.execution(execution.id).await.unwrap().row.unwrap()
        })
    }
}

async fn clear(connection: &mut PgConnection, table: &str) {
    query(AssertSqlSafe(format!("DELETE FROM {table}"))).execute(connection).await.unwrap();
}

fn with_places(insert: &str, values: usize) -> String {
    let places: Vec<String> = (1..=values).map(|place| format!("${place}")).collect();
    format!("{insert}({})", places.join(", "))
}

#[test]
fn any_approval_comes_back_as_it_was() {
    let real = Real::new();
    proptest!(ProptestConfig::with_cases(100), |(approval in any::approval())| {
        let read = real.through_approvals(&approval);
        prop_assert_eq!(&read.question.preview, &approval.question.preview);
        prop_assert_eq!(read, approval);
    });
}

#[test]
fn any_execution_comes_back_as_it_was() {
    let real = Real::new();
    proptest!(ProptestConfig::with_cases(100), |(execution in any::execution())| {
        prop_assert_eq!(real.through_executions(&execution), execution);
    });
}

#[test]
fn any_wait_comes_back_as_it_was() {
    let real = Real::new();
    proptest!(ProptestConfig::with_cases(100), |(wait in any::wait())| {
        prop_assert_eq!(real.through_waits(&wait), wait);
    });
}

#[test]
fn no_identifier_has_what_is_kept_in_another_way() {
    for text in ["a\0b", "a\u{10ffff}b"] {
        assert!(Identifier::parse(text).is_err(), "{text:?}");
    }
}
