//! Connections of the doors' listener. Where the process has no descriptor left for one more, accepting waits a little and says
//! so, instead of asking again and again.

use crate::service::Sparing;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

/// Long enough for a connection to end, short enough for a caller to wait.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections that a listener accepts, with small messages sent at once.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    pause: Option<Pin<Box<Sleep>>>,
    failures: Sparing,
}

impl Incoming {
    /// Those of this listener, on the runtime on which it was made.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, pause: None, failures: Sparing::new() }
    }
}

impl tokio_stream::Stream for Incoming {
    type Item = std::io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.pause = None;
            }
            match self.listener.poll_accept(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok((stream, _))) => {
                    // A connection that is gone already is found out when it is used.
                    let _ = stream.set_nodelay(true);
                    return Poll::Ready(Some(Ok(stream)));
                }
                Poll::Ready(Err(cause)) => {
                    if let Some(unsaid) = self.failures.say() {
                        tracing::error!(%cause, unsaid, "a connection could not be accepted");
                    }
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}
