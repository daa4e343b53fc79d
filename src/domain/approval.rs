//! The record of one question put to people, and of what became of it.
//!
//! ```text
//! pending ──approve──▶ approved ──consume──▶ consumed
//!    │ deny ▶ denied        │ revoke ▶ revoked
//!    │ cancel ▶ cancelled   │ cancel ▶ cancelled
//!    │ expire ▶ expired     │ expire ▶ expired
//! ```
//!
//! All but pending and approved are final. Two clocks bound it: `decide_by` for people, `use_by` for the agent;
//! `now >= deadline` is expired, whether or not anybody has written that down yet ([`Approval::as_of`]). Consuming is the
//! store's one conditional statement; [`super::consume`] says why it changed nothing.
//!
//! What each command does in each state, where two of a group must confirm, one of them has, and the owner is not of that
//! group: the state that is reached, `=` where it had been done before (or nothing is overdue), `refused` for the state,
//! `not theirs` for the person; `·` where there is no such person.
//!
//! ```text
//!                             pending    approved   denied     cancelled  revoked    expired    consumed
//! APPROVE by who has approved =          =          =          =          =          =          =
//! APPROVE by who has denied   ·          ·          refused    ·          ·          ·          ·
//! APPROVE by another approver approved   refused    refused    refused    refused    refused    refused
//! APPROVE by the owner        not theirs not theirs not theirs not theirs not theirs not theirs not theirs
//! APPROVE by anybody else     not theirs not theirs not theirs not theirs not theirs not theirs not theirs
//! DENY by who has approved    denied     refused    refused    refused    refused    refused    refused
//! DENY by who has denied      ·          ·          =          ·          ·          ·          ·
//! DENY by another approver    denied     refused    refused    refused    refused    refused    refused
//! DENY by the owner           not theirs not theirs not theirs not theirs not theirs not theirs not theirs
//! DENY by anybody else        not theirs not theirs not theirs not theirs not theirs not theirs not theirs
//! cancel by who asked         cancelled  cancelled  refused    =          refused    refused    refused
//! cancel by another caller    cancelled  cancelled  refused    refused    refused    refused    refused
//! revoke by who has revoked   ·          ·          ·          ·          =          ·          ·
//! revoke by who has approved  refused    revoked    refused    refused    refused    refused    refused
//! revoke by another approver  refused    revoked    refused    refused    refused    refused    refused
//! revoke by the owner         refused    revoked    refused    refused    refused    refused    refused
//! revoke by anybody else      not theirs not theirs not theirs not theirs not theirs not theirs not theirs
//! consume                     refused    consumed   refused    refused    refused    refused    refused
//! its deadline passes         expired    expired    =          =          =          =          =
//! its wait is closed          cancelled  cancelled  =          =          =          =          =
//! ```

use super::audit::{AuditEvent, AuditKind};
use super::change::Change;
use super::decision::{MatchedRule, PolicyReason};
use super::fingerprint::Fingerprint;
use super::ids::{ApprovalId, WaitId};
use super::invocation::Subject;
use super::preview::Preview;
use super::requirement::{Requirement, Standing};
use super::scope::Scope;
use super::text::Identifier;
use super::time::Timestamp;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod history;
mod retried;
mod seeing;
mod state;

pub use retried::{KnownOutcome, RetriedExecution};
pub use state::{ApprovalState, Confirmed, StateName, Verdict};

/// What was asked; it never changes. Its `Debug` leaves out what a person is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Question {
    /// The invocation's identities, fingerprint and digests.
    pub subject: Subject,
    /// The caller that asked.
    pub requested_by: Identifier,
    /// The action's scope by the policy that asked.
    pub scope: Scope,
    /// The action's tags by the policy that asked.
    pub tags: Vec<String>,
    /// What a person is shown of the arguments; none once it was erased.
    pub preview: Option<Preview>,
    /// One sentence about what is asked.
    pub message: String,
    /// The agent's own words, neutralised.
    pub agent_note: Option<String>,
    /// The revision of the policy that asked.
    pub policy_revision: String,
    /// Why it asked.
    pub reason: PolicyReason,
    /// The rules that matched.
    pub rules: Vec<MatchedRule>,
    /// Who must confirm.
    pub requirement: Requirement,
    /// The execution that is to be retried, and what was known of it.
    pub retry_of: Option<RetriedExecution>,
    /// The wait that it belongs to: closing that withdraws it.
    pub wait: Option<WaitId>,
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Question")
            .field("fingerprint", &self.subject.fingerprint)
            .field("requested_by", &self.requested_by)
            .finish_non_exhaustive()
    }
}

