//! The order of checks: each one failing alone, and together with every set of later ones, is answered with its reason.

use super::cases::{OwnedCall, load};
use crate::domain::decision::{CheckOutcome, PolicyReason};
use serde_json::{Value, json};

/// The checks that can fail, in their order.
const FAILURES: [(u32, PolicyReason); 12] = [
    (1, PolicyReason::ConnectorUnknown),
    (2, PolicyReason::ConnectorDisabled),
    (3, PolicyReason::AgentNotAllowed),
    (4, PolicyReason::AccountNotAllowed),
    (5, PolicyReason::ActionUnknown),
    (6, PolicyReason::ScopeExceedsCeiling),
    (7, PolicyReason::ActionNotCurated),
    (8, PolicyReason::DeniedByRule),
    (10, PolicyReason::ToolDefinitionChanged),
    (11, PolicyReason::NoEligibleApprover),
    (12, PolicyReason::ConfirmationByRule),
    (12, PolicyReason::ConfirmationByMode),
];

/// A policy and a call in which exactly these checks fail, as far as one can fail beside the others.
fn input(fails: impl Fn(PolicyReason) -> bool) -> Value {
    use PolicyReason as Reason;
    let mut rules = Vec::new();
    if fails(Reason::ConfirmationByRule) {
        rules.push(
            "      - { name: asks, effect: confirm, approvers: [{ any_of: [person:kim, person:lee], quorum: 1 }] }",
        );
    }
    if fails(Reason::DeniedByRule) {
        rules.push("      - { name: denies, effect: deny }");
    }
    if fails(Reason::NoEligibleApprover) {
        rules.push("      - { name: excludes, effect: confirm, approvers: [{ any_of: [person:olga] }], exclude_requester: true }");
    }
    let policy = format!(
        "version: countersign.policy/v1
connectors:
  mail:
    enabled: {enabled}
    agents: [{agent}]
    accounts: [{account}]
    ceiling: {ceiling}
    confirm: {confirm}
    catalog: {{ file: catalog.yaml, pin_definitions: true }}
    rules: [{empty}
{rules}
",
        enabled = !fails(Reason::ConnectorDisabled),
        agent = if fails(Reason::AgentNotAllowed) { "somebody-else" } else { "assistant" },
        account = if fails(Reason::AccountNotAllowed) { "another" } else { "mine" },
        ceiling = if fails(Reason::ScopeExceedsCeiling) { "read" } else { "write" },
        confirm = if fails(Reason::ConfirmationByMode) { "writes" } else { "never" },
        empty = if rules.is_empty() { "]" } else { "" },
        rules = rules.join("\n"),
    )
    .replace("rules: [\n", "rules:\n");
    let catalog = format!(
        "version: countersign.catalog/v1
actions: {{ SEND: {{ scope: write, curated: {curated}, definition: \"td1:{digest}\" }} }}",
        curated = !fails(Reason::ActionNotCurated),
        digest = "a".repeat(64),
    );
    let digest = if fails(Reason::ToolDefinitionChanged) { "b" } else { "a" };
    json!({
        "policy": policy,
        "catalogs": { "catalog.yaml": catalog },
        "call": {
            "connector": if fails(Reason::ConnectorUnknown) { "other" } else { "mail" },
            "account": "mine",
            "action": if fails(Reason::ActionUnknown) { "OTHER" } else { "SEND" },
            "tool_definition_digest": format!("td1:{}", digest.repeat(64)),
        }
    })
}

fn reason_for(fails: impl Fn(PolicyReason) -> bool) -> PolicyReason {
    let input = input(fails);
    let policy = load(&input).unwrap_or_else(|problems| panic!("{problems:#?}\n{input:#}"));
    let answer = policy.evaluate(&OwnedCall::read(&input["call"]).borrow(), true);
    let decided: Vec<u32> =
        answer.checks.iter().filter(|check| check.outcome == CheckOutcome::Decided).map(|check| check.number).collect();
    let [decided] = decided[..] else { panic!("{decided:?} decided") };
    for check in &answer.checks {
        let want = match check.number.cmp(&decided) {
            std::cmp::Ordering::Less => CheckOutcome::Passed,
            std::cmp::Ordering::Equal => CheckOutcome::Decided,
            std::cmp::Ordering::Greater => CheckOutcome::NotReached,
        };
        assert_eq!(check.outcome, want, "{check:?}");
    }
    let number = FAILURES.iter().find(|(_, reason)| *reason == answer.reason).map_or(13, |(number, _)| *number);
    assert_eq!(decided, number, "{answer:?}");
    answer.reason
}

#[test]
fn a_call_with_which_nothing_is_wrong_is_allowed() {
    assert_eq!(reason_for(|_| false), PolicyReason::Allowed);
}

#[test]
fn each_check_failing_alone_gives_its_reason() {
    for (_, reason) in FAILURES {
        assert_eq!(reason_for(|other| other == reason), reason);
    }
}

#[test]
fn each_check_failing_together_with_a_later_one_gives_its_reason() {
    for (place, (_, reason)) in FAILURES.iter().enumerate() {
        for (_, later) in &FAILURES[place + 1..] {
            assert_eq!(reason_for(|other| other == *reason || other == *later), *reason, "with {later}");
        }
    }
}

#[test]
fn of_every_set_of_failing_checks_the_first_gives_its_reason() {
    for set in 1_u32..1 << FAILURES.len() {
        let failing: Vec<PolicyReason> = FAILURES
            .iter()
            .enumerate()
            .filter(|(place, _)| set & (1 << place) != 0)
            .map(|(_, (_, reason))| *reason)
            .collect();
        assert_eq!(reason_for(|reason| failing.contains(&reason)), failing[0], "{failing:?}");
    }
}
