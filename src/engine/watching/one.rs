//! Watching one approval, until it is final.

use super::FIRST_READS;
use super::hub::{Place, Topic};
use crate::domain::approval::Approval;
use crate::domain::ids::ApprovalId;
use crate::domain::text::Identifier;
use crate::engine::{AgentCaller, Engine, EngineError, TRIES};
use crate::storage::Saved;
use std::sync::Arc;

/// One approval as it stands, and then each change of it in order, none left out and none twice, up to the one that is
/// final. Being slow costs it nothing: what is missing is made from the newest row.
#[derive(Debug)]
pub struct ApprovalWatch {
    _place: Place,
    topic: Topic,
    first: Option<Approval>,
    version: u64,
    over: bool,
}

impl Engine {
    /// Watches an approval of this principal and agent. That its deadline passes is a change, seen when it passes.
    ///
    /// # Errors
    /// Too many watch; there is none for this caller; the store.
    pub async fn watch_approval(
        self: &Arc<Self>,
        caller: &AgentCaller,
        principal: &Identifier,
        agent: &Identifier,
        id: ApprovalId,
    ) -> Result<ApprovalWatch, EngineError> {
        let place = self.watching.enter(&caller.name)?;
        // Listening begins before the read, so that nothing is missed between the two.
        let topic = self.watching.topic(self, id);
        let turn = FIRST_READS.acquire().await;
        let approval = self.settled(caller, principal, agent, id).await?;
        drop(turn);
        topic.offer(Arc::new(approval.clone()));
        Ok(ApprovalWatch { _place: place, topic, version: approval.version, first: Some(approval), over: false })
    }

    /// An approval with its expiry written down where its deadline has come: a decision that was made in time may still be
    /// on its way into the table, and the table alone says which of the two it was.
    async fn settled(
        &self,
        caller: &AgentCaller,
        principal: &Identifier,
        agent: &Identifier,
        id: ApprovalId,
    ) -> Result<Approval, EngineError> {
        for _ in 0..TRIES {
            let (approval, now) = self.load_of_agent(caller, principal, agent, id).await?;
            let Some(change) = approval.expired(now) else { return Ok(approval) };
            let next = change.next.clone();
            if self.store.save_approval(change, approval.version).await? == Saved::Yes {
                return Ok(next);
            }
        }
        Err(EngineError::LostRace)
    }
}

impl ApprovalWatch {
    /// The state now, then each change, until it is final; none after that.
    pub async fn next(&mut self) -> Option<Result<Approval, EngineError>> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            self.over = first.is_final();
            return Some(Ok(first));
        }
        loop {
            let newest = self.topic.newest();
            let next = newest.and_then(|row| row.at_version(self.version.saturating_add(1)));
            if let Some(next) = next {
                self.version = next.version;
                self.over = next.is_final();
                return Some(Ok(next));
            }
            if let Err(error) = self.topic.changed().await {
                self.over = true;
                return Some(Err(error));
            }
        }
    }
}
