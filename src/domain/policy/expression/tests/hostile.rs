//! What the hostile get: an answer, and soon.

use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::limits::{MAX_BUILT_BYTES, MAX_SOURCE_BYTES, PARSER_STACK_BYTES};
use super::super::parse_and_check;
use super::*;

/// Texts of up to 4 KiB that are deep, wide, unended or nonsense.
fn hostile_sources() -> Vec<String> {
    let size = MAX_SOURCE_BYTES;
    let repeated = |unit: &str, tail: &str| format!("{}{tail}", unit.repeat((size - tail.len()) / unit.len()));
    let around = |open: &str, middle: &str, close: &str| {
        let count = (size - middle.len()) / (open.len() + close.len());
        format!("{}{middle}{}", open.repeat(count), close.repeat(count))
    };
    let mut sources: Vec<String> = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "!",
        "-",
        "!-",
        "- -",
        ".",
        "?",
        ":",
        ",",
        "'",
        "\"",
        "'''",
        "\\",
        "a",
        "0",
        "1.",
        "e9",
        "a.",
        "a?",
        "a?a:",
        "a||",
        "a&&",
        "a+",
        "a<",
        "a in ",
        "a==",
        "f(",
        "a.f(",
        "a[",
        "[a,",
        "{'a':",
        "{a:",
        "a{b:",
        "has(",
        "a.exists(x,",
        "[a].all(x,",
        "a.map(x,y,",
        "r'",
        "b'",
        "'\\",
        "\\u",
        "//",
        "/*",
        "\n",
        "\r",
        "\t",
        "\0",
        "é",
        "\u{1f600}",
        "\u{202e}",
        "\u{feff}",
        "@",
        "#",
        "$",
        "`",
        "`a`.",
        ".a",
        "a.?b",
        "a[?",
        "0x",
        "1u",
        "in ",
        "true ",
        "null,",
        "_?_:_(",
        "__result__.",
        "@result",
        ";",
        "=",
        "|",
        "&",
        "~",
        "^",
        "%",
        "*",
        "<>",
    ]
    .iter()
    .flat_map(|unit| [repeated(unit, ""), repeated(unit, "a"), repeated(unit, "1"), repeated(unit, "'")])
    .collect();
    for (open, middle, close) in [
        ("(", "a", ")"),
        ("[", "1", "]"),
        ("{'a':", "1", "}"),
        ("a[", "0", "]"),
        ("f(", "1", ")"),
        ("a.f(", "1", ")"),
        ("!(", "true", ")"),
        ("-(", "1", ")"),
        ("(a+", "a", ")"),
        ("(a||", "a", ")"),
        ("has(a.", "b", ")"),
        ("[a].exists(x,", "a", ")"),
        ("(a?", "a", ":a)"),
        ("(", "", ")"),
        ("[", "", "]"),
        ("((", "a", ")+1)"),
    ] {
        sources.push(around(open, middle, close));
    }
    sources.extend([
        format!("'{}' == args.a", "\\n".repeat(2_000)),
        format!("'{}' == args.a", "\\U0001F600".repeat(400)),
        format!("'{}' == args.a", "\\377".repeat(1_000)),
        format!("args.a == {}", "9".repeat(4_000)),
        format!("args.a == 0.{}", "9".repeat(4_000)),
        format!("args.a == 1e{}", "9".repeat(4_000)),
        format!("args.a.matches('{}')", "(".repeat(4_000)),
        format!("args.a.matches('{}')", "a*".repeat(2_000)),
        format!("args.a.matches('{}')", "(a{1000})".repeat(400)),
        format!("args.a.matches('{}')", "[[:alpha:]".repeat(400)),
        format!("args.a.matches('{}')", r"\\pL".repeat(900)),
        format!("args.a.{}", "matches('a').".repeat(300)),
    ]);
    sources.retain(|source| source.len() <= size);
    sources
}

#[test]
fn no_hostile_source_takes_down_or_holds_up_a_load() {
    for source in hostile_sources() {
        let start = Instant::now();
        let outcome = Expression::compile(&source);
        let head = source.chars().take(20).collect::<String>();
        assert!(start.elapsed() < Duration::from_secs(60), "{head} took {:?}", start.elapsed());
        if let Err(problem) = outcome {
            assert!(!problem.message.is_empty() && problem.message != "the parser failed on it", "{head}: {problem}");
        }
    }
}

