//! A policy's revision changes with what it means and with nothing else.

use super::cases::load;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const POLICY: &str = r#"version: countersign.policy/v1
defaults: { ceiling: read, confirm: writes, decide_within: 10m, use_within: 10m, report_within: 5m }
groups: { finance: [dana, eve], security: [sam] }
connectors:
  mail:
    enabled: true
    agents: [assistant, helper]
    accounts: [mine]
    ceiling: write
    confirm: writes
    unlisted: deny
    actions:
      READ: { scope: read, curated: true, tags: [readOnlyHint, other] }
      SEND: { scope: write, curated: true, decide_within: 5m }
    rules:
      - { name: first, actions: ["SEND*", READ], when: "args.to != 'x'", effect: confirm, approvers: [{ any_of: ["group:finance", owner], quorum: 2 }], exclude_requester: false, decide_within: 4m }
      - { name: second, effect: deny, when: "args.n > 1" }
  hub:
    catalog: { file: c.yaml, pin_definitions: true }
"#;

const CATALOG: &str = r#"version: countersign.catalog/v1
actions:
  LIST: { scope: read, curated: false, definition: "td1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }
"#;

fn revision(policy: &str, catalog: &str) -> String {
    revision_of(&json!({ "policy": policy, "catalogs": { "c.yaml": catalog } }))
}

fn revision_of(input: &Value) -> String {
    load(input).unwrap_or_else(|problems| panic!("{problems:#?}\n{input:#}")).revision().to_owned()
}

#[test]
fn a_revision_is_64_hex_digits_and_the_same_every_time() {
    let revision_once = revision(POLICY, CATALOG);
    assert!(revision_once.len() == 64 && revision_once.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(revision_once, revision(POLICY, CATALOG));
}

#[test]
fn formatting_and_what_is_said_by_default_change_no_revision() {
    let base = revision(POLICY, CATALOG);
    let changes = [
        ("version: countersign.policy/v1\n", "# A comment\n---\nversion: 'countersign.policy/v1'\n\n"),
        ("    enabled: true\n", ""),
        ("    unlisted: deny\n", ""),
        ("agents: [assistant, helper]", "agents:\n    - helper\n    - \"assistant\""),
        ("[dana, eve]", "[eve, dana]"),
        ("finance: [dana, eve], security: [sam]", "security: [sam], finance: [dana, eve]"),
        ("decide_within: 5m", "decide_within: 300s"),
        ("\"args.n > 1\"", "'args.n > 1'"),
        (", exclude_requester: false", ""),
        ("[\"group:finance\", owner]", "[owner, \"group:finance\"]"),
        ("[\"SEND*\", READ]", "[READ, \"SEND*\"]"),
    ];
    for (from, to) in changes {
        assert!(POLICY.contains(from), "{from}");
        assert_eq!(revision(&POLICY.replacen(from, to, 1), CATALOG), base, "{from} -> {to}");
    }
    let noted = CATALOG.replace("LIST: { ", "LIST: { title: List, note: 'seen by sam', ");
    assert_eq!(revision(POLICY, &noted), base, "what only the reviewer reads");
}

#[test]
fn the_division_into_files_changes_no_revision() {
    let (head, connectors) = POLICY.split_once("connectors:").unwrap();
    let (mail, hub) = connectors.split_once("  hub:").unwrap();
    let version = "version: countersign.policy/v1\n";
    let files = json!({
        "files": {
            "a.yaml": format!("{version}connectors:\n  hub:{}", hub.replace("c.yaml", "sub/c.yaml")),
            "b.yaml": format!("{version}connectors:{mail}"),
            "c.yaml": head,
        },
        "catalogs": { "sub/c.yaml": CATALOG }
    });
    assert_eq!(revision_of(&files), revision(POLICY, CATALOG));
}

#[test]
fn every_change_of_meaning_changes_the_revision() {
    let policy_changes = [
        ("ceiling: read", "ceiling: write"),
        ("confirm: writes, decide", "confirm: admin, decide"),
        ("decide_within: 10m", "decide_within: 11m"),
        ("use_within: 10m", "use_within: 11m"),
        ("report_within: 5m", "report_within: 6m"),
        ("[dana, eve]", "[dana]"),
        ("security: [sam]", "security: [sam], more: []"),
        ("security: [sam]", "securitys: [am]"),
        ("  mail:\n", "  mails:\n"),
        ("enabled: true", "enabled: false"),
        ("agents: [assistant, helper]", "agents: [assistant]"),
        ("agents: [assistant, helper]", "agents: []"),
        ("    agents: [assistant, helper]\n", ""),
        ("accounts: [mine]", "accounts: [min, e]"),
        ("accounts: [mine]", "accounts: []"),
        ("accounts: [mine]", "accounts: none"),
        ("    accounts: [mine]\n", ""),
        ("ceiling: write", "ceiling: admin"),
        ("    confirm: writes\n", "    confirm: always\n"),
        ("unlisted: deny", "unlisted: admin"),
        ("unlisted: deny", "report_within: 6m"),
        ("READ: { scope: read", "READS: { scope: read"),
        ("READ: { scope: read", "READ: { scope: write"),
        ("curated: true, tags", "curated: false, tags"),
        ("[readOnlyHint, other]", "[other, readOnlyHint]"),
        ("[readOnlyHint, other]", "[readOnlyHint]"),
        ("[readOnlyHint, other]", "[\"readOnlyHint, other\"]"),
        ("decide_within: 5m", "decide_within: 6m"),
        ("decide_within: 5m", "use_within: 5m"),
        ("name: first", "name: third"),
        ("actions: [\"SEND*\", READ], ", ""),
        ("\"SEND*\"", "\"SEND\""),
        ("args.to != 'x'", "args.to  != 'x'"),
        ("when: \"args.to != 'x'\", ", ""),
        (
            "effect: confirm, approvers: [{ any_of: [\"group:finance\", owner], quorum: 2 }], exclude_requester: false, decide_within: 4m",
            "effect: deny",
        ),
        ("approvers: [{ any_of: [\"group:finance\", owner], quorum: 2 }], ", ""),
        ("quorum: 2", "quorum: 1"),
        ("[\"group:finance\", owner]", "[\"group:finance\", \"person:owner\"]"),
        ("exclude_requester: false", "exclude_requester: true"),
        ("decide_within: 4m", "decide_within: 3m"),
        ("decide_within: 4m", "use_within: 4m"),
        (", decide_within: 4m", ""),
        ("pin_definitions: true", "trust_annotations: true"),
        (", pin_definitions: true", ""),
    ];
    let mut revisions = BTreeMap::from([(revision(POLICY, CATALOG), ("", ""))]);
    for (from, to) in policy_changes {
        assert!(POLICY.contains(from), "{from}");
        let changed = revision(&POLICY.replacen(from, to, 1), CATALOG);
        assert_eq!(revisions.insert(changed, (from, to)), None, "{from} -> {to}");
    }
    let catalog_changes =
        [("LIST", "LIS"), ("scope: read", "scope: admin"), ("curated: false", "curated: true"), ("td1:aa", "td1:ab")];
    for (from, to) in catalog_changes {
        let changed = revision(POLICY, &CATALOG.replacen(from, to, 1));
        assert_eq!(revisions.insert(changed, (from, to)), None, "{from} -> {to}");
    }
    let (head, rest) = POLICY.split_once("      - { name: first").unwrap();
    let (first, rest) = rest.split_once("      - { name: second").unwrap();
    let (second, tail) = rest.split_once("  hub:").unwrap();
    let swapped =
        revision(&format!("{head}      - {{ name: second{second}      - {{ name: first{first}  hub:{tail}"), CATALOG);
    assert_eq!(revisions.insert(swapped, ("rules", "in another order")), None);
}

#[test]
fn characters_that_move_across_borders_change_the_revision() {
    let policy = |body: &str| revision_of(&json!({ "policy": format!("version: countersign.policy/v1\n{body}") }));
    let pairs = [
        ("groups: { a: [b, c] }", "groups: { a: [bc] }"),
        ("groups: { ab: [c] }", "groups: { a: [bc] }"),
        ("groups: { a: [], b: [] }", "groups: { a: [b] }"),
        ("connectors: { a: { agents: [b], accounts: [] } }", "connectors: { a: { agents: [], accounts: [b] } }"),
        ("connectors: { a: { agents: [b] } }", "connectors: { a: { accounts: [b] } }"),
        ("groups: { a: [] }", "connectors: { a: {} }"),
        ("groups: { a: [b] }", "groups: { a: { members: [b], external: true } }"),
        ("groups: { a: { external: true }, b: [] }", "groups: { a: [], b: { external: true } }"),
    ];
    for (one, other) in pairs {
        assert_ne!(policy(one), policy(other), "{one} | {other}");
    }
    let (list, mapping) = ("groups: { a: [b] }", "groups: { a: { members: [b] } }");
    assert_eq!(policy(list), policy(mapping), "two ways to write one group");
}
