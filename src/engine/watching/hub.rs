//! Everyone who watches, and what waits for each of them.

use super::task;
use crate::domain::approval::{Approval, Person};
use crate::domain::ids::ApprovalId;
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::engine::listing::weight_of_approval;
use crate::engine::{Engine, EngineError};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// One version of an approval that is told.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The newest row, which gives back the version.
    pub(super) row: Arc<Approval>,
    /// Which version.
    pub(super) version: u64,
    bytes: usize,
}

impl Change {
    /// A version of this row.
    pub(super) fn new(row: &Arc<Approval>, version: u64) -> Self {
        Self { row: Arc::clone(row), version, bytes: weight_of_approval(row) }
    }
}

/// The newest row of an approval that anybody has read.
type Newest = Option<Arc<Approval>>;

/// Everyone who watches.
#[derive(Debug, Default)]
pub(in crate::engine) struct Hub {
    registry: Mutex<Registry>,
    /// Somebody came or went.
    pub(super) moved: Notify,
}

#[derive(Debug, Default)]
struct Registry {
    is_running: bool,
    has_stopped: bool,
    watchers: usize,
    of_caller: HashMap<Identifier, usize>,
    topics: HashMap<ApprovalId, (watch::Sender<Newest>, usize)>,
    next_list: u64,
    lists: HashMap<u64, Arc<List>>,
}

/// One watcher's right to watch; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    hub: Arc<Hub>,
    caller: Identifier,
}

/// One watcher's ear for one approval.
#[derive(Debug)]
pub(super) struct Topic {
    hub: Arc<Hub>,
    id: ApprovalId,
    newest: watch::Receiver<Newest>,
}

/// One watcher's ear for all that a person sees.
#[derive(Debug)]
pub(super) struct Listener {
    hub: Arc<Hub>,
    number: u64,
    list: Arc<List>,
}

/// What waits for one watcher of a list.
#[derive(Debug)]
struct List {
    /// The person, with the groups of the policy of this revision.
    person: Mutex<(String, Person)>,
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<Change>,
    bytes: usize,
    ended: Option<Ended>,
}

/// Why a watcher hears no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    TooSlow,
    Interrupted,
    Stopping,
}

impl Engine {
    /// How many watch now, one approval or a person's.
    pub fn watchers(&self) -> usize {
        self.watching.registry().watchers
    }

    /// Ends all watching, for good.
    pub fn stop_watching(&self) {
        self.watching.registry().has_stopped = true;
        self.watching.end_everyone();
        self.watching.moved.notify_one();
    }
}

impl Hub {
    /// Counts a watcher in.
    pub(super) fn enter(self: &Arc<Self>, caller: &Identifier) -> Result<Place, EngineError> {
        let mut registry = self.registry();
        if registry.has_stopped {
            return Err(EngineError::Stopping);
        }
        if registry.watchers >= limits::WATCHERS {
            return Err(EngineError::TooManyWatchers { per_caller: false, most: limits::WATCHERS });
        }
        let of_caller = registry.of_caller.entry(caller.clone()).or_default();
        if *of_caller >= limits::WATCHERS_PER_CALLER {
            return Err(EngineError::TooManyWatchers { per_caller: true, most: limits::WATCHERS_PER_CALLER });
        }
        *of_caller += 1;
        registry.watchers += 1;
        drop(registry);
        Ok(Place { hub: Arc::clone(self), caller: caller.clone() })
    }

    /// Listens for changes of one approval from now on.
    pub(super) fn topic(self: &Arc<Self>, engine: &Arc<Engine>, id: ApprovalId) -> Topic {
        let mut registry = self.registry();
        let (sender, watchers) = registry.topics.entry(id).or_insert_with(|| (watch::Sender::new(None), 0));
        *watchers += 1;
        let newest = sender.subscribe();
        self.run(&mut registry, engine);
        Topic { hub: Arc::clone(self), id, newest }
    }

