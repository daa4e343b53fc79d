//! What only a file promises, and the conformance suite on it.

use super::*;
use crate::clock::ManualClock;
use crate::storage::conformance::{Database, promises};
use sqlx::{AssertSqlSafe, Row as _, query};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of its own that goes when this does.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("countersign-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn database(&self) -> PathBuf {
        self.0.join("countersign.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[async_trait]
impl Database for Folder {
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(SqliteOptions::new(self.database(), clock)).await.unwrap())
    }

    async fn dump(&self) -> String {
        dump(&self.database()).await
    }

    async fn check(&self) {
        check(&self.database()).await;
    }
}

/// Every row of every table, each on a line that begins with the table's name.
pub(super) async fn dump(path: &Path) -> String {
    let mut connection = open::reader_options(path).connect().await.unwrap();
    let tables = query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let mut text = String::new();
    for table in tables {
        let table: String = table.get(0);
        let columns: String =
            query("SELECT group_concat('quote(' || name || ')', '||'',''||') FROM pragma_table_xinfo($1)")
                .bind(table.clone())
                .fetch_one(&mut connection)
                .await
                .unwrap()
                .get(0);
        let select = AssertSqlSafe(format!("SELECT {columns} FROM {table}"));
        for row in query(select).fetch_all(&mut connection).await.unwrap() {
            text.push_str(&format!("{table}:{}\n", row.get::<String, _>(0)));
        }
    }
    text
}

/// What each of these finds is a row that its neighbours contradict.
const CONTRADICTIONS: [&str; 14] = [
    "SELECT a.approval_id FROM approval_audience a LEFT JOIN approvals p ON p.id = a.approval_id
        WHERE a.state IS NOT p.state OR a.create_time IS NOT p.create_time OR a.open_until IS NOT p.open_until",
    "SELECT p.id FROM approvals p WHERE NOT EXISTS (SELECT 1 FROM approval_audience a
        WHERE a.approval_id = p.id AND a.kind = 'person' AND a.name = p.principal)",
    "SELECT d.approval_id FROM approval_decisions d WHERE NOT EXISTS (SELECT 1 FROM approval_audience a
        WHERE a.approval_id = d.approval_id AND a.kind = 'person' AND a.name = d.person)",
    "SELECT approval_id FROM approval_decisions GROUP BY approval_id HAVING max(sequence) <> count(*) - 1",
    "SELECT p.id FROM approvals p LEFT JOIN executions e ON e.id = p.execution_id
        WHERE p.state = 'consumed' AND (e.approval_id IS NOT p.id OR e.start_time <> p.consume_time
            OR e.fingerprint <> p.fingerprint OR e.principal <> p.principal OR e.agent <> p.agent)",
    "SELECT e.id FROM executions e LEFT JOIN approvals p ON p.id = e.approval_id
        WHERE p.id IS NOT NULL AND p.execution_id IS NOT e.id",
    "SELECT p.id FROM approvals p WHERE (SELECT count(*) FROM audit_records r
        WHERE r.approval_id = p.id AND r.kind = 'approval.' || p.state) <> (p.state <> 'pending')",
    "SELECT e.id FROM executions e WHERE (SELECT count(*) FROM audit_records r WHERE r.execution_id = e.id
        AND r.kind IN ('approval.consumed', 'execution.started')) <> 1",
    "SELECT p.id FROM approvals p JOIN waits w ON w.id = p.wait_id WHERE p.principal <> w.principal
        OR p.agent <> w.agent OR p.objective_transcript <> w.objective_transcript OR p.objective_id <> w.objective_id
        OR p.ends_by > w.expire_time",
    "SELECT p.id FROM approvals p JOIN waits w ON w.id = p.wait_id WHERE p.open_until IS NOT NULL
        AND (w.state = 'closed' OR p.objective_revision <> w.objective_revision)",
    "SELECT p.id FROM approvals p JOIN waits w ON w.id = p.wait_id WHERE p.state = 'cancelled'
        AND p.state_reason LIKE 'wait %' AND p.state_reason NOT LIKE 'wait ' || w.id || ' %'",
    "SELECT w.id FROM waits w WHERE (SELECT count(*) FROM audit_records r
        WHERE r.wait_id = w.id AND r.kind = 'wait.' || w.close_kind) <> (w.state = 'closed')",
    "SELECT p.id FROM approvals p WHERE p.open_until IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM approval_arguments a WHERE a.approval_id = p.id)",
    "SELECT later.position FROM audit_records later JOIN audit_records earlier
        ON earlier.position = later.position - 1 WHERE earlier.time > later.time",
];

/// Fails where rows that belong together do not agree, or the file is damaged.
pub(super) async fn check(path: &Path) {
    // Whoever had it open has let go of it.
    let _lock = open::lock(path, Duration::from_secs(10)).await.unwrap();
    let mut connection = open::reader_options(path).connect().await.unwrap();
    for contradiction in CONTRADICTIONS {
        let found = query(contradiction).fetch_all(&mut connection).await.unwrap();
        assert!(found.is_empty(), "{} rows of {contradiction}", found.len());
    }
    let intact: String = query("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(intact, "ok");
    assert!(query("PRAGMA foreign_key_check").fetch_all(&mut connection).await.unwrap().is_empty());
}

mod conformance {
    use super::*;

    promises!(Folder::new());
}

const START: Timestamp = crate::storage::conformance::START;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

async fn open(folder: &Folder) -> SqliteStore {
    open_with(folder, |_| {}).await.unwrap()
}

async fn open_with(folder: &Folder, change: impl FnOnce(&mut SqliteOptions)) -> Result<SqliteStore, OpenError> {
    let mut options = SqliteOptions::new(folder.database(), clock());
    change(&mut options);
    SqliteStore::open(options).await
}

mod keeping;
mod killing;
mod opening;
mod statements;
mod writing;
