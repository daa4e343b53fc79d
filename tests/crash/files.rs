//! The folder of one test, with the database in it.

use crate::process::{Folder, POLICY, Sidecar};
use sqlx::{Connection as _, Row as _};
use std::fs;

/// The folder of one test: configuration, policy, database and secret.
pub struct Files(Folder);

impl Files {
    pub fn new() -> Self {
        Self(Folder::new(POLICY, ""))
    }

    /// Starts a sidecar on them.
    pub fn start(&self) -> Sidecar {
        Sidecar::start(&self.0)
    }

    /// The size of the database or of its log, whichever is larger.
    pub fn largest_file(&self) -> u64 {
        let sizes = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        sizes.max().unwrap()
    }

    /// What the database itself says of its state, once nobody has it open.
    pub async fn check_database(&self) {
        let path = self.0.path().join("countersign.db");
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        let whole: String = sqlx::query("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap().get(0);
        assert_eq!(whole, "ok");
        let orphans = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut connection).await.unwrap();
        assert!(orphans.is_empty());
        let twice: i64 = sqlx::query(
            "SELECT count(*) FROM (SELECT approval_id FROM executions WHERE approval_id IS NOT NULL \
             GROUP BY approval_id HAVING count(*) > 1)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
        assert_eq!(twice, 0, "approvals with more than one execution");
        let loose: i64 = sqlx::query(
            "SELECT count(*) FROM approvals LEFT JOIN executions ON executions.id = approvals.execution_id \
             WHERE (approvals.state = 'consumed') <> (executions.id IS NOT NULL)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
        assert_eq!(loose, 0, "used approvals without their execution");
    }
}
