//! Asking people: decides, and where confirmation is required records exactly what is to be confirmed.

use super::{AgentCaller, Engine, EngineError, within};
use crate::domain::approval::{self, Approval, RetriedExecution};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::decision::{Decision, PolicyAnswer};
use crate::domain::hex::hex;
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::invocation::{Invocation, Subject};
use crate::domain::requirement::Requirement;
use crate::domain::text::Identifier;
use crate::domain::wording;
use crate::secrets::Keyring;
use crate::storage::{AskedLimit, NewApproval, OpenLimit, RequestKey, Requested};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use uuid::Uuid;
use zeroize::Zeroizing;

/// What an agent asks people.
#[derive(Clone, Debug)]
pub struct Question {
    /// The intended call.
    pub invocation: Invocation,
    /// The caller's own id of this request.
    pub request_id: Option<Identifier>,
    /// The wait that the question belongs to.
    pub wait: Option<WaitId>,
    /// The execution that the call would retry.
    pub retry_of: Option<ExecutionId>,
    /// The agent's own words, neutralised.
    pub agent_note: Option<String>,
    /// How long people may take; it only shortens.
    pub decide_within: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub enum Asked {
    /// Nothing is to be confirmed, and no approval was made.
    Allowed(Box<PolicyAnswer>),
    /// People are asked.
    Open {
        /// The approval, as it stands now.
        approval: Box<Approval>,
        /// What uses it.
        token: Zeroizing<String>,
        /// Whether it had been asked before.
        existing: bool,
    },
}

impl Engine {
    /// Records a question, or finds it recorded.
    ///
    /// # Errors
    /// Out of the caller's bounds; a `request_id` of another request; denied by policy; what is to be retried does not
    /// exist or has succeeded; there is no such wait, or it does not take the question; too many questions open or asked of
    /// late; a person has just denied it; the store.
    pub async fn request_approval(&self, caller: &AgentCaller, question: Question) -> Result<Asked, EngineError> {
        within(caller, &question.invocation)?;
        let subject = question.invocation.subject.clone();
        let request = question.request_id.clone().map(|id| RequestKey { id, digest: digest(&question) });
        let asked = self.ask(caller, question, request, &subject).await;
        if let Err(error) = &asked
            && let Some(reason) = refusal_of(error)
        {
            let event = AuditEvent {
                policy_revision: match error {
                    EngineError::PolicyDenied(answer) => Some(answer.policy_revision.clone()),
                    _ => None,
                },
                reason: Some(reason.to_owned()),
                approval: match error {
                    EngineError::CoolingOff { refused, .. } => Some(refused.denied.id),
                    _ => None,
                },
                wait: match error {
                    EngineError::Wait(refused) => Some(refused.wait.id),
                    _ => None,
                },
                ..AuditEvent::about(AuditKind::RequestRefused, &subject, Some(&caller.name), "DENY")
            };
            self.store.record(vec![event]).await?;
        }
        asked
    }

