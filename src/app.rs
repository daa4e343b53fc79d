//! The running sidecar: opens the table, loads the policy, opens the doors and the plaintext health listener, and stops in
//! order.

mod connection;
mod health;
mod incoming;
mod issuers;
mod listeners;
mod observe;
mod reload;
mod sealing;
mod secrets;
pub mod socket;
mod store;
pub mod tls;
mod transport;

pub use incoming::{Entrance, Incoming, Listener};
pub use listeners::OpenListener;
pub use secrets::SecretsWatch;
pub use store::OpenError;
pub use transport::{OwnThread, server};

pub use reload::Reload;

use crate::address::Address;
use crate::auth::SharedCallers;
use crate::clock::Clock;
use crate::config::{Config, Door, ListenerSettings};
use crate::domain::audit::AuditedEvaluations;
use crate::domain::preview::Previewer;
use crate::engine::{Engine, EvaluationAudit};
use crate::metrics::Metrics;
use crate::policy_files::{Built, CatalogFiles, PolicyLoadError, Snapshot};
use crate::proto::DESCRIPTORS;
use crate::sealer::Sealer;
use crate::secrets::{Keyring, SecretProblems};
use crate::service::{Doors, Doorway, EdgeLayer};
use crate::storage::{Store, StoreError};
use crate::sweeper::Sweeper;
use health::Health;
use listeners::{Listeners, Sealing};
use reload::Watched;
use socket::SocketFile;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::Routes;

/// A question about the protos is a name; it comes without a credential, so nothing larger is waited for.
const REFLECTION_BYTES: usize = 16 * 1024;

