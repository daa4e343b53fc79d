//! The audit of evaluations: where every one is to be a record, each is one, in order, and none is lost short of a crash.

use crate::backend::{intruder, refuse_records, take_records};
use crate::grpc::harness::*;
use crate::grpc::metrics::{scrape, until};
use crate::grpc::steps::*;
use countersign::domain::audit::AuditedEvaluations;
use countersign::domain::limits::EVALUATIONS_WAITING;
use countersign::proto::*;
use sqlx::Connection as _;
use tonic::Code;

const WAITING: &str = "countersign_evaluation_audit_waiting";
const HELD: &str = "countersign_evaluation_audit_held_total";

fn evaluate(invocation: Invocation) -> EvaluateRequest {
    EvaluateRequest { invocation: Some(invocation), explain: false }
}

/// Every record of an evaluation, oldest first.
async fn records(sidecar: &Sidecar) -> Vec<AuditRecord> {
    let mut records = Vec::new();
    let mut request = ListAuditRecordsRequest { page_size: 1_000, ..Default::default() };
    loop {
        let page = sidecar.operator().list_audit_records(request.clone()).await.unwrap().into_inner();
        records.extend(page.records.into_iter().filter(|record| record.kind == "evaluation.decided"));
        if page.next_page_token.is_empty() {
            records.reverse();
            return records;
        }
        request.page_token = page.next_page_token;
    }
}

fn ids(records: &[AuditRecord]) -> Vec<&str> {
    records.iter().map(|record| record.note.as_str()).collect()
}

#[tokio::test]
async fn every_evaluation_is_one_record_in_the_order_of_the_answers() {
    let sidecar = Sidecar::auditing(AuditedEvaluations::All).await;
    let mut answers = Vec::new();
    for number in 0..20 {
        let off = Invocation { connector: "off".to_owned(), ..email() };
        let invocation = [email(), fetch(), off][number % 3].clone();
        let request = evaluate(in_conversation(number, invocation));
        answers.push(sidecar.agent().evaluate(request).await.unwrap().into_inner());
    }
    let batch = BatchEvaluateRequest {
        requests: vec![
            evaluate(in_conversation("batch-1", email())),
            EvaluateRequest::default(),
            evaluate(in_conversation("batch-2", fetch())),
        ],
    };
    let results = sidecar.agent().batch_evaluate(batch).await.unwrap().into_inner().results;
    answers.extend(results.into_iter().filter_map(|result| match result.result? {
        batch_evaluate_result::Result::Response(response) => Some(response),
        batch_evaluate_result::Result::Error(_) => None,
    }));
    // What is not answered is no evaluation.
    sidecar.agent_as("nobody").evaluate(evaluate(email())).await.unwrap_err();
    until(&sidecar, "all is written", |page| page.value(WAITING) == 0.0).await;
    let records = records(&sidecar).await;
    assert_eq!(answers.len(), 22);
    assert_eq!(ids(&records), answers.iter().map(|answer| answer.evaluation_id.as_str()).collect::<Vec<_>>());
    for (record, answer) in records.iter().zip(&answers) {
        assert_eq!(record.reason, answer.reason);
        assert_eq!(record.decision, answer.decision().as_str_name().replace("DECISION_", ""));
        assert_eq!(record.policy_revision, answer.policy_revision);
        assert_eq!(record.fingerprint, answer.fingerprint);
        assert_eq!((record.caller.as_str(), record.principal.as_str()), ("runtime", "olga"));
    }
    assert_eq!(scrape(&sidecar).await.value("countersign_audit_records_total{kind=evaluation.decided}"), 22.0);
}

#[tokio::test]
async fn unless_it_is_asked_for_an_evaluation_leaves_no_record() {
    for audited in [AuditedEvaluations::Acting, AuditedEvaluations::None] {
        let sidecar = Sidecar::auditing(audited).await;
        sidecar.agent().evaluate(evaluate(fetch())).await.unwrap();
        sidecar.consume("", fetch()).await.unwrap();
        let kinds: Vec<String> = sidecar.audit().await.into_iter().map(|record| record.kind).collect();
        assert_eq!(kinds, ["execution.started"], "what acts is a record by itself");
        let counted = scrape(&sidecar).await.value("countersign_evaluations_total{decision=ALLOW,reason=ALLOWED}");
        assert_eq!(counted, 1.0);
    }
}

