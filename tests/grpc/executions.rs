//! What became of what was let through, as it is reported: consumed does not mean sent.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

/// Each outcome said of an execution in each state, without evidence and with it. `=` is OK and changes nothing, a reason
/// is a refusal, and otherwise what is reached.
const TABLE: &str = "
                started    overdue                   timed out*                succeeded      failed         unknown
SUCCEEDED       SUCCEEDED  OUTCOME_EVIDENCE_MISSING  OUTCOME_EVIDENCE_MISSING  =              OUTCOME_FINAL  OUTCOME_EVIDENCE_MISSING
SUCCEEDED+      SUCCEEDED  SUCCEEDED                 SUCCEEDED                 =              OUTCOME_FINAL  SUCCEEDED
FAILED          FAILED     OUTCOME_EVIDENCE_MISSING  OUTCOME_EVIDENCE_MISSING  OUTCOME_FINAL  =              OUTCOME_EVIDENCE_MISSING
FAILED+         FAILED     FAILED                    FAILED                    OUTCOME_FINAL  =              FAILED
UNKNOWN         UNKNOWN    UNKNOWN                   =                         OUTCOME_FINAL  OUTCOME_FINAL  =
UNKNOWN+        UNKNOWN    UNKNOWN                   =                         OUTCOME_FINAL  OUTCOME_FINAL  =
";

const STATES: [&str; 6] = ["started", "overdue", "timed out*", "succeeded", "failed", "unknown"];

/// An execution in this state; `timed out*` is one that was overdue when somebody reported that nobody knows.
async fn execution_in(sidecar: &Sidecar, state: &str) -> Execution {
    let permit = sidecar.started(fetch()).await;
    let id = permit.execution_id;
    if matches!(state, "overdue" | "timed out*") {
        sidecar.move_to(permit.report_by, 0);
    }
    match state {
        "timed out*" | "unknown" => sidecar.report(&id, Outcome::Unknown, "").await.unwrap(),
        "succeeded" => sidecar.report(&id, Outcome::Succeeded, "").await.unwrap(),
        "failed" => sidecar.report(&id, Outcome::Failed, "").await.unwrap(),
        _ => Execution { id, ..Execution::default() },
    }
}

#[tokio::test]
async fn every_outcome_of_every_state_does_what_the_table_says() {
    let sidecar = Sidecar::start().await;
    for line in TABLE.trim().lines().skip(1) {
        let (command, cells) = line.split_at(16);
        let command = command.trim();
        let outcome = Outcome::from_str_name(&format!("OUTCOME_{}", command.trim_end_matches('+'))).unwrap();
        let detail = if command.ends_with('+') { "the message is in the folder `sent`" } else { " \n\t" };
        for (state, cell) in STATES.into_iter().zip(cells.split_whitespace()) {
            let before = execution_in(&sidecar, state).await;
            let result = sidecar.report(&before.id, outcome, detail).await;
            let scene = format!("{command} of what is {state}");
            match cell {
                "=" => assert_eq!(result.unwrap(), before, "{scene}"),
                "OUTCOME_FINAL" | "OUTCOME_EVIDENCE_MISSING" => {
                    let status = refused(result, Code::FailedPrecondition, cell);
                    let stands =
                        state.split(' ').next().unwrap().replace("overdue", "unknown").replace("timed", "unknown");
                    assert_eq!(told(&status, "state"), stands, "{scene}");
                    assert_eq!(told(&status, "execution_id"), before.id, "{scene}");
                    assert!(status.message().contains(&stands), "{scene}");
                    // What was refused left no trace: what stood is still accepted as it was.
                    let same = Outcome::from_str_name(&format!("OUTCOME_{}", stands.to_uppercase())).unwrap();
                    let after = sidecar.report(&before.id, same, "").await.unwrap();
                    if state != "overdue" {
                        assert_eq!(after, before, "{scene}");
                    }
                }
                reached => {
                    let after = result.unwrap();
                    assert_eq!(after.state().as_str_name(), format!("EXECUTION_STATE_{reached}"), "{scene}");
                    assert_eq!(micros(after.outcome_time), sidecar.now(), "{scene}");
                    assert_eq!(after.reported_by, "runtime", "{scene}");
                }
            }
        }
    }
}

