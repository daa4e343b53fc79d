//! The migrations: embedded, append-only, each applied once, all in one transaction under one lock row.
//!
//! Where the schema is as it should be, nothing but reading is done, so that a role that may do no more can serve it.

use super::connecting::{Connector, code};
use super::refusals::OpenError;
use crate::domain::time::Timestamp;
use crate::storage::SchemaVersions;
use crate::storage::migrations::{Applied, Migration, Unfit, missing, version_of};
use sqlx::{Connection as _, PgConnection, Row as _, query, query_scalar, raw_sql};
use std::time::Duration;

/// The version of this binary's last migration.
pub(super) fn known() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// Every migration of this binary.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_first", sql: include_str!("migrations/0001_first.sql"), compatible_from: 1 },
    Migration { version: 2, name: "0002_waits", sql: include_str!("migrations/0002_waits.sql"), compatible_from: 2 },
    Migration {
        version: 3,
        name: "0003_backlog",
        sql: include_str!("migrations/0003_backlog.sql"),
        compatible_from: 2,
    },
    // The first one that was ever released for this database: it has no binary before it.
    Migration { version: 4, name: "0004_shared", sql: include_str!("migrations/0004_shared.sql"), compatible_from: 4 },
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

/// How long to wait for who migrates, and for what holds a table.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The tables that are ours, beside the list of migrations itself.
const TABLES: &[&str] = &[
    "approval_arguments",
    "approval_audience",
    "approval_decisions",
    "approvals",
    "approver_presence",
    "audit_checkpoints",
    "audit_log",
    "audit_nodes",
    "audit_records",
    "audit_seals",
    "blocks",
    "executions",
    "keys",
    "request_ids",
    "schema_lock",
    "waits",
];

/// Serializes who makes the lock row's table: a table that is made twice at once fails the second time, asked or not.
const MAKE_LOCK: &str = "SELECT pg_advisory_xact_lock(x'436f756e74657273'::BIGINT)";
const CREATE_LOCK: &str = "CREATE TABLE IF NOT EXISTS schema_lock (id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1))";
const INSERT_LOCK: &str = "INSERT INTO schema_lock (id) VALUES (1) ON CONFLICT (id) DO NOTHING";
const LOCK: &str = "SELECT id FROM schema_lock FOR UPDATE";
const CREATE_SCHEMA: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version         BIGINT NOT NULL PRIMARY KEY,
    name            TEXT COLLATE \"C\" NOT NULL,
    checksum        TEXT COLLATE \"C\" NOT NULL,
    compatible_from BIGINT NOT NULL,
    apply_time      BIGINT NOT NULL
)";
/// Whether the list of migrations is there, and how many of its columns are.
const FIND_SCHEMA: &str = "SELECT to_regclass('schema_migrations') IS NOT NULL AS found, (SELECT count(*)
        FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass('schema_migrations') AND NOT attisdropped
        AND attname = ANY (ARRAY['version', 'name', 'checksum', 'compatible_from', 'apply_time'])) AS columns";
const FIND_TABLE: &str = "SELECT c.relname::TEXT FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND c.relname = ANY ($1) ORDER BY c.relname LIMIT 1";
const SELECT_APPLIED: &str = "SELECT version, name, checksum, compatible_from FROM schema_migrations ORDER BY version";
const INSERT_APPLIED: &str = "INSERT INTO schema_migrations (version, name, checksum, compatible_from, apply_time)
    VALUES ($1, $2, $3, $4, coalesce($5, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT))";

