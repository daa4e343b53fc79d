//! Why a database is not served, each with what to do about it.

use crate::storage::migrations::Unfit;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why the database was not opened. Each is to be shown to whoever starts the process, as it is: no password is in it.
#[derive(Debug)]
pub enum OpenError {
    /// The url, or another setting, cannot be used.
    Settings {
        /// What is wrong with it, and what to write instead.
        problem: String,
    },
    /// Something in this process's environment would have the driver connect in another way than configured.
    Environment {
        /// The name of the variable.
        variable: &'static str,
    },
    /// A file that is named in the settings cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Nobody answers there, or not in time.
    Unreachable {
        /// Where.
        place: String,
        /// What the driver said.
        cause: String,
    },
    /// The server does not let this user in.
    Refused {
        /// The user.
        user: String,
        /// What the server said.
        cause: String,
    },
    /// The server has no such database, or none that this user may connect to.
    NoSuchDatabase {
        /// The database.
        database: String,
        /// What the server said.
        cause: String,
    },
    /// The connection cannot be secured as it has to be.
    NotSecure {
        /// Where.
        place: String,
        /// What the driver said.
        cause: String,
    },
    /// The server is too old.
    OldServer {
        /// Its version, as a number: 130004 is 13.4.
        version: i64,
    },
    /// The database keeps text in another encoding than UTF-8.
    NotUtf8 {
        /// Its encoding.
        encoding: String,
    },
    /// The server, or this user's sessions, only read.
    ReadOnly {
        /// Whether the server follows another one.
        standby: bool,
    },
    /// The server acknowledges commits before they are safe.
    NotDurable,
    /// Between this process and the database, something hands a connection to another session after each transaction.
    TransactionPooling,
    /// No schema that this user's search path names exists.
    NoSchema,
    /// A table of ours is there, and its migrations are not: it is another program's. Nothing was written.
    Foreign {
        /// The table.
        table: String,
    },
    /// The schema is older than this binary, which may not or was not to change it.
    SchemaBehind {
        /// The schema's version.
        found: i64,
        /// The version of this binary.
        known: i64,
        /// What the server said; none if nothing was tried.
        cause: Option<String>,
    },
    /// A newer binary has changed the schema in a way that this one cannot serve.
    SchemaNewer {
        /// The schema's version.
        found: i64,
        /// The lowest version of a binary that can serve it.
        compatible_from: i64,
        /// The version of this binary.
        known: i64,
    },
    /// A migration that was applied is not the one of this binary.
    MigrationChanged {
        /// Its number.
        version: i64,
        /// Its name as it was applied.
        name: String,
    },
    /// Another process holds the lock of the migrations.
    MigrationLocked {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Anything else.
    Failed {
        /// What the driver said.
        cause: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings { problem } => write!(formatter, "the database's settings: {problem}"),
            Self::Environment { variable } => write!(
                formatter,
                "{variable} is set, and the database is to be reached as configured and in no other way: unset it"
            ),
            Self::Unreadable { path, cause } => write!(formatter, "{} cannot be read: {cause}", path.display()),
            Self::Unreachable { place, cause } => {
                write!(formatter, "the database at {place} does not answer: {cause}")
            }
            Self::Refused { user, cause } => write!(
                formatter,
                "the database does not let \"{user}\" in ({cause}): check the user, the password's file and the \
                 server's pg_hba.conf"
            ),
            Self::NoSuchDatabase { database, cause } => write!(
                formatter,
                "there is no database \"{database}\" to connect to ({cause}): create it, or grant CONNECT on it"
            ),
            Self::NotSecure { place, cause } => write!(
                formatter,
                "the connection to {place} cannot be secured as it has to be ({cause}): give the certificate of the \
                 server's authority, or another sslmode if its network is trusted"
            ),
            Self::OldServer { version } => write!(
                formatter,
                "the server has version {}.{}; this binary needs 14 or later",
                version / 10_000,
                version % 10_000
            ),
            Self::NotUtf8 { encoding } => write!(
                formatter,
                "the database keeps text as {encoding}, which has no room for every character: create one with \
                 ENCODING 'UTF8'"
            ),
            Self::ReadOnly { standby: true } => {
                formatter.write_str("the server is a standby and takes no writes: name the primary")
            }
            Self::ReadOnly { standby: false } => formatter.write_str(
                "transactions are read-only here: set default_transaction_read_only to off for this role and database",
            ),
            Self::NotDurable => formatter.write_str(
                "synchronous_commit is off: a crash of the server would lose decisions that were acknowledged. \
                 ALTER ROLE ... SET synchronous_commit = on",
            ),
            Self::TransactionPooling => formatter.write_str(
                "a proxy in between hands one connection of the database to several sessions (transaction or statement \
                 pooling), in which prepared statements, time-outs and LISTEN do not hold: name the database itself, \
                 or a pool in session mode",
            ),
            Self::NoSchema => formatter.write_str(
                "no schema of this role's search_path exists: create one, or ALTER ROLE ... SET search_path",
            ),
            Self::Foreign { table } => write!(
                formatter,
                "the table \"{table}\" is another program's; it was left as it is. Give Countersign a database or a \
                 schema of its own"
            ),
            Self::SchemaBehind { found, known, cause } => {
                write!(
                    formatter,
                    "the database has schema {found}, this binary needs {known}, and does not bring it there"
                )?;
                if let Some(cause) = cause {
                    write!(formatter, " ({cause})")?;
                }
                formatter.write_str(": run `countersign migrate` with a role that may create tables")
            }
            Self::SchemaNewer { found, compatible_from, known } => write!(
                formatter,
                "the database has schema {found}, which needs a binary that knows schema {compatible_from}; this one \
                 knows {known}"
            ),
            Self::MigrationChanged { version, name } => {
                write!(formatter, "migration {version} ({name}) was applied in another form than this binary knows")
            }
            Self::MigrationLocked { waited } => write!(
                formatter,
                "another process has been migrating the database, or has held a lock on it, for {} s: see what it \
                 does in pg_stat_activity, then start again",
                waited.as_secs()
            ),
            Self::Failed { cause } => write!(formatter, "the database could not be opened: {cause}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Unfit> for OpenError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Newer { found, compatible_from, known } => Self::SchemaNewer { found, compatible_from, known },
            Unfit::Changed { version, name } => Self::MigrationChanged { version, name },
        }
    }
}

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed { cause: error.to_string() }
    }
}
