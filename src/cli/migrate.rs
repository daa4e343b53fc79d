//! `countersign migrate`: brings the database to this binary's schema, and says from where to where.

use super::exit::Exit;
use super::{remote, terminal};
use crate::clock::SystemClock;
use crate::config::{Config, Overrides};
use crate::storage::Store as _;
use crate::storage::sqlite::SqliteStore;
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
    /// Go on though the newest committed time is far ahead of the clock.
    #[arg(long, env = "COUNTERSIGN_ACCEPT_CLOCK", num_args = 0..=1, default_missing_value = "true")]
    accept_clock: Option<bool>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Opens the database as `serve` does, under its lock, and closes it again.
pub(super) fn run(command: &MigrateCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let overrides =
        Overrides { sqlite: command.sqlite.clone(), accept_clock: command.accept_clock, ..Overrides::default() };
    let settings = match Config::load(command.config.as_deref(), &overrides) {
        Ok(config) => config.sqlite,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(Exit::Unreachable);
        }
    };
    let opened = remote::block_on(async {
        let store = SqliteStore::open(settings.options(Arc::new(SystemClock::new()))).await?;
        let schema = store.schema();
        store.close().await;
        Ok::<_, crate::storage::sqlite::OpenError>(schema)
    })?;
    let schema = match opened {
        Ok(schema) => schema,
        Err(problem) => {
            writeln!(err, "{problem}")?;
            return Ok(Exit::Unreachable);
        }
    };
    let path = settings.path.display();
    if command.json {
        let answer =
            json!({ "database": path.to_string(), "schema_before": schema.before, "schema_after": schema.after });
        writeln!(out, "{}", terminal::json(&answer))?;
    } else if schema.before == schema.after {
        writeln!(out, "{path}: schema {}, nothing to do", schema.after)?;
    } else {
        writeln!(out, "{path}: schema {} -> {}", schema.before, schema.after)?;
    }
    Ok(Exit::Done)
}
