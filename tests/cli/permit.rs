//! `countersign permit verify`: a permit of a running sidecar, checked as whoever makes the call checks it.

use crate::support::{Countersign, Folder, Ran, Serving, runtime, text};
use countersign::client::{self, Authenticated, Bearer};
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::{ConsumeRequest, Invocation};
use std::fs;

const ARGUMENTS: &str = r#"{"query":"from:kim","max":10}"#;

/// A permit to fetch mail, from a sidecar of its own.
fn permit(serving: &Serving) -> String {
    let token = fs::read_to_string(serving.token_file("agent")).unwrap();
    let bearer = Bearer::new(token.trim()).unwrap();
    runtime().block_on(async {
        let channel = client::channel_to(&serving.address).unwrap();
        let mut agent: AgentServiceClient<Authenticated> = client::agent(channel, bearer);
        let invocation = Invocation {
            principal: "dana".to_owned(),
            agent: "assistant".to_owned(),
            connector: "gmail".to_owned(),
            account: "work-mailbox-a".to_owned(),
            action: "GMAIL_FETCH_EMAILS".to_owned(),
            arguments_json: ARGUMENTS.to_owned(),
            ..Invocation::default()
        };
        let request = ConsumeRequest {
            attempt_id: "11111111-1111-4111-8111-111111111111".to_owned(),
            invocation: Some(invocation),
            ..ConsumeRequest::default()
        };
        agent.consume(request).await.unwrap().into_inner().permit.unwrap().permit_jwt
    })
}

fn verify(arguments: &[&str], permit: &str) -> Ran {
    Countersign::new(&["permit", "verify"]).arguments(arguments).input(permit).run()
}

