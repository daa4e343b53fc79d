//! The migrations: embedded, append-only, each applied once, all under one write transaction.
//!
//! A schema records from which version on a binary can serve it (`compatible_from`): an older binary serves a newer
//! schema that allows it and refuses one that does not.

use super::open::OpenError;
use crate::domain::time::Timestamp;
use crate::storage::SchemaVersions;
use crate::storage::migrations::{Applied, Migration, Unfit, missing, version_of};
use sqlx::{Connection as _, Row as _, SqliteConnection, query, raw_sql};
use std::path::Path;

/// Every migration of this binary.
pub(in crate::storage) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_first", sql: include_str!("migrations/0001_first.sql"), compatible_from: 1 },
    // A binary without it would neither withdraw what a wait had nor take an erased preview for one.
    Migration { version: 2, name: "0002_waits", sql: include_str!("migrations/0002_waits.sql"), compatible_from: 2 },
    Migration {
        version: 3,
        name: "0003_backlog",
        sql: include_str!("migrations/0003_backlog.sql"),
        compatible_from: 2,
    },
    Migration { version: 4, name: "0004_shared", sql: include_str!("migrations/0004_shared.sql"), compatible_from: 2 },
    // An older binary deletes audit records that have no seal yet.
    Migration {
        version: 5,
        name: "0005_audit_seals",
        sql: include_str!("migrations/0005_audit_seals.sql"),
        compatible_from: 5,
    },
    Migration {
        version: 6,
        name: "0006_fatigue",
        sql: include_str!("migrations/0006_fatigue.sql"),
        compatible_from: 5,
    },
];

/// Marks a file as Countersign's, in its header (`CSGN`).
pub(super) const APPLICATION_ID: i64 = 0x4353_474e;

const CREATE_SCHEMA: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version         INTEGER NOT NULL PRIMARY KEY,
    name            TEXT NOT NULL,
    checksum        TEXT NOT NULL,
    compatible_from INTEGER NOT NULL,
    apply_time      INTEGER NOT NULL
) STRICT";
const SELECT_APPLIED: &str = "SELECT version, name, checksum, compatible_from FROM schema_migrations ORDER BY version";
const INSERT_APPLIED: &str = "INSERT INTO schema_migrations (version, name, checksum, compatible_from, apply_time)
    VALUES (?, ?, ?, ?, ?)";

/// Refuses a file that is another program's before anything is written to it.
pub(super) async fn refuse_foreign(connection: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let fault = |error| OpenError::of(&error, path);
    let application_id: i64 = query("PRAGMA application_id")
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(fault)?;
    let objects: i64 = query("SELECT count(*) FROM sqlite_master")
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(fault)?;
    // A file without anything in it is nobody's: a first start may have ended right after creating it.
    let new = application_id == 0 && objects == 0;
    if new || application_id == APPLICATION_ID { Ok(()) } else { Err(OpenError::Foreign { path: path.to_owned() }) }
}

/// Brings the schema to the last of `migrations`, or finds it newer and compatible. Answers its version before and after.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &[Migration],
    now: Timestamp,
    path: &Path,
) -> Result<SchemaVersions, OpenError> {
    let fault = |error| OpenError::of(&error, path);
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
    // Part of the transaction as everything else: the mark is in the header page.
    raw_sql("PRAGMA application_id = 0x4353474e").execute(&mut *transaction).await.map_err(fault)?;
    query(CREATE_SCHEMA).execute(&mut *transaction).await.map_err(fault)?;
    let mut applied = Vec::new();
    for row in query(SELECT_APPLIED).fetch_all(&mut *transaction).await.map_err(fault)? {
        applied.push(Applied {
            version: row.try_get("version").map_err(fault)?,
            name: row.try_get("name").map_err(fault)?,
            checksum: row.try_get("checksum").map_err(fault)?,
            compatible_from: row.try_get("compatible_from").map_err(fault)?,
        });
    }
    for migration in missing(migrations, &applied)? {
        raw_sql(migration.sql).execute(&mut *transaction).await.map_err(fault)?;
        query(INSERT_APPLIED)
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .bind(migration.compatible_from)
            .bind(now.micros())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
    }
    transaction.commit().await.map_err(fault)?;
    let known = migrations.last().map_or(0, |migration| migration.version);
    let before = version_of(&applied);
    Ok(SchemaVersions { before, after: before.max(known) })
}

