//! The command line, as people and scripts meet it: the real binary, its output, its exit codes.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod approvals;
mod audit;
mod bench;
mod check;
#[path = "../cluster/mod.rs"]
mod cluster;
mod demo;
mod evaluate;
mod fingerprint;
mod health;
mod hostile;
mod migrate;
mod permit;
mod postgres;
mod reload;
mod secret;
mod serve;
mod socket;
mod support;
mod terminal;
mod tls;
mod traces;
mod watch;

use support::run;

#[test]
fn help_is_an_answer_and_nonsense_is_not() {
    for arguments in [&["--help"][..], &["--version"], &["approvals", "--help"], &["demo", "--help"]] {
        let ran = run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}");
        assert!(!ran.out.is_empty() && ran.err.is_empty(), "{arguments:?}");
    }
    for arguments in [&[][..], &["frobnicate"], &["approvals"], &["demo", "--answer", "maybe"], &["approvals", "show"]]
    {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_token_itself_is_no_flag() {
    assert_eq!(run(&["approvals", "list", "--token", "cst_secret"]).code, 2);
    assert!(!run(&["approvals", "list", "--help"]).out.contains("--token <"));
}

#[test]
fn serve_without_a_policy_does_not_start() {
    let folder = support::Folder::new("no-policy");
    let ran = support::Countersign::new(&["serve", "--policy", "none.yaml", "--sqlite", "x.db"]).within(&folder).run();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("none.yaml"), "{ran:?}");
    assert!(!folder.path("x.db").exists(), "nothing is made before everything is known to be right");
}
