//! Reading approvals, and the commands on them: decide, cancel, revoke. Load, let the domain decide, save; if somebody else
//! was faster, once more from the start.

use super::{AgentCaller, Engine, EngineError, TRIES};
use crate::domain::approval::{Answer, Approval, CommandRefusal, Commanded, Person, StateName};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::ids::ApprovalId;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::{Loaded, Saved, Viewer};

/// A person as one who reads approvals.
pub(super) fn viewer(person: &Person) -> Viewer<'_> {
    Viewer::Person { id: &person.id, groups: &person.groups }
}

impl Engine {
    /// An approval of this principal and agent, as it stands now.
    ///
    /// # Errors
    /// There is none for this caller; the store.
    pub async fn approval_of_agent(
        &self,
        caller: &AgentCaller,
        principal: &Identifier,
        agent: &Identifier,
        id: ApprovalId,
    ) -> Result<Approval, EngineError> {
        let (approval, now) = self.load_of_agent(caller, principal, agent, id).await?;
        Ok(approval.as_of(now))
    }

    /// An approval that this person sees, as it stands now.
    ///
    /// # Errors
    /// The person sees none of that id; the store.
    pub async fn approval_of_person(&self, person: &Person, id: ApprovalId) -> Result<Approval, EngineError> {
        let (approval, now) = self.load_of_person(person, id).await?;
        Ok(approval.as_of(now))
    }

    /// Withdraws a question, also after it was approved.
    ///
    /// # Errors
    /// There is none for this caller; it is final; the store.
    pub async fn cancel(
        &self,
        caller: &AgentCaller,
        principal: &Identifier,
        agent: &Identifier,
        id: ApprovalId,
        reason: Option<&str>,
    ) -> Result<Approval, EngineError> {
        for _ in 0..TRIES {
            let (approval, now) = self.load_of_agent(caller, principal, agent, id).await?;
            let commanded = approval.cancel(&caller.name, reason, now);
            if let Some(done) = self.carry_out(approval, commanded, now).await? {
                return self.or_refused(done, AuditKind::CancelRefused, &caller.name, None, "CANCEL").await;
            }
        }
        Err(EngineError::LostRace)
    }

    /// A person's answer.
    ///
    /// # Errors
    /// The person sees none of that id, or may not decide it; it is no longer pending; the store.
    pub async fn decide(&self, person: &Person, id: ApprovalId, answer: &Answer) -> Result<Approval, EngineError> {
        if let Some(decided) = self.decide_on_what_was_seen(person, id, answer).await? {
            return Ok(decided);
        }
        for _ in 0..TRIES {
            let (approval, now) = self.load_of_person(person, id).await?;
            let commanded = approval.decide(person, answer, now);
            if let Some(done) = self.carry_out(approval, commanded, now).await? {
                let (by, wanted) = (Some(&person.id), answer.verdict.as_str());
                return self.or_refused(done, AuditKind::DecideRefused, &person.caller, by, wanted).await;
            }
        }
        Err(EngineError::LostRace)
    }

    /// The person's answer to the record as it was last seen, saved if it is still that; none where it is not, or where
    /// there is nothing to save: then the record has to be looked at.
    async fn decide_on_what_was_seen(
        &self,
        person: &Person,
        id: ApprovalId,
        answer: &Answer,
    ) -> Result<Option<Approval>, EngineError> {
        let Loaded { row, now } = self.store.approval_to_change(id, viewer(person)).await?;
        let Some(approval) = row.filter(|approval| approval.is_visible_to(person)) else { return Ok(None) };
        let Ok(Commanded::Changed(change)) = approval.decide(person, answer, now) else { return Ok(None) };
        let next = change.next.clone();
        let saved = self.store.save_approval(*change, approval.version).await?;
        Ok((saved == Saved::Yes).then_some(next))
    }

    /// Takes back what was approved and is not used yet.
    ///
    /// # Errors
    /// The person sees none of that id, or may not revoke it; it is not approved; the store.
    pub async fn revoke(&self, person: &Person, id: ApprovalId, reason: Option<&str>) -> Result<Approval, EngineError> {
        for _ in 0..TRIES {
            let (approval, now) = self.load_of_person(person, id).await?;
            let commanded = approval.revoke(person, reason, now);
            if let Some(done) = self.carry_out(approval, commanded, now).await? {
                let by = Some(&person.id);
                return self.or_refused(done, AuditKind::DecideRefused, &person.caller, by, "REVOKE").await;
            }
        }
        Err(EngineError::LostRace)
    }

    pub(super) async fn load_of_agent(
        &self,
        caller: &AgentCaller,
        principal: &Identifier,
        agent: &Identifier,
        id: ApprovalId,
    ) -> Result<(Approval, Timestamp), EngineError> {
        // Out of bounds every id is as good as absent, so none is looked up.
        if !caller.bounds.allow(principal, agent) {
            return Err(EngineError::ApprovalUnknown);
        }
        let loaded = self.store.approval_seen_by(id, Viewer::Agent { principal, agent }).await?;
        loaded.row.map(|approval| (approval, loaded.now)).ok_or(EngineError::ApprovalUnknown)
    }

    async fn load_of_person(&self, person: &Person, id: ApprovalId) -> Result<(Approval, Timestamp), EngineError> {
        let loaded = self.store.approval_seen_by(id, viewer(person)).await?;
        loaded
            .row
            .filter(|approval| approval.is_visible_to(person))
            .map(|approval| (approval, loaded.now))
            .ok_or(EngineError::ApprovalUnknown)
    }

    /// Saves what a command changed. None if somebody else was faster.
    async fn carry_out(
        &self,
        approval: Approval,
        commanded: Result<Commanded, CommandRefusal>,
        now: Timestamp,
    ) -> Result<Option<Result<Approval, (CommandRefusal, Box<Approval>)>>, EngineError> {
        let expected = approval.version;
        match commanded {
            Ok(Commanded::AsItWas) => Ok(Some(Ok(approval.as_of(now)))),
            Ok(Commanded::Changed(change)) => {
                let next = change.next.clone();
                Ok(match self.store.save_approval(*change, expected).await? {
                    Saved::Yes => Some(Ok(next)),
                    Saved::Conflict => None,
                })
            }
            Err(refusal) => {
                if refusal == CommandRefusal::State(StateName::Expired)
                    && let Some(change) = approval.expired(now)
                {
                    // Whoever is faster writes the same thing down.
                    self.store.save_approval(change, expected).await?;
                }
                Ok(Some(Err((refusal, Box::new(approval.as_of(now))))))
            }
        }
    }

    async fn or_refused(
        &self,
        done: Result<Approval, (CommandRefusal, Box<Approval>)>,
        kind: AuditKind,
        caller: &Identifier,
        person: Option<&Identifier>,
        wanted: &str,
    ) -> Result<Approval, EngineError> {
        match done {
            Ok(approval) => Ok(approval),
            Err((refusal, approval)) => {
                let event = AuditEvent {
                    person: person.cloned(),
                    reason: Some(refusal.reason().to_owned()),
                    ..approval.event(kind, Some(caller), wanted)
                };
                self.store.record(vec![event]).await?;
                Err(EngineError::Command(refusal, approval))
            }
        }
    }
}
