//! What only a file promises, and the conformance suite on it.

use super::*;
use crate::clock::ManualClock;
use crate::storage::conformance::{CONTRADICTIONS, Database, promises};
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

/// A record that is before another and has a later time: one process writes, and its time does not go back.
const OUT_OF_ORDER: &str = "SELECT later.position FROM audit_records later JOIN audit_records earlier
        ON earlier.position = later.position - 1 WHERE earlier.time > later.time";

/// Fails where rows that belong together do not agree, or the file is damaged.
pub(super) async fn check(path: &Path) {
    // Whoever had it open has let go of it.
    let _lock = open::lock(path, Duration::from_secs(10)).await.unwrap();
    let mut connection = open::reader_options(path).connect().await.unwrap();
    for contradiction in CONTRADICTIONS.into_iter().chain([OUT_OF_ORDER]) {
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

    // One process has the file, and its clock is that of all rows.
    promises! { Folder::new(),
        durability::time_does_not_go_back_with_the_clock,
        durability::time_does_not_go_back_over_a_restart,
    }
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
