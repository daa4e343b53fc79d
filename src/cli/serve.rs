//! `countersign serve`: runs the sidecar until it is told to stop.

mod dev;

use super::exit::Exit;
use crate::app::{self, Reload};
use crate::clock::SystemClock;
use crate::config::{Config, Hidden, Overrides};
use crate::domain::text::{LineBreaks, neutralise};
use crate::telemetry;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// What `serve` is told. Flags win over the environment, that over the file, that over the defaults.
#[derive(Args, Debug, Default)]
pub(super) struct ServeCommand {
    /// The configuration file (TOML); paths in it are relative to its folder.
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Try it out: everything in one folder, one new token per role, reflection on. Not for production.
    #[arg(long)]
    dev: bool,
    /// The folder of --dev.
    #[arg(long, value_name = "DIR", default_value = ".countersign-dev", requires = "dev")]
    dev_dir: PathBuf,
}

/// The database server that many sidecars may share.
#[derive(Args, Debug, Default, Clone)]
pub(super) struct PostgresFlags {
    /// The Postgres database, in place of a file: postgres://USER@HOST:PORT/DATABASE, without a password.
    #[arg(
        long,
        value_name = "URL",
        env = "COUNTERSIGN_POSTGRES",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().map(Hidden::from)
    )]
    postgres: Option<Hidden>,
    /// The file of its password; or the password itself in COUNTERSIGN_POSTGRES_PASSWORD, which is no flag.
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_POSTGRES_PASSWORD_FILE")]
    postgres_password_file: Option<PathBuf>,
}

impl PostgresFlags {
    /// Adds what is said over the configuration file.
    pub(super) fn over(&self, overrides: Overrides) -> Overrides {
        Overrides {
            postgres: self.postgres.clone(),
            postgres_password: std::env::var_os("COUNTERSIGN_POSTGRES_PASSWORD").map(Hidden::from),
            postgres_password_file: self.postgres_password_file.clone(),
            ..overrides
        }
    }
}

/// Settings that the environment and flags may override.
#[derive(Args, Debug, Default)]
pub(super) struct Settings {
    /// Where the doors listen: ADDRESS:PORT, or `unix:PATH` for a Unix socket [default: 127.0.0.1:7400].
    #[arg(long, value_name = "ADDRESS", env = "COUNTERSIGN_LISTEN")]
    listen: Option<String>,
    /// Where the plaintext health listener listens [default: 127.0.0.1:7401].
    #[arg(long, value_name = "ADDRESS", env = "COUNTERSIGN_HEALTH_LISTEN")]
    health_listen: Option<String>,
    /// The policy's file, or its folder of *.yaml [default: policy].
    #[arg(long, value_name = "PATH", env = "COUNTERSIGN_POLICY")]
    policy: Option<PathBuf>,
    /// The database file [default: countersign.db].
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_SQLITE")]
    sqlite: Option<PathBuf>,
    #[command(flatten)]
    postgres: PostgresFlags,
    /// The server secret's file [default: beside the database file; with Postgres it is required].
    #[arg(long, value_name = "FILE", env = "COUNTERSIGN_SECRET_FILE")]
    secret_file: Option<PathBuf>,
    /// The files of server secrets that only verify and open, separated by colons.
    #[arg(long, value_name = "FILES", env = "COUNTERSIGN_FURTHER_SECRET_FILES", value_delimiter = ':')]
    further_secret_files: Option<Vec<PathBuf>>,
    /// Start though the newest committed time is far ahead of the clock.
    #[arg(long, env = "COUNTERSIGN_ACCEPT_CLOCK", num_args = 0..=1, default_missing_value = "true")]
    accept_clock: Option<bool>,
    /// Serve grpc.reflection (v1 and v1alpha) [default: off; on with --dev].
    #[arg(long, env = "COUNTERSIGN_REFLECTION", num_args = 0..=1, default_missing_value = "true")]
    reflection: Option<bool>,
    /// How log lines look: human or json [default: human].
    #[arg(long, value_name = "FORMAT", env = "COUNTERSIGN_LOG_FORMAT")]
    log_format: Option<String>,
    /// Which log lines are written, such as `info` or `countersign=debug` [default: info].
    #[arg(long, value_name = "FILTER", env = "COUNTERSIGN_LOG_FILTER")]
    log_filter: Option<String>,
}

