//! The one gate, through gRPC: every reason in its order, and once means once.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

#[tokio::test]
async fn each_binding_changed_alone_is_refused_with_its_own_reason_and_leaves_the_approval_usable() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let objective = |transcript: &str, id: &str, revision| {
        Some(Objective { transcript: transcript.to_owned(), id: id.to_owned(), revision })
    };
    let text = str::to_owned;
    let changed = [
        (Invocation { principal: text("dana"), ..email() }, "PRINCIPAL_MISMATCH"),
        (Invocation { connector: text("outlook"), ..email() }, "CONNECTOR_MISMATCH"),
        (Invocation { action: text("GMAIL_REPLY"), ..email() }, "ACTION_MISMATCH"),
        (Invocation { conversation: text("conversation-2"), ..email() }, "CONVERSATION_MISMATCH"),
        (Invocation { conversation: String::new(), ..email() }, "CONVERSATION_MISMATCH"),
        (Invocation { agent: text("other-agent"), ..email() }, "AGENT_MISMATCH"),
        (Invocation { account: text("mailbox-b"), ..email() }, "ACCOUNT_MISMATCH"),
        (Invocation { account: String::new(), ..email() }, "ACCOUNT_MISMATCH"),
        (Invocation { objective: objective("t1", "input-1", 2), ..email() }, "OBJECTIVE_CHANGED"),
        (Invocation { objective: objective("t2", "input-1", 1), ..email() }, "OBJECTIVE_CHANGED"),
        (Invocation { objective: objective("t1", "input-2", 1), ..email() }, "OBJECTIVE_CHANGED"),
        (Invocation { objective: None, ..email() }, "OBJECTIVE_CHANGED"),
        (
            Invocation { arguments_json: text(r#"{"to":"b@example.com","body":"Hello"}"#), ..email() },
            "ARGUMENTS_CHANGED",
        ),
        (Invocation { arguments_json: String::new(), ..email() }, "ARGUMENTS_CHANGED"),
        (
            Invocation { tool_definition_digest: format!("td1:{}", "0".repeat(64)), ..email() },
            "TOOL_DEFINITION_CHANGED",
        ),
    ];
    for (invocation, why) in changed {
        refused(sidecar.consume(&token, invocation).await, Code::FailedPrecondition, why);
    }
    let unchanged = sidecar
        .agent()
        .get_approval(AgentServiceGetApprovalRequest {
            principal: text("olga"),
            agent: text("assistant"),
            approval_id: approval.id.clone(),
        })
        .await
        .unwrap()
        .into_inner()
        .approval
        .unwrap();
    assert_eq!(unchanged, approval, "refusals leave the approval as it was");
    let other_connection = Invocation { connection: text("connection-2"), labels: Default::default(), ..email() };
    sidecar.consume(&token, other_connection).await.unwrap();
}

#[tokio::test]
async fn of_a_hundred_simultaneous_consumes_exactly_one_succeeds() {
    let sidecar = Sidecar::start().await;
    let (_, token) = sidecar.approved(email()).await;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..100 {
        let mut agent = sidecar.agent_as(if index % 2 == 0 { "runtime" } else { "runtime-2" });
        let request = ConsumeRequest {
            consume_token: token.clone(),
            attempt_id: new_attempt(),
            invocation: Some(email()),
            retry_of: String::new(),
        };
        calls.spawn(async move { agent.consume(request).await });
    }
    let results = calls.join_all().await;
    let (passed, kept): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(passed.len(), 1);
    for result in kept {
        refused(result, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    }
}

#[tokio::test]
async fn an_approval_is_used_before_its_deadline_and_not_at_it() {
    for (micros, passes) in [(-1, true), (0, false), (1, false)] {
        let sidecar = Sidecar::start().await;
        let (_, token) = sidecar.approved(email()).await;
        // The store's time moves by itself only with its clocks, so this lands where it says.
        sidecar.clock.advance(Duration::from_secs(600));
        let (approval, token_2) = {
            let other = Invocation { conversation: "conversation-2".to_owned(), ..email() };
            sidecar.approved(other).await
        };
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        let use_by = approval.use_by.unwrap();
        let use_by = use_by.seconds * 1_000_000 + i64::from(use_by.nanos) / 1_000;
        let now = sidecar.running().engine().store().estimated_time().micros();
        sidecar.clock.advance(Duration::from_micros(u64::try_from(use_by - now + micros).unwrap()));
        let other = Invocation { conversation: "conversation-2".to_owned(), ..email() };
        let result = sidecar.consume(&token_2, other).await;
        if passes {
            result.unwrap();
        } else {
            refused(result, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        }
    }
}

/// Makes a call another one.
type Change = fn(&mut Invocation);

/// Everything that an approval is bound to, changed, in the order in which a difference is told.
const BINDINGS: [(&str, Change); 9] = [
    ("PRINCIPAL_MISMATCH", |call| call.principal = "dana".to_owned()),
    ("CONNECTOR_MISMATCH", |call| call.connector = "outlook".to_owned()),
    ("ACTION_MISMATCH", |call| call.action = "GMAIL_REPLY".to_owned()),
    ("CONVERSATION_MISMATCH", |call| call.conversation = "another".to_owned()),
    ("AGENT_MISMATCH", |call| call.agent = "other-agent".to_owned()),
    ("ACCOUNT_MISMATCH", |call| call.account = "mailbox-b".to_owned()),
    ("OBJECTIVE_CHANGED", |call| call.objective = None),
    ("ARGUMENTS_CHANGED", |call| call.arguments_json = r#"{"to":"b@example.com","body":"Hello"}"#.to_owned()),
    ("TOOL_DEFINITION_CHANGED", |call| call.tool_definition_digest = format!("td1:{}", "0".repeat(64))),
];

#[tokio::test]
async fn of_two_bindings_changed_the_earlier_is_named() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    for (index, (earlier, change)) in BINDINGS.iter().enumerate() {
        for (_, change_later) in &BINDINGS[index..] {
            let mut invocation = email();
            change_later(&mut invocation);
            change(&mut invocation);
            refused(sidecar.consume(&token, invocation).await, Code::FailedPrecondition, earlier);
        }
    }
    let mut everything = email();
    BINDINGS.iter().for_each(|(_, change)| change(&mut everything));
    refused(sidecar.consume(&token, everything).await, Code::FailedPrecondition, "PRINCIPAL_MISMATCH");
    assert_eq!(sidecar.get(&approval).await, approval);
}

/// A rule of the harness's policy, to be made another one.
const PRESS: &str = "when: \"has(args.to) && args.to.endsWith('@press.example')\"\n        effect: deny";

/// An approval in some state, made under a token of its own.
struct Row {
    name: String,
    approval: Approval,
    token: String,
    /// Why the state refuses, if it does.
    state: Option<&'static str>,
    /// Why the retry refuses, if it does.
    retry: Option<&'static str>,
}

/// Brings an approval, asked as a retry of `retried` if that is given, into the state that refuses with `why`.
async fn row(sidecar: &Sidecar, how: &str, why: Option<&'static str>, retried: Option<&str>) -> Row {
    let name = format!("{how}, retry: {}", retried.is_some());
    let invocation = in_conversation(&name, email());
    let asked = sidecar.ask_to_retry(retried.unwrap_or_default(), invocation.clone()).await.unwrap();
    let (approval, token) = (asked.approval.unwrap(), asked.consume_token);
    if !matches!(how, "pending" | "denied" | "cancelled" | "undecided" | "undecided, written down") {
        sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    }
    match how {
        "denied" => drop(sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap()),
        "cancelled" | "cancelled late" => drop(sidecar.cancel(&approval).await.unwrap()),
        "revoked" => drop(sidecar.revoke("olga", &approval).await.unwrap()),
        "consumed" => drop(sidecar.consume(&token, invocation).await.unwrap()),
        _ => {}
    }
    Row { name, approval, token, state: why, retry: retried.map(|_| "RETRY_NOT_NEEDED") }
}

async fn rows_in_every_state(sidecar: &Sidecar, retried: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for retried in [None, Some(retried)] {
        for how in ["undecided", "unused", "undecided, written down", "unused, written down"] {
            rows.push(row(sidecar, how, Some("APPROVAL_EXPIRED"), retried).await);
        }
    }
    sidecar.advance(Duration::from_secs(3_600));
    for row in rows.iter().filter(|row| row.name.contains("written down")) {
        let late = sidecar.cancel(&row.approval).await;
        refused(late, Code::FailedPrecondition, "APPROVAL_EXPIRED");
    }
    for retried in [None, Some(retried)] {
        for (how, why) in [
            ("pending", Some("APPROVAL_PENDING")),
            ("denied", Some("APPROVAL_DENIED")),
            ("cancelled", Some("APPROVAL_CANCELLED")),
            ("cancelled late", Some("APPROVAL_CANCELLED")),
            ("revoked", Some("APPROVAL_REVOKED")),
            ("consumed", Some("APPROVAL_CONSUMED")),
            ("approved", None),
        ] {
            rows.push(row(sidecar, how, why, retried).await);
        }
    }
    for row in &mut rows {
        row.approval = sidecar.get(&row.approval).await;
    }
    rows
}

/// The whole order over real rows: a token, a binding, an attempt, a state, a retry and a policy may each stand against a
/// call, in every combination; the first is named, and every row stays as it was.
#[tokio::test]
async fn of_everything_that_stands_against_a_call_the_first_in_the_order_is_named() {
    let mut sidecar = Sidecar::start().await;
    let used = new_attempt();
    let retried = sidecar.attempt("", &used, fetch()).await.unwrap().permit.unwrap().execution_id;
    let rows = rows_in_every_state(&sidecar, &retried).await;
    sidecar.report(&retried, Outcome::Succeeded, "seen in the mailbox").await.unwrap();

    let denies = POLICY.replace(PRESS, "when: \"true\"\n        effect: deny");
    let raises =
        POLICY.replace(PRESS, "effect: confirm\n        approvers: [{ any_of: [\"group:finance\"], quorum: 2 }]");
    assert!(denies != POLICY && raises != POLICY);
    for (policy, today) in [(POLICY, None), (&denies, Some("POLICY_DENIED")), (&raises, Some("CONFIRMATION_RAISED"))] {
        sidecar.restart_under(policy).await;
        let agent = sidecar.agent();
        let mut calls = tokio::task::JoinSet::new();
        for row in &rows {
            for (token, token_refuses) in [(row.token.as_str(), None), ("cs1.x", Some("TOKEN_INVALID"))] {
                for binding in std::iter::once(None).chain(BINDINGS.iter().map(Some)) {
                    for (attempt, attempt_refuses) in [(new_attempt(), None), (used.clone(), Some("ATTEMPT_ID_REUSED"))]
                    {
                        // A token that is none: alone, and with one of all that follows.
                        if token_refuses.is_some() && binding.is_some_and(|(why, _)| *why != BINDINGS[8].0) {
                            continue;
                        }
                        let why = token_refuses
                            .or(binding.map(|(why, _)| *why))
                            .or(attempt_refuses)
                            .or(row.state)
                            .or(row.retry)
                            .or(today);
                        let Some(why) = why else { continue };
                        let mut invocation = in_conversation(&row.name, email());
                        if let Some((_, change)) = binding {
                            change(&mut invocation);
                        }
                        let request = attempted(token, &attempt, invocation);
                        let scene =
                            format!("{}, {token}, {:?}, {attempt}, {today:?}", row.name, binding.map(|it| it.0));
                        let mut agent = agent.clone();
                        calls.spawn(async move { (scene, why, agent.consume(request).await) });
                    }
                }
            }
        }
        assert!(calls.len() > 400, "{}", calls.len());
        for (scene, why, result) in calls.join_all().await {
            let status = result.expect_err(&scene);
            assert_eq!((status.code(), reason(&status).as_str()), (code_of(why), why), "{scene}");
        }
        for row in &rows {
            assert_eq!(sidecar.get(&row.approval).await, row.approval, "{}", row.name);
        }
    }
    sidecar.restart_under(POLICY).await;
    for row in rows.iter().filter(|row| row.state.is_none() && row.retry.is_none()) {
        sidecar.consume(&row.token, in_conversation(&row.name, email())).await.unwrap();
    }
}

#[tokio::test]
async fn without_a_token_the_first_in_the_order_is_named() {
    let sidecar = Sidecar::start().await;
    let used = new_attempt();
    let succeeded = sidecar.attempt("", &used, fetch()).await.unwrap().permit.unwrap().execution_id;
    sidecar.report(&succeeded, Outcome::Succeeded, "").await.unwrap();
    let foreign = sidecar.started(Invocation { principal: "dana".to_owned(), ..fetch() }).await.execution_id;
    let foreign_agent = sidecar.started(Invocation { agent: "other-1".to_owned(), ..fetch() }).await.execution_id;
    let unknown = new_attempt();
    let another = |invocation: Invocation| in_conversation("another", invocation);
    let press = Invocation { arguments_json: r#"{"to":"x@press.example"}"#.to_owned(), ..email() };
    for (attempt, attempt_refuses) in [(None, None), (Some(&used), Some("ATTEMPT_ID_REUSED"))] {
        for (invocation, today) in [
            (another(fetch()), None),
            (another(press.clone()), Some("POLICY_DENIED")),
            (another(email()), Some("APPROVAL_REQUIRED")),
        ] {
            for (retry_of, retry_refuses) in [
                ("", None),
                (unknown.as_str(), Some("EXECUTION_NOT_FOUND")),
                (foreign.as_str(), Some("EXECUTION_NOT_FOUND")),
                (foreign_agent.as_str(), Some("EXECUTION_NOT_FOUND")),
                (succeeded.as_str(), Some("RETRY_NOT_NEEDED")),
            ] {
                let attempt = attempt.cloned().unwrap_or_else(new_attempt);
                let request =
                    ConsumeRequest { retry_of: retry_of.to_owned(), ..attempted("", &attempt, invocation.clone()) };
                let result = sidecar.agent().consume(request).await;
                match attempt_refuses.or(today).or(retry_refuses) {
                    Some(why) => drop(refused(result, code_of(why), why)),
                    None => drop(result.unwrap()),
                }
            }
        }
    }
}

#[tokio::test]
async fn without_a_token_the_policy_alone_decides() {
    let sidecar = Sidecar::start().await;
    let allowed = sidecar.consume("", fetch()).await.unwrap();
    assert_eq!((allowed.decision(), allowed.reason.as_str(), allowed.replayed), (Decision::Allow, "ALLOWED", false));
    let permit = allowed.permit.unwrap();
    assert_eq!(permit.approval_id, "");
    assert_eq!(micros(permit.report_by), sidecar.now() + 300_000_000);

    let asks = refused(sidecar.consume("", email()).await, Code::FailedPrecondition, "APPROVAL_REQUIRED");
    assert_eq!(told(&asks, "policy_reason"), "CONFIRMATION_BY_MODE");
    let asks = refused(sidecar.consume("", deletion()).await, Code::FailedPrecondition, "APPROVAL_REQUIRED");
    assert_eq!(told(&asks, "policy_reason"), "CONFIRMATION_BY_RULE");
    let text = str::to_owned;
    for (invocation, why) in [
        (Invocation { connector: text("nowhere"), ..email() }, "CONNECTOR_UNKNOWN"),
        (Invocation { connector: text("off"), ..email() }, "CONNECTOR_DISABLED"),
        (Invocation { agent: text("stranger"), ..email() }, "AGENT_NOT_ALLOWED"),
        (Invocation { account: String::new(), ..email() }, "ACCOUNT_NOT_ALLOWED"),
        (Invocation { action: text("GMAIL_FORWARD"), ..email() }, "ACTION_UNKNOWN"),
        (Invocation { arguments_json: text(r#"{"to":"x@press.example"}"#), ..email() }, "DENIED_BY_RULE"),
    ] {
        let denied = refused(sidecar.consume("", invocation).await, Code::PermissionDenied, "POLICY_DENIED");
        assert_eq!(told(&denied, "policy_reason"), why);
    }
    // An approval that nobody presents lets nothing through.
    let (approval, _) = sidecar.approved(email()).await;
    refused(sidecar.consume("", email()).await, Code::FailedPrecondition, "APPROVAL_REQUIRED");
    assert_eq!(sidecar.get(&approval).await, approval);
    assert_eq!(sidecar.count("execution.started").await, 1);
}

#[tokio::test]
async fn whatever_is_no_token_of_this_sidecar_is_refused_in_one_text() {
    let sidecar = Sidecar::start().await;
    let stranger = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let (_, other) = sidecar.approved(in_conversation("another", email())).await;
    let (_, strangers) = stranger.approved(email()).await;
    let part = |token: &str, index: usize| token.split('.').nth(index).unwrap().to_owned();
    let of = |version: &str, key: &str, id: &str, mac: &str| format!("{version}.{key}.{id}.{mac}");
    let (key, id, mac) = (part(&token, 1), part(&token, 2), part(&token, 3));
    assert_eq!(of("cs1", &key, &id, &mac), token);
    let invalid = [
        "x".to_owned(),
        " ".to_owned(),
        "...".to_owned(),
        "cs1".to_owned(),
        "\u{202e}\0\n".to_owned(),
        strangers.clone(),
        of("cs1", &key, &part(&strangers, 2), &part(&strangers, 3)),
        of("cs1", &part(&strangers, 1), &id, &mac),
        of("cs1", &key, &part(&other, 2), &mac),
        of("cs1", &key, &id, &part(&other, 3)),
        of("cs1", &key, &id, &"0".repeat(64)),
        of("cs1", &key, &id, ""),
        of("cs2", &key, &id, &mac),
        of("cs1", &key, &id.to_uppercase(), &mac),
        of("cs1", &key, &id, &mac.to_uppercase()),
        of("cs1", "", &id, &mac),
        format!(" {token}"),
        format!("{token}\n"),
        format!("{token}."),
        format!("{token}{token}"),
        token[..token.len() - 1].to_owned(),
        token[..token.len() - 64].to_owned(),
        token[1..].to_owned(),
        approval.id.clone(),
        "x".repeat(1 << 20),
        format!("{token}{}", "0".repeat(1 << 20)),
        ".".repeat(1 << 20),
    ];
    let mut texts = std::collections::BTreeSet::new();
    for token in &invalid {
        let status = refused(sidecar.consume(token, email()).await, Code::FailedPrecondition, "TOKEN_INVALID");
        texts.insert(status.message().to_owned());
        assert_eq!(
            status.details(),
            refused(sidecar.consume("y", email()).await, Code::FailedPrecondition, "TOKEN_INVALID",).details()
        );
    }
    assert_eq!(texts.len(), 1);
    refused(sidecar.consume(&other, email()).await, Code::FailedPrecondition, "CONVERSATION_MISMATCH");
    assert_eq!(sidecar.get(&approval).await, approval);
    sidecar.consume(&token, email()).await.unwrap();
}

#[tokio::test]
async fn a_token_out_of_the_callers_bounds_tells_nothing_and_does_nothing() {
    let sidecar = Sidecar::start().await;
    let of = |principal: &str| Invocation { principal: principal.to_owned(), ..email() };
    let request = RequestApprovalRequest { invocation: Some(of("tenant-a")), ..Default::default() };
    let asked = sidecar.agent_as("tenant-a").request_approval(request).await.unwrap().into_inner();
    let (approval, token) = (asked.approval.unwrap(), asked.consume_token);
    let try_as = async |caller: &str, token: &str, principal: &str| {
        sidecar.attempt_as(caller, token, &new_attempt(), of(principal)).await
    };
    for state in ["pending", "approved", "consumed"] {
        if state == "approved" {
            sidecar.decide("tenant-a", &approval.id, Verdict::Approve).await.unwrap();
        }
        if state == "consumed" {
            try_as("tenant-a", &token, "tenant-a").await.unwrap();
        }
        let before = sidecar.get(&approval).await;
        // As itself: as if the token were none at all.
        let own = try_as("tenant-b", &token, "tenant-b").await;
        let own = refused(own, Code::FailedPrecondition, "TOKEN_INVALID");
        let none = try_as("tenant-b", "cs1.none", "tenant-b").await;
        let none = refused(none, Code::FailedPrecondition, "TOKEN_INVALID");
        assert_eq!(learnt(&own), learnt(&none), "{state}");
        // As the other: nothing of the token is looked at.
        for caller in ["tenant-b", "nobody"] {
            let theirs = try_as(caller, &token, "tenant-a").await;
            let theirs = refused(theirs, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
            let none = try_as(caller, "cs1.none", "tenant-a").await;
            let none = refused(none, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
            assert_eq!(learnt(&theirs), learnt(&none), "{state}");
            for secret in [approval.id.as_str(), token.as_str(), "tenant-a"] {
                assert!(!theirs.message().contains(secret) && !own.message().contains(secret));
            }
        }
        assert_eq!(sidecar.get(&approval).await, before);
    }
}

#[tokio::test]
async fn no_caller_reads_a_token_but_the_one_that_asked() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(email()).await;
    let request = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let other = sidecar.agent_as("runtime-2").request_approval(request).await.unwrap().into_inner();
    assert!(!other.existing, "another caller's question is another question");
    assert_ne!(other.approval.unwrap().id, approval.id);
    assert_ne!(other.consume_token, token);
    // Within its bounds another caller may use what it was handed, once.
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.attempt_as("runtime-2", &token, &new_attempt(), email()).await.unwrap();
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
}
