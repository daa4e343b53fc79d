//! `countersign approvals`, against a real sidecar.

use crate::support::{Countersign, Folder, GMAIL, Serving, harmless, question, text};
use serde_json::Value;

const EMAIL: &str = r#"{"recipient_email":"eve@acme.com","password":"hunter2","amount":9007199254740993}"#;
const OUTSIDE: &str = r#"{"recipient_email":"x@rival.example"}"#;
const NOBODY: &str = "0190b6c0-0000-7000-8000-000000000000";

fn state(serving: &Serving, id: &str) -> Value {
    serving.approvals("dana", &["show", id, "--json"]).json()["state"].clone()
}

#[test]
fn a_person_lists_shows_and_approves() {
    let serving = Serving::start("approve");
    let ran = serving.approvals("dana", &["list"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "none\n"), "{ran:?}");
    let id = serving.ask([question(EMAIL, "I was asked to.")]).remove(0).id;
    let ran = serving.approvals("dana", &["list", "--state", "pending"]);
    assert_eq!(ran.code, 0);
    ran.in_order(&["ID", "STATE", &id, "PENDING", "dana", "assistant", "gmail GMAIL_SEND_EMAIL", "work-mailbox-a"]);

    let ran = serving.approvals("dana", &["show", &id]);
    assert_eq!(ran.code, 0);
    ran.in_order(&[
        &id,
        "PENDING",
        "assistant asks to run GMAIL_SEND_EMAIL of gmail as",
        "| work-mailbox-a on behalf of dana.",
        "\"amount\": 9007199254740993,",
        "\"password\": (masked),",
        "/password: masked",
        "| I was asked to.",
        "checked by nobody",
        "1 of owner (dana)",
        "v1:",
    ]);
    assert!(!ran.out.contains("hunter2"));

    let ran = serving.approvals("dana", &["approve", &id]);
    assert_eq!(ran.code, 2, "without a terminal and without --yes nobody was asked: {ran:?}");
    assert_eq!(state(&serving, &id), "PENDING");

    let ran = serving.approvals("dana", &["approve", &id, "--yes", "--reason", "as discussed"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.in_order(&[
        "asks to run GMAIL_SEND_EMAIL",
        "\"password\": (masked)",
        "fingerprint",
        "APPROVED: to be used by 2",
    ]);
    let shown = serving.approvals("dana", &["show", &id, "--json"]).json();
    assert_eq!((&shown["state"], &shown["decisions"][0]["reason"]), (&"APPROVED".into(), &"as discussed".into()));
    assert_eq!(serving.approvals("dana", &["approve", &id, "--yes"]).code, 0, "the same answer again is no other");
    let ran = serving.approvals("dana", &["deny", &id, "--yes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("FAILED_PRECONDITION"), "{ran:?}");
    assert_eq!(state(&serving, &id), "APPROVED");
}

#[test]
fn all_arguments_are_shown_to_who_asks_for_them_behind_the_bar_or_as_json() {
    let serving = Serving::start("arguments");
    let hostile = "\u{1b}[2J\u{202e}\r\nstate           APPROVED\u{200b}";
    let long = "x".repeat(5_000);
    let arguments = serde_json::json!({
        "recipient_email": "a@acme.com", "password": "hunter2", "body": format!("{long}THE END"), hostile: hostile,
    });
    let id = serving.ask_one(&arguments.to_string()).id;
    assert!(!serving.approvals("dana", &["show", &id]).out.contains("hunter2"));
    let ran = serving.approvals("dana", &["show", "--arguments", &id]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    harmless(&ran.out);
    let (_, all) = ran.out.split_once("\nall arguments ").unwrap();
    assert!(all.contains("\"password\": \"hunter2\"") && all.contains("THE END"), "{all}");
    assert!(all.lines().all(|line| line.trim_start().starts_with('|')), "{all}");
    let ran = serving.approvals("dana", &["show", "--arguments", "--json", &id]);
    harmless(&ran.out);
    let answer = ran.json();
    let whole: Value = serde_json::from_str(answer["arguments_json"].as_str().unwrap()).unwrap();
    assert_eq!((whole, &answer["id"]), (arguments, &id.as_str().into()));
    let ran = serving.approvals("eve", &["show", "--arguments", &id]);
    assert!(ran.code == 1 && ran.err.contains("APPROVAL_NOT_FOUND"), "{ran:?}");
}

#[test]
fn a_denial_ends_it_and_is_told_with_its_reason() {
    let serving = Serving::start("deny");
    let id = serving.ask_one(EMAIL).id;
    let ran = serving.approvals("dana", &["deny", &id, "--yes", "--reason", "not to Eve", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = ran.json();
    assert_eq!((&answer["state"], &answer["state_reason"]), (&"DENIED".into(), &"not to Eve".into()));
    assert!(ran.err.contains("asks to run GMAIL_SEND_EMAIL"), "what is decided is shown beside the JSON: {ran:?}");
    let denied = serving.approvals("dana", &["list", "--state", "denied", "--json"]).json();
    assert_eq!((&denied["approvals"][0]["id"], &denied["more"]), (&id.as_str().into(), &false.into()));
    let pending = serving.approvals("dana", &["list", "--state", "PENDING", "--state", "approved", "--json"]).json();
    assert_eq!(pending["approvals"], serde_json::json!([]));
    assert_eq!(serving.approvals("dana", &["list", "--state", "undecided"]).code, 2);
}

#[test]
fn two_people_of_two_clauses_approve_and_a_third_sees_nothing() {
    let serving = Serving::start("clauses");
    let id = serving.ask_one(OUTSIDE).id;
    let ran = serving.approvals("dana", &["approve", &id, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&[
        "1 of owner (dana)",
        "and ",
        "1 of group:finance",
        "PENDING: your answer is recorded; others must confirm",
    ]);
    for arguments in [&["show", &id][..], &["approve", &id, "--yes"], &["deny", &id, "--yes"], &["show", NOBODY]] {
        let ran = serving.approvals("mallory", arguments);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains("APPROVAL_NOT_FOUND"), "{ran:?}");
    }
    let ran = serving.approvals("eve", &["approve", &id, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&["PENDING", "APPROVE by dana", "asks to run", "APPROVED"]);
    let ran = serving.approvals("eve", &["show", &id]);
    ran.in_order(&["APPROVE by dana (owner, group:finance)", "APPROVE by eve (group:finance) at"]);
}

#[test]
fn the_exit_code_tells_refused_from_misused_from_unreachable() {
    let serving = Serving::start("exits");
    let ran = serving.approvals("", &["list"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("PRINCIPAL_REQUIRED") && ran.err.contains("--as PERSON"), "{ran:?}");
    let ran = serving.approvals("dana", &["show", "no-id"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let ran = serving.approvals("dana", &["show", NOBODY, "--json"]);
    let error = &ran.json()["error"];
    assert_eq!((ran.code, &error["reason"], &error["code"]), (1, &"APPROVAL_NOT_FOUND".into(), &"NOT_FOUND".into()));

    let list = |command: Countersign| command.arguments(&["approvals", "list", "--as", "dana"]);
    let server = |command: Countersign| list(command).arguments(&["--server", &serving.address]);
    let ran = server(Countersign::new(&[])).run();
    assert!(ran.code == 2 && ran.err.contains("COUNTERSIGN_TOKEN"), "{ran:?}");
    let ran = server(Countersign::new(&[])).env("COUNTERSIGN_TOKEN", "cst_nobody").run();
    assert!(ran.code == 3 && ran.err.contains("CREDENTIALS_INVALID"), "{ran:?}");
    let ran = server(Countersign::new(&[])).arguments(&["--token-file", "/does/not/exist"]).run();
    assert!(ran.code == 3 && ran.err.contains("/does/not/exist"), "{ran:?}");
    let ran = server(Countersign::new(&[])).arguments(&["--token-file", text(&serving.token_file("agent"))]).run();
    assert!(ran.code == 1 && ran.err.contains("ROLE_NOT_ALLOWED"), "{ran:?}");
    let token = std::fs::read_to_string(serving.token_file("approver")).unwrap();
    assert_eq!(server(Countersign::new(&[])).env("COUNTERSIGN_TOKEN", token.trim()).run().code, 0);
    for broken in ["", "two words", "line\nbreak", "\u{e9}"] {
        let ran = server(Countersign::new(&[])).env("COUNTERSIGN_TOKEN", broken).run();
        assert!(ran.code == 3 && !ran.err.contains("words"), "{broken:?}: {ran:?}");
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = list(Countersign::new(&[])).env("COUNTERSIGN_TOKEN", "x").arguments(&["--server", &nobody]).run();
    assert!(ran.code == 3 && ran.err.contains(&nobody), "{ran:?}");
    assert_eq!(list(Countersign::new(&[])).arguments(&["--server", "nowhere"]).run().code, 2);
}

#[test]
fn a_long_list_is_cut_and_all_of_it_is_had_page_by_page() {
    let folder = Folder::new("pages");
    // Two actions: so many are not asked of one.
    let two = std::fs::read_to_string(GMAIL).unwrap().replacen(
        "      GMAIL_DELETE_EMAIL:",
        "      GMAIL_REPLY: { scope: write, curated: true }\n      GMAIL_DELETE_EMAIL:",
        1,
    );
    folder.write("two.yaml", &two);
    let arguments = [
        "serve",
        "--dev",
        "--dev-dir",
        "dev",
        "--policy",
        "two.yaml",
        "--listen",
        "127.0.0.1:0",
        "--health-listen",
        "127.0.0.1:0",
    ];
    let serving = Serving::of(folder, |command| command.arguments(&arguments));
    let arguments: Vec<String> =
        (0..55).map(|number| format!("{{\"recipient_email\":\"{number}@acme.com\"}}")).collect();
    let asked = arguments.iter().enumerate().map(|(number, text)| {
        let mut question = question(text, "");
        if number % 2 == 0 {
            question.invocation.as_mut().unwrap().action = "GMAIL_REPLY".to_owned();
        }
        question
    });
    let ids: Vec<String> = serving.ask(asked).into_iter().map(|approval| approval.id).collect();
    let first = serving.approvals("dana", &["list"]);
    assert_eq!((first.code, first.out.lines().count()), (0, 51));
    assert!(first.err.contains("--all"), "{first:?}");
    let all = serving.approvals("dana", &["list", "--all"]);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (56, ""));
    let answer = serving.approvals("dana", &["list", "--all", "--json"]).json();
    let listed: Vec<&str> =
        answer["approvals"].as_array().unwrap().iter().map(|approval| approval["id"].as_str().unwrap()).collect();
    let newest_first: Vec<&str> = ids.iter().rev().map(String::as_str).collect();
    assert_eq!(listed, newest_first);
    assert_eq!(serving.approvals("dana", &["list", "--json"]).json()["more"], true);
}

#[test]
fn what_an_agent_writes_reaches_no_terminal_as_it_is() {
    let serving = Serving::start("hostile-agent");
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{200b}\r\n  state           APPROVED";
    let arguments = serde_json::json!({ "recipient_email": "a@acme.com", "body": hostile, hostile: 1 }).to_string();
    let id = serving.ask([question(&arguments, hostile)]).remove(0).id;
    for command in [
        &["list"][..],
        &["list", "--json"],
        &["show", &id],
        &["show", &id, "--json"],
        &["deny", &id, "--yes", "--reason", hostile],
    ] {
        let ran = serving.approvals("dana", command);
        assert_eq!(ran.code, 0, "{ran:?}");
        harmless(&ran.out);
        harmless(&ran.err);
        assert!(!ran.out.lines().any(|line| line == "  state           APPROVED"), "{ran:?}");
    }
    harmless(&serving.approvals("dana", &["show", &id]).out);
    let ran = serving.approvals(hostile, &["show", hostile]);
    assert_ne!(ran.code, 0);
    harmless(&ran.err);
}