/// One person's decision, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonDecision {
    /// Who.
    pub person: Identifier,
    /// Every group of the policy that the person was in then.
    pub groups: Vec<Identifier>,
    /// Whether the person is the approval's principal.
    pub as_owner: bool,
    /// What.
    pub verdict: Verdict,
    /// Why, neutralised.
    pub reason: Option<String>,
    /// The caller through which it came.
    pub caller: Identifier,
    /// When.
    pub at: Timestamp,
}

impl PersonDecision {
    /// How long it took since the question was asked, at `asked`.
    pub fn took(&self, asked: Timestamp) -> Duration {
        self.at.since(asked)
    }

    /// The person as a requirement sees one.
    pub fn standing(&self) -> Standing<'_> {
        Standing { person: &self.person, groups: &self.groups, as_owner: self.as_owner }
    }
}

/// The record of one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its id. Knowing it authorises nothing.
    pub id: ApprovalId,
    /// What was asked.
    pub question: Question,
    /// When.
    pub create_time: Timestamp,
    /// From this instant on people can no longer decide.
    pub decide_by: Timestamp,
    /// No deadline of it is later: when its wait was over as that stood when it was asked. None without a wait.
    pub ends_by: Option<Timestamp>,
    /// Every decision, in order; the last one of each person counts.
    pub decisions: Vec<PersonDecision>,
    /// Where it stands.
    pub state: ApprovalState,
    /// Grows with every change, from 1.
    pub version: u64,
}

/// A person at the approver's door.
#[derive(Clone, Debug)]
pub struct Person {
    /// Who.
    pub id: Identifier,
    /// Every group of today's policy that the person is in.
    pub groups: Vec<Identifier>,
    /// The groups that the person is in by the word of whoever vouches for it, whether the policy lets them count or not.
    pub vouched: Arc<[Identifier]>,
    /// The caller through which the person speaks.
    pub caller: Identifier,
}

/// A person's answer and what comes with it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What.
    pub verdict: Verdict,
    /// Why, neutralised.
    pub reason: Option<String>,
    /// The fingerprint that the person was shown.
    pub shown_fingerprint: Option<Fingerprint>,
}

/// Why a command on an approval was refused. The record is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandRefusal {
    /// It is in a state in which the command does nothing.
    State(StateName),
    /// The person sees it but is none of those who may do this.
    NotAnApprover,
    /// The person was shown another invocation than the one that this approval is about.
    ShownFingerprintDiffers,
}

impl CommandRefusal {
    /// The stable reason of it.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::State(state) => state.reason(),
            Self::NotAnApprover => "NOT_AN_APPROVER",
            Self::ShownFingerprintDiffers => "SHOWN_FINGERPRINT_DIFFERS",
        }
    }
}

/// How an approval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed<'a> {
    /// When.
    pub at: Timestamp,
    /// The person or caller who ended it, where somebody did.
    pub by: Option<&'a Identifier>,
    /// What was said about it.
    pub reason: Option<&'a str>,
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commanded {
    /// It changes the record: to be saved.
    Changed(Box<Change<Approval>>),
    /// It had been done before; the record stands as it is.
    AsItWas,
}

impl Approval {
    /// The record of a question that is asked at `now`, whose deadlines are not later than `ends_by`.
    pub fn ask(id: ApprovalId, question: Question, ends_by: Option<Timestamp>, now: Timestamp) -> Change<Self> {
        let decide_by = now.plus(question.requirement.decide_within());
        let approval = Self {
            id,
            question,
            create_time: now,
            decide_by: ends_by.map_or(decide_by, |ends_by| decide_by.min(ends_by)),
            ends_by,
            decisions: Vec::new(),
            state: ApprovalState::Pending,
            version: 1,
        };
        let caller = approval.question.requested_by.clone();
        let event = AuditEvent {
            policy_revision: Some(approval.question.policy_revision.clone()),
            reason: Some(approval.question.reason.as_str().to_owned()),
            ..approval.event(AuditKind::ApprovalRequested, Some(&caller), "CONFIRMATION_REQUIRED")
        };
        Change { next: approval, events: vec![event], valid_before: None }
    }

    /// The record as it stands at `now`: expired if its deadline has come, as the sweeper would write it.
    #[must_use]
    pub fn as_of(self, now: Timestamp) -> Self {
        match self.expire(now) {
            Some(state) => Self { state, version: self.version.saturating_add(1), ..self },
            None => self,
        }
    }

