//! Opening the database: whether it can be served as every promise needs it.

use super::connecting::Connector;
use super::options::PostgresOptions;
use super::pool::Pool;
use super::refusals::OpenError;
use super::schema;
use super::table::Table;
use super::telling::{Teller, TellerSettings};
use super::time::TableTime;
use crate::domain::time::Timestamp;
use crate::storage::SchemaVersions;
use sqlx::{Connection as _, PgConnection, Row as _, query, query_scalar, raw_sql};
use std::sync::Arc;
use std::time::Duration;

/// The oldest server whose functions the schema is made of.
const OLDEST: i64 = 140_000;
/// How often two connections are compared.
const COMPARISONS: usize = 3;

/// What must be known of a server and of a session. Every one of them can be asked of any server.
const LOOK: &str = "SELECT current_setting('server_version_num')::BIGINT AS version,
        current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS standby,
        current_setting('transaction_read_only') = 'on' AS read_only,
        -- What sessions begin with: ours never go on with `off`.
        (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
        current_schema()::TEXT AS schema";
const PID: &str = "SELECT pg_backend_pid() AS pid";
const NOW: &str = "SELECT store_now($1)";

/// Opens the database behind `options`: for everything, and over a connection of its own for what must not wait for others.
pub(super) async fn open(options: PostgresOptions) -> Result<(Table, Table, SchemaVersions), OpenError> {
    let connector = Arc::new(Connector::of(&options, schema::PATIENCE).await?);
    let mut first = connector.connect_first().await?;
    let mut second = connector.connect_first().await?;
    connector.answered(refuse_transaction_pooling(&mut first, &mut second)).await?;
    goodbye(second).await;
    let schema_name = connector.answered(look(&mut first)).await?;
    let given = options.clock.as_ref().map(|clock| clock.wall());
    let versions = schema::settle(&connector, &mut first, schema::MIGRATIONS, options.migrate, given).await?;
    let now = connector.answered(now(&mut first, given)).await?;
    goodbye(first).await;
    let time = Arc::new(TableTime::since(now, options.clock));
    let pool = Pool::new(Arc::clone(&connector), options.connections, options.acquire_timeout);
    let own = Pool::new(Arc::clone(&connector), 1, options.acquire_timeout);
    let teller = Teller::start(TellerSettings {
        connector,
        time: Arc::clone(&time),
        schema: schema_name,
        timeout: options.acquire_timeout,
        statement_timeout: options.statement_timeout,
        poll_every: options.poll_every,
        notify: options.notify,
    });
    let table = Table::new(pool, time, teller, options.statement_timeout);
    let own = table.over(own);
    Ok((table, own, versions))
}

/// Whether the server and this role's sessions are as they must be. Answers the schema that our tables are in.
async fn look(connection: &mut PgConnection) -> Result<String, OpenError> {
    let row = query(LOOK).fetch_one(connection).await?;
    let version: i64 = row.try_get("version")?;
    if version < OLDEST {
        return Err(OpenError::OldServer { version });
    }
    let encoding: String = row.try_get("encoding")?;
    if encoding != "UTF8" {
        return Err(OpenError::NotUtf8 { encoding });
    }
    let (standby, read_only): (bool, bool) = (row.try_get("standby")?, row.try_get("read_only")?);
    if standby || read_only {
        return Err(OpenError::ReadOnly { standby });
    }
    let synchronous: String = row.try_get("synchronous_commit")?;
    if synchronous == "off" {
        return Err(OpenError::NotDurable);
    }
    let fsync: String = row.try_get("fsync")?;
    if fsync == "off" {
        tracing::warn!("fsync is off at the database's server: whatever was decided is lost with its power");
    }
    let schema: Option<String> = row.try_get("schema")?;
    schema.ok_or(OpenError::NoSchema)
}

/// Two connections that are one, or one that is several: between transactions, something gives them to others.
async fn refuse_transaction_pooling(first: &mut PgConnection, second: &mut PgConnection) -> Result<(), OpenError> {
    let mut seen = None;
    for round in 0..COMPARISONS {
        // Not in turns alone: two that are given out in turns would look like one each.
        let pids = match round % 2 {
            0 => (pid(first).await?, pid(second).await?),
            _ => {
                let second = pid(second).await?;
                (pid(first).await?, second)
            }
        };
        if pids.0 == pids.1 || *seen.get_or_insert(pids) != pids {
            return Err(OpenError::TransactionPooling);
        }
    }
    Ok(())
}

/// Which process of the server answers. Not prepared, since that is what fails first there.
async fn pid(connection: &mut PgConnection) -> Result<i32, OpenError> {
    Ok(raw_sql(PID).fetch_one(connection).await?.try_get("pid")?)
}

async fn now(connection: &mut PgConnection, given: Option<Timestamp>) -> Result<Timestamp, OpenError> {
    let now: i64 = query_scalar(NOW).bind(given.map(Timestamp::micros)).fetch_one(connection).await?;
    Ok(Timestamp::from_micros(now))
}

/// A farewell that may take its time.
async fn goodbye(connection: PgConnection) {
    let _ = tokio::time::timeout(Duration::from_secs(1), connection.close()).await;
}
