//! The connections of operations: who may have one, which are still good, and that one which hangs holds nobody.
//!
//! A connection that is given back is ready for the next one at once, with no round trip. One whose use was broken off is
//! asked first whether it still answers; one that did not answer in time is dropped as it is, without a farewell that may
//! hang as well. Whoever waits for a connection waits for `acquire_timeout` in all.

use super::connecting::{Connector, code};
use super::warnings::Warnings;
use sqlx::{Connection as _, PgConnection};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A connection that nobody has used for longer is asked whether it still answers.
const TRUSTED: Duration = Duration::from_secs(1);
/// How long that may take, and a farewell.
const PING: Duration = Duration::from_secs(1);
/// One that nobody has needed for so long is given up.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// One that is older is given up after its use: what a server's name stands for changes, and so do its settings.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// How often a server that is starting is tried.
const RETRY: Duration = Duration::from_millis(50);

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// Every one is in use.
    Full,
    /// None could be made, or not in time.
    Failed(String),
    /// The store is closed.
    Closed,
}

/// The connections.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    connector: Arc<Connector>,
    places: Arc<Semaphore>,
    size: u32,
    acquire_timeout: Duration,
    /// In the order of their last use.
    idle: Mutex<VecDeque<Idle>>,
    /// What was last used before this is not trusted.
    suspected: Mutex<Option<Instant>>,
    given_up: AtomicU64,
    closed: AtomicBool,
    warnings: Warnings,
}

#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    made: Instant,
    used: Instant,
}

/// A connection in use. Dropped, it is looked at before anybody else gets it.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Shared>,
    /// None once it is given back or thrown away.
    connection: Option<Held>,
}

#[derive(Debug)]
struct Held {
    connection: PgConnection,
    made: Instant,
    place: OwnedSemaphorePermit,
}

impl Pool {
    /// At most `size` connections.
    pub(super) fn new(connector: Arc<Connector>, size: u32, acquire_timeout: Duration) -> Self {
        let places = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)));
        Self(Arc::new(Shared {
            connector,
            places,
            size,
            acquire_timeout,
            idle: Mutex::default(),
            suspected: Mutex::default(),
            given_up: AtomicU64::default(),
            closed: AtomicBool::default(),
            warnings: Warnings::default(),
        }))
    }

    /// A connection that answers, as far as is known.
    pub(super) async fn acquire(&self) -> Result<Lease, NoConnection> {
        let shared = &self.0;
        if shared.closed.load(Ordering::Acquire) {
            return Err(NoConnection::Closed);
        }
        let deadline = Instant::now() + shared.acquire_timeout;
        let place = match tokio::time::timeout_at(deadline, Arc::clone(&shared.places).acquire_owned()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(NoConnection::Closed),
            Err(_) => return Err(NoConnection::Full),
        };
        let lease =
            |connection, made| Lease { pool: Arc::clone(shared), connection: Some(Held { connection, made, place }) };
        while let Some(mut idle) = shared.newest() {
            if shared.trusts(&idle) {
                return Ok(lease(idle.connection, idle.made));
            }
            let bound = deadline.min(Instant::now() + PING);
            match tokio::time::timeout_at(bound, idle.connection.ping()).await {
                Ok(Ok(())) => return Ok(lease(idle.connection, idle.made)),
                Ok(Err(error)) => shared.broken(&error.to_string()),
                Err(_) => shared.hangs("a connection does not answer"),
            }
        }
        let made = shared.connect(deadline).await.map_err(NoConnection::Failed)?;
        Ok(lease(made, Instant::now()))
    }

    /// How many connections were given up because they did not work.
    pub(super) fn given_up(&self) -> u64 {
        self.0.given_up.load(Ordering::Relaxed)
    }

    /// Gives no more connections, waits for those in use for at most `patience`, and ends them all.
    pub(super) async fn close(&self, patience: Duration) {
        self.0.closed.store(true, Ordering::Release);
        // Whoever waits for a place already is in front of this.
        let _ = tokio::time::timeout(patience, self.0.places.acquire_many(self.0.size)).await;
        self.0.places.close();
        let idle: Vec<Idle> = self.0.idle().drain(..).collect();
        let farewells = idle.into_iter().map(|idle| idle.connection.close());
        let _ = tokio::time::timeout(PING, futures_util::future::join_all(farewells)).await;
    }
}

