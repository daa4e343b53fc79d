//! Taking back: people revoke what they approved, the agent's side cancels what it asked.

use crate::grpc::decide::{APPROVE, BANK, DENY, not_found, payment};
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use tonic::Code;

#[tokio::test]
async fn revoking_is_for_approvers_and_the_owner_of_what_is_approved_and_unused() {
    let sidecar = Sidecar::under(BANK).await;
    for revoker in ["dana", "eve", "finn", "olga"] {
        let invocation = payment("PAIR", "olga", revoker);
        let (approval, token) = sidecar.ask(invocation.clone()).await;
        refused(sidecar.take_back(revoker, &approval.id).await, Code::FailedPrecondition, "APPROVAL_PENDING");
        sidecar.decide("dana", &approval.id, APPROVE).await.unwrap();
        sidecar.decide("eve", &approval.id, APPROVE).await.unwrap();
        for stranger in ["sam", "kim", "runtime"] {
            not_found(sidecar.take_back(stranger, &approval.id).await);
        }
        let revoked = sidecar.take_back(revoker, &approval.id).await.unwrap();
        assert_eq!((revoked.state(), revoked.state_reason.as_str()), (ApprovalState::Revoked, "second thoughts"));
        assert!(revoked.use_by.is_some() && revoked.decide_time.is_some(), "that it was approved is not forgotten");
        assert_eq!((revoked.closed_by.as_str(), revoked.close_time.is_some()), (revoker, true));
        for again in ["dana", "olga"] {
            let again_by = sidecar.take_back(again, &approval.id).await;
            if again == revoker {
                assert_eq!(again_by.unwrap(), revoked);
            } else {
                let status = refused(again_by, Code::FailedPrecondition, "APPROVAL_REVOKED");
                assert_eq!(told(&status, "state_by"), revoker, "who comes second is told who was first");
            }
        }
        refused(sidecar.consume(&token, invocation).await, Code::FailedPrecondition, "APPROVAL_REVOKED");
        refused(sidecar.cancel_as("runtime", &approval).await, Code::FailedPrecondition, "APPROVAL_REVOKED");
    }
    let invocation = payment("OWN", "olga", "used");
    let (approval, token) = sidecar.approved(invocation.clone()).await;
    sidecar.consume(&token, invocation).await.unwrap();
    refused(sidecar.take_back("olga", &approval.id).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    for (ending, why) in [("denied", "APPROVAL_DENIED"), ("cancelled", "APPROVAL_CANCELLED")] {
        let (approval, _) = sidecar.ask(payment("OWN", "olga", ending)).await;
        match ending {
            "denied" => sidecar.decide("olga", &approval.id, DENY).await.unwrap(),
            _ => sidecar.cancel_as("runtime", &approval).await.unwrap(),
        };
        refused(sidecar.take_back("olga", &approval.id).await, Code::FailedPrecondition, why);
    }
}

#[tokio::test]
async fn cancelling_is_for_any_caller_of_the_same_agent_and_principal_until_it_is_final() {
    let sidecar = Sidecar::start().await;
    let of_tenant =
        |conversation: &str| Invocation { principal: "tenant-a".to_owned(), ..in_conversation(conversation) };
    for approve in [false, true] {
        let invocation = of_tenant(&format!("approved: {approve}"));
        let (approval, token) = sidecar.ask(invocation.clone()).await;
        if approve {
            sidecar.decide("tenant-a", &approval.id, APPROVE).await.unwrap();
        }
        not_found(sidecar.cancel_as("tenant-b", &approval).await);
        not_found(sidecar.cancel_as("nobody", &approval).await);
        let cancelled = sidecar.cancel_as("tenant-a", &approval).await.unwrap();
        assert_eq!(cancelled.state(), ApprovalState::Cancelled);
        assert_eq!(cancelled.state_reason, "no longer needed");
        assert_eq!(cancelled.use_by.is_some(), approve);
        assert_eq!(sidecar.cancel_as("tenant-a", &approval).await.unwrap(), cancelled);
        assert_eq!(cancelled.closed_by, "tenant-a");
        let second = sidecar.cancel_as("runtime", &approval).await;
        let second = refused(second, Code::FailedPrecondition, "APPROVAL_CANCELLED");
        assert_eq!(told(&second, "state_by"), "tenant-a", "who comes second is told who was first");
        refused(sidecar.consume(&token, invocation).await, Code::FailedPrecondition, "APPROVAL_CANCELLED");
        let late = sidecar.decide("tenant-a", &approval.id, DENY).await;
        let status = refused(late, Code::FailedPrecondition, "APPROVAL_CANCELLED");
        assert_eq!(told(&status, "state_by"), "tenant-a");
    }
    let (denied, _) = sidecar.ask(in_conversation("denied")).await;
    sidecar.decide("olga", &denied.id, DENY).await.unwrap();
    refused(sidecar.cancel_as("runtime", &denied).await, Code::FailedPrecondition, "APPROVAL_DENIED");
    let (used, token) = sidecar.approved(in_conversation("used")).await;
    sidecar.consume(&token, in_conversation("used")).await.unwrap();
    refused(sidecar.cancel_as("runtime", &used).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
}