/// Why the sidecar did not start. Each is to be shown to whoever started it, as it is.
#[derive(Debug)]
pub enum StartError {
    /// The policy.
    Policy(PolicyLoadError),
    /// The database.
    Open(OpenError),
    /// The database, once open.
    Store(StoreError),
    /// The server secrets.
    Secrets(SecretProblems),
    /// The preview's configuration.
    Preview(Vec<String>),
    /// Files of TLS: everything that is wrong with them, each named.
    Tls(Vec<String>),
    /// A listener.
    Listen {
        /// Where.
        address: Address,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The doors' own thread.
    Thread(std::io::Error),
    /// The descriptors for reflection.
    Reflection(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(formatter),
            Self::Open(error) => error.fmt(formatter),
            Self::Store(error) => error.fmt(formatter),
            Self::Secrets(error) => error.fmt(formatter),
            Self::Preview(problems) => write!(formatter, "preview: {}", problems.join("; ")),
            Self::Tls(problems) => write!(formatter, "tls: {}", problems.join("\ntls: ")),
            Self::Listen { address, cause } => write!(formatter, "cannot listen on {address}: {cause}"),
            Self::Thread(cause) => write!(formatter, "no thread for the listener: {cause}"),
            Self::Reflection(cause) => write!(formatter, "reflection: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A sidecar that serves.
#[derive(Debug)]
pub struct Running {
    /// Never empty.
    listeners: Vec<OpenListener>,
    address: Address,
    sockets: Vec<SocketFile>,
    health_address: SocketAddr,
    stop: watch::Sender<bool>,
    under_way: Arc<AtomicUsize>,
    end_health: watch::Sender<bool>,
    doors: JoinHandle<Result<(), tonic::transport::Error>>,
    health_listener: JoinHandle<Result<(), tonic::transport::Error>>,
    monitor: JoinHandle<()>,
    backlog: JoinHandle<()>,
    evaluation_audit: Option<Arc<EvaluationAudit>>,
    health: Health,
    engine: Arc<Engine>,
    sweeper: Arc<Sweeper>,
    sweeping: JoinHandle<()>,
    sealer: Arc<Sealer>,
    sealing: JoinHandle<()>,
    grace_period: Duration,
    reload: Reload,
    secrets: Arc<SecretsWatch>,
    watching_secrets: JoinHandle<()>,
    /// Last: state changes that run on it are finished before it ends.
    _thread: OwnThread,
}

/// Starts a sidecar: everything that can be wrong is found before a port is opened.
///
/// # Errors
/// The policy, the database, the secret or a listener; nothing is left running.
pub async fn start(config: &Config, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
    let Built { policy, catalogs, digest, .. } = Snapshot::read(&config.policy, &CatalogFiles::new()).build();
    let policy = policy.map_err(StartError::Policy)?;
    for warning in policy.warnings() {
        tracing::warn!("policy: {warning}");
    }
    let watched = Watched::new(config.policy.clone(), config.policy_settle, catalogs, digest);
    let callers = SharedCallers::new(config.callers.clone(), Arc::clone(&clock));
    let previewer = Previewer::new(config.preview.clone())
        .map_err(|problems| StartError::Preview(problems.iter().map(ToString::to_string).collect()))?;
    let metrics = observe::metrics().map_err(StartError::Reflection)?;
    let listeners = config.listeners();
    let sealing = listeners::read_tls(&listeners, &metrics)?;
    let keyring = secrets::read(config)?;
    let store = store::open(config, clock, &metrics).await?;
    let opened = Opened { store: Arc::clone(&store), keyring, metrics, listeners, sealing };
    match serve(config, Arc::new(policy), watched, callers, previewer, opened).await {
        Ok(running) => Ok(running),
        Err(error) => {
            store.close().await;
            Err(error)
        }
    }
}

/// What was opened before everything else.
struct Opened {
    store: Arc<dyn Store>,
    /// None if the table says whether there is to be a secret.
    keyring: Option<Keyring>,
    metrics: Arc<Metrics>,
    listeners: Vec<ListenerSettings>,
    /// What TLS the listeners have.
    sealing: Sealing,
}

async fn serve(
    config: &Config,
    policy: Arc<crate::domain::policy::Policy>,
    watched: Watched,
    callers: SharedCallers,
    previewer: Previewer,
    Opened { store, keyring, metrics, listeners, sealing }: Opened,
) -> Result<Running, StartError> {
    let secrets = secrets::open(config, keyring, store.as_ref()).await?;
    if config.callers.is_empty() {
        tracing::warn!("no callers are configured: nobody can call");
    }
    let engine = Engine::new(Arc::clone(&store), policy, previewer, secrets, config.question_limits);
    let engine = engine.counting(Arc::clone(&metrics));
    let engine = match &config.permits {
        Some(names) => engine.signing_permits(names.clone()),
        None => engine,
    };
    let (engine, evaluation_audit) = match config.audited_evaluations {
        AuditedEvaluations::Acting | AuditedEvaluations::None => (engine, None),
        AuditedEvaluations::All => {
            let audit = Arc::new(EvaluationAudit::start(Arc::clone(&store), Arc::clone(&metrics)));
            (engine.auditing_evaluations(Arc::clone(&audit)), Some(audit))
        }
    };
    let engine = Arc::new(engine);
    // The work behind the doors stays on this runtime: the writer, the health listener, whatever waits for a time.
    let thread = OwnThread::start("doors").map_err(StartError::Thread)?;
    let mut opened = Listeners::open(config, &listeners, sealing, &metrics, &thread).await?;
    let (health_incoming, health_address) = listeners::open_health(config, &metrics).await?;

    let (stop, stopped) = watch::channel(false);
    let (end_health, health_ended) = watch::channel(false);
    let (health, health_service) = Health::new();
    let doors = Doors::new(Arc::clone(&engine), config.arguments_bytes).taking(config.message_bytes);
    let edge = EdgeLayer::new(stopped.clone()).counting(Arc::clone(&metrics)).taking(config.message_bytes);
    let under_way = edge.under_way();
    let mut rest = Routes::new(health_service.clone());
    if config.reflection {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let failed = |error: tonic_reflection::server::Error| StartError::Reflection(error.to_string());
        // Clients of both ages: Python's speaks the old one.
        let current = builder().build_v1().map_err(failed)?;
        let older = builder().build_v1alpha().map_err(failed)?;
        rest = rest.add_service(current.max_decoding_message_size(REFLECTION_BYTES));
        rest = rest.add_service(older.max_decoding_message_size(REFLECTION_BYTES));
    }
    let doorway = Doorway::new((doors.agent(&callers), doors.approver(&callers), doors.operator(&callers)), rest);
    let ways = opened.open.iter().map(|listener| doorway.opening(Door::ALL.map(|door| listener.doors.contains(&door))));
    let (ways, incoming) = (ways.collect(), opened.take_incoming());
    let doors = Listeners::serve(incoming, ways, edge, &thread, stopped.clone());
    health.secrets_missing(!engine.secrets().missing.is_empty()).await;
    health.serving().await;
    let health_task = tokio::spawn(health::serve(
        health_incoming,
        health_service,
        health.clone(),
        Arc::clone(&engine),
        until(health_ended),
    ));
    let sweeper = Arc::new(Sweeper::new(Arc::clone(&store), &config.retention));
    observe::sweeper(&metrics, &sweeper);
    let sweeping = tokio::spawn(Arc::clone(&sweeper).run_until(config.sweep_every, stopped.clone()));
    let (sealer, sealing) = sealing::start(config, &engine, stopped.clone());
    let backlog = tokio::spawn(observe::watch_backlog(Arc::clone(&store), metrics, stopped.clone()));
    let monitor = tokio::spawn(health.clone().watch_store(store, stopped.clone()));
    let secrets = Arc::new(SecretsWatch::new(Arc::clone(&engine), health.clone()));
    let watching_secrets = tokio::spawn(Arc::clone(&secrets).run(stopped.clone()));
    for watch in opened.watches {
        tokio::spawn(reload::until(stopped.clone(), watch.run()));
    }
    tokio::spawn(issuers::keep_keys(callers.clone(), stopped.clone()));
    let reload = Reload::start(config, watched, callers, Arc::clone(&secrets), Arc::clone(&engine), stopped);
    let reload = reload.with_tls(opened.tls);
    listeners::tell(&opened.open, &listeners);
    let address = opened.open.first().map_or_else(|| config.listen.clone(), |first| first.address.clone());
    tracing::info!(%address, %health_address, policy_revision = engine.policy().revision(), "serving");
    Ok(Running {
        listeners: opened.open,
        address,
        sockets: opened.sockets,
        health_address,
        stop,
        under_way,
        end_health,
        doors,
        health_listener: health_task,
        monitor,
        backlog,
        evaluation_audit,
        health,
        engine,
        sweeper,
        sweeping,
        sealer,
        sealing,
        grace_period: config.grace_period,
        reload,
        secrets,
        watching_secrets,
        _thread: thread,
    })
}

impl Running {
    /// Where the doors listen; where they do so apart, where the agent's door does.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Where this door listens.
    pub fn address_of(&self, door: Door) -> Address {
        let listener = self.listeners.iter().find(|listener| listener.doors.contains(&door));
        listener.map_or_else(|| self.address.clone(), |listener| listener.address.clone())
    }

    /// Every listener of the doors.
    pub fn listeners(&self) -> &[OpenListener] {
        &self.listeners
    }

    /// Where the plaintext health listener listens.
    pub fn health_address(&self) -> SocketAddr {
        self.health_address
    }

    /// The engine behind the doors.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What reads policy and configuration again while it serves.
    pub fn reload(&self) -> &Reload {
        &self.reload
    }

    /// What watches over the server secrets.
    pub fn secrets(&self) -> &Arc<SecretsWatch> {
        &self.secrets
    }

    /// The background work. It goes on by itself; a pass may be run at any time.
    pub fn sweeper(&self) -> &Arc<Sweeper> {
        &self.sweeper
    }

    /// Whoever seals the audit. It goes on by itself; a pass may be run at any time.
    pub fn sealer(&self) -> &Arc<Sealer> {
        &self.sealer
    }

    /// Stops in order: not serving, nothing new, what is in flight finished within the grace period, the table closed.
    /// Answers whether everything in flight was finished.
    pub async fn stop(self) -> bool {
        self.health.stopping().await;
        // Nobody new finds the way, and who starts in our place finds it free.
        drop(self.sockets);
        self.stop.send_replace(true);
        let mut doors = self.doors;
        let finished = tokio::select! {
            ended = &mut doors => matches!(ended, Ok(Ok(()))),
            () = nothing_under_way(&self.under_way) => true,
            () = tokio::time::sleep(self.grace_period) => {
                tracing::warn!(grace_period_ms = self.grace_period.as_millis(), "calls in flight were cut off");
                false
            }
        };
        self.engine.stop_watching();
        doors.abort();
        self.monitor.abort();
        self.watching_secrets.abort();
        self.sweeping.abort();
        self.backlog.abort();
        if let Some(audit) = &self.evaluation_audit
            && tokio::time::timeout(self.grace_period, audit.finish()).await.is_err()
        {
            tracing::error!("records of evaluations that waited are lost: the database did not take them");
        }
        self.sealing.abort();
        sealing::finish(&self.sealer, self.grace_period).await;
        self.end_health.send_replace(true);
        // A probe's connection may stay open for ever; nothing of it is worth waiting for.
        if tokio::time::timeout(Duration::from_millis(200), self.health_listener).await.is_err() {
            tracing::debug!("the health listener was cut off");
        }
        let closed = tokio::time::timeout(self.grace_period, self.engine.store().close()).await.is_ok();
        if !closed {
            tracing::error!("the database did not close: what was answered is in it all the same");
        }
        tracing::info!("stopped");
        finished && closed
    }

    /// Waits until the doors have ended by themselves, which they do only by failing.
    pub async fn failed(&mut self) -> String {
        match (&mut self.doors).await {
            Ok(Ok(())) => "the listener ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

/// Waits until no call has been under way for a little: connections without a call may stay open for ever, and what was
/// answered last needs its time to be sent.
async fn nothing_under_way(under_way: &AtomicUsize) {
    let mut quiet = 0;
    while quiet < 10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        quiet = if under_way.load(Ordering::SeqCst) == 0 { quiet + 1 } else { 0 };
    }
}

async fn until(mut told: watch::Receiver<bool>) {
    // A sender that is gone has nothing more to tell: the process is ending.
    let _ = told.wait_for(|told| *told).await;
}
