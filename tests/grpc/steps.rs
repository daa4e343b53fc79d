//! Steps that several tests share, and the check that an approval has one history.

use crate::grpc::harness::*;
use countersign::proto::*;
use prost_types::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Code, Status};

/// A time as microseconds since the Unix epoch.
pub fn micros(time: Option<Timestamp>) -> i64 {
    let time = time.unwrap();
    time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000
}

/// The same call in another conversation: another question with the same fingerprint.
pub fn in_conversation(name: impl ToString, invocation: Invocation) -> Invocation {
    Invocation { conversation: name.to_string(), ..invocation }
}

/// The code that goes with a reason of the gate.
pub fn code_of(why: &str) -> Code {
    match why {
        "POLICY_DENIED" | "CALLER_OUT_OF_BOUNDS" => Code::PermissionDenied,
        "EXECUTION_NOT_FOUND" => Code::NotFound,
        _ => Code::FailedPrecondition,
    }
}

/// All that a caller learns from a refusal.
pub fn learnt(status: &Status) -> (Code, String, Vec<u8>) {
    (status.code(), status.message().to_owned(), status.details().to_vec())
}

impl Sidecar {
    /// The store's time, in microseconds.
    pub fn now(&self) -> i64 {
        self.running().engine().store().estimated_time().micros()
    }

    /// Lets time pass until `offset` microseconds from `time`.
    pub fn move_to(&self, time: Option<Timestamp>, offset: i64) {
        let span = micros(time) + offset - self.now();
        self.advance(Duration::from_micros(u64::try_from(span).unwrap()));
    }

    /// The approval as its agent sees it now.
    pub async fn get(&self, approval: &Approval) -> Approval {
        let request = AgentServiceGetApprovalRequest {
            principal: approval.principal.clone(),
            agent: approval.agent.clone(),
            approval_id: approval.id.clone(),
        };
        self.agent().get_approval(request).await.unwrap().into_inner().approval.unwrap()
    }

    pub async fn attempt_as(
        &self,
        caller: &str,
        token: &str,
        attempt: &str,
        invocation: Invocation,
    ) -> Result<ConsumeResponse, Status> {
        let request = attempted(token, attempt, invocation);
        self.agent_as(caller).consume(request).await.map(tonic::Response::into_inner)
    }

    /// Passes the gate without a token, and hands out the permit.
    pub async fn started(&self, invocation: Invocation) -> Permit {
        self.consume("", invocation).await.unwrap().permit.unwrap()
    }

    /// Passes the gate without a token, as a retry.
    pub async fn retry(&self, execution: &str, invocation: Invocation) -> Result<Permit, Status> {
        let request = ConsumeRequest { retry_of: execution.to_owned(), ..attempted("", &new_attempt(), invocation) };
        Ok(self.agent().consume(request).await?.into_inner().permit.unwrap())
    }

    /// Asks to do again what `execution` did.
    pub async fn ask_to_retry(
        &self,
        execution: &str,
        invocation: Invocation,
    ) -> Result<RequestApprovalResponse, Status> {
        let request = RequestApprovalRequest {
            invocation: Some(invocation),
            retry_of: execution.to_owned(),
            ..RequestApprovalRequest::default()
        };
        self.agent().request_approval(request).await.map(tonic::Response::into_inner)
    }

    /// Says what became of an execution of `olga`'s assistant.
    pub async fn report(&self, execution: &str, outcome: Outcome, detail: &str) -> Result<Execution, Status> {
        let request = ReportOutcomeRequest { detail: detail.to_owned(), ..reported(execution, outcome) };
        Ok(self.agent().report_outcome(request).await?.into_inner().execution.unwrap())
    }

    pub async fn cancel(&self, approval: &Approval) -> Result<Approval, Status> {
        let request = CancelApprovalRequest {
            principal: approval.principal.clone(),
            agent: approval.agent.clone(),
            approval_id: approval.id.clone(),
            reason: "no longer wanted".to_owned(),
        };
        Ok(self.agent().cancel_approval(request).await?.into_inner().approval.unwrap())
    }

