//! What is refused at load, and how it is said.

use super::super::limits::{MAX_DEPTH, MAX_NODES};
use super::*;

#[test]
fn a_problem_names_its_place_and_the_way_out() {
    for (source, problem) in [
        (
            "args.x == 1 && user == 'a'",
            "column 16: `user` is not declared: there are args, principal, agent, \
            conversation, account, action, scope, tags and now",
        ),
        ("true\n && é", "line 2, column 5: token recognition error at: 'é'"),
        (
            "'é' == args.x && foo",
            "column 18: `foo` is not declared: there are args, principal, agent, conversation, \
            account, action, scope, tags and now",
        ),
        ("args.x.contains()", "column 16: `contains` is called as x.contains(y)"),
        ("contains(args.x, 'a')", "column 9: `contains` is called as x.contains(y)"),
        ("args.x.int() == 1", "column 11: `int` is called as int(x)"),
        ("size(args, args) == 1", "column 5: `size` is called as x.size() or size(x)"),
        ("args.x.startsWith(5)", "column 18: the argument of `startsWith` takes a string, not an int"),
        ("principal.name == 'a'", "column 10: `.name` takes a map, not a string"),
        ("'true'", "an expression has to be a bool, and this is a string"),
        ("args", "an expression has to be a bool, and this is a map"),
        ("tags", "an expression has to be a bool, and this is a list"),
        ("principal", "an expression has to be a bool, and this is a string"),
        ("1 + 1", "an expression has to be a bool, and this is an int"),
        ("now", "an expression has to be a bool, and this is a timestamp"),
        ("null", "an expression has to be a bool, and this is null"),
        ("principal == 5", "column 11: `==` is not defined for a string and an int"),
        ("principal && true", "column 11: `&&` is not defined for a string and a bool"),
        ("!principal", "column 1: `!` takes a bool, not a string"),
        ("args.x == 1 / 0", "column 13: this never has a value: a division by zero"),
        ("timestamp('yesterday') < now", "column 10: this never has a value: a text cannot be converted"),
        ("args.x.matches(args.y)", "column 20: the pattern of `matches` has to be a literal string"),
        ("args.x.matches('(')", "column 16: this pattern is not valid: unclosed group"),
        (
            "args.x.exists(y, y.exists(z, z))",
            "column 26: `exists` stands within another comprehension: they do not nest",
        ),
        ("args.x.exists(args, args)", "column 15: `args` cannot name the variable of a comprehension"),
        ("args.x.exists(y.z, true)", "column 16: the first argument of `exists` is the name of a variable"),
        ("args.x.exists(y)", "column 14: `exists` takes a variable and an expression over it"),
        ("has(args)", "column 4: `has` takes one member, such as has(args.subject)"),
        ("has(args['x'])", "column 4: `has` takes one member, such as has(args.subject)"),
        (
            "now.getHours('Europe/Zurich') == 1",
            "column 14: a zone is UTC or a fixed distance from it, such as '+01:00'",
        ),
        ("now.getHours(account) == 1", "column 14: a zone has to be a literal string"),
        ("{'a': 1, 'a': 2} == args", "column 10: this key stands twice"),
        ("{principal: 1} == args", "column 2: the keys of a map have to be literal strings"),
        ("args.x == b'a'", "column 11: bytes are not available: arguments never are bytes"),
        ("args.x == 1u", "column 11: unsigned integers are not available: leave out the u"),
        ("args[?'x'] == 1", "column 5: optional values are not available: ask with `has` first"),
        ("args.x ==", "column 10: the expression ends too early"),
        ("(args.x == 1", "column 13: the expression ends too early"),
        ("args.x ? true", "column 1: this part is not complete"),
        ("args.x not in tags", "column 8: unexpected 'not'"),
        ("Foo{a: 1} == args", "column 4: messages are not available: write a map"),
    ] {
        assert_eq!(refusal(source), problem, "{source}");
    }
}

#[test]
fn what_is_not_cel_is_refused() {
    for source in [
        "args.",
        "args..x",
        "a b",
        "(",
        ")",
        "args.x ==",
        "== 1",
        "args.x = 1",
        "args.x === 1",
        "args.x & 1",
        "1 <> 2",
        "if (true) true",
        "args.?x == 1",
        "args[?'x'] == 1",
        "args.`x`",
        "'unended",
        "\"a",
        "@result",
        "args.x;",
        "var",
        "[1,,2] == args.x",
        "{'a'} == args",
        "0x",
        "1e",
        "9223372036854775808 == args.x",
        "1e999 == args.x",
        "'\\q' == args.x",
        "'\\ud800' == args.x",
        "args.x ? true",
        "args.x.(y)",
        "\0",
        "args\0",
        "\u{feff}true",
        "true // comment\n false",
    ] {
        refusal(source);
    }
}

