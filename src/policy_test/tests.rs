use super::*;
use crate::domain::decision::PolicyReason;
use crate::domain::fingerprint::DefinitionDigest;
use crate::domain::policy::Catalog;
use crate::domain::policy::import::{ExistingCatalog, Tool, import, read_tools};
use crate::domain::scope::Scope;
use std::collections::BTreeSet;

/// A path inside the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

fn sample() -> Policy {
    load_policy(&repository("deploy/policy")).unwrap_or_else(|error| panic!("{error}"))
}

fn github_tools() -> Vec<Tool> {
    read_tools(&text("tests/data/github-mcp-tools.json")).unwrap()
}

fn github_catalog() -> Catalog {
    Catalog::parse("github.yaml", &text("deploy/policy/catalogs/github.yaml")).unwrap()
}

/// Every case of the sample's tests.
fn sample_cases() -> Vec<Case> {
    let mut runner = Runner { report: TestReport::default(), policies: BTreeMap::new() };
    let files = runner.files(&repository("deploy/policy/tests"));
    files.iter().flat_map(|file| CaseFile::parse("f", &fs::read_to_string(file).unwrap()).unwrap().cases).collect()
}

#[test]
fn every_promise_of_the_sample_policy_holds() {
    let report = run_tests(&[repository("deploy/policy/tests")], None);
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(report.cases >= 60, "{}", report.cases);
}

#[test]
fn the_sample_policy_has_nothing_to_warn_of() {
    assert_eq!(sample().warnings(), []);
}

#[test]
fn the_demo_policy_stands_alone() {
    let policy = load_policy(&repository("deploy/policy/gmail.yaml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(policy.warnings(), []);
    assert_eq!(policy.entry("gmail", "GMAIL_SEND_EMAIL").unwrap().scope, Scope::Write);
}

#[test]
fn the_sample_tests_show_every_reason_and_every_rule() {
    let cases = sample_cases();
    let reasons: BTreeSet<&str> = cases.iter().filter_map(|case| case.want.reason).map(PolicyReason::as_str).collect();
    assert_eq!(reasons, PolicyReason::ALL.map(PolicyReason::as_str).into_iter().collect());
    let shown: BTreeSet<&str> =
        cases.iter().filter_map(|case| case.want.rules.as_ref()).flatten().map(String::as_str).collect();
    let files =
        ["github.yaml", "gmail.yaml", "small.yaml", "policy.yaml"].map(|file| text(&format!("deploy/policy/{file}")));
    let rules: BTreeSet<&str> =
        files.iter().flat_map(|file| file.lines()).filter_map(|line| line.trim().strip_prefix("- name: ")).collect();
    assert!(rules.len() > 10);
    assert_eq!(shown, rules);
}

#[test]
fn the_sample_catalog_pins_the_tools_that_the_list_has() {
    let catalog = github_catalog();
    let pinned: BTreeMap<&str, Option<DefinitionDigest>> =
        catalog.actions.iter().map(|(name, action)| (name.as_str(), action.entry.definition)).collect();
    let tools = github_tools();
    let listed: BTreeMap<&str, Option<DefinitionDigest>> =
        tools.iter().map(|tool| (tool.name.as_str(), Some(tool.definition))).collect();
    assert_eq!((pinned.len(), &pinned), (117, &listed));
}

#[test]
fn the_sample_catalog_was_reviewed_and_says_why_where_it_differs() {
    let (catalog, tools) = (github_catalog(), github_tools());
    for tool in &tools {
        let action = &catalog.actions[tool.name.as_str()];
        assert!(action.entry.curated, "{}", tool.name);
        assert!(action.entry.scope <= tool.scope, "{} is stronger than it says of itself", tool.name);
        assert!(action.entry.scope == tool.scope || action.note.is_some(), "{} needs a note", tool.name);
        let destroys = action.entry.tags.iter().any(|tag| tag == "destructiveHint");
        assert!(!destroys || action.note.is_some(), "{} needs a note", tool.name);
        assert_eq!(action.entry.scope == Scope::Read, *action.entry.tags == ["readOnlyHint"], "{}", tool.name);
    }
    let count = |scope| catalog.actions.values().filter(|action| action.entry.scope == scope).count();
    assert_eq!(Scope::ALL.map(count), [58, 51, 8]);
}

#[test]
fn importing_the_list_again_leaves_the_sample_catalog_as_it_is() {
    let reviewed = text("deploy/policy/catalogs/github.yaml");
    let existing = ExistingCatalog::read("github.yaml", &reviewed).unwrap();
    assert_eq!(import(Some(&existing), &github_tools(), false).unwrap().text, reviewed);
}

#[test]
fn a_wrong_expectation_fails_in_every_part_that_is_wrong() {
    let case = case(
        "{ decision: ALLOW, reason: ALLOWED, rules: [x], rules_in_error: [y], clauses: [{ any_of: [owner], quorum: 2 }], \
         exclude_requester: true, decide_within: 1m, use_within: 1m, message_contains: never said }",
    );
    let differences = run_case(&case, &sample());
    let shown: Vec<String> = differences.iter().map(|it| format!("{}: {} / {}", it.key, it.want, it.got)).collect();
    assert_eq!(
        shown[..8],
        [
            "decision: ALLOW / CONFIRMATION_REQUIRED",
            "reason: ALLOWED / CONFIRMATION_BY_RULE",
            "rules: [x] / [merges]",
            "rules_in_error: [y] / []",
            "clauses: [{any_of: [owner], quorum: 2}] / [{any_of: [owner], quorum: 1}, {any_of: [group:release], quorum: 1}]",
            "exclude_requester: true / false",
            "decide_within: 60s / 3600s",
            "use_within: 60s / 600s",
        ]
    );
    assert!(shown.len() == 9 && shown[8].starts_with("message_contains: \"never said\" / \""), "{shown:?}");
}

#[test]
fn what_is_not_wanted_is_not_compared_but_nothing_is_not_the_same_as_anything() {
    assert_eq!(run_case(&case("{ decision: CONFIRMATION_REQUIRED }"), &sample()), []);
    let differences = run_case(&case("{ decision: CONFIRMATION_REQUIRED, rules: [], clauses: [] }"), &sample());
    assert_eq!(differences.iter().map(|it| it.key).collect::<Vec<_>>(), ["rules", "clauses"]);
}

/// A merge by dana, which asks the release group, and what is wanted of it.
fn case(want: &str) -> Case {
    let text = format!(
        "version: countersign.tests/v1\ncases:\n  - name: n\n    call: {{ principal: dana, agent: coder, connector: github, \
         account: acme-engineering, action: merge_pull_request, definition: catalog }}\n    want: {want}\n"
    );
    CaseFile::parse("f", &text).unwrap().cases.remove(0)
}