    pub async fn revoke(&self, person: &str, approval: &Approval) -> Result<Approval, Status> {
        let request = RevokeApprovalRequest {
            approval_id: approval.id.clone(),
            principal: person.to_owned(),
            reason: "changed my mind".to_owned(),
        };
        Ok(self.approver().revoke_approval(request).await?.into_inner().approval.unwrap())
    }

    /// Every approval that the person sees, newest first.
    pub async fn list(&self, person: &str) -> Vec<Approval> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListApprovalsRequest {
                principal: person.to_owned(),
                page_size: 100,
                page_token,
                ..ListApprovalsRequest::default()
            };
            let page = self.approver().list_approvals(request).await.unwrap().into_inner();
            all.extend(page.approvals);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }

    /// How many audit records there are of this kind.
    pub async fn count(&self, kind: &str) -> usize {
        self.counts().await.get(kind).copied().unwrap_or_default()
    }

    /// How many audit records there are of each kind.
    pub async fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let mut page_token = String::new();
        loop {
            let request = ListAuditRecordsRequest { page_size: 1_000, page_token, ..Default::default() };
            let page = self.operator().list_audit_records(request).await.unwrap().into_inner();
            for record in page.records {
                *counts.entry(record.kind).or_default() += 1;
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return counts;
            }
        }
    }

    /// Replays the audit of an approval, checks that it is one possible history which ends where the approval stands, and
    /// returns its state.
    pub async fn one_history(&self, approval: &Approval) -> ApprovalState {
        let records = self.audit_of(&approval.id).await;
        let kinds: Vec<&str> = records.iter().map(|record| record.kind.as_str()).collect();
        let mut state = ApprovalState::Unspecified;
        let mut decisions = 0;
        let mut version = 1;
        for kind in &kinds {
            use ApprovalState::*;
            let (next, grows) = match (*kind, state) {
                ("approval.requested", Unspecified) => (Pending, 0),
                ("approval.decided", Pending) => {
                    decisions += 1;
                    (Pending, 1)
                }
                // What completes a decision is of the same change as the decision.
                ("approval.approved", Pending) => (Approved, 0),
                ("approval.denied", Pending) => (Denied, 0),
                ("approval.cancelled", Pending | Approved) => (Cancelled, 1),
                ("approval.revoked", Approved) => (Revoked, 1),
                ("approval.expired", Pending | Approved) => (Expired, 1),
                ("approval.consumed", Approved) => (Consumed, 1),
                (
                    "consume.refused" | "consume.replayed" | "decide.refused" | "cancel.refused" | "report.refused"
                    | "request.refused",
                    _,
                ) => (state, 0),
                ("execution.reported" | "execution.timed_out", Consumed) => (state, 0),
                (kind, _) => panic!("{kind} of what is {state:?}: {kinds:?}"),
            };
            state = next;
            version += grows;
        }
        let stands = self.get(approval).await;
        assert_eq!((stands.state(), stands.version, stands.decisions.len()), (state, version, decisions), "{kinds:?}");
        assert_eq!(stands.execution_id.is_empty(), state != ApprovalState::Consumed);
        state
    }
}

/// A call of the gate.
pub fn attempted(token: &str, attempt: &str, invocation: Invocation) -> ConsumeRequest {
    ConsumeRequest {
        consume_token: token.to_owned(),
        attempt_id: attempt.to_owned(),
        invocation: Some(invocation),
        retry_of: String::new(),
    }
}

/// A report on an execution of `olga`'s assistant.
pub fn reported(execution: &str, outcome: Outcome) -> ReportOutcomeRequest {
    ReportOutcomeRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        execution_id: execution.to_owned(),
        outcome: outcome.into(),
        ..ReportOutcomeRequest::default()
    }
}
