use super::*;
use crate::domain::canonical::MAX_BYTES;
use crate::domain::policy::Catalog;
use crate::domain::scope::Scope;
use proptest::prelude::*;

const GITHUB: &str = include_str!("../../../../tests/data/github-mcp-tools.json");

fn list(tools: &str) -> String {
    format!("{{\"tools\":[{tools}]}}")
}

fn tool(name: &str, annotations: &str) -> String {
    format!("{{\"name\":{},\"inputSchema\":{{}},\"annotations\":{annotations}}}", serde_json::to_string(name).unwrap())
}

fn read(text: &str) -> Vec<Tool> {
    read_tools(text).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn refusals(text: &str) -> Vec<String> {
    read_tools(text).unwrap_err().iter().map(ToString::to_string).collect()
}

fn digest(tool: &str) -> String {
    read(&list(tool)).remove(0).definition.to_string()
}

fn fresh(tools: &[Tool]) -> Import {
    import(None, tools, false).unwrap()
}

fn into(catalog: &str, tools: &[Tool], curated: bool) -> Import {
    import(Some(&ExistingCatalog::read("c.yaml", catalog).unwrap()), tools, curated).unwrap()
}

#[test]
fn githubs_list_comes_in_whole_and_scoped_by_its_annotations() {
    let tools = read(GITHUB);
    let count = |scope| tools.iter().filter(|tool| tool.scope == scope).count();
    assert_eq!(tools.len(), 117);
    assert_eq!((count(Scope::Read), count(Scope::Write), count(Scope::Admin)), (58, 24, 35));
    let silent = tools.iter().filter(|tool| tool.scope == Scope::Admin).count()
        - GITHUB.matches("\"destructiveHint\": true").count();
    assert_eq!(silent, 25, "tools that are not read-only and say nothing of destruction");
    let import = fresh(&tools);
    assert_eq!((import.report.added.len(), import.report.entries.len()), (117, 117));
    assert_eq!(import.report.uncurated().count(), 117, "what a server says of itself is nobody's review");
}

/// Computed by another program in another language from the same file.
#[test]
fn definition_digests_are_those_that_any_language_computes() {
    let tools = read(GITHUB);
    for (name, want) in [
        ("actions_get", "td1:6bedf2551fa874fda85bc2ee33079557385fc708bc584e925e30dd33faacb563"),
        ("get_me", "td1:db76a2f72845aa13489daaf5f742abded45044b0e1bf8e6d2fe45f0bbc4a2ad1"),
        ("merge_pull_request", "td1:cc3c769924d5ab7e1cf08df00d616e74db54c2e6344b4567907fc4dea0ad28c4"),
        ("push_files", "td1:f5a20d0d5ecdd3ccbaad3495a0cef54833a583671ca8815f71392ff3152138a3"),
    ] {
        assert_eq!(
            tools.iter().find(|tool| tool.name.as_str() == name).unwrap().definition.to_string(),
            want,
            "{name}"
        );
    }
}

#[test]
fn scope_and_tags_follow_the_annotations() {
    use Scope::{Admin, Read, Write};
    const CHANGES: [&str; 2] = ["createHint", "updateHint"];
    const DESTROYS: [&str; 3] = ["createHint", "updateHint", "destructiveHint"];
    for (annotations, scope, tags) in [
        ("{\"readOnlyHint\":true}", Read, &["readOnlyHint"][..]),
        ("{\"readOnlyHint\":true,\"destructiveHint\":false}", Read, &["readOnlyHint"]),
        ("{\"readOnlyHint\":true,\"destructiveHint\":true}", Admin, &DESTROYS),
        ("{\"readOnlyHint\":false,\"destructiveHint\":false}", Write, &CHANGES),
        ("{\"destructiveHint\":false}", Write, &CHANGES),
        ("{\"readOnlyHint\":false}", Admin, &DESTROYS),
        ("{\"destructiveHint\":true}", Admin, &DESTROYS),
        ("{\"readOnlyHint\":null,\"destructiveHint\":null}", Admin, &DESTROYS),
        ("{}", Admin, &DESTROYS),
        ("null", Admin, &DESTROYS),
        (
            "{\"readOnlyHint\":true,\"idempotentHint\":true,\"openWorldHint\":true}",
            Read,
            &["readOnlyHint", "idempotentHint", "openWorldHint"],
        ),
        ("{\"destructiveHint\":false,\"idempotentHint\":false,\"openWorldHint\":false}", Write, &CHANGES),
    ] {
        let tool = read(&list(&tool("x", annotations))).remove(0);
        assert_eq!((tool.scope, tool.tags.as_slice()), (scope, tags), "{annotations}");
    }
    assert_eq!(read(&list("{\"name\":\"x\"}")).remove(0).scope, Admin, "no annotations at all");
}

#[test]
fn a_response_around_the_list_changes_nothing() {
    let bare = list(&tool("x", "{}"));
    assert_eq!(read(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{bare}}}")), read(&bare));
    assert_eq!(read(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":null,\"result\":{bare}}}")), read(&bare));
}

