//! `countersign check`: everything that would keep `serve` from starting, named at once, and what is hardly meant. Nothing
//! is opened, made or changed; only whether a folder can be written is tried, with a file that is removed again.

use super::exit::Exit;
use super::remote;
use super::serve::Settings;
use super::terminal::{self, safe};
use crate::address::Address;
use crate::app::socket::{self, Found};
use crate::app::tls;
use crate::auth::{Powers, Role};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, PostgresSettings, StoreSettings};
use crate::domain::policy::Policy;
use crate::policy_files::load_policy;
use crate::secrets::{SecretError, read_files};
use crate::storage::postgres::TlsMode;
use clap::Args;
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What `check` is told: the same as `serve`.
#[derive(Args, Debug)]
pub(super) struct CheckCommand {
    /// The configuration file (TOML); paths in it are relative to its folder.
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Configuration,
    Policy,
    Database,
    Secret,
    Tls,
}

impl Part {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Policy => "policy",
            Self::Database => "database",
            Self::Secret => "secret",
            Self::Tls => "tls",
        }
    }
}

/// Everything found.
#[derive(Debug, Default)]
struct Findings {
    problems: Vec<(Part, String)>,
    warnings: Vec<(Part, String)>,
}

impl Findings {
    fn problem(&mut self, part: Part, what: impl Into<String>) {
        self.problems.push((part, what.into()));
    }

    fn warning(&mut self, part: Part, what: impl Into<String>) {
        self.warnings.push((part, what.into()));
    }
}

/// Answers 0 where `serve` could start with this, 1 where it could not.
pub(super) fn run(command: &CheckCommand, out: &mut dyn Write) -> io::Result<Exit> {
    let mut findings = Findings::default();
    let overrides = command.settings.overrides();
    let mut store = None;
    let policy = match Config::inspect(command.config.as_deref(), &overrides) {
        Ok((config, problems)) => {
            for problem in problems {
                findings.problem(Part::Configuration, problem);
            }
            listeners(&config, &mut findings)?;
            callers(&config, &mut findings);
            let policy = policy(&config.policy, &mut findings);
            store = match &config.store {
                StoreSettings::Sqlite(settings) => {
                    database(&settings.path, &mut findings);
                    Some(format!("sqlite {}", settings.path.display()))
                }
                StoreSettings::Postgres(settings) => {
                    server(settings, &mut findings);
                    settings.place().map(|place| format!("postgres {place}"))
                }
            };
            secrets(&config, &mut findings);
            policy
        }
        Err(problems) => {
            for problem in problems.0 {
                findings.problem(Part::Configuration, problem);
            }
            // What flags name can be looked at though the file says nothing.
            let policy = overrides.policy.as_deref().and_then(|path| policy(path, &mut findings));
            let named = overrides.sqlite.as_deref().filter(|path| !is_url(path));
            named.into_iter().for_each(|path| database(path, &mut findings));
            policy
        }
    };
    report(command.json, (policy.as_ref(), store.as_deref()), &findings, out)?;
    Ok(if findings.problems.is_empty() { Exit::Done } else { Exit::No })
}

fn report(
    as_json: bool,
    (policy, store): (Option<&Policy>, Option<&str>),
    findings: &Findings,
    out: &mut dyn Write,
) -> io::Result<()> {
    let valid = findings.problems.is_empty();
    if as_json {
        let list = |found: &[(Part, String)]| -> Vec<_> {
            found.iter().map(|(part, what)| json!({ "part": part.as_str(), "message": what })).collect()
        };
        let answer = json!({
            "valid": valid,
            "problems": list(&findings.problems),
            "warnings": list(&findings.warnings),
            "policy_revision": policy.map(Policy::revision),
            "store": store,
        });
        return writeln!(out, "{}", terminal::json(&answer));
    }
    for (word, found) in [("problem", &findings.problems), ("warning", &findings.warnings)] {
        for (part, what) in found {
            // What a parser says may have several lines, with a drawing of the place.
            for (index, line) in what.lines().enumerate() {
                let label = if index == 0 { format!("{word}: {}: ", part.as_str()) } else { "    ".to_owned() };
                writeln!(out, "{label}{}", safe(line))?;
            }
        }
    }
    if let Some(policy) = policy {
        let connectors: Vec<String> = policy.connectors().map(|connector| connector.name).collect();
        writeln!(out, "policy:  revision {}, connectors {}", policy.revision(), safe(&connectors.join(", ")))?;
    }
    if let Some(store) = store {
        writeln!(out, "store:   {}", safe(store))?;
    }
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (problems, warnings) = (many(findings.problems.len(), "problem"), many(findings.warnings.len(), "warning"));
    writeln!(out, "{}: {problems}, {warnings}", if valid { "valid" } else { "invalid" })
}

