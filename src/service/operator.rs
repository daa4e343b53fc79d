//! `OperatorService`: the door of whoever runs the sidecar.

use super::fields::Violations;
use super::{Doors, audit, credential_ended, errors, operator_caller, render, streams, to_the_end};
use crate::domain::ids::AuditRecordId;
use crate::domain::limits;
use crate::engine::{AuditFilter, ExecutionFilter};
use crate::proto;
use crate::proto::operator_service_server::OperatorService;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// What a page holds where the request says nothing.
const PAGE: u32 = 100;

#[tonic::async_trait]
impl OperatorService for Doors {
    async fn get_policy(
        &self,
        request: Request<proto::GetPolicyRequest>,
    ) -> Result<Response<proto::GetPolicyResponse>, Status> {
        operator_caller(&request)?;
        let in_force = self.engine.in_force();
        let policy = &in_force.policy;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Response::new(proto::GetPolicyResponse {
            revision: policy.revision().to_owned(),
            load_time: Some(render::time(in_force.since)),
            files: policy.files().to_vec(),
            connectors: policy
                .connectors()
                .map(|connector| proto::PolicyConnector {
                    name: connector.name,
                    enabled: connector.enabled,
                    actions: count(connector.actions),
                    rules: count(connector.rules),
                })
                .collect(),
            problems: in_force.reload.problems.clone(),
            attempt_time: Some(render::time(in_force.reload.last_attempt)),
        }))
    }

    async fn list_executions(
        &self,
        request: Request<proto::ListExecutionsRequest>,
    ) -> Result<Response<proto::ListExecutionsResponse>, Status> {
        let caller = operator_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let mut states = Vec::new();
        for number in request.states {
            match render::execution_state_name(number) {
                Some(state) if !states.contains(&state) => states.push(state),
                Some(_) => {}
                None => violations.add("states", "must be states of an execution, none of them UNSPECIFIED"),
            }
        }
        let approval = match request.approval_id.as_str() {
            "" => None,
            text => violations.approval_id("approval_id", text),
        };
        let filter = ExecutionFilter {
            principal: violations.optional_identifier("principal", &request.principal),
            agent: violations.optional_identifier("agent", &request.agent),
            connector: violations.optional_identifier("connector", &request.connector),
            states,
            approval,
            started_from: violations.optional_time("started_from", request.started_from.as_ref()),
            started_before: violations.optional_time("started_before", request.started_before.as_ref()),
        };
        violations.finish()?;
        let page_size = match request.page_size {
            0 => PAGE,
            size => size.min(limits::EXECUTIONS_PAGE),
        };
        let page = self
            .engine
            .list_executions(&caller, filter, page_size, &request.page_token)
            .await
            .map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::ListExecutionsResponse {
            executions: page.rows.into_iter().map(render::execution).collect(),
            next_page_token: page.next_page_token.unwrap_or_default(),
        }))
    }

    async fn list_audit_records(
        &self,
        request: Request<proto::ListAuditRecordsRequest>,
    ) -> Result<Response<proto::ListAuditRecordsResponse>, Status> {
        let caller = operator_caller(&request)?;
        let request = request.into_inner();
        let mut violations = Violations::default();
        let approval = match request.approval_id.as_str() {
            "" => None,
            text => violations.approval_id("approval_id", text),
        };
        let execution = match request.execution_id.as_str() {
            "" => None,
            text => violations.execution_id("execution_id", text),
        };
        let wait = match request.wait_id.as_str() {
            "" => None,
            text => violations.wait_id("wait_id", text),
        };
        let principal = violations.optional_identifier("principal", &request.principal);
        violations.finish()?;
        let page_size = match request.page_size {
            0 => PAGE,
            size => size.min(limits::AUDIT_PAGE),
        };
        let filter = AuditFilter { approval, execution, wait, principal };
        let page = self
            .engine
            .list_audit_records(&caller, filter, page_size, &request.page_token)
            .await
            .map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::ListAuditRecordsResponse {
            records: page.rows.into_iter().map(render::audit_record).collect(),
            next_page_token: page.next_page_token.unwrap_or_default(),
        }))
    }

    type ExportAuditStream = streams::Answers<proto::ExportAuditResponse>;

    async fn export_audit(
        &self,
        request: Request<proto::ExportAuditRequest>,
    ) -> Result<Response<Self::ExportAuditStream>, Status> {
        let caller = operator_caller(&request)?;
        let ended = credential_ended(&request)?;
        let export = self.engine.export_audit(request.get_ref().from_leaf).map_err(|error| errors::status(&error))?;
        tracing::info!(%caller, "the audit is exported");
        Ok(Response::new(streams::until(ended, audit::parts(export))))
    }

    async fn get_audit_checkpoint(
        &self,
        request: Request<proto::GetAuditCheckpointRequest>,
    ) -> Result<Response<proto::GetAuditCheckpointResponse>, Status> {
        operator_caller(&request)?;
        let proto::GetAuditCheckpointRequest { size, sign_now } = request.into_inner();
        let refused = |error| errors::status(&error);
        let size = (size > 0).then_some(size);
        let engine = Arc::clone(&self.engine);
        let checkpoint = to_the_end(async move { engine.audit_checkpoint(size, sign_now).await }).await?;
        let log = self.engine.audit_log().await.map_err(refused)?;
        let (checkpoint, log) = (Some(audit::checkpoint(checkpoint)), Some(audit::log(log)));
        Ok(Response::new(proto::GetAuditCheckpointResponse { checkpoint, log }))
    }

    async fn prove_audit_record(
        &self,
        request: Request<proto::ProveAuditRecordRequest>,
    ) -> Result<Response<proto::ProveAuditRecordResponse>, Status> {
        operator_caller(&request)?;
        let text = request.into_inner().record_id;
        let mut violations = Violations::default();
        let id = AuditRecordId::parse(&text);
        if id.is_none() {
            violations.add("record_id", "must be the id of a record: a UUID");
        }
        violations.finish()?;
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        let proof = self.engine.prove_audit_record(&id).await.map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::ProveAuditRecordResponse {
            entry: Some(audit::entry(proof.entry)),
            path: audit::hashes(proof.path),
            checkpoint: Some(audit::checkpoint(proof.checkpoint)),
        }))
    }

    async fn prove_audit_consistency(
        &self,
        request: Request<proto::ProveAuditConsistencyRequest>,
    ) -> Result<Response<proto::ProveAuditConsistencyResponse>, Status> {
        operator_caller(&request)?;
        let proto::ProveAuditConsistencyRequest { older_size, newer_size } = request.into_inner();
        let newer = (newer_size > 0).then_some(newer_size);
        let proven = self.engine.prove_audit_consistency(older_size, newer).await;
        let (newer_size, path) = proven.map_err(|error| errors::status(&error))?;
        Ok(Response::new(proto::ProveAuditConsistencyResponse { newer_size, path: audit::hashes(path) }))
    }
}
