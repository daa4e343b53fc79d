//! The record of an agent that has stopped until people answer.
//!
//! ```text
//! open ──resume──▶ resumed ──open again──▶ open          open, resumed ──close, replace, expire──▶ closed
//! ```
//!
//! At most one wait of a principal, agent and transcript is active, which is open or resumed. `now >= expire_time` is
//! over, whether or not anybody has written that down yet ([`Wait::as_of`]). What ends a wait, or raises the revision of
//! its objective, withdraws its approvals in the same transaction ([`Withdrawal`]), and none of them is open for longer
//! than the wait, so that an approval's own row decides every race.
//!
//! What each command does in each state: the state that is reached, with `*` where the approvals are withdrawn; `=` where
//! nothing changes; `new` where another wait is made; else the reason of the refusal, or `·` where there is no such caller.
//!
//! ```text
//!                              open                   resumed              closed      replaced      expired
//! open, as before              =                      open                 new         new           new
//! open, another summary        open                   open                 new         new           new
//! open, for longer             open                   open                 new         new           new
//! open, for shorter            =                      open                 new         new           new
//! open, a higher revision      open*                  open*                new         new           new
//! open, a lower revision       OBJECTIVE_STALE        OBJECTIVE_STALE      new         new           new
//! open, another objective      OBJECTIVE_CONFLICT     OBJECTIVE_CONFLICT   new         new           new
//! the same, replacing          replaced* new          replaced* new        new         new           new
//! resume                       resumed                WAIT_ALREADY_RESUMED WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! resume by the same attempt   ·                      =                    ·           ·             ·
//! resume, something pending    WAIT_PENDING           WAIT_ALREADY_RESUMED WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! resume another version       WAIT_VERSION_CHANGED   WAIT_ALREADY_RESUMED WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! resume another transcript    TRANSCRIPT_CHANGED     TRANSCRIPT_CHANGED   WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! resume as another agent      AGENT_MISMATCH         AGENT_MISMATCH       WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! resume for another principal PRINCIPAL_MISMATCH     PRINCIPAL_MISMATCH   WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! close by who closed          ·                      ·                    =           ·             ·
//! close by another caller      closed*                closed*              WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! its time is over             expired*               expired*             =           =             =
//! ask in it                    =                      WAIT_NOT_OPEN        WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! ask for another objective    WAIT_OBJECTIVE_DIFFERS WAIT_NOT_OPEN        WAIT_CLOSED WAIT_REPLACED WAIT_EXPIRED
//! ```

use super::audit::{AuditEvent, AuditKind};
use super::change::Change;
use super::ids::{AttemptId, WaitId};
use super::invocation::{Objective, Subject};
use super::text::Identifier;
use super::time::Timestamp;
use std::fmt;

mod open;
mod refusal;
mod withdrawal;

pub use open::{Opened, Opening};
pub use refusal::WaitRefusal;
pub use withdrawal::{Cause, Withdrawal};

/// The record of an agent that has stopped. Its `Debug` leaves out the agent's own words.
#[derive(Clone, PartialEq, Eq)]
pub struct Wait {
    /// Its id. Knowing it authorises nothing.
    pub id: WaitId,
    /// The caller that opened it first.
    pub opened_by: Identifier,
    /// On whose behalf the agent acts.
    pub principal: Identifier,
    /// The program that has stopped.
    pub agent: Identifier,
    /// The session in which it was opened; recorded, never compared.
    pub conversation: Option<Identifier>,
    /// What the agent is working on. Its transcript and id never change.
    pub objective: Objective,
    /// What it waits for, in the agent's own words, neutralised.
    pub summary: String,
    /// When it was opened first.
    pub create_time: Timestamp,
    /// When it last changed.
    pub update_time: Timestamp,
    /// From this instant on it is over.
    pub expire_time: Timestamp,
    /// Where it stands.
    pub state: WaitState,
    /// Grows with every change of state, summary or revision, from 1: never with its approvals or its time.
    pub version: u64,
}

impl fmt::Debug for Wait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Wait")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Where a wait stands, with the facts of that state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The agent has stopped.
    Open,
    /// The agent goes on.
    Resumed(Resumption),
    /// It is over.
    Closed {
        /// When.
        at: Timestamp,
        /// How.
        ending: Ending,
    },
}