#[test]
fn a_digest_covers_the_five_members_and_nothing_else() {
    let base = "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1}}";
    for same in [
        "{\"inputSchema\":{\"a\":1.0},\"description\":\"\\u0064\",\"name\":\"x\"}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1},\"outputSchema\":null,\"annotations\":null}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1},\"title\":\"T\",\"_meta\":{\"b\":2},\"icons\":[]}",
    ] {
        assert_eq!(digest(base), digest(same), "{same}");
    }
    for other in [
        "{\"name\":\"y\",\"description\":\"d\",\"inputSchema\":{\"a\":1}}",
        "{\"name\":\"x\",\"description\":\"d \",\"inputSchema\":{\"a\":1}}",
        "{\"name\":\"x\",\"inputSchema\":{\"a\":1}}",
        "{\"name\":\"x\",\"description\":\"\",\"inputSchema\":{\"a\":1}}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":2}}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1,\"b\":null}}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1},\"outputSchema\":{}}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1},\"annotations\":{}}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":1},\"annotations\":{\"title\":\"t\"}}",
        "{\"name\":\"x\",\"description\":\"d\",\"inputSchema\":{\"a\":9007199254740993}}",
    ] {
        assert_ne!(digest(base), digest(other), "{other}");
    }
    let large = |number: &str| digest(&format!("{{\"name\":\"x\",\"inputSchema\":{{\"maximum\":{number}}}}}"));
    assert_ne!(large("9007199254740993"), large("9007199254740992"), "numbers keep their exact value");
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let text = format!(
        "{{\"nextCursor\":\"p2\",\"tools\":[{},{{\"name\":7}},{{\"description\":\"d\"}},5,{},{},{}]}}",
        tool("a", "{\"readOnlyHint\":\"yes\",\"openWorldHint\":1}"),
        "{\"name\":\"b\",\"description\":[],\"inputSchema\":\"\",\"outputSchema\":1,\"title\":{},\"annotations\":true}",
        tool("a", "{\"title\":5}"),
        tool(" a", "{}"),
    );
    let problems = refusals(&text);
    for (pointer, part) in [
        ("/nextCursor", "fetch every page"),
        ("/tools/0/annotations/readOnlyHint", "true or false"),
        ("/tools/0/annotations/openWorldHint", "true or false"),
        ("/tools/1/name", "must be text"),
        ("/tools/2/name", "is missing"),
        ("/tools/3", "must be an object"),
        ("/tools/4/description", "must be text"),
        ("/tools/4/inputSchema", "must be an object"),
        ("/tools/4/outputSchema", "must be an object"),
        ("/tools/4/title", "must be text"),
        ("/tools/4/annotations", "must be an object"),
        ("/tools/5/name", "already the name of /tools/0"),
        ("/tools/5/annotations/title", "must be text"),
        ("/tools/6/name", "\" a\" cannot name an action"),
    ] {
        let found = problems.iter().filter(|problem| problem.starts_with(&format!("{pointer}: ")));
        assert!(
            found.clone().count() == 1 && found.clone().all(|problem| problem.contains(part)),
            "{pointer}: {problems:#?}"
        );
    }
    assert_eq!(problems.len(), 14, "{problems:#?}");
}

