//! For measurements, and no part of the store's contract: a database for one run, and the table of the floor.

use super::PostgresOptions;
use super::connecting::Connector;
use super::refusals::OpenError;
use sqlx::{AssertSqlSafe, PgConnection, raw_sql};
use std::time::Duration;
use uuid::Uuid;

/// How long a lock is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database of its own on the server that some options name; to be removed at the end.
#[doc(hidden)]
#[derive(Debug)]
pub struct Scratch {
    connection: PgConnection,
    name: String,
    url: String,
}

impl Scratch {
    /// Makes it, as the user of the options, who has to be allowed to.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[doc(hidden)]
    pub async fn make(options: &PostgresOptions) -> Result<Self, OpenError> {
        let mut connection = connected(options).await?;
        let name = format!("countersign_bench_{}", Uuid::new_v4().simple());
        run(&mut connection, format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await?;
        let (server, query) = options.url.split_once('?').unwrap_or((&options.url, ""));
        let server = server.rsplit_once('/').map_or(server, |(server, _)| server);
        let question = if query.is_empty() { "" } else { "?" };
        let url = format!("{server}/{name}{question}{query}");
        Ok(Self { connection, name, url })
    }

    /// Where it is.
    #[doc(hidden)]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Fills the table that the floor updates, one row of it at a time.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[doc(hidden)]
    pub async fn fill_floor(&self, options: &PostgresOptions, rows: usize) -> Result<(), OpenError> {
        let options = PostgresOptions { url: self.url.clone(), ..options.clone() };
        let mut connection = connected(&options).await?;
        let fill = format!(
            "CREATE TABLE floor (id BIGINT PRIMARY KEY, used BIGINT NOT NULL);
            INSERT INTO floor SELECT id, 0 FROM generate_series(1, {rows}) AS id;
            VACUUM ANALYZE floor;"
        );
        for statement in fill.split_inclusive(';') {
            run(&mut connection, statement.to_owned()).await?;
        }
        Ok(())
    }

    /// Removes it, whoever is connected to it.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[doc(hidden)]
    pub async fn remove(mut self) -> Result<(), OpenError> {
        run(&mut self.connection, format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }
}

/// A connection whose statements take as long as they take.
async fn connected(options: &PostgresOptions) -> Result<PgConnection, OpenError> {
    Connector::of(options, PATIENCE).await?.connect_to_migrate().await
}

async fn run(connection: &mut PgConnection, statement: String) -> Result<(), OpenError> {
    let ran = raw_sql(AssertSqlSafe(statement)).execute(connection).await;
    ran.map(|_| ()).map_err(|error| OpenError::Failed { cause: error.to_string() })
}