/// How an agent went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// When.
    pub at: Timestamp,
    /// The caller that resumed it.
    pub by: Identifier,
    /// The agent's id of the attempt, by which the same answer is given again.
    pub attempt: AttemptId,
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A caller closed it.
    Closed {
        /// Which.
        by: Identifier,
        /// Why, neutralised.
        reason: Option<String>,
    },
    /// A caller opened another one in its place, for another objective of the same transcript.
    Replaced {
        /// Which caller.
        by: Identifier,
    },
    /// Its time was over.
    Expired,
}

/// The name of a state; of a closed wait, of how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitStateName {
    /// The agent has stopped.
    Open,
    /// The agent goes on.
    Resumed,
    /// A caller closed it.
    Closed,
    /// Another one took its place.
    Replaced,
    /// Its time was over.
    Expired,
}

impl WaitStateName {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Open, Self::Resumed, Self::Closed, Self::Replaced, Self::Expired];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resumed => "resumed",
            Self::Closed => "closed",
            Self::Replaced => "replaced",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for WaitStateName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl WaitState {
    /// The name of the state, without its facts.
    pub const fn name(&self) -> WaitStateName {
        match self {
            Self::Open => WaitStateName::Open,
            Self::Resumed(_) => WaitStateName::Resumed,
            Self::Closed { ending: Ending::Closed { .. }, .. } => WaitStateName::Closed,
            Self::Closed { ending: Ending::Replaced { .. }, .. } => WaitStateName::Replaced,
            Self::Closed { ending: Ending::Expired, .. } => WaitStateName::Expired,
        }
    }
}

/// A wait that changed, and what becomes of its approvals in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitChange {
    /// The wait as it is to be saved.
    pub change: Change<Wait>,
    /// Why all of its approvals that are open are withdrawn; none if they stay.
    pub withdrawal: Option<Withdrawal>,
}

/// An agent that wants to go on.
#[derive(Clone, Debug)]
pub struct Resuming {
    /// The caller.
    pub caller: Identifier,
    /// On whose behalf the agent says it acts.
    pub principal: Identifier,
    /// The agent that says it was it who stopped.
    pub agent: Identifier,
    /// The transcript in which it goes on.
    pub transcript: Identifier,
    /// The version of the wait that it has seen.
    pub version: u64,
    /// Its id of this attempt.
    pub attempt: AttemptId,
}

/// What resuming did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The agent goes on: to be saved.
    Changed(Box<Change<Wait>>),
    /// This attempt had resumed it before.
    Replayed,
}

impl Wait {
    /// The wait as it stands at `now`: expired if its time is over, as the sweeper would write it.
    #[must_use]
    pub fn as_of(self, now: Timestamp) -> Self {
        match self.expired(now) {
            Some(ended) => ended.change.next,
            None => self,
        }
    }

    /// The change that writes down that its time is over; none if it is not, or it was over before.
    pub fn expired(&self, now: Timestamp) -> Option<WaitChange> {
        (self.is_active() && now >= self.expire_time)
            .then(|| self.ended(Ending::Expired, None, self.expire_time, AuditKind::WaitExpired))
    }

    /// The agent goes on. `pending` of its approvals wait for people.
    ///
    /// # Errors
    /// In this order: it is over; it is of another principal, agent or transcript; another attempt has resumed it; it has
    /// changed since; something is pending.
    pub fn resume(&self, resuming: &Resuming, pending: u32, now: Timestamp) -> Result<Resumed, WaitRefusal> {
        let earlier = match (self.state_at(now), &self.state) {
            (WaitStateName::Open, _) => None,
            (_, WaitState::Resumed(earlier)) if now < self.expire_time => Some(earlier),
            (over, _) => return Err(WaitRefusal::Over(over)),
        };
        if self.principal != resuming.principal {
            return Err(WaitRefusal::PrincipalMismatch);
        }
        if self.agent != resuming.agent {
            return Err(WaitRefusal::AgentMismatch);
        }
        if self.objective.transcript != resuming.transcript {
            return Err(WaitRefusal::TranscriptChanged);
        }
        if let Some(earlier) = earlier {
            let same = earlier.attempt == resuming.attempt && earlier.by == resuming.caller;
            return if same { Ok(Resumed::Replayed) } else { Err(WaitRefusal::AlreadyResumed) };
        }
        if self.version != resuming.version {
            return Err(WaitRefusal::VersionChanged);
        }
        if pending > 0 {
            return Err(WaitRefusal::Pending(pending));
        }
        let resumption = Resumption { at: now, by: resuming.caller.clone(), attempt: resuming.attempt };
        let next = self.next(WaitState::Resumed(resumption), now);
        let event = next.event(AuditKind::WaitResumed, Some(&resuming.caller), "RESUMED");
        Ok(Resumed::Changed(Box::new(Change { next, events: vec![event], valid_before: Some(self.expire_time) })))
    }