#[test]
fn what_is_no_whole_list_is_refused() {
    for (text, part) in [
        ("", "no `tools`"),
        ("{}", "no `tools`"),
        ("[]", "object is needed"),
        ("{\"tools\":[]}", "holds no tool"),
        ("{\"tools\":null}", "no `tools`"),
        ("{\"tools\":{}}", "must be an array"),
        ("{\"result\":{}}", "/result: no `tools`"),
        ("{\"result\":[]}", "/result: no `tools`"),
        ("{\"result\":{\"tools\":[]},\"tools\":[]}", "which list"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601}}", "answered with an error"),
        ("{\"tools\":[{\"name\":\"x\"}],\"nextCursor\":\"\"}", "fetch every page"),
        ("{\"result\":{\"tools\":[{\"name\":\"x\"}],\"nextCursor\":\"x\"}}", "/result/nextCursor"),
        ("{\"tools\":[{\"name\":\"x\",\"name\":\"y\"}]}", "second member of the same name"),
        ("{\"tools\":[{\"name\":\"x\"}]} {}", "more text"),
    ] {
        let problems = refusals(text);
        assert!(problems.len() == 1 && problems[0].contains(part), "{text}: {problems:?}");
    }
    let long = list(&format!("{{\"name\":\"x\",\"description\":\"{}\"}}", "d".repeat(MAX_BYTES)));
    assert!(refusals(&long)[0].contains("longer than"));
    let deep = list(&format!("{{\"name\":\"x\",\"inputSchema\":{}1{}}}", "{\"a\":".repeat(70), "}".repeat(70)));
    assert!(refusals(&deep)[0].contains("deeper"));
}

#[test]
fn a_hostile_name_is_refused_without_being_repeated_raw() {
    for name in
        ["", " ", "a\nb", "a\u{202e}b", "a\u{200b}b", "a\u{0}", "\u{feff}x", "x\u{2028}", &"n".repeat(257), "a*b", "*"]
    {
        let problems = refusals(&list(&tool(name, "{}")));
        assert_eq!(problems.len(), 1, "{name:?}");
        assert!(problems[0].chars().all(|character| !crate::domain::text::is_hidden(character)), "{problems:?}");
    }
}

const HOSTILE: [&str; 34] = [
    "no",
    "NO",
    "null",
    "~",
    "1",
    "1e3",
    "0x10",
    "1_000",
    ".inf",
    "2026-01-01",
    "true",
    "y",
    "on",
    "a: b",
    "a #b",
    "- a",
    "-",
    "?",
    "&a",
    "<<a",
    "!a",
    "a\"b",
    "a'b",
    "a\\nb",
    "{a}",
    "[a]",
    "a,b",
    "%a",
    "@a",
    "`a`",
    "<<",
    "---",
    "...",
    "é😀",
];

#[test]
fn every_name_that_is_taken_reads_back_as_itself() {
    let tools: Vec<String> = HOSTILE.iter().map(|name| tool(name, "{\"readOnlyHint\":true}")).collect();
    let import = fresh(&read(&list(&tools.join(","))));
    let mut want: Vec<&str> = HOSTILE.to_vec();
    want.sort_unstable();
    assert_eq!(names(&import.text), want);
}

fn names(catalog: &str) -> Vec<String> {
    Catalog::parse("c", catalog)
        .unwrap_or_else(|problems| panic!("{problems:?}\n{catalog}"))
        .actions
        .into_keys()
        .collect()
}

#[test]
fn an_entry_looks_as_a_person_would_write_it() {
    let tools = read(&list(
        "{\"name\":\"b\",\"title\":\"Say: \\\"hi\\\"\\u202e\",\"annotations\":{\"destructiveHint\":false}},\
         {\"name\":\"a\",\"annotations\":{\"readOnlyHint\":true,\"title\":\"Get it\"}}",
    ));
    assert_eq!(
        fresh(&tools).text,
        format!(
            "version: countersign.catalog/v1\n\
             actions:\n\
             \x20 a:\n\
             \x20   scope: read\n\
             \x20   curated: false\n\
             \x20   tags: [readOnlyHint]\n\
             \x20   definition: {}\n\
             \x20   title: Get it\n\
             \x20 b:\n\
             \x20   scope: write\n\
             \x20   curated: false\n\
             \x20   tags: [createHint, updateHint]\n\
             \x20   definition: {}\n\
             \x20   title: \"Say: \\\"hi\\\"\\U0000202E\"\n",
            tools[1].definition, tools[0].definition
        )
    );
}