#[tokio::test]
async fn an_orderly_stop_writes_everything_that_waits() {
    let mut sidecar = Sidecar::auditing(AuditedEvaluations::All).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200 {
        let mut agent = sidecar.agent();
        let request = evaluate(in_conversation(number, fetch()));
        calls.spawn(async move { agent.evaluate(request).await.unwrap().into_inner().evaluation_id });
    }
    let mut answered = calls.join_all().await;
    assert!(sidecar.stop().await);
    sidecar.restart_stopped().await;
    let records = records(&sidecar).await;
    let mut recorded: Vec<&str> = ids(&records);
    answered.sort();
    recorded.sort_unstable();
    assert_eq!(recorded, answered);
}

/// Evaluates until as many records wait as may.
async fn fill(sidecar: &Sidecar) -> Vec<String> {
    let mut agent = sidecar.agent();
    let mut answered = Vec::new();
    for number in 0..EVALUATIONS_WAITING {
        let request = evaluate(in_conversation(number, fetch()));
        answered.push(agent.evaluate(request).await.unwrap().into_inner().evaluation_id);
    }
    assert_eq!(scrape(sidecar).await.value(WAITING), EVALUATIONS_WAITING as f64);
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_more_may_wait_callers_are_held_back_and_nothing_is_lost() {
    let sidecar = Sidecar::auditing(AuditedEvaluations::All).await;
    let mut other = intruder(&sidecar).await;
    refuse_records(&mut other, Some("evaluation.decided")).await;
    let answered = fill(&sidecar).await;
    let mut held = tokio::task::JoinSet::new();
    for number in 0..10 {
        let mut agent = sidecar.agent();
        let request = evaluate(in_conversation(format!("held-{number}"), fetch()));
        held.spawn(async move { agent.evaluate(request).await });
    }
    until(&sidecar, "all of them are held", |page| page.value(HELD) == 10.0).await;
    take_records(&mut other).await;
    // On a machine that took too long to get here they are refused, and then not recorded either.
    let held: Vec<String> =
        held.join_all().await.into_iter().flatten().map(|answer| answer.into_inner().evaluation_id).collect();
    until(&sidecar, "all is written", |page| page.value(WAITING) == 0.0).await;
    let records = records(&sidecar).await;
    let (first, mut then) = (&ids(&records)[..EVALUATIONS_WAITING], ids(&records)[EVALUATIONS_WAITING..].to_vec());
    assert_eq!(first, answered, "in order, each once");
    let mut held: Vec<&str> = held.iter().map(String::as_str).collect();
    then.sort_unstable();
    held.sort_unstable();
    assert_eq!(then, held);
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_place_for_its_record_an_evaluation_is_not_answered() {
    let sidecar = Sidecar::auditing(AuditedEvaluations::All).await;
    let mut other = intruder(&sidecar).await;
    refuse_records(&mut other, Some("evaluation.decided")).await;
    let answered = fill(&sidecar).await;
    refused(sidecar.agent().evaluate(evaluate(fetch())).await, Code::Unavailable, "STORE_UNAVAILABLE");
    // Nobody waits again for what has been away for so long: each of a batch would.
    let batch = BatchEvaluateRequest { requests: vec![evaluate(fetch()); 100] };
    let results = sidecar.agent().batch_evaluate(batch).await.unwrap().into_inner().results;
    for result in results {
        let Some(batch_evaluate_result::Result::Error(error)) = result.result else { panic!("answered") };
        assert_eq!((error.code, error.reason.as_str()), (Code::Unavailable.into(), "STORE_UNAVAILABLE"));
    }
    let page = scrape(&sidecar).await;
    assert_eq!((page.value(HELD), page.value("countersign_evaluation_audit_refused_total")), (101.0, 101.0));
    assert_eq!(page.value("countersign_refusals_total{reason=STORE_UNAVAILABLE}"), 101.0);
    // What needs another record goes on.
    sidecar.consume("", fetch()).await.unwrap();
    take_records(&mut other).await;
    until(&sidecar, "all is written", |page| page.value(WAITING) == 0.0).await;
    assert_eq!(ids(&records(&sidecar).await), answered, "what was refused is no record");
    sidecar.agent().evaluate(evaluate(fetch())).await.unwrap();
    other.close().await.unwrap();
}
