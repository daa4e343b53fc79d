//! Whose key a retry has. An equal call has the key of what it retries, so that the remote service can tell.

use super::*;
use crate::domain::invocation::Objective;
use crate::domain::testing::{arguments, attempt_id, definition, in_state, subject_with};

/// A retry, with a new key at hand, of `retried`.
fn retry(number: u128, subject: Subject, retried: Option<&Execution>) -> Execution {
    let start = Start {
        id: execution_id(number),
        approval: Some(approval_id(number)),
        attempt: attempt_id(number),
        new_idempotency_key: format!("key-{number}"),
        retry_of: retried.map(|retried| retried.id),
        ..start(subject)
    };
    start.at(retried, at(100)).next
}

#[test]
fn what_retries_nothing_has_a_new_key() {
    let execution = retry(2, subject(), None);
    assert_eq!((execution.idempotency_key.as_str(), execution.retry_of), ("key-2", None));
}

#[test]
fn an_equal_retry_has_the_key_of_what_it_retries() {
    for state in [
        ExecutionState::Started,
        ExecutionState::Failed(report(at(1))),
        ExecutionState::Unknown(Some(report(at(1)))),
        ExecutionState::Unknown(None),
    ] {
        let execution = retry(2, subject(), Some(&in_state(started(), state)));
        assert_eq!((execution.idempotency_key.as_str(), execution.retry_of), ("key-1", Some(execution_id(1))));
    }
}

#[test]
fn a_retry_with_anything_changed_that_the_remote_service_sees_has_a_new_key() {
    let changes: [fn(&mut Subject); 5] = [
        |subject| subject.connector = id("outlook"),
        |subject| subject.account = Some(id("work-mailbox-b")),
        |subject| subject.account = None,
        |subject| subject.action = id("GMAIL_SEND_DRAFT"),
        |subject| subject.arguments_digest = arguments("{\"to\":\"eve\"}"),
    ];
    for change in changes {
        let execution = retry(2, subject_with(change), Some(&started()));
        assert_eq!((execution.idempotency_key.as_str(), execution.retry_of), ("key-2", Some(execution_id(1))));
    }
}

#[test]
fn what_the_remote_service_does_not_see_makes_no_new_key() {
    let changes: [fn(&mut Subject); 7] = [
        |subject| subject.conversation = None,
        |subject| subject.connection = Some(id("connection-2")),
        |subject| subject.objective = None,
        |subject| {
            subject.objective = Some(Objective { transcript: id("transcript-2"), id: id("objective-2"), revision: 9 });
        },
        |subject| subject.tool_definition_digest = Some(definition("2")),
        |subject| subject.tool_definition_digest = None,
        |subject| subject.labels.clear(),
    ];
    for change in changes {
        assert_eq!(retry(2, subject_with(change), Some(&started())).idempotency_key, "key-1");
    }
}

#[test]
fn a_chain_of_equal_retries_has_one_key() {
    let unknown = |execution: Execution| in_state(execution, ExecutionState::Unknown(None));
    let mut last = unknown(started());
    for number in 2..6 {
        last = unknown(retry(number, subject(), Some(&last)));
        assert_eq!((last.idempotency_key.as_str(), last.retry_of), ("key-1", Some(execution_id(number - 1))));
    }
}

#[test]
fn a_chain_that_changed_its_arguments_does_not_come_back_to_the_first_key() {
    let changed = subject_with(|subject| subject.arguments_digest = arguments("{\"to\":\"eve\"}"));
    let second = retry(2, changed.clone(), Some(&started()));
    let third = retry(3, changed, Some(&second));
    assert_eq!(third.idempotency_key, "key-2");
    let fourth = retry(4, subject(), Some(&third));
    assert_eq!(fourth.idempotency_key, "key-4", "it is compared with what it retries alone");
}

#[test]
fn two_retries_of_one_execution_have_its_key_both() {
    let failed = in_state(started(), ExecutionState::Failed(report(at(1))));
    let keys = [2, 3].map(|number| retry(number, subject(), Some(&failed)).idempotency_key);
    assert_eq!(keys, ["key-1", "key-1"]);
}