impl Lease {
    /// The connection; none once it is given up.
    pub(super) fn connection(&mut self) -> Option<&mut PgConnection> {
        self.connection.as_deref_mut()
    }

    /// Gives it back after an operation that came to its end.
    pub(super) fn give_back(mut self) {
        let Some(held) = &self.connection else { return };
        // What is still to be sent (the end of a transaction that was dropped) is sent now, and not by whoever comes next:
        // until then, the locks are held.
        if held.connection.should_flush() || held.connection.is_in_transaction() {
            return;
        }
        if let Some(held) = self.connection.take() {
            self.pool.put(held);
        }
    }

    /// Drops it as it is. Others that were in use with it are not trusted any more.
    pub(super) fn throw_away(mut self, cause: &str) {
        drop(self.connection.take());
        self.pool.broken(cause);
    }

    /// The same of one that does not answer: nor will the others.
    pub(super) fn hangs(mut self, cause: &str) {
        drop(self.connection.take());
        self.pool.hangs(cause);
    }
}

impl Deref for Held {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut held) = self.connection.take() else { return };
        // Whoever used it was broken off, or failed: what it sent and was not answered is read to its end, beside whoever
        // waits. Its place is taken until then.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let pool = Arc::clone(&self.pool);
        runtime.spawn(async move {
            match tokio::time::timeout(PING, held.ping()).await {
                Ok(Ok(())) if !held.is_in_transaction() => pool.put(held),
                Ok(Ok(())) => pool.given_up("a connection was left in a transaction"),
                Ok(Err(error)) => pool.broken(&error.to_string()),
                // It may be that a long statement goes on for nobody: no reason to suspect the others.
                Err(_) => pool.given_up("a connection did not end what was broken off"),
            }
        });
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> Option<Idle> {
        self.idle().pop_back()
    }

    fn trusts(&self, idle: &Idle) -> bool {
        let suspected = *self.suspected.lock().unwrap_or_else(PoisonError::into_inner);
        idle.used.elapsed() <= TRUSTED && suspected.is_none_or(|suspected| idle.used > suspected)
    }

    fn put(&self, held: Held) {
        let Held { connection, made, place } = held;
        let now = Instant::now();
        let mut ended = Vec::new();
        if self.closed.load(Ordering::Acquire) || now.duration_since(made) > LIFETIME {
            ended.push(connection);
        } else {
            let mut idle = self.idle();
            idle.push_back(Idle { connection, made, used: now });
            while idle.front().is_some_and(|oldest| now.duration_since(oldest.used) > IDLE) {
                ended.extend(idle.pop_front().map(|oldest| oldest.connection));
            }
        }
        drop(place);
        if !ended.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let farewells = futures_util::future::join_all(ended.into_iter().map(PgConnection::close));
            runtime.spawn(tokio::time::timeout(PING, farewells));
        }
    }

    /// Connects, and while the server is starting tries until the deadline.
    async fn connect(&self, deadline: Instant) -> Result<PgConnection, String> {
        let late = || format!("no connection was made within {} ms", self.acquire_timeout.as_millis());
        loop {
            let error = match tokio::time::timeout_at(deadline, self.connector.connect()).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => {
                    let cause = late();
                    self.warnings.warn("a connection could not be made", &cause);
                    return Err(cause);
                }
            };
            self.warnings.warn("a connection could not be made", &error.to_string());
            if !is_starting(&error) || Instant::now() + RETRY >= deadline {
                return Err(error.to_string());
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn given_up(&self, cause: &str) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
        self.warnings.warn("a connection was given up", cause);
    }

    fn broken(&self, cause: &str) {
        *self.suspected.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.given_up(cause);
    }

    fn hangs(&self, cause: &str) {
        self.broken(cause);
        let hanging: Vec<Idle> = self.idle().drain(..).collect();
        self.given_up.fetch_add(u64::try_from(hanging.len()).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Whether a server that refuses a connection so will soon take one.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => {
            use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
            matches!(error.kind(), ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
        }
        // Starting or stopping; or too many connections, of which some have just been dropped.
        error => code(error).is_some_and(|code| matches!(code.as_str(), "57P01" | "57P02" | "57P03" | "53300")),
    }
}
