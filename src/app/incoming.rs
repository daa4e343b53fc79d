//! Connections of the doors' listener, over TCP or a Unix socket. Where the process has no descriptor left for one more,
//! accepting waits a little and says so, instead of asking again and again.

use crate::auth::Peer;
use crate::service::Sparing;
use std::future::Future as _;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

/// Long enough for a connection to end, short enough for a caller to wait.
const PAUSE: Duration = Duration::from_millis(100);

/// What the doors listen on.
#[derive(Debug)]
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener),
}

impl Listener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<Connection>> {
        Poll::Ready(match self {
            Self::Tcp(listener) => ready!(listener.poll_accept(context)).map(|(stream, _)| {
                // A connection that is gone already is found out when it is used.
                let _ = stream.set_nodelay(true);
                Connection::Tcp(stream)
            }),
            Self::Unix(listener) => ready!(listener.poll_accept(context)).map(|(stream, _)| Connection::Unix(stream)),
        })
    }
}

/// The connections that a listener accepts, with small messages sent at once.
#[derive(Debug)]
pub struct Incoming {
    listener: Listener,
    pause: Option<Pin<Box<Sleep>>>,
    failures: Sparing,
}

impl Incoming {
    /// Those of this listener, on the runtime on which it was made.
    pub fn new(listener: Listener) -> Self {
        Self { listener, pause: None, failures: Sparing::new() }
    }
}

impl tokio_stream::Stream for Incoming {
    type Item = Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok(connection) => return Poll::Ready(Some(Ok(connection))),
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

/// One connection. The server's code is built once for both kinds.
#[derive(Debug)]
pub enum Connection {
    /// From an address.
    Tcp(TcpStream),
    /// Through a file.
    Unix(UnixStream),
}

/// Does the same with either stream.
macro_rules! either {
    ($connection:expr, $stream:ident => $does:expr) => {
        match $connection.get_mut() {
            Connection::Tcp($stream) => $does,
            Connection::Unix($stream) => $does,
        }
    };
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map_or(Peer::Unknown, Peer::Address),
            Self::Unix(stream) => stream
                .peer_cred()
                .map_or(Peer::Unknown, |process| Peer::Process { uid: process.uid(), pid: process.pid() }),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
