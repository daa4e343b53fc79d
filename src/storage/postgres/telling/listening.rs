//! Hearing what other sidecars changed: by their notifications, and by looking at the table.
//!
//! It runs while anybody watches, on a connection of its own, which is made anew for as long as it takes. Every look also
//! tells whether the connection still answers.

use super::Shared;
use super::notices::Notice;
use crate::domain::ids::ApprovalId;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touch;
use sqlx::postgres::{PgListener, PgPoolOptions, PgRow};
use sqlx::{Acquire as _, Row as _, query, query_scalar};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Rows that are read at once.
const PAGE: i64 = 1_000;
/// With more news than this in one look, or more rows, watchers read anew what they watch.
const MOST_NEWS: usize = 50_000;
const MOST_ROWS: usize = 100_000;
/// A clock that is set back by no more than this loses nothing: what is looked for again goes back further.
const SET_BACK: Duration = Duration::from_secs(1);
/// Between two looks at least, however much others say.
const GAP: Duration = Duration::from_millis(100);
/// Between two attempts to connect at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Without a look for this long, rows may have changed and been deleted in the meantime.
const LOST: Duration = Duration::from_secs(10 * 60);
/// Whether anybody still listens is asked at least this often.
const ATTENTION: Duration = Duration::from_secs(1);

/// The time and a page of what changed since, in the order of the index on it, which is all that is read.
const LOOK: &str = "SELECT clock.now, changed.id, changed.version, changed.update_time
    FROM (SELECT store_now($1) AS now) AS clock
    LEFT JOIN LATERAL (SELECT id, version, update_time FROM approvals WHERE (update_time, id) > ($2, $3)
        ORDER BY update_time, id LIMIT $4) AS changed ON true
    ORDER BY changed.update_time, changed.id";

/// Of what other roles do only superusers see more than that they are there; the sidecars of one table are of one role.
const UNDER_WAY: &str = "SELECT (extract(epoch FROM min(xact_start)) * 1000000)::BIGINT FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()";
const NOW: &str = "SELECT store_now($1)";

/// Runs for as long as the store is open.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let Some(begun) = begun(&shared) else {
            shared.to_look.notified().await;
            continue;
        };
        Listening { shared: &shared, seen: Seen::since(begun), listener: None }.run().await;
    }
}

/// When the first of those who listen began to; none if nobody does, and then it is forgotten.
fn begun(shared: &Shared) -> Option<Timestamp> {
    let mut since = shared.since.lock().unwrap_or_else(PoisonError::into_inner);
    if !shared.feed.is_heard() {
        *since = None;
    }
    *since
}

/// How far has been looked.
struct Seen {
    /// The store's time then.
    time: Timestamp,
    /// When, by this process's own time.
    at: Instant,
    /// Whether there has been a look.
    looked: bool,
    /// Since when the oldest transaction was under way that had written something and not ended by then. What it wrote has a
    /// time since, however long it still takes.
    under_way: Option<Timestamp>,
}

impl Seen {
    fn since(time: Timestamp) -> Self {
        Self { time, at: Instant::now(), looked: false, under_way: None }
    }
}

struct Listening<'s> {
    shared: &'s Arc<Shared>,
    seen: Seen,
    listener: Option<Listener>,
}

/// What ended a wait.
enum Woken {
    Look,
    Heard(Notice),
    Lost(String),
    Idle,
}

