//! `AgentService`: the door of the process that runs the agent.

use super::fields::Violations;
use super::{Doors, agent_caller, credential_ended, errors, render, streams, to_the_end};
use crate::domain::execution::Outcome;
use crate::domain::ids::WaitId;
use crate::domain::limits;
use crate::domain::policy::Policy;
use crate::domain::wait::{Opening, Resuming};
use crate::engine::{AgentCaller, Asked, ConsumeCall, OutcomeReport, Question};
use crate::metrics::{Watcher, Watching};
use crate::proto::agent_service_server::AgentService;
use crate::proto::{self, batch_evaluate_result};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;
use zeroize::Zeroizing;

impl Doors {
    async fn evaluate_one(
        &self,
        policy: &Policy,
        caller: &AgentCaller,
        request: proto::EvaluateRequest,
    ) -> Result<proto::EvaluateResponse, Status> {
        let mut violations = Violations::default();
        let read = violations.said(request.invocation, self.arguments_bytes);
        let read = violations.and(read)?;
        let evaluation = self
            .engine
            .evaluate(policy, caller, read, request.explain)
            .await
            .map_err(|error| errors::status(&error))?;
        let (id, fingerprint) = (evaluation.id.to_string(), evaluation.fingerprint.to_string());
        Ok(render::evaluation(evaluation.answer, fingerprint, id))
    }
}

#[tonic::async_trait]
impl AgentService for Doors {
    type WatchApprovalStream = streams::Answers<proto::WatchApprovalResponse>;

    async fn watch_approval(
        &self,
        request: Request<proto::WatchApprovalRequest>,
    ) -> Result<Response<Self::WatchApprovalStream>, Status> {
        let (caller, ended) = (agent_caller(&request)?, credential_ended(&request)?);
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.approval_of_agent(&request.principal, &request.agent, &request.approval_id);
        let (principal, agent, id) = violations.and(named)?;
        let watch = self.engine.watch_approval(&caller, &principal, &agent, id).await;
        let watch = watch.map_err(|error| errors::status(&error))?;
        let watching = Watching::begin(self.engine.metrics(), Watcher::Agent);
        Ok(Response::new(streams::approval(watch, watching, ended)))
    }

    async fn evaluate(
        &self,
        request: Request<proto::EvaluateRequest>,
    ) -> Result<Response<proto::EvaluateResponse>, Status> {
        let caller = agent_caller(&request)?;
        self.evaluate_one(&self.engine.policy(), &caller, request.into_inner()).await.map(Response::new)
    }

    async fn batch_evaluate(
        &self,
        request: Request<proto::BatchEvaluateRequest>,
    ) -> Result<Response<proto::BatchEvaluateResponse>, Status> {
        let caller = agent_caller(&request)?;
        let requests = request.into_inner().requests;
        let mut violations = Violations::default();
        if requests.is_empty() || requests.len() > limits::BATCH_ITEMS {
            violations
                .add("requests", format!("has {} items; 1 to {} are allowed", requests.len(), limits::BATCH_ITEMS));
        }
        violations.finish()?;
        // One call, one policy, though another comes into force in the middle of it.
        let policy = self.engine.policy();
        let mut results = Vec::with_capacity(requests.len());
        for request in requests {
            let result = match self.evaluate_one(&policy, &caller, request).await {
                Ok(response) => batch_evaluate_result::Result::Response(response),
                Err(status) => {
                    let error = batch_error(&status);
                    self.engine.metrics().calls.refused(&error.reason);
                    batch_evaluate_result::Result::Error(error)
                }
            };
            results.push(proto::BatchEvaluateResult { result: Some(result) });
            // One batch is as long as a hundred calls, and others wait on this thread.
            tokio::task::yield_now().await;
        }
        Ok(Response::new(proto::BatchEvaluateResponse { results }))
    }

