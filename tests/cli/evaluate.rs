//! `countersign evaluate`.

use crate::support::{Countersign, Folder, GMAIL, Ran, harmless};

fn evaluate(policy: &str, call: &[&str], input: &str) -> Ran {
    Countersign::new(&["evaluate", "--policy", policy, "--principal", "dana", "--agent", "assistant"])
        .arguments(call)
        .arguments(&["-"])
        .input(input)
        .run()
}

fn gmail(action: &str, rest: &[&str], input: &str) -> Ran {
    let call = ["--connector", "gmail", "--account", "work-mailbox-a", "--action", action];
    evaluate(GMAIL, &[&call[..], rest].concat(), input)
}

#[test]
fn the_exit_code_is_whether_it_may_run() {
    let allowed = gmail("GMAIL_FETCH_EMAILS", &[], "");
    assert_eq!(allowed.code, 0, "{allowed:?}");
    allowed.in_order(&["decision", "ALLOW\n", "ALLOWED", "fingerprint", "v1:", "revision"]);
    let asked = gmail("GMAIL_SEND_EMAIL", &[], r#"{"recipient_email":"eve@rival.example"}"#);
    assert_eq!(asked.code, 1, "{asked:?}");
    asked.in_order(&[
        "CONFIRMATION_REQUIRED\n",
        "CONFIRMATION_BY_RULE",
        "outside-recipients (confirm)",
        "1 of owner",
        "1 of group:finance",
        "5m\n",
        "10m\n",
    ]);
    let denied = gmail("GMAIL_DELETE_EMAIL", &[], "");
    assert_eq!(denied.code, 1, "{denied:?}");
    denied.in_order(&["DENY\n", "SCOPE_EXCEEDS_CEILING"]);
}

#[test]
fn explain_tells_every_check_and_the_one_that_decided() {
    let ran = gmail("GMAIL_SEND_EMAIL", &["--explain"], r#"{"recipient_email":"eve@acme.com"}"#);
    ran.in_order(&[
        "   1 connector_known",
        "passed",
        "> 12 no_confirmation_asked",
        "decided",
        "  13 allowed",
        "not reached",
    ]);
    let ran = gmail("GMAIL_SEND_EMAIL", &["--explain", "--json"], r#"{"recipient_email":"eve@acme.com"}"#);
    let answer = ran.json();
    assert_eq!(
        (ran.code, &answer["decision"], &answer["reason"]),
        (1, &"CONFIRMATION_REQUIRED".into(), &"CONFIRMATION_BY_MODE".into())
    );
    assert_eq!(answer["requirement"]["clauses"], serde_json::json!([{ "any_of": ["owner"], "quorum": 1 }]));
    assert_eq!(answer["requirement"]["decide_within"], "5m");
    let checks = answer["checks"].as_array().unwrap();
    let decided: Vec<_> = checks.iter().filter(|check| check["outcome"] == "DECIDED").collect();
    assert_eq!((decided.len(), &decided[0]["number"]), (1, &12.into()));
    let plain = gmail("GMAIL_FETCH_EMAILS", &["--json"], "").json();
    assert_eq!((&plain["checks"], &plain["requirement"]), (&serde_json::json!([]), &serde_json::Value::Null));
}

#[test]
fn the_fingerprint_is_the_one_that_fingerprint_prints() {
    let arguments = r#"{"b":1.0,"a":[]}"#;
    let answer = gmail("GMAIL_SEND_EMAIL", &["--json"], arguments).json();
    let call = ["--connector", "gmail", "--account", "work-mailbox-a", "--action", "GMAIL_SEND_EMAIL"];
    let printed = Countersign::new(&["fingerprint", "-"]).arguments(&call).input(arguments).run();
    assert_eq!(answer["fingerprint"], printed.out.trim());
}

#[test]
fn the_time_and_the_definition_are_what_they_are_said_to_be() {
    let folder = Folder::new("evaluate");
    let policy = folder.write(
        "policy.yaml",
        "version: countersign.policy/v1\nconnectors:\n  c:\n    accounts: none\n    ceiling: admin\n    confirm: never\n\
         \x20   actions: { X: { scope: read, curated: true } }\n    rules:\n      - name: closed\n        when: \"now < timestamp('2030-01-01T00:00:00Z')\"\n        effect: deny\n",
    );
    for (now, code) in
        [("2029-12-31T23:59:59.999999Z", 1), ("2030-01-01T00:00:00Z", 0), ("2030-01-01T01:00:00+02:00", 1)]
    {
        let call = ["--connector", "c", "--action", "X", "--now", now];
        let ran = evaluate(policy.to_str().unwrap(), &call, "");
        assert_eq!(ran.code, code, "{now}: {ran:?}");
    }
}

#[test]
fn what_cannot_be_asked_is_told_apart_from_a_no() {
    let call = ["--connector", "gmail", "--action", "X"];
    assert_eq!(evaluate("/does/not/exist.yaml", &call, "").code, 3);
    let folder = Folder::new("evaluate-bad");
    let policy =
        folder.write("policy.yaml", "version: countersign.policy/v1\nconnectors: { c: { ceiling: x, y: 1 } }\n");
    let ran = evaluate(policy.to_str().unwrap(), &call, "");
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(ran.err.contains("connectors.c.ceiling") && ran.err.contains("connectors.c.y"), "{ran:?}");
    let ran = gmail("GMAIL_SEND_EMAIL", &[], r#"{"a":1,"a":2}"#);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("the arguments are refused"), "{ran:?}");
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(256 * 1024));
    assert!(gmail("GMAIL_SEND_EMAIL", &[], &large).err.contains("262144"), "arguments have their own limit");
    for wrong in [
        &["--connector", "", "--action", "X"][..],
        &["--connector", "c", "--action", "X\u{202e}"],
        &["--connector", "c", "--action", "X", "--now", "yesterday"],
        &["--connector", "c", "--action", "X", "--definition", "td1:xyz"],
        &["--connector", "c"],
    ] {
        assert_eq!(evaluate(GMAIL, wrong, "").code, 2, "{wrong:?}");
    }
}

#[test]
fn arguments_that_break_a_rule_are_not_printed() {
    let ran = gmail("GMAIL_SEND_EMAIL", &["--explain"], "{\"recipient_email\":{\"s3cret\\u001b[2J\":1}}");
    assert_eq!(ran.code, 1);
    ran.in_order(&["outside-recipients (confirm); in error, which counts as"]);
    assert!(!ran.out.contains("s3cret"), "{ran:?}");
    harmless(&ran.out);
}