impl Listening<'_> {
    /// Runs until nobody listens.
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        let mut next_look = Instant::now();
        loop {
            if begun(self.shared).is_none() {
                return;
            }
            if self.listener.is_none() {
                match self.connect().await {
                    // What was told in the meantime nobody has heard.
                    Ok(listener) => (self.listener, next_look) = (Some(listener), Instant::now()),
                    Err(cause) => {
                        self.shared.warnings.warn("changes of other sidecars cannot be heard", &cause);
                        tokio::time::sleep(pause).await;
                        pause = pause.saturating_mul(2).min(PAUSES.1);
                        continue;
                    }
                }
            }
            if Instant::now() >= next_look {
                let begun = Instant::now();
                match self.look().await {
                    Ok(()) => pause = PAUSES.0,
                    Err(cause) => {
                        self.lost(&cause);
                        continue;
                    }
                }
                // Where looking takes long, it does not take all of the time.
                next_look = Instant::now() + self.shared.poll_every.max(begun.elapsed());
            }
            match self.woken(next_look).await {
                Woken::Look => next_look = next_look.min(self.soon()),
                Woken::Heard(Notice::Touched(touches)) => {
                    self.shared.tell(|known| known.heard(&touches));
                }
                Woken::Heard(Notice::Many) => next_look = next_look.min(self.soon()),
                Woken::Heard(Notice::Nothing) | Woken::Idle => {}
                Woken::Lost(cause) => self.lost(&cause),
            }
        }
    }

    /// When to look at the earliest.
    fn soon(&self) -> Instant {
        Instant::now().max(self.seen.at + GAP)
    }

    async fn woken(&mut self, next_look: Instant) -> Woken {
        let until = next_look.min(Instant::now() + ATTENTION);
        let Some(listener) = &mut self.listener else { return Woken::Idle };
        tokio::select! {
            heard = listener.heard() => match heard {
                Ok(text) => Woken::Heard(Notice::parse(&text, self.shared.sender)),
                Err(cause) => Woken::Lost(cause),
            },
            () = self.shared.to_look.notified() => Woken::Look,
            () = tokio::time::sleep_until(until) => Woken::Idle,
        }
    }

    fn lost(&mut self, cause: &str) {
        self.shared.warnings.warn("the connection that listens was lost", cause);
        self.listener = None;
    }

    async fn connect(&self) -> Result<Listener, String> {
        in_time(self.shared, self.try_connect()).await
    }

    async fn try_connect(&self) -> Result<Listener, sqlx::Error> {
        let connector = &self.shared.connector;
        // The driver's listener wants a pool; it is of this one connection.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(self.shared.timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_lazy_with(connector.options().application_name("countersign listening"));
        let listener = match PgListener::connect_with(&pool).await {
            Ok(listener) => listener,
            Err(error) => {
                // The next attempt has it.
                connector.has_new_password(&error).await;
                return Err(error);
            }
        };
        let mut listener = Listener(Some(listener));
        if let Some(listener) = &mut listener.0 {
            listener.eager_reconnect(false);
            connector.begin_session(listener.acquire().await?).await?;
            if self.shared.notify {
                listener.listen(&self.shared.channel).await?;
            }
        }
        Ok(listener)
    }

    /// Tells every change since the last look, and of a little before it, that has not been told.
    async fn look(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let shared = self.shared;
        let Some(Listener(Some(listener))) = &mut self.listener else { return Ok(()) };
        if !self.seen.looked {
            // The time that was taken for the store's may have been ahead of it.
            let asked = query_scalar(NOW).bind(shared.time.given()).fetch_one(&mut *listener);
            let now: i64 = in_time(shared, asked).await?;
            self.seen.time = self.seen.time.min(Timestamp::from_micros(now).minus(self.seen.at.elapsed()));
        }
        // Asked before what is committed is looked at: whatever is no more under way then is found.
        let asked = query_scalar(UNDER_WAY).fetch_one(&mut *listener);
        let under_way: Option<i64> = in_time(shared, asked).await?;
        let from = self.seen.time.minus(shared.overlap);
        let from = self.seen.under_way.map_or(from, |since| since.min(from));
        let mut place = (from.micros(), String::new());
        let (mut time, mut rows, mut news) = (None, 0_usize, 0_usize);
        let mut lost = self.seen.looked && begun.duration_since(self.seen.at) > LOST;
        loop {
            let asked =
                query(LOOK).bind(shared.time.given()).bind(place.0).bind(&place.1).bind(PAGE).fetch_all(&mut *listener);
            let page = in_time(shared, asked).await?;
            let mut found = Vec::with_capacity(page.len());
            for row in &page {
                let (now, changed) = read(row).map_err(|error| error.to_string())?;
                time.get_or_insert(now);
                if let Some((touch, next)) = changed {
                    found.extend(touch);
                    place = next;
                }
            }
            let full = i64::try_from(page.len()).unwrap_or(PAGE) == PAGE;
            // What another server did not have yet, or what was written by a clock that was then set back, is not found so.
            lost = lost || time.is_some_and(|now| now.plus(SET_BACK) < self.seen.time);
            rows = rows.saturating_add(found.len());
            news = news.saturating_add(shared.tell(|known| known.found(&found)));
            lost = lost || rows > MOST_ROWS || news > MOST_NEWS;
            if lost || !full {
                break;
            }
        }
        if lost {
            shared.feed.missed();
        }
        if let Some(now) = time {
            shared.time.told(now);
            let under_way = under_way.map(Timestamp::from_micros);
            self.seen = Seen { time: now, at: begun, looked: true, under_way };
        }
        Ok(())
    }
}

/// The store's time, and a row that changed: what is told of it, and its place in the order.
type Looked = (Timestamp, Option<(Option<Touch>, (i64, String))>);

fn read(row: &PgRow) -> Result<Looked, sqlx::Error> {
    let now = Timestamp::from_micros(row.try_get("now")?);
    let Some(id) = row.try_get::<Option<String>, _>("id")? else { return Ok((now, None)) };
    let (version, update_time): (i64, i64) = (row.try_get("version")?, row.try_get("update_time")?);
    // Whoever reads a row that no id names hears that it is corrupt.
    let touch = ApprovalId::parse(&id).map(|id| Touch { id, version: u64::try_from(version).unwrap_or(0) });
    Ok((now, Some((touch, (update_time, id)))))
}

async fn in_time<T>(shared: &Shared, asked: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, String> {
    match tokio::time::timeout(shared.timeout, asked).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// The connection that listens.
struct Listener(Option<PgListener>);

impl Listener {
    /// What the next notification says, or why there will be none.
    async fn heard(&mut self) -> Result<String, String> {
        let Some(listener) = &mut self.0 else { return Err("no connection".to_owned()) };
        match listener.try_recv().await {
            Ok(Some(notification)) => Ok(notification.payload().to_owned()),
            Ok(None) => Err("the server ended it".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(listener) = self.0.take() else { return };
        // The driver takes leave of the server, on the runtime that it finds, for as long as that takes: for ever where the
        // connection hangs. On one that nobody drives it takes no leave, and the connection is closed as it is.
        if let Ok(nobodys) = tokio::runtime::Builder::new_current_thread().build() {
            let handle = nobodys.handle().clone();
            let _entered = handle.enter();
            drop(listener);
            nobodys.shutdown_background();
        }
    }
}