    /// Listens for changes of all that this person sees from now on.
    pub(super) fn listener(self: &Arc<Self>, engine: &Arc<Engine>, person: Person) -> Listener {
        let person = Mutex::new((engine.policy().revision().to_owned(), person));
        let list = Arc::new(List { person, queue: Mutex::default(), filled: Notify::new() });
        let mut registry = self.registry();
        let number = registry.next_list;
        registry.next_list += 1;
        registry.lists.insert(number, Arc::clone(&list));
        self.run(&mut registry, engine);
        Listener { hub: Arc::clone(self), number, list }
    }

    /// Starts the task unless it runs. It hears of every commit from this moment on.
    fn run(self: &Arc<Self>, registry: &mut Registry, engine: &Arc<Engine>) {
        if registry.is_running || registry.has_stopped {
            return;
        }
        registry.is_running = true;
        tokio::spawn(task::run(task::Running::of(self), Arc::clone(engine), engine.store.changes()));
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the task if nobody watches: true, and then the next one who does starts another.
    pub(super) fn retire(&self) -> bool {
        let mut registry = self.registry();
        let idle = registry.is_idle();
        if idle {
            registry.is_running = false;
        }
        idle
    }

    /// Whether nobody watches.
    pub(super) fn is_idle(&self) -> bool {
        self.registry().is_idle()
    }

    /// Notes that the task has ended, and ends whoever it had not told so: nobody is to wait in vain.
    pub(super) fn has_ended(&self) {
        let was_running = std::mem::take(&mut self.registry().is_running);
        if was_running {
            self.end_everyone();
        }
    }

    /// Ends every watcher: nobody knows any more what they have not been told.
    fn end_everyone(&self) {
        let mut registry = self.registry();
        let why = if registry.has_stopped { Ended::Stopping } else { Ended::Interrupted };
        registry.topics.clear();
        for (_, list) in registry.lists.drain() {
            list.end(why);
        }
    }

    /// Ends the watchers of lists, who were told of changes and not of states.
    pub(super) fn end_lists(&self) {
        for (_, list) in self.registry().lists.drain() {
            list.end(Ended::Interrupted);
        }
    }

    /// Those of `ids` that anybody would be told of.
    pub(super) fn wanted(&self, ids: &[ApprovalId]) -> Vec<ApprovalId> {
        let registry = self.registry();
        let all = !registry.lists.is_empty();
        ids.iter().copied().filter(|id| all || registry.topics.contains_key(id)).collect()
    }

    /// Hands a row to those who watch this approval, if it is newer than what they have.
    pub(super) fn offer(&self, row: &Arc<Approval>) {
        if let Some((sender, _)) = self.registry().topics.get(&row.id) {
            sender.send_if_modified(|newest| {
                let newer = newest.as_ref().is_none_or(|newest| newest.version < row.version);
                if newer {
                    *newest = Some(Arc::clone(row));
                }
                newer
            });
        }
    }

    /// Hands these changes to everyone who sees the approval.
    pub(super) fn tell(&self, engine: &Engine, changes: &[Change]) {
        let lists: Vec<(u64, Arc<List>)> =
            self.registry().lists.iter().map(|(number, list)| (*number, Arc::clone(list))).collect();
        for (number, list) in lists {
            for change in changes.iter().filter(|change| list.sees(engine, &change.row)) {
                if !list.push(change) {
                    tracing::debug!(number, "a watcher is too slow");
                    self.registry().lists.remove(&number);
                    break;
                }
            }
        }
    }

    /// Whether anybody is behind by half of what may wait.
    pub(super) fn is_anyone_behind(&self) -> bool {
        self.registry().lists.values().any(|list| {
            let queue = list.queue();
            queue.changes.len() > limits::WATCH_QUEUE / 2 || queue.bytes > limits::WATCH_QUEUE_BYTES / 2
        })
    }

    /// The watched approvals whose newest row is open, with their deadlines.
    pub(super) fn open_topics(&self) -> Vec<Arc<Approval>> {
        let registry = self.registry();
        registry
            .topics
            .values()
            .filter_map(|(sender, _)| sender.borrow().clone())
            .filter(|row| !row.is_final())
            .collect()
    }

    /// Every approval that somebody watches by itself.
    pub(super) fn topic_ids(&self) -> Vec<ApprovalId> {
        self.registry().topics.keys().copied().collect()
    }

    /// Ends those who watch an approval that is no longer there.
    pub(super) fn end_topic(&self, id: ApprovalId) {
        self.registry().topics.remove(&id);
    }
}

impl Registry {
    fn is_idle(&self) -> bool {
        self.has_stopped || (self.topics.is_empty() && self.lists.is_empty())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut registry = self.hub.registry();
        registry.watchers = registry.watchers.saturating_sub(1);
        if let Some(count) = registry.of_caller.get_mut(&self.caller) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                registry.of_caller.remove(&self.caller);
            }
        }
    }
}