    async fn ask(
        &self,
        caller: &AgentCaller,
        question: Question,
        request: Option<RequestKey>,
        subject: &Subject,
    ) -> Result<Asked, EngineError> {
        // Also a question that was asked before is answered with a token that is made now.
        let keys = self.making()?;
        let answer = self.ask_policy(&question.invocation, false)?;
        // Where people are to be asked the table itself looks for an earlier answer, in the one round trip that records the
        // question. Whatever could refuse before that has to look first: a retry gets the first answer.
        let recorded_at_once =
            matches!(answer.decision, Decision::ConfirmationRequired(_)) && question.retry_of.is_none();
        if let Some(request) = request.as_ref().filter(|_| !recorded_at_once)
            && let Some(approval) = self.asked_before(caller, subject, request).await?
        {
            return Ok(open(&keys, approval, true));
        }
        let requirement = match &answer.decision {
            Decision::Deny => return Err(EngineError::PolicyDenied(Box::new(answer))),
            Decision::Allow => None,
            Decision::ConfirmationRequired(requirement) => Some(requirement.clone()),
        };
        let retried = self.retried(&question).await?;
        let Some(requirement) = requirement else {
            self.wait_takes(question.wait, subject).await?;
            return Ok(Asked::Allowed(Box::new(answer)));
        };
        let id = ApprovalId::new(Uuid::now_v7());
        let invocation = &question.invocation;
        let new = NewApproval {
            id,
            arguments: keys.seal(id, &invocation.subject.fingerprint, invocation.arguments.canonical())?,
            question: self.question(caller, question, answer, requirement, retried),
            request,
            limits: self.limits,
        };
        let loaded = self.store.request(new).await?;
        match loaded.row {
            Requested::Created(approval) => Ok(open(&keys, approval, false)),
            Requested::Existing(approval) => Ok(open(&keys, approval.as_of(loaded.now), true)),
            Requested::RequestIdReused => Err(EngineError::RequestIdReused),
            Requested::WaitUnknown => Err(EngineError::WaitUnknown),
            Requested::WaitRefused(refused) => Err(EngineError::Wait(refused)),
            Requested::LimitReached(limit) => {
                let most = match limit {
                    OpenLimit::PerPrincipal => self.limits.per_principal,
                    OpenLimit::PerAgent => self.limits.per_agent,
                    OpenLimit::PerAction => self.limits.per_action,
                };
                Err(EngineError::TooManyOpen { limit, most })
            }
            Requested::AskedTooOften { again_at } => {
                let limit = self.limits.asked.unwrap_or(AskedLimit { most: 0, within: Duration::ZERO });
                Err(EngineError::AskedTooOften { limit, for_another: again_at.since(loaded.now) })
            }
            Requested::CoolingOff(refused) => {
                let for_another = refused.until.since(loaded.now);
                Err(EngineError::CoolingOff { refused, for_another })
            }
        }
    }

    async fn asked_before(
        &self,
        caller: &AgentCaller,
        subject: &Subject,
        request: &RequestKey,
    ) -> Result<Option<Approval>, EngineError> {
        let loaded = self.store.earlier_request(&caller.name, &subject.principal, &subject.agent, &request.id).await?;
        match loaded.row {
            None => Ok(None),
            Some(earlier) if earlier.digest == request.digest => Ok(Some(earlier.approval.as_of(loaded.now))),
            Some(_) => Err(EngineError::RequestIdReused),
        }
    }

    async fn retried(&self, question: &Question) -> Result<Option<RetriedExecution>, EngineError> {
        let Some(id) = question.retry_of else { return Ok(None) };
        let subject = &question.invocation.subject;
        let loaded = self.store.execution(id).await?;
        let execution =
            loaded.row.filter(|execution| execution.is_theirs(subject)).ok_or(EngineError::ExecutionUnknown)?;
        let known = execution.known_outcome(loaded.now).ok_or(EngineError::RetryNotNeeded(id))?;
        Ok(Some(RetriedExecution { id, known }))
    }

    fn question(
        &self,
        caller: &AgentCaller,
        asked: Question,
        answer: PolicyAnswer,
        requirement: Requirement,
        retry_of: Option<RetriedExecution>,
    ) -> approval::Question {
        let subject = asked.invocation.subject;
        let mut preview = self.previewer.preview(asked.invocation.arguments.value());
        preview.omissions.extend(wording::deceptive(&subject, asked.agent_note.as_deref()));
        approval::Question {
            message: wording::question(&subject, retry_of.as_ref()),
            requested_by: caller.name.clone(),
            // The policy asks only about actions that it knows, so there is a scope; were there none, the strongest.
            scope: answer.scope.unwrap_or(crate::domain::scope::Scope::Admin),
            tags: answer.tags.to_vec(),
            preview: Some(preview),
            agent_note: asked.agent_note,
            policy_revision: answer.policy_revision,
            reason: answer.reason,
            rules: answer.rules,
            requirement: match asked.decide_within {
                Some(longest) => requirement.deciding_within(longest),
                None => requirement,
            },
            retry_of,
            wait: asked.wait,
            subject,
        }
    }
}

fn open(keys: &Keyring, approval: Approval, existing: bool) -> Asked {
    Asked::Open { token: keys.consume_token(approval.id), approval: Box::new(approval), existing }
}

/// The stable reason of a refusal that the audit keeps; none for what is no decision about the question.
fn refusal_of(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::PolicyDenied(answer) => Some(answer.reason.as_str()),
        EngineError::RequestIdReused => Some("REQUEST_ID_REUSED"),
        EngineError::TooManyOpen { .. } => Some("TOO_MANY_OPEN_APPROVALS"),
        EngineError::AskedTooOften { .. } => Some("ASKED_TOO_OFTEN"),
        EngineError::CoolingOff { .. } => Some("COOLING_OFF"),
        EngineError::RetryNotNeeded(_) => Some("RETRY_NOT_NEEDED"),
        EngineError::ExecutionUnknown => Some("EXECUTION_NOT_FOUND"),
        EngineError::WaitUnknown => Some("WAIT_NOT_FOUND"),
        EngineError::Wait(refused) => Some(refused.refusal.reason()),
        EngineError::Store(_)
        | EngineError::Panicked
        | EngineError::OutOfBounds
        | EngineError::PersonOutOfBounds
        | EngineError::PersonMissing
        | EngineError::ApprovalUnknown
        | EngineError::Command(..)
        | EngineError::Consume(_)
        | EngineError::Report(..)
        | EngineError::ArgumentsErased(_)
        | EngineError::Sealing(_)
        | EngineError::Signing(_)
        | EngineError::Audit(_)
        | EngineError::SecretMissing(_)
        | EngineError::LostRace
        | EngineError::PageTokenInvalid
        | EngineError::TooManyWatchers { .. }
        | EngineError::WatchTooSlow
        | EngineError::WatchInterrupted
        | EngineError::Stopping => None,
    }
}