#[test]
fn only_the_listed_functions_are_there() {
    for source in [
        "type(args.x) == int",
        "dyn(args.x)",
        "uint(args.x) == 1",
        "bytes(args.x) == args.y",
        "bool(args.x)",
        "args.x.lowerAscii() == 'a'",
        "args.x.split(',') == []",
        "math.greatest(1, 2) == 2",
        "optional.of(1) == 1",
        "args.x.optMap(y, y)",
        "f()",
        "args.x.f()",
        "_+_(1, 2) == 3",
        "args.x.join() == ''",
        "cel.bind(x, 1, x == 1)",
        "args.x.format([]) == ''",
        "base64.encode('a') == ''",
        "[1].sort() == [1]",
        "args.transformList(i, v, v) == []",
        "exists(args.x, y, y)",
        "args.x.has(y)",
        "google.protobuf.Timestamp{} == now",
        "string == string",
        "max(1, 2) == 2",
        ".size(args) == 1",
        ".args == args",
        "args.x.exists(.y, true)",
    ] {
        refusal(source);
    }
}

#[test]
fn a_type_that_can_be_told_to_be_wrong_is_refused() {
    for source in [
        "1 == 'a'",
        "principal == null",
        "principal < 5",
        "args < args",
        "tags < tags",
        "null < null",
        "tags == principal",
        "principal + 1 == 'a'",
        "'a' - 'b' == ''",
        "now + now == now",
        "now - 1 == now",
        "-principal == 1",
        "1 + 1.0 == 2.0",
        "1.5 % 2 == 1",
        "1 in principal",
        "1 in tags",
        "principal in [1, 2]",
        "5 in args",
        "tags['a'] == 'b'",
        "args[1] == 1",
        "principal[0] == 'd'",
        "tags.x == 1",
        "has(principal.x)",
        "size(1) == 1",
        "size(now) == 1",
        "int(tags) == 1",
        "int(true) == 1",
        "string(1.5) == '1.5'",
        "string(tags) == ''",
        "timestamp(1.5) < now",
        "duration(5) == duration('5s')",
        "principal.all(x, true)",
        "tags.all(x, 'a')",
        "tags.filter(x, x) == []",
        "tags.exists(t, t == 5)",
        "true ? 1 : 2",
        "true ? principal : agent",
        "1 ? true : false",
        "(true ? 'a' : 'b') && true",
        "principal.getHours() == 1",
        "duration('1h').getDate() == 1",
        "duration('1h').getHours('+01:00') == 1",
        "5.matches('5')",
        "now.matches('5')",
        "args.map(k, k)",
        "tags.map(t, t.size()).exists(n, n == 'a')",
        "[1, 2].exists(n, n.contains('a'))",
        "!5",
        "now == principal",
        "{'a': 1} + {'b': 2} == args",
        "[1][1] == 1",
        "{'a': 1}.b == 1",
        "9223372036854775807 + 1 == 0",
        "-(-9223372036854775808) == 1",
        "'a' * 3 == 'aaa'",
        "args - args == args",
    ] {
        refusal(source);
    }
}

#[test]
fn constants_are_computed_at_load() {
    for source in [
        "1 + 1 == 2",
        "'abc'.size() == 3",
        "duration('1h') > duration('1m')",
        "1 in [1, 2]",
        "!false",
        "{'a': 1}.a == 1",
    ] {
        assert_eq!(answer(source, &args("{}")), Ok(true), "{source}");
    }
}

#[test]
fn the_bounds_hold_and_what_is_within_them_compiles() {
    let list = |count: usize| format!("args.x in [{}]", vec!["1"; count].join(","));
    compile(&list(MAX_NODES - 4));
    assert!(refusal(&list(MAX_NODES - 3)).contains("at most 1024 operators, names and values"));
    let sum = |count: usize| format!("args.x == {}", vec!["args.y"; count].join("+"));
    compile(&sum(MAX_DEPTH - 4));
    assert!(refusal(&sum(MAX_DEPTH + 1)).contains("at most 64 operators deep"));
    // The parser balances these, so that they are many and not deep.
    compile(&vec!["args.x == 1"; 200].join("||"));
    let long = "x".repeat(4_000);
    compile(&format!("args.x == '{long}'"));
    assert!(refusal(&format!("args.x == '{long}{long}'")).contains("at most 4096 bytes"));
}

#[test]
fn debug_shows_the_source_and_an_expression_crosses_threads() {
    fn crosses<T: Send + Sync>(value: T) -> T {
        value
    }
    let expression = crosses(compile("args.x == 1"));
    assert_eq!(format!("{expression:?}"), "Expression(\"args.x == 1\")");
    assert_eq!(expression.source(), "args.x == 1");
    assert_eq!(expression.clone(), expression);
    assert_ne!(expression, compile("args.x == 2"));
}

#[test]
fn facts_show_no_arguments_when_debugged() {
    let arguments = args(r#"{"secret": "hunter2"}"#);
    let input = FactsInput {
        args: &arguments,
        principal: "dana",
        agent: "assistant",
        conversation: "",
        account: "",
        action: "A",
        scope: "read",
        tags: &[],
        now: NOW,
    };
    assert!(!format!("{input:?} {:?}", Facts::new(input)).contains("hunter2"));
}