/// Brings the schema to the last of `migrations`, or finds it there, or newer and compatible. Answers its version before
/// and after. `connection` only looks; what is to be changed is changed on a connection of its own.
pub(super) async fn settle(
    connector: &Connector,
    connection: &mut PgConnection,
    migrations: &[Migration],
    may_migrate: bool,
    given: Option<Timestamp>,
) -> Result<SchemaVersions, OpenError> {
    let applied = match connector.answered(look(connection)).await {
        // Somebody may have made all of it while this looked at one thing and then at another. What is another program's
        // is so at a second look, too.
        Err(OpenError::Foreign { .. }) => connector.answered(look(connection)).await?,
        looked => looked?,
    };
    let known = migrations.last().map_or(0, |migration| migration.version);
    let before = version_of(&applied);
    if missing(migrations, &applied)?.is_empty() {
        return Ok(SchemaVersions { before, after: before });
    }
    let behind = |cause| OpenError::SchemaBehind { found: before, known, cause };
    if !may_migrate {
        return Err(behind(None));
    }
    let mut connection = connector.connect_to_migrate().await?;
    let migrated = migrate(&mut connection, migrations, given).await;
    // However it ended, nothing of it is left open; a farewell may take its time.
    let _ = tokio::time::timeout(Duration::from_secs(1), connection.close()).await;
    match migrated {
        Ok(versions) => Ok(versions),
        Err(Problem::Unfit(unfit)) => Err(unfit.into()),
        Err(Problem::Refused(error)) => Err(error),
        Err(Problem::Driver(error)) => Err(match code(&error).as_deref() {
            Some("42501" | "25006") => behind(Some(error.to_string())),
            Some("55P03") => OpenError::MigrationLocked { waited: PATIENCE },
            _ => error.into(),
        }),
    }
}

/// Why a migration did not come to its end.
enum Problem {
    Unfit(Unfit),
    Refused(OpenError),
    Driver(sqlx::Error),
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

async fn migrate(
    connection: &mut PgConnection,
    migrations: &[Migration],
    given: Option<Timestamp>,
) -> Result<SchemaVersions, Problem> {
    let mut transaction = connection.begin().await?;
    query(MAKE_LOCK).execute(&mut *transaction).await?;
    // Whoever was here before may have done it all.
    let applied = look(&mut transaction).await.map_err(Problem::Refused)?;
    query(CREATE_LOCK).execute(&mut *transaction).await?;
    query(INSERT_LOCK).execute(&mut *transaction).await?;
    query(LOCK).execute(&mut *transaction).await?;
    query(CREATE_SCHEMA).execute(&mut *transaction).await?;
    for migration in missing(migrations, &applied).map_err(Problem::Unfit)? {
        raw_sql(migration.sql).execute(&mut *transaction).await?;
        query(INSERT_APPLIED)
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .bind(migration.compatible_from)
            .bind(given.map(Timestamp::micros))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    let known = migrations.last().map_or(0, |migration| migration.version);
    let before = version_of(&applied);
    Ok(SchemaVersions { before, after: before.max(known) })
}

/// What has been applied, without changing anything; refuses what is another program's.
async fn look(connection: &mut PgConnection) -> Result<Vec<Applied>, OpenError> {
    let row = query(FIND_SCHEMA).fetch_one(&mut *connection).await?;
    let (found, columns): (bool, i64) = (row.try_get("found")?, row.try_get("columns")?);
    if !found {
        // Tables of other names are nobody's business here.
        let table: Option<String> = query_scalar(FIND_TABLE).bind(TABLES).fetch_optional(&mut *connection).await?;
        return match table {
            Some(table) => Err(OpenError::Foreign { table }),
            None => Ok(Vec::new()),
        };
    }
    if columns < 5 {
        return Err(OpenError::Foreign { table: "schema_migrations".to_owned() });
    }
    let mut applied = Vec::new();
    for row in query(SELECT_APPLIED).fetch_all(connection).await? {
        applied.push(Applied {
            version: row.try_get("version")?,
            name: row.try_get("name")?,
            checksum: row.try_get("checksum")?,
            compatible_from: row.try_get("compatible_from")?,
        });
    }
    Ok(applied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn migrations_are_numbered_without_gaps_and_named_by_their_number() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version, i64::try_from(index).unwrap() + 1);
            assert!(migration.name.starts_with(&format!("{:04}_", migration.version)));
            assert!(migration.compatible_from <= migration.version);
        }
    }

    #[test]
    fn every_database_has_the_same_migrations() {
        let names = |migrations: &[Migration]| migrations.iter().map(|migration| migration.name).collect::<Vec<_>>();
        assert_eq!(names(MIGRATIONS), names(crate::storage::sqlite::schema::MIGRATIONS));
    }

    #[test]
    fn every_table_that_is_made_is_known_as_ours() {
        let made: BTreeSet<&str> = MIGRATIONS
            .iter()
            .flat_map(|migration| migration.sql.lines())
            .chain([CREATE_LOCK])
            .filter_map(|line| line.strip_prefix("CREATE TABLE "))
            .filter_map(|line| line.trim_start_matches("IF NOT EXISTS ").split_whitespace().next())
            .collect();
        assert_eq!(made, TABLES.iter().copied().collect());
    }
}