/// The scan before the parser and the parser's own limits do not depend on each other.
#[test]
fn the_parser_survives_them_on_its_stack_even_without_the_scan() {
    for source in hostile_sources() {
        let parsing = thread::Builder::new().stack_size(PARSER_STACK_BYTES / 2).spawn(move || {
            parse_and_check(&source).map(|_| ()).ok();
        });
        parsing.unwrap().join().unwrap();
    }
}

/// Pieces that CEL is made of, so that random texts get past the first token.
const PIECES: &[&str] = &[
    "args",
    "args.a",
    "principal",
    "tags",
    "now",
    "x",
    ".",
    "a",
    "b",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    " in ",
    "true",
    "false",
    "null",
    "1",
    "0",
    "-1",
    "2.5",
    "1e308",
    "9223372036854775807",
    "'a'",
    "\"b\"",
    "r'\\d'",
    "'''c'''",
    "b'd'",
    "1u",
    "'",
    "\\",
    "\n",
    "// x\n",
    "size(",
    ".size()",
    ".contains(",
    ".matches('",
    ".exists(x,",
    ".all(x,",
    ".map(x,",
    ".filter(x,",
    "has(",
    "int(",
    "double(",
    "string(",
    "timestamp(",
    "duration(",
    "'1h'",
    ".getHours(",
    "'+01:00'",
    "'2026-01-01T00:00:00Z'",
    "é",
    "\u{1f600}",
    "\0",
];

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

fn any_json() -> impl Strategy<Value = Json> {
    let number = prop_oneof![
        any::<i64>().prop_map(|int| int.to_string()),
        prop::sample::select(vec![
            "0",
            "-1",
            "0.1",
            "9007199254740993",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775809",
            "1e+21",
            "1e+400",
            "0.1000000000000000055511151231257827",
            "5e-324",
            "1.7976931348623157e+308",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        number.prop_map(|text| super::number(&text)),
        ".{0,12}".prop_map(Json::String),
        prop::sample::select(vec!["1h", "2026-01-01T00:00:00Z", "12", "a@acme.com", "-1.5s"])
            .prop_map(|text| Json::String(text.to_owned())),
    ];
    leaf.prop_recursive(4, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            prop::collection::vec(("[abcxy]", inner), 0..6).prop_map(|members| {
                let unique: std::collections::BTreeMap<_, _> = members.into_iter().collect();
                Json::Object(unique.into_iter().collect())
            }),
        ]
    })
}

/// Expressions that do something to whatever `args.a` and `args.b` are.
const READERS: &[&str] = &[
    "args.a == args.b",
    "args.a != args.b",
    "args == args",
    "args.a < args.b",
    "args.a in args.b",
    "args.a + args.b == args.a",
    "args.a - args.b == args.a",
    "args.a * args.b == args.a",
    "args.a / args.b == args.a",
    "args.a % args.b == args.a",
    "-args.a == args.b",
    "!args.a",
    "args.a && args.b",
    "args.a || args.b",
    "args.a ? args.b : args.a",
    "args.a[args.b] == 1",
    "args.a.x.y == 1",
    "has(args.a.x)",
    "size(args.a) > 1",
    "args.a.contains(args.b)",
    "args.a.startsWith(args.b)",
    "args.a.endsWith(args.b)",
    "args.a.matches('^[a-z]+$')",
    "int(args.a) == 1",
    "double(args.a) == 1.0",
    "string(args.a) == ''",
    "timestamp(args.a) < now",
    "duration(args.a) < duration('1h')",
    "args.a.getHours() == 1",
    "args.a.getMonth('+01:00') == 1",
    "args.a.exists(x, x == args.b)",
    "args.a.all(x, x < args.b)",
    "args.a.exists_one(x, x == args.b)",
    "args.a.filter(x, x) == []",
    "args.a.map(x, x + x) == args.b",
    "args.a.map(x, [x, {'k': x}]) == args.b",
    "[args.a, args.b] == [args.b, args.a]",
    "now + duration(args.a) > timestamp(args.b)",
    "timestamp(args.a) - timestamp(args.b) > duration('0')",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_random_text_takes_down_a_load(text in prop_oneof![any::<String>(), "\\PC{0,200}", soup()]) {
        if let Err(problem) = Expression::compile(&text) {
            prop_assert_ne!(problem.message, "the parser failed on it");
        }
    }

    #[test]
    fn no_random_argument_makes_an_evaluation_panic(a in any_json(), b in any_json(), reader in prop::sample::select(READERS)) {
        let arguments = Json::Object(vec![("a".to_owned(), a), ("b".to_owned(), b)]);
        if let Err(reason) = answer(reader, &arguments) {
            prop_assert_ne!(reason, Reason::Internal, "{}", reader);
        }
    }

    #[test]
    fn equality_is_symmetric_and_inequality_its_opposite(a in any_json(), b in any_json()) {
        let arguments = Json::Object(vec![("a".to_owned(), a), ("b".to_owned(), b)]);
        let equal = answer("args.a == args.b", &arguments);
        prop_assert_eq!(answer("args.b == args.a", &arguments).ok(), equal.ok());
        prop_assert_eq!(answer("args.a != args.b", &arguments), equal.map(|equal| !equal));
    }
}

