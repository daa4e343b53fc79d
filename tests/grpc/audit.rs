//! The audit: everything that happened, who and why, and nothing that is nobody's business.

use crate::backend::kept;
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use crate::secrecy::Listening;
use countersign::domain::audit::{AuditKind, AuditedEvaluations};
use countersign::proto::*;
use countersign::storage::AuditQuery;
use std::collections::BTreeSet;
use std::time::Duration;
use tonic::Code;

/// Makes one of everything that the audit knows, and says what was secret, or only for the eyes of people.
pub async fn everything(sidecar: &Sidecar) -> (Vec<String>, Vec<String>) {
    let arguments =
        r#"{"to":"a@example.com","body":"SENTINEL-IN-THE-BODY","password":"SENTINEL-MASKED","n":"SENTINEL-TAIL"}"#;
    let with =
        |conversation: &str| Invocation { arguments_json: arguments.to_owned(), ..in_conversation(conversation) };
    let mut tokens = Vec::new();
    let ask = |conversation: &str| RequestApprovalRequest {
        invocation: Some(with(conversation)),
        agent_note: "SENTINEL-IN-THE-NOTE".to_owned(),
        ..Default::default()
    };
    for ending in ["consumed", "denied", "cancelled", "revoked", "expired"] {
        let answer = sidecar.request_as("runtime", ask(ending)).await.unwrap();
        let approval = answer.approval.unwrap();
        let verdict = if ending == "denied" { Verdict::Deny } else { Verdict::Approve };
        let decide = DecideRequest {
            approval_id: approval.id.clone(),
            principal: "olga".to_owned(),
            verdict: verdict.into(),
            reason: format!("because it is to be {ending}"),
            ..Default::default()
        };
        sidecar.approver().decide(decide).await.unwrap();
        match ending {
            "consumed" => {
                let permit = sidecar.consume(&answer.consume_token, with(ending)).await.unwrap().permit.unwrap();
                let report = ReportOutcomeRequest {
                    principal: "olga".to_owned(),
                    agent: "assistant".to_owned(),
                    execution_id: permit.execution_id,
                    outcome: Outcome::Failed.into(),
                    remote_reference: "SENTINEL-REFERENCE".to_owned(),
                    error_code: "E-1".to_owned(),
                    detail: "SENTINEL-DETAIL".to_owned(),
                    duration: span(1, 0),
                };
                sidecar.agent().report_outcome(report.clone()).await.unwrap();
                let other = ReportOutcomeRequest { outcome: Outcome::Succeeded.into(), ..report };
                refused(sidecar.agent().report_outcome(other).await, Code::FailedPrecondition, "OUTCOME_FINAL");
            }
            "cancelled" => {
                sidecar.cancel_as("runtime-2", &approval).await.unwrap();
                let again = sidecar.cancel_as("runtime", &approval).await;
                refused(again, Code::FailedPrecondition, "APPROVAL_CANCELLED");
            }
            "revoked" => drop(sidecar.take_back("olga", &approval.id).await.unwrap()),
            "expired" => {
                sidecar.advance(Duration::from_secs(600));
                refused(sidecar.take_back("olga", &approval.id).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
            }
            _ => {}
        }
        tokens.push(answer.consume_token);
    }
    refused(sidecar.consume(&tokens[1], with("denied")).await, Code::FailedPrecondition, "APPROVAL_DENIED");
    refused(sidecar.consume("", with("denied")).await, Code::FailedPrecondition, "APPROVAL_REQUIRED");
    let press = Invocation { arguments_json: r#"{"to":"SENTINEL@press.example"}"#.to_owned(), ..email() };
    refused(sidecar.request(press).await, Code::PermissionDenied, "POLICY_DENIED");
    let read = Invocation { arguments_json: arguments.to_owned(), ..fetch() };
    sidecar.evaluate(read.clone()).await.unwrap();
    let attempt = new_attempt();
    sidecar.attempt("", &attempt, read.clone()).await.unwrap();
    assert!(sidecar.attempt("", &attempt, read).await.unwrap().replayed);
    sidecar.advance(Duration::from_secs(300));
    assert_eq!(sidecar.sweep().await.timed_out, 1);
    let (whole, _) = sidecar.approved(with("arguments")).await;
    sidecar.arguments_for("olga", &whole.id).await.unwrap();
    sidecar.take_back("olga", &whole.id).await.unwrap();
    crate::grpc::sealing::erase(sidecar, &whole.id).await;
    let erased = sidecar.arguments_for("olga", &whole.id).await;
    refused(erased, Code::FailedPrecondition, "ARGUMENTS_ERASED");
    let callers = ["runtime", "runtime-2", "chat", "ops", "dana"].map(token);
    (tokens.into_iter().chain(callers).collect(), vec!["SENTINEL-MASKED".to_owned(), "SENTINEL@press".to_owned()])
}

#[tokio::test]
async fn every_kind_appears_with_its_facts() {
    let sidecar = Sidecar::auditing(AuditedEvaluations::All).await;
    everything(&sidecar).await;
    let waiting = "countersign_evaluation_audit_waiting";
    crate::grpc::metrics::until(&sidecar, "the evaluation is written", |page| page.value(waiting) == 0.0).await;
    let records = sidecar.audit().await;
    let kinds: BTreeSet<&str> = records.iter().map(|record| record.kind.as_str()).collect();
    // Those of waits have a test of their own.
    let all = AuditKind::ALL.iter().map(|kind| kind.as_str());
    assert_eq!(kinds, all.filter(|kind| !kind.starts_with("wait.")).collect());
    let revision = sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner().revision;
    let mut ids = BTreeSet::new();
    let mut last = 0;
    for record in &records {
        assert!(ids.insert(record.id.clone()), "one id, one record");
        assert!(micros(&record.time) >= last, "in the order of the store's time");
        last = micros(&record.time);
        assert_eq!((record.principal.as_str(), record.agent.as_str()), ("olga", "assistant"));
        assert_eq!((record.connector.as_str(), record.account.as_str()), ("gmail", "work-mailbox-a"));
        assert!(record.fingerprint.starts_with("v1:") && record.fingerprint.len() == 67);
        assert_eq!(record.labels, email().labels);
        let of_people = [
            "approval.decided",
            "approval.approved",
            "approval.denied",
            "decide.refused",
            "approval.revoked",
            "arguments.read",
            "arguments.refused",
        ];
        assert_eq!(!record.person.is_empty(), of_people.contains(&record.kind.as_str()), "{}", record.kind);
        let caller = match record.kind.as_str() {
            "approval.expired" | "execution.timed_out" => "",
            "approval.cancelled" => "runtime-2",
            kind if of_people.contains(&kind) => "chat",
            _ => "runtime",
        };
        assert_eq!(record.caller, caller, "{}", record.kind);
        let asks_policy = [
            "approval.requested",
            "request.refused",
            "approval.consumed",
            "execution.started",
            "consume.refused",
            "evaluation.decided",
        ];
        if asks_policy.contains(&record.kind.as_str()) {
            assert_eq!(record.policy_revision, revision, "{}", record.kind);
        }
        let without_approval =
            ["request.refused", "execution.started", "consume.replayed", "execution.timed_out", "evaluation.decided"]
                .contains(&record.kind.as_str())
                || (record.kind == "consume.refused" && record.reason == "APPROVAL_REQUIRED");
        let with_approval = !without_approval;
        assert_eq!(!record.approval_id.is_empty(), with_approval, "{} {}", record.kind, record.reason);
        let with_execution =
            matches!(record.kind.as_str(), "approval.consumed" | "consume.replayed" | "report.refused")
                || record.kind.starts_with("execution.");
        assert_eq!(!record.execution_id.is_empty(), with_execution, "{}", record.kind);
    }
    let facts = |kind: &str| -> BTreeSet<(&str, &str)> {
        let of_kind = records.iter().filter(|record| record.kind == kind);
        of_kind.map(|record| (record.decision.as_str(), record.reason.as_str())).collect()
    };
    assert_eq!(facts("approval.requested"), [("CONFIRMATION_REQUIRED", "CONFIRMATION_BY_MODE")].into());
    let notes = |kind: &str| -> BTreeSet<(&str, &str)> {
        let of_kind = records.iter().filter(|record| record.kind == kind);
        of_kind.map(|record| (record.decision.as_str(), record.note.as_str())).collect()
    };
    // What people say is no reason of ours, whatever it looks like.
    for (kind, decision, note) in [
        ("approval.denied", "DENIED", "because it is to be denied"),
        ("approval.cancelled", "CANCELLED", "no longer needed"),
        ("approval.revoked", "REVOKED", "second thoughts"),
    ] {
        assert_eq!(notes(kind), [(decision, note)].into());
        assert_eq!(facts(kind), [(decision, "")].into());
    }
    assert_eq!(facts("arguments.read"), [("READ", "")].into());
    assert_eq!(facts("arguments.refused"), [("REFUSED", "ARGUMENTS_ERASED")].into());
    assert_eq!(facts("cancel.refused"), [("CANCEL", "APPROVAL_CANCELLED")].into());
    assert_eq!(facts("report.refused"), [("SUCCEEDED", "OUTCOME_FINAL")].into());
    assert_eq!(facts("consume.replayed"), [("ALLOW", "ALLOWED")].into());
    assert_eq!(facts("approval.expired"), [("EXPIRED", "")].into());
    assert_eq!(facts("request.refused"), [("DENY", "DENIED_BY_RULE")].into());
    assert_eq!(facts("decide.refused"), [("REVOKE", "APPROVAL_EXPIRED")].into());
    assert_eq!(facts("execution.started"), [("ALLOW", "ALLOWED")].into());
    assert_eq!(facts("execution.reported"), [("FAILED", "")].into());
    assert_eq!(facts("execution.timed_out"), [("UNKNOWN", "")].into());
    assert_eq!(
        facts("consume.refused"),
        [("CONFIRMATION_REQUIRED", "APPROVAL_DENIED"), ("CONFIRMATION_REQUIRED", "APPROVAL_REQUIRED")].into()
    );
    assert_eq!(facts("approval.consumed"), [("CONFIRMATION_REQUIRED", "CONFIRMATION_BY_MODE")].into());
}

#[tokio::test]
async fn records_join_from_the_question_to_the_outcome() {
    let sidecar = Sidecar::start().await;
    everything(&sidecar).await;
    let records = sidecar.audit().await;
    let consumed = records.iter().find(|record| record.kind == "approval.consumed").unwrap();
    let of = |request: ListAuditRecordsRequest| async {
        let mut found = sidecar.operator().list_audit_records(request).await.unwrap().into_inner().records;
        found.reverse();
        found
    };
    let by_approval =
        of(ListAuditRecordsRequest { approval_id: consumed.approval_id.clone(), ..Default::default() }).await;
    let kinds: Vec<&str> = by_approval.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "approval.requested",
            "approval.decided",
            "approval.approved",
            "approval.consumed",
            "execution.reported",
            "report.refused",
        ]
    );
    assert!(by_approval.iter().all(|record| record.fingerprint == consumed.fingerprint));
    let by_execution =
        of(ListAuditRecordsRequest { execution_id: consumed.execution_id.clone(), ..Default::default() }).await;
    assert_eq!(by_execution, by_approval[3..]);
    let both = ListAuditRecordsRequest {
        approval_id: consumed.approval_id.clone(),
        execution_id: consumed.execution_id.clone(),
        principal: "olga".to_owned(),
        ..Default::default()
    };
    assert_eq!(of(both.clone()).await, by_execution);
    assert!(of(ListAuditRecordsRequest { principal: "pia".to_owned(), ..both }).await.is_empty());
    let by_principal = of(ListAuditRecordsRequest { principal: "olga".to_owned(), ..Default::default() }).await;
    assert_eq!(by_principal, records);
    for nothing in [
        ListAuditRecordsRequest { approval_id: new_attempt(), ..Default::default() },
        ListAuditRecordsRequest { execution_id: consumed.approval_id.clone(), ..Default::default() },
        ListAuditRecordsRequest { principal: "Olga".to_owned(), ..Default::default() },
        ListAuditRecordsRequest { principal: "%".to_owned(), ..Default::default() },
    ] {
        assert!(of(nothing).await.is_empty());
    }
}

