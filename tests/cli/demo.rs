//! `countersign demo`, the first thing that anybody runs.

use crate::support::{Countersign, Folder, Ran, harmless, read_until};
use std::process::Command;

/// Everything until the answer is the same whatever the answer is.
const UNTIL_ANSWERED: [&str; 9] = [
    "ALLOW, ALLOWED",
    "a permit, without a token",
    "SUCCEEDED",
    "refused: APPROVAL_REQUIRED",
    "CONFIRMATION_REQUIRED, CONFIRMATION_BY_MODE",
    "\"password\": (masked)",
    "(the agent's own words, checked by nobody)",
    "refused: ROLE_NOT_ALLOWED",
    "refused: APPROVAL_PENDING",
];
const APPROVED: [&str; 22] = [
    "APPROVED",
    "another recipient",
    "refused: ARGUMENTS_CHANGED",
    "another mailbox",
    "refused: ACCOUNT_MISMATCH",
    "another action",
    "refused: ACTION_MISMATCH",
    "members in another order",
    "a permit: execution",
    "idempotency key",
    "sent message-1",
    "SUCCEEDED, as message-1",
    "refused: APPROVAL_CONSUMED",
    "refused: APPROVAL_EXPIRED",
    "approval.requested",
    "approval.approved",
    "approval.consumed",
    "execution.reported",
    "CONFIRMATION_BY_RULE",
    "DENY by dana (owner, group:finance)",
    "refused: APPROVAL_DENIED",
    "One email was sent",
];
const DENIED: [&str; 7] = [
    "DENIED",
    "DENY by dana (owner, group:finance)",
    "refused: APPROVAL_DENIED",
    "approval.requested",
    "approval.decided",
    "approval.denied",
    "No email was sent",
];

/// Runs it with everything temporary in a folder that must be empty again afterwards.
fn demo(arguments: &[&str], input: &str) -> Ran {
    let folder = Folder::new("demo");
    let ran = Countersign::new(&["demo"])
        .arguments(arguments)
        .env("TMPDIR", folder.path(""))
        .within(&folder)
        .input(input)
        .run();
    assert_eq!(folder.names(), [""; 0], "nothing stays behind");
    harmless(&ran.out);
    assert!(!ran.out.contains("hunter2"), "the secret is shown:\n{}", ran.out);
    for line in ran.out.lines() {
        assert!(line.chars().count() <= 100, "longer than 100 columns: {line}");
    }
    ran.in_order(&UNTIL_ANSWERED);
    ran
}

#[test]
fn an_approval_is_used_once_for_what_was_approved_and_in_time() {
    let ran = demo(&["--answer", "approve"], "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.in_order(&APPROVED);
}

#[test]
fn a_denial_stops_the_email() {
    let ran = demo(&["--answer", "deny"], "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.in_order(&DENIED);
    for not in ["sent message-", "a permit: ", "APPROVED", "approval.consumed"] {
        assert!(!ran.out.contains(not), "{not} in\n{}", ran.out);
    }
}

#[test]
fn the_person_at_the_terminal_answers_yes() {
    let ran = demo(&[], "perhaps\nY\n");
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&["Allow this? [y]es/[n]o: Please answer y or n.", "Allow this? [y]es/[n]o: yes"]);
    ran.in_order(&APPROVED);
}

#[test]
fn the_person_at_the_terminal_answers_no() {
    let ran = demo(&[], "no\n");
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&["Allow this? [y]es/[n]o: no"]);
    ran.in_order(&DENIED);
}

#[test]
fn no_answer_decides_nothing() {
    for input in ["", "what\n\n1\ny\n", "yes please\n"] {
        let ran = demo(&[], input);
        assert_eq!(ran.code, 1, "{input:?}: {ran:?}");
        assert!(ran.err.contains("Nothing was decided"), "{input:?}: {ran:?}");
        for not in
            ["Decide              APPROVED", "Decide              DENIED", "APPROVE by", "DENY by", "sent message-"]
        {
            assert!(!ran.out.contains(not), "{input:?}: {not} in\n{}", ran.out);
        }
    }
}

#[test]
fn an_interrupt_at_the_question_leaves_nothing_behind() {
    for name in ["INT", "TERM", "HUP"] {
        let folder = Folder::new("demo-interrupted");
        let mut child = Countersign::new(&["demo"]).env("TMPDIR", folder.path("")).spawn();
        read_until(&mut child, "Allow this?");
        assert_eq!(folder.names().len(), 1);
        let killed = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
        assert!(killed.success());
        let code = child.wait().unwrap().code();
        assert_eq!((code, folder.names()), (Some(1), vec![]), "SIG{name}");
    }
}

#[test]
fn without_a_place_for_its_folder_it_cannot_start() {
    let ran = Countersign::new(&["demo", "--answer", "deny"]).env("TMPDIR", "/does/not/exist").run();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("/does/not/exist"), "{ran:?}");
}
