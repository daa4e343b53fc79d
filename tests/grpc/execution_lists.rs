//! What an operator sees of what was let through: all of it, page by page, as it stands now.

use crate::grpc::harness::*;
use crate::grpc::moves::wrong;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::{Code, Status};

use ExecutionState::{Failed, Started, Succeeded, Unknown};

async fn page(sidecar: &Sidecar, request: ListExecutionsRequest) -> Result<ListExecutionsResponse, Status> {
    sidecar.operator().list_executions(request).await.map(tonic::Response::into_inner)
}

/// The ids of one page that is the last.
async fn listed(sidecar: &Sidecar, request: ListExecutionsRequest) -> Vec<String> {
    let page = page(sidecar, request).await.unwrap();
    assert_eq!(page.next_page_token, "");
    page.executions.into_iter().map(|execution| execution.id).collect()
}

fn of_states(states: &[ExecutionState]) -> ListExecutionsRequest {
    ListExecutionsRequest { states: states.iter().map(|state| i32::from(*state)).collect(), ..Default::default() }
}

#[tokio::test]
async fn what_nobody_knows_is_listed_shown_on_a_retry_and_settled_later() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let permit = sidecar.consume(&token, email()).await.unwrap().permit.unwrap();
    assert_eq!(listed(&sidecar, of_states(&[Unknown])).await, [""; 0]);
    // The answer was lost, and nobody reports.
    sidecar.move_to(permit.report_by, 0);
    let lost = page(&sidecar, of_states(&[Unknown])).await.unwrap().executions;
    assert_eq!(lost.len(), 1);
    let lost = &lost[0];
    assert_eq!((lost.id.as_str(), lost.state()), (permit.execution_id.as_str(), Unknown));
    assert_eq!((lost.approval_id.as_str(), lost.report_by), (approval.id.as_str(), permit.report_by));
    assert!(lost.outcome_time.is_none() && lost.reported_by.is_empty());

    // Asked to do it again, the person is told what that may mean.
    let again = sidecar.ask_to_retry(&lost.id, email()).await.unwrap();
    let shown = again.approval.unwrap();
    let seen = sidecar.list("olga").await.into_iter().find(|one| one.id == shown.id).unwrap();
    let retried = seen.retried.clone().unwrap();
    assert_eq!((retried.state.as_str(), retried.may_do_twice), ("unknown", true));
    assert!(seen.message.contains("may do it twice"), "{}", seen.message);
    sidecar.decide("olga", &shown.id, Verdict::Approve).await.unwrap();

    // Meanwhile it is found to have happened: with evidence, once.
    let no_evidence = sidecar.report(&lost.id, Outcome::Succeeded, "").await;
    refused(no_evidence, Code::FailedPrecondition, "OUTCOME_EVIDENCE_MISSING");
    let settled = sidecar.report(&lost.id, Outcome::Succeeded, "it is in the folder `sent`").await.unwrap();
    assert_eq!(listed(&sidecar, of_states(&[Unknown])).await, [""; 0]);
    let found = page(&sidecar, of_states(&[Succeeded])).await.unwrap().executions;
    assert_eq!(found, [settled]);
    assert_eq!((found[0].detail.as_str(), found[0].reported_by.as_str()), ("it is in the folder `sent`", "runtime"));

    // And the retry, though approved, does not run.
    let refused_retry = sidecar.consume(&again.consume_token, email()).await;
    let status = refused(refused_retry, Code::FailedPrecondition, "RETRY_NOT_NEEDED");
    assert_eq!(told(&status, "execution_id"), lost.id);
    assert_eq!(listed(&sidecar, ListExecutionsRequest::default()).await, std::slice::from_ref(&lost.id));
}

