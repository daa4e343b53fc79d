//! The table of many sidecars: `[store.postgres]`, and what the environment and flags say over it. A password stands in none
//! of them but a file of its own or one variable of the environment, and no problem repeats what may hold one.

use super::hidden::Hidden;
use super::url::{self, Location};
use super::{Overrides, bounded, span};
use crate::clock::Clock;
use crate::storage::postgres::{PostgresOptions, TlsMode};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toml::Value;
use zeroize::Zeroizing;

/// The database's settings.
#[derive(Clone)]
pub struct PostgresSettings {
    /// `postgres://USER@HOST:PORT/DATABASE`, without a password.
    pub url: String,
    /// The password, if the environment says it.
    pub password: Option<Zeroizing<String>>,
    /// The file of the password.
    pub password_file: Option<PathBuf>,
    /// How connections are secured. Default: `verify-full`.
    pub tls: TlsMode,
    /// Certificates (PEM) of authorities that are trusted beside the public ones.
    pub root_certificate: Option<PathBuf>,
    /// The certificate and the key (PEM) that this client shows.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Connections at most, beside one that listens and one that tells; 1 to 64. Default: 8.
    pub connections: u32,
    /// How long an operation may wait for one. Default: 2 s.
    pub acquire_timeout: Duration,
    /// How long a statement may take. Default: 5 s.
    pub statement_timeout: Duration,
    /// How often changes of other sidecars are looked for; 50 ms to 10 s. Default: 1 s.
    pub poll_every: Duration,
    /// Whether the schema is brought up to date at the start. Default: yes.
    pub migrate: bool,
    /// Whether sidecars tell each other of changes, so that none waits for its next look. Default: yes.
    pub notify: bool,
    /// What takes the place of the database's clock. No configuration sets it: tests do.
    pub clock: Option<Arc<dyn Clock>>,
}

impl PostgresSettings {
    /// The keys of `[store.postgres]`, and what each is.
    pub const KEYS: [(&str, &str); 10] = [
        ("url", "a text"),
        ("password_file", "a text"),
        ("tls", "a text"),
        ("root_certificate_file", "a text"),
        ("client_certificate_file", "a text"),
        ("client_key_file", "a text"),
        ("connections", "a number"),
        ("poll_every", "a text"),
        ("migrate", "true or false"),
        ("notify", "true or false"),
    ];

    /// The settings of the database at `url`, as they are where nothing is said.
    pub fn at(url: impl Into<String>) -> Self {
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

    /// What the store is opened with.
    pub fn options(&self) -> PostgresOptions {
        PostgresOptions {
            password: self.password.clone(),
            password_file: self.password_file.clone(),
            tls: self.tls,
            root_certificate: self.root_certificate.clone(),
            client_certificate: self.client_certificate.clone(),
            connections: self.connections,
            acquire_timeout: self.acquire_timeout,
            statement_timeout: self.statement_timeout,
            poll_every: self.poll_every,
            migrate: self.migrate,
            notify: self.notify,
            clock: self.clock.clone(),
            ..PostgresOptions::new(self.url.clone())
        }
    }

    /// `HOST:PORT/DATABASE`, for people; none where the URL is wrong.
    pub fn place(&self) -> Option<String> {
        let Location { host, port, database, .. } = url::parse(&self.url).ok()?;
        Some(format!("{host}:{port}/{database}"))
    }

    /// Whether what goes to the database stays on this machine.
    pub fn is_local(&self) -> bool {
        url::parse(&self.url).is_ok_and(|Location { host, .. }| {
            let address = host.trim_start_matches('[').trim_end_matches(']');
            let loopback = address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
            host.starts_with('/') || host == "localhost" || loopback
        })
    }
}

/// Without the password, and without a URL that could have one in it.
impl fmt::Debug for PostgresSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PostgresSettings")
            .field("place", &self.place())
            .field("tls", &self.tls)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// `[store.postgres]` as it is written. It is read by hand: a parser's message would repeat a value of the wrong type.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct PostgresTable(Value);

impl fmt::Debug for PostgresTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PostgresTable(..)")
    }
}

/// What the table says.
#[derive(Default)]
struct Said {
    url: Option<Zeroizing<String>>,
    password_file: Option<PathBuf>,
    tls: Option<TlsMode>,
    root_certificate_file: Option<PathBuf>,
    client_certificate_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
    connections: Option<i64>,
    poll_every: Option<String>,
    migrate: Option<bool>,
    notify: Option<bool>,
}

