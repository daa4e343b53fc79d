//! Keeps SQLite's log short without stalling the writer: what is committed is moved from the log into the file beside the
//! writer, on a connection of its own, after every so many pages. The log can begin anew only when all of it has been
//! moved, and under load the writer is always a little ahead: so it moves the little that is left itself, between two
//! batches, when it is told that this is worth it.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection, query};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Pauses between two checkpoints: whatever comes, there is time for commits in between.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
/// After the last commit of many, the log is moved this late.
const MOST_PAUSE: Duration = Duration::from_secs(1);
/// So many times its length the log may grow while readers hold on to it; then the writer waits for them.
const PATIENCE: u32 = 16;

/// Moves what it can and waits for nobody.
const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Moves everything, and waits for readers of what is older.
const RESTART: &str = "PRAGMA wal_checkpoint(RESTART)";
/// The same, and leaves an empty log.
const TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// What the writer and the checkpoints know of the log.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// Pages after which it is moved.
    pages: u32,
    written: Arc<Notify>,
    wanted: Arc<AtomicU8>,
}

/// What the writer should do about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Wanted {
    Nothing = 0,
    Passive = 1,
    Restart = 2,
    Truncate = 3,
}

impl Log {
    /// A log that is moved after so many pages.
    pub(super) fn of(pages: u32) -> Self {
        Self { pages: pages.max(1), written: Arc::default(), wanted: Arc::default() }
    }

    /// Tells that something was committed.
    pub(super) fn written(&self) {
        self.written.notify_one();
    }

    /// Lets the writer move what is left of a long log. To be called between its transactions.
    pub(super) async fn finish(&self, writer: &mut SqliteConnection) {
        let statement = match self.wanted.swap(Wanted::Nothing as u8, Ordering::Relaxed) {
            wanted if wanted == Wanted::Passive as u8 => PASSIVE,
            wanted if wanted == Wanted::Restart as u8 => RESTART,
            wanted if wanted == Wanted::Truncate as u8 => TRUNCATE,
            _ => return,
        };
        let moved = query(statement).fetch_one(writer).await.and_then(|row| row.try_get::<i64, _>(0));
        match moved {
            // Somebody still reads what is in it: once more, later.
            Ok(1) if statement == TRUNCATE => self.want(Wanted::Truncate),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the log was not moved"),
        }
    }

    /// Tells that something was erased, of which nothing is to be left in the log either.
    pub(super) fn erased(&self) {
        self.want(Wanted::Truncate);
    }

    fn want(&self, wanted: Wanted) {
        self.wanted.fetch_max(wanted as u8, Ordering::Relaxed);
    }
}

/// The checkpoints of an open database.
#[derive(Debug)]
pub(super) struct Checkpoints {
    end: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Checkpoints {
    /// Ends them and lets go of their connection.
    pub(super) async fn end(self) {
        self.end.send_replace(true);
        if self.task.await.is_err() {
            tracing::error!("the checkpoints did not end by themselves");
        }
    }
}

/// Starts moving `log` into the file, on this runtime. Once this has answered, the log is held open until the end: whatever
/// becomes of other connections, none of them is the last, and none removes it.
pub(super) async fn start(options: SqliteConnectOptions, log: Log) -> Checkpoints {
    let (end, mut ended) = watch::channel(false);
    let mut mover = Mover { options, connection: None, failing: false };
    mover.run().await;
    let task = tokio::spawn(async move {
        let work = async {
            let mut pause = LEAST_PAUSE;
            let mut before = Moved::default();
            loop {
                log.written.notified().await;
                let waited = Instant::now();
                tokio::time::sleep(pause).await;
                let Some(moved) = mover.run().await else { continue };
                if moved.log >= log.pages {
                    let patient = moved.log < log.pages.saturating_mul(PATIENCE);
                    log.want(if patient { Wanted::Passive } else { Wanted::Restart });
                }
                pause = next_pause(log.pages, moved.since(before), waited.elapsed());
                before = moved;
            }
        };
        tokio::select! {
            () = work => {}
            _ = ended.wait_for(|ended| *ended) => {}
        }
        mover.close().await;
    });
    Checkpoints { end, task }
}

/// The pages of a log, and those of them that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    log: u32,
    moved: u32,
}

impl Moved {
    /// Pages that were written since `before`. A log that is shorter began anew.
    const fn since(self, before: Self) -> u32 {
        if self.log >= before.log { self.log - before.log } else { self.log }
    }
}

/// How long to wait for `wanted` pages where there were `written` in `elapsed`.
fn next_pause(wanted: u32, written: u32, elapsed: Duration) -> Duration {
    let pause = elapsed.saturating_mul(wanted).checked_div(written.max(1)).unwrap_or(MOST_PAUSE);
    pause.clamp(LEAST_PAUSE, MOST_PAUSE)
}

struct Mover {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
    failing: bool,
}

impl Mover {
    async fn run(&mut self) -> Option<Moved> {
        match self.passive().await {
            Ok(moved) => {
                self.failing = false;
                moved
            }
            Err(error) => {
                // The next one is the retry, on a new connection; this one holds the log open until there is one.
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "the log could not be moved into the database; it is tried again");
                }
                None
            }
        }
    }

    async fn passive(&mut self) -> Result<Option<Moved>, sqlx::Error> {
        let row = match &mut self.connection {
            Some(connection) if !self.failing => query(PASSIVE).fetch_one(connection).await?,
            Some(_) | None => {
                let mut connection = self.options.connect().await?;
                let row = query(PASSIVE).fetch_one(&mut connection).await?;
                self.connection = Some(connection);
                row
            }
        };
        let count = |column: usize| row.try_get::<i64, _>(column).map(|count| u32::try_from(count).ok());
        // Busy, or without a log: there is nothing to say.
        Ok(count(1)?.zip(count(2)?).map(|(log, moved)| Moved { log, moved }))
    }

    async fn close(self) {
        if let Some(connection) = self.connection
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "the checkpoints' connection did not close cleanly");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_as_long_as_it_takes_to_write_what_is_moved_at_once() {
        let ms = Duration::from_millis;
        for (written, elapsed, pause) in [
            (1_000, ms(100), ms(100)),
            (2_000, ms(100), ms(50)),
            (500, ms(100), ms(200)),
            (100_000, ms(100), LEAST_PAUSE),
            (0, ms(20), MOST_PAUSE),
            (1, ms(1_000), MOST_PAUSE),
        ] {
            assert_eq!(next_pause(1_000, written, elapsed), pause, "{written} in {elapsed:?}");
        }
    }

    #[test]
    fn a_log_that_is_shorter_began_anew() {
        let of = |log| Moved { log, moved: 0 };
        assert_eq!((of(30).since(of(10)), of(5).since(of(10))), (20, 5));
    }
}
