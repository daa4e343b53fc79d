//! Sizes, numbers and borders: what is taken to its bound, what is beyond it, and refusals that still fit a header.

use crate::grpc::harness::*;
use crate::grpc::hostile::{OPEN, proper};
use crate::grpc::moves::*;
use countersign::proto::*;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::JoinSet;
use tonic::Code;

#[tokio::test]
async fn a_message_that_is_too_large_or_no_message_leaves_the_connection_alive() {
    let sidecar = Sidecar::start().await;
    let mut agent = sidecar.agent();
    let huge = Invocation { arguments_json: format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20)), ..email() };
    let status = agent.evaluate(EvaluateRequest { invocation: Some(huge), explain: false }).await.unwrap_err();
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status:?}");
    // The same connection serves on.
    agent.evaluate(EvaluateRequest { invocation: Some(email()), explain: false }).await.unwrap();
    let rpc = "/countersign.v1.AgentService/Evaluate";
    for garbage in
        [&b"\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\x0a\x80", &[0x0a; 70_000]]
    {
        let mut call =
            crate::grpc::wire::RawCall::open(sidecar.running().address(), rpc, Some(&token("runtime"))).await;
        call.send(garbage).await;
        assert!(!call.gets_an_answer().await, "{garbage:?}");
    }
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn characters_moved_across_the_border_of_two_fields_make_another_question() {
    let sidecar = Arc::new(Sidecar::with(OPEN, (1_000_000, 1_000_000)).await);
    fn put(invocation: &mut Invocation, field: usize, text: String) {
        let mut objective = invocation.objective.clone().unwrap();
        match field {
            0 => invocation.principal = text,
            1 => invocation.agent = text,
            2 => invocation.conversation = text,
            3 => invocation.account = text,
            4 => invocation.action = text,
            5 => objective.transcript = text,
            _ => objective.id = text,
        }
        invocation.objective = Some(objective);
    }
    let mut pairs = JoinSet::new();
    for first in 0..7 {
        for second in (0..7).filter(|second| *second != first) {
            for moved in ["x", "\"", ",", "\",\"", ":", "\\", "|", "/", "}", "\u{1F600}", "null"] {
                let mut here = email();
                put(&mut here, first, format!("a{moved}"));
                put(&mut here, second, "b".to_owned());
                let mut there = email();
                put(&mut there, first, "a".to_owned());
                put(&mut there, second, format!("{moved}b"));
                let sidecar = Arc::clone(&sidecar);
                pairs.spawn(async move {
                    let here = sidecar.request(here).await.unwrap().approval.unwrap();
                    let there = sidecar.request(there).await.unwrap().approval.unwrap();
                    assert_ne!(here.id, there.id);
                    // Principal, agent and conversation are no part of the fingerprint; the rest is.
                    let covered = first > 2 || second > 2;
                    assert_eq!(here.fingerprint != there.fingerprint, covered, "{first} {second} {moved:?}");
                });
            }
        }
    }
    pairs.join_all().await;
}

#[tokio::test]
async fn labels_are_bounded_in_number_and_size() {
    let sidecar = Sidecar::start().await;
    let with = |labels: Vec<(String, String)>| Invocation { labels: labels.into_iter().collect(), ..fetch() };
    let numbered = |count: usize| (0..count).map(|index| (format!("label-{index}"), "x".to_owned())).collect();
    let one = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for taken in [
        numbered(16),
        one(&"n".repeat(64), &"v".repeat(256)),
        one(&"\u{e9}".repeat(32), &"\u{e9}".repeat(128)),
        one("empty value", ""),
    ] {
        sidecar.evaluate(with(taken)).await.unwrap();
    }
    for refused in [
        numbered(17),
        numbered(10_000),
        one(&"n".repeat(65), "v"),
        one(&format!("{}a", "\u{e9}".repeat(32)), "v"),
        one("n", &"v".repeat(257)),
        one("", "v"),
        one(" n", "v"),
        one("n", "v "),
        one("n", "\u{202e}"),
        one("n\0", "v"),
    ] {
        wrong(sidecar.evaluate(with(refused)).await, "invocation.labels");
    }
}

