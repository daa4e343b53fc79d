//! Which database the sidecar works on, and the secrets that go with it.

use super::postgres::{self, PostgresSettings, PostgresTable};
use super::{Overrides, bounded, span, url};
use crate::storage::sqlite::SqliteOptions;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The database where nothing is said.
const DATABASE: &str = "countersign.db";
/// A rotation has two secrets; this many are a rotation that is never finished.
const FURTHER_SECRETS: usize = 15;

/// `[store]` as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StoreSection {
    sqlite: Option<PathBuf>,
    postgres: Option<PostgresTable>,
    secret_file: Option<PathBuf>,
    further_secret_files: Option<Vec<PathBuf>>,
    accept_clock: Option<bool>,
    readers: Option<u32>,
    acquire_timeout: Option<String>,
    statement_timeout: Option<String>,
}

/// The database.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// A file, of this process alone.
    Sqlite(SqliteSettings),
    /// A server, which many sidecars may share.
    Postgres(PostgresSettings),
}

/// The database file's settings; its clock is added when it is opened.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// The database file.
    pub path: PathBuf,
    /// Whether a newest committed time far ahead of the clock is accepted.
    pub accept_clock: bool,
    /// Connections that read.
    pub readers: u32,
    /// How long a read may wait for one.
    pub acquire_timeout: Duration,
    /// How long a statement may take.
    pub statement_timeout: Duration,
}

/// The database and its secrets.
pub(super) struct Resolved {
    pub(super) settings: StoreSettings,
    pub(super) secret_file: PathBuf,
    pub(super) further_secret_files: Vec<PathBuf>,
}

/// What the file, the environment and flags say together.
pub(super) fn resolve(
    section: StoreSection,
    folder: &Path,
    overrides: &Overrides,
    problems: &mut Vec<String>,
) -> Resolved {
    let spans = (Duration::from_millis(1), Duration::from_secs(60));
    let seconds = Duration::from_secs;
    let timeouts = (
        span("store.acquire_timeout", section.acquire_timeout, seconds(2), spans, problems),
        span("store.statement_timeout", section.statement_timeout, seconds(5), spans, problems),
    );
    let sqlite = match (&overrides.sqlite, section.sqlite) {
        (Some(path), _) => Some(path.clone()),
        (None, path) => path.map(|path| folder.join(path)),
    };
    let sqlite = match sqlite {
        Some(path) if is_url(&path, folder) => {
            problems.push("store.sqlite: is a file: a Postgres database is named by `store.postgres.url`".to_owned());
            None
        }
        said => said,
    };
    let readers = section.readers;
    let accept_clock = overrides.accept_clock.or(section.accept_clock);
    let on_postgres = overrides.postgres.is_some() || section.postgres.is_some();
    let settings = if on_postgres {
        if sqlite.is_some() {
            problems.push(
                "store: a database file (sqlite) and a Postgres database are both said, in the file, the environment or \
                 flags: name one of them"
                    .to_owned(),
            );
        }
        for (key, said) in [("accept_clock", accept_clock.is_some()), ("readers", readers.is_some())] {
            if said {
                problems.push(format!("store.{key}: is for a database file: with Postgres it means nothing"));
            }
        }
        StoreSettings::Postgres(postgres::resolve(section.postgres, folder, overrides, timeouts, problems))
    } else {
        if overrides.postgres_password_file.is_some() {
            let what = "store.postgres.url: is missing, though --postgres-password-file is said";
            problems.push(format!("{what} (COUNTERSIGN_POSTGRES_PASSWORD_FILE)"));
        }
        StoreSettings::Sqlite(SqliteSettings {
            path: sqlite.unwrap_or_else(|| folder.join(DATABASE)),
            accept_clock: accept_clock.unwrap_or(false),
            readers: bounded("store.readers", readers, 4, 1, 64, problems),
            acquire_timeout: timeouts.0,
            statement_timeout: timeouts.1,
        })
    };
    let secret_file = match (&overrides.secret_file, section.secret_file, &settings) {
        (Some(secret), ..) => secret.clone(),
        (None, Some(secret), _) => folder.join(secret),
        (None, None, StoreSettings::Sqlite(sqlite)) => beside(&sqlite.path, "secret"),
        (None, None, StoreSettings::Postgres(_)) => {
            if !overrides.without_secrets {
                problems.push(
                    "store.secret_file: is required with Postgres, since every sidecar has the same one: make it once with \
                     `countersign secret new --out FILE`, and copy it to each"
                        .to_owned(),
                );
            }
            PathBuf::new()
        }
    };
    let further_secret_files: Vec<PathBuf> = match (&overrides.further_secret_files, section.further_secret_files) {
        (Some(files), _) => files.clone(),
        (None, files) => files.unwrap_or_default().iter().map(|path| folder.join(path)).collect(),
    };
    if further_secret_files.len() > FURTHER_SECRETS {
        let count = further_secret_files.len();
        problems.push(format!("store.further_secret_files: {count} are more than {FURTHER_SECRETS}"));
    }
    Resolved { settings, secret_file, further_secret_files }
}

/// Whether somebody meant a database server by this path. Such a path may hold a password, and is repeated nowhere.
fn is_url(path: &Path, folder: &Path) -> bool {
    let said = path.strip_prefix(folder).unwrap_or(path);
    url::is_one(&said.to_string_lossy())
}

impl StoreSettings {
    /// The database file's settings, where it is one.
    pub const fn sqlite(&self) -> Option<&SqliteSettings> {
        match self {
            Self::Sqlite(settings) => Some(settings),
            Self::Postgres(_) => None,
        }
    }

    /// The same, to be changed.
    pub const fn sqlite_mut(&mut self) -> Option<&mut SqliteSettings> {
        match self {
            Self::Sqlite(settings) => Some(settings),
            Self::Postgres(_) => None,
        }
    }
}

impl SqliteSettings {
    /// The settings of a database at `path`, as they are where nothing is said.
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            accept_clock: false,
            readers: 4,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
        }
    }

    /// What the store is opened with.
    pub fn options(&self, clock: std::sync::Arc<dyn crate::clock::Clock>) -> SqliteOptions {
        SqliteOptions {
            accept_clock: self.accept_clock,
            readers: self.readers,
            acquire_timeout: self.acquire_timeout,
            statement_timeout: self.statement_timeout,
            ..SqliteOptions::new(self.path.clone(), clock)
        }
    }
}

/// The file beside `path` with `extension` added to its name.
pub fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}