fn reasons(ran: &Ran) -> Vec<String> {
    let told = ran.json();
    let refusals = told["refusals"].as_array().unwrap();
    refusals.iter().map(|refusal| refusal["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_permit_is_checked_against_the_call_that_is_about_to_be_made() {
    let serving = Serving::start("permit");
    let permit = permit(&serving);
    let url = format!("http://{}", serving.health_address);
    let folder = Folder::new("permit-files");
    // The same value, written otherwise.
    let arguments = folder.write("arguments.json", r#" { "max": 1e1, "query": "from:\u006bim" } "#);
    let call = [
        "--jwks",
        &url,
        "--arguments",
        text(&arguments),
        "--connector=gmail",
        "--account=work-mailbox-a",
        "--action=GMAIL_FETCH_EMAILS",
        "--principal=dana",
        "--agent=assistant",
        "--conversation=",
    ];
    let ran = verify(&call, &permit);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&["the permit holds", "countersign-permit", "dana", "work-mailbox-a", "GMAIL_FETCH_EMAILS"]);

    let file = folder.write("permit.jwt", format!("{permit}\n"));
    let ran = verify(&[&["--json", text(&file)][..], &call].concat(), "");
    assert_eq!((ran.code, ran.json()["valid"].as_bool()), (0, Some(true)), "{ran:?}");
    assert_eq!(ran.json()["claims"]["idempotency_key"].as_str().map(str::len), Some(36));

    let others = folder.write("others.json", r#"{"query":"from:kim","max":11}"#);
    for (changed, want) in [
        (&["--arguments", text(&others)][..], "PERMIT_ARGUMENTS_CHANGED"),
        (&["--connector=outlook"], "PERMIT_CONNECTOR_MISMATCH"),
        (&["--account="], "PERMIT_ACCOUNT_MISMATCH"),
        (&["--action=GMAIL_SEND_EMAIL"], "PERMIT_ACTION_MISMATCH"),
        (&["--principal=olga"], "PERMIT_PRINCIPAL_MISMATCH"),
        (&["--agent=other"], "PERMIT_AGENT_MISMATCH"),
        (&["--conversation=c-1"], "PERMIT_CONVERSATION_MISMATCH"),
        (&["--issuer=other"], "PERMIT_ISSUER_MISMATCH"),
        (&["--audience=other"], "PERMIT_AUDIENCE_MISMATCH"),
        (&["--at=2020-01-01T00:00:00Z"], "PERMIT_NOT_YET_VALID"),
        (&["--at=2999-01-01T00:00:00Z", "--tolerance=5m"], "PERMIT_EXPIRED"),
    ] {
        let ran = verify(&[&["--json", "--jwks", &url][..], changed].concat(), &permit);
        assert_eq!((ran.code, reasons(&ran)), (1, vec![want.to_owned()]), "{changed:?}");
        let ran = verify(&[&["--jwks", &url][..], changed].concat(), &permit);
        ran.in_order(&["the permit is refused", want]);
    }
    let many = verify(&["--json", "--jwks", &url, "--agent=x", "--account=y", "--at=2999-01-01T00:00:00Z"], &permit);
    assert_eq!(reasons(&many), ["PERMIT_EXPIRED", "PERMIT_AGENT_MISMATCH", "PERMIT_ACCOUNT_MISMATCH"]);
}

#[test]
fn the_commands_of_the_readme_do_what_they_say() {
    let serving = Serving::start("permit-readme");
    let folder = Folder::new("permit-readme-files");
    folder.write("permit.jwt", permit(&serving));
    folder.write("arguments.json", ARGUMENTS);
    let readme = include_str!("../../README.md").replace("127.0.0.1:7401", &serving.health_address);
    let (_, section) = readme.split_once("\n## Permits\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let command = section.lines().find_map(|line| line.strip_prefix("    cargo run -- ")).unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let ran = Countersign::new(&words).within(&folder).run();
    assert_eq!(ran.code, 0, "{ran:?}");
    folder.write("arguments.json", "{}");
    assert_eq!(Countersign::new(&words).within(&folder).run().code, 1);
}

#[test]
fn what_is_no_permit_of_these_keys_is_refused_and_what_cannot_be_read_is_told_apart() {
    let serving = Serving::start("permit-hostile");
    let permit = permit(&serving);
    let url = format!("http://{}/jwks.json", serving.health_address);
    let folder = Folder::new("permit-keys");
    let other =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let other = folder.write("other.json", other);
    let refused = |arguments: &[&str], permit: &str| reasons(&verify(&[&["--json"][..], arguments].concat(), permit));
    assert_eq!(refused(&["--jwks", text(&other)], &permit), ["PERMIT_KEY_UNKNOWN"]);
    let [header, payload, signature] = permit.split('.').collect::<Vec<_>>()[..] else { panic!("{permit}") };
    let none = "eyJhbGciOiJub25lIn0";
    for (token, want) in [
        (format!("{header}.{payload}x.{signature}"), "PERMIT_SIGNATURE_INVALID"),
        (format!("{none}.{payload}."), "PERMIT_ALGORITHM_REFUSED"),
        (format!("{header}.{payload}."), "PERMIT_MALFORMED"),
        (format!("{permit} "), "PERMIT_MALFORMED"),
        (String::new(), "PERMIT_MALFORMED"),
        ("\u{1b}[2J".to_owned(), "PERMIT_MALFORMED"),
        ("A".repeat(1 << 20), "PERMIT_MALFORMED"),
    ] {
        assert_eq!(refused(&["--jwks", &url], &token), [want], "{token:.100}");
    }
    let ran = verify(&["--jwks", &url], "\u{1b}]0;x.\u{202e}y.z");
    assert_eq!(ran.code, 1);
    crate::support::harmless(&ran.out);

    let list = folder.write("list.json", "[1]");
    let empty = folder.write("empty.json", "");
    let bad = format!("http://{}/readyz", serving.health_address);
    let nowhere = format!("http://{}/nothing", serving.health_address);
    for (arguments, code) in [
        (&["--jwks", text(&folder.path("absent.json"))][..], 3),
        (&["--jwks", text(&empty)], 3),
        (&["--jwks", &bad], 3),
        (&["--jwks", &nowhere], 3),
        (&["--jwks", "http://127.0.0.1:1"], 3),
        (&["--jwks", "https://127.0.0.1:1"], 2),
        (&["--jwks", "ftp://127.0.0.1"], 2),
        (&["--jwks", &url, "--arguments", text(&list)], 1),
        (&["--jwks", &url, "--arguments", text(&folder.path("absent.json"))], 3),
        (&["--jwks", &url, "--arguments", "-"], 2),
        (&["--jwks", &url, "--tolerance=6m"], 2),
        (&["--jwks", &url, "--tolerance=500ms"], 2),
        (&["--jwks", &url, "--at=yesterday"], 2),
        (&[], 2),
    ] {
        let ran = verify(arguments, &permit);
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{ran:?}");
    }
}