#[tokio::test]
async fn a_request_that_is_wrong_all_over_is_told_within_what_a_status_may_carry() {
    let sidecar = Sidecar::start().await;
    let bad = || "\u{202e}".repeat(80);
    let invocation = Invocation {
        principal: bad(),
        agent: bad(),
        conversation: bad(),
        connector: bad(),
        account: bad(),
        connection: bad(),
        action: bad(),
        arguments_json: format!("{{\"{}\":[}}", "\u{1F600}".repeat(5_000)),
        objective: Some(Objective { transcript: bad(), id: bad(), revision: u64::MAX }),
        tool_definition_digest: bad(),
        labels: (0..16).map(|index| (format!("{}{index}", bad()), bad())).collect(),
    };
    let request = RequestApprovalRequest {
        wait_id: String::new(),
        request_id: bad(),
        invocation: Some(invocation),
        retry_of: bad(),
        agent_note: "x".repeat(501),
        decide_within: span(-1, 0),
    };
    let status = sidecar.request_as("runtime", request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    proper(&status, "wrong all over");
    assert_eq!(
        wrong_fields(&status),
        [
            "invocation.principal",
            "invocation.agent",
            "invocation.conversation",
            "invocation.connector",
            "invocation.account",
            "invocation.connection",
            "invocation.action",
            "invocation.objective.transcript",
        ],
        "the first eight, in the order of the fields"
    );
    assert!(status.message().contains("more)"), "{}", status.message());
}

#[tokio::test]
async fn a_denial_by_many_rules_of_long_names_is_told_within_what_a_status_may_carry() {
    let rules: String = (0..60)
        .map(|index| format!("      - {{ name: \"{index}{}\", effect: deny }}\n", "\u{1F600}".repeat(60)))
        .collect();
    let policy = format!(
        "version: countersign.policy/v1\nconnectors:\n  gmail:\n    ceiling: admin\n    unlisted: admin\n    rules:\n{rules}"
    );
    let sidecar = Sidecar::under(&policy).await;
    let long = Invocation { action: "\u{a0}".repeat(100) + "a", ..email() };
    let long = Invocation { action: format!("a{}", long.action), ..long };
    for invocation in [email(), long] {
        let status = refused(sidecar.request(invocation).await, Code::PermissionDenied, "POLICY_DENIED");
        proper(&status, "many rules");
        let (named, left_out) = (told(&status, "rules"), told(&status, "rules_left_out"));
        assert!(named.starts_with("0\u{1F600}"), "the first in the policy's order");
        assert_eq!(named.split(',').count() + left_out.parse::<usize>().unwrap(), 60);
    }
}

#[tokio::test]
async fn revisions_and_spans_are_taken_to_their_bounds_and_no_further() {
    let sidecar = Sidecar::start().await;
    let most = (1_u64 << 53) - 1;
    let with = |revision: u64| Invocation {
        objective: Some(Objective { transcript: "t1".to_owned(), id: "input-1".to_owned(), revision }),
        ..email()
    };
    let mut fingerprints = HashSet::new();
    for revision in [0, 1, most - 1, most] {
        let approval = sidecar.request(with(revision)).await.unwrap().approval.unwrap();
        assert_eq!(approval.objective.unwrap().revision, revision);
        assert!(fingerprints.insert(approval.fingerprint));
    }
    for revision in [most + 1, u64::MAX] {
        wrong(sidecar.evaluate(with(revision)).await, "invocation.objective.revision");
    }
    // All three together, or none.
    let status = sidecar.evaluate(Invocation { objective: Some(Objective::default()), ..email() }).await.unwrap_err();
    assert_eq!(wrong_fields(&status), ["invocation.objective.transcript", "invocation.objective.id"]);

    let permit = sidecar.consume("", fetch()).await.unwrap().permit.unwrap();
    let took = |seconds: i64, nanos: i32| ReportOutcomeRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        execution_id: permit.execution_id.clone(),
        outcome: Outcome::Unknown.into(),
        duration: span(seconds, nanos),
        ..Default::default()
    };
    for (seconds, nanos) in
        [(-1, 0), (0, -1), (86_400, 1), (86_401, 0), (1, 1_000_000_000), (i64::MAX, 0), (i64::MIN, 0), (0, i32::MIN)]
    {
        wrong(sidecar.agent().report_outcome(took(seconds, nanos)).await, "duration");
    }
    let reported = sidecar.agent().report_outcome(took(86_400, 0)).await.unwrap().into_inner().execution.unwrap();
    assert_eq!(reported.duration, span(86_400, 0));
}

#[tokio::test]
async fn one_id_is_one_id_in_either_case_and_in_no_other_form() {
    let sidecar = Sidecar::start().await;
    let attempt = "0190b6c0-0000-7000-8000-00000000000a";
    let first = sidecar.attempt("", attempt, fetch()).await.unwrap();
    let upper = sidecar.attempt("", &attempt.to_uppercase(), fetch()).await.unwrap();
    assert!(upper.replayed);
    assert_eq!(upper.permit, first.permit);
    let plain = attempt.replace('-', "");
    let forms = [plain.as_str(), &format!("{{{attempt}}}"), &format!("urn:uuid:{attempt}"), &format!(" {attempt}")];
    for form in
        forms.into_iter().chain(["00000000-0000-0000-0000-000000000000", "0190b6c0-0000-7000-8000-00000000000g"])
    {
        wrong(sidecar.attempt("", form, fetch()).await, "attempt_id");
    }
    let (approval, _) = sidecar.ask(email()).await;
    let shouted = Approval { id: approval.id.to_uppercase(), ..approval.clone() };
    assert_eq!(sidecar.read(&shouted).await, approval);
    assert_eq!(sidecar.decide("olga", &shouted.id, Verdict::Approve).await.unwrap().id, approval.id);
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused_and_the_connection_serves_on() {
    let sidecar = Sidecar::start().await;
    let mut agent = sidecar.agent();
    let evaluate = || EvaluateRequest { invocation: Some(email()), explain: false };
    agent.evaluate(evaluate()).await.unwrap();
    for bytes in [20_000, 60_000] {
        let mut request = tonic::Request::new(evaluate());
        request.metadata_mut().insert("x-large", "x".repeat(bytes).parse().unwrap());
        assert!(agent.evaluate(request).await.is_err(), "{bytes}");
        agent.evaluate(evaluate()).await.unwrap();
    }
    sidecar.still_tells_the_story().await;
}
