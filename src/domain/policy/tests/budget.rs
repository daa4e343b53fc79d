//! What one call may cost, whatever its arguments and however many rules look at them.

use super::cases::{OwnedCall, load};
use crate::domain::decision::{Decision, PolicyAnswer, PolicyReason};
use crate::domain::limits;
use crate::domain::policy::Policy;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const EXHAUSTED: &str = "the rules of this call take too much work altogether";

/// Does not match, and takes somewhat more than a fifth of the budget over [`call`].
const HEAVY: &str = "args.names.exists(x, args.text.contains(x))";
/// Takes all of the budget and more.
const ENDLESS: &str =
    "args.names.exists(x, args.text.matches('b') || args.text.matches('c') || args.text.matches('d'))";
/// Do not match, and take next to nothing.
const CHEAP: &str = "args.names == []";

/// A policy of these rules; none: without a `when`.
fn policy(rules: &[(&str, Option<&str>)]) -> Policy {
    let rules: String = rules
        .iter()
        .enumerate()
        .map(|(index, (effect, when))| {
            let when = when.map_or(String::new(), |when| format!(", when: {}", json!(when)));
            format!("    - {{ name: r{index}, effect: {effect}{when} }}\n")
        })
        .collect();
    load(&json!({ "policy": format!(
        "version: countersign.policy/v1
connectors:
  mail:
    ceiling: write
    confirm: never
    actions: {{ SEND: {{ scope: write, curated: true }} }}
    rules:
{rules}"
    ) }))
    .unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn call() -> Value {
    let names: Vec<String> = (0..1_000).map(|number| format!("needle{number}")).collect();
    json!({ "account": "mine", "arguments": { "names": names, "text": "a".repeat(1_600) } })
}

fn ask(rules: &[(&str, Option<&str>)]) -> PolicyAnswer {
    policy(rules).evaluate(&OwnedCall::read(&call()).borrow(), false)
}

/// The matching rules' places, and of each whether the budget kept it from an answer.
fn outcomes(answer: &PolicyAnswer) -> Vec<(usize, bool)> {
    let outcome = |error: &Option<String>| match error {
        None => false,
        Some(error) => {
            assert!(error.starts_with(EXHAUSTED), "{error}");
            true
        }
    };
    answer.rules.iter().map(|rule| (rule.name[1..].parse().unwrap(), outcome(&rule.error))).collect()
}

#[test]
fn many_heavy_rules_cost_no_more_than_one() {
    let time = |count: usize| {
        let policy = policy(&vec![("deny", Some(ENDLESS)); count]);
        let call = OwnedCall::read(&call());
        let began = Instant::now();
        let answer = policy.evaluate(&call.borrow(), true);
        assert_eq!(answer.reason, PolicyReason::DeniedByRule);
        assert_eq!(outcomes(&answer), (0..count).map(|index| (index, true)).collect::<Vec<_>>());
        began.elapsed()
    };
    let one = time(1);
    let most = time(limits::RULES);
    assert!(most < 5 * one + Duration::from_secs(2), "one takes {one:?}, {} take {most:?}", limits::RULES);
}

#[test]
fn the_work_of_all_rules_is_counted_together() {
    for count in 1..=3 {
        let answer = ask(&vec![("deny", Some(HEAVY)); count]);
        assert_eq!((answer.reason, outcomes(&answer)), (PolicyReason::Allowed, vec![]), "{count}");
    }
    let answer = ask(&[("deny", Some(HEAVY)); 8]);
    assert_eq!(answer.reason, PolicyReason::DeniedByRule);
    assert_eq!(outcomes(&answer), (4..8).map(|index| (index, true)).collect::<Vec<_>>());
}

#[test]
fn once_it_has_run_out_every_later_rule_with_a_condition_counts_as_matching() {
    let answer = ask(&[
        ("confirm", Some(CHEAP)),
        ("confirm", Some("size(args.names) == 1000")),
        ("confirm", Some(ENDLESS)),
        ("confirm", Some(CHEAP)),
        ("confirm", Some("false")),
        ("confirm", None),
        ("confirm", Some("size(args.names) == 1000")),
    ]);
    assert_eq!(outcomes(&answer), [(1, false), (2, true), (3, true), (4, true), (5, false), (6, true)]);
    assert!(matches!(answer.decision, Decision::ConfirmationRequired(_)), "{answer:?}");
}

#[test]
fn what_ran_out_is_not_passed_over_by_a_side_that_would_decide() {
    for when in [format!("!({ENDLESS} || true)"), format!("{ENDLESS} && false"), format!("true && {ENDLESS}")] {
        assert_eq!(outcomes(&ask(&[("deny", Some(&when))])), [(0, true)], "{when}");
    }
}

#[test]
fn every_call_has_a_whole_budget_of_its_own() {
    let policy = policy(&[("deny", Some(HEAVY)), ("deny", Some(HEAVY))]);
    let call = OwnedCall::read(&call());
    for _ in 0..5 {
        assert_eq!(policy.evaluate(&call.borrow(), false).reason, PolicyReason::Allowed);
    }
}

#[test]
fn rules_of_other_actions_take_nothing_from_it() {
    let rules = "    - { name: other, actions: [READ], effect: deny, when: WHEN }\n"
        .replace("WHEN", &json!(ENDLESS).to_string());
    let policy = load(&json!({ "policy": format!(
        "version: countersign.policy/v1
connectors:
  mail:
    ceiling: write
    confirm: never
    actions: {{ SEND: {{ scope: write, curated: true }}, READ: {{ scope: read, curated: true }} }}
    rules:
{rules}    - {{ name: cheap, effect: deny, when: {} }}
",
        json!(CHEAP)
    ) }))
    .unwrap();
    let answer = policy.evaluate(&OwnedCall::read(&call()).borrow(), false);
    assert_eq!(answer.reason, PolicyReason::Allowed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn in_any_order_a_rule_has_its_own_answer_or_counts_as_matching(
        rules in prop::collection::vec(
            prop::sample::select(vec![
                (Some(HEAVY), false),
                (Some(CHEAP), false),
                (Some("size(args.names) == 1000"), true),
                (None, true),
            ]),
            1..12,
        ),
    ) {
        let written: Vec<(&str, Option<&str>)> = rules.iter().map(|(when, _)| ("confirm", *when)).collect();
        let outcomes = outcomes(&ask(&written));
        let first = outcomes.iter().find(|(_, exhausted)| *exhausted).map_or(rules.len(), |(index, _)| *index);
        let want: Vec<(usize, bool)> = rules
            .iter()
            .enumerate()
            .filter_map(|(index, (when, matches))| {
                let exhausted = index >= first && when.is_some();
                (exhausted || *matches).then_some((index, exhausted))
            })
            .collect();
        prop_assert_eq!(outcomes, want);
        let heavy = rules.iter().filter(|(when, _)| *when == Some(HEAVY)).count();
        prop_assert_eq!(first < rules.len(), heavy > 4);
    }
}