fn text_of(size: usize) -> Json {
    Json::String("a".repeat(size))
}

#[test]
fn a_string_that_is_built_has_a_bound() {
    let arguments = Json::Object(vec![("s".to_owned(), text_of(MAX_BUILT_BYTES / 2))]);
    holds("size(args.s + args.s) == 262144", &arguments);
    fails("size(args.s + args.s + 'a') > 1", &arguments, Reason::TextTooLong);
    let doubling = "[args.s]".to_owned() + &".map(x, x + x)".repeat(3);
    fails(&format!("{doubling} == []"), &arguments, Reason::TextTooLong);
    fails(&format!("args.s == '' || {doubling} == [] || true"), &arguments, Reason::TextTooLong);
}

#[test]
fn what_would_run_for_long_is_cut_short_in_every_way_of_doing_so() {
    let names = (0..1_000).map(|index| Json::String(format!("needle{index}"))).collect();
    let many = (0..30_000).map(|index| (format!("m{index}"), Json::Null)).collect::<Vec<_>>();
    let arguments = Json::Object(vec![
        ("s".to_owned(), text_of(200_000)),
        ("names".to_owned(), Json::Array(names)),
        ("nulls".to_owned(), Json::Array(vec![Json::Null; 50_000])),
        ("map".to_owned(), Json::Object(many)),
    ]);
    let wide = vec!["x == 'y'"; 200].join("||");
    for body in [
        "args.s.contains(x)",
        "args.s.matches('(a|aa)*b')",
        "args.s == args.s + x",
        "size(args.s + x) == 0",
        "x in args.nulls",
        "args.nulls == args.nulls && false",
        "args.map == args.map && false",
        "has(args.map.nothing)",
        "args.map['m29999'] != null",
        "size(args.s) == 0",
        "args.s < args.s",
        &wide,
    ] {
        let start = Instant::now();
        fails(&format!("args.names.exists(x, {body})"), &arguments, Reason::TooMuchWork);
        assert!(start.elapsed() < Duration::from_secs(60), "{body} took {:?}", start.elapsed());
    }
    let copies = "args.names.map(x, args.s + x) == []";
    fails(copies, &arguments, Reason::TooMuchWork);
}

#[test]
fn everyday_work_over_full_lists_is_within_the_budget() {
    let recipients = (0..1_000)
        .map(|index| Json::Object(vec![("email".to_owned(), Json::String(format!("person{index}@acme.com")))]));
    let arguments =
        Json::Object(vec![("to".to_owned(), Json::Array(recipients.collect())), ("body".to_owned(), text_of(200_000))]);
    let domains = (0..100).map(|index| format!("'d{index}.example'")).collect::<Vec<_>>().join(", ");
    for source in [
        "args.to.all(r, r.email.endsWith('@acme.com'))",
        "args.to.all(r, r.email.matches('^[a-z0-9.]+@acme\\\\.com$') && size(r.email) < 100)",
        "!args.body.matches('(?i)password') && !args.body.contains('secret') && size(args.body) == 200000",
        &format!("!args.to.exists(r, r.email in [{domains}] || r.email == 'x')"),
        "args.to.map(r, r.email).filter(e, e.startsWith('person99')).size() == 11",
    ] {
        holds(source, &arguments);
    }
}
