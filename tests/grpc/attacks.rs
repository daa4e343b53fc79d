//! The attacks that the product exists to withstand, one test for each, by the name under which people ask about it. Each
//! shows that the attack gets nothing, that it is on record, and that whoever acts honestly still gets through. The rules
//! themselves are tested to their edges elsewhere; `docs/security.md` names these.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// The executions that there are, whoever's.
async fn executions(sidecar: &Sidecar) -> usize {
    let request = ListExecutionsRequest { page_size: 100, ..Default::default() };
    sidecar.operator().list_executions(request).await.unwrap().into_inner().executions.len()
}

/// The reasons of the gate's refusals that are on record about an approval, in order; of a policy's denial, the policy's.
async fn refusals(sidecar: &Sidecar, approval: &Approval) -> Vec<String> {
    let records = sidecar.audit_of(&approval.id).await;
    records.into_iter().filter(|record| record.kind == "consume.refused").map(|record| record.reason).collect()
}

/// The one thing that was approved is used with its own token, and once: the attack has neither used nor spoilt it.
async fn still_good_once(sidecar: &Sidecar, token: &str, call: Invocation) {
    let before = executions(sidecar).await;
    sidecar.consume(token, call.clone()).await.unwrap();
    refused(sidecar.consume(token, call).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    assert_eq!(executions(sidecar).await, before + 1);
}

/// An approved call, and the same call changed, which is refused for this reason and recorded with it.
async fn another_call_is_refused(change: impl FnOnce(&mut Invocation), why: &str) {
    let sidecar = Sidecar::start().await;
    let call = Invocation { tool_definition_digest: format!("td1:{}", "1".repeat(64)), ..email() };
    let (approval, token) = sidecar.approved(call.clone()).await;
    let mut other = call.clone();
    change(&mut other);
    refused(sidecar.consume(&token, other).await, Code::FailedPrecondition, why);
    assert_eq!(executions(&sidecar).await, 0);
    assert_eq!(refusals(&sidecar, &approval).await, [why]);
    still_good_once(&sidecar, &token, call).await;
}

#[tokio::test]
async fn forged_tokens_open_nothing() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let (other, other_token) = sidecar.approved(in_conversation("another", email())).await;
    let stranger = Sidecar::start().await;
    let (_, strange) = stranger.approved(email()).await;
    let parts: Vec<&str> = token.split('.').collect();
    let mac_of_other = other_token.rsplit('.').next().unwrap();
    let mut forgeries = vec![
        strange.clone(),
        // What another server secret signed, named as if this one had.
        format!("{}.{}.{}.{}", parts[0], parts[1], approval.id, strange.rsplit('.').next().unwrap()),
        format!("{}.{}.{}.{mac_of_other}", parts[0], parts[1], approval.id),
        format!("{}.{}.{}.{}", parts[0], parts[1], other.id, parts[3]),
        format!("{}.{}.{}.{}", parts[0], parts[1], approval.id, "0".repeat(64)),
        format!("{}.{}.{}.", parts[0], parts[1], approval.id),
        format!("cs0.{}.{}.{}", parts[1], approval.id, parts[3]),
        token.to_uppercase(),
        format!("{token}0"),
        format!(" {token}"),
        token.chars().take(token.len() - 1).collect(),
        approval.id.clone(),
    ];
    for index in 0..64 {
        // Each digit of the code changed alone.
        let mut mac: Vec<char> = parts[3].chars().collect();
        mac[index] = if mac[index] == '0' { '1' } else { '0' };
        let mac: String = mac.into_iter().collect();
        forgeries.push(format!("{}.{}.{}.{mac}", parts[0], parts[1], approval.id));
    }
    for forgery in forgeries {
        // A token whose very form is wrong may be told so as a field; none is ever told how near it came.
        let status = sidecar.consume(&forgery, email()).await.unwrap_err();
        assert!(["TOKEN_INVALID", "INVALID_REQUEST"].contains(&reason(&status).as_str()), "{status:?}");
    }
    assert_eq!(executions(&sidecar).await, 0);
    still_good_once(&sidecar, &token, email()).await;
}