#[tokio::test]
async fn unknown_is_settled_once_and_then_final() {
    let sidecar = Sidecar::start().await;
    for (first, second) in [(Outcome::Succeeded, Outcome::Failed), (Outcome::Failed, Outcome::Succeeded)] {
        let execution = execution_in(&sidecar, "unknown").await;
        sidecar.advance(Duration::from_secs(86_400));
        let by_reference =
            ReportOutcomeRequest { remote_reference: "message-1".to_owned(), ..reported(&execution.id, first) };
        let settled = sidecar.agent().report_outcome(by_reference).await.unwrap().into_inner().execution.unwrap();
        assert_eq!(settled.remote_reference, "message-1");
        for outcome in [second, Outcome::Unknown] {
            let again = sidecar.report(&execution.id, outcome, "evidence").await;
            refused(again, Code::FailedPrecondition, "OUTCOME_FINAL");
        }
        assert_eq!(sidecar.report(&execution.id, first, "other words").await.unwrap(), settled);
    }
    // An error code says what failed, not how anybody knows.
    let execution = execution_in(&sidecar, "unknown").await;
    let by_code = ReportOutcomeRequest { error_code: "504".to_owned(), ..reported(&execution.id, Outcome::Failed) };
    let result = sidecar.agent().report_outcome(by_code).await;
    refused(result, Code::FailedPrecondition, "OUTCOME_EVIDENCE_MISSING");
}

