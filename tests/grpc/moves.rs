//! What several tests do: ask, read and answer as somebody, and stand at an instant.

use crate::grpc::harness::*;
use countersign::proto::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

impl Sidecar {
    /// The store's time, in microseconds.
    pub fn store_micros(&self) -> i64 {
        self.running().engine().store().estimated_time().micros()
    }

    /// Moves time to `offset` microseconds after `time`, which is not past.
    pub fn stand_at(&self, time: &Option<prost_types::Timestamp>, offset: i64) {
        let span = u64::try_from(micros(time) + offset - self.store_micros()).expect("time does not go back");
        self.advance(Duration::from_micros(span));
        assert_eq!(self.store_micros(), micros(time) + offset);
    }

    /// Asks as another caller, or with more than an invocation.
    pub async fn request_as(
        &self,
        caller: &str,
        request: RequestApprovalRequest,
    ) -> Result<RequestApprovalResponse, Status> {
        self.agent_as(caller).request_approval(request).await.map(|answer| self.noted(answer.into_inner()))
    }

    /// What an agent's caller reads of an approval that it names by principal, agent and id.
    pub async fn read_as(&self, caller: &str, approval: &Approval) -> Result<Approval, Status> {
        let request = AgentServiceGetApprovalRequest {
            principal: approval.principal.clone(),
            agent: approval.agent.clone(),
            approval_id: approval.id.clone(),
        };
        Ok(self.agent_as(caller).get_approval(request).await?.into_inner().approval.unwrap())
    }

    /// The approval as its requester reads it now.
    pub async fn read(&self, approval: &Approval) -> Approval {
        self.read_as("runtime", approval).await.unwrap()
    }

    pub async fn cancel_as(&self, caller: &str, approval: &Approval) -> Result<Approval, Status> {
        let request = CancelApprovalRequest {
            principal: approval.principal.clone(),
            agent: approval.agent.clone(),
            approval_id: approval.id.clone(),
            reason: "no longer needed".to_owned(),
        };
        Ok(self.agent_as(caller).cancel_approval(request).await?.into_inner().approval.unwrap())
    }

    pub async fn take_back(&self, person: &str, approval: &str) -> Result<Approval, Status> {
        let request = RevokeApprovalRequest {
            approval_id: approval.to_owned(),
            principal: person.to_owned(),
            reason: "second thoughts".to_owned(),
        };
        Ok(self.approver().revoke_approval(request).await?.into_inner().approval.unwrap())
    }

    /// What a person reads of an approval.
    pub async fn seen_by(&self, person: &str, approval: &str) -> Result<Approval, Status> {
        let request =
            ApproverServiceGetApprovalRequest { approval_id: approval.to_owned(), principal: person.to_owned() };
        Ok(self.approver().get_approval(request).await?.into_inner().approval.unwrap())
    }

    /// All of the arguments, as a person reads them.
    pub async fn arguments_for(&self, person: &str, approval: &str) -> Result<GetApprovalArgumentsResponse, Status> {
        let request = GetApprovalArgumentsRequest { approval_id: approval.to_owned(), principal: person.to_owned() };
        self.approver().get_approval_arguments(request).await.map(tonic::Response::into_inner)
    }

    /// The ids of what a person's list shows, newest first, of these states.
    pub async fn listed(&self, person: &str, states: &[ApprovalState]) -> Vec<String> {
        let request = ListApprovalsRequest {
            principal: person.to_owned(),
            states: states.iter().map(|state| i32::from(*state)).collect(),
            page_size: 100,
            ..Default::default()
        };
        let page = self.approver().list_approvals(request).await.unwrap().into_inner();
        assert_eq!(page.next_page_token, "");
        page.approvals.into_iter().map(|approval| approval.id).collect()
    }

    pub async fn report_on(
        &self,
        invocation: &Invocation,
        execution: &str,
        outcome: Outcome,
    ) -> Result<Execution, Status> {
        let request = ReportOutcomeRequest {
            principal: invocation.principal.clone(),
            agent: invocation.agent.clone(),
            execution_id: execution.to_owned(),
            outcome: outcome.into(),
            ..Default::default()
        };
        Ok(self.agent().report_outcome(request).await?.into_inner().execution.unwrap())
    }

    pub async fn evaluate(&self, invocation: Invocation) -> Result<EvaluateResponse, Status> {
        let request = EvaluateRequest { invocation: Some(invocation), explain: false };
        self.agent().evaluate(request).await.map(tonic::Response::into_inner)
    }

    /// The whole story once more: whatever happened before did no lasting harm.
    pub async fn still_tells_the_story(&self) {
        let invocation = Invocation { conversation: new_attempt(), ..email() };
        let (approval, token) = self.approved(invocation.clone()).await;
        let permit = self.consume(&token, invocation.clone()).await.unwrap().permit.unwrap();
        let execution = self.report_on(&invocation, &permit.execution_id, Outcome::Succeeded).await.unwrap();
        assert_eq!(execution.approval_id, approval.id);
        assert_eq!(self.read(&approval).await.state(), ApprovalState::Consumed);
    }
}

/// Microseconds since the Unix epoch.
pub fn micros(time: &Option<prost_types::Timestamp>) -> i64 {
    let time = time.as_ref().expect("a time");
    time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000
}

pub fn span(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos })
}

/// An invocation in another conversation, so that it is another question.
pub fn in_conversation(name: &str) -> Invocation {
    Invocation { conversation: name.to_owned(), ..email() }
}

/// The fields that a refusal calls wrong.
pub fn wrong_fields(status: &Status) -> Vec<String> {
    let violations = status.get_details_bad_request().map(|details| details.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}

/// Checks that a request was refused as invalid because of this field and no other.
#[track_caller]
pub fn wrong<T: std::fmt::Debug>(result: Result<T, Status>, field: &str) -> Status {
    let status = result.expect_err(field);
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    reason(&status);
    assert_eq!(wrong_fields(&status), [field], "{status:?}");
    assert_eq!(told(&status, "field"), field);
    status
}

/// Everything that a client can tell one refusal from another by.
pub fn all_of(status: &Status) -> (Code, String, Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let metadata = status.metadata().clone().into_headers();
    let metadata = metadata
        .iter()
        .filter(|(name, _)| name.as_str() != "date")
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    (status.code(), status.message().to_owned(), status.details().to_vec(), metadata)
}

/// A request for approval of an invocation, with nothing else in it.
pub fn asking(invocation: Invocation) -> RequestApprovalRequest {
    RequestApprovalRequest { invocation: Some(invocation), ..Default::default() }
}
