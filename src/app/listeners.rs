//! The listeners: opened where they are served, each with its doors and its TLS, and served side by side.

use super::StartError;
use super::incoming::{Entrance, Incoming, Listener};
use super::socket::{self, SocketFile};
use super::tls::{Tls, TlsWatch};
use super::transport::{OwnThread, server};
use crate::address::Address;
use crate::config::{Config, Door, ListenerSettings};
use crate::metrics::{ListenerName, Metrics};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower_service::Service;

/// Connections that the health listener has at once: of orchestrators and of who scrapes metrics.
const HEALTH_CONNECTIONS: usize = 256;

/// A listener that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenListener {
    /// Where it turned out to be.
    pub address: Address,
    /// The doors that are reached through it.
    pub doors: Vec<Door>,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// What was read of the files of TLS, listener by listener, before anything is opened.
pub(super) type Sealing = Vec<Option<(Tls, [u8; 32])>>;

/// Reads the files of TLS of these listeners.
///
/// # Errors
/// Everything that is wrong with any of them.
pub(super) fn read_tls(listeners: &[ListenerSettings], metrics: &Arc<Metrics>) -> Result<Sealing, StartError> {
    let (mut sealing, mut problems) = (Vec::new(), Vec::new());
    for listener in listeners {
        match listener.tls.as_ref().map(|tls| Tls::open(tls, name(listener), metrics)) {
            None => sealing.push(None),
            Some(Ok(read)) => sealing.push(Some(read)),
            Some(Err(found)) => {
                for problem in found {
                    // Two listeners may show the same.
                    if !problems.contains(&problem) {
                        problems.push(problem);
                    }
                }
            }
        }
    }
    if problems.is_empty() { Ok(sealing) } else { Err(StartError::Tls(problems)) }
}

/// Who counts calls it so.
fn name(listener: &ListenerSettings) -> ListenerName {
    match listener.doors.first() {
        _ if listener.key == "listen" => ListenerName::Common,
        Some(Door::Agent) => ListenerName::Agent,
        Some(Door::Approver) => ListenerName::Approver,
        Some(Door::Operator) => ListenerName::Operator,
        None => ListenerName::Common,
    }
}

/// The listeners of the doors, once all of them are open.
#[derive(Debug)]
pub(super) struct Listeners {
    /// Each with its settings, in the same order as the connections.
    pub(super) open: Vec<OpenListener>,
    /// The files of those that are sockets, removed when dropped.
    pub(super) sockets: Vec<SocketFile>,
    incoming: Vec<Incoming>,
    /// What is read again, and what does it.
    pub(super) tls: Vec<Tls>,
    pub(super) watches: Vec<TlsWatch>,
}

impl Listeners {
    /// Opens them on the thread on which they are served.
    ///
    /// # Errors
    /// One of them cannot be opened; then none is.
    pub(super) async fn open(
        config: &Config,
        settings: &[ListenerSettings],
        sealing: Sealing,
        metrics: &Arc<Metrics>,
        thread: &OwnThread,
    ) -> Result<Self, StartError> {
        let mut all =
            Self { open: Vec::new(), sockets: Vec::new(), incoming: Vec::new(), tls: Vec::new(), watches: Vec::new() };
        for (settings, sealing) in settings.iter().zip(sealing) {
            let (listener, address, socket) = open_on(thread, &settings.address, settings.socket_mode).await?;
            let entrance = Entrance {
                connections: config.connections,
                within: config.handshake_timeout,
                name: name(settings),
                metrics: Arc::clone(metrics),
            };
            metrics.connections.opened(entrance.name);
            all.open.push(OpenListener { address, doors: settings.doors.clone(), tls: settings.tls.is_some() });
            all.sockets.extend(socket);
            let tls = sealing.map(|(tls, digest)| {
                all.watches.push(TlsWatch::new(tls.clone(), digest, config.policy_settle));
                all.tls.push(tls.clone());
                tls
            });
            all.incoming.push(Incoming::new(listener, entrance).sealed(tls, Handle::current()));
        }
        Ok(all)
    }

