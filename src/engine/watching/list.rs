//! Watching all that one person sees: what is open, then every change.

use super::FIRST_READS;
use super::hub::{Change, Listener, Place};
use crate::domain::approval::{Approval, Person, StateName};
use crate::domain::ids::ApprovalId;
use crate::domain::limits;
use crate::domain::time::Timestamp;
use crate::engine::{Engine, EngineError};
use crate::storage::ApprovalQuery;
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Rows of the snapshot that are read at once: they are in memory until they are sent.
const PAGE: u32 = 8;

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// An approval: of the snapshot, or as a change left it.
    Approval(Box<Approval>),
    /// The snapshot is whole; what follows are changes.
    SnapshotComplete {
        /// Whether there were more than a snapshot holds: then it has the newest of them.
        left_out: bool,
    },
}

/// A snapshot of what a person sees, then each change of any approval that the person sees. Of each approval the versions
/// rise, and from the first that is told on none is left out.
#[derive(Debug)]
pub struct ApprovalsWatch {
    _place: Place,
    engine: Arc<Engine>,
    listener: Listener,
    person: Person,
    states: Vec<StateName>,
    snapshot: Option<Snapshot>,
    /// The last version that was told of each approval of the snapshot: what was under way meanwhile is not told again.
    known: HashMap<ApprovalId, u64>,
    /// A row, and its versions that are told next.
    due: Option<(Arc<Approval>, RangeInclusive<u64>)>,
    over: bool,
}

/// How far a snapshot has come.
#[derive(Debug, Default)]
struct Snapshot {
    page: VecDeque<Approval>,
    before: Option<(Timestamp, ApprovalId)>,
    read: usize,
    last_page: bool,
    left_out: bool,
}

impl Engine {
    /// Watches what this person sees. The snapshot has the newest approvals in one of `states`, which are the open ones
    /// where none is named; changes are told whatever the state.
    ///
    /// # Errors
    /// Too many watch.
    pub fn watch_approvals(
        self: &Arc<Self>,
        person: Person,
        states: &[StateName],
    ) -> Result<ApprovalsWatch, EngineError> {
        let place = self.watching.enter(&person.caller)?;
        let open = [StateName::Pending, StateName::Approved];
        Ok(ApprovalsWatch {
            _place: place,
            // Listening begins before the first read.
            listener: self.watching.listener(self, person.clone()),
            engine: Arc::clone(self),
            person,
            states: if states.is_empty() { open.to_vec() } else { states.to_vec() },
            snapshot: Some(Snapshot::default()),
            known: HashMap::new(),
            due: None,
            over: false,
        })
    }
}

impl ApprovalsWatch {
    /// What is told next; none after an error.
    pub async fn next(&mut self) -> Option<Result<Seen, EngineError>> {
        if self.over {
            return None;
        }
        let next = self.told().await;
        self.over = next.is_err();
        Some(next)
    }

    async fn told(&mut self) -> Result<Seen, EngineError> {
        while let Some(mut snapshot) = self.snapshot.take() {
            // Who is too slow is so during the snapshot as well.
            self.listener.is_heard()?;
            if snapshot.page.is_empty() && !snapshot.last_page {
                self.read(&mut snapshot).await?;
            }
            let Some(approval) = snapshot.page.pop_front() else {
                if !snapshot.last_page {
                    self.snapshot = Some(snapshot);
                    continue;
                }
                return Ok(Seen::SnapshotComplete { left_out: snapshot.left_out });
            };
            self.snapshot = Some(snapshot);
            if approval.is_visible_to(&self.person_now()) {
                self.known.insert(approval.id, approval.version);
                return Ok(Seen::Approval(Box::new(approval)));
            }
        }
        loop {
            let Some((row, version)) = self.next_due() else {
                let Change { row, version, .. } = self.listener.next().await?;
                // Several changes may have been found as one: what the snapshot told goes on from there.
                let first = match self.known.get_mut(&row.id) {
                    Some(known) => {
                        let first = known.saturating_add(1);
                        *known = version.max(*known);
                        first
                    }
                    None => version,
                };
                self.due = Some((row, first..=version));
                continue;
            };
            if !row.is_visible_to(&self.person_now()) {
                continue;
            }
            if let Some(approval) = row.at_version(version) {
                return Ok(Seen::Approval(Box::new(approval)));
            }
        }
    }

    fn next_due(&mut self) -> Option<(Arc<Approval>, u64)> {
        let (row, versions) = self.due.as_mut()?;
        let next = versions.next().map(|version| (Arc::clone(row), version));
        if next.is_none() {
            self.due = None;
        }
        next
    }

    /// The person, with the groups of this moment: what waits to be told may have been read under another policy.
    fn person_now(&self) -> Person {
        self.engine.person(self.person.id.clone(), self.person.caller.clone(), &self.person.vouched)
    }

    async fn read(&self, snapshot: &mut Snapshot) -> Result<(), EngineError> {
        let room = u32::try_from(limits::WATCH_SNAPSHOT.saturating_sub(snapshot.read)).unwrap_or(PAGE);
        let size = room.min(PAGE);
        let turn = FIRST_READS.acquire().await;
        let loaded = self
            .engine
            .store
            .approvals(ApprovalQuery {
                person: self.person.id.clone(),
                groups: self.person_now().groups,
                states: self.states.clone(),
                before: snapshot.before,
                // One more, to know whether there is more.
                limit: size.saturating_add(1),
            })
            .await?;
        drop(turn);
        let mut rows = loaded.row;
        let more = rows.len() > size as usize;
        rows.truncate(size as usize);
        snapshot.read = snapshot.read.saturating_add(rows.len());
        snapshot.before = rows.last().map(|last| (last.create_time, last.id));
        snapshot.left_out = more && snapshot.read >= limits::WATCH_SNAPSHOT;
        snapshot.last_page = !more || snapshot.left_out;
        snapshot.page = rows.into_iter().map(|approval| approval.as_of(loaded.now)).collect();
        Ok(())
    }
}