impl Settings {
    /// What is said over the configuration file.
    pub(super) fn overrides(&self) -> Overrides {
        self.postgres.over(Overrides {
            listen: self.listen.clone(),
            health_listen: self.health_listen.clone(),
            policy: self.policy.clone(),
            sqlite: self.sqlite.clone(),
            secret_file: self.secret_file.clone(),
            further_secret_files: self.further_secret_files.clone(),
            accept_clock: self.accept_clock,
            reflection: self.reflection,
            log_format: self.log_format.clone(),
            log_filter: self.log_filter.clone(),
            ..Overrides::default()
        })
    }
}

/// Serves until SIGTERM or SIGINT; a second one stops at once.
pub(super) fn run(command: &ServeCommand, err: &mut dyn Write) -> io::Result<Exit> {
    let overrides = command.settings.overrides();
    let config = if command.dev {
        if let Some(config) = &command.config {
            writeln!(err, "--dev does not read {}", config.display())?;
        }
        dev::config(&command.dev_dir, overrides.clone(), err).map(|(config, held)| (config, Some(held)))
    } else {
        let config = Config::load(command.config.as_deref(), &overrides);
        config.map(|config| (config, None)).map_err(|problems| problems.to_string())
    };
    // What --dev made of nothing cannot be read again.
    let source = (!command.dev).then(|| (command.config.clone(), overrides));
    let (config, _held) = match config {
        Ok(config) => config,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(Exit::Unreachable);
        }
    };
    if let Err(problem) = telemetry::start(config.log_format, &config.log_filter) {
        writeln!(err, "log: {problem}")?;
        return Ok(Exit::Unreachable);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match runtime.block_on(serve(&config, source)) {
        Ok(()) => Ok(Exit::Done),
        Err(problem) => {
            writeln!(err, "countersign: {problem}")?;
            Ok(Exit::Unreachable)
        }
    }
}

/// The file and what is said over it, to be read again.
type Source = (Option<PathBuf>, Overrides);

async fn serve(config: &Config, source: Option<Source>) -> Result<(), String> {
    let hear = |kind| signal(kind).map_err(|cause| format!("cannot listen for signals: {cause}"));
    let (mut terminate, mut interrupt) = (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    // Unheard, it would end the process.
    let mut hangup = hear(SignalKind::hangup())?;
    // Heard and not heeded: a file that may not grow further is a full disk, which the store answers for; unheard, the
    // signal would end the process.
    let _file_size = hear(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    // What is begun of opening a database ends with its connection: nothing of it is half done.
    let started = tokio::select! {
        started = app::start(config, Arc::new(SystemClock::new())) => started,
        _ = terminate.recv() => return stopped_before_it_served(),
        _ = interrupt.recv() => return stopped_before_it_served(),
    };
    let mut running = started.map_err(|problem| problem.to_string())?;
    let reload = running.reload().clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            read_again(&reload, source.clone()).await;
        }
    });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        problem = running.failed() => return Err(problem),
    }
    tracing::info!("stopping; once more stops at once");
    tokio::select! {
        _ = running.stop() => Ok(()),
        _ = terminate.recv() => Err("stopped at once, with calls in flight".to_owned()),
        _ = interrupt.recv() => Err("stopped at once, with calls in flight".to_owned()),
    }
}

fn stopped_before_it_served() -> Result<(), String> {
    tracing::info!("stopped before it served");
    Ok(())
}

/// Reads policy and configuration again. A configuration with a problem changes nothing.
async fn read_again(reload: &Reload, source: Option<Source>) {
    reload.policy();
    reload.tls();
    let Some((path, overrides)) = source else {
        tracing::info!("SIGHUP: the policy is read again; --dev has no configuration");
        return;
    };
    tracing::info!("SIGHUP: policy and configuration are read again");
    match tokio::task::spawn_blocking(move || Config::load(path.as_deref(), &overrides)).await {
        Ok(Ok(config)) => reload.configuration(&config).await,
        Ok(Err(problems)) => {
            for problem in &problems.0 {
                tracing::warn!("configuration: {}", neutralise(problem, LineBreaks::Escape).text);
            }
            tracing::error!(problems = problems.0.len(), "the configuration is refused: the one in force stays");
        }
        Err(_) => tracing::error!("the configuration could not be read: the one in force stays"),
    }
}