    /// The wait no longer matters. None if the same caller has closed it before.
    ///
    /// # Errors
    /// It is over, and it was not this caller who closed it.
    pub fn close(
        &self,
        caller: &Identifier,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<WaitChange>, WaitRefusal> {
        match (self.state_at(now), &self.state) {
            (WaitStateName::Open | WaitStateName::Resumed, _) => {
                let ending = Ending::Closed { by: caller.clone(), reason: reason.map(str::to_owned) };
                let mut ended = self.ended(ending, Some(caller), now, AuditKind::WaitClosed);
                ended.change.valid_before = Some(self.expire_time);
                Ok(Some(ended))
            }
            (_, WaitState::Closed { ending: Ending::Closed { by, .. }, .. }) if by == caller => Ok(None),
            (over, _) => Err(WaitRefusal::Over(over)),
        }
    }

    /// Whether a call that is asked about now may belong to it; if so, until when at most its approval is open.
    ///
    /// # Errors
    /// It is not open; the call is for another objective, or another revision of it.
    pub fn accepts(&self, subject: &Subject, now: Timestamp) -> Result<Timestamp, WaitRefusal> {
        match self.state_at(now) {
            WaitStateName::Open => {}
            WaitStateName::Resumed => return Err(WaitRefusal::NotOpen),
            over @ (WaitStateName::Closed | WaitStateName::Replaced | WaitStateName::Expired) => {
                return Err(WaitRefusal::Over(over));
            }
        }
        if subject.objective.as_ref() == Some(&self.objective) {
            Ok(self.expire_time)
        } else {
            Err(WaitRefusal::ObjectiveDiffers)
        }
    }

    /// Whether it is of this principal and agent.
    pub fn is_of(&self, principal: &Identifier, agent: &Identifier) -> bool {
        self.principal == *principal && self.agent == *agent
    }

    /// The name of the state at `now`.
    pub fn state_at(&self, now: Timestamp) -> WaitStateName {
        if self.is_active() && now >= self.expire_time { WaitStateName::Expired } else { self.state.name() }
    }

    /// What the audit says of something done to this wait.
    pub fn event(&self, kind: AuditKind, caller: Option<&Identifier>, decision: &str) -> AuditEvent {
        AuditEvent {
            conversation: self.conversation.clone(),
            wait: Some(self.id),
            ..AuditEvent::of(kind, &self.principal, &self.agent, caller, decision)
        }
    }

    fn is_active(&self) -> bool {
        match self.state {
            WaitState::Open | WaitState::Resumed(_) => true,
            WaitState::Closed { .. } => false,
        }
    }

    fn ended(&self, ending: Ending, caller: Option<&Identifier>, at: Timestamp, kind: AuditKind) -> WaitChange {
        let (cause, said) = match &ending {
            Ending::Closed { reason, .. } => (Cause::Closed, reason.clone()),
            Ending::Replaced { .. } => (Cause::Replaced, None),
            Ending::Expired => (Cause::Expired, None),
        };
        let next = self.next(WaitState::Closed { at, ending }, at);
        let word = next.state.name().as_str().to_uppercase();
        let event = AuditEvent { note: said.clone(), ..next.event(kind, caller, &word) };
        WaitChange {
            withdrawal: Some(self.withdrawal(cause, caller, said)),
            change: Change { next, events: vec![event], valid_before: None },
        }
    }

    fn withdrawal(&self, cause: Cause, caller: Option<&Identifier>, said: Option<String>) -> Withdrawal {
        Withdrawal { wait: self.id, cause, caller: caller.cloned(), opened_by: self.opened_by.clone(), said }
    }

    fn next(&self, state: WaitState, now: Timestamp) -> Self {
        Self { state, update_time: now, version: self.version.saturating_add(1), ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
