//! Waits: an agent stops for people, and goes on. The store's transaction decides; a refusal is recorded after it.

use super::{AgentCaller, Engine, EngineError};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::ids::WaitId;
use crate::domain::invocation::Subject;
use crate::domain::text::Identifier;
use crate::domain::wait::{Opening, Resuming};
pub use crate::storage::{OpenedWait, ResumedWait, WaitRecord};
use crate::storage::{RefusedWait, Waited};

/// A wait, named as every request of an agent names a record.
#[derive(Clone, Debug)]
pub struct NamedWait {
    /// Its principal.
    pub principal: Identifier,
    /// Its agent.
    pub agent: Identifier,
    /// Its id.
    pub id: WaitId,
}

impl Engine {
    /// Opens a wait, or finds it open.
    ///
    /// # Errors
    /// Out of the caller's bounds; the transcript's active wait is for another objective or a later revision; the store.
    pub async fn open_wait(&self, caller: &AgentCaller, opening: Opening) -> Result<OpenedWait, EngineError> {
        if !caller.bounds.allow(&opening.principal, &opening.agent) {
            return Err(EngineError::OutOfBounds);
        }
        let opened = self.store.open_wait(opening).await?.row;
        self.or_refused_wait(opened, caller, "OPEN").await
    }

    /// A wait of this principal and agent, as it stands now.
    ///
    /// # Errors
    /// There is none for this caller; the store.
    pub async fn wait_of_agent(&self, caller: &AgentCaller, named: &NamedWait) -> Result<WaitRecord, EngineError> {
        self.theirs(caller, named).await?;
        let loaded = self.store.wait(named.id).await?;
        let record = loaded.row.ok_or(EngineError::WaitUnknown)?;
        Ok(WaitRecord { wait: record.wait.as_of(loaded.now), ..record })
    }

    /// Lets an agent go on. The approvals come as they stand now.
    ///
    /// # Errors
    /// There is none within the caller's bounds; every refusal of [`crate::domain::wait::Wait::resume`]; the store.
    pub async fn resume_wait(
        &self,
        caller: &AgentCaller,
        id: WaitId,
        resuming: Resuming,
    ) -> Result<ResumedWait, EngineError> {
        // Whose it is never changes, so it may be asked before the transaction.
        let wait = self.store.wait_alone(id).await?.row;
        let in_bounds = caller.bounds.allow(&resuming.principal, &resuming.agent)
            && wait.is_some_and(|wait| caller.bounds.allow(&wait.principal, &wait.agent));
        if !in_bounds {
            return Err(EngineError::WaitUnknown);
        }
        let loaded = self.store.resume_wait(id, resuming).await?;
        let resumed = loaded.row.ok_or(EngineError::WaitUnknown)?;
        let ResumedWait { record, approvals, replayed } = self.or_refused_wait(resumed, caller, "RESUME").await?;
        if replayed {
            // Somebody may go on a second time, so the audit has every time that it was told to.
            let event = record.wait.event(AuditKind::WaitReplayed, Some(&caller.name), "RESUMED");
            self.store.record(vec![event]).await?;
        }
        let approvals = approvals.into_iter().map(|approval| approval.as_of(loaded.now)).collect();
        Ok(ResumedWait { record, approvals, replayed })
    }

    /// Closes a wait, and withdraws its approvals.
    ///
    /// # Errors
    /// There is none for this caller; it is over, and was not closed by this caller; the store.
    pub async fn close_wait(
        &self,
        caller: &AgentCaller,
        named: &NamedWait,
        reason: Option<&str>,
    ) -> Result<WaitRecord, EngineError> {
        self.theirs(caller, named).await?;
        let closed = self.store.close_wait(named.id, &caller.name, reason).await?.row;
        self.or_refused_wait(closed.ok_or(EngineError::WaitUnknown)?, caller, "CLOSE").await
    }

    /// Whether a wait that a question names would take it, where no approval is made of the question.
    pub(super) async fn wait_takes(&self, wait: Option<WaitId>, subject: &Subject) -> Result<(), EngineError> {
        let Some(id) = wait else { return Ok(()) };
        let loaded = self.store.wait_alone(id).await?;
        let wait = loaded.row.filter(|wait| wait.is_of(&subject.principal, &subject.agent));
        let wait = wait.ok_or(EngineError::WaitUnknown)?;
        match wait.accepts(subject, loaded.now) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(EngineError::Wait(Box::new(RefusedWait { refusal, wait: wait.as_of(loaded.now) }))),
        }
    }

    /// Whether it is a wait of this caller, principal and agent. Whose it is never changes, so it may be asked before
    /// everything else, and alone: what is another's takes no longer than what is not there.
    async fn theirs(&self, caller: &AgentCaller, named: &NamedWait) -> Result<(), EngineError> {
        let wait = self.store.wait_alone(named.id).await?.row;
        let theirs = caller.bounds.allow(&named.principal, &named.agent)
            && wait.is_some_and(|wait| wait.is_of(&named.principal, &named.agent));
        if theirs { Ok(()) } else { Err(EngineError::WaitUnknown) }
    }

    async fn or_refused_wait<T>(&self, done: Waited<T>, caller: &AgentCaller, wanted: &str) -> Result<T, EngineError> {
        match done {
            Ok(done) => Ok(done),
            Err(refused) => {
                let event = AuditEvent {
                    reason: Some(refused.refusal.reason().to_owned()),
                    ..refused.wait.event(AuditKind::WaitRefused, Some(&caller.name), wanted)
                };
                self.store.record(vec![event]).await?;
                Err(EngineError::Wait(refused))
            }
        }
    }
}
