//! What changes: told to whoever watches here, to the other sidecars, and heard from them.
//!
//! Looking at the table is the contract: while anybody watches, every row that changed is found by its time and told, once
//! it is committed, whoever committed it. Notifications shorten that, and none is relied on. They are sent after the commit,
//! on a connection of their own: inside a transaction they would make every commit wait for every other.
//!
//! - `known`: what has been told already
//! - `notices`: what notifications say
//! - `sending`: telling other sidecars
//! - `listening`: hearing from them, and looking

mod known;
mod listening;
mod notices;
mod sending;

use super::connecting::Connector;
use super::time::TableTime;
use super::warnings::Warnings;
use crate::domain::time::Timestamp;
use crate::storage::changes::{Changes, Feed, Touch, Touched};
use known::Known;
use notices::Outbox;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// What notifications of ours are named, before the schema's name.
const CHANNEL: &str = "countersign";
/// Names are no longer than this, in bytes.
const LONGEST_NAME: usize = 63;
/// How long the last notifications may take when the store is closed.
const FAREWELL: Duration = Duration::from_millis(500);
/// What a transaction may take beside its statements, between the time that it writes and its commit.
const MARGIN: Duration = Duration::from_secs(3);

/// What is needed to tell and to hear.
pub(super) struct TellerSettings {
    pub(super) connector: Arc<Connector>,
    pub(super) time: Arc<TableTime>,
    pub(super) schema: String,
    /// How long connecting, a notification or a look at the table may take.
    pub(super) timeout: Duration,
    pub(super) statement_timeout: Duration,
    pub(super) poll_every: Duration,
    pub(super) notify: bool,
}

/// Where it is told that something was committed, and where it is heard.
#[derive(Debug)]
pub(super) struct Teller {
    shared: Arc<Shared>,
    ending: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    connector: Arc<Connector>,
    time: Arc<TableTime>,
    feed: Feed,
    known: Mutex<Known>,
    outbox: Mutex<Outbox>,
    /// That there is something to send.
    to_send: Notify,
    /// That somebody listens, or that it is time to look.
    to_look: Notify,
    /// When the first of those who listen now began to; none while nobody does.
    since: Mutex<Option<Timestamp>>,
    channel: String,
    /// Tells this process from the others.
    sender: Uuid,
    timeout: Duration,
    /// How long before the last look a change may have been made that only now is committed.
    overlap: Duration,
    poll_every: Duration,
    notify: bool,
    warnings: Warnings,
}

impl Teller {
    /// Starts what tells and what hears, on this runtime. Both end with this.
    pub(super) fn start(settings: TellerSettings) -> Self {
        let overlap = settings.statement_timeout.saturating_add(MARGIN);
        let shared = Arc::new(Shared {
            connector: settings.connector,
            time: settings.time,
            feed: Feed::default(),
            known: Mutex::new(Known::for_at_least(overlap.saturating_add(settings.poll_every))),
            outbox: Mutex::default(),
            to_send: Notify::new(),
            to_look: Notify::new(),
            since: Mutex::default(),
            channel: channel(&settings.schema),
            sender: Uuid::new_v4(),
            timeout: settings.timeout,
            overlap,
            poll_every: settings.poll_every,
            notify: settings.notify,
            warnings: Warnings::default(),
        });
        let (ending, ended) = watch::channel(false);
        let mut tasks = vec![tokio::spawn(listening::run(Arc::clone(&shared)))];
        if shared.notify {
            tasks.push(tokio::spawn(sending::run(Arc::clone(&shared), ended)));
        }
        Self { shared, ending, tasks: Mutex::new(tasks) }
    }

    /// Tells what a transaction of this process touched, once it is committed: here before this returns.
    pub(super) fn committed(&self, touched: &Touched) {
        let touches = touched.approvals();
        if touches.is_empty() {
            return;
        }
        self.shared.tell(|known| known.committed(touches));
        if self.shared.notify {
            self.shared.outbox().add(touches);
            self.shared.to_send.notify_one();
        }
    }

    /// Tells that something may have been committed that is not known: it is looked for.
    pub(super) fn unsure(&self) {
        if self.shared.notify {
            self.shared.outbox().add_unknown();
            self.shared.to_send.notify_one();
        }
        self.shared.to_look.notify_one();
    }

    /// Hears which approvals change from now on, here and elsewhere.
    pub(super) fn changes(&self) -> Changes {
        let mut since = self.shared.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(|| self.shared.time.estimated());
        let changes = self.shared.feed.listen();
        drop(since);
        self.shared.to_look.notify_one();
        changes
    }

    /// Sends what is still to be sent, if that does not take long, and ends.
    pub(super) async fn close(&self) {
        let _ = self.ending.send(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let mut tasks = tasks.into_iter();
        // Who listens has nothing to end.
        if let Some(listening) = tasks.next() {
            listening.abort();
        }
        for sending in tasks {
            let stop = sending.abort_handle();
            if tokio::time::timeout(FAREWELL, sending).await.is_err() {
                stop.abort();
            }
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl Shared {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells here whatever is not known yet, and answers how much that was. Nobody else tells in the meantime, so that what
    /// is known has been told.
    fn tell(&self, new: impl FnOnce(&mut Known) -> Vec<Touch>) -> usize {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let touches = new(&mut known);
        self.feed.tell(&touches);
        touches.len()
    }
}

/// The name of the notifications of what is in this schema.
fn channel(schema: &str) -> String {
    let name = format!("{CHANNEL}:{schema}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    use crate::domain::hex::hex;
    use sha2::{Digest as _, Sha256};
    let digest: String = hex(&Sha256::digest(schema.as_bytes())).chars().take(32).collect();
    format!("{CHANNEL}:{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_schema_has_its_channel_and_its_name_fits() {
        assert_eq!(channel("public"), "countersign:public");
        let long = "s".repeat(63);
        assert!(channel(&long).len() <= LONGEST_NAME);
        assert_ne!(channel(&long), channel(&"t".repeat(63)));
    }
}
