//! At a terminal: the person is asked, and what is typed is the answer.

use crate::support::{Folder, Ran, Serving, at_a_terminal, at_a_terminal_of, question};
use countersign::proto::Objective;

const EMAIL: &str = r#"{"recipient_email":"eve@acme.com"}"#;

/// `approvals …` as dana, at a terminal.
fn approvals(serving: &Serving, arguments: &[&str], typed: &str) -> Ran {
    approvals_within(80, serving, arguments, typed)
}

fn approvals_within(columns: u16, serving: &Serving, arguments: &[&str], typed: &str) -> Ran {
    let token = serving.token_file("approver");
    let connection =
        ["approvals", "--as", "dana", "--server", &serving.address, "--token-file", token.to_str().unwrap()];
    at_a_terminal_of(columns, &[&connection[..], arguments].concat(), typed, &serving.folder)
}

fn state(serving: &Serving, id: &str) -> String {
    serving.approvals("dana", &["show", id, "--json"]).json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn only_a_yes_after_what_is_shown_decides() {
    let serving = Serving::start("terminal");
    let id = serving.ask_one(EMAIL).id;
    // Control-D ends the input, control-C ends the process.
    for (typed, code) in [("n\n", 1), ("\u{4}", 1), ("sure\nok\n\n", 1), ("\u{3}", -2)] {
        let ran = approvals(&serving, &["approve", &id], typed);
        assert_eq!(ran.code, code, "{typed:?}: {ran:?}");
        ran.in_order(&["question", "eve@acme.com", "Approve this? [y]es/[n]o: "]);
        assert_eq!(state(&serving, &id), "PENDING", "{typed:?}");
    }
    let ran = approvals(&serving, &["deny", &id], "n\n");
    assert_eq!(ran.code, 1);
    ran.in_order(&["Deny this? [y]es/[n]o: ", "Nothing was decided."]);
    assert_eq!(state(&serving, &id), "PENDING");
    let ran = approvals(&serving, &["approve", &id], "y\n");
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&["Approve this? [y]es/[n]o: ", "APPROVED: to be used by"]);
    assert_eq!(state(&serving, &id), "APPROVED");
}

#[test]
fn the_demo_asks_and_leaves_nothing_behind_when_it_is_broken_off() {
    for (typed, code, says) in [
        ("y\n", 0, "One email was sent"),
        ("no\n", 0, "No email was sent"),
        ("\u{4}", 1, "Nothing was decided"),
        ("\u{3}", 1, "Stopped"),
    ] {
        let folder = Folder::new("terminal-demo");
        let ran = at_a_terminal(&["demo"], typed, &folder);
        assert_eq!(ran.code, code, "{typed:?}: {ran:?}");
        ran.in_order(&["dana answers: that is you", "Allow this? [y]es/[n]o: ", says]);
        assert_eq!(folder.names(), [""; 0], "{typed:?}");
    }
}

#[test]
fn an_agents_text_makes_no_row_of_its_own_at_a_terminal_of_any_width() {
    let serving = Serving::start("terminal-rows");
    for columns in [80, 60, 132] {
        let width = usize::from(columns);
        // As long as the row that a terminal of this width makes of it, and blank up to there.
        let padding = "\u{A0}".repeat(width - 18);
        let line = format!("fine{padding}scope           read{}", "\u{A0}".repeat(width - 20));
        let value = format!("x{}decide by       2099-01-01{}", " ".repeat(width), "\u{4E00}".repeat(width));
        let arguments = serde_json::json!({ "recipient_email": "eve@acme.com", "body": value }).to_string();
        let id = serving.ask([question(&arguments, &line)]).remove(0).id;
        for command in [&["show", &id][..], &["deny", &id], &["list"]] {
            let ran = approvals_within(columns, &serving, command, "n\n");
            for row in ran.out.lines() {
                let taken: usize = row.chars().map(|character| if character >= '\u{1100}' { 2 } else { 1 }).sum();
                assert!(taken <= width, "wider than {width}: {row:?}");
                let fake = row.contains("  read") || row.contains("2099") || row.contains('\u{4E00}');
                assert!(!fake || row.trim_start().starts_with('|') || row.contains("says  | "), "no bar: {row:?}");
            }
            if command != ["list"] {
                assert_eq!(ran.out.lines().filter(|row| row.starts_with("scope ")).count(), 1, "{ran:?}");
            }
        }
    }
}

#[test]
fn everything_that_is_bound_is_shown_before_the_question() {
    let serving = Serving::start("terminal-bound");
    let mut request = question(EMAIL, "");
    let invocation = request.invocation.as_mut().unwrap();
    invocation.conversation = "conversation-7".to_owned();
    invocation.connection = "connection-8".to_owned();
    invocation.objective =
        Some(Objective { transcript: "transcript-9".to_owned(), id: "objective-10".to_owned(), revision: 11 });
    let id = serving.ask([request]).remove(0).id;
    for verdict in ["approve", "deny"] {
        let ran = approvals(&serving, &[verdict, &id], "n\n");
        let (before, _) = ran.out.split_once("this? [y]es/[n]o: ").unwrap();
        for shown in [
            "\nprincipal       dana\n",
            "\nagent           assistant\n",
            "\nconversation    conversation-7\n",
            "\nconnector       gmail\n",
            "\naccount         work-mailbox-a\n",
            "\nconnection      (recorded, not bound) connection-8\n",
            "\naction          GMAIL_SEND_EMAIL\n",
            "\nobjective       revision 11, objective-10 of transcript-9\n",
            "\nasked by        ",
            "\nfingerprint ",
        ] {
            assert!(before.contains(shown), "{shown:?} in\n{before}");
        }
    }
}
