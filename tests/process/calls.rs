//! The calls of one agent and its person, and what a client knows of each.

use super::Clients;
use countersign::proto::*;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

pub const PRINCIPAL: &str = "olga";
pub const AGENT: &str = "assistant";

/// What a client knows of something that it tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<T> {
    /// It was not tried.
    NotTried,
    /// It was tried, and no answer came: it may have been done or not.
    Nothing,
    /// It was refused, for this reason.
    Refused(String),
    /// It was done.
    Done(T),
}

impl<T> Told<T> {
    /// What this answer tells.
    pub fn of(answer: Result<T, Status>) -> Self {
        match answer {
            Ok(value) => Self::Done(value),
            Err(status) => match status.get_details_error_info() {
                // None of these says whether it was done: the process went away, or the store did under it.
                Some(info) if !matches!(status.code(), Code::Unavailable | Code::Internal | Code::DeadlineExceeded) => {
                    Self::Refused(info.reason)
                }
                _ => Self::Nothing,
            },
        }
    }

    /// What was done, where it was.
    pub fn done(&self) -> Option<&T> {
        match self {
            Self::Done(value) => Some(value),
            Self::NotTried | Self::Nothing | Self::Refused(_) => None,
        }
    }
}

/// An invocation of its own conversation, with arguments of its own.
pub fn invocation(conversation: &str, number: usize) -> Invocation {
    Invocation {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        arguments_json: format!("{{\"to\":\"kim@acme.com\",\"number\":{number}}}"),
        conversation: conversation.to_owned(),
        connector: "gmail".to_owned(),
        account: "work-mailbox-a".to_owned(),
        action: "GMAIL_SEND_EMAIL".to_owned(),
        ..Invocation::default()
    }
}

/// What a wait of this conversation is for.
pub fn objective(conversation: &str) -> Objective {
    Objective { transcript: conversation.to_owned(), id: "input-1".to_owned(), revision: 1 }
}

/// The id of the approval, and its token.
pub async fn ask(clients: &Clients, request_id: &str, invocation: &Invocation) -> Result<(String, String), Status> {
    let answer = ask_in(clients, request_id, invocation, "").await?;
    Ok((answer.approval.unwrap().id, answer.consume_token))
}

/// Asks in a wait, where one is named.
pub async fn ask_in(
    clients: &Clients,
    request_id: &str,
    invocation: &Invocation,
    wait: &str,
) -> Result<RequestApprovalResponse, Status> {
    let request = RequestApprovalRequest {
        wait_id: wait.to_owned(),
        request_id: request_id.to_owned(),
        invocation: Some(invocation.clone()),
        ..RequestApprovalRequest::default()
    };
    Ok(clients.agent.clone().request_approval(request).await?.into_inner())
}

pub async fn get(clients: &Clients, id: &str) -> Result<Approval, Status> {
    let request = AgentServiceGetApprovalRequest {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        approval_id: id.to_owned(),
    };
    Ok(clients.agent.clone().get_approval(request).await?.into_inner().approval.unwrap())
}

pub async fn open_wait(clients: &Clients, invocation: &Invocation) -> Result<String, Status> {
    let request = OpenWaitRequest {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        conversation: invocation.conversation.clone(),
        objective: invocation.objective.clone(),
        summary: "a mail is to be confirmed".to_owned(),
        ..OpenWaitRequest::default()
    };
    Ok(clients.agent.clone().open_wait(request).await?.into_inner().wait.unwrap().id)
}

pub async fn get_wait(clients: &Clients, id: &str) -> Result<Wait, Status> {
    let request = GetWaitRequest { principal: PRINCIPAL.to_owned(), agent: AGENT.to_owned(), wait_id: id.to_owned() };
    Ok(clients.agent.clone().get_wait(request).await?.into_inner().wait.unwrap())
}

/// Goes on after the wait, in its own transcript.
pub async fn resume_wait(
    clients: &Clients,
    id: &str,
    version: u64,
    transcript: &str,
    attempt: &str,
) -> Result<Wait, Status> {
    let request = ResumeWaitRequest {
        wait_id: id.to_owned(),
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        transcript: transcript.to_owned(),
        version,
        attempt_id: attempt.to_owned(),
    };
    Ok(clients.agent.clone().resume_wait(request).await?.into_inner().wait.unwrap())
}

pub async fn close_wait(clients: &Clients, id: &str) -> Result<Wait, Status> {
    let request = CloseWaitRequest {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        wait_id: id.to_owned(),
        reason: "no longer needed".to_owned(),
    };
    Ok(clients.agent.clone().close_wait(request).await?.into_inner().wait.unwrap())
}

pub async fn decide(clients: &Clients, id: &str, verdict: Verdict) -> Result<Approval, Status> {
    let request = DecideRequest {
        approval_id: id.to_owned(),
        principal: PRINCIPAL.to_owned(),
        verdict: verdict.into(),
        ..DecideRequest::default()
    };
    Ok(clients.approver.clone().decide(request).await?.into_inner().approval.unwrap())
}

pub async fn consume(clients: &Clients, token: &str, attempt: &str, invocation: &Invocation) -> Result<Permit, Status> {
    let request = ConsumeRequest {
        consume_token: token.to_owned(),
        attempt_id: attempt.to_owned(),
        invocation: Some(invocation.clone()),
        retry_of: String::new(),
    };
    Ok(clients.agent.clone().consume(request).await?.into_inner().permit.unwrap())
}

pub async fn cancel(clients: &Clients, id: &str) -> Result<Approval, Status> {
    let request = CancelApprovalRequest {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        approval_id: id.to_owned(),
        reason: "no longer wanted".to_owned(),
    };
    Ok(clients.agent.clone().cancel_approval(request).await?.into_inner().approval.unwrap())
}

pub async fn revoke(clients: &Clients, id: &str) -> Result<Approval, Status> {
    let request = RevokeApprovalRequest {
        approval_id: id.to_owned(),
        principal: PRINCIPAL.to_owned(),
        reason: "second thoughts".to_owned(),
    };
    Ok(clients.approver.clone().revoke_approval(request).await?.into_inner().approval.unwrap())
}

pub async fn report(clients: &Clients, execution: &str, outcome: Outcome) -> Result<Execution, Status> {
    let request = ReportOutcomeRequest {
        principal: PRINCIPAL.to_owned(),
        agent: AGENT.to_owned(),
        execution_id: execution.to_owned(),
        outcome: outcome.into(),
        ..ReportOutcomeRequest::default()
    };
    Ok(clients.agent.clone().report_outcome(request).await?.into_inner().execution.unwrap())
}
