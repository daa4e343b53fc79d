//! `ApproverService`: the door of people.

use super::fields::Violations;
use super::{Doors, credential_ended, errors, render, streams, to_the_end};
use crate::domain::approval::{Answer, StateName, Verdict};
use crate::domain::limits;
use crate::metrics::{Watcher, Watching};
use crate::proto;
use crate::proto::approver_service_server::ApproverService;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// What a page holds where the request says nothing.
const PAGE: u32 = 50;

/// Which states a request names, each once.
fn states(violations: &mut Violations, numbers: &[i32]) -> Vec<StateName> {
    let mut states = Vec::new();
    for number in numbers {
        match render::state_name(*number) {
            Some(state) if !states.contains(&state) => states.push(state),
            Some(_) => {}
            None => violations.add("states", "must be states of an approval, none of them UNSPECIFIED"),
        }
    }
    states
}

#[tonic::async_trait]
impl ApproverService for Doors {
    type WatchApprovalsStream = streams::Answers<proto::WatchApprovalsResponse>;

    async fn watch_approvals(
        &self,
        request: Request<proto::WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let person = self.person(&request, &request.get_ref().principal)?;
        let ended = credential_ended(&request)?;
        let mut violations = Violations::default();
        let states = states(&mut violations, &request.get_ref().states);
        violations.finish()?;
        let watch = self.engine.watch_approvals(person, &states).map_err(|error| errors::status(&error))?;
        let watching = Watching::begin(self.engine.metrics(), Watcher::Approver);
        Ok(Response::new(streams::approvals(watch, watching, ended)))
    }

    async fn list_approvals(
        &self,
        request: Request<proto::ListApprovalsRequest>,
    ) -> Result<Response<proto::ListApprovalsResponse>, Status> {
        let person = self.person(&request, &request.get_ref().principal)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let states = states(&mut violations, &request.states);
        violations.finish()?;
        let page_size = match request.page_size {
            0 => PAGE,
            size => size.min(limits::APPROVALS_PAGE),
        };
        let page = self
            .engine
            .list_approvals(&person, &states, page_size, &request.page_token)
            .await
            .map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::ListApprovalsResponse {
            approvals: page.rows.into_iter().map(render::approval).collect(),
            next_page_token: page.next_page_token.unwrap_or_default(),
        }))
    }

    async fn get_approval(
        &self,
        request: Request<proto::ApproverServiceGetApprovalRequest>,
    ) -> Result<Response<proto::ApproverServiceGetApprovalResponse>, Status> {
        let person = self.person(&request, &request.get_ref().principal)?;
        let mut violations = Violations::default();
        let id = violations.approval_id("approval_id", &request.get_ref().approval_id);
        let id = violations.and(id)?;
        let approval = self.engine.approval_of_person(&person, id).await.map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::ApproverServiceGetApprovalResponse { approval: Some(render::approval(approval)) }))
    }

    async fn get_approval_arguments(
        &self,
        request: Request<proto::GetApprovalArgumentsRequest>,
    ) -> Result<Response<proto::GetApprovalArgumentsResponse>, Status> {
        let person = self.person(&request, &request.get_ref().principal)?;
        let mut violations = Violations::default();
        let id = violations.approval_id("approval_id", &request.get_ref().approval_id);
        let id = violations.and(id)?;
        let engine = Arc::clone(&self.engine);
        let whole = to_the_end(async move { engine.whole_arguments(&person, id).await }).await?;
        Ok(Response::new(proto::GetApprovalArgumentsResponse {
            arguments_json: whole.arguments.canonical().to_owned(),
            fingerprint: whole.fingerprint.to_string(),
        }))
    }

    async fn decide(&self, request: Request<proto::DecideRequest>) -> Result<Response<proto::DecideResponse>, Status> {
        let person = self.person(&request, &request.get_ref().principal)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let id = violations.approval_id("approval_id", &request.approval_id);
        let verdict = match request.verdict() {
            proto::Verdict::Unspecified => None,
            proto::Verdict::Approve => Some(Verdict::Approve),
            proto::Verdict::Deny => Some(Verdict::Deny),
        };
        if verdict.is_none() {
            violations.add("verdict", "must be APPROVE or DENY");
        }
        let reason = violations.optional_note("reason", &request.reason);
        let shown_fingerprint = violations.optional_fingerprint("shown_fingerprint", &request.shown_fingerprint);
        let (id, verdict) = violations.and(id.zip(verdict))?;
        let engine = Arc::clone(&self.engine);
        let answer = Answer { verdict, reason, shown_fingerprint };
        let approval = to_the_end(async move { engine.decide(&person, id, &answer).await }).await?;
        Ok(Response::new(proto::DecideResponse { approval: Some(render::approval(approval)) }))
    }

    async fn revoke_approval(
        &self,
        request: Request<proto::RevokeApprovalRequest>,
    ) -> Result<Response<proto::RevokeApprovalResponse>, Status> {
        let person = self.person(&request, &request.get_ref().principal)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let id = violations.approval_id("approval_id", &request.approval_id);
        let reason = violations.optional_note("reason", &request.reason);
        let id = violations.and(id)?;
        let engine = Arc::clone(&self.engine);
        let approval = to_the_end(async move { engine.revoke(&person, id, reason.as_deref()).await }).await?;
        Ok(Response::new(proto::RevokeApprovalResponse { approval: Some(render::approval(approval)) }))
    }
}
