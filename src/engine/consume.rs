//! The one gate before any effect. The policy is asked first, in memory; then one conditional statement carries every
//! condition; only where it changed nothing are the rows read, and the domain says why.

use super::{AgentCaller, Engine, EngineError, TRIES, within};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::consume::{Attempted, ConsumeRefusal, WhyNot, why_not, why_not_without_token};
use crate::domain::decision::{Decision, PolicyAnswer};
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, AttemptId, ExecutionId};
use crate::domain::invocation::{Invocation, Subject};
use crate::domain::permit::{Claims, PermitNames};
use crate::secrets::{Keyring, PermitToken};
use crate::storage::{Accepting, AttemptKey};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;
use zeroize::Zeroizing;

/// What is about to run.
pub struct ConsumeCall {
    /// The token that the request for approval handed out; none if none is expected to be needed.
    pub token: Option<Zeroizing<String>>,
    /// The agent's id of this attempt.
    pub attempt: AttemptId,
    /// The call, as it is about to be made.
    pub invocation: Invocation,
    /// Without a token: the execution that the call retries.
    pub retry_of: Option<ExecutionId>,
}

/// Without the token, which is the requester's secret.
impl fmt::Debug for ConsumeCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConsumeCall").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Leave to make one call, once.
#[derive(Debug)]
pub struct Permit {
    /// The execution that began.
    pub execution: Execution,
    /// Today's answer of the policy.
    pub answer: PolicyAnswer,
    /// Whether it had been handed out before for this attempt.
    pub replayed: bool,
    /// The same for others to check, where the configuration wants it.
    pub token: Option<PermitToken>,
}

impl Engine {
    /// Passes the gate.
    ///
    /// # Errors
    /// Out of the caller's bounds; every refusal of the gate, in its order; others changed the record each time; the
    /// store.
    pub async fn consume(&self, caller: &AgentCaller, call: ConsumeCall) -> Result<Permit, EngineError> {
        within(caller, &call.invocation)?;
        let answer = self.ask_policy(&call.invocation, false)?;
        let keys = self.keys();
        let token = call.token.as_ref().map(|token| keys.approval_of(token));
        let subject = &call.invocation.subject;
        if let (Some(None), Some(said)) = (token, &call.token)
            && let Some(id) = self.missing_key_of(said).await?
        {
            self.record_refusal(caller, subject, None, "SECRET_MISSING", &answer).await?;
            return Err(EngineError::SecretMissing(vec![id]));
        }
        // Before anything starts: what others could not check must not be let through.
        let signer = match self.signer() {
            Ok(signer) => signer,
            Err(error) => {
                self.record_refusal(caller, subject, token.flatten(), "SECRET_MISSING", &answer).await?;
                return Err(error);
            }
        };
        let done = match token {
            Some(None) => Err(ConsumeRefusal::TokenInvalid),
            Some(Some(approval)) => self.consume_approval(caller, &call, approval, &answer).await?,
            None => self.consume_allowed(caller, &call, &answer).await?,
        };
        match done {
            Ok((execution, replayed)) => {
                if replayed {
                    self.record_replay(caller, subject, &execution, &answer).await?;
                }
                let token = signer.map(|signer| signer.sign(&execution)).transpose()?;
                Ok(Permit { execution, answer, replayed, token })
            }
            Err(refusal) => {
                self.record_refusal(caller, subject, token.flatten(), refusal.audit_reason(), &answer).await?;
                Err(match refusal {
                    ConsumeRefusal::PolicyDenied(_) => EngineError::PolicyDenied(Box::new(answer)),
                    refusal => EngineError::Consume(Box::new(refusal)),
                })
            }
        }
    }

