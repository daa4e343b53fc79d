//! What each command tells the audit, and what nothing ever tells.

use crate::domain::approval::{Answer, Approval, ApprovalState, Verdict};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::change::Change;
use crate::domain::testing::{
    SENTINEL, answer, approval_id, asked, at, changed, decided, id, person, question, requirement, subject,
};

/// What every record of approval number 1 says.
fn record(kind: AuditKind, caller: Option<&str>, decision: &str) -> AuditEvent {
    let subject = subject();
    AuditEvent {
        kind,
        caller: caller.map(id),
        principal: id("olga"),
        agent: id("assistant"),
        conversation: Some(id("conversation-1")),
        connector: Some(id("gmail")),
        account: Some(id("work-mailbox-a")),
        action: Some(id("GMAIL_SEND_EMAIL")),
        approval: Some(approval_id(1)),
        execution: None,
        wait: None,
        fingerprint: Some(subject.fingerprint),
        policy_revision: None,
        person: None,
        decision: decision.to_owned(),
        reason: None,
        note: None,
        labels: subject.labels,
    }
}

fn two_of_finance() -> Approval {
    asked(requirement(&[(&["group:finance"], 2)], false))
}

fn approved() -> Approval {
    let one = decided(&two_of_finance(), &person("dana", &["finance"]), Verdict::Approve, at(1));
    decided(&one, &person("eve", &["finance"]), Verdict::Approve, at(2))
}

fn with_reason(verdict: Verdict) -> Answer {
    Answer { reason: Some("my reason".to_owned()), ..answer(verdict) }
}

/// The record of a person's command, with the reason given: a note, and never a reason of ours.
fn by_person(kind: AuditKind, name: &str, decision: &str) -> AuditEvent {
    AuditEvent { person: Some(id(name)), note: Some("my reason".to_owned()), ..record(kind, Some("chat"), decision) }
}

#[test]
fn a_question_is_recorded_with_the_policy_that_asked() {
    let change = Approval::ask(approval_id(1), question(requirement(&[(&["owner"], 1)], false)), None, at(0));
    let expected = AuditEvent {
        policy_revision: Some("revision-1".to_owned()),
        reason: Some("CONFIRMATION_BY_RULE".to_owned()),
        ..record(AuditKind::ApprovalRequested, Some("agents"), "CONFIRMATION_REQUIRED")
    };
    assert_eq!(change.events, [expected]);
    assert_eq!((change.next.version, change.valid_before), (1, None));
}

#[test]
fn an_answer_that_completes_nothing_is_one_record() {
    let change = changed(two_of_finance().decide(&person("dana", &["finance"]), &with_reason(Verdict::Approve), at(1)));
    assert_eq!(change.events, [by_person(AuditKind::ApprovalDecided, "dana", "APPROVE")]);
}

#[test]
fn the_completing_answer_and_the_approval_are_two_records() {
    let one = decided(&two_of_finance(), &person("dana", &["finance"]), Verdict::Approve, at(1));
    let change = changed(one.decide(&person("eve", &["finance"]), &with_reason(Verdict::Approve), at(2)));
    assert_eq!(
        change.events,
        [
            by_person(AuditKind::ApprovalDecided, "eve", "APPROVE"),
            by_person(AuditKind::ApprovalApproved, "eve", "APPROVED"),
        ]
    );
}

#[test]
fn a_denying_answer_and_the_end_are_two_records() {
    let change = changed(two_of_finance().decide(&person("dana", &["finance"]), &with_reason(Verdict::Deny), at(1)));
    assert_eq!(
        change.events,
        [by_person(AuditKind::ApprovalDecided, "dana", "DENY"), by_person(AuditKind::ApprovalDenied, "dana", "DENIED")]
    );
}

#[test]
fn a_withdrawal_is_recorded_with_its_caller_and_reason() {
    for approval in [two_of_finance(), approved()] {
        let change = changed(approval.cancel(&id("other-agents"), Some("moot"), at(3)));
        let expected = AuditEvent {
            note: Some("moot".to_owned()),
            ..record(AuditKind::ApprovalCancelled, Some("other-agents"), "CANCELLED")
        };
        assert_eq!(change.events, [expected]);
        assert_eq!(
            change.next.state,
            ApprovalState::Cancelled {
                at: at(3),
                by: id("other-agents"),
                reason: Some("moot".to_owned()),
                confirmed: approval.state.confirmed(),
            }
        );
    }
}

#[test]
fn a_revocation_is_recorded_with_the_person_and_the_reason() {
    let approval = approved();
    let change = changed(approval.revoke(&person("olga", &[]), Some("my reason"), at(3)));
    assert_eq!(change.events, [by_person(AuditKind::ApprovalRevoked, "olga", "REVOKED")]);
    assert_eq!(
        change.next.state,
        ApprovalState::Revoked {
            at: at(3),
            by: id("olga"),
            reason: Some("my reason".to_owned()),
            confirmed: approval.state.confirmed().unwrap(),
        }
    );
}

#[test]
fn an_expiry_is_recorded_without_a_caller() {
    for approval in [two_of_finance(), approved()] {
        let change = approval.expired(at(10_000_000_000)).unwrap();
        assert_eq!(change.events, [record(AuditKind::ApprovalExpired, None, "EXPIRED")]);
    }
}

#[test]
fn what_is_changed_is_the_state_and_nothing_that_was_asked() {
    let dana = person("dana", &["finance"]);
    let approval = approved();
    let changes: [(&Approval, Change<Approval>); 5] = [
        (&two_of_finance(), changed(two_of_finance().decide(&dana, &answer(Verdict::Approve), at(1)))),
        (&two_of_finance(), changed(two_of_finance().decide(&dana, &answer(Verdict::Deny), at(1)))),
        (&approval, changed(approval.cancel(&id("agents"), None, at(3)))),
        (&approval, changed(approval.revoke(&dana, None, at(3)))),
        (&approval, approval.expired(at(10_000_000_000)).unwrap()),
    ];
    for (before, Change { next, .. }) in changes {
        assert_eq!(next.version, before.version + 1);
        let restored = Approval {
            state: before.state.clone(),
            decisions: before.decisions.clone(),
            version: before.version,
            ..next.clone()
        };
        assert_eq!(restored, *before);
        assert!(next.decisions.starts_with(&before.decisions));
    }
}

#[test]
fn neither_records_nor_debug_output_hold_what_a_person_is_shown() {
    let dana = person("dana", &["finance"]);
    let asked = Approval::ask(approval_id(1), question(requirement(&[(&["group:finance"], 2)], false)), None, at(0));
    let approval = approved();
    let mut events = asked.events.clone();
    events.extend(changed(asked.next.decide(&dana, &answer(Verdict::Approve), at(1))).events);
    events.extend(changed(asked.next.decide(&dana, &answer(Verdict::Deny), at(1))).events);
    events.extend(changed(approval.cancel(&id("agents"), None, at(3))).events);
    events.extend(changed(approval.revoke(&dana, None, at(3))).events);
    events.extend(approval.expired(at(10_000_000_000)).unwrap().events);
    for text in [
        format!("{events:?}"),
        format!("{:?}", asked.next.question),
        format!("{:#?}", asked.next),
        format!("{asked:#?}"),
        format!("{approval:?}"),
    ] {
        assert!(!text.contains(SENTINEL), "{text}");
    }
}
