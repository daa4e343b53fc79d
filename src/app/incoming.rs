//! Connections of a listener, over TCP, TLS or a Unix socket. Each has a place among so many, and is let in once its
//! handshake is done: that runs beside, within a time limit, so that nobody waits for somebody else's. Where the process has
//! no descriptor left for one more, accepting waits a little and says so, instead of asking again and again.

use super::connection::{Connection, Place, Stream};
use super::tls::Tls;
use crate::auth::Peer;
use crate::metrics::{ConnectionRefusal, ListenerName, Metrics};
use crate::service::Sparing;
use std::future::Future as _;
use std::io::Result;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// Long enough for a connection to end, short enough for a caller to wait.
const PAUSE: Duration = Duration::from_millis(100);
/// What HTTP/2 begins with (RFC 9113, section 3.4), in bytes.
const PREFACE: usize = 24;

/// What is listened on.
#[derive(Debug)]
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener),
}

impl Listener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<(Stream, Peer)>> {
        Poll::Ready(match self {
            Self::Tcp(listener) => ready!(listener.poll_accept(context)).map(|(stream, address)| {
                // A connection that is gone already is found out when it is used.
                let _ = stream.set_nodelay(true);
                (Stream::Tcp(stream), Peer::Address(address))
            }),
            Self::Unix(listener) => ready!(listener.poll_accept(context)).map(|(stream, _)| {
                let process = stream.peer_cred();
                let peer =
                    process.map_or(Peer::Unknown, |process| Peer::Process { uid: process.uid(), pid: process.pid() });
                (Stream::Unix(stream), peer)
            }),
        })
    }
}

/// What a listener lets in.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// How many connections it has at once, those that are not let in yet included. One more is closed at once: who is
    /// turned away knows it and tries elsewhere, where who waits knows nothing.
    pub connections: usize,
    /// How long a new one may take for its handshake, and then until it has begun to speak.
    pub within: Duration,
    /// Whose connections these are, for those who count.
    pub name: ListenerName,
    /// Where they are counted.
    pub metrics: Arc<Metrics>,
}

/// As the configuration has it where nothing is said.
impl Default for Entrance {
    fn default() -> Self {
        let (name, metrics) = (ListenerName::Common, Arc::default());
        Self { connections: 1_024, within: Duration::from_secs(10), name, metrics }
    }
}

/// The connections that a listener lets in, with small messages sent at once.
#[derive(Debug)]
pub struct Incoming {
    listener: Listener,
    entrance: Entrance,
    /// What a connection has to send before it has spoken.
    first_bytes: usize,
    places: Arc<Semaphore>,
    tls: Option<(Tls, Handle)>,
    handshakes: JoinSet<Option<(Stream, Peer, Place)>>,
    pause: Option<Pin<Box<Sleep>>>,
    failures: Sparing,
    turned_away: Sparing,
}

impl Incoming {
    /// Those of this listener, in the clear, on the runtime on which it was made.
    pub fn new(listener: Listener, entrance: Entrance) -> Self {
        Self {
            listener,
            first_bytes: PREFACE,
            places: Arc::new(Semaphore::new(entrance.connections.min(Semaphore::MAX_PERMITS))),
            entrance,
            tls: None,
            handshakes: JoinSet::new(),
            pause: None,
            failures: Sparing::new(),
            turned_away: Sparing::new(),
        }
    }

    /// The same over TLS, with the work of the handshakes done on another runtime, so that it holds up no call.
    #[must_use]
    pub(super) fn sealed(self, tls: Option<Tls>, handshakes: Handle) -> Self {
        Self { tls: tls.map(|tls| (tls, handshakes)), ..self }
    }

    /// The same for those who may speak HTTP/1.1, where a short first line is something.
    #[must_use]
    pub(super) fn of_any_http(self) -> Self {
        Self { first_bytes: 1, ..self }
    }

    /// A place for one more; none if it is to be turned away.
    fn place(&self) -> Option<Place> {
        let Entrance { name, metrics, connections, .. } = &self.entrance;
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => Some(Place::taken(permit, *name, Arc::clone(metrics))),
            Err(_) => {
                metrics.connections.refused.one(ConnectionRefusal::Limit);
                if let Some(unsaid) = self.turned_away.say() {
                    tracing::warn!(
                        listener = ?name,
                        connections,
                        unsaid,
                        "a connection was turned away: the listener has as many as `limits.connections` lets it have"
                    );
                }
                None
            }
        }
    }

    fn let_in(&self, stream: Stream, peer: Peer, place: Place) -> Connection {
        Connection::new(stream, peer, place, self.first_bytes, self.entrance.within)
    }
}

/// Does a handshake. None if it fails or takes too long.
async fn shake_hands(
    tls: Tls,
    stream: TcpStream,
    address: SocketAddr,
    place: Place,
    within: Duration,
    metrics: Arc<Metrics>,
) -> Option<(Stream, Peer, Place)> {
    static FAILED: Sparing = Sparing::new();
    let (refusal, cause) = match tokio::time::timeout(within, tls.accept(stream, address)).await {
        Ok(Ok((stream, peer))) => return Some((Stream::Tls(Box::new(stream)), peer, place)),
        Ok(Err(cause)) => (ConnectionRefusal::Handshake, cause),
        Err(_) => (ConnectionRefusal::Timeout, "it took too long".to_owned()),
    };
    metrics.connections.refused.one(refusal);
    if let Some(unsaid) = FAILED.say() {
        tracing::warn!(peer = %address, cause, unsaid, "a TLS handshake failed");
    }
    None
}

impl tokio_stream::Stream for Incoming {
    type Item = Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            // One that failed, or panicked, has given back its place.
            while let Poll::Ready(Some(shaken)) = self.handshakes.poll_join_next(context) {
                if let Ok(Some((stream, peer, place))) = shaken {
                    return Poll::Ready(Some(Ok(self.let_in(stream, peer, place))));
                }
            }
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, peer)) => {
                    let Some(place) = self.place() else { continue };
                    match (stream, &peer, self.tls.clone()) {
                        (Stream::Tcp(stream), Peer::Address(address), Some((tls, handle))) => {
                            let (within, metrics) = (self.entrance.within, Arc::clone(&self.entrance.metrics));
                            let shaking = shake_hands(tls, stream, *address, place, within, metrics);
                            self.handshakes.spawn_on(shaking, &handle);
                        }
                        // What is to be sealed and cannot be is not let in.
                        (_, _, Some(_)) => {}
                        (stream, _, None) => return Poll::Ready(Some(Ok(self.let_in(stream, peer, place)))),
                    }
                }
                Err(cause) => {
                    if let Some(unsaid) = self.failures.say() {
                        tracing::error!(%cause, unsaid, "a connection could not be accepted");
                    }
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}