    /// What signs permits, if any are wanted.
    fn signer(&self) -> Result<Option<Signer<'_>>, EngineError> {
        let Some(names) = &self.permits else { return Ok(None) };
        Ok(Some(Signer { keys: self.making()?, names }))
    }

    async fn consume_approval(
        &self,
        caller: &AgentCaller,
        call: &ConsumeCall,
        approval: ApprovalId,
        answer: &PolicyAnswer,
    ) -> Result<Result<(Execution, bool), ConsumeRefusal>, EngineError> {
        let subject = &call.invocation.subject;
        let attempted = Attempted { approval: Some(approval), subject, retry_of: None, today: answer };
        // Where today denies no statement runs, and the refusal is the first in the order all the same.
        let mut accepting = match &answer.decision {
            Decision::Allow => Some(Accepting::AnyRequirement),
            Decision::ConfirmationRequired(today) => Some(Accepting::Digest(today.digest())),
            Decision::Deny => None,
        };
        for _ in 0..TRIES {
            if let Some(accepting) = accepting {
                let start = start(caller, call, Some(approval), answer);
                if let Some(execution) = self.store.consume(start, accepting).await? {
                    return Ok(Ok((execution, false)));
                }
            }
            let facts = self.store.consume_facts(Some(approval), &attempt_key(caller, call), None).await?;
            let in_bounds = |subject: &Subject| caller.bounds.allow(&subject.principal, &subject.agent);
            match why_not(&facts.row, &attempted, in_bounds, facts.now) {
                WhyNot::Refused(refusal) => return Ok(Err(refusal)),
                WhyNot::Replay(execution) => return Ok(Ok((*execution, true))),
                WhyNot::MeetsToday { version } => accepting = Some(Accepting::Version(version)),
                WhyNot::Nothing => {}
            }
        }
        Err(EngineError::LostRace)
    }

    async fn consume_allowed(
        &self,
        caller: &AgentCaller,
        call: &ConsumeCall,
        answer: &PolicyAnswer,
    ) -> Result<Result<(Execution, bool), ConsumeRefusal>, EngineError> {
        let subject = &call.invocation.subject;
        let attempted = Attempted { approval: None, subject, retry_of: call.retry_of, today: answer };
        for _ in 0..TRIES {
            if answer.decision == Decision::Allow
                && let Some(execution) = self.store.start(start(caller, call, None, answer)).await?
            {
                return Ok(Ok((execution, false)));
            }
            let facts = self.store.consume_facts(None, &attempt_key(caller, call), call.retry_of).await?;
            match why_not_without_token(&facts.row, &attempted, facts.now) {
                WhyNot::Refused(refusal) => return Ok(Err(refusal)),
                WhyNot::Replay(execution) => return Ok(Ok((*execution, true))),
                WhyNot::MeetsToday { .. } | WhyNot::Nothing => {}
            }
        }
        Err(EngineError::LostRace)
    }

    /// Somebody may act on this permit a second time, so the audit has every time that it was handed out.
    async fn record_replay(
        &self,
        caller: &AgentCaller,
        subject: &Subject,
        execution: &Execution,
        answer: &PolicyAnswer,
    ) -> Result<(), EngineError> {
        let event = AuditEvent {
            approval: execution.approval,
            execution: Some(execution.id),
            policy_revision: Some(answer.policy_revision.clone()),
            reason: Some(answer.reason.as_str().to_owned()),
            ..AuditEvent::about(AuditKind::ConsumeReplayed, subject, Some(&caller.name), answer.decision.as_str())
        };
        Ok(self.store.record(vec![event]).await?)
    }

    async fn record_refusal(
        &self,
        caller: &AgentCaller,
        subject: &Subject,
        approval: Option<ApprovalId>,
        reason: &str,
        answer: &PolicyAnswer,
    ) -> Result<(), EngineError> {
        let event = AuditEvent {
            approval,
            policy_revision: Some(answer.policy_revision.clone()),
            reason: Some(reason.to_owned()),
            ..AuditEvent::about(AuditKind::ConsumeRefused, subject, Some(&caller.name), answer.decision.as_str())
        };
        Ok(self.store.record(vec![event]).await?)
    }
}

/// The keys of one moment, under the names of the configuration.
struct Signer<'a> {
    keys: Arc<Keyring>,
    names: &'a PermitNames,
}

impl Signer<'_> {
    fn sign(&self, execution: &Execution) -> Result<PermitToken, EngineError> {
        Ok(self.keys.first().permit().sign(&Claims::of(execution, self.names))?)
    }
}

fn start(caller: &AgentCaller, call: &ConsumeCall, approval: Option<ApprovalId>, answer: &PolicyAnswer) -> Start {
    Start {
        id: ExecutionId::new(Uuid::now_v7()),
        approval,
        subject: call.invocation.subject.clone(),
        caller: caller.name.clone(),
        attempt: call.attempt,
        new_idempotency_key: Uuid::new_v4().to_string(),
        retry_of: call.retry_of,
        policy_revision: answer.policy_revision.clone(),
        decision: answer.decision.as_str(),
        reason: answer.reason,
        report_within: answer.report_within,
    }
}

fn attempt_key(caller: &AgentCaller, call: &ConsumeCall) -> AttemptKey {
    AttemptKey {
        caller: caller.name.clone(),
        principal: call.invocation.subject.principal.clone(),
        agent: call.invocation.subject.agent.clone(),
        attempt: call.attempt,
    }
}