#[test]
fn a_title_too_long_to_show_is_left_out() {
    let import = fresh(&read(&list(&format!("{{\"name\":\"x\",\"title\":\"{}\"}}", "t".repeat(257)))));
    assert!(!import.text.contains("title"));
}

/// A reviewed catalog: `kept` and `hand` as the list has them, `changed` with another digest, `gone` not in the list.
const REVIEWED: &str = "\
# Reviewed by Ana.

# The actions.
actions:

    # Never touch this one.
    changed:
      scope: read
      curated: true # looked at twice
      definition: td1:0000000000000000000000000000000000000000000000000000000000000000
      note: 'sends: mail'

    gone: { scope: write, curated: true }

    # This one is fine.
    kept: { scope: read, curated: true,
      tags: [mine], definition: \"@kept\" }   # a remark

    hand:
      scope: read
      curated: false
      definition: @hand
      note: |
        text
        # no comment
# The end.
version: countersign.catalog/v1
";

const UPDATED: &str = "\
# Reviewed by Ana.

# The actions.
actions:

    added:
      scope: write
      curated: false
      tags: [createHint, updateHint]
      definition: @added
    # Never touch this one.
    changed:
      scope: write
      curated: false
      tags: [createHint, updateHint]
      definition: @changed
      note: \"sends: mail\"
    hand:
      scope: read
      curated: false
      definition: @hand
      note: |
        text
        # no comment
    # This one is fine.
    kept: { scope: read, curated: true,
      tags: [mine], definition: \"@kept\" }   # a remark

# The end.
version: countersign.catalog/v1
";

/// The catalog with the digests of `tools` in place of their names.
fn pinned(catalog: &str, tools: &[Tool]) -> String {
    tools
        .iter()
        .fold(catalog.to_owned(), |text, tool| text.replace(&format!("@{}", tool.name), &tool.definition.to_string()))
}

fn update() -> Vec<Tool> {
    read(&list(&["added", "changed", "hand", "kept"].map(|name| tool(name, "{\"destructiveHint\":false}")).join(",")))
}

fn was(name: &str, scope: Scope, curated: bool) -> Outcome {
    Outcome { name: name.to_owned(), scope, curated }
}

#[test]
fn what_was_reviewed_stays_byte_for_byte_and_what_changed_is_reviewed_again() {
    let tools = update();
    let outcome = into(&pinned(REVIEWED, &tools), &tools, false);
    assert_eq!(outcome.text, pinned(UPDATED, &tools));
    let report = &outcome.report;
    assert_eq!(report.added, ["added"]);
    assert_eq!(report.changed, [was("changed", Scope::Read, true)]);
    assert_eq!(report.removed, [was("gone", Scope::Write, true)]);
    assert_eq!(report.kept, ["hand", "kept"]);
    let uncurated: Vec<&str> = report.uncurated().map(|entry| entry.name.as_str()).collect();
    assert_eq!(uncurated, ["added", "changed", "hand"]);
}

#[test]
fn the_same_list_again_changes_nothing() {
    let tools = update();
    let once = into(&pinned(REVIEWED, &tools), &tools, false);
    let twice = into(&once.text, &tools, false);
    assert_eq!(once.text, twice.text);
    assert_eq!((twice.report.kept.len(), twice.report.added.len(), twice.report.changed.len()), (4, 0, 0));
    let github = fresh(&read(GITHUB));
    assert_eq!(into(&github.text, &read(GITHUB), false).text, github.text);
}

#[test]
fn curated_marks_the_whole_outcome_and_nothing_else() {
    let tools = update();
    let marked = into(&pinned(REVIEWED, &tools), &tools, true);
    assert_eq!(marked.report.uncurated().count(), 0);
    let once = into(&pinned(REVIEWED, &tools), &tools, false).text;
    let after = into(&once, &tools, true);
    assert_eq!(after.report.uncurated().count(), 0);
    assert_eq!(after.report.kept.len(), 4);
    assert!(after.text.contains("tags: [mine]") && after.text.contains("# a remark"), "{}", after.text);
    assert!(after.text.contains("note: \"text\\n# no comment\\n\""), "{}", after.text);
    assert_eq!(into(&after.text, &tools, true).text, after.text);
}

#[test]
fn a_catalog_without_a_last_line_break_takes_entries() {
    let tools = update();
    let outcome = into(pinned(REVIEWED, &tools).trim_end(), &tools, false);
    assert!(outcome.text.ends_with("version: countersign.catalog/v1"));
    let kept = tools[3].definition;
    let bare = format!(
        "version: countersign.catalog/v1\nactions:\n  kept: {{scope: read, curated: true, definition: {kept}}}"
    );
    assert_eq!(names(&into(&bare, &tools, false).text), ["added", "changed", "hand", "kept"]);
}

#[test]
fn an_entry_without_a_digest_was_reviewed_for_nobody_knows_what() {
    let catalog = "version: countersign.catalog/v1\nactions:\n  kept: {scope: read, curated: true}\n";
    let report = into(catalog, &update(), false).report;
    assert_eq!(report.changed, [was("kept", Scope::Read, true)]);
    assert_eq!(report.entries[3], was("kept", Scope::Write, false));
}

#[test]
fn windows_line_ends_survive() {
    let tools = update();
    let catalog = pinned(REVIEWED, &tools).replace('\n', "\r\n");
    let text = into(&catalog, &tools, false).text;
    assert!(text.contains("    # This one is fine.\r\n    kept: { scope: read, curated: true,\r\n"), "{text:?}");
}

#[test]
fn a_file_that_is_no_catalog_is_refused_by_line() {
    const START: &str = "version: countersign.catalog/v1\nactions:";
    for (text, part) in [
        (String::new(), "c.yaml: is empty"),
        ("a: [".to_owned(), "is no YAML"),
        ("version: countersign.policy/v1\nactions:\n  a: {scope: read}\n".to_owned(), "c.yaml:1:10: version: must be"),
        (format!("{START} {{}}\n"), "lists nothing"),
        (format!("{START} {{a: {{scope: read, curated: true}}}}\n"), "c.yaml:2:0: actions: \"a\" must start a line"),
        (
            format!("{START}\n  a: {{scope: read, curated: true}}\n  b: {{scope: raed, curated: true}}\n"),
            "c.yaml:4:14: actions.b.scope: must be one of",
        ),
        (format!("{START}\n  a: {{scope: read, curated: true, colour: red}}\n"), "colour"),
        (
            format!("{START} {{\n  a: {{scope: read, curated: true}}, b: {{scope: read, curated: true}}}}\n"),
            "\"a\" must start",
        ),
    ] {
        let problems = ExistingCatalog::read("c.yaml", &text).unwrap_err();
        assert!(problems.iter().any(|problem| problem.to_string().contains(part)), "{text:?}: {problems:?}");
    }
}

#[test]
fn a_flow_mapping_that_would_swallow_new_entries_is_not_written() {
    let text = "version: countersign.catalog/v1\nactions: {\n  a: {scope: read, curated: true}\n}\n";
    let outcome = ExistingCatalog::read("c.yaml", text).and_then(|catalog| import(Some(&catalog), &update(), false));
    assert!(outcome.is_err(), "{outcome:?}");
}

proptest! {
    #[test]
    fn names_and_titles_survive_whatever_they_are(name in "\\PC{1,20}", title in "\\PC{0,20}|[a-z:# '\"\n\t]{0,12}") {
        let tool = serde_json::json!({ "name": name, "title": title });
        if let Ok(tools) = read_tools(&list(&tool.to_string())) {
            let text = fresh(&tools).text;
            prop_assert_eq!(names(&text), vec![name.clone()]);
            let catalog = Catalog::parse("c", &text).unwrap();
            prop_assert_eq!(&catalog.actions[&name].title, &tools[0].title);
        }
    }

    #[test]
    fn no_list_makes_it_panic(text in "[\\[\\]{}\":,a-e0-9 ]{0,60}|\\PC{0,40}") {
        _ = read_tools(&text);
    }

    #[test]
    fn no_catalog_makes_it_panic(text in "version: countersign.catalog/v1\nactions:\n( {0,3}[a-c#:{}\\[\\]'| ,]{0,8}\n){0,8}") {
        if let Ok(catalog) = ExistingCatalog::read("c", &text) {
            _ = import(Some(&catalog), &update(), false);
        }
    }
}