#[tokio::test]
async fn pages_are_whole_and_stable_while_records_are_added() {
    let sidecar = Sidecar::start().await;
    everything(&sidecar).await;
    let all = sidecar.audit().await;
    for size in [1, 4, u32::try_from(all.len()).unwrap(), 999] {
        let (mut seen, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListAuditRecordsRequest { page_size: size, page_token, ..Default::default() };
            let page = sidecar.operator().list_audit_records(request).await.unwrap().into_inner();
            assert!(page.records.len() <= size as usize);
            seen.extend(page.records);
            sidecar.consume("", fetch()).await.unwrap();
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let mut mine: Vec<AuditRecord> = seen.into_iter().filter(|record| all.contains(record)).collect();
        mine.reverse();
        assert_eq!(mine, all, "{size} a page");
    }
    // Of another query the token is none.
    let first = ListAuditRecordsRequest { page_size: 1, ..Default::default() };
    let page_token = sidecar.operator().list_audit_records(first).await.unwrap().into_inner().next_page_token;
    for other in [
        ListAuditRecordsRequest { principal: "olga".to_owned(), page_token: page_token.clone(), ..Default::default() },
        ListAuditRecordsRequest { approval_id: new_attempt(), page_token: page_token.clone(), ..Default::default() },
        ListAuditRecordsRequest { execution_id: new_attempt(), page_token, ..Default::default() },
    ] {
        let result = sidecar.operator().list_audit_records(other).await;
        refused(result, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
}

#[tokio::test]
async fn a_page_of_the_audit_is_bounded() {
    let sidecar = Sidecar::start().await;
    sidecar.consume("", fetch()).await.unwrap();
    // A thousand more of the same, in one transaction.
    let store = sidecar.running().engine().store();
    let one = AuditQuery { limit: 1, ..AuditQuery::default() };
    let event = store.audit_records(one).await.unwrap().row.remove(0).event;
    store.record(vec![event; 1_002]).await.unwrap();
    for (size, want) in [(0, 100), (1_000, 1_000), (1_001, 1_000), (u32::MAX, 1_000)] {
        let request = ListAuditRecordsRequest { page_size: size, ..Default::default() };
        let page = sidecar.operator().list_audit_records(request).await.unwrap().into_inner();
        assert_eq!(page.records.len(), want, "{size}");
        assert!(!page.next_page_token.is_empty());
    }
}

/// Every file below a folder, with its bytes.
fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn no_secret_is_kept_or_in_a_log_line_and_no_argument_in_any_record() {
    let listening = Listening::begin();
    let mut sidecar = Sidecar::start().await;
    let (tokens, hidden) = everything(&sidecar).await;
    for record in sidecar.audit().await {
        let all = format!("{record:?}");
        assert!(!all.contains("SENTINEL") && !all.contains("a@example.com"), "{all}");
        for secret in &tokens {
            assert!(!all.contains(secret.as_str()));
        }
    }
    let secret = std::fs::read_to_string(sidecar.folder().join(SECRET)).unwrap();
    let secret = secret.trim();
    assert_eq!(secret.len(), 64);
    let raw: Vec<u8> =
        (0..32).map(|index| u8::from_str_radix(&secret[2 * index..2 * index + 2], 16).unwrap()).collect();
    // Both while it runs, when the log beside the database is full, and after it has stopped.
    for running in [true, false] {
        if !running {
            assert!(sidecar.stop().await);
        }
        let mut looked_at = 0;
        for (name, bytes) in kept(&sidecar).await {
            for token in &tokens {
                assert!(!holds(&bytes, token), "a token in {name}");
                let code = token.rsplit(['.', ' ']).next().unwrap();
                assert!(!holds(&bytes, code), "a token's code in {name}");
            }
            for text in &hidden {
                assert!(!holds(&bytes, text), "{text} in {name}");
            }
            if name != SECRET {
                assert!(
                    !holds(&bytes, secret) && !bytes.windows(32).any(|window| window == raw),
                    "the secret in {name}"
                );
                looked_at += bytes.len();
            }
        }
        assert!(looked_at > 20_000, "{looked_at}");
    }
    // What is to be found is found: the preview is kept in clear, for people.
    let kept = kept(&sidecar).await;
    assert!(kept.iter().any(|(_, bytes)| holds(bytes, "SENTINEL-IN-THE-BODY")));

    let lines = listening.heard();
    assert!(holds(&lines, "serving"), "lines were written");
    for secret in tokens.iter().map(String::as_str).chain([secret, "SENTINEL"]) {
        if holds(&lines, secret) {
            let text = String::from_utf8_lossy(&lines);
            let line = text.lines().find(|line| line.contains(secret)).unwrap_or_default();
            panic!("a log line tells what it must not: {line}");
        }
    }
}

#[tokio::test]
async fn what_a_preview_leaves_out_is_kept_nowhere() {
    let mut sidecar = Sidecar::start().await;
    let long = format!(r#"{{"body":"{}SENTINEL-BEYOND","api_key":"SENTINEL-KEY"}}"#, "x".repeat(100_000));
    let invocation = Invocation { arguments_json: long, ..email() };
    let (_, token) = sidecar.approved(invocation.clone()).await;
    sidecar.consume(&token, invocation).await.unwrap();
    sidecar.stop().await;
    for (name, bytes) in kept(&sidecar).await {
        assert!(!holds(&bytes, "SENTINEL"), "{name}");
    }
}

#[tokio::test]
async fn a_page_of_the_largest_records_is_one_that_clients_take() {
    use prost::Message as _;
    let sidecar = Sidecar::start().await;
    let long = |text: &str| format!("{text}{}", "\u{1F600}".repeat(60));
    let invocation = Invocation {
        principal: long("principal"),
        conversation: long("conversation"),
        account: long("account"),
        labels: (0..16).map(|index| (format!("{index:064}"), "v".repeat(256))).collect(),
        ..fetch()
    };
    sidecar.consume("", invocation).await.unwrap();
    let store = sidecar.running().engine().store();
    let one = AuditQuery { limit: 1, ..AuditQuery::default() };
    let event = store.audit_records(one).await.unwrap().row.remove(0).event;
    store.record(vec![event; 1_000]).await.unwrap();
    let (mut seen, mut page_token) = (0, String::new());
    loop {
        let request = ListAuditRecordsRequest { page_size: 1_000, page_token, ..Default::default() };
        let page = sidecar.operator().list_audit_records(request).await.unwrap().into_inner();
        assert!(page.encoded_len() < 4 * 1024 * 1024, "{}", page.encoded_len());
        assert!(!page.records.is_empty());
        seen += page.records.len();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 1_001);
}
