//! What must hold for every policy and every call.

use super::cases::{OwnedCall, load};
use crate::domain::decision::{Decision, PolicyAnswer, PolicyReason};
use crate::domain::fingerprint::{DefinitionDigest, Digest};
use crate::domain::pattern::Pattern;
use crate::domain::policy::evaluate::could_be_met;
use crate::domain::policy::{Policy, SourceFile};
use crate::domain::requirement::{Approver, Clause, Groups, Requirement};
use crate::domain::text::Identifier;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A policy in choices, from which its text is written.
#[derive(Clone, Debug)]
struct Choices {
    ceiling: &'static str,
    confirm: &'static str,
    unlisted: &'static str,
    accounts: &'static str,
    agents: &'static str,
    scope: &'static str,
    curated: bool,
    rules: Vec<RuleChoices>,
}

#[derive(Clone, Debug)]
struct RuleChoices {
    name: u16,
    actions: Option<&'static str>,
    when: Option<&'static str>,
    deny: bool,
    approvers: &'static str,
    exclude_requester: bool,
}

impl RuleChoices {
    fn text(&self) -> String {
        let Self { name, actions, when, deny, approvers, exclude_requester } = self;
        let actions = actions.map_or(String::new(), |actions| format!(", actions: [\"{actions}\"]"));
        let when = when.map_or(String::new(), |when| format!(", when: \"{when}\""));
        let effect = match deny {
            true => "deny".to_owned(),
            false => format!("confirm, approvers: {approvers}, exclude_requester: {exclude_requester}"),
        };
        format!("      - {{ name: r{name}{actions}{when}, effect: {effect} }}\n")
    }
}

impl Choices {
    fn text(&self) -> String {
        let rules: String = self.rules.iter().map(RuleChoices::text).collect();
        let rules = if rules.is_empty() { "[]\n".to_owned() } else { format!("\n{rules}") };
        let Self { ceiling, confirm, unlisted, accounts, agents, scope, curated, .. } = self;
        format!(
            "version: countersign.policy/v1
groups: {{ pair: [dana, eve], many: [dana, eve, sam, kim] }}
connectors:
  mail:
    agents: {agents}
    accounts: {accounts}
    ceiling: {ceiling}
    confirm: {confirm}
    unlisted: {unlisted}
    actions: {{ SEND: {{ scope: {scope}, curated: {curated}, tags: [a] }} }}
    rules: {rules}"
        )
    }

    fn policy(&self) -> Policy {
        let text = self.text();
        load(&json!({ "policy": text })).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"))
    }
}

fn one_of(choices: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    prop::sample::select(choices.to_vec())
}

fn rule() -> impl Strategy<Value = RuleChoices> {
    // Expressions of all outcomes: true, false and in error, by what the arguments hold.
    let when = prop::option::of(one_of(&[
        "true",
        "args.n > 3",
        "args.to.endsWith('@acme.com')",
        "args.list.all(x, x < 2)",
        "scope == 'admin'",
        "'a' in tags",
    ]));
    let approvers = one_of(&[
        r#"[{ any_of: ["group:pair", owner], quorum: 2 }]"#,
        r#"[{ any_of: ["group:many"] }, { any_of: ["person:dana"] }]"#,
        r#"[{ any_of: ["group:many"], quorum: 3 }]"#,
        r#"[{ any_of: ["group:pair"] }]"#,
    ]);
    let actions = prop::option::of(one_of(&["SEND", "S*", "OTHER", "*"]));
    (any::<u16>(), actions, when, any::<bool>(), approvers, any::<bool>()).prop_map(
        |(name, actions, when, deny, approvers, exclude_requester)| RuleChoices {
            name,
            actions,
            when,
            deny,
            approvers,
            exclude_requester,
        },
    )
}

