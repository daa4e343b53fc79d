//! `countersign approvals watch`, against a real sidecar.

use crate::support::{Countersign, Serving, question};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command};

const EMAIL: &str = r#"{"recipient_email":"eve@acme.com"}"#;
const OUTSIDE: &str = r#"{"recipient_email":"x@rival.example"}"#;

fn watching(serving: &Serving, arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = Countersign::new(&["approvals", "watch", "--as", "dana"])
        .arguments(arguments)
        .env("COUNTERSIGN_SERVER", &serving.address)
        .env("COUNTERSIGN_TOKEN_FILE", serving.token_file("approver"))
        .spawn();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line
}

/// Its exit code, and what it said beside.
fn end(mut child: Child) -> (Option<i32>, String) {
    let code = child.wait().unwrap().code();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (code, err)
}

fn stop(serving: &mut Serving) {
    assert!(Command::new("kill").args(["-TERM", &serving.pid().to_string()]).status().unwrap().success());
    assert_eq!(serving.ends(), Some(0));
}

#[test]
fn each_change_is_a_line_and_the_end_of_the_sidecar_is_three() {
    let mut serving = Serving::start("watch");
    let first = serving.ask_one(EMAIL).id;
    let (child, mut out) = watching(&serving, &["--once"]);
    let told = line(&mut out);
    assert!(told.starts_with("PENDING ") && told.contains(&first) && told.contains("GMAIL_SEND_EMAIL"), "{told}");
    assert_eq!(line(&mut out), "watching\n");
    assert_eq!(serving.approvals("dana", &["deny", &first, "--yes"]).code, 0);
    let told = line(&mut out);
    assert!(told.starts_with("DENIED ") && told.contains(&first), "{told}");
    stop(&mut serving);
    let (code, err) = end(child);
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("STOPPING") && !err.contains("watching again"), "{err}");
}

#[test]
fn lines_of_json_say_what_is_of_the_snapshot_and_a_stream_that_ends_is_begun_anew() {
    let mut serving = Serving::start("watch-json");
    let first = serving.ask_one(EMAIL).id;
    let (child, mut out) = watching(&serving, &["--json"]);
    let mut next = || -> Value { serde_json::from_str(&line(&mut out)).unwrap() };
    let told = next();
    assert_eq!((&told["event"], &told["snapshot"]), (&"approval".into(), &true.into()));
    assert_eq!((&told["approval"]["id"], &told["approval"]["version"]), (&first.into(), &1.into()));
    assert_eq!(next(), serde_json::json!({ "event": "snapshot_complete", "left_out": false }));
    let second = serving.ask([question(OUTSIDE, "")]).remove(0).id;
    let told = next();
    assert_eq!((&told["snapshot"], &told["approval"]["id"]), (&false.into(), &second.into()));
    stop(&mut serving);
    // The next one has other tokens: that is no end that passes.
    let serving = serving.again();
    let (code, err) = end(child);
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("STOPPING") && err.contains("watching again in"), "{err}");
    assert!(err.contains("CREDENTIALS_INVALID"), "{err}");
    drop(serving);
}

#[test]
fn what_is_refused_from_the_first_is_not_tried_again() {
    let serving = Serving::start("watch-refused");
    let nobody =
        Countersign::new(&["approvals", "watch", "--server", "127.0.0.1:1"]).env("COUNTERSIGN_TOKEN", "x").run();
    assert_eq!((nobody.code, nobody.err.contains("again")), (3, false), "{nobody:?}");
    let unnamed = serving.approvals("", &["watch"]);
    assert_eq!(unnamed.code, 2, "{unnamed:?}");
    assert!(unnamed.err.contains("PRINCIPAL_REQUIRED"), "{unnamed:?}");
    assert_eq!(serving.approvals("dana", &["watch", "--state", "open"]).code, 2);
}