#[tokio::test]
async fn a_report_in_time_needs_no_evidence_and_one_from_its_deadline_on_does() {
    for (offset, in_time) in [(-1, true), (0, false), (1, false)] {
        for outcome in [Outcome::Succeeded, Outcome::Failed] {
            let sidecar = Sidecar::start().await;
            let permit = sidecar.started(fetch()).await;
            sidecar.move_to(permit.report_by, offset);
            let result = sidecar.report(&permit.execution_id, outcome, "").await;
            if in_time {
                let execution = result.unwrap();
                assert_eq!(execution.report_by, permit.report_by);
            } else {
                refused(result, Code::FailedPrecondition, "OUTCOME_EVIDENCE_MISSING");
                sidecar.report(&permit.execution_id, outcome, "found in the remote's log").await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_report_is_kept_whole_and_is_of_whom_it_came_from() {
    let mut sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    let permit = sidecar.attempt(&token, &attempt, email()).await.unwrap().permit.unwrap();
    sidecar.advance(Duration::from_secs(2));
    let request = ReportOutcomeRequest {
        remote_reference: "r".repeat(512),
        error_code: "e".repeat(128),
        detail: "d".repeat(2_000),
        duration: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
        ..reported(&permit.execution_id, Outcome::Failed)
    };
    // Another caller within its bounds may say what became of it.
    let first =
        sidecar.agent_as("runtime-2").report_outcome(request.clone()).await.unwrap().into_inner().execution.unwrap();
    let expected = Execution {
        id: permit.execution_id.clone(),
        approval_id: approval.id.clone(),
        state: ExecutionState::Failed.into(),
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        conversation: "conversation-1".to_owned(),
        connector: "gmail".to_owned(),
        account: "work-mailbox-a".to_owned(),
        action: "GMAIL_SEND_EMAIL".to_owned(),
        fingerprint: approval.fingerprint.clone(),
        attempt_id: attempt,
        idempotency_key: permit.idempotency_key,
        retry_of: String::new(),
        start_time: sidecar.get(&approval).await.consume_time,
        report_by: permit.report_by,
        outcome_time: first.outcome_time,
        reported_by: "runtime-2".to_owned(),
        remote_reference: request.remote_reference.clone(),
        error_code: request.error_code.clone(),
        detail: request.detail.clone(),
        duration: request.duration,
        connection: "connection-1".to_owned(),
        objective: email().objective,
        caller: "runtime".to_owned(),
        policy_revision: approval.policy_revision.clone(),
    };
    assert_eq!(first, expected);
    assert_eq!(micros(first.outcome_time), sidecar.now());
    sidecar.restart().await;
    sidecar.advance(Duration::from_secs(2));
    let again = sidecar.report(&first.id, Outcome::Failed, "said again, in other words").await.unwrap();
    assert_eq!(again, first, "the first report is the one that is kept");
    let records = sidecar.audit_of(&approval.id).await;
    let last = records.last().unwrap();
    assert_eq!((last.kind.as_str(), last.decision.as_str()), ("execution.reported", "FAILED"));
    assert_eq!((last.caller.as_str(), &last.execution_id), ("runtime-2", &first.id));
    assert_eq!(records.iter().filter(|record| record.kind == "execution.reported").count(), 1);
}

#[tokio::test]
async fn whose_execution_it_is_not_learns_nothing_and_changes_nothing() {
    let sidecar = Sidecar::start().await;
    let of = |principal: &str| Invocation { principal: principal.to_owned(), ..fetch() };
    let attempt = new_attempt();
    let execution =
        sidecar.attempt_as("tenant-a", "", &attempt, of("tenant-a")).await.unwrap().permit.unwrap().execution_id;
    let said = |principal: &str, agent: &str, id: &str| ReportOutcomeRequest {
        principal: principal.to_owned(),
        agent: agent.to_owned(),
        ..reported(id, Outcome::Succeeded)
    };
    let unknown = sidecar.agent().report_outcome(said("tenant-a", "assistant", &new_attempt())).await;
    let unknown = learnt(&refused(unknown, Code::NotFound, "EXECUTION_NOT_FOUND"));
    for (caller, principal, agent) in [
        ("runtime", "olga", "assistant"),
        ("runtime", "tenant-a", "other-agent"),
        ("runtime", "TENANT-A", "assistant"),
        ("tenant-b", "tenant-a", "assistant"),
        ("tenant-b", "tenant-b", "assistant"),
        ("nobody", "tenant-a", "assistant"),
    ] {
        let foreign = sidecar.agent_as(caller).report_outcome(said(principal, agent, &execution)).await;
        assert_eq!(learnt(&refused(foreign, Code::NotFound, "EXECUTION_NOT_FOUND")), unknown, "{caller} {principal}");
    }
    assert_eq!(sidecar.count("execution.reported").await, 0);
    let replayed = sidecar.attempt_as("tenant-a", "", &attempt, of("tenant-a")).await.unwrap();
    assert!(replayed.replayed, "nothing was reported");
}

#[tokio::test]
async fn a_report_that_cannot_be_read_is_refused_with_its_field() {
    let sidecar = Sidecar::start().await;
    let id = sidecar.started(fetch()).await.execution_id;
    let good = reported(&id, Outcome::Succeeded);
    let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (request, field) in [
        (ReportOutcomeRequest { outcome: 0, ..good.clone() }, "outcome"),
        (ReportOutcomeRequest { outcome: 4, ..good.clone() }, "outcome"),
        (ReportOutcomeRequest { outcome: -1, ..good.clone() }, "outcome"),
        (ReportOutcomeRequest { principal: String::new(), ..good.clone() }, "principal"),
        (ReportOutcomeRequest { agent: " ".to_owned(), ..good.clone() }, "agent"),
        (ReportOutcomeRequest { execution_id: "1".to_owned(), ..good.clone() }, "execution_id"),
        (ReportOutcomeRequest { remote_reference: "r".repeat(513), ..good.clone() }, "remote_reference"),
        (ReportOutcomeRequest { error_code: "\u{e9}".repeat(65), ..good.clone() }, "error_code"),
        (ReportOutcomeRequest { detail: "d".repeat(2_001), ..good.clone() }, "detail"),
        (ReportOutcomeRequest { duration: span(-1, 0), ..good.clone() }, "duration"),
        (ReportOutcomeRequest { duration: span(0, -1), ..good.clone() }, "duration"),
        (ReportOutcomeRequest { duration: span(86_400, 1_000), ..good.clone() }, "duration"),
        (ReportOutcomeRequest { duration: span(i64::MAX, 0), ..good.clone() }, "duration"),
        (ReportOutcomeRequest { duration: span(1, 1_000_000_000), ..good.clone() }, "duration"),
    ] {
        let status = refused(sidecar.agent().report_outcome(request).await, Code::InvalidArgument, "INVALID_REQUEST");
        assert_eq!(told(&status, "field"), field, "{status:?}");
    }
    let longest = ReportOutcomeRequest { duration: span(86_400, 0), ..good };
    sidecar.agent().report_outcome(longest).await.unwrap();
}

#[tokio::test]
async fn nothing_is_called_done_because_it_was_let_through() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    sidecar.consume(&token, email()).await.unwrap();
    sidecar.advance(Duration::from_secs(86_400));
    let stands = sidecar.get(&approval).await;
    assert_eq!(stands.state(), ApprovalState::Consumed, "an outcome that nobody reported changes no approval");
    let report = sidecar.report(&stands.execution_id, Outcome::Unknown, "").await.unwrap();
    assert_eq!(report.state(), ExecutionState::Unknown);
    assert_eq!(sidecar.get(&approval).await, stands);
    let last = sidecar.audit_of(&approval.id).await.pop().unwrap();
    assert_eq!((last.kind.as_str(), last.decision.as_str()), ("execution.reported", "UNKNOWN"));
}
