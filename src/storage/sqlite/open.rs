//! Opening the file: who holds it, whose it is, whether this binary can serve it, and whether its times make sense.

use super::schema;
use crate::domain::time::Timestamp;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection, query};
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far the newest committed time may be ahead of the wall clock. Clocks of one machine over a restart differ by less.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The pages of a database that the writer keeps in memory, in KiB.
const WRITER_CACHE_KIB: u32 = 10 * 1024;
/// The same for each reader: reads are of few rows, and the operating system caches the file.
const READER_CACHE_KIB: u32 = 4 * 1024;
/// How long a statement waits for a lock of SQLite's own: only tools beside this process ever hold one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a held lock is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(25);

/// The newest time that was committed: every write stamps one of these rows with its time.
pub(super) const NEWEST: &str = "SELECT max(time) FROM (
    SELECT (SELECT time FROM audit_records ORDER BY position DESC LIMIT 1) AS time
    UNION ALL SELECT (SELECT create_time FROM approvals ORDER BY rowid DESC LIMIT 1)
    UNION ALL SELECT (SELECT start_time FROM executions ORDER BY rowid DESC LIMIT 1)
    UNION ALL SELECT (SELECT max(create_time) FROM keys)
    UNION ALL SELECT (SELECT max(apply_time) FROM schema_migrations)
)";

/// Why the database was not opened. Each is to be shown to whoever starts the process, as it is.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    Locked {
        /// The database.
        path: PathBuf,
        /// That process, if it said who it is.
        holder: Option<u32>,
    },
    /// The directory that the database should be in does not exist.
    DirectoryMissing {
        /// That directory.
        directory: PathBuf,
    },
    /// The database, its lock file, or the directory cannot be written.
    NotWritable {
        /// What cannot be written.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is no SQLite database.
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is another program's database. Nothing was written to it.
    Foreign {
        /// The file.
        path: PathBuf,
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
    /// The newest committed time is far ahead of the wall clock: one of the two is wrong.
    ClockBehind {
        /// The newest committed time.
        newest: Timestamp,
        /// The wall clock.
        wall: Timestamp,
    },
    /// The database is damaged.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the driver said.
        cause: String,
    },
    /// Anything else.
    Failed {
        /// The file.
        path: PathBuf,
        /// What the driver said.
        cause: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path, holder: Some(pid) } => {
                write!(formatter, "the database {} is in use by process {pid}", path.display())
            }
            Self::Locked { path, holder: None } => {
                write!(formatter, "the database {} is in use by another process", path.display())
            }
            Self::DirectoryMissing { directory } => {
                write!(formatter, "the directory {} does not exist", directory.display())
            }
            Self::NotWritable { path, cause } => write!(formatter, "{} cannot be written: {cause}", path.display()),
            Self::NotADatabase { path } => write!(formatter, "{} is not a database", path.display()),
            Self::Foreign { path } => {
                write!(formatter, "{} is the database of another program; it was left as it is", path.display())
            }
            Self::SchemaNewer { found, compatible_from, known } => write!(
                formatter,
                "the database has schema {found}, which needs a binary that knows schema {compatible_from}; this one \
                 knows {known}"
            ),
            Self::MigrationChanged { version, name } => {
                write!(formatter, "migration {version} ({name}) was applied in another form than this binary knows")
            }
            Self::ClockBehind { newest, wall } => write!(
                formatter,
                "the newest committed time is {newest}, the clock says {wall}: set the clock right, or start with \
                 --accept-clock to go on from the committed time"
            ),
            Self::Corrupt { path, cause } => write!(formatter, "the database {} is damaged: {cause}", path.display()),
            Self::Failed { path, cause } => {
                write!(formatter, "the database {} could not be opened: {cause}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// What an error of the driver means while opening.
    pub(super) fn of(error: &sqlx::Error, path: &Path) -> Self {
        let path = path.to_owned();
        let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<u32>().ok());
        // The low byte is SQLite's primary result code.
        match code.map(|code| code & 0xff) {
            Some(26) => Self::NotADatabase { path },
            Some(11) => Self::Corrupt { path, cause: error.to_string() },
            Some(8 | 14) => Self::NotWritable { path, cause: std::io::Error::other(error.to_string()) },
            _ => Self::Failed { path, cause: error.to_string() },
        }
    }
}

/// The right to be the one process that has the database open; it ends with this value, at the latest with the process.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
    /// The database itself, locked beside SQLite's own locks (which are of another kind): whatever other name it has (a hard
    /// link, a mount), its lock is the same. Kept open to the end, since closing it would give up SQLite's locks too.
    _database: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The name of who held it helps nobody afterwards; the file stays, since whoever waits for it has it open.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Finds the one name of the database, makes the file if there is none (readable and writable for its owner alone), and
/// takes the lock beside it, waiting for at most `patience`.
pub(super) async fn lock(path: &Path, patience: Duration) -> Result<(PathBuf, FileLock), OpenError> {
    let name = path.file_name().ok_or_else(|| OpenError::NotADatabase { path: path.to_owned() })?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    if !directory.is_dir() {
        return Err(OpenError::DirectoryMissing { directory: directory.to_owned() });
    }
    let not_writable = |path: &Path| {
        let path = path.to_owned();
        move |cause| OpenError::NotWritable { path, cause }
    };
    let path = directory.canonicalize().map_err(not_writable(directory))?.join(name);
    let opened = private(OpenOptions::new().read(true).write(true).create(true)).open(&path);
    let database = opened.map_err(not_writable(&path))?;
    if database.metadata().is_ok_and(|found| found.nlink() > 1) {
        // SQLite's log stands beside the name: under another name what is in it would not be seen.
        let cause = std::io::Error::other("the file has another name (a hard link): remove one of them");
        return Err(OpenError::NotWritable { path, cause });
    }
    // Two names of one file (a link) must not have two locks.
    let path = path.canonicalize().map_err(not_writable(&path))?;
    let mut beside = path.clone().into_os_string();
    beside.push(".lock");
    let beside = PathBuf::from(beside);
    if std::fs::symlink_metadata(&beside).is_ok_and(|found| found.is_symlink()) {
        // What is written into the lock would be written into whatever the link names.
        let cause = std::io::Error::other("it is a link");
        return Err(OpenError::NotWritable { path: beside, cause });
    }
    let mut file =
        private(OpenOptions::new().read(true).write(true).create(true)).open(&beside).map_err(not_writable(&beside))?;
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock().and_then(|()| database.try_lock()) {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if waited < patience => {
                tokio::time::sleep(LOCK_RETRY).await;
                waited = waited.saturating_add(LOCK_RETRY);
            }
            Err(TryLockError::WouldBlock) => return Err(OpenError::Locked { holder: holder(&mut file), path }),
            Err(TryLockError::Error(cause)) => return Err(OpenError::NotWritable { path: beside, cause }),
        }
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| writeln!(file, "{}", std::process::id()));
    written.map_err(not_writable(&beside))?;
    Ok((path, FileLock { file, _database: database }))
}

