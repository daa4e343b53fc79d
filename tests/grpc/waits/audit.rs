//! What the audit has of waits.

use super::*;
use countersign::domain::audit::AuditKind;
use std::collections::BTreeSet;
use tonic::Code;

#[tokio::test]
async fn every_kind_appears_with_its_facts_and_none_of_the_agents_words() {
    let sidecar = Sidecar::start().await;
    let say = |request: OpenWaitRequest| OpenWaitRequest { summary: "SENTINEL".to_owned(), ..request };
    let wait = sidecar.open_wait(say(opening())).await.unwrap().wait.unwrap();
    sidecar.open_wait(say(OpenWaitRequest { expire_after: span(7_200, 0), ..opening() })).await.unwrap();
    let (approval, _) = sidecar.ask_in(&wait, email()).await;
    refused(sidecar.resume_wait(&wait, &new_attempt()).await, Code::FailedPrecondition, "WAIT_PENDING");
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    let attempt = new_attempt();
    for _ in 0..2 {
        sidecar.resume_wait(&wait, &attempt).await.unwrap();
    }
    sidecar.open_wait(say(OpenWaitRequest { expire_after: None, ..opening() })).await.unwrap();
    let second = OpenWaitRequest { replace: true, ..say(opening_for("input-2", 1)) };
    let second = sidecar.open_wait(second).await.unwrap().wait.unwrap();
    refused(sidecar.request_in(&second, email()).await, Code::FailedPrecondition, "WAIT_OBJECTIVE_DIFFERS");
    sidecar.close_wait_as("runtime-2", &second).await.unwrap();
    let third = sidecar.open_wait(say(opening())).await.unwrap().wait.unwrap();
    sidecar.stand_at(&third.expire_time, 0);
    refused(sidecar.close_wait(&third).await, Code::FailedPrecondition, "WAIT_EXPIRED");

    let of = |records: Vec<AuditRecord>| -> Vec<(String, String, String, String, String)> {
        let facts = records.into_iter().map(|one| (one.kind, one.caller, one.decision, one.reason, one.note));
        facts.collect()
    };
    let row = |kind: &str, caller: &str, decision: &str, reason: &str, note: &str| {
        (kind.to_owned(), caller.to_owned(), decision.to_owned(), reason.to_owned(), note.to_owned())
    };
    assert_eq!(
        of(sidecar.audit_of_wait(&wait).await),
        [
            row("wait.opened", "runtime", "OPEN", "", ""),
            row("wait.updated", "runtime", "OPEN", "", ""),
            row("approval.requested", "runtime", "CONFIRMATION_REQUIRED", "CONFIRMATION_BY_MODE", ""),
            row("wait.refused", "runtime", "RESUME", "WAIT_PENDING", ""),
            row("approval.decided", "chat", "APPROVE", "", ""),
            row("approval.approved", "chat", "APPROVED", "", ""),
            row("wait.resumed", "runtime", "RESUMED", "", ""),
            row("wait.replayed", "runtime", "RESUMED", "", ""),
            row("wait.reopened", "runtime", "OPEN", "", ""),
            row("wait.replaced", "runtime", "REPLACED", "", ""),
            row("approval.cancelled", "runtime", "CANCELLED", "WAIT_REPLACED", ""),
        ]
    );
    assert_eq!(
        of(sidecar.audit_of_wait(&second).await),
        [
            row("wait.opened", "runtime", "OPEN", "", ""),
            row("request.refused", "runtime", "DENY", "WAIT_OBJECTIVE_DIFFERS", ""),
            row("wait.closed", "runtime-2", "CLOSED", "", "the user left"),
        ]
    );
    assert_eq!(
        of(sidecar.audit_of_wait(&third).await),
        [
            row("wait.opened", "runtime", "OPEN", "", ""),
            row("wait.expired", "", "EXPIRED", "", ""),
            row("wait.refused", "runtime", "CLOSE", "WAIT_EXPIRED", ""),
        ]
    );
    let records = sidecar.audit().await;
    let kinds: BTreeSet<&str> = records.iter().map(|record| record.kind.as_str()).collect();
    for kind in AuditKind::ALL.iter().map(|kind| kind.as_str()).filter(|kind| kind.starts_with("wait.")) {
        assert!(kinds.contains(kind), "{kind}");
    }
    for record in &records {
        assert_eq!((record.principal.as_str(), record.agent.as_str()), ("olga", "assistant"));
        assert_eq!(record.conversation, "conversation-1");
        let of_call = !record.kind.starts_with("wait.");
        let has = [&record.connector, &record.action, &record.fingerprint].map(|text| !text.is_empty());
        assert_eq!(has, [of_call; 3], "{}", record.kind);
        assert!(!record.wait_id.is_empty(), "{}", record.kind);
        assert!(!format!("{record:?}").contains("SENTINEL"));
    }
}

#[tokio::test]
async fn one_waits_records_are_listed_alone_and_by_pages() {
    let sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    let (approval, _) = sidecar.ask_in(&wait, email()).await;
    sidecar.ask(email()).await;
    sidecar.close_wait(&wait).await.unwrap();
    let kinds = ["wait.opened", "approval.requested", "wait.closed", "approval.cancelled"];
    assert_eq!(sidecar.kinds_of_wait(&wait).await, kinds);
    let list = |request: ListAuditRecordsRequest| async {
        sidecar.operator().list_audit_records(request).await.map(tonic::Response::into_inner)
    };
    let mut paged = Vec::new();
    let mut page_token = String::new();
    loop {
        let request =
            ListAuditRecordsRequest { wait_id: wait.id.clone(), page_size: 1, page_token, ..Default::default() };
        let page = list(request).await.unwrap();
        paged.extend(page.records.into_iter().map(|record| record.kind));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
        let other =
            ListAuditRecordsRequest { wait_id: new_attempt(), page_token: page_token.clone(), ..Default::default() };
        refused(list(other).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
    paged.reverse();
    assert_eq!(paged, kinds);
    let both = ListAuditRecordsRequest {
        wait_id: wait.id.clone(),
        approval_id: approval.id.clone(),
        principal: "olga".to_owned(),
        ..Default::default()
    };
    let records = list(both.clone()).await.unwrap().records;
    assert_eq!(
        records.iter().map(|record| &record.kind).collect::<Vec<_>>(),
        ["approval.cancelled", "approval.requested"]
    );
    let nothing = ListAuditRecordsRequest { principal: "pia".to_owned(), ..both };
    assert!(list(nothing).await.unwrap().records.is_empty());
}