    async fn request_approval(
        &self,
        request: Request<proto::RequestApprovalRequest>,
    ) -> Result<Response<proto::RequestApprovalResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let invocation = violations.invocation(request.invocation, self.arguments_bytes);
        let request_id = violations.optional_identifier("request_id", &request.request_id);
        let retry_of = match request.retry_of.as_str() {
            "" => None,
            text => violations.execution_id("retry_of", text),
        };
        let wait = match request.wait_id.as_str() {
            "" => None,
            text => violations.wait_id("wait_id", text),
        };
        let agent_note = violations.optional_note("agent_note", &request.agent_note);
        let decide_within = violations.optional_span(
            "decide_within",
            request.decide_within.as_ref(),
            limits::SHORTEST_DEADLINE,
            limits::LONGEST_DEADLINE,
        );
        let invocation = violations.and(invocation)?;
        let engine = Arc::clone(&self.engine);
        let question = Question { invocation, request_id, wait, retry_of, agent_note, decide_within };
        let asked = to_the_end(async move { engine.request_approval(&caller, question).await }).await?;
        Ok(Response::new(match asked {
            Asked::Allowed(answer) => proto::RequestApprovalResponse {
                decision: render::decision(&answer.decision),
                reason: answer.reason.as_str().to_owned(),
                rules: render::rules(&answer.rules),
                message: answer.message,
                approval: None,
                consume_token: String::new(),
                existing: false,
            },
            Asked::Open { approval, token, existing } => proto::RequestApprovalResponse {
                decision: proto::Decision::ConfirmationRequired.into(),
                reason: approval.question.reason.as_str().to_owned(),
                rules: render::rules(&approval.question.rules),
                message: approval.question.message.clone(),
                approval: Some(render::approval(*approval)),
                consume_token: token.to_string(),
                existing,
            },
        }))
    }

    async fn get_approval(
        &self,
        request: Request<proto::AgentServiceGetApprovalRequest>,
    ) -> Result<Response<proto::AgentServiceGetApprovalResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.approval_of_agent(&request.principal, &request.agent, &request.approval_id);
        let (principal, agent, id) = violations.and(named)?;
        let approval = self
            .engine
            .approval_of_agent(&caller, &principal, &agent, id)
            .await
            .map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::AgentServiceGetApprovalResponse { approval: Some(render::approval(approval)) }))
    }

    async fn cancel_approval(
        &self,
        request: Request<proto::CancelApprovalRequest>,
    ) -> Result<Response<proto::CancelApprovalResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.approval_of_agent(&request.principal, &request.agent, &request.approval_id);
        let reason = violations.optional_note("reason", &request.reason);
        let (principal, agent, id) = violations.and(named)?;
        let engine = Arc::clone(&self.engine);
        let approval =
            to_the_end(async move { engine.cancel(&caller, &principal, &agent, id, reason.as_deref()).await }).await?;
        Ok(Response::new(proto::CancelApprovalResponse { approval: Some(render::approval(approval)) }))
    }

    async fn consume(
        &self,
        request: Request<proto::ConsumeRequest>,
    ) -> Result<Response<proto::ConsumeResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let token = (!request.consume_token.is_empty()).then(|| Zeroizing::new(request.consume_token));
        let mut violations = Violations::default();
        let attempt = violations.attempt_id("attempt_id", &request.attempt_id);
        let invocation = violations.invocation(request.invocation, self.arguments_bytes);
        let retry_of = match request.retry_of.as_str() {
            "" => None,
            _ if token.is_some() => {
                violations.add("retry_of", "must be empty with a consume_token: the approval says what it retries");
                None
            }
            text => violations.execution_id("retry_of", text),
        };
        let (attempt, invocation) = violations.and(attempt.zip(invocation))?;
        let engine = Arc::clone(&self.engine);
        let call = ConsumeCall { token, attempt, invocation, retry_of };
        let permit = to_the_end(async move { engine.consume(&caller, call).await }).await?;
        Ok(Response::new(render::permit(permit)))
    }

    async fn report_outcome(
        &self,
        request: Request<proto::ReportOutcomeRequest>,
    ) -> Result<Response<proto::ReportOutcomeResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.execution_of_agent(&request.principal, &request.agent, &request.execution_id);
        let outcome = outcome(request.outcome());
        if outcome.is_none() {
            violations.add("outcome", "must be SUCCEEDED, FAILED or UNKNOWN");
        }
        let remote_reference =
            violations.optional_text("remote_reference", &request.remote_reference, limits::REMOTE_REFERENCE_BYTES);
        let error_code = violations.optional_text("error_code", &request.error_code, limits::ERROR_CODE_BYTES);
        let detail = violations.optional_text("detail", &request.detail, limits::OUTCOME_DETAIL_BYTES);
        let duration =
            violations.optional_span("duration", request.duration.as_ref(), Duration::ZERO, limits::OUTCOME_DURATION);
        let ((principal, agent, execution), outcome) = violations.and(named.zip(outcome))?;
        let said =
            OutcomeReport { principal, agent, execution, outcome, remote_reference, error_code, detail, duration };
        let engine = Arc::clone(&self.engine);
        let execution = to_the_end(async move { engine.report_outcome(&caller, &said).await }).await?;
        Ok(Response::new(proto::ReportOutcomeResponse { execution: Some(render::execution(execution)) }))
    }

    async fn open_wait(
        &self,
        request: Request<proto::OpenWaitRequest>,
    ) -> Result<Response<proto::OpenWaitResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let principal = violations.identifier("principal", &request.principal);
        let agent = violations.identifier("agent", &request.agent);
        let conversation = violations.optional_identifier("conversation", &request.conversation);
        let objective = match &request.objective {
            Some(objective) => violations.objective("objective", objective),
            None => {
                violations.add("objective", "is required");
                None
            }
        };
        let summary = violations.note("summary", &request.summary);
        let expire_after = violations.optional_span(
            "expire_after",
            request.expire_after.as_ref(),
            limits::SHORTEST_DEADLINE,
            limits::LONGEST_DEADLINE,
        );
        let ((principal, agent), (objective, summary)) =
            violations.and(principal.zip(agent).zip(objective.zip(summary)))?;
        let opening = Opening {
            id: WaitId::new(Uuid::now_v7()),
            caller: caller.name.clone(),
            principal,
            agent,
            conversation,
            objective,
            summary,
            expire_after,
            replace: request.replace,
        };
        let engine = Arc::clone(&self.engine);
        let opened = to_the_end(async move { engine.open_wait(&caller, opening).await }).await?;
        let wait = Some(render::wait(opened.record));
        Ok(Response::new(proto::OpenWaitResponse { wait, existing: opened.existing }))
    }

    async fn get_wait(
        &self,
        request: Request<proto::GetWaitRequest>,
    ) -> Result<Response<proto::GetWaitResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.wait_of_agent(&request.principal, &request.agent, &request.wait_id);
        let named = violations.and(named)?;
        let wait = self.engine.wait_of_agent(&caller, &named).await.map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::GetWaitResponse { wait: Some(render::wait(wait)) }))
    }

    async fn resume_wait(
        &self,
        request: Request<proto::ResumeWaitRequest>,
    ) -> Result<Response<proto::ResumeWaitResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.wait_of_agent(&request.principal, &request.agent, &request.wait_id);
        let transcript = violations.identifier("transcript", &request.transcript);
        if request.version == 0 {
            violations.add("version", "must be at least 1");
        }
        let attempt = violations.attempt_id("attempt_id", &request.attempt_id);
        let (named, (transcript, attempt)) = violations.and(named.zip(transcript.zip(attempt)))?;
        let resuming = Resuming {
            caller: caller.name.clone(),
            principal: named.principal,
            agent: named.agent,
            transcript,
            version: request.version,
            attempt,
        };
        let engine = Arc::clone(&self.engine);
        let resumed = to_the_end(async move { engine.resume_wait(&caller, named.id, resuming).await }).await?;
        Ok(Response::new(render::resumed(resumed)))
    }

    async fn close_wait(
        &self,
        request: Request<proto::CloseWaitRequest>,
    ) -> Result<Response<proto::CloseWaitResponse>, Status> {
        let caller = agent_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let named = violations.wait_of_agent(&request.principal, &request.agent, &request.wait_id);
        let reason = violations.optional_note("reason", &request.reason);
        let named = violations.and(named)?;
        let engine = Arc::clone(&self.engine);
        let wait = to_the_end(async move { engine.close_wait(&caller, &named, reason.as_deref()).await }).await?;
        Ok(Response::new(proto::CloseWaitResponse { wait: Some(render::wait(wait)) }))
    }
}

fn outcome(outcome: proto::Outcome) -> Option<Outcome> {
    match outcome {
        proto::Outcome::Unspecified => None,
        proto::Outcome::Succeeded => Some(Outcome::Succeeded),
        proto::Outcome::Failed => Some(Outcome::Failed),
        proto::Outcome::Unknown => Some(Outcome::Unknown),
    }
}

/// What `Evaluate` would have failed with, as a part of a batch's answer.
fn batch_error(status: &Status) -> proto::BatchEvaluateError {
    let info = status.get_details_error_info();
    proto::BatchEvaluateError {
        code: status.code().into(),
        reason: info.as_ref().map_or(String::new(), |info| info.reason.clone()),
        message: status.message().to_owned(),
        metadata: info.map(|info| info.metadata).unwrap_or_default(),
    }
}
