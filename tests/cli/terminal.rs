//! At a terminal: the person is asked, and what is typed is the answer.

use crate::support::{Folder, Ran, Serving, at_a_terminal};

const EMAIL: &str = r#"{"recipient_email":"eve@acme.com"}"#;

/// `approvals …` as dana, at a terminal.
fn approvals(serving: &Serving, arguments: &[&str], typed: &str) -> Ran {
    let token = serving.token_file("approver");
    let connection =
        ["approvals", "--as", "dana", "--server", &serving.address, "--token-file", token.to_str().unwrap()];
    at_a_terminal(&[&connection[..], arguments].concat(), typed, &serving.folder)
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
