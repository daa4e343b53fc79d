//! One connection of a door, over TCP, TLS or a Unix socket: who is at its other end, its place among those that its
//! listener may have, and how long it is waited for when it says nothing.

use crate::auth::Peer;
use crate::metrics::{ConnectionRefusal, ListenerName, Metrics};
use std::future::Future as _;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// Whoever is there answers the pings of HTTP/2, of which there is one a minute; who has nothing to send for longer than
/// this over HTTP/1.1 connects again.
const QUIET: Duration = Duration::from_secs(180);

/// The bytes that go to and fro. The server's code is built once for all kinds.
#[derive(Debug)]
pub(super) enum Stream {
    /// In the clear.
    Tcp(TcpStream),
    /// Through a file.
    Unix(UnixStream),
    /// Sealed, after the handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A place among the connections that a listener may have, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    listener: ListenerName,
    metrics: Arc<Metrics>,
}

impl Place {
    /// One that this permit stands for.
    pub(super) fn taken(permit: OwnedSemaphorePermit, listener: ListenerName, metrics: Arc<Metrics>) -> Self {
        metrics.connections.open(listener, 1);
        Self { _permit: permit, listener, metrics }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connections.open(self.listener, -1);
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: Peer,
    patience: Patience,
    place: Place,
}

impl Connection {
    /// One that has to send `first_bytes` within this time, made on the runtime on which it is served.
    pub(super) fn new(stream: Stream, peer: Peer, place: Place, first_bytes: usize, within: Duration) -> Self {
        Self { stream, peer, place, patience: Patience::new(first_bytes, within, QUIET) }
    }
}

/// Does the same with any stream.
macro_rules! each {
    ($connection:expr, $stream:ident => $does:expr) => {
        match &mut $connection.stream {
            Stream::Tcp($stream) => $does,
            Stream::Unix($stream) => $does,
            Stream::Tls($stream) => $does,
        }
    };
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match each!(this, stream => Pin::new(stream).poll_read(context, buffer)) {
            Poll::Ready(read) => {
                this.patience.heard(buffer.filled().len().saturating_sub(before));
                Poll::Ready(read)
            }
            Poll::Pending => match this.patience.poll_out(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(has_spoken) => {
                    if !has_spoken {
                        this.place.metrics.connections.refused.one(ConnectionRefusal::Timeout);
                    }
                    Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "nothing was sent for too long")))
                }
            },
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        match each!(this, stream => Pin::new(stream).poll_shutdown(context)) {
            // A farewell that nobody reads is not waited for.
            Poll::Pending if this.patience.poll_closed(context).is_ready() => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

/// How long a connection that says nothing is waited for: until it has begun to speak, and then for as long as whoever is
/// there is quiet at most.
#[derive(Debug)]
struct Patience {
    within: Duration,
    quiet: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Bytes that are still to come before it has spoken.
    missing: usize,
    /// Whether anything came since it was last looked.
    heard: bool,
    closing: bool,
}

impl Patience {
    fn new(first_bytes: usize, within: Duration, quiet: Duration) -> Self {
        let sleep = Box::pin(tokio::time::sleep(within));
        Self { within, quiet, sleep, missing: first_bytes, heard: false, closing: false }
    }

    fn heard(&mut self, bytes: usize) {
        self.missing = self.missing.saturating_sub(bytes);
        self.heard = true;
    }

    /// Ready once it is over; with whether anything has ever been said.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        while self.sleep.as_mut().poll(context).is_ready() {
            if self.missing > 0 {
                return Poll::Ready(false);
            }
            if !std::mem::take(&mut self.heard) {
                return Poll::Ready(true);
            }
            self.sleep.as_mut().reset(Instant::now() + self.quiet);
        }
        Poll::Pending
    }

    /// Ready once closing has taken too long.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.closing, true) {
            self.sleep.as_mut().reset(Instant::now() + self.within);
        }
        self.sleep.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    async fn out(mut patience: Patience) -> bool {
        std::future::poll_fn(|context| patience.poll_out(context)).await
    }

    #[tokio::test]
    async fn who_does_not_begin_to_speak_in_time_is_not_waited_for_however_it_drips() {
        let mut patience = Patience::new(24, Duration::ZERO, LONG);
        patience.heard(23);
        assert!(!out(patience).await);
    }

    #[tokio::test]
    async fn who_has_spoken_is_waited_for_until_it_is_quiet_for_long() {
        let mut patience = Patience::new(24, Duration::ZERO, Duration::ZERO);
        patience.heard(24);
        assert!(out(patience).await, "it was heard before, and then no more");
        let mut patience = Patience::new(24, Duration::ZERO, LONG);
        patience.heard(24);
        assert!(tokio::time::timeout(Duration::from_millis(20), out(patience)).await.is_err(), "there is time");
    }
}
