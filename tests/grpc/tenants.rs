//! Two tenants of one sidecar: neither sees, uses or can even tell that there is anything of the other's.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use tonic::{Code, Status};

fn invocation_of(principal: &str) -> Invocation {
    Invocation { principal: principal.to_owned(), ..email() }
}

/// An id that nothing has.
pub fn nothing() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Both were refused, and no client could tell which was which.
#[track_caller]
pub fn alike<T: std::fmt::Debug>(one: Result<T, Status>, other: Result<T, Status>, why: &str) {
    let (one, other) = (one.expect_err(why), other.expect_err(why));
    assert_eq!(reason(&one), why);
    assert_eq!(all_of(&one), all_of(&other));
}

/// What a caller gets that names an approval, and an execution, under another principal or agent than theirs.
async fn is_absent_for(sidecar: &Sidecar, caller: &str, principal: &str, agent: &str, approval: &str, execution: &str) {
    let of =
        |id: String| Approval { id, principal: principal.to_owned(), agent: agent.to_owned(), ..Default::default() };
    let (theirs, none) = (of(approval.to_owned()), of(nothing()));
    alike(sidecar.read_as(caller, &theirs).await, sidecar.read_as(caller, &none).await, "APPROVAL_NOT_FOUND");
    alike(sidecar.cancel_as(caller, &theirs).await, sidecar.cancel_as(caller, &none).await, "APPROVAL_NOT_FOUND");
    let report = |execution_id: String| ReportOutcomeRequest {
        principal: principal.to_owned(),
        agent: agent.to_owned(),
        execution_id,
        outcome: Outcome::Succeeded.into(),
        ..Default::default()
    };
    let mut client = sidecar.agent_as(caller);
    alike(
        client.report_outcome(report(execution.to_owned())).await,
        client.report_outcome(report(nothing())).await,
        "EXECUTION_NOT_FOUND",
    );
}

#[tokio::test]
async fn principals_behind_one_credential_do_not_see_each_other() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    let used = Invocation { conversation: "used".to_owned(), ..email() };
    let (_, used_token) = sidecar.approved(used.clone()).await;
    let execution = sidecar.attempt(&used_token, &attempt, used).await.unwrap().permit.unwrap().execution_id;
    let before = sidecar.audit_of(&approval.id).await.len();
    is_absent_for(&sidecar, "runtime", "pia", "assistant", &approval.id, &execution).await;
    is_absent_for(&sidecar, "runtime", "olga", "other-1", &approval.id, &execution).await;
    is_absent_for(&sidecar, "runtime", "assistant", "olga", &approval.id, &execution).await;
    assert_eq!(sidecar.audit_of(&approval.id).await.len(), before, "nothing of it touched the record");

    // The same question of the other is another question, with a token of its own.
    let (of_pia, token_of_pia) = sidecar.ask(invocation_of("pia")).await;
    assert_ne!((&of_pia.id, &token_of_pia), (&approval.id, &token));
    assert_eq!(of_pia.fingerprint, approval.fingerprint);
    // The gate knows whose it is, both being within this caller's bounds.
    let mixed = sidecar.consume(&token, invocation_of("pia")).await;
    refused(mixed, Code::FailedPrecondition, "PRINCIPAL_MISMATCH");
    let mixed = sidecar.consume(&token_of_pia, email()).await;
    refused(mixed, Code::FailedPrecondition, "PRINCIPAL_MISMATCH");

    // Ids that agents make are each one's own.
    let fetched = sidecar.attempt("", &attempt, Invocation { principal: "pia".to_owned(), ..fetch() }).await.unwrap();
    assert!(!fetched.replayed);
    assert_ne!(fetched.permit.unwrap().execution_id, execution);
    let with_id = |principal: &str| RequestApprovalRequest {
        request_id: "request-1".to_owned(),
        invocation: Some(Invocation { conversation: "ids".to_owned(), ..invocation_of(principal) }),
        ..Default::default()
    };
    let one = sidecar.request_as("runtime", with_id("olga")).await.unwrap().approval.unwrap();
    let other = sidecar.request_as("runtime", with_id("pia")).await.unwrap();
    assert!(!other.existing);
    assert_ne!(other.approval.unwrap().id, one.id);

    // What another did cannot be retried.
    let retry = |retry_of: String| RequestApprovalRequest {
        invocation: Some(invocation_of("pia")),
        retry_of,
        ..Default::default()
    };
    alike(
        sidecar.request_as("runtime", retry(execution.clone())).await,
        sidecar.request_as("runtime", retry(nothing())).await,
        "EXECUTION_NOT_FOUND",
    );
    let retry = |retry_of: String| ConsumeRequest {
        attempt_id: new_attempt(),
        invocation: Some(Invocation { principal: "pia".to_owned(), ..fetch() }),
        retry_of,
        ..Default::default()
    };
    let mut agent = sidecar.agent();
    alike(agent.consume(retry(execution)).await, agent.consume(retry(nothing())).await, "EXECUTION_NOT_FOUND");
    assert_eq!(sidecar.read(&approval).await, approval);
}

