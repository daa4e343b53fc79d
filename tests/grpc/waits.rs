//! Waits: an agent that stops for people, and goes on.

mod audit;
mod commands;
mod deadlines;
mod races;
mod story;
mod strangers;

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use tonic::Status;

/// `olga`'s assistant stops for the objective of [`email`].
pub fn opening() -> OpenWaitRequest {
    OpenWaitRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        conversation: "conversation-1".to_owned(),
        objective: email().objective,
        summary: "until olga has seen the email".to_owned(),
        expire_after: span(3_600, 0),
        replace: false,
    }
}

/// The same for another objective of the same transcript, and for another revision of the same objective.
pub fn opening_for(objective: &str, revision: u64) -> OpenWaitRequest {
    let objective = Some(Objective { transcript: "t1".to_owned(), id: objective.to_owned(), revision });
    OpenWaitRequest { objective, ..opening() }
}

/// The email for that objective and revision.
pub fn email_for(objective: &str, revision: u64) -> Invocation {
    Invocation { objective: opening_for(objective, revision).objective, ..email() }
}

/// What resumes a wait as its agent has seen it.
pub fn resuming(wait: &Wait, attempt: &str) -> ResumeWaitRequest {
    ResumeWaitRequest {
        wait_id: wait.id.clone(),
        principal: wait.principal.clone(),
        agent: wait.agent.clone(),
        transcript: wait.objective.as_ref().unwrap().transcript.clone(),
        version: wait.version,
        attempt_id: attempt.to_owned(),
    }
}

impl Sidecar {
    pub async fn open_wait(&self, request: OpenWaitRequest) -> Result<OpenWaitResponse, Status> {
        self.agent().open_wait(request).await.map(tonic::Response::into_inner)
    }

    /// The wait of [`opening`], new or not.
    pub async fn waiting(&self) -> Wait {
        self.open_wait(opening()).await.unwrap().wait.unwrap()
    }

    pub async fn get_wait_as(&self, caller: &str, wait: &Wait) -> Result<Wait, Status> {
        let request =
            GetWaitRequest { principal: wait.principal.clone(), agent: wait.agent.clone(), wait_id: wait.id.clone() };
        Ok(self.agent_as(caller).get_wait(request).await?.into_inner().wait.unwrap())
    }

    /// The wait as its agent reads it now.
    pub async fn get_wait(&self, wait: &Wait) -> Wait {
        self.get_wait_as("runtime", wait).await.unwrap()
    }

    pub async fn resume_wait(&self, wait: &Wait, attempt: &str) -> Result<ResumeWaitResponse, Status> {
        self.agent().resume_wait(resuming(wait, attempt)).await.map(tonic::Response::into_inner)
    }

    /// Resumes a wait in which nothing is pending.
    pub async fn resumed(&self, wait: &Wait) -> Wait {
        self.resume_wait(wait, &new_attempt()).await.unwrap().wait.unwrap()
    }

    pub async fn close_wait_as(&self, caller: &str, wait: &Wait) -> Result<Wait, Status> {
        let request = CloseWaitRequest {
            principal: wait.principal.clone(),
            agent: wait.agent.clone(),
            wait_id: wait.id.clone(),
            reason: "the user left".to_owned(),
        };
        Ok(self.agent_as(caller).close_wait(request).await?.into_inner().wait.unwrap())
    }

    pub async fn close_wait(&self, wait: &Wait) -> Result<Wait, Status> {
        self.close_wait_as("runtime", wait).await
    }

    pub async fn request_in(&self, wait: &Wait, invocation: Invocation) -> Result<RequestApprovalResponse, Status> {
        self.request_as("runtime", RequestApprovalRequest { wait_id: wait.id.clone(), ..asking(invocation) }).await
    }

    /// Asks in a wait, and expects an approval with its token.
    pub async fn ask_in(&self, wait: &Wait, invocation: Invocation) -> (Approval, String) {
        let answer = self.request_in(wait, invocation).await.unwrap();
        (answer.approval.unwrap(), answer.consume_token)
    }

    /// Asks in a wait, and has the owner approve.
    pub async fn approved_in(&self, wait: &Wait, invocation: Invocation) -> (Approval, String) {
        let (approval, token) = self.ask_in(wait, invocation).await;
        (self.decide("olga", &approval.id, Verdict::Approve).await.unwrap(), token)
    }

    /// The audit of one wait and what was asked in it, oldest first.
    pub async fn audit_of_wait(&self, wait: &Wait) -> Vec<AuditRecord> {
        let request = ListAuditRecordsRequest { wait_id: wait.id.clone(), page_size: 1_000, ..Default::default() };
        let mut records = self.operator().list_audit_records(request).await.unwrap().into_inner().records;
        records.reverse();
        records
    }

    /// The same, as kinds.
    pub async fn kinds_of_wait(&self, wait: &Wait) -> Vec<String> {
        self.audit_of_wait(wait).await.into_iter().map(|record| record.kind).collect()
    }
}