impl PostgresTable {
    fn read(self, problems: &mut Vec<String>) -> Said {
        let mut said = Said::default();
        let Value::Table(table) = self.0 else {
            problems.push("store.postgres: is a table: write `[store.postgres]`, and its `url` below".to_owned());
            return said;
        };
        for (key, value) in table {
            match (key.as_str(), value) {
                ("url", Value::String(text)) => said.url = Some(Zeroizing::new(text)),
                ("password_file", Value::String(text)) => said.password_file = Some(text.into()),
                ("tls", Value::String(word)) => {
                    said.tls = TlsMode::parse(&word);
                    if said.tls.is_none() {
                        problems.push(
                            "store.postgres.tls: is none of `disable`, `prefer`, `require`, `verify-full`".to_owned(),
                        );
                    }
                }
                ("root_certificate_file", Value::String(text)) => said.root_certificate_file = Some(text.into()),
                ("client_certificate_file", Value::String(text)) => said.client_certificate_file = Some(text.into()),
                ("client_key_file", Value::String(text)) => said.client_key_file = Some(text.into()),
                ("connections", Value::Integer(number)) => said.connections = Some(number),
                ("poll_every", Value::String(text)) => said.poll_every = Some(text),
                ("migrate", Value::Boolean(flag)) => said.migrate = Some(flag),
                ("notify", Value::Boolean(flag)) => said.notify = Some(flag),
                ("password", _) => problems.push(
                    "store.postgres.password: is no key: put the password into a file and name that file in \
                     `store.postgres.password_file`, or put it into COUNTERSIGN_POSTGRES_PASSWORD"
                        .to_owned(),
                ),
                (key, _) => match PostgresSettings::KEYS.iter().find(|(known, _)| *known == key) {
                    Some((key, wanted)) => problems.push(format!("store.postgres.{key}: is not {wanted}")),
                    None => problems.push(format!("store.postgres.{}: is no key", key.escape_debug())),
                },
            }
        }
        said
    }
}

/// The settings of the database that the file, the environment and flags name together.
pub(super) fn resolve(
    table: Option<PostgresTable>,
    folder: &Path,
    overrides: &Overrides,
    (acquire_timeout, statement_timeout): (Duration, Duration),
    problems: &mut Vec<String>,
) -> PostgresSettings {
    let said = table.map(|table| table.read(problems)).unwrap_or_default();
    let location = match (&overrides.postgres, &said.url) {
        (Some(url), _) => hidden("--postgres (COUNTERSIGN_POSTGRES)", url, problems).map(|text| text.to_string()),
        (None, Some(url)) => Some(url.to_string()),
        (None, None) => {
            problems.push("store.postgres.url: is missing: say it there, or with --postgres".to_owned());
            None
        }
    };
    let location = location.map(Zeroizing::new).and_then(|text| match url::parse(&text) {
        Ok(location) => Some(location),
        Err(problem) => {
            problems.push(format!("store.postgres.url: {problem}"));
            None
        }
    });
    let in_url = location.as_ref().and_then(|location| location.tls);
    if let (Some(tls), Some(in_url)) = (said.tls, in_url)
        && tls != in_url
    {
        problems.push("store.postgres.tls: the url's `sslmode` says otherwise: say it once".to_owned());
    }
    let tls = in_url.or(said.tls).unwrap_or_default();
    let files = [&said.root_certificate_file, &said.client_certificate_file, &said.client_key_file];
    if tls == TlsMode::Disable && files.iter().any(|file| file.is_some()) {
        problems.push("store.postgres.tls: is `disable`, with which certificates mean nothing".to_owned());
    }
    let client_certificate = match (said.client_certificate_file, said.client_key_file) {
        (Some(certificate), Some(key)) => Some((folder.join(certificate), folder.join(key))),
        (None, None) => None,
        (Some(_), None) => {
            problems.push("store.postgres.client_key_file: is missing beside client_certificate_file".to_owned());
            None
        }
        (None, Some(_)) => {
            problems.push("store.postgres.client_certificate_file: is missing beside client_key_file".to_owned());
            None
        }
    };
    let password = overrides
        .postgres_password
        .as_ref()
        .and_then(|password| hidden("COUNTERSIGN_POSTGRES_PASSWORD", password, problems).cloned());
    let password_file = match (&overrides.postgres_password_file, said.password_file) {
        (Some(_), _) if overrides.postgres_password.is_some() => {
            problems.push(
                "store.postgres.password_file: COUNTERSIGN_POSTGRES_PASSWORD is said beside --postgres-password-file \
                 (COUNTERSIGN_POSTGRES_PASSWORD_FILE): one password is enough"
                    .to_owned(),
            );
            None
        }
        (Some(file), _) => Some(file.clone()),
        // The environment wins over the file.
        (None, file) => file.filter(|_| password.is_none()).map(|file| folder.join(file)),
    };
    let connections = bounded("store.postgres.connections", said.connections, 8, 1, 64, problems);
    let readable = location.is_some();
    let settings = PostgresSettings {
        url: location.map(|location| location.url).unwrap_or_default(),
        password,
        password_file,
        tls,
        root_certificate: said.root_certificate_file.map(|file| folder.join(file)),
        client_certificate,
        connections: u32::try_from(connections).unwrap_or(8),
        acquire_timeout,
        statement_timeout,
        poll_every: span(
            "store.postgres.poll_every",
            said.poll_every,
            Duration::from_secs(1),
            (Duration::from_millis(50), Duration::from_secs(10)),
            problems,
        ),
        migrate: said.migrate.unwrap_or(true),
        notify: said.notify.unwrap_or(true),
        clock: None,
    };
    // What else the store would not be opened with.
    if readable && let Err(problem) = settings.options().check() {
        problems.push(format!("store.postgres: {problem}"));
    }
    settings
}

/// The text of what is shown nowhere.
fn hidden<'a>(name: &str, text: &'a Hidden, problems: &mut Vec<String>) -> Option<&'a Zeroizing<String>> {
    let found = text.text().filter(|text| !text.is_empty());
    if found.is_none() {
        problems.push(format!("store.postgres: {name} is empty, or no UTF-8"));
    }
    found
}

#[cfg(test)]
mod tests;