fn listeners(config: &Config, findings: &mut Findings) -> io::Result<()> {
    let mut seen = Vec::new();
    for listener in config.listeners() {
        let key = listener.key;
        match &listener.address {
            Address::Unix(path) => socket(key, path, listener.socket_mode, findings)?,
            Address::Tcp(tcp) if *tcp == config.health_listen && tcp.port() != 0 && key == "listen" => {
                findings.problem(Part::Configuration, format!("listen and health_listen are both {tcp}"));
            }
            Address::Tcp(_) => {}
        }
        if listener.is_exposed() {
            let what = format!(
                "{key}: {} is plaintext and not on loopback: tokens can be read on the network",
                listener.address
            );
            findings.warning(Part::Configuration, what);
        }
        // Two listeners may show the same.
        if let Some(tls) = listener.tls.filter(|tls| !seen.contains(tls)) {
            let (problems, warnings) = tls::inspect(&tls);
            problems.into_iter().for_each(|problem| findings.problem(Part::Tls, problem));
            warnings.into_iter().for_each(|warning| findings.warning(Part::Tls, warning));
            seen.push(tls);
        }
    }
    Ok(())
}

/// A sidecar may be serving on it, so that is no problem.
fn socket(key: &str, path: &Path, mode: u32, findings: &mut Findings) -> io::Result<()> {
    if let Err(problem) = writable_folder(path) {
        findings.problem(Part::Configuration, format!("{key}: {problem}"));
        return Ok(());
    }
    let at = |what: &dyn std::fmt::Display| format!("{key}: {}: {what}", path.display());
    match remote::block_on(socket::look(path))? {
        Ok(Found::Nothing | Found::Stale) => {}
        Ok(Found::Answering) => {
            let what = "a process answers there: while it does, another cannot start";
            findings.warning(Part::Configuration, at(&what));
        }
        Ok(Found::Other) => findings.problem(Part::Configuration, at(&"what is there is no socket, and stays")),
        Err(cause) => findings.problem(Part::Configuration, at(&cause)),
    }
    for doubt in socket::doubts(path, mode) {
        findings.warning(Part::Configuration, format!("{key}: {doubt}"));
    }
    Ok(())
}

fn callers(config: &Config, findings: &mut Findings) {
    for (role, without) in [
        (Role::Agent, "no agent can ask"),
        (Role::Approver, "nobody can decide"),
        (Role::Operator, "nobody can read the audit"),
    ] {
        // A caller that is refused is not known here, though it is configured: its problem is told already.
        let refused = findings.problems.iter().any(|(_, problem)| problem.contains("callers["));
        if !refused && !config.callers.iter().any(|caller| caller.powers.role() == role) {
            findings.warning(Part::Configuration, format!("callers: none has the role {role}: {without}"));
        }
    }
    for caller in config.callers.expired(SystemClock::new().wall()) {
        let what = format!("callers: {}: its credential has expired: it opens nothing", caller.name);
        findings.warning(Part::Configuration, what);
    }
    for caller in config.callers.iter() {
        let bounds: &[(&str, bool)] = match &caller.powers {
            Powers::Agent(bounds) => {
                &[("agents", bounds.agents.is_empty()), ("principals", bounds.principals.is_empty())]
            }
            Powers::Asserts(persons) => &[("asserts_principal", persons.is_empty())],
            Powers::Person(_) | Powers::Claimed | Powers::Operator => &[],
        };
        for (key, _) in bounds.iter().filter(|(_, empty)| *empty) {
            findings
                .warning(Part::Configuration, format!("callers: {}: {key} is empty: it may act for none", caller.name));
        }
    }
}

fn policy(path: &Path, findings: &mut Findings) -> Option<Policy> {
    match load_policy(path) {
        Ok(policy) => {
            for warning in policy.warnings() {
                findings.warning(Part::Policy, warning.to_string());
            }
            Some(policy)
        }
        Err(error) => {
            for problem in error.problems {
                findings.problem(Part::Policy, problem.to_string());
            }
            None
        }
    }
}

