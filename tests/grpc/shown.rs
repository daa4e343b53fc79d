//! What a person is shown of a question, and how long there is to answer it.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

#[tokio::test]
async fn decide_within_shortens_and_never_lengthens() {
    let sidecar = Sidecar::start().await;
    for (seconds, nanos, taken) in [
        (60, 0, 60_000_000),
        (1, 0, 1_000_000),
        (1, 500_000, 1_000_500),
        (600, 0, 600_000_000),
        (601, 0, 600_000_000),
        (604_800, 0, 600_000_000),
    ] {
        let request = RequestApprovalRequest {
            decide_within: span(seconds, nanos),
            ..asking(in_conversation(&format!("{seconds}.{nanos}")))
        };
        let approval = sidecar.request_as("runtime", request).await.unwrap().approval.unwrap();
        assert_eq!(micros(&approval.decide_by) - micros(&approval.create_time), taken, "{seconds}s {nanos}ns");
    }
    for (seconds, nanos) in [
        (0, 0),
        (0, 999_999_999),
        (-1, 0),
        (604_801, 0),
        (604_800, 1),
        (1, -1),
        (1, 1_000_000_000),
        (i64::MAX, 0),
        (i64::MIN, i32::MIN),
    ] {
        let request = RequestApprovalRequest { decide_within: span(seconds, nanos), ..asking(email()) };
        wrong(sidecar.request_as("runtime", request).await, "decide_within");
    }
    // The use of it is not shortened.
    let request = RequestApprovalRequest { decide_within: span(5, 0), ..asking(in_conversation("short")) };
    let approval = sidecar.request_as("runtime", request).await.unwrap().approval.unwrap();
    sidecar.advance(Duration::from_secs(4));
    let approved = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(micros(&approved.use_by) - micros(&approved.decide_time), 600_000_000);
}

#[tokio::test]
async fn an_agents_note_is_bounded_neutralised_and_kept_apart() {
    let sidecar = Sidecar::start().await;
    let cases = [
        ("a".repeat(500), "a".repeat(500)),
        ("\u{1F600}".repeat(500), "\u{1F600}".repeat(500)),
        ("two\nlines\tand a tab".to_owned(), "two\nlines\tand a tab".to_owned()),
        ("\u{202E}desrever".to_owned(), r"\u{202E}desrever".to_owned()),
        ("\0\r\u{200B}\u{E000}\u{2028}".to_owned(), r"\u{0}\u{D}\u{200B}\u{E000}\u{2028}".to_owned()),
        ("<b>{\"a\":1}</b>'; --".to_owned(), "<b>{\"a\":1}</b>'; --".to_owned()),
        ("\u{202E}".repeat(500), r"\u{202E}".repeat(500)),
        (" ".to_owned(), " ".to_owned()),
    ];
    for (index, (note, shown)) in cases.into_iter().enumerate() {
        let request =
            RequestApprovalRequest { agent_note: note.clone(), ..asking(in_conversation(&format!("note {index}"))) };
        let approval = sidecar.request_as("runtime", request).await.unwrap().approval.unwrap();
        assert_eq!(approval.agent_note, shown, "{note:?}");
        assert_eq!(sidecar.seen_by("olga", &approval.id).await.unwrap().agent_note, shown);
        assert!(note.len() < 20 || !approval.message.contains(&shown), "the sentence is not the agent's");
    }
    for long in ["a".repeat(501), "\u{1F600}".repeat(501), "a".repeat(1 << 20)] {
        let request = RequestApprovalRequest { agent_note: long, ..asking(email()) };
        wrong(sidecar.request_as("runtime", request).await, "agent_note");
    }
}

