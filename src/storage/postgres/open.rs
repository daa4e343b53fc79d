//! Opening the database: whether it can be served, and how connections to it are made.

use super::table::Table;
use super::telling::Teller;
use super::time::TableTime;
use crate::clock::Clock;
use crate::domain::time::Timestamp;
use crate::storage::SchemaVersions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// How a connection is secured, as `sslmode` says it; see the database's own documentation of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// If the server can, without looking whose certificate it has.
    Prefer,
    /// Always, without looking whose certificate it has.
    Require,
    /// Always, with a certificate of an authority that is trusted.
    VerifyCa,
    /// Always, with such a certificate for the very host. Default.
    #[default]
    VerifyFull,
}

/// How a Postgres store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where it is: `postgres://USER@HOST:PORT/DATABASE`, without a password; a host that begins with a slash
    /// (percent-encoded) is the folder of a Unix socket.
    pub url: String,
    /// The password, if the server wants one.
    pub password: Option<Zeroizing<String>>,
    /// The file of the password, if it is in one.
    pub password_file: Option<PathBuf>,
    /// How connections are secured. Default: [`TlsMode::VerifyFull`]; of no meaning on a Unix socket.
    pub tls: TlsMode,
    /// The certificates (PEM) that the server's must lead to; none: those of public authorities.
    pub root_certificate: Option<PathBuf>,
    /// The certificate and the key (PEM) that this client shows.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Connections at most, beside one that listens. Default: 8.
    pub connections: u32,
    /// How long an operation waits for a connection, and a connection for the server. Default: 2 s.
    pub acquire_timeout: Duration,
    /// How long a statement may take. Default: 5 s.
    pub statement_timeout: Duration,
    /// How often changes of other sidecars are looked for, whatever they tell. Default: 1 s.
    pub poll_every: Duration,
    /// Whether to bring the schema up to date. Default: yes.
    pub migrate: bool,
    /// Whether sidecars tell each other of changes. Default: yes.
    pub notify: bool,
    /// What takes the place of the database's clock. For tests: no configuration sets it.
    pub clock: Option<Arc<dyn Clock>>,
}

impl PostgresOptions {
    /// The defaults for the database at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            password_file: None,
            tls: TlsMode::default(),
            root_certificate: None,
            client_certificate: None,
            connections: 8,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            poll_every: Duration::from_secs(1),
            migrate: true,
            notify: true,
            clock: None,
        }
    }
}

/// Without the password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PostgresOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why the database was not opened. Each is to be shown to whoever starts the process, as it is.
#[derive(Debug)]
pub enum OpenError {
    /// Anything else.
    Failed {
        /// What the driver said.
        cause: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { cause } => write!(formatter, "the database could not be opened: {cause}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Opens the database behind `options`.
pub(super) async fn open(options: PostgresOptions) -> Result<(Table, SchemaVersions), OpenError> {
    let failed = |error: sqlx::Error| OpenError::Failed { cause: error.to_string() };
    let connect = PgConnectOptions::from_str(&options.url).map_err(failed)?;
    let pool = PgPoolOptions::new().max_connections(options.connections).connect_lazy_with(connect);
    let schema = super::schema::migrate(&mut *pool.acquire().await.map_err(failed)?).await.map_err(failed)?;
    let time = TableTime::since(Timestamp::from_micros(0), options.clock);
    Ok((Table::new(pool, time, Teller::default(), options.statement_timeout), schema))
}