impl Topic {
    /// Hands on a row that a watcher has read: the task looks at its deadline.
    pub(super) fn offer(&self, row: Arc<Approval>) {
        self.hub.offer(&row);
        self.hub.moved.notify_one();
    }

    /// The newest row that anybody has read.
    pub(super) fn newest(&mut self) -> Option<Arc<Approval>> {
        self.newest.borrow_and_update().clone()
    }

    /// Waits until there is a newer one.
    pub(super) async fn changed(&mut self) -> Result<(), EngineError> {
        self.newest.changed().await.map_err(|_| {
            let why = if self.hub.registry().has_stopped { Ended::Stopping } else { Ended::Interrupted };
            why.into()
        })
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        let mut registry = self.hub.registry();
        if let Some((sender, watchers)) = registry.topics.get_mut(&self.id)
            // After an interruption others may have begun anew.
            && sender.subscribe().same_channel(&self.newest)
        {
            *watchers = watchers.saturating_sub(1);
            if *watchers == 0 {
                registry.topics.remove(&self.id);
            }
        }
        drop(registry);
        self.hub.moved.notify_one();
    }
}

impl Listener {
    /// Fails if nothing more will be heard.
    pub(super) fn is_heard(&self) -> Result<(), EngineError> {
        self.list.queue().ended.map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// The next change of what the person sees.
    pub(super) async fn next(&self) -> Result<Change, EngineError> {
        loop {
            let filled = self.list.filled.notified();
            {
                let mut queue = self.list.queue();
                if let Some(ended) = queue.ended {
                    return Err(ended.into());
                }
                if let Some(change) = queue.changes.pop_front() {
                    queue.bytes = queue.bytes.saturating_sub(change.bytes);
                    return Ok(change);
                }
            }
            filled.await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hub.registry().lists.remove(&self.number);
        self.hub.moved.notify_one();
    }
}

impl List {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the person sees this approval, by the policy in force.
    fn sees(&self, engine: &Engine, approval: &Approval) -> bool {
        let mut known = self.person.lock().unwrap_or_else(PoisonError::into_inner);
        let (revision, person) = &mut *known;
        let policy = engine.policy();
        if policy.revision() != revision {
            *person = engine.person(person.id.clone(), person.caller.clone(), &person.vouched);
            *revision = policy.revision().to_owned();
        }
        approval.is_visible_to(person)
    }

    /// Queues a change; false if there is no room, and then the watcher has ended and nothing is kept for it.
    fn push(&self, change: &Change) -> bool {
        let mut queue = self.queue();
        let bytes = queue.bytes.saturating_add(change.bytes);
        let full = queue.changes.len() >= limits::WATCH_QUEUE || bytes > limits::WATCH_QUEUE_BYTES;
        if full && !queue.changes.is_empty() {
            drop(queue);
            self.end(Ended::TooSlow);
            return false;
        }
        queue.changes.push_back(change.clone());
        queue.bytes = bytes;
        drop(queue);
        self.filled.notify_one();
        true
    }

    fn end(&self, ended: Ended) {
        let mut queue = self.queue();
        *queue = Queue { ended: Some(ended), ..Queue::default() };
        drop(queue);
        self.filled.notify_one();
    }
}

impl From<Ended> for EngineError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::TooSlow => Self::WatchTooSlow,
            Ended::Interrupted => Self::WatchInterrupted,
            Ended::Stopping => Self::Stopping,
        }
    }
}