#[tokio::test]
async fn a_token_replayed_after_its_use_opens_nothing() {
    let mut sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    sidecar.consume(&token, email()).await.unwrap();
    for _ in 0..3 {
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
        sidecar.restart().await;
    }
    sidecar.advance(Duration::from_secs(24 * 60 * 60));
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    assert_eq!(executions(&sidecar).await, 1);
    assert_eq!(refusals(&sidecar, &approval).await, ["APPROVAL_CONSUMED"; 4]);
}

#[tokio::test]
async fn changed_arguments_are_another_call() {
    let arguments = r#"{"to":"attacker@example.com","body":"Hello"}"#;
    another_call_is_refused(|call| call.arguments_json = arguments.to_owned(), "ARGUMENTS_CHANGED").await;
}

#[tokio::test]
async fn a_changed_tool_definition_is_another_tool() {
    let change = |call: &mut Invocation| call.tool_definition_digest = format!("td1:{}", "2".repeat(64));
    another_call_is_refused(change, "TOOL_DEFINITION_CHANGED").await;
    let hide = |call: &mut Invocation| call.tool_definition_digest.clear();
    another_call_is_refused(hide, "TOOL_DEFINITION_CHANGED").await;
}

#[tokio::test]
async fn a_changed_account_is_another_call() {
    another_call_is_refused(|call| call.account = "mailbox-b".to_owned(), "ACCOUNT_MISMATCH").await;
}

#[tokio::test]
async fn a_wrong_principal_cannot_use_an_approval() {
    another_call_is_refused(|call| call.principal = "dana".to_owned(), "PRINCIPAL_MISMATCH").await;
}

#[tokio::test]
async fn a_wrong_agent_cannot_use_an_approval() {
    another_call_is_refused(|call| call.agent = "other-agent".to_owned(), "AGENT_MISMATCH").await;
}

#[tokio::test]
async fn an_agents_credential_cannot_approve_its_own_question() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(email()).await;
    let decide = |principal: &str| DecideRequest {
        approval_id: approval.id.clone(),
        principal: principal.to_owned(),
        verdict: Verdict::Approve.into(),
        ..Default::default()
    };
    for caller in ["runtime", "runtime-2", "nobody", "ops"] {
        for principal in ["", "olga", "dana"] {
            let answer = sidecar.approver_as(caller).decide(decide(principal)).await;
            refused(answer, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
        }
    }
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    assert_eq!(executions(&sidecar).await, 0);
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    still_good_once(&sidecar, &token, email()).await;
}

#[tokio::test]
async fn a_requester_who_is_excluded_cannot_approve_what_was_asked_on_their_behalf() {
    let policy = "version: countersign.policy/v1\ngroups: { finance: [dana, olga] }\nconnectors:\n  gmail:\n    \
        ceiling: write\n    actions: { GMAIL_SEND_EMAIL: { scope: write, curated: true } }\n    confirm: never\n    \
        rules: [{ name: four-eyes, effect: confirm, approvers: [{ any_of: [\"group:finance\"] }], exclude_requester: true }]\n";
    let sidecar = Sidecar::under(policy).await;
    let (approval, token) = sidecar.ask(email()).await;
    let answer = sidecar.decide("olga", &approval.id, Verdict::Approve).await;
    assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied);
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    sidecar.decide("dana", &approval.id, Verdict::Approve).await.unwrap();
    still_good_once(&sidecar, &token, email()).await;
}

#[tokio::test]
async fn an_expired_approval_is_not_used() {
    for offset in [0, 1] {
        let sidecar = Sidecar::start().await;
        let (approval, token) = sidecar.approved(email()).await;
        sidecar.move_to(approval.use_by, offset);
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        assert_eq!(executions(&sidecar).await, 0);
        assert_eq!(sidecar.get(&approval).await.state(), ApprovalState::Expired);
    }
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    sidecar.move_to(approval.use_by, -1);
    sidecar.consume(&token, email()).await.unwrap();
}

