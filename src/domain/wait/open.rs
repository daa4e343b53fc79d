//! Opening a wait, against the one that is active on the transcript.

use super::{Ending, Wait, WaitChange, WaitRefusal, WaitState};
use crate::domain::audit::AuditKind;
use crate::domain::change::Change;
use crate::domain::ids::WaitId;
use crate::domain::invocation::Objective;
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::Cause;
use std::fmt;
use std::time::Duration;

/// An agent that stops. Its `Debug` leaves out the agent's own words.
#[derive(Clone)]
pub struct Opening {
    /// The id of the wait if one is made.
    pub id: WaitId,
    /// The caller.
    pub caller: Identifier,
    /// On whose behalf the agent acts.
    pub principal: Identifier,
    /// The agent.
    pub agent: Identifier,
    /// The session.
    pub conversation: Option<Identifier>,
    /// What it is working on.
    pub objective: Objective,
    /// What it waits for, in its own words, neutralised.
    pub summary: String,
    /// After how long the wait is over: [`limits::WAIT_EXPIRES_AFTER`] where nothing is said of a new one. An active one
    /// stays as it is where nothing is said, and is never made shorter: its approvals count on it.
    pub expire_after: Option<Duration>,
    /// Whether an active wait for another objective is to end.
    pub replace: bool,
}

impl fmt::Debug for Opening {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Opening").field("id", &self.id).field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// What opening did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A wait is made.
    Made {
        /// The one that ends for it: replaced, or over without anybody having written it down.
        instead_of: Option<Box<WaitChange>>,
        /// The new one.
        wait: Box<Change<Wait>>,
    },
    /// The active one is opened again, or says something else.
    Changed(Box<WaitChange>),
    /// The active one is open and says the same.
    AsItWas,
}

impl Opening {
    /// What it does where `active` is the transcript's active wait.
    ///
    /// # Errors
    /// The active wait is for another objective and not to be replaced, or for a later revision of this one.
    pub fn against(&self, active: Option<&Wait>, now: Timestamp) -> Result<Opened, WaitRefusal> {
        let Some(active) = active else { return Ok(self.made(None, now)) };
        if let Some(over) = active.expired(now) {
            return Ok(self.made(Some(over), now));
        }
        if active.objective.id != self.objective.id {
            if !self.replace {
                return Err(WaitRefusal::ObjectiveConflict);
            }
            let ending = Ending::Replaced { by: self.caller.clone() };
            return Ok(self.made(Some(active.ended(ending, Some(&self.caller), now, AuditKind::WaitReplaced)), now));
        }
        if active.objective.revision > self.objective.revision {
            return Err(WaitRefusal::ObjectiveStale);
        }
        Ok(self.again(active, now))
    }

    fn made(&self, instead_of: Option<WaitChange>, now: Timestamp) -> Opened {
        let wait = Wait {
            id: self.id,
            opened_by: self.caller.clone(),
            principal: self.principal.clone(),
            agent: self.agent.clone(),
            conversation: self.conversation.clone(),
            objective: self.objective.clone(),
            summary: self.summary.clone(),
            create_time: now,
            update_time: now,
            expire_time: now.plus(self.expire_after.unwrap_or(limits::WAIT_EXPIRES_AFTER)),
            state: WaitState::Open,
            version: 1,
        };
        let event = wait.event(AuditKind::WaitOpened, Some(&self.caller), "OPEN");
        let wait = Change { next: wait, events: vec![event], valid_before: None };
        Opened::Made { instead_of: instead_of.map(Box::new), wait: Box::new(wait) }
    }

    /// The same objective once more.
    fn again(&self, active: &Wait, now: Timestamp) -> Opened {
        let superseded = active.objective.revision < self.objective.revision;
        let said = superseded || active.summary != self.summary;
        let resumed = active.state != WaitState::Open;
        let expire_time = self.expire_after.map_or(active.expire_time, |span| now.plus(span)).max(active.expire_time);
        if !said && !resumed && expire_time == active.expire_time {
            return Opened::AsItWas;
        }
        let next = Wait {
            objective: self.objective.clone(),
            summary: self.summary.clone(),
            expire_time,
            version: active.version.saturating_add(u64::from(said || resumed)),
            ..active.next(WaitState::Open, now)
        };
        let reopened = resumed.then_some(AuditKind::WaitReopened);
        let updated = (said || !resumed).then_some(AuditKind::WaitUpdated);
        let kinds = reopened.into_iter().chain(updated);
        let events = kinds.map(|kind| next.event(kind, Some(&self.caller), "OPEN")).collect();
        let withdrawal = superseded.then(|| active.withdrawal(Cause::Superseded, Some(&self.caller), None));
        let change = Change { next, events, valid_before: Some(active.expire_time) };
        Opened::Changed(Box::new(WaitChange { change, withdrawal }))
    }
}
