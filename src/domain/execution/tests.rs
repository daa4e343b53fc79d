//! Executions, by what is promised of them.

mod outcomes;
mod retries;

use super::*;
use crate::domain::audit::AuditEvent;
use crate::domain::testing::{
    REPORT_WITHIN, SENTINEL, approval_id, at, execution_id, id, near, recorded, report, settled, start, started,
    subject,
};

/// What every record of execution number 1 says.
fn record(kind: AuditKind, decision: &str) -> AuditEvent {
    AuditEvent {
        kind,
        caller: Some(id("agents")),
        principal: id("olga"),
        agent: id("assistant"),
        conversation: Some(id("conversation-1")),
        connector: Some(id("gmail")),
        account: Some(id("work-mailbox-a")),
        action: Some(id("GMAIL_SEND_EMAIL")),
        approval: Some(approval_id(1)),
        execution: Some(execution_id(1)),
        wait: None,
        fingerprint: Some(subject().fingerprint),
        policy_revision: None,
        person: None,
        decision: decision.to_owned(),
        reason: None,
        note: None,
        labels: subject().labels,
    }
}

#[test]
fn a_start_is_recorded_with_the_policy_that_let_it_through() {
    let change = start(subject()).at(None, at(0));
    let consumed = AuditEvent {
        policy_revision: Some("revision-2".to_owned()),
        reason: Some("CONFIRMATION_BY_RULE".to_owned()),
        ..record(AuditKind::ApprovalConsumed, "CONFIRMATION_REQUIRED")
    };
    assert_eq!(change.events.as_slice(), std::slice::from_ref(&consumed));

    let allowed =
        Start { approval: None, decision: "ALLOW", reason: PolicyReason::Allowed, ..start(subject()) }.at(None, at(0));
    let started = AuditEvent {
        kind: AuditKind::ExecutionStarted,
        approval: None,
        decision: "ALLOW".to_owned(),
        reason: Some("ALLOWED".to_owned()),
        ..consumed
    };
    assert_eq!(allowed.events, [started]);
}

#[test]
fn a_start_fixes_its_facts() {
    let execution = started();
    assert_eq!((execution.start_time, execution.report_by), (at(0), at(0).plus(REPORT_WITHIN)));
    assert_eq!((execution.id, execution.approval, execution.version), (execution_id(1), Some(approval_id(1)), 1));
    assert_eq!(execution.state, ExecutionState::Started);
    assert_eq!(execution.subject, subject());
    assert_eq!(execution.policy_revision, "revision-2");
}

#[test]
fn a_report_is_one_record_without_what_was_said_in_it() {
    for (outcome, word) in
        [(Outcome::Succeeded, "SUCCEEDED"), (Outcome::Failed, "FAILED"), (Outcome::Unknown, "UNKNOWN")]
    {
        let told = Report {
            by: id("other-agents"),
            remote_reference: Some(SENTINEL.to_owned()),
            error_code: Some(SENTINEL.to_owned()),
            detail: Some(SENTINEL.to_owned()),
            ..report(at(1))
        };
        let change = recorded(started().report(outcome, told.clone()));
        let expected = AuditEvent { caller: Some(id("other-agents")), ..record(AuditKind::ExecutionReported, word) };
        assert_eq!(change.events, [expected]);
        assert_eq!(change.next.state.report(), Some(&told), "it is kept whole");
        for text in [format!("{change:?}"), format!("{:#?}", change.next), format!("{told:?}")] {
            assert!(!text.contains(SENTINEL), "{text}");
        }
    }
}

#[test]
fn a_report_changes_the_state_and_nothing_else() {
    let before = started();
    let after = settled(&before, Outcome::Failed, report(at(1)));
    assert_eq!(after.version, before.version + 1);
    assert_eq!(Execution { state: before.state.clone(), version: before.version, ..after }, before);
}

#[test]
fn states_are_read_from_the_words_they_are_written_as_and_from_no_others() {
    for state in ExecutionStateName::ALL {
        assert_eq!(ExecutionStateName::parse(state.as_str()), Some(state));
    }
    for word in ["", "Started", "STARTED", "sent", "started "] {
        assert_eq!(ExecutionStateName::parse(word), None);
    }
}
