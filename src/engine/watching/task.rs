//! The task between the store and everyone who watches.
//!
//! It runs while anybody watches. What it hands on it has read after hearing of it, so it is committed; several changes of
//! one approval are told one by one, in order, since the newest row gives back those before it.

use super::hub::{Change, Hub};
use super::recently::Recently;
use crate::domain::approval::Approval;
use crate::domain::ids::ApprovalId;
use crate::engine::Engine;
use crate::storage::changes::{Changes, Told, Touch};
use crate::storage::{Saved, StoreError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Rows that are read and handed on at once, between which watchers have their turn.
const CHUNK: usize = 64;
/// Deadlines are looked at this often, since a wall clock may be set; sooner where one is near.
const TICK: Duration = Duration::from_millis(200);
/// A store that does not answer is asked again after this long.
const RETRY: Duration = Duration::from_millis(200);
/// How often, and how long each time, the fast wait for whoever is behind. Who does not read at all ends all the same.
const PATIENCE: (usize, Duration) = (5, Duration::from_millis(10));

/// That the task runs. However it ends, nobody waits for it in vain.
pub(super) struct Running(Arc<Hub>);

impl Running {
    /// To be made as the task is started.
    pub(super) fn of(hub: &Arc<Hub>) -> Self {
        Self(Arc::clone(hub))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.has_ended();
    }
}

/// Runs while anybody watches, on what `changes` tells.
pub(super) async fn run(running: Running, engine: Arc<Engine>, changes: Changes) {
    Task { running, engine, changes, recently: Recently::default() }.run().await;
}

struct Task {
    running: Running,
    engine: Arc<Engine>,
    changes: Changes,
    recently: Recently,
}

/// What has been heard and not been handed on: each approval once, in order, with its first and last version.
#[derive(Default)]
struct Heard {
    order: Vec<ApprovalId>,
    versions: HashMap<ApprovalId, (u64, u64)>,
    lagged: bool,
}

impl Heard {
    fn note(&mut self, told: &Told) {
        match told {
            Told::Lagged => self.lagged = true,
            Told::Touched(part) => {
                for Touch { id, version } in part.iter() {
                    let known = self.versions.entry(*id).or_insert_with(|| {
                        self.order.push(*id);
                        (*version, *version)
                    });
                    *known = (known.0.min(*version), known.1.max(*version));
                }
            }
        }
    }
}

impl Task {
    async fn run(mut self) {
        while !self.running.0.retire() {
            let hub = Arc::clone(&self.running.0);
            let mut heard = Heard::default();
            let until_deadline = self.until_deadline();
            tokio::select! {
                told = self.changes.next() => match told {
                    Some(told) => heard.note(&told),
                    None => return,
                },
                () = hub.moved.notified() => {}
                () = tokio::time::sleep(until_deadline) => {}
            }
            while heard.order.len() < CHUNK
                && let Some(told) = self.changes.now()
            {
                heard.note(&told);
            }
            if heard.lagged {
                // Of the lists nobody knows what they missed; of single approvals the newest row says all.
                hub.end_lists();
                self.recently = Recently::default();
                heard = Heard { order: hub.topic_ids(), ..Heard::default() };
            }
            for ids in hub.wanted(&heard.order).chunks(CHUNK) {
                self.hand_on(ids, &heard.versions).await;
            }
            self.expire().await;
        }
    }

    /// How long until a watched approval's deadline comes, at most a tick.
    fn until_deadline(&self) -> Duration {
        let now = self.engine.store.estimated_time();
        let spans = self.running.0.open_topics().into_iter().filter_map(|row| row.deadline()).map(|at| at.since(now));
        spans.min().unwrap_or(TICK).min(TICK)
    }

    /// Writes down which watched approvals have expired. That comes back as a change, if it is one: a decision made in time
    /// may be ahead in the queue.
    async fn expire(&self) {
        let now = self.engine.store.estimated_time();
        for row in self.running.0.open_topics() {
            let Some(change) = row.expired(now) else { continue };
            match self.engine.store.save_approval(change, row.version).await {
                Ok(Saved::Yes) => {}
                Ok(Saved::Conflict) => match self.read(&[row.id]).await.remove(&row.id) {
                    // The store's time is not there yet, for this one nor for those after it.
                    Some(same) if same.version == row.version => {
                        tokio::time::sleep(RETRY).await;
                        return;
                    }
                    Some(newer) => self.running.0.offer(&newer),
                    None => self.running.0.end_topic(row.id),
                },
                Err(error) => {
                    tracing::debug!(%error, "a watched approval's expiry could not be written down");
                    tokio::time::sleep(RETRY).await;
                    return;
                }
            }
        }
    }

    async fn hand_on(&mut self, ids: &[ApprovalId], versions: &HashMap<ApprovalId, (u64, u64)>) {
        let mut rows = self.read(ids).await;
        let mut changes = Vec::new();
        for id in ids {
            let Some(row) = rows.remove(id) else { continue };
            self.running.0.offer(&row);
            let Some((first, last)) = versions.get(id).copied() else { continue };
            let first = self.recently.told(*id).map_or(first, |told| told.saturating_add(1));
            let last = last.min(row.last_change());
            if first <= last {
                changes.extend((first..=last).map(|version| Change::new(&row, version)));
                self.recently.tell(*id, last);
            }
        }
        self.running.0.tell(&self.engine, &changes);
        for _ in 0..PATIENCE.0 {
            if !self.running.0.is_anyone_behind() {
                return;
            }
            tokio::time::sleep(PATIENCE.1).await;
        }
    }

    /// The rows of these ids. A store that does not answer is asked until it does, or nobody watches.
    async fn read(&self, ids: &[ApprovalId]) -> HashMap<ApprovalId, Arc<Approval>> {
        loop {
            match self.engine.store.approvals_of(ids).await {
                Ok(loaded) => return loaded.row.into_iter().map(|row| (row.id, Arc::new(row))).collect(),
                Err(StoreError::Unavailable { .. }) => {
                    if self.running.0.is_idle() {
                        return HashMap::new();
                    }
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => {
                    // A row that cannot be read is no reason not to tell of the others.
                    tracing::error!(%error, "a changed approval cannot be read");
                    return self.read_one_by_one(ids).await;
                }
            }
        }
    }

    async fn read_one_by_one(&self, ids: &[ApprovalId]) -> HashMap<ApprovalId, Arc<Approval>> {
        let mut rows = HashMap::new();
        for id in ids {
            if let Ok(loaded) = self.engine.store.approval(*id).await
                && let Some(row) = loaded.row
            {
                rows.insert(row.id, Arc::new(row));
            }
        }
        rows
    }
}
