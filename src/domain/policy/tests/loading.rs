//! What loading takes, asks for and bounds, beyond the cases that are data.

use super::cases::{OwnedCall, load};
use crate::domain::limits;
use crate::domain::policy::{CatalogPath, FILES, Policy, Problem, SourceFile};
use serde_json::json;
use std::time::{Duration, Instant};

const VERSION: &str = "version: countersign.policy/v1\n";

fn file(path: &str, text: impl Into<String>) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.into() }
}

fn load_files(files: &[SourceFile]) -> Result<Policy, Vec<Problem>> {
    Policy::load(files, &mut |_| Err("does not exist".to_owned()))
}

fn problems(files: &[SourceFile]) -> Vec<String> {
    load_files(files).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_policy_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Policy>();
}

#[test]
fn a_policy_without_connectors_loads_denies_all_and_says_so() {
    let policy = load(&json!({ "policy": VERSION })).unwrap();
    let answer = policy.evaluate(&OwnedCall::read(&json!({})).borrow(), false);
    assert_eq!(answer.reason.as_str(), "CONNECTOR_UNKNOWN");
    let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["the policy has no connectors, so every call is denied"]);
}

#[test]
fn a_rule_that_can_do_nothing_or_too_much_is_warned_about_and_loads() {
    let policy = load(&json!({ "policy": format!(
        "{VERSION}groups: {{ finance: [dana] }}
connectors:
  mail:
    ceiling: write
    actions: {{ SEND: {{ scope: write, curated: true }}, READ: {{ scope: read, curated: true }} }}
    rules:
    - {{ name: misspelt, actions: [SENT], effect: deny }}
    - {{ name: fine, actions: [SEND], effect: deny }}
    - name: nobody
      effect: confirm
      approvers: [{{ any_of: [\"group:finance\"] }}]
      exclude_requester: true
    - {{ name: reads, actions: [READ], effect: confirm, approvers: [{{ any_of: [\"group:finance\"] }}], exclude_requester: true }}
  hub:
    unlisted: admin
    rules: [{{ name: unlisted, actions: [ANY], effect: deny }}]
"
    ) }))
    .unwrap();
    let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "policy.yaml:8:7: connectors.mail.rules[0]: the rule \"misspelt\" applies to no action that the connector lists",
            "policy.yaml:10:7: connectors.mail.rules[2]: the rule \"nobody\" excludes the requester, and for \"SEND\" the mode `writes` asks the owner, who is the requester: where the rule matches, nobody can confirm",
        ]
    );
}

#[test]
fn a_catalog_is_read_once_and_named_beside_its_policy_file() {
    let text = format!(
        "{VERSION}connectors:\n  a: {{ catalog: {{ file: sub/c.yaml }} }}\n  b: {{ catalog: {{ file: sub/c.yaml }} }}\n"
    );
    let mut asked = Vec::new();
    let policy = Policy::load(&[file("etc/policy/p.yaml", text)], &mut |path: &CatalogPath| {
        asked.push(path.clone());
        Ok("version: countersign.catalog/v1\nactions: { LIST: { scope: read, curated: true } }".to_owned())
    })
    .unwrap();
    let path = CatalogPath { named_in: "etc/policy/p.yaml".to_owned(), file: "sub/c.yaml".to_owned() };
    assert_eq!(path.display_name(), "etc/policy/sub/c.yaml");
    assert_eq!(policy.catalogs(), asked);
    assert_eq!(asked, [path]);
    assert_eq!(policy.files(), ["etc/policy/p.yaml"]);
    let summaries: Vec<(String, bool, usize, usize)> =
        policy.connectors().map(|c| (c.name, c.enabled, c.actions, c.rules)).collect();
    assert_eq!(summaries, [("a".to_owned(), true, 1, 0), ("b".to_owned(), true, 1, 0)]);
    assert!(policy.entry("a", "LIST").is_some_and(|entry| entry.curated));
    assert!(policy.entry("a", "OTHER").is_none() && policy.entry("c", "LIST").is_none());
}

#[test]
fn the_number_of_files_and_of_members_is_bounded() {
    assert_eq!(problems(&[]), ["a policy is 1 to 256 files; there are 0"]);
    let many: Vec<SourceFile> = (0..=FILES).map(|number| file(&format!("{number}.yaml"), VERSION)).collect();
    assert_eq!(problems(&many), ["a policy is 1 to 256 files; there are 257"]);
    assert!(load_files(&many[1..]).is_ok());
    let members: Vec<String> = (0..=limits::GROUP_MEMBERS).map(|number| format!("p{number}")).collect();
    let text = format!("{VERSION}groups: {{ all: [{}] }}", members.join(", "));
    assert_eq!(problems(&[file("p", text)]), ["all groups together have 10001 members; at most 10000"]);
}

#[test]
fn the_rules_of_a_connector_are_bounded() {
    let policy = |count: usize| {
        let rules: String = (0..count).map(|number| format!("    - {{ name: r{number}, effect: deny }}\n")).collect();
        format!(
            "{VERSION}connectors:\n  mail:\n    actions: {{ SEND: {{ scope: write, curated: true }} }}\n    rules:\n{rules}"
        )
    };
    assert!(load_files(&[file("p.yaml", policy(limits::RULES))]).is_ok());
    assert_eq!(
        problems(&[file("p.yaml", policy(limits::RULES + 1))]),
        ["p.yaml:6:7: connectors.mail.rules: has 501 rules; at most 500 may stand in one connector"]
    );
}

#[test]
fn the_list_of_problems_is_bounded_and_says_how_many_are_left_out() {
    let keys: String = (0..1_500).map(|number| format!("unknown{number}: 1\n")).collect();
    let problems = problems(&[file("p.yaml", format!("{VERSION}{keys}"))]);
    assert_eq!(problems.len(), 1_001);
    assert!(problems[0].starts_with("p.yaml:2:1: unknown0: is an unknown key"));
    assert_eq!(problems[1_000], "there are 500 more problems");
}

#[test]
fn every_policy_answers_for_itself_and_keeps_nothing() {
    let with = |mode: &str| {
        load(&json!({ "policy": format!(
            "{VERSION}connectors: {{ mail: {{ ceiling: write, confirm: {mode}, actions: {{ SEND: {{ scope: write, curated: true }} }} }} }}"
        ) }))
        .unwrap()
    };
    let (asks, allows) = (with("writes"), with("never"));
    let call = OwnedCall::read(&json!({ "account": "mine" }));
    for _ in 0..3 {
        for (policy, reason) in [(&asks, "CONFIRMATION_BY_MODE"), (&allows, "ALLOWED")] {
            let answer = policy.evaluate(&call.borrow(), false);
            assert_eq!(answer.reason.as_str(), reason);
            assert_eq!(answer.policy_revision, policy.revision());
        }
    }
}

#[test]
fn arguments_appear_in_no_debug_output_message_or_detail() {
    let policy = load(&json!({ "policy": format!(
        "{VERSION}connectors:
  mail:
    ceiling: admin
    actions: {{ SEND: {{ scope: write, curated: true }} }}
    rules:
    - {{ name: a, when: \"args.secret > 3\", effect: confirm }}
    - {{ name: b, when: \"int(args.secret) > 3\", effect: confirm }}
    - {{ name: c, when: \"args[args.secret] == 1\", effect: confirm }}
"
    ) }))
    .unwrap();
    let call = OwnedCall::read(&json!({ "account": "mine", "arguments": { "secret": "hunter2-7f3a" } }));
    let call = call.borrow();
    let answer = policy.evaluate(&call, true);
    assert_eq!(answer.rules.iter().filter(|rule| rule.error.is_some()).count(), 3, "{answer:?}");
    assert!(!format!("{answer:?}{call:?}").contains("7f3a"));
}

#[test]
fn a_large_or_hostile_policy_is_read_in_moderate_time() {
    let actions: String = (0..4_000)
        .map(|number| {
            format!("      ACTION_{number}: {{ scope: write, curated: true, tags: [createHint, updateHint] }}\n")
        })
        .collect();
    let large = format!("{VERSION}connectors:\n  hub:\n    actions:\n{actions}");
    let texts = [
        large,
        format!("{VERSION}connectors: {{{}", "a,".repeat(400_000)),
        format!("{VERSION}a: '{}'", "''".repeat(400_000)),
        format!("{VERSION}a: \"{}\"", "\\u202e".repeat(150_000)),
        format!("{VERSION}a: >\n{}", "  x\n\n".repeat(150_000)),
        format!("{VERSION}{}", "a: b: ".repeat(150_000)),
        format!("{VERSION}{}", "? ".repeat(400_000)),
        format!("{VERSION}{}", "- \n".repeat(300_000)),
        format!("{VERSION}a: {}", "x ".repeat(500_000)),
        format!("{VERSION}a: {}", "x\n ".repeat(300_000)),
        format!("{VERSION}a: [{}", "{a: ".repeat(100)),
        format!("{VERSION}a: &{} b", "a".repeat(1_000_000)),
        format!("{VERSION}{}", "\t".repeat(1_000_000)),
        format!("{VERSION}{}", "#\n".repeat(500_000)),
        "%TAG ! x\n".repeat(100_000),
    ];
    for text in texts {
        let start: String = text.chars().take(60).collect();
        let began = Instant::now();
        _ = load_files(&[file("p.yaml", text)]);
        assert!(began.elapsed() < Duration::from_secs(60), "{start:?} took {:?}", began.elapsed());
    }
}
