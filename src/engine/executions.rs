//! What became of what was let through, as the enforcing process reports it.

use super::{AgentCaller, Engine, EngineError, TRIES};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::execution::{Execution, Outcome, Report, Reported};
use crate::domain::ids::ExecutionId;
use crate::domain::text::Identifier;
use crate::storage::Saved;
use std::time::Duration;

/// What the enforcing process says.
#[derive(Clone)]
pub struct OutcomeReport {
    /// The execution's principal.
    pub principal: Identifier,
    /// The execution's agent.
    pub agent: Identifier,
    /// Which execution.
    pub execution: ExecutionId,
    /// What became of it.
    pub outcome: Outcome,
    /// The remote resource's id.
    pub remote_reference: Option<String>,
    /// The remote service's error code.
    pub error_code: Option<String>,
    /// Anything else.
    pub detail: Option<String>,
    /// How long the call took.
    pub duration: Option<Duration>,
}

impl Engine {
    /// Records an outcome.
    ///
    /// # Errors
    /// There is no such execution for this caller; another outcome is known; the store.
    pub async fn report_outcome(&self, caller: &AgentCaller, said: &OutcomeReport) -> Result<Execution, EngineError> {
        let in_bounds = caller.bounds.allow(&said.principal, &said.agent);
        for _ in 0..TRIES {
            let loaded = self.store.execution(said.execution).await?;
            let execution = loaded
                .row
                .filter(|execution| {
                    let subject = &execution.subject;
                    in_bounds && subject.principal == said.principal && subject.agent == said.agent
                })
                .ok_or(EngineError::ExecutionUnknown)?;
            let report = Report {
                at: loaded.now,
                by: caller.name.clone(),
                remote_reference: said.remote_reference.clone(),
                error_code: said.error_code.clone(),
                detail: said.detail.clone(),
                duration: said.duration,
            };
            match execution.report(said.outcome, report) {
                Ok(Reported::AsItWas) => return Ok(execution.as_of(loaded.now)),
                Ok(Reported::Changed(change)) => {
                    let next = change.next.clone();
                    match self.store.save_execution(*change, execution.version).await? {
                        Saved::Yes => return Ok(next),
                        Saved::Conflict => {}
                    }
                }
                Err(refusal) => {
                    let event = AuditEvent {
                        approval: execution.approval,
                        execution: Some(execution.id),
                        reason: Some(refusal.reason().to_owned()),
                        ..AuditEvent::about(
                            AuditKind::ReportRefused,
                            &execution.subject,
                            Some(&caller.name),
                            said.outcome.as_str(),
                        )
                    };
                    self.store.record(vec![event]).await?;
                    return Err(EngineError::Report(refusal, Box::new(execution.as_of(loaded.now))));
                }
            }
        }
        Err(EngineError::LostRace)
    }
}
