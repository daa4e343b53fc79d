//! What keeps people from being worn out: limits by action and by what was asked of late, a denial that cools off, how long
//! an answer took, and questions at which nobody looks.

use crate::grpc::harness::*;
use crate::grpc::metrics::{scrape, until};
use crate::grpc::moves::*;
use crate::grpc::steps::reported;
use crate::secrecy::Listening;
use countersign::clock::ManualClock;
use countersign::proto::*;
use countersign::storage::{AskedLimit, QuestionLimits};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Under limits that a test says.
async fn limited(limit: impl FnOnce(&mut QuestionLimits)) -> Sidecar {
    let mut sidecar = Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
    sidecar.restart_with(|config| limit(&mut config.question_limits)).await.unwrap();
    sidecar
}

async fn cooling() -> Sidecar {
    limited(|limits| limits.cool_off = Duration::from_secs(300)).await
}

fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

fn deny(approval: &Approval, why: &str) -> DecideRequest {
    DecideRequest {
        approval_id: approval.id.clone(),
        principal: "olga".to_owned(),
        verdict: Verdict::Deny.into(),
        reason: why.to_owned(),
        ..DecideRequest::default()
    }
}

#[tokio::test]
async fn a_denied_question_is_refused_for_a_while_with_who_denied_it_and_why() {
    let sidecar = cooling().await;
    let first = RequestApprovalRequest {
        request_id: "first".to_owned(),
        invocation: Some(email()),
        ..RequestApprovalRequest::default()
    };
    let asked = sidecar.request_as("runtime", first.clone()).await.unwrap().approval.unwrap();
    sidecar.approver().decide(deny(&asked, "not to\u{202e}day")).await.unwrap();
    sidecar.advance(Duration::from_secs(100));

    let status = refused(sidecar.request(email()).await, Code::FailedPrecondition, "COOLING_OFF");
    assert_eq!(told(&status, "approval_id"), asked.id);
    assert_eq!((told(&status, "decided_by"), told(&status, "verdict")), ("olga".to_owned(), "DENY".to_owned()));
    assert_eq!(told(&status, "denial_reason"), "not to\\u{202E}day", "nothing of it hides or reorders");
    assert_eq!(told(&status, "until"), "2026-01-01T00:05:00.000000Z");
    assert_eq!(
        (told(&status, "retry_after"), retry_after(&status)),
        ("3m20s".to_owned(), Some(Duration::from_secs(200)))
    );
    assert!(status.message().contains("olga") && status.message().contains("2026-01-01T00:05:00"), "{status:?}");
    assert!(status.get_details_precondition_failure().is_some());

    // However else it is put, and whoever asks.
    for (how, request) in [
        ("request_id", RequestApprovalRequest { request_id: "second".to_owned(), ..first.clone() }),
        ("note", RequestApprovalRequest { agent_note: "please, it is urgent".to_owned(), ..asking(email()) }),
        ("time", RequestApprovalRequest { decide_within: span(7, 0), ..asking(email()) }),
        ("connection", asking(Invocation { connection: "connection-2".to_owned(), ..email() })),
        ("definition", asking(Invocation { tool_definition_digest: format!("td1:{}", "a".repeat(64)), ..email() })),
        ("labels", asking(Invocation { labels: [("x".to_owned(), "y".to_owned())].into(), ..email() })),
        (
            "spelling",
            asking(Invocation {
                arguments_json: r#"{ "body" : "\u0048ello", "to" : "a@example.com" }"#.to_owned(),
                ..email()
            }),
        ),
    ] {
        for caller in ["runtime", "runtime-2"] {
            let status =
                refused(sidecar.request_as(caller, request.clone()).await, Code::FailedPrecondition, "COOLING_OFF");
            assert_eq!(told(&status, "approval_id"), asked.id, "{how} by {caller}");
        }
    }
    let first = sidecar.request_as("runtime", first).await.unwrap();
    assert!(first.existing, "whoever asks for the first answer gets it");
    assert_eq!(first.approval.unwrap().state(), ApprovalState::Denied);
    sidecar.ask(Invocation { arguments_json: r#"{"to":"a@example.com","body":"Hello!"}"#.to_owned(), ..email() }).await;

    let refusals: Vec<AuditRecord> =
        sidecar.audit_of(&asked.id).await.into_iter().filter(|record| record.kind == "request.refused").collect();
    assert_eq!(refusals.len(), 15);
    for record in refusals {
        assert_eq!((record.reason.as_str(), record.principal.as_str()), ("COOLING_OFF", "olga"));
    }
}

#[tokio::test]
async fn a_denial_cools_off_at_its_exact_moment_and_over_a_restart() {
    let mut sidecar = cooling().await;
    let (asked, _) = sidecar.ask(email()).await;
    sidecar.advance(Duration::from_micros(7));
    let denied = sidecar.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
    sidecar.advance(Duration::from_secs(300) - Duration::from_micros(1));
    let status = refused(sidecar.request(email()).await, Code::FailedPrecondition, "COOLING_OFF");
    assert_eq!((retry_after(&status), told(&status, "retry_after").as_str()), (Some(Duration::from_micros(1)), "1ms"));
    sidecar.restart_with(|config| config.question_limits.cool_off = Duration::from_secs(300)).await.unwrap();
    refused(sidecar.request(email()).await, Code::FailedPrecondition, "COOLING_OFF");
    sidecar.advance(Duration::from_micros(1));
    let (again, _) = sidecar.ask(email()).await;
    assert_ne!(again.id, denied.id);
}

#[tokio::test]
async fn an_execution_to_retry_does_not_warm_up_what_was_denied() {
    let sidecar = cooling().await;
    let (_, token) = sidecar.approved(email()).await;
    let permit = sidecar.consume(&token, email()).await.unwrap().permit.unwrap();
    sidecar.agent().report_outcome(reported(&permit.execution_id, Outcome::Unknown)).await.unwrap();
    let (asked, _) = sidecar.ask(email()).await;
    sidecar.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
    let retry = RequestApprovalRequest { retry_of: permit.execution_id, ..asking(email()) };
    refused(sidecar.request_as("runtime", retry).await, Code::FailedPrecondition, "COOLING_OFF");
}

#[tokio::test]
async fn a_long_reason_of_a_denial_fits_into_a_refusal() {
    let sidecar = cooling().await;
    let (asked, _) = sidecar.ask(email()).await;
    sidecar.approver().decide(deny(&asked, &"\u{1f600}".repeat(500))).await.unwrap();
    let status = refused(sidecar.request(email()).await, Code::FailedPrecondition, "COOLING_OFF");
    let why = told(&status, "denial_reason");
    assert!(why.len() <= 1_030 && why.starts_with('\u{1f600}') && why.ends_with('…'), "{why}");
}

#[tokio::test]
async fn what_a_principal_is_asked_of_late_is_limited_over_all_callers() {
    let sidecar =
        limited(|limits| limits.asked = Some(AskedLimit { most: 3, within: Duration::from_secs(3_600) })).await;
    for (number, caller) in ["runtime", "runtime-2", "runtime"].into_iter().enumerate() {
        let asked = sidecar.request_as(caller, asking(in_conversation(&number.to_string()))).await.unwrap();
        // Answered or not: it was asked.
        sidecar.decide("olga", &asked.approval.unwrap().id, Verdict::Deny).await.unwrap();
        sidecar.advance(Duration::from_secs(60));
    }
    for caller in ["runtime", "runtime-2"] {
        let answer = sidecar.request_as(caller, asking(in_conversation("more"))).await;
        let status = refused(answer, Code::ResourceExhausted, "ASKED_TOO_OFTEN");
        let known = ["per", "limit", "within", "retry_after"].map(|key| told(&status, key));
        assert_eq!(known, ["principal", "3", "1h", "57m"]);
        assert_eq!(retry_after(&status), Some(Duration::from_secs(57 * 60)));
    }
    // Nobody is asked about this one, and somebody else about that one.
    assert_eq!(sidecar.request(fetch()).await.unwrap().decision(), Decision::Allow);
    sidecar.ask(Invocation { principal: "pia".to_owned(), ..in_conversation("more") }).await;
    sidecar.advance(Duration::from_secs(57 * 60) - Duration::from_micros(1));
    refused(sidecar.request(in_conversation("more")).await, Code::ResourceExhausted, "ASKED_TOO_OFTEN");
    sidecar.advance(Duration::from_micros(1));
    let (open, _) = sidecar.ask(in_conversation("more")).await;
    assert!(sidecar.request(in_conversation("more")).await.unwrap().existing, "the same again is no new question");
    refused(sidecar.request(in_conversation("and more")).await, Code::ResourceExhausted, "ASKED_TOO_OFTEN");
    let reasons: Vec<String> = sidecar.audit().await.into_iter().map(|record| record.reason).collect();
    assert_eq!(reasons.iter().filter(|reason| *reason == "ASKED_TOO_OFTEN").count(), 4);
    sidecar.decide("olga", &open.id, Verdict::Approve).await.unwrap();
}

#[tokio::test]
async fn open_approvals_of_one_action_are_limited() {
    let sidecar = limited(|limits| limits.per_action = 2).await;
    for number in 0..2 {
        sidecar.ask(in_conversation(&number.to_string())).await;
    }
    let status =
        refused(sidecar.request(in_conversation("more")).await, Code::ResourceExhausted, "TOO_MANY_OPEN_APPROVALS");
    assert_eq!((told(&status, "per").as_str(), told(&status, "limit").as_str()), ("action", "2"));
    assert_eq!(retry_after(&status), None, "nobody knows when people answer");
    sidecar.ask(Invocation { action: "GMAIL_REPLY".to_owned(), ..in_conversation("more") }).await;
    sidecar.ask(Invocation { connector: "outlook".to_owned(), ..in_conversation("more") }).await;
}

#[tokio::test]
async fn how_long_each_person_took_is_told_and_counted() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(deletion()).await;
    sidecar.advance(Duration::from_millis(1_250));
    sidecar.decide("dana", &asked.id, Verdict::Approve).await.unwrap();
    sidecar.advance(Duration::from_secs(40));
    let denied = sidecar.decide("eve", &asked.id, Verdict::Deny).await.unwrap();
    let took: Vec<(i64, i32)> =
        denied.decisions.iter().map(|decision| decision.took.unwrap()).map(|took| (took.seconds, took.nanos)).collect();
    assert_eq!(took, [(1, 250_000_000), (41, 250_000_000)]);
    let page = scrape(&sidecar).await;
    for (series, value) in [
        ("countersign_time_to_decide_seconds_sum{verdict=APPROVE}", 1.25),
        ("countersign_time_to_decide_seconds_sum{verdict=DENY}", 41.25),
        ("countersign_time_to_decide_seconds_bucket{le=1,verdict=APPROVE}", 0.0),
        ("countersign_time_to_decide_seconds_bucket{le=5,verdict=APPROVE}", 1.0),
        ("countersign_time_to_decide_seconds_bucket{le=30,verdict=DENY}", 0.0),
        ("countersign_time_to_decide_seconds_bucket{le=60,verdict=DENY}", 1.0),
    ] {
        assert_eq!(page.value(series), value, "{series}");
    }
}

#[tokio::test]
async fn questions_at_which_nobody_looks_are_told() {
    let sidecar = Sidecar::start().await;
    let (unwatched, age) = ("countersign_approvals_unwatched", "countersign_oldest_pending_age_seconds");
    sidecar.ask(email()).await;
    let listening = Listening::begin();
    sidecar.advance(Duration::from_secs(120));
    until(&sidecar, "nobody looks", |page| page.value(unwatched) == 1.0).await;
    let heard = String::from_utf8_lossy(&listening.heard()).into_owned();
    assert!(heard.contains("approvals wait and nobody looks at them"), "the log warns");
    sidecar.listed("olga", &[]).await;
    until(&sidecar, "somebody has looked", |page| page.value(unwatched) == 0.0).await;
    // A stream is a look that lasts.
    let request = WatchApprovalsRequest { principal: "olga".to_owned(), ..Default::default() };
    let mut watching = sidecar.approver().watch_approvals(request).await.unwrap().into_inner();
    watching.message().await.unwrap().unwrap();
    sidecar.advance(Duration::from_secs(400));
    let page = until(&sidecar, "time has passed", |page| page.value(age) == 520.0).await;
    assert_eq!(page.value(unwatched), 0.0);
}