#[tokio::test]
async fn a_late_answer_approves_nothing() {
    for offset in [0, 1] {
        let sidecar = Sidecar::start().await;
        let (approval, token) = sidecar.ask(email()).await;
        sidecar.move_to(approval.decide_by, offset);
        let late = sidecar.decide("olga", &approval.id, Verdict::Approve).await;
        refused(late, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        assert_eq!(executions(&sidecar).await, 0);
    }
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(email()).await;
    sidecar.move_to(approval.decide_by, -1);
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    still_good_once(&sidecar, &token, email()).await;
}

#[tokio::test]
async fn of_a_double_decision_the_first_stands() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(email()).await;
    sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap();
    let second = sidecar.decide("olga", &approval.id, Verdict::Approve).await;
    let second = refused(second, Code::FailedPrecondition, "APPROVAL_DENIED");
    assert!(second.message().contains("olga"), "the loser is told who decided: {}", second.message());
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_DENIED");
    assert_eq!(executions(&sidecar).await, 0);
    assert_eq!(sidecar.get(&approval).await.decisions.len(), 1);
}

#[tokio::test]
async fn a_double_consumption_starts_one_execution() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    let first = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    let again = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    assert!(!first.replayed && again.replayed, "the same attempt is told the same, and that it may be acting already");
    assert_eq!(first.permit, again.permit);
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    assert_eq!(executions(&sidecar).await, 1);
    assert_eq!(refusals(&sidecar, &approval).await, ["APPROVAL_CONSUMED"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_concurrent_identical_calls_one_gets_through() {
    let sidecar = Arc::new(Sidecar::start().await);
    // Asked many times at once it is one question; used many times at once it is one use.
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let sidecar = Arc::clone(&sidecar);
        asked.spawn(async move { sidecar.ask(email()).await });
    }
    let asked = asked.join_all().await;
    let (approval, token) = asked.first().unwrap().clone();
    assert!(asked.iter().all(|(other, _)| other.id == approval.id));
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    let mut used = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (sidecar, token) = (Arc::clone(&sidecar), token.clone());
        used.spawn(async move { sidecar.consume(&token, email()).await });
    }
    let (passed, kept): (Vec<_>, Vec<_>) = used.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((passed.len(), kept.len()), (1, 31));
    for result in kept {
        refused(result, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    }
    assert_eq!(executions(&sidecar).await, 1);
}

#[tokio::test]
async fn siblings_of_one_call_are_isolated_from_each_other() {
    let sidecar = Sidecar::start().await;
    let (one, two) = (in_conversation("one", email()), in_conversation("two", email()));
    let (first, first_token) = sidecar.ask(one.clone()).await;
    let (second, second_token) = sidecar.ask(two.clone()).await;
    assert_ne!(first.id, second.id);
    assert_eq!(first.fingerprint, second.fingerprint, "they differ in the conversation alone");
    sidecar.decide("olga", &first.id, Verdict::Approve).await.unwrap();
    // An answer to the one is none to the other, and its token opens nothing for the other.
    assert_eq!(sidecar.get(&second).await.state(), ApprovalState::Pending);
    refused(sidecar.consume(&second_token, two.clone()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    refused(sidecar.consume(&first_token, two.clone()).await, Code::FailedPrecondition, "CONVERSATION_MISMATCH");
    sidecar.decide("olga", &second.id, Verdict::Deny).await.unwrap();
    refused(sidecar.consume(&second_token, two).await, Code::FailedPrecondition, "APPROVAL_DENIED");
    still_good_once(&sidecar, &first_token, one).await;
}

#[tokio::test]
async fn a_restart_at_each_step_changes_nothing() {
    let mut sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.ask(email()).await;
    sidecar.restart().await;
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_PENDING");
    sidecar.restart().await;
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.restart().await;
    let attempt = new_attempt();
    let first = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    sidecar.restart().await;
    // The answer was lost with the process: the same attempt is told it again, and nobody else is.
    let again = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    assert!(again.replayed && again.permit == first.permit);
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_CONSUMED");
    sidecar.restart().await;
    let execution = first.permit.unwrap().execution_id;
    sidecar.report(&execution, Outcome::Succeeded, "").await.unwrap();
    sidecar.restart().await;
    refused(sidecar.attempt(&token, &attempt, email()).await, Code::FailedPrecondition, "ATTEMPT_OVER");
    assert_eq!(executions(&sidecar).await, 1);
}

#[tokio::test]
async fn a_policy_tightened_in_between_is_the_one_that_counts() {
    let policy = |effect: &str| {
        format!(
            "version: countersign.policy/v1\ngroups: {{ finance: [dana] }}\nconnectors:\n  gmail:\n    ceiling: write\n    \
             actions: {{ GMAIL_SEND_EMAIL: {{ scope: write, curated: true }} }}\n    rules: [{effect}]\n"
        )
    };
    let mut sidecar = Sidecar::under(&policy("")).await;
    let (approval, token) = sidecar.approved(email()).await;
    sidecar.restart_under(&policy("{ name: stop, effect: deny }")).await;
    let denied = refused(sidecar.consume(&token, email()).await, Code::PermissionDenied, "POLICY_DENIED");
    assert_eq!(told(&denied, "policy_reason"), "DENIED_BY_RULE");
    let finance = "{ name: finance, effect: confirm, approvers: [{ any_of: [\"group:finance\"] }] }";
    sidecar.restart_under(&policy(finance)).await;
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "CONFIRMATION_RAISED");
    assert_eq!(executions(&sidecar).await, 0);
    assert_eq!(refusals(&sidecar, &approval).await, ["DENIED_BY_RULE", "CONFIRMATION_RAISED"]);
    sidecar.restart_under(&policy("")).await;
    still_good_once(&sidecar, &token, email()).await;
}

#[tokio::test]
async fn delimiters_shifted_between_fields_make_another_call() {
    let sidecar = Sidecar::start().await;
    let objective = |id: &str, transcript: &str| {
        Some(Objective { id: id.to_owned(), transcript: transcript.to_owned(), revision: 1 })
    };
    for border in ["\",\"", "\\", ":", "|", "/", ".", "\u{1F600}", "null"] {
        let conversation = |text: &str| format!("{border}{text}");
        let here =
            Invocation { conversation: conversation("x"), objective: objective(&format!("a{border}"), "b"), ..email() };
        let there =
            Invocation { conversation: conversation("x"), objective: objective("a", &format!("{border}b")), ..email() };
        let (approval, token) = sidecar.approved(here.clone()).await;
        let (other, _) = sidecar.ask(there.clone()).await;
        assert_ne!(approval.fingerprint, other.fingerprint, "{border:?}");
        refused(sidecar.consume(&token, there).await, Code::FailedPrecondition, "OBJECTIVE_CHANGED");
        still_good_once(&sidecar, &token, here).await;
    }
}

#[tokio::test]
async fn hostile_unicode_hides_nothing_from_who_approves() {
    let sidecar = Sidecar::start().await;
    // Reordering, invisible, tag and look-alike characters: shown as what they are, or refused in what names things.
    let body = "pay \u{202E}00001\u{202C} to \u{200B}m\u{430}llory\u{E0041}\u{FE0F}\u{2066}x";
    let arguments = serde_json::json!({ "to": "b@example.com", "body": body }).to_string();
    let call = Invocation { arguments_json: arguments, ..email() };
    let (approval, token) = sidecar.ask(call.clone()).await;
    let hidden = ['\u{202E}', '\u{202C}', '\u{200B}', '\u{E0041}', '\u{FE0F}', '\u{2066}'];
    assert!(!approval.preview_json.contains(hidden) && !approval.message.contains(hidden));
    let kinds: Vec<&str> = approval.omissions.iter().map(|omission| omission.kind().as_str_name()).collect();
    for kind in ["OMISSION_KIND_NEUTRALISED", "OMISSION_KIND_CONFUSABLE"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    // What looks the same is not the same: no normalisation, no folding.
    let twin = Invocation { arguments_json: call.arguments_json.replace('\u{430}', "a"), ..call.clone() };
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    refused(sidecar.consume(&token, twin).await, Code::FailedPrecondition, "ARGUMENTS_CHANGED");
    for principal in ["ol\u{202E}ga", "olga\u{200B}", "olga\u{2028}", "\u{FEFF}olga", "olga\u{E0041}"] {
        let named = Invocation { principal: principal.to_owned(), ..email() };
        refused(sidecar.request(named).await, Code::InvalidArgument, "INVALID_REQUEST");
    }
    still_good_once(&sidecar, &token, call).await;
}

#[tokio::test]
async fn what_is_oversize_is_refused_whole_and_recorded_nowhere() {
    let sidecar = Sidecar::start().await;
    let before = sidecar.audit().await.len();
    let long = "x".repeat(300 * 1024);
    let deep = format!("{}{}{}", r#"{"a":"#.repeat(65), "1", "}".repeat(65));
    let calls = [
        Invocation { arguments_json: format!(r#"{{"body":"{long}"}}"#), ..email() },
        Invocation { arguments_json: deep, ..email() },
        Invocation { arguments_json: format!(r#"{{"n":{}}}"#, "9".repeat(801)), ..email() },
        Invocation { principal: "p".repeat(257), ..email() },
        Invocation { labels: (0..17).map(|n| (n.to_string(), String::new())).collect(), ..email() },
    ];
    for call in calls {
        let status = sidecar.request(call).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(!status.message().contains("xxxxxxxx"), "what was refused is not sent back");
    }
    let huge = Invocation { arguments_json: format!(r#"{{"body":"{}"}}"#, "x".repeat(5 * 1024 * 1024)), ..email() };
    assert_eq!(sidecar.request(huge).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(sidecar.audit().await.len(), before);
    let (_, token) = sidecar.approved(email()).await;
    still_good_once(&sidecar, &token, email()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancellation_against_a_consumption_has_one_winner() {
    let sidecar = Arc::new(Sidecar::start().await);
    let mut expected = 0;
    for round in 0..8 {
        let call = in_conversation(round, email());
        let (approval, token) = sidecar.approved(call.clone()).await;
        let (one, other, withdrawn) = (Arc::clone(&sidecar), Arc::clone(&sidecar), approval.clone());
        let used = tokio::spawn(async move { one.consume(&token, call).await });
        let cancelled = tokio::spawn(async move { other.cancel(&withdrawn).await });
        let (used, cancelled) = (used.await.unwrap(), cancelled.await.unwrap());
        assert_ne!(used.is_ok(), cancelled.is_ok(), "{used:?} {cancelled:?}");
        expected += usize::from(used.is_ok());
        assert_eq!(executions(&sidecar).await, expected);
    }
}

#[tokio::test]
async fn empty_approvers_approve_nothing() {
    // Nobody, a group without members, a quorum of none, one that its members cannot reach: no policy says so.
    let policy = |groups: &str, clause: &str| {
        format!(
            "version: countersign.policy/v1\ngroups: {{ {groups} }}\nconnectors:\n  gmail:\n    ceiling: write\n    actions: \
             {{ GMAIL_SEND_EMAIL: {{ scope: write, curated: true }} }}\n    rules:\n      - {{ name: rule, effect: \
             confirm, approvers: [{clause}] }}\n"
        )
    };
    let path = std::env::temp_dir().join(format!("countersign-empty-approvers-{}.yaml", std::process::id()));
    for (groups, clause) in [
        ("finance: [dana]", "{ any_of: [] }"),
        ("finance: []", "{ any_of: [\"group:finance\"] }"),
        ("finance: [dana]", "{ any_of: [\"group:finance\"], quorum: 0 }"),
        ("finance: [dana]", "{ any_of: [\"group:finance\"], quorum: 2 }"),
        ("finance: [dana]", "{ any_of: [\"group:nobody\"] }"),
    ] {
        std::fs::write(&path, policy(groups, clause)).unwrap();
        assert!(countersign::policy_files::load_policy(&path).is_err(), "{groups} {clause}");
    }
    std::fs::remove_file(&path).unwrap();
    // Where the requester is the only one who could, nobody can, and that is said before anybody is asked.
    let alone =
        policy("finance: [olga]", "{ any_of: [\"group:finance\"] }").replace("}] }", "}], exclude_requester: true }");
    let sidecar = Sidecar::under(&alone).await;
    let status = refused(sidecar.request(email()).await, Code::PermissionDenied, "POLICY_DENIED");
    assert_eq!(told(&status, "policy_reason"), "NO_ELIGIBLE_APPROVER");
    assert_eq!(executions(&sidecar).await, 0);
}