/// How the writer connects.
pub(super) fn writer_options(path: &Path) -> SqliteConnectOptions {
    common_options(path, WRITER_CACHE_KIB)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // Where an ordinary sync stops at the drive's cache, and only there, this one does not.
        .pragma("fullfsync", "ON")
        .pragma("checkpoint_fullfsync", "ON")
        // What many statements of one text answer is collected at its end: nothing of it is waited for.
        .row_buffer_size(1_024)
        // See `checkpoints`.
        .pragma("wal_autocheckpoint", "0")
        // After a burst the log is cut down to this again.
        .pragma("journal_size_limit", "67108864")
}

/// How a reader connects: it cannot write, whatever it is told.
pub(super) fn reader_options(path: &Path) -> SqliteConnectOptions {
    common_options(path, READER_CACHE_KIB).read_only(true).pragma("query_only", "ON")
}

/// Looks at a file before anything of it is changed.
pub(super) async fn look(path: &Path) -> Result<(), OpenError> {
    match look_with(reader_options(path), path).await {
        // What a crash left half done in it has to be undone before it can be read.
        Err(OpenError::NotWritable { .. }) => look_with(common_options(path, READER_CACHE_KIB), path).await,
        looked => looked,
    }
}

async fn look_with(options: SqliteConnectOptions, path: &Path) -> Result<(), OpenError> {
    let fault = |error| OpenError::of(&error, path);
    let mut connection = options.connect().await.map_err(fault)?;
    let looked = schema::refuse_foreign(&mut connection, path).await;
    connection.close().await.map_err(fault)?;
    looked
}

/// The newest time that was committed: every write stamps at least one of these rows with its time.
pub(super) async fn newest_time(connection: &mut SqliteConnection) -> Result<Timestamp, sqlx::Error> {
    let newest: Option<i64> = query(NEWEST).fetch_one(connection).await?.try_get(0)?;
    Ok(Timestamp::from_micros(newest.unwrap_or(0)))
}

fn common_options(path: &Path, cache_kib: u32) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("trusted_schema", "OFF")
        .pragma("cell_size_check", "ON")
        .pragma("cache_size", format!("-{cache_kib}"))
        // Statements are ours and fixed; what is slow shows in the durations of the operations.
        .disable_statement_logging()
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.truncate(false)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    // A pid has few digits: whatever else is in the file is not read to its end.
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
