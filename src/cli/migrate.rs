//! `countersign migrate`: brings the database to this binary's schema, and says from where to where.

use super::exit::Exit;
use super::serve::PostgresFlags;
use super::{remote, terminal};
use crate::clock::SystemClock;
use crate::config::{Config, Overrides, PostgresSettings, StoreSettings};
use crate::storage::postgres::PostgresStore;
use crate::storage::sqlite::SqliteStore;
use crate::storage::{SchemaVersions, Store as _};
use clap::Args;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What `migrate` is told.
#[derive(Args, Debug)]
pub(super) struct MigrateCommand {
    /// The configuration file (TOML) that names the database.
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_CONFIG")]
    config: Option<PathBuf>,
    /// The database file [default: countersign.db].
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_SQLITE")]
    sqlite: Option<PathBuf>,
    #[command(flatten)]
    postgres: PostgresFlags,
    /// Go on though the newest committed time is far ahead of the clock.
    #[arg(long, env = "COUNTERSIGN_ACCEPT_CLOCK", num_args = 0..=1, default_missing_value = "true")]
    accept_clock: Option<bool>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Opens the database as `serve` does, under its lock, and closes it again. A Postgres database is migrated whatever the
/// configuration says: so it can be left to this command, under a role that may.
pub(super) fn run(command: &MigrateCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let overrides = command.postgres.over(Overrides {
        sqlite: command.sqlite.clone(),
        accept_clock: command.accept_clock,
        without_secrets: true,
        ..Overrides::default()
    });
    let settings = match Config::load(command.config.as_deref(), &overrides) {
        Ok(config) => config.store,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(Exit::Unreachable);
        }
    };
    let (schema, path) = match remote::block_on(migrated(settings))? {
        Ok(migrated) => migrated,
        Err(problem) => {
            writeln!(err, "{problem}")?;
            return Ok(Exit::Unreachable);
        }
    };
    let shown = terminal::safe(&path);
    if command.json {
        let answer = json!({ "database": path, "schema_before": schema.before, "schema_after": schema.after });
        writeln!(out, "{}", terminal::json(&answer))?;
    } else if schema.before == schema.after {
        writeln!(out, "{shown}: schema {}, nothing to do", schema.after)?;
    } else {
        writeln!(out, "{shown}: schema {} -> {}", schema.before, schema.after)?;
    }
    Ok(Exit::Done)
}

/// The schema before and after, and which database that is.
async fn migrated(settings: StoreSettings) -> Result<(SchemaVersions, String), String> {
    match settings {
        StoreSettings::Sqlite(settings) => {
            let store = SqliteStore::open(settings.options(Arc::new(SystemClock::new()))).await;
            let store = store.map_err(|problem| problem.to_string())?;
            let schema = store.schema();
            store.close().await;
            Ok((schema, settings.path.display().to_string()))
        }
        StoreSettings::Postgres(settings) => {
            let settings = PostgresSettings { migrate: true, notify: false, ..settings };
            let store = PostgresStore::open(settings.options()).await.map_err(|problem| problem.to_string())?;
            let schema = store.schema();
            store.close().await;
            Ok((schema, settings.place().unwrap_or_default()))
        }
    }
}