#[tokio::test]
async fn a_tenants_caller_cannot_tell_anothers_records_from_nothing() {
    let sidecar = Sidecar::start().await;
    let of_a = invocation_of("tenant-a");
    let asked =
        |invocation: &Invocation| RequestApprovalRequest { invocation: Some(invocation.clone()), ..Default::default() };
    let mine = sidecar.request_as("tenant-a", asked(&of_a)).await.unwrap();
    let (approval, token) = (mine.approval.unwrap(), mine.consume_token);
    sidecar.decide("tenant-a", &approval.id, Verdict::Approve).await.unwrap();
    let consume = |token: &str, invocation: &Invocation| ConsumeRequest {
        consume_token: token.to_owned(),
        attempt_id: new_attempt(),
        invocation: Some(invocation.clone()),
        ..Default::default()
    };
    let fetch_of_a = Invocation { principal: "tenant-a".to_owned(), ..fetch() };
    let permit = sidecar.agent_as("tenant-a").consume(consume("", &fetch_of_a)).await.unwrap().into_inner().permit;
    let execution = permit.unwrap().execution_id;

    for (principal, agent) in [("tenant-a", "assistant"), ("tenant-b", "assistant"), ("tenant-b", "other-1")] {
        is_absent_for(&sidecar, "tenant-b", principal, agent, &approval.id, &execution).await;
    }
    is_absent_for(&sidecar, "nobody", "tenant-a", "assistant", &approval.id, &execution).await;
    // Their own caller sees it, so that what is absent above is there.
    assert_eq!(sidecar.read_as("tenant-a", &approval).await.unwrap().state(), ApprovalState::Approved);

    // A token of another tenant's, one of nothing, and one that is none are one and the same.
    let mut tenant_b = sidecar.agent_as("tenant-b");
    let of_b = invocation_of("tenant-b");
    let of_nothing = token.replace(&approval.id, &nothing());
    let with_theirs = tenant_b.consume(consume(&token, &of_b)).await;
    alike(with_theirs, tenant_b.consume(consume(&of_nothing, &of_b)).await, "TOKEN_INVALID");
    alike(tenant_b.consume(consume(&token, &of_b)).await, tenant_b.consume(consume("x", &of_b)).await, "TOKEN_INVALID");
    assert_eq!(sidecar.read_as("tenant-a", &approval).await.unwrap().state(), ApprovalState::Approved);

    // Acting for another is refused before anything is looked up.
    let before = sidecar.audit().await.len();
    for principal in ["tenant-a", "tenant-c", "tenant-b ext"] {
        let foreign = invocation_of(principal);
        let evaluate = EvaluateRequest { invocation: Some(foreign.clone()), explain: true };
        refused(tenant_b.evaluate(evaluate).await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
        let asked = sidecar.request_as("tenant-b", asked(&foreign)).await;
        refused(asked, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
        let consumed = tenant_b.consume(consume(&token, &foreign)).await;
        refused(consumed, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
        let consumed = tenant_b.consume(consume("", &foreign)).await;
        refused(consumed, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    }
    let other_agent = Invocation { agent: "other-1".to_owned(), ..invocation_of("tenant-b") };
    refused(sidecar.request_as("tenant-b", asked(&other_agent)).await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    assert_eq!(sidecar.audit().await.len(), before);

    let permit = sidecar.agent_as("tenant-a").consume(consume(&token, &of_a)).await.unwrap().into_inner();
    assert_eq!(permit.permit.unwrap().approval_id, approval.id);
}

#[tokio::test]
async fn a_person_cannot_tell_anothers_approval_from_nothing() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(email()).await;
    let none = nothing();
    for person in ["pia", "dana", "assistant", "work-mailbox-a", "Olga", "olga\u{301}", "owner"] {
        let not_found = "APPROVAL_NOT_FOUND";
        alike(sidecar.seen_by(person, &approval.id).await, sidecar.seen_by(person, &none).await, not_found);
        for verdict in [Verdict::Approve, Verdict::Deny] {
            let theirs = sidecar.decide(person, &approval.id, verdict).await;
            alike(theirs, sidecar.decide(person, &none, verdict).await, not_found);
        }
        alike(sidecar.take_back(person, &approval.id).await, sidecar.take_back(person, &none).await, not_found);
        assert!(sidecar.listed(person, &[]).await.is_empty());
    }
    assert_eq!(sidecar.seen_by("olga", &approval.id).await.unwrap(), approval);
    assert_eq!(sidecar.audit().await.len(), 1);
}
