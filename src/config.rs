//! Configuration: defaults, then a file (TOML), then the environment, then flags. Every problem is named at once; secrets
//! come from files or the environment, and none is in any error or `Debug`.

mod audit;
mod callers;
mod changes;
mod doors;
mod hidden;
mod issuers;
mod limits;
mod listen;
mod permits;
mod postgres;
mod store;
mod tls;
mod upkeep;
mod url;

pub use audit::SealingSettings;
pub use doors::{Door, ListenerSettings, OwnListener, OwnListeners};
pub use hidden::Hidden;
pub use postgres::PostgresSettings;
pub use store::{SqliteSettings, StoreSettings, beside};
pub use tls::{ClientCertificates, TlsSettings};

use crate::address::Address;
use crate::auth::Callers;
use crate::domain::audit::AuditedEvaluations;
use crate::domain::permit::PermitNames;
use crate::domain::preview::{PreviewConfig, Previewer};
use crate::domain::span::{parse_span, show_span};
use crate::storage::{QuestionLimits, Retention};
use audit::AuditSection;
use callers::CallerSection;
use doors::DoorsSection;
use issuers::IssuerSection;
use limits::LimitsSection;
use permits::PermitsSection;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::StoreSection;
use tls::TlsSection;
use upkeep::{RetentionSection, SweeperSection};

/// What `serve` listens on where nothing is said.
const LISTEN: &str = "127.0.0.1:7400";
/// What the plaintext health listener listens on where nothing is said.
const HEALTH_LISTEN: &str = "127.0.0.1:7401";
/// The policy where nothing is said.
const POLICY: &str = "policy";
/// A configuration is written by hand; more than this is another file.
const FILE_BYTES: u64 = 1024 * 1024;

/// The configuration file, as it is written. Unknown keys are errors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    listen: Option<String>,
    socket_mode: Option<String>,
    health_listen: Option<String>,
    tls: Option<TlsSection>,
    doors: DoorsSection,
    policy: Option<PathBuf>,
    policy_settle: Option<String>,
    reflection: Option<bool>,
    grace_period: Option<String>,
    store: StoreSection,
    limits: LimitsSection,
    sweeper: SweeperSection,
    retention: RetentionSection,
    preview: PreviewConfig,
    log: LogSection,
    audit: AuditSection,
    permits: PermitsSection,
    issuers: Vec<IssuerSection>,
    callers: Vec<CallerSection>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LogSection {
    format: Option<String>,
    filter: Option<String>,
}

impl File {
    /// Reads a file, with a problem for every key that is none of ours.
    ///
    /// # Errors
    /// What is no TOML, or a value of another type, with its line.
    fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        let at_line = |error: &toml::de::Error| {
            let line = error.span().map(|span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1);
            line.map_or_else(|| error.message().to_owned(), |line| format!("line {line}: {}", error.message()))
        };
        let deserializer = toml::Deserializer::parse(text).map_err(|error| at_line(&error))?;
        let mut unknown = Vec::new();
        // A section that may be left out adds a question mark to the way there.
        let named = |path: serde_ignored::Path<'_>| format!("{}: is no key", path.to_string().replace(".?", ""));
        let file = serde_ignored::deserialize(deserializer, |path| unknown.push(named(path)))
            .map_err(|error| at_line(&error))?;
        Ok((file, unknown))
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What the environment and flags say over the file; flags have won over the environment already.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `listen`.
    pub listen: Option<String>,
    /// `health_listen`.
    pub health_listen: Option<String>,
    /// `policy`, relative to the working directory.
    pub policy: Option<PathBuf>,
    /// `store.sqlite`, relative to the working directory.
    pub sqlite: Option<PathBuf>,
    /// `store.postgres.url`.
    pub postgres: Option<Hidden>,
    /// The database's password, which no file of ours and no flag says.
    pub postgres_password: Option<Hidden>,
    /// `store.postgres.password_file`, relative to the working directory.
    pub postgres_password_file: Option<PathBuf>,
    /// Whether the server secrets are of no use to who asks, and need not be named.
    pub without_secrets: bool,
    /// `store.secret_file`, relative to the working directory.
    pub secret_file: Option<PathBuf>,
    /// `store.further_secret_files`, relative to the working directory.
    pub further_secret_files: Option<Vec<PathBuf>>,
    /// `store.accept_clock`.
    pub accept_clock: Option<bool>,
    /// `reflection`.
    pub reflection: Option<bool>,
    /// `log.format`.
    pub log_format: Option<String>,
    /// `log.filter`.
    pub log_filter: Option<String>,
}

