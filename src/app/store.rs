//! Opening whichever store the configuration names.

use super::{StartError, observe};
use crate::clock::Clock;
use crate::config::{Config, StoreSettings};
use crate::metrics::Metrics;
use crate::storage::Store;
use crate::storage::postgres::{self, PostgresStore};
use crate::storage::sqlite::{self, SqliteStore};
use std::fmt;
use std::sync::Arc;

/// Why the database was not opened. Each is to be shown to whoever starts the process, as it is.
#[derive(Debug)]
pub enum OpenError {
    /// The file.
    Sqlite(sqlite::OpenError),
    /// The server's database.
    Postgres(postgres::OpenError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(error) => error.fmt(formatter),
            Self::Postgres(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for OpenError {}

/// The store, counted. A file's time is the process's clock; a server has a clock of its own.
pub(super) async fn open(
    config: &Config,
    clock: Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Store>, StartError> {
    match &config.store {
        StoreSettings::Sqlite(settings) => {
            let opened = SqliteStore::open(settings.options(clock)).await;
            let store = opened.map_err(|error| StartError::Open(OpenError::Sqlite(error)))?;
            Ok(observe::metered(store, metrics))
        }
        StoreSettings::Postgres(settings) => {
            let opened = PostgresStore::open(settings.options()).await;
            let store = opened.map_err(|error| StartError::Open(OpenError::Postgres(error)))?;
            Ok(observe::metered(store, metrics))
        }
    }
}