impl From<Unfit> for OpenError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Newer { found, compatible_from, known } => Self::SchemaNewer { found, compatible_from, known },
            Unfit::Changed { version, name } => Self::MigrationChanged { version, name },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::ConnectOptions as _;
    use sqlx::sqlite::SqliteConnectOptions;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
    const PATH: &str = "memory";

    const A: Migration =
        Migration { version: 1, name: "0001_a", sql: "CREATE TABLE a (x INTEGER) STRICT;", compatible_from: 1 };
    const B: Migration = Migration {
        version: 2,
        name: "0002_b",
        sql: "CREATE TABLE b (x INTEGER) STRICT; ALTER TABLE a ADD COLUMN y TEXT;",
        compatible_from: 1,
    };
    const C: Migration =
        Migration { version: 3, name: "0003_c", sql: "ALTER TABLE a DROP COLUMN x;", compatible_from: 3 };

    async fn memory() -> SqliteConnection {
        SqliteConnectOptions::new().in_memory(true).connect().await.unwrap()
    }

    async fn apply(connection: &mut SqliteConnection, migrations: &[Migration]) -> Result<SchemaVersions, OpenError> {
        migrate(connection, migrations, NOW, Path::new(PATH)).await
    }

    async fn versions(connection: &mut SqliteConnection) -> Vec<i64> {
        query(SELECT_APPLIED).fetch_all(connection).await.unwrap().iter().map(|row| row.get("version")).collect()
    }

    #[tokio::test]
    async fn each_migration_is_applied_once_and_recorded() {
        let mut connection = memory().await;
        let from_to = |before, after| SchemaVersions { before, after };
        assert_eq!(apply(&mut connection, &[A]).await.unwrap(), from_to(0, 1));
        assert_eq!(apply(&mut connection, &[A, B]).await.unwrap(), from_to(1, 2));
        assert_eq!(apply(&mut connection, &[A, B]).await.unwrap(), from_to(2, 2));
        assert_eq!(apply(&mut connection, &[A]).await.unwrap(), from_to(2, 2), "a newer schema stays");
        assert_eq!(versions(&mut connection).await, [1, 2]);
        query("INSERT INTO a (x, y) VALUES (1, 'y')").execute(&mut connection).await.unwrap();
    }

    #[tokio::test]
    async fn a_changed_migration_is_refused_by_name() {
        let mut connection = memory().await;
        apply(&mut connection, &[A]).await.unwrap();
        let edited = Migration { sql: "CREATE TABLE a (x TEXT) STRICT;", ..A };
        let error = apply(&mut connection, &[edited]).await.unwrap_err();
        assert!(matches!(&error, OpenError::MigrationChanged { version: 1, name } if name == "0001_a"), "{error}");
    }

    #[tokio::test]
    async fn an_older_binary_serves_a_newer_schema_only_if_that_allows_it() {
        let mut connection = memory().await;
        apply(&mut connection, &[A, B]).await.unwrap();
        apply(&mut connection, &[A]).await.unwrap();
        apply(&mut connection, &[A, B, C]).await.unwrap();
        let error = apply(&mut connection, &[A, B]).await.unwrap_err();
        assert!(
            matches!(error, OpenError::SchemaNewer { found: 3, compatible_from: 3, known: 2 }),
            "what one migration closes, a later compatible one does not open: {error}"
        );
    }

    #[tokio::test]
    async fn a_failing_migration_leaves_nothing_behind() {
        let mut connection = memory().await;
        apply(&mut connection, &[A]).await.unwrap();
        let broken = Migration { sql: "CREATE TABLE b (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1);", ..B };
        apply(&mut connection, &[A, broken]).await.unwrap_err();
        assert_eq!(versions(&mut connection).await, [1]);
        apply(&mut connection, &[A, B]).await.unwrap();
    }

    #[tokio::test]
    async fn the_second_migration_keeps_every_audit_record_and_gives_no_position_twice() {
        let mut connection = memory().await;
        apply(&mut connection, &MIGRATIONS[..1]).await.unwrap();
        let insert = "INSERT INTO audit_records (id, time, kind, principal, agent, connector, action, fingerprint, decision,
            labels, note) VALUES (?, 1, 'approval.requested', 'olga', 'assistant', 'gmail', 'SEND', 'v1:x', 'ALLOW', '{}', ?)";
        for id in ["a", "b", "c"] {
            query(insert).bind(id).bind(format!("note {id}")).execute(&mut connection).await.unwrap();
        }
        query("DELETE FROM audit_records WHERE id = 'c'").execute(&mut connection).await.unwrap();
        apply(&mut connection, MIGRATIONS).await.unwrap();
        query(insert).bind("d").bind("note d").execute(&mut connection).await.unwrap();
        let all = "SELECT position, id, note, connector, wait_id FROM audit_records ORDER BY position";
        let rows = query(all).fetch_all(&mut connection).await.unwrap();
        let told: Vec<(i64, String, String, String, Option<String>)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect();
        let want = [(1, "a"), (2, "b"), (4, "d")];
        let want = want.map(|(at, id)| (at, id.to_owned(), format!("note {id}"), "gmail".to_owned(), None));
        assert_eq!(told, want);
    }

    #[test]
    fn migrations_are_numbered_without_gaps_and_named_by_their_number() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version, i64::try_from(index).unwrap() + 1);
            assert!(migration.name.starts_with(&format!("{:04}_", migration.version)));
            assert!(migration.compatible_from <= migration.version);
        }
    }
}