/// A configuration that holds together.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the doors listen that have no listener of their own.
    pub listen: Address,
    /// The mode of the socket's file, where they listen on one; 0600 where nothing is said.
    pub socket_mode: u32,
    /// TLS of that listener; none: plaintext.
    pub tls: Option<TlsSettings>,
    /// The listeners of doors that have their own.
    pub doors: OwnListeners,
    /// Where the plaintext health listener listens.
    pub health_listen: SocketAddr,
    /// The policy's file or directory.
    pub policy: PathBuf,
    /// For how long the policy's files must hold still before they are loaded.
    pub policy_settle: Duration,
    /// Whether `grpc.reflection` is served.
    pub reflection: bool,
    /// How long calls in flight may take after a stop was asked for.
    pub grace_period: Duration,
    /// The database.
    pub store: StoreSettings,
    /// The file of the server secret that makes what is new.
    pub secret_file: PathBuf,
    /// The files of those that only verify and open.
    pub further_secret_files: Vec<PathBuf>,
    /// What arguments may measure, in bytes.
    pub arguments_bytes: usize,
    /// How many connections each of the doors' listeners has at once.
    pub connections: usize,
    /// How long a new connection may take for its TLS handshake, and then until it has begun to speak HTTP/2.
    pub handshake_timeout: Duration,
    /// How much people are asked.
    pub question_limits: QuestionLimits,
    /// What one message may measure, in bytes.
    pub message_bytes: usize,
    /// How long the background work waits between two passes.
    pub sweep_every: Duration,
    /// For how long what is over is kept.
    pub retention: Retention,
    /// What people are shown.
    pub preview: PreviewConfig,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written.
    pub log_filter: String,
    /// Which evaluations the audit keeps.
    pub audited_evaluations: AuditedEvaluations,
    /// Who issues permits and for whom; none: they are not signed.
    pub permits: Option<PermitNames>,
    /// How the audit is sealed.
    pub sealing: SealingSettings,
    /// Who may call.
    pub callers: Callers,
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblems(pub Vec<String>);

impl std::fmt::Display for ConfigProblems {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigProblems {}

impl Config {
    /// The configuration of the file at `path` (none: defaults alone) under `overrides`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigProblems> {
        let (config, problems) = Self::inspect(path, overrides)?;
        if problems.is_empty() { Ok(config) } else { Err(ConfigProblems(problems)) }
    }

    /// As [`Config::load`], but with defaults in place of what is wrong, so that what the rest names (the policy, the
    /// database) can be looked at as well. Nothing may be served from it while there are problems.
    ///
    /// # Errors
    /// The file cannot be read at all.
    pub fn inspect(path: Option<&Path>, overrides: &Overrides) -> Result<(Self, Vec<String>), ConfigProblems> {
        match path {
            None => Ok(Self::resolve(File::default(), Path::new(""), overrides)),
            Some(path) => {
                let text = read(path).map_err(|problem| ConfigProblems(vec![problem]))?;
                let (file, mut unknown) = File::parse(&text)
                    .map_err(|problem| ConfigProblems(vec![format!("{}: {problem}", path.display())]))?;
                let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                let (config, problems) = Self::resolve(file, &folder, overrides);
                unknown.extend(problems);
                Ok((config, unknown))
            }
        }
    }

