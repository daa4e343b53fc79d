//! The conformance suite on a real Postgres, and what only a database that many sidecars share promises.

#[path = "../../../tests/cluster/mod.rs"]
mod cluster;

mod statements;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::storage::conformance::{CONTRADICTIONS, Database, TOLD_TOO_EARLY, promises};
use sqlx::{AssertSqlSafe, Row as _, query};
use std::sync::Arc;
use std::time::Duration;

#[async_trait]
impl Database for cluster::Database {
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(options(self, Some(clock))).await.unwrap())
    }

    async fn dump(&self) -> String {
        let mut connection = self.connect().await;
        let tables = query(
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
                ORDER BY relname",
        );
        let mut text = String::new();
        for table in tables.fetch_all(&mut connection).await.unwrap() {
            let table: String = table.get(0);
            let select = format!("SELECT whole::text FROM {table} AS whole ORDER BY whole::text COLLATE \"C\"");
            for row in query(AssertSqlSafe(select)).fetch_all(&mut connection).await.unwrap() {
                text.push_str(&format!("{table}:{}\n", row.get::<String, _>(0)));
            }
        }
        text
    }

    async fn check(&self) {
        let mut connection = self.connect().await;
        for contradiction in CONTRADICTIONS.into_iter().chain([TOLD_TOO_EARLY]) {
            let found = query(contradiction).fetch_all(&mut connection).await.unwrap();
            assert!(found.is_empty(), "{} rows of {contradiction}", found.len());
        }
    }
}

/// A database of its own, with the schema.
pub(super) async fn fresh() -> cluster::Database {
    cluster::Database::fresh(async |url| {
        let options = PostgresOptions { tls: TlsMode::Disable, connections: 1, ..PostgresOptions::new(url) };
        PostgresStore::open(options).await.unwrap().close().await;
    })
    .await
}

pub(super) fn options(database: &cluster::Database, clock: Option<Arc<ManualClock>>) -> PostgresOptions {
    let options = PostgresOptions::new(database.url());
    PostgresOptions {
        password: database.password().map(zeroize::Zeroizing::new),
        tls: TlsMode::Prefer,
        connections: 4,
        // A machine that runs many tests at once is slow, not stuck.
        acquire_timeout: Duration::from_secs(30),
        statement_timeout: Duration::from_secs(30),
        poll_every: Duration::from_millis(100),
        clock: clock.map(|clock| clock as Arc<dyn Clock>),
        ..options
    }
}

mod conformance {
    use super::*;

    promises!(fresh().await);

    promises! { fresh().await,
        shared::of_a_hundred_attempts_through_two_stores_one_consumes,
        shared::one_attempt_through_two_stores_starts_once,
        shared::the_same_question_through_two_stores_is_one_approval,
        shared::limits_hold_over_two_stores,
        shared::questions_of_two_stores_and_many_callers_never_exceed_the_rate,
        shared::a_denial_through_one_store_cools_off_at_the_other,
        shared::who_looks_through_one_store_is_seen_by_the_other,
        shared::a_question_and_the_end_of_its_wait_do_not_miss_each_other_over_two_stores,
        shared::simultaneous_openings_through_two_stores_make_one_wait,
        shared::of_simultaneous_decisions_through_two_stores_one_is_saved,
        shared::what_two_stores_sweep_at_once_is_swept_once,
        shared::what_one_store_acknowledged_the_other_reads,
        shared::what_one_store_changes_the_other_tells,
        shared::two_stores_that_seal_at_once_make_one_log,
    }
}

#[tokio::test]
async fn time_is_the_databases_own() {
    let database = fresh().await;
    let store = PostgresStore::open(options(&database, None)).await.unwrap();
    let mut connection = database.connect().await;
    let mut clock = async || -> i64 {
        let asked = query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT");
        asked.fetch_one(&mut connection).await.unwrap().get(0)
    };
    let before = clock().await;
    let time = store.time().await.unwrap().micros();
    let after = clock().await;
    assert!(before <= time && time <= after, "{before} <= {time} <= {after}");
    let estimated = store.estimated_time().micros();
    assert!(estimated >= time, "{estimated} >= {time}");
}

mod guarded;
mod late;
mod locking;
mod opening;
mod pool;
mod proxy;
mod telling;