    /// The change that writes down that the deadline has come; none if it has not.
    pub fn expired(&self, now: Timestamp) -> Option<Change<Self>> {
        let state = self.expire(now)?;
        let event = self.event(AuditKind::ApprovalExpired, None, "EXPIRED");
        Some(Change {
            next: Self { state, version: self.version.saturating_add(1), ..self.clone() },
            events: vec![event],
            valid_before: None,
        })
    }

    /// A person's answer. One `DENY` ends it; it is approved once every clause is met. The same person's same verdict
    /// again changes nothing, whatever the state; while pending, one's `APPROVE` may become `DENY`.
    ///
    /// # Errors
    /// In this order: the person is none of those who may decide; what the person was shown is something else; it is no
    /// longer pending; the person has denied it.
    pub fn decide(&self, person: &Person, answer: &Answer, now: Timestamp) -> Result<Commanded, CommandRefusal> {
        let standing = Standing { person: &person.id, groups: &person.groups, as_owner: self.is_owner(person) };
        let earlier = self.decisions.iter().rev().find(|decision| decision.person == person.id);
        let again = earlier.is_some_and(|decision| decision.verdict == answer.verdict);
        if !again && !self.question.requirement.may_decide(&standing) {
            return Err(CommandRefusal::NotAnApprover);
        }
        if answer.shown_fingerprint.is_some_and(|shown| shown != self.question.subject.fingerprint) {
            return Err(CommandRefusal::ShownFingerprintDiffers);
        }
        if again {
            return Ok(Commanded::AsItWas);
        }
        let state = self.state_at(now);
        if state != StateName::Pending {
            return Err(CommandRefusal::State(state));
        }
        if earlier.is_some_and(|decision| decision.verdict == Verdict::Deny) {
            // One denial ends it, so a pending one with a denial cannot be; were there one, it is denied.
            return Err(CommandRefusal::State(StateName::Denied));
        }
        let decision = PersonDecision {
            person: person.id.clone(),
            groups: person.groups.clone(),
            as_owner: standing.as_owner,
            verdict: answer.verdict,
            reason: answer.reason.clone(),
            caller: person.caller.clone(),
            at: now,
        };
        let event = |kind, word| AuditEvent {
            person: Some(person.id.clone()),
            note: answer.reason.clone(),
            ..self.event(kind, Some(&person.caller), word)
        };
        let mut decisions = self.decisions.clone();
        decisions.push(decision);
        let mut next = Self { decisions, version: self.version.saturating_add(1), ..self.clone() };
        let mut events = vec![event(AuditKind::ApprovalDecided, answer.verdict.as_str())];
        match answer.verdict {
            Verdict::Deny => {
                next.state = ApprovalState::Denied { at: now };
                events.push(event(AuditKind::ApprovalDenied, "DENIED"));
            }
            Verdict::Approve if next.meets(&self.question.requirement) => {
                let use_by = now.plus(self.question.requirement.use_within());
                let use_by = self.ends_by.map_or(use_by, |ends_by| use_by.min(ends_by));
                next.state = ApprovalState::Approved(Confirmed { at: now, use_by });
                events.push(event(AuditKind::ApprovalApproved, "APPROVED"));
            }
            Verdict::Approve => {}
        }
        Ok(Commanded::Changed(Box::new(Change { next, events, valid_before: Some(self.decide_by) })))
    }