/// SHA-256 over all that a request says, each part behind its length, so that no two requests share it.
fn digest(question: &Question) -> String {
    let subject = &question.invocation.subject;
    let optional = |text: Option<&Identifier>| text.map_or(String::new(), ToString::to_string);
    let mut parts = vec![
        subject.principal.to_string(),
        subject.agent.to_string(),
        optional(subject.conversation.as_ref()),
        optional(subject.connection.as_ref()),
        subject.fingerprint.to_string(),
        subject.tool_definition_digest.map_or(String::new(), |digest| digest.to_string()),
        question.retry_of.map_or(String::new(), |id| id.to_string()),
        question.wait.map_or(String::new(), |id| id.to_string()),
        question.agent_note.clone().unwrap_or_default(),
        question.decide_within.map_or(String::new(), |span| span.as_micros().to_string()),
    ];
    parts.extend(subject.labels.iter().flat_map(|(name, value)| [name.clone(), value.clone()]));
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::arguments::Arguments;
    use crate::domain::invocation::Said;
    use crate::domain::testing::{at, moved};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A question of these texts; none where one of them is no identifier.
    fn question(fields: &[String], retry_of: bool, within: Option<u64>) -> Option<Question> {
        let id = |text: &String| Identifier::parse(text).ok();
        let maybe = |text: &String| if text.is_empty() { Some(None) } else { id(text).map(Some) };
        let said = Said {
            principal: id(&fields[0])?,
            agent: id(&fields[1])?,
            conversation: maybe(&fields[2])?,
            connection: maybe(&fields[3])?,
            connector: id(&fields[4])?,
            action: id(&fields[5])?,
            account: maybe(&fields[6])?,
            objective: None,
            tool_definition_digest: None,
            labels: BTreeMap::from([(fields[7].clone(), fields[8].clone()), (fields[9].clone(), "x".to_owned())]),
        };
        let other = Uuid::from_u128(u128::from(at(0).micros().unsigned_abs()));
        Some(Question {
            invocation: Invocation::new(said, Arguments::default()),
            request_id: None,
            // One of the two is given, and always the same id.
            wait: (!retry_of).then(|| WaitId::new(other)),
            retry_of: retry_of.then(|| ExecutionId::new(other)),
            agent_note: Some(fields[10].clone()).filter(|note| !note.is_empty()),
            decide_within: within.map(Duration::from_micros),
        })
    }

    proptest! {
        #[test]
        fn requests_have_one_digest_where_they_say_the_same_and_nowhere_else(
            (one, other) in moved(11),
            (retries, retries_too) in any::<(bool, bool)>(),
            (within, within_too) in (prop::option::of(1..3_u64), prop::option::of(1..3_u64)),
        ) {
            let questions = question(&one, retries, within).zip(question(&other, retries_too, within_too));
            prop_assume!(questions.is_some());
            let Some((a, b)) = questions else { return Ok(()) };
            let same = a.invocation.subject == b.invocation.subject
                && a.agent_note == b.agent_note
                && (retries, within) == (retries_too, within_too);
            prop_assert_eq!(digest(&a) == digest(&b), same);
        }
    }
}