/// The database is not opened: that would make or migrate it, and a sidecar may be serving it.
fn database(path: &Path, findings: &mut Findings) {
    if let Err(problem) = writable_folder(path) {
        findings.problem(Part::Database, problem);
        return;
    }
    let failed = |cause: io::Error| format!("{}: cannot be written: {cause}", path.display());
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => findings.problem(Part::Database, format!("{}: is no file", path.display())),
        Ok(_) => {
            if let Err(cause) = OpenOptions::new().read(true).write(true).open(path) {
                findings.problem(Part::Database, failed(cause));
            }
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => findings.problem(Part::Database, failed(cause)),
    }
}

/// The database server is not asked: only what is said of it is looked at.
fn server(settings: &PostgresSettings, findings: &mut Findings) {
    let certificate = settings.client_certificate.as_ref().map(|(certificate, _)| certificate);
    let key = settings.client_certificate.as_ref().map(|(_, key)| key);
    for (what, file) in [
        ("the password's file", settings.password_file.as_ref()),
        ("the root certificate", settings.root_certificate.as_ref()),
        ("the client's certificate", certificate),
        ("the client's key", key),
    ] {
        // A folder can be opened, and not read.
        let read = file.map(|path| (path, File::open(path).and_then(|mut file| io::Read::read(&mut file, &mut [0]))));
        if let Some((path, Err(cause))) = read {
            findings.problem(Part::Database, format!("{what} {}: {cause}", path.display()));
        }
    }
    for (what, path) in
        settings.password_file.iter().map(|path| ("password", path)).chain(key.map(|path| ("client's key", path)))
    {
        let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
        if mode & 0o077 != 0 {
            let mode = mode & 0o777;
            let what = format!("{}: others than its owner may read the {what} (mode {mode:o})", path.display());
            findings.warning(Part::Database, what);
        }
    }
    if !settings.is_local() {
        match settings.tls {
            TlsMode::Disable | TlsMode::Prefer => findings.warning(
                Part::Database,
                "store.postgres.tls: what goes to the database may go in the clear: whoever is on the way reads it and \
                 changes it",
            ),
            TlsMode::Require | TlsMode::VerifyCa => findings.warning(
                Part::Database,
                "store.postgres.tls: nobody looks whether the server is the one that is meant: only `verify-full` does",
            ),
            TlsMode::VerifyFull => {}
        }
    }
}

/// Whether a database server is named where a file should be; such a text may hold a password.
fn is_url(path: &Path) -> bool {
    path.to_string_lossy().contains("://")
}

/// Which secrets the database needs is in the database, which is not opened.
fn secrets(config: &Config, findings: &mut Findings) {
    let first = &config.secret_file;
    let (minting, _, problems) = read_files(first, &config.further_secret_files);
    for problem in problems {
        findings.problem(Part::Secret, problem.to_string());
    }
    for path in std::iter::once(first).chain(&config.further_secret_files) {
        let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
        if mode & 0o077 != 0 {
            let what = format!("{}: others than its owner may read it (mode {:o})", path.display(), mode & 0o777);
            findings.warning(Part::Secret, what);
        }
    }
    let missing = fs::metadata(first).is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound);
    let Some(sqlite) = config.store.sqlite() else {
        // Where it is not named at all, the configuration has that problem.
        if minting.is_none() && missing && !first.as_os_str().is_empty() {
            findings.problem(Part::Secret, SecretError::Required { path: first.clone() }.to_string());
        }
        return;
    };
    if minting.is_none() && missing {
        if let Err(problem) = writable_folder(first) {
            findings.problem(Part::Secret, problem);
        }
        if fs::metadata(&sqlite.path).is_ok_and(|found| found.len() > 0) {
            let what = format!(
                "{}: does not exist, and the database does: a database that was used with another secret is refused",
                first.display()
            );
            findings.warning(Part::Secret, what);
        }
    }
}

/// Whether a file could be made beside `path`.
fn writable_folder(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(format!("the folder {} does not exist", folder.display()));
    }
    let probe = folder.join(format!(".countersign-check-{}", std::process::id()));
    let made: io::Result<File> = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe);
    match made {
        Ok(_) => fs::remove_file(&probe).map_err(|cause| format!("{}: {cause}", probe.display())),
        Err(cause) => Err(format!("the folder {} cannot be written: {cause}", folder.display())),
    }
}