#[tokio::test]
async fn a_person_is_shown_what_is_masked_cut_and_confusable_and_where() {
    let sidecar = Sidecar::start().await;
    let arguments = format!(
        r#"{{"to":"a@example.com","password":"hunter2","body":"{}","hidden":"a\u202eb","name":"p{}ypal"}}"#,
        "x".repeat(100_000),
        "\u{430}"
    );
    let invocation = Invocation {
        principal: "olg\u{430}".to_owned(),
        account: "w\u{43e}rk".to_owned(),
        conversation: "c\u{43e}nversation".to_owned(),
        connection: "conn\u{435}ction".to_owned(),
        arguments_json: arguments,
        ..email()
    };
    let request = RequestApprovalRequest { agent_note: "from p\u{430}ypal".to_owned(), ..asking(invocation) };
    let approval = sidecar.request_as("runtime", request).await.unwrap().approval.unwrap();
    assert!(!approval.preview_json.contains("hunter2"));
    assert!(approval.preview_json.len() < 100_000);
    let preview: serde_json::Value = serde_json::from_str(&approval.preview_json).unwrap();
    assert_eq!(preview["to"], "a@example.com");
    assert_eq!(preview["hidden"], r"a\u{202E}b");
    let of = |field: &str, pointer: &str| -> Vec<(OmissionKind, u64)> {
        let matching = approval.omissions.iter().filter(|one| one.field == field && one.pointer == pointer);
        matching.map(|one| (one.kind(), one.count)).collect()
    };
    assert_eq!(of("", "/password"), [(OmissionKind::Masked, 0)]);
    let [(OmissionKind::Truncated, cut)] = of("", "/body")[..] else { panic!("{:?}", approval.omissions) };
    let kept = preview["body"].as_str().unwrap().trim_end_matches('…').len() as u64;
    assert_eq!(kept + cut, 100_000);
    assert_eq!(of("", "/hidden"), [(OmissionKind::Neutralised, 1)]);
    assert_eq!(of("", "/name"), [(OmissionKind::Confusable, 1)]);
    assert_eq!(of("", "/to"), []);
    for field in ["principal", "account", "conversation", "connection", "agent_note"] {
        assert_eq!(of(field, ""), [(OmissionKind::Confusable, 1)], "{field}");
    }
    for field in ["agent", "connector", "action"] {
        assert_eq!(of(field, ""), [], "{field}");
    }
    let shown = sidecar.seen_by("olg\u{430}", &approval.id).await.unwrap();
    assert_eq!(shown, approval, "the person is shown the very same");
}

#[tokio::test]
async fn hidden_looking_blanks_in_identifiers_are_visible_in_the_sentence_and_kept_in_the_record() {
    let sidecar = Sidecar::start().await;
    let principal = "olga\u{a0}asks\u{2003}you";
    let (approval, _) = sidecar.ask(Invocation { principal: principal.to_owned(), ..email() }).await;
    assert_eq!(approval.principal, principal);
    assert!(approval.message.ends_with(r"on behalf of olga\u{A0}asks\u{2003}you."), "{}", approval.message);
}

#[tokio::test]
async fn a_retry_shows_what_is_known_of_the_first_attempt() {
    let sidecar = Sidecar::start().await;
    let cases = [
        (None, "started", true, "under way"),
        (Some(Outcome::Failed), "failed", false, "failed"),
        (Some(Outcome::Unknown), "unknown", true, "nobody knows"),
    ];
    for (outcome, known, may_do_twice, words) in cases {
        let invocation = in_conversation(known);
        let (_, token) = sidecar.approved(invocation.clone()).await;
        let permit = sidecar.consume(&token, invocation.clone()).await.unwrap().permit.unwrap();
        if let Some(outcome) = outcome {
            sidecar.report_on(&invocation, &permit.execution_id, outcome).await.unwrap();
        }
        let plain = sidecar.request(invocation.clone()).await.unwrap().approval.unwrap();
        let request = RequestApprovalRequest { retry_of: permit.execution_id.clone(), ..asking(invocation.clone()) };
        let answer = sidecar.request_as("runtime", request.clone()).await.unwrap();
        let retry = answer.approval.unwrap();
        assert_ne!(retry.id, plain.id, "a retry is another question than doing it once more");
        let retried = retry.retried.clone().unwrap();
        assert_eq!((retried.execution_id.as_str(), retried.state.as_str()), (permit.execution_id.as_str(), known));
        assert_eq!(retried.may_do_twice, may_do_twice);
        assert!(retry.message.contains(words), "{}", retry.message);
        sidecar.decide("olga", &retry.id, Verdict::Approve).await.unwrap();
        let second = sidecar.consume(&answer.consume_token, invocation.clone()).await.unwrap().permit.unwrap();
        assert_eq!(second.idempotency_key, permit.idempotency_key);
        sidecar.report_on(&invocation, &second.execution_id, Outcome::Succeeded).await.unwrap();
        let done = RequestApprovalRequest { retry_of: second.execution_id.clone(), ..asking(invocation) };
        let status = refused(sidecar.request_as("runtime", done).await, Code::FailedPrecondition, "RETRY_NOT_NEEDED");
        assert_eq!(told(&status, "execution_id"), second.execution_id);
    }
}