    /// Serves them all, each with what `way` makes for its doors, until `stopped`. It ends when all have ended, or one failed.
    pub(super) fn serve<S, L>(
        incoming: Vec<Incoming>,
        ways: Vec<S>,
        layer: L,
        thread: &OwnThread,
        stopped: watch::Receiver<bool>,
    ) -> JoinHandle<Result<(), tonic::transport::Error>>
    where
        L: tower_layer::Layer<S> + Clone + Send + 'static,
        L::Service: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send,
        S: Send + 'static,
    {
        let mut serving = JoinSet::new();
        for (incoming, way) in incoming.into_iter().zip(ways) {
            let until = super::until(stopped.clone());
            let served = server().layer(layer.clone()).serve_with_incoming_shutdown(way, incoming, until);
            serving.spawn_on(served, thread.handle());
        }
        thread.handle().spawn(async move {
            while let Some(ended) = serving.join_next().await {
                match ended {
                    Ok(Ok(())) if *stopped.borrow() => {}
                    Ok(ended) => return ended,
                    // It panicked, which nothing of ours does; the rest is not to go on without it.
                    Err(_) => return Ok(()),
                }
            }
            Ok(())
        })
    }

    /// The connections of each, in the same order, which only one can have.
    pub(super) fn take_incoming(&mut self) -> Vec<Incoming> {
        std::mem::take(&mut self.incoming)
    }
}

/// Says where each is, and what is hardly meant.
pub(super) fn tell(open: &[OpenListener], settings: &[ListenerSettings]) {
    for (listener, settings) in open.iter().zip(settings) {
        let tls = settings.tls.as_ref().map_or("off", |_| "on");
        let client_certificates = settings.tls.as_ref().map_or("none", |tls| tls.client_certificates.as_str());
        let doors = settings.names();
        tracing::info!(at = %listener.address, doors, tls, client_certificates, "a listener is open");
        if settings.is_exposed() {
            tracing::warn!(
                at = %listener.address,
                doors,
                "this listener is plaintext and not on loopback: tokens can be read on the network"
            );
        }
        if let Address::Unix(path) = &listener.address {
            for doubt in socket::doubts(path, settings.socket_mode) {
                tracing::warn!("{doubt}");
            }
        }
    }
}

/// What is listened on is served where it was made.
async fn open_on(
    thread: &OwnThread,
    address: &Address,
    mode: u32,
) -> Result<(Listener, Address, Option<SocketFile>), StartError> {
    let wanted = address.clone();
    let opened = thread.handle().spawn(async move { open(&wanted, mode).await }).await;
    opened.unwrap_or_else(|cause| Err(StartError::Listen { address: address.clone(), cause: cause.into() }))
}

/// What is listened on, where that turned out to be, and its file, which is removed when dropped.
async fn open(address: &Address, mode: u32) -> Result<(Listener, Address, Option<SocketFile>), StartError> {
    match address {
        Address::Tcp(address) => {
            let listener = listen(*address).await?;
            let address = local(&listener)?.into();
            Ok((Listener::Tcp(listener), address, None))
        }
        Address::Unix(path) => {
            let opened = socket::listen(path, mode).await;
            let (listener, file) = opened.map_err(|cause| StartError::Listen { address: address.clone(), cause })?;
            Ok((Listener::Unix(listener), address.clone(), Some(file)))
        }
    }
}

/// The plaintext health listener, and where it turned out to be. Who speaks neither HTTP/1.1 nor HTTP/2 to it, or is quiet for
/// long, is not waited for.
pub(super) async fn open_health(config: &Config, metrics: &Arc<Metrics>) -> Result<(Incoming, SocketAddr), StartError> {
    let listener = listen(config.health_listen).await?;
    let address = local(&listener)?;
    let entrance = Entrance {
        connections: HEALTH_CONNECTIONS,
        within: config.handshake_timeout,
        name: ListenerName::Health,
        metrics: Arc::clone(metrics),
    };
    metrics.connections.opened(entrance.name);
    Ok((Incoming::new(Listener::Tcp(listener), entrance).of_any_http(), address))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|cause| StartError::Listen { address: address.into(), cause })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listener.local_addr().map_err(|cause| StartError::Listen { address: unknown.into(), cause })
}
