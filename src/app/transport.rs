//! How the doors are served: the settings of HTTP/2, and the thread that they have for themselves.

use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tonic::transport::Server;

/// What one connection may have in flight; a runtime of agents shares one connection.
const STREAMS_PER_CONNECTION: u32 = 256;
/// HTTP/2 windows, so that large arguments do not wait for window updates.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// How often it is asked whether somebody is still there, and how long the answer may take.
const STILL_THERE: Duration = Duration::from_secs(60);
const STILL_THERE_WITHIN: Duration = Duration::from_secs(20);
/// What the head of a call may measure, in bytes: its path, a credential, whatever a mesh adds.
const HEAD_BYTES: u32 = 16 * 1024;
/// Calls that a client may have taken back before they were looked at, and streams that it may have made the server end,
/// until its connection is ended: who opens and resets calls in a flood has none.
const RESET_BEFORE_ACCEPTED: usize = 20;
const RESET_FOR_ERRORS: usize = 256;

/// A server with the doors' settings, and nothing behind it yet.
pub fn server() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(STILL_THERE))
        .http2_keepalive_timeout(Some(STILL_THERE_WITHIN))
        .http2_max_header_list_size(HEAD_BYTES)
        .http2_max_pending_accept_reset_streams(Some(RESET_BEFORE_ACCEPTED))
        .http2_max_local_error_reset_streams(Some(RESET_FOR_ERRORS))
}

/// A thread with a runtime of its own, on which one thing runs at a time: there, answers to one connection are written
/// together, where threads that share work would write each by itself at twice the cost. What waits for the database is
/// woken from the other runtime.
///
/// It runs until this is dropped, whatever has been spawned on it.
#[derive(Debug)]
pub struct OwnThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl OwnThread {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// The system has no thread, or no descriptor, to give.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nothing is ever sent: it is over when the sender is gone.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, _end: end })
    }

    /// Where to spawn what is to run on it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}