fn choices() -> impl Strategy<Value = Choices> {
    let switches = (
        one_of(&["read", "write", "admin", "admin"]),
        one_of(&["always", "writes", "admin", "never"]),
        one_of(&["deny", "admin"]),
        one_of(&["none", "[mine]", r#"["*"]"#]),
        one_of(&["[assistant]", r#"["*"]"#, r#"["assist*"]"#]),
        one_of(&["read", "write", "admin"]),
        any::<bool>(),
    );
    (switches, prop::collection::vec(rule(), 0..5)).prop_map(|(switches, mut rules)| {
        let mut names = BTreeSet::new();
        rules.retain(|rule| names.insert(rule.name));
        let (ceiling, confirm, unlisted, accounts, agents, scope, curated) = switches;
        Choices { ceiling, confirm, unlisted, accounts, agents, scope, curated, rules }
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({ "n": 5, "to": "a@acme.com", "list": [1] }),
        json!({ "n": 1, "to": "a@evil.example", "list": [5] }),
        json!({ "n": "5", "to": 1, "list": {} }),
        json!({ "n": null, "to": [], "list": ["x"] }),
        json!("{\"n\": 9007199254740993.5, \"to\": \"\", \"list\": []}"),
    ])
}

fn call() -> impl Strategy<Value = Value> {
    let principal = one_of(&["olga", "dana", "kim"]);
    let account = prop::option::of(one_of(&["mine", "other"]));
    let action = one_of(&["SEND", "SEND", "OTHER"]);
    (principal, account, action, arguments()).prop_map(|(principal, account, action, arguments)| {
        json!({ "principal": principal, "account": account, "action": action, "arguments": arguments })
    })
}

fn ask(policy: &Policy, call: &Value) -> PolicyAnswer {
    policy.evaluate(&OwnedCall::read(call).borrow(), false)
}

/// How much an answer lets happen.
fn allows(answer: &PolicyAnswer) -> u8 {
    match answer.decision {
        Decision::Deny => 0,
        Decision::ConfirmationRequired(_) => 1,
        Decision::Allow => 2,
    }
}

proptest! {
    #[test]
    fn adding_a_deny_rule_never_allows_more(choices in choices(), call in call(), added in rule(), place in any::<prop::sample::Index>()) {
        let before = ask(&choices.policy(), &call);
        let mut stricter = choices;
        stricter.rules.retain(|rule| rule.name != added.name);
        prop_assume!(before.rules.iter().all(|rule| rule.name != format!("r{}", added.name)));
        stricter.rules.insert(place.index(stricter.rules.len() + 1), RuleChoices { deny: true, ..added });
        let after = ask(&stricter.policy(), &call);
        prop_assert!(allows(&after) <= allows(&before), "{:?} became {:?}", before, after);
        if after.decision != Decision::Deny {
            prop_assert_eq!(after.decision, before.decision);
        }
    }

    #[test]
    fn the_order_of_rules_changes_nothing_but_the_order_of_the_list(choices in choices(), call in call()) {
        let one = ask(&choices.policy(), &call);
        let mut reversed = choices;
        reversed.rules.reverse();
        let mut other = ask(&reversed.policy(), &call);
        other.rules.reverse();
        prop_assert_eq!(&one.decision, &other.decision);
        prop_assert_eq!(one.reason, other.reason);
        prop_assert_eq!(one.rules, other.rules);
    }

    #[test]
    fn an_explanation_changes_no_answer_and_agrees_with_it(choices in choices(), call in call()) {
        let policy = choices.policy();
        let plain = ask(&policy, &call);
        let mut explained = policy.evaluate(&OwnedCall::read(&call).borrow(), true);
        prop_assert_eq!(explained.checks.len(), 12);
        explained.checks.clear();
        prop_assert_eq!(plain, explained);
    }

    #[test]
    fn nobody_eligible_is_said_exactly_where_nobody_could_meet_the_requirement(choices in choices(), call in call()) {
        let policy = choices.policy();
        let answer = ask(&policy, &call);
        if let Decision::ConfirmationRequired(requirement) = &answer.decision {
            let principal = Identifier::parse(call["principal"].as_str().unwrap()).unwrap();
            prop_assert!(policy.groups().could_meet(requirement, &principal));
        }
    }

    #[test]
    fn the_short_way_to_eligible_approvers_agrees_with_matching_all_clauses(
        clauses in prop::collection::vec((prop::collection::btree_set(one_of(&["owner", "group:one", "group:two", "group:three", "person:kim", "person:a"]), 1..4), 1_u32..4), 1..4),
        owner in one_of(&["olga", "kim", "a", "b"]),
        exclude in any::<bool>(),
    ) {
        let id = |text: &str| Identifier::parse(text).unwrap();
        let members = |group: &str| -> BTreeSet<Identifier> {
            let names: &[&str] = match group { "one" => &["a"], "two" => &["a", "b"], _ => &["b", "c", "d"] };
            names.iter().map(|name| id(name)).collect()
        };
        let groups = Groups::new(["one", "two", "three"].into_iter().map(|name| (id(name), members(name))).collect());
        let clauses: Vec<(Clause, usize)> = clauses.iter().map(|(entries, quorum)| {
            let entries: Vec<Approver> = entries.iter().map(|entry| Approver::parse(entry).unwrap()).collect();
            let named: BTreeSet<Identifier> = entries.iter().flat_map(|entry| match entry {
                Approver::Owner => BTreeSet::new(),
                Approver::Group(name) => members(name.as_str()),
                Approver::Person(name) => BTreeSet::from([name.clone()]),
            }).collect();
            (Clause::new(entries, *quorum).unwrap(), named.len())
        }).collect();
        let requirement = Requirement::new(clauses.iter().map(|(clause, _)| clause.clone()), exclude, Duration::ZERO, Duration::ZERO).unwrap();
        prop_assert_eq!(
            could_be_met(&clauses, exclude, &groups, &id(owner)),
            groups.could_meet(&requirement, &id(owner))
        );
    }

    #[test]
    fn a_pattern_is_compared_with_its_own_field_alone(
        agents in "\\*?([ab]\\*?){1,2}", accounts in "\\*?([ab]\\*?){1,2}", actions in "\\*?([ab]\\*?){1,2}",
        agent in "[ab]{1,3}", account in "[ab]{1,3}", action in "[ab]{1,3}",
    ) {
        let policy = load(&json!({ "policy": format!(
            "version: countersign.policy/v1
connectors:
  mail:
    agents: [\"{agents}\"]
    accounts: [\"{accounts}\"]
    ceiling: admin
    confirm: never
    unlisted: admin
    rules: [{{ name: r, actions: [\"{actions}\"], effect: deny }}]
" ) })).unwrap();
        let answer = ask(&policy, &json!({ "agent": agent, "account": account, "action": action }));
        let want = if !Pattern::new(&agents).matches(&agent) {
            PolicyReason::AgentNotAllowed
        } else if !Pattern::new(&accounts).matches(&account) {
            PolicyReason::AccountNotAllowed
        } else if Pattern::new(&actions).matches(&action) {
            PolicyReason::DeniedByRule
        } else {
            PolicyReason::Allowed
        };
        prop_assert_eq!(answer.reason, want);
    }

    #[test]
    fn every_call_gets_an_answer(
        choices in choices(),
        names in prop::collection::vec("\\PC{1,20}", 6),
        arguments in "\\{\"(n|to|list)\": ?(-?[0-9]{1,25}(\\.[0-9]{1,9})?(e-?[0-9]{1,3})?|\"\\PC{0,9}\"|\\[[0-9]\\]|null|\\{\\})\\}",
        digest in prop::option::of(any::<[u8; 32]>()),
        now in any::<i64>(),
        real in any::<bool>(),
    ) {
        let names: Option<Vec<Identifier>> = names.iter().map(|name| Identifier::parse(name).ok()).collect();
        let arguments = crate::domain::arguments::Arguments::parse(&arguments, 4096);
        prop_assume!(names.is_some() && arguments.is_ok());
        let (names, arguments) = (names.unwrap(), arguments.unwrap());
        let mail = OwnedCall::read(&json!({ "account": "mine" }));
        let mut call = mail.borrow();
        (call.principal, call.conversation, call.arguments) = (&names[0], Some(&names[1]), &arguments);
        call.now = crate::domain::time::Timestamp::from_micros(now);
        call.tool_definition_digest = digest.map(|bytes| DefinitionDigest::from_digest(Digest::from_bytes(bytes)));
        if !real {
            (call.agent, call.connector, call.account, call.action) = (&names[2], &names[3], Some(&names[4]), &names[5]);
        }
        let answer = choices.policy().evaluate(&call, true);
        prop_assert!(!answer.message.is_empty() && answer.message.ends_with('.'));
    }

    #[test]
    fn a_damaged_policy_is_loaded_or_refused_with_places(
        choices in choices(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[-\\[\\]{}:,&*!|>'\"#\n \u{9}a0~]{0,3}", 0_usize..4), 1..4),
    ) {
        let mut text: Vec<char> = choices.text().chars().collect();
        for (place, insert, remove) in edits {
            let at = place.index(text.len());
            let end = text.len().min(at + remove);
            text.splice(at..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        let file = SourceFile { path: "policy.yaml".to_owned(), text };
        if let Err(problems) = Policy::load(&[file], &mut |_| Err("does not exist".to_owned())) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| problem.message != "cannot be read as YAML"));
            prop_assert!(problems.iter().all(|problem| problem.file == "policy.yaml"), "{:?}", problems);
        }
    }
}