    fn resolve(file: File, folder: &Path, overrides: &Overrides) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let said = |flag: &Option<PathBuf>, key: Option<PathBuf>, default: &str| match (flag, key) {
            (Some(path), _) => path.clone(),
            (None, Some(path)) => folder.join(path),
            (None, None) => folder.join(default),
        };
        let listen =
            listen::address(overrides.listen.as_deref(), file.listen.as_deref(), folder, LISTEN, &mut problems);
        let socket_mode = listen::socket_mode("socket_mode", file.socket_mode.as_deref(), &mut problems);
        let tls = file.tls.and_then(|section| tls::resolve(section, "tls", folder, &mut problems));
        let doors = doors::resolve(file.doors, folder, &mut problems);
        let health_listen = address(
            "health_listen",
            overrides.health_listen.as_deref().or(file.health_listen.as_deref()),
            HEALTH_LISTEN,
            &mut problems,
        );
        let seconds = Duration::from_secs;
        let spans = |most: u64| (Duration::from_millis(1), seconds(most));
        let policy_settle =
            span("policy_settle", file.policy_settle, Duration::from_millis(300), spans(60), &mut problems);
        let grace_period = span("grace_period", file.grace_period, seconds(10), spans(600), &mut problems);
        let sweep_every = span("sweeper.every", file.sweeper.every, seconds(1), spans(60 * 60), &mut problems);
        let store::Resolved { settings: store, secret_file, further_secret_files } =
            store::resolve(file.store, folder, overrides, &mut problems);
        let limits::Resolved {
            arguments_bytes,
            message_bytes,
            question_limits,
            of_callers,
            connections,
            handshake_timeout,
        } = limits::resolve(file.limits, &mut problems);
        let retention = upkeep::resolve(&file.retention, &mut problems);
        limits::outlive(&question_limits, &retention, &mut problems);
        let preview = file.preview;
        if let Err(found) = Previewer::new(preview.clone()) {
            problems.extend(found.iter().map(|problem| format!("preview: {problem}")));
        }
        let log_format = match overrides.log_format.as_deref().or(file.log.format.as_deref()) {
            None | Some("human") => LogFormat::Human,
            Some("json") => LogFormat::Json,
            Some(other) => {
                problems.push(format!("log.format: {other:?} is neither `human` nor `json`"));
                LogFormat::Human
            }
        };
        let log_filter =
            overrides.log_filter.clone().or(file.log.filter).unwrap_or_else(|| "info,sqlx=warn,h2=warn".to_owned());
        if let Err(problem) = tracing_subscriber::EnvFilter::try_new(&log_filter) {
            problems.push(format!("log.filter: {problem}"));
        }
        let permits = permits::resolve(&file.permits, &mut problems);
        let callers = callers::resolve(file.callers, file.issuers, of_callers, folder, &mut problems);
        let audit::Resolved { audited_evaluations, sealing } = audit::resolve(file.audit, folder, &mut problems);
        let config = Self {
            listen,
            socket_mode,
            health_listen,
            tls,
            doors,
            policy: said(&overrides.policy, file.policy, POLICY),
            policy_settle,
            reflection: overrides.reflection.or(file.reflection).unwrap_or(false),
            grace_period,
            store,
            secret_file,
            further_secret_files,
            arguments_bytes,
            connections,
            handshake_timeout,
            question_limits,
            message_bytes,
            sweep_every,
            retention,
            preview,
            log_format,
            log_filter,
            audited_evaluations,
            permits,
            sealing,
            callers,
        };
        doors::clashes(&config, &mut problems);
        (config, problems)
    }
}

fn read(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let failed = |cause: std::io::Error| format!("{}: {cause}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let read = file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > FILE_BYTES {
        return Err(format!("{}: is larger than {FILE_BYTES} bytes", path.display()));
    }
    Ok(text)
}

fn address(key: &str, text: Option<&str>, default: &str, problems: &mut Vec<String>) -> SocketAddr {
    let text = text.unwrap_or(default);
    text.parse().unwrap_or_else(|_| {
        problems.push(format!("{key}: {text:?} is no address and port, such as `{default}`"));
        SocketAddr::from(([127, 0, 0, 1], 0))
    })
}

/// A duration from `least` to `most`.
fn span(
    key: &str,
    text: Option<String>,
    default: Duration,
    (least, most): (Duration, Duration),
    problems: &mut Vec<String>,
) -> Duration {
    let Some(text) = text else { return default };
    match parse_span(&text) {
        Some(span) if (least..=most).contains(&span) => span,
        Some(_) | None => {
            let (least, most) = (show_span(least), show_span(most));
            problems.push(format!("{key}: {text:?} is no duration from {least} to {most}, such as `10s`"));
            default
        }
    }
}

/// What is no file may never end, or not even begin: a pipe that nobody writes to.
fn is_file(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err("is no file".to_owned()),
        Err(cause) => Err(cause.to_string()),
    }
}

/// What a file that a section names holds, if it is no longer than `most` bytes.
fn file_bytes(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    is_file(path)?;
    let file = std::fs::File::open(path).map_err(|cause| cause.to_string())?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|cause| cause.to_string())?;
    if bytes.len() > most { Err(format!("is larger than {most} bytes")) } else { Ok(bytes) }
}

fn bounded<N: PartialOrd + std::fmt::Display>(
    key: &str,
    said: Option<N>,
    default: N,
    least: N,
    most: N,
    problems: &mut Vec<String>,
) -> N {
    match said {
        None => default,
        Some(number) if (&least..=&most).contains(&&number) => number,
        Some(number) => {
            problems.push(format!("{key}: {number} is not from {least} to {most}"));
            default
        }
    }
}

#[cfg(test)]
mod tests;