#[tokio::test]
async fn every_filter_takes_away_and_all_hold_together() {
    let sidecar = Sidecar::start().await;
    let mut made = Vec::new();
    for (principal, agent, connector, outcome) in [
        ("olga", "assistant", "gmail", Some(Outcome::Succeeded)),
        ("olga", "assistant", "calendar", Some(Outcome::Failed)),
        ("pia", "assistant", "gmail", Some(Outcome::Unknown)),
        ("pia", "other-1", "gmail", None),
    ] {
        let call = Invocation { principal: principal.to_owned(), agent: agent.to_owned(), ..fetch() };
        let call = if connector == "calendar" {
            Invocation {
                connector: connector.to_owned(),
                action: "ADD_EVENT".to_owned(),
                account: String::new(),
                ..call
            }
        } else {
            call
        };
        let id = sidecar.started(call.clone()).await.execution_id;
        if let Some(outcome) = outcome {
            let report = ReportOutcomeRequest {
                principal: principal.to_owned(),
                agent: agent.to_owned(),
                ..reported(&id, outcome)
            };
            sidecar.agent().report_outcome(report).await.unwrap();
        }
        made.push(id);
        sidecar.advance(Duration::from_secs(1));
    }
    let second = |after: i64| {
        let seconds = START.micros() / 1_000_000 + after;
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    };
    let text = str::to_owned;
    let cases: Vec<(ListExecutionsRequest, &[usize])> = vec![
        (ListExecutionsRequest::default(), &[3, 2, 1, 0]),
        (ListExecutionsRequest { principal: text("olga"), ..Default::default() }, &[1, 0]),
        (ListExecutionsRequest { principal: text("Olga"), ..Default::default() }, &[]),
        (ListExecutionsRequest { agent: text("other-1"), ..Default::default() }, &[3]),
        (ListExecutionsRequest { connector: text("gmail"), ..Default::default() }, &[3, 2, 0]),
        (ListExecutionsRequest { connector: text("gmail"), principal: text("olga"), ..Default::default() }, &[0]),
        (of_states(&[Started]), &[3]),
        (of_states(&[Failed, Unknown, Failed]), &[2, 1]),
        (ListExecutionsRequest { started_from: second(1), ..Default::default() }, &[3, 2, 1]),
        (ListExecutionsRequest { started_before: second(1), ..Default::default() }, &[0]),
        (ListExecutionsRequest { started_from: second(1), started_before: second(3), ..Default::default() }, &[2, 1]),
        (ListExecutionsRequest { started_from: second(2), started_before: second(2), ..Default::default() }, &[]),
        (ListExecutionsRequest { approval_id: new_attempt(), ..Default::default() }, &[]),
    ];
    for (request, want) in cases {
        let want: Vec<String> = want.iter().map(|index| made[*index].clone()).collect();
        assert_eq!(listed(&sidecar, request.clone()).await, want, "{request:?}");
    }
    let (approval, token) = sidecar.approved(email()).await;
    let used = sidecar.consume(&token, email()).await.unwrap().permit.unwrap().execution_id;
    let of_approval = ListExecutionsRequest { approval_id: approval.id.clone(), ..Default::default() };
    assert_eq!(listed(&sidecar, of_approval.clone()).await, [used]);
    let of_another = ListExecutionsRequest { principal: text("pia"), ..of_approval };
    assert_eq!(listed(&sidecar, of_another).await, [""; 0]);
    // What is overdue is unknown, to every filter.
    sidecar.advance(Duration::from_secs(300));
    assert_eq!(listed(&sidecar, of_states(&[Started])).await, [""; 0]);
    assert_eq!(listed(&sidecar, of_states(&[Unknown])).await.len(), 3);
}

#[tokio::test]
async fn pages_are_whole_and_their_tokens_are_good_for_one_query_and_caller() {
    let sidecar = Sidecar::start().await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(sidecar.started(fetch()).await.execution_id);
    }
    made.reverse();
    let request = |page_token: &str| ListExecutionsRequest {
        principal: "olga".to_owned(),
        page_size: 3,
        page_token: page_token.to_owned(),
        ..Default::default()
    };
    let mut found = Vec::new();
    let mut tokens = vec![String::new()];
    loop {
        let page = page(&sidecar, request(tokens.last().unwrap())).await.unwrap();
        assert!(page.executions.len() <= 3);
        found.extend(page.executions.into_iter().map(|execution| execution.id));
        // What starts meanwhile is newer than every page.
        sidecar.started(Invocation { agent: "other-1".to_owned(), ..fetch() }).await;
        if page.next_page_token.is_empty() {
            break;
        }
        tokens.push(page.next_page_token);
    }
    assert_eq!((found, tokens.len()), (made, 3));
    let token = &tokens[1];
    let flipped = format!("{}{}", &token[..token.len() - 1], if token.ends_with('0') { '1' } else { '0' });
    let audit = ListAuditRecordsRequest { page_size: 1, ..Default::default() };
    let of_the_audit = sidecar.operator().list_audit_records(audit).await.unwrap().into_inner().next_page_token;
    for hostile in ["x", ".", "00.00", "'; --", &flipped, &of_the_audit, &token.to_uppercase(), &format!("{token}0")] {
        refused(page(&sidecar, request(hostile)).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
    let others = [
        ListExecutionsRequest { principal: String::new(), ..request(token) },
        ListExecutionsRequest { principal: "pia".to_owned(), ..request(token) },
        ListExecutionsRequest { agent: "olga".to_owned(), principal: String::new(), ..request(token) },
        ListExecutionsRequest { states: vec![1], ..request(token) },
        ListExecutionsRequest { started_from: Some(prost_types::Timestamp::default()), ..request(token) },
        ListExecutionsRequest { started_before: Some(prost_types::Timestamp::default()), ..request(token) },
        ListExecutionsRequest { approval_id: new_attempt(), ..request(token) },
    ];
    for other in others {
        refused(page(&sidecar, other).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
    // Another size is another cut of the same query.
    let rest = ListExecutionsRequest { page_size: 500, ..request(token) };
    assert_eq!(page(&sidecar, rest).await.unwrap().executions.len(), 4);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name() {
    let sidecar = Sidecar::start().await;
    for state in [0, -1, 5, 99] {
        wrong(page(&sidecar, ListExecutionsRequest { states: vec![state], ..Default::default() }).await, "states");
    }
    let nanos = |nanos: i32| Some(prost_types::Timestamp { seconds: 0, nanos });
    let seconds = |seconds: i64| Some(prost_types::Timestamp { seconds, nanos: 0 });
    for time in [nanos(-1), nanos(1_000_000_000), nanos(i32::MIN), seconds(i64::MAX), seconds(i64::MIN)] {
        wrong(page(&sidecar, ListExecutionsRequest { started_from: time, ..Default::default() }).await, "started_from");
        let before = ListExecutionsRequest { started_before: time, ..Default::default() };
        wrong(page(&sidecar, before).await, "started_before");
    }
    let far = seconds(9_000_000_000_000);
    page(&sidecar, ListExecutionsRequest { started_from: far, started_before: far, ..Default::default() })
        .await
        .unwrap();
}
