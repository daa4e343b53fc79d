use super::*;

fn parse(text: &str) -> Result<CaseFile, Vec<String>> {
    CaseFile::parse("t.yaml", text).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// One case with these values in `call`, all required ones given, as it is read.
fn call(more: &str) -> Result<Call, Vec<String>> {
    let text = format!(
        "version: countersign.tests/v1\ncall: {{ principal: p, agent: a, connector: c, action: x, account: y }}\n\
         cases:\n  - name: n\n    call: {more}\n    want: {{ decision: ALLOW }}\n"
    );
    parse(&text).map(|mut file| file.cases.remove(0).call)
}

fn arguments(yaml: &str) -> String {
    call(&format!("{{ arguments: {yaml} }}")).unwrap().arguments.canonical().to_owned()
}

#[test]
fn a_call_starts_from_what_stands_at_the_top() {
    let read = call("{ action: other, account: null }").unwrap();
    assert_eq!((read.principal.as_str(), read.action.as_str(), read.account), ("p", "other", None));
    assert_eq!((read.definition, read.now), (Definition::Absent, NOW));
    assert_eq!(read.arguments.canonical(), "{}");
    assert_eq!(NOW.to_string(), "2026-01-01T00:00:00.000000Z");
}

#[test]
fn a_case_without_a_call_of_its_own_asks_what_stands_at_the_top() {
    let text = "version: countersign.tests/v1\npolicy: ../p\n\
                call: { principal: p, agent: a, connector: c, action: x, arguments: { n: 1 } }\n\
                cases:\n  - { name: one, want: { decision: ALLOW } }\n\
                \x20 - { name: two, call: { arguments_json: '{\"m\":2}' }, want: { decision: DENY } }\n\
                \x20 - { name: three, call: { arguments: ~ }, want: { decision: DENY } }\n";
    let file = parse(text).unwrap();
    assert_eq!(file.policy.as_deref(), Some("../p"));
    let read: Vec<(usize, &str)> = file.cases.iter().map(|case| (case.line, case.call.arguments.canonical())).collect();
    assert_eq!(read, [(5, "{\"n\":1}"), (6, "{\"m\":2}"), (7, "{}")]);
}

#[test]
fn arguments_keep_the_exact_value_of_every_number() {
    assert_eq!(arguments("{ n: 9007199254740993 }"), "{\"n\":9007199254740993}");
    assert_eq!(
        arguments("{ n: 1.0, m: -0, k: 1e2, j: 0.1000000000000000000001 }"),
        "{\"j\":0.1000000000000000000001,\"k\":100,\"m\":0,\"n\":1}"
    );
    assert_eq!(arguments("{ n: '1', m: \"true\", k: 'null' }"), "{\"k\":\"null\",\"m\":\"true\",\"n\":\"1\"}");
}

#[test]
fn arguments_are_what_they_look_like() {
    assert_eq!(
        arguments(
            "{ a: [1, two, [], {}], b: { c: null, d: ~, e: }, f: true, g: \"l\\n\\u202e\", h: 2026-01-01, i: 1.2.3 }"
        ),
        "{\"a\":[1,\"two\",[],{}],\"b\":{\"c\":null,\"d\":null,\"e\":null},\"f\":true,\"g\":\"l\\n\u{202e}\",\"h\":\"2026-01-01\",\"i\":\"1.2.3\"}"
    );
    assert_eq!(
        arguments("{ a: td1:00, b: 10m, c: -x, d: e5, e: x=1, f: main }"),
        "{\"a\":\"td1:00\",\"b\":\"10m\",\"c\":\"-x\",\"d\":\"e5\",\"e\":\"x=1\",\"f\":\"main\"}"
    );
    for unclear in [
        "0x10", "0o7", "+1", ".5", "1.", "010", "yes", "No", "on", "True", "NULL", ".inf", "-.INF", ".nan", "n",
        "1E+05.", "1_0",
    ] {
        let read = call(&format!("{{ arguments: {{ v: [{unclear}] }} }}"));
        let clear = unclear == "1_0" || unclear == "1E+05.";
        assert_eq!(read.is_err(), !clear, "{unclear}: {read:?}");
        if let Err(problems) = read {
            assert!(problems[0].contains("cases[0].call.arguments.v[0]: is not clear: write"), "{problems:?}");
        }
    }
}

#[test]
fn times_and_definitions_are_read() {
    let read = call("{ now: 2026-03-01T22:30:15.5Z, definition: catalog }").unwrap();
    assert_eq!((read.now.micros(), read.definition), (1_772_404_215_500_000, Definition::Catalog));
    assert_eq!(call("{ now: 2026-03-01T23:30:15.5+01:00 }").unwrap().now.micros(), 1_772_404_215_500_000);
    let text = format!("td1:{}", "0a".repeat(32));
    let digest = DefinitionDigest::parse(&text).unwrap();
    assert_eq!(call(&format!("{{ definition: {text} }}")).unwrap().definition, Definition::Digest(digest));
    for wrong in ["td1:0", "catalogue", &text.to_uppercase(), &format!("{text}0"), "\"\""] {
        let problems = call(&format!("{{ definition: {wrong} }}")).unwrap_err();
        assert!(problems[0].contains("definition: must be `catalog`, or `td1:` and 64"), "{problems:?}");
    }
}

#[test]
fn every_problem_of_a_file_is_named_with_its_line() {
    let text = "version: countersign.tests/v2\nextra: 1\ncall: { principal: p, agnet: a }\ncases:\n\
                \x20 - name: one\n    call: { connector: c, now: soon, arguments: [1], arguments_json: '{}' }\n    want: { decision: MAYBE, reason: WHY, colour: red }\n\
                \x20 - call: { agent: \" a\", arguments_json: '{\"a\":1,\"a\":2}' }\n    want: { reason: ALLOWED, rules: x, clauses: [{ any_of: [nobody] }, {}], decide_within: long }\n\
                \x20 - name: one\n    want: 5\n";
    let problems = parse(text).unwrap_err();
    for (line, part) in [
        (1, "version: must be `countersign.tests/v1`"),
        (2, "extra: "),
        (3, "call.agnet: "),
        (6, "has both `arguments` and `arguments_json`"),
        (6, "call.now: must be a time"),
        (6, "lacks `action`"),
        (6, "call.arguments: must be a mapping"),
        (7, "want.decision: must be one of"),
        (7, "want.reason: must be one of"),
        (7, "want.colour: "),
        (8, "cases[1]: lacks `name`"),
        (8, "call.agent: "),
        (8, "are no arguments: a second member of the same name"),
        (9, "lacks `decision`"),
        (9, "want.rules: must be a list"),
        (9, "clauses[0].any_of[0]: must be `owner`"),
        (9, "clauses[1]: lacks `any_of`"),
        (9, "want.decide_within: must be a span"),
        (10, "is the name of the case on line 5 already"),
        (11, "want: must be a mapping"),
    ] {
        let found =
            problems.iter().any(|problem| problem.starts_with(&format!("t.yaml:{line}:")) && problem.contains(part));
        assert!(found, "{line} {part}: {problems:#?}");
    }
}

#[test]
fn a_file_that_tests_nothing_is_refused() {
    for text in [
        "version: countersign.tests/v1\n",
        "version: countersign.tests/v1\ncases: []\n",
        "version: countersign.tests/v1\ncases:\n",
    ] {
        assert!(parse(text).unwrap_err()[0].contains("cases"), "{text}");
    }
}

#[test]
fn a_want_that_cannot_be_read_is_not_one_that_is_left_out() {
    let text = "version: countersign.tests/v1\ncall: { principal: p, agent: a, connector: c, action: x }\n\
                cases: [{ name: n, want: { decision: ALLOW, exclude_requester: maybe } }]\n";
    assert!(parse(text).is_err());
}

#[test]
fn debug_output_has_no_arguments_in_it() {
    assert!(!format!("{:?}", call("{ arguments: { password: hunter2 } }")).contains("hunter2"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(version: countersign.tests/v1\n)?(cases:\n)?( {0,4}(- )?(name|call|want|now|arguments|x)?[:,\\[\\]{}'\"0-9.e+-]{0,6} ?[a-z0-9]{0,3}\n){0,10}") {
        _ = CaseFile::parse("f", &text);
    }

    #[test]
    fn whatever_json_writes_as_a_number_is_one(number in proptest::num::f64::NORMAL, whole in proptest::num::i64::ANY) {
        proptest::prop_assert!(is_json_number(&serde_json::to_string(&number).unwrap()));
        proptest::prop_assert!(is_json_number(&whole.to_string()));
    }
}