    /// Withdraws the question, also after it was approved. The same caller's cancelling again
    /// changes nothing.
    ///
    /// # Errors
    /// It is final.
    pub fn cancel(
        &self,
        caller: &Identifier,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Commanded, CommandRefusal> {
        let state = self.state_at(now);
        match state {
            StateName::Pending | StateName::Approved => {}
            StateName::Cancelled if self.state.closed_by() == Some(caller) => return Ok(Commanded::AsItWas),
            StateName::Denied
            | StateName::Cancelled
            | StateName::Revoked
            | StateName::Expired
            | StateName::Consumed => return Err(CommandRefusal::State(state)),
        }
        let confirmed = self.state.confirmed();
        let next =
            ApprovalState::Cancelled { at: now, by: caller.clone(), reason: reason.map(str::to_owned), confirmed };
        let event = AuditEvent {
            note: reason.map(str::to_owned),
            ..self.event(AuditKind::ApprovalCancelled, Some(caller), "CANCELLED")
        };
        Ok(self.close(next, event, confirmed.map_or(self.decide_by, |confirmed| confirmed.use_by)))
    }

    /// Takes back what was approved and is not used yet: by whoever may decide it, or its principal. The same
    /// person's revoking again changes nothing.
    ///
    /// # Errors
    /// The person is none of those; it is not approved.
    pub fn revoke(&self, person: &Person, reason: Option<&str>, now: Timestamp) -> Result<Commanded, CommandRefusal> {
        let as_owner = self.is_owner(person);
        let standing = Standing { person: &person.id, groups: &person.groups, as_owner };
        if !as_owner && !self.question.requirement.may_decide(&standing) {
            return Err(CommandRefusal::NotAnApprover);
        }
        let confirmed = match &self.state {
            ApprovalState::Approved(confirmed) if now < confirmed.use_by => *confirmed,
            ApprovalState::Revoked { by, .. } if *by == person.id => return Ok(Commanded::AsItWas),
            ApprovalState::Approved(_)
            | ApprovalState::Revoked { .. }
            | ApprovalState::Pending
            | ApprovalState::Denied { .. }
            | ApprovalState::Cancelled { .. }
            | ApprovalState::Expired { .. }
            | ApprovalState::Consumed { .. } => return Err(CommandRefusal::State(self.state_at(now))),
        };
        let next =
            ApprovalState::Revoked { at: now, by: person.id.clone(), reason: reason.map(str::to_owned), confirmed };
        let event = AuditEvent {
            person: Some(person.id.clone()),
            note: reason.map(str::to_owned),
            ..self.event(AuditKind::ApprovalRevoked, Some(&person.caller), "REVOKED")
        };
        Ok(self.close(next, event, confirmed.use_by))
    }

    /// Whether the recorded approvals meet `requirement`: each person's last verdict counts.
    pub fn meets(&self, requirement: &Requirement) -> bool {
        let mut seen = BTreeSet::new();
        let last = self.decisions.iter().rev().filter(|decision| seen.insert(&decision.person));
        requirement
            .met_by(last.filter(|decision| decision.verdict == Verdict::Approve).map(|decision| decision.standing()))
    }

    /// How it ended, if it has.
    pub fn closed(&self) -> Option<Closed<'_>> {
        let last = self.decisions.last();
        let (at, by, reason) = match &self.state {
            ApprovalState::Pending | ApprovalState::Approved(_) => return None,
            ApprovalState::Denied { at } => {
                (*at, last.map(|last| &last.person), last.and_then(|last| last.reason.as_deref()))
            }
            ApprovalState::Cancelled { at, by, reason, .. } | ApprovalState::Revoked { at, by, reason, .. } => {
                (*at, Some(by), reason.as_deref())
            }
            ApprovalState::Expired { at, .. } | ApprovalState::Consumed { at, .. } => (*at, None, None),
        };
        Some(Closed { at, by, reason })
    }

    /// The name of the state at `now`.
    pub fn state_at(&self, now: Timestamp) -> StateName {
        if self.expire(now).is_some() { StateName::Expired } else { self.state.name() }
    }

    /// What the audit says of something done to this approval.
    pub fn event(&self, kind: AuditKind, caller: Option<&Identifier>, decision: &str) -> AuditEvent {
        let event = AuditEvent::about(kind, &self.question.subject, caller, decision);
        AuditEvent { approval: Some(self.id), wait: self.question.wait, ..event }
    }

    /// Whether this person is the approval's principal.
    pub fn is_owner(&self, person: &Person) -> bool {
        self.question.subject.principal == person.id
    }

    fn close(&self, state: ApprovalState, event: AuditEvent, deadline: Timestamp) -> Commanded {
        let next = Self { state, version: self.version.saturating_add(1), ..self.clone() };
        Commanded::Changed(Box::new(Change { next, events: vec![event], valid_before: Some(deadline) }))
    }

    fn expire(&self, now: Timestamp) -> Option<ApprovalState> {
        match &self.state {
            ApprovalState::Pending if now >= self.decide_by => {
                Some(ApprovalState::Expired { at: self.decide_by, confirmed: None })
            }
            ApprovalState::Approved(confirmed) if now >= confirmed.use_by => {
                Some(ApprovalState::Expired { at: confirmed.use_by, confirmed: Some(*confirmed) })
            }
            ApprovalState::Pending
            | ApprovalState::Approved(_)
            | ApprovalState::Denied { .. }
            | ApprovalState::Cancelled { .. }
            | ApprovalState::Revoked { .. }
            | ApprovalState::Expired { .. }
            | ApprovalState::Consumed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
