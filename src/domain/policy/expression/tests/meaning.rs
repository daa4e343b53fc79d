//! What expressions mean.

use super::*;

/// Neither of these two is an `i64`, nor what RFC 8785 writes for its double.
const INEXACT: &str = r##"{"big": "#9223372036854775809", "long": "#0.1000000000000000000001", "small": 5,
    "list": [1, "#9223372036854775809", 3], "deep": {"big": "#9223372036854775809", "other": 1}}"##;

#[test]
fn the_example_of_the_design_tells_outside_from_inside() {
    let source = "!args.recipient_email.endsWith('@acme.com')";
    assert_eq!(answer(source, &args(r#"{"recipient_email": "kim@acme.com"}"#)), Ok(false));
    assert_eq!(answer(source, &args(r#"{"recipient_email": "kim@acme.com.evil.example"}"#)), Ok(true));
    assert_eq!(answer(source, &args(r#"{"recipient_email": "kim@ACME.com"}"#)), Ok(true));
    fails(source, &args("{}"), Reason::MissingMember);
    fails(source, &args(r#"{"recipient_email": null}"#), Reason::WrongType);
    fails(source, &args(r#"{"recipient_email": ["kim@acme.com"]}"#), Reason::WrongType);
}

#[test]
fn every_declared_variable_is_readable() {
    for source in [
        "principal == 'dana'",
        "agent == 'assistant'",
        "conversation == ''",
        "account == 'work-mailbox-a'",
        "action == 'GMAIL_SEND_EMAIL' && action.startsWith('GMAIL_')",
        "scope == 'write'",
        "'createHint' in tags && !('readOnlyHint' in tags) && tags.size() == 2",
        "tags.exists(tag, tag.endsWith('Hint')) && tags[1] == 'destructiveHint'",
        "now > timestamp('2026-03-01T22:30:15Z') && now < timestamp('2026-03-01T22:30:16Z')",
        "args == {} && size(args) == 0",
        "true",
    ] {
        holds(source, &args("{}"));
    }
}

#[test]
fn a_number_is_an_int_by_its_value_and_never_by_its_spelling() {
    let numbers = args(
        r##"{"int": 5, "double": 5.5, "max": 9223372036854775807, "min": -9223372036854775808,
        "beyond": "#9223372036854776000", "huge": "#1e+300", "zero": 0}"##,
    );
    for source in [
        "args.int == 5 && args.int == 5.0 && args.int + 1 == 6 && args.int / 2 == 2 && args.int % 2 == 1",
        "args.double == 5.5 && args.double > 5 && args.double < 6 && args.double * 2.0 == 11.0",
        "args.max == 9223372036854775807 && args.max < 9223372036854775808.0",
        "args.min == -9223372036854775808 && args.min == -9223372036854775808.0",
        "args.beyond == 9223372036854775808.0 && args.beyond > args.max",
        "args.huge > 1e299 && args.huge > args.max",
        "args.zero == 0 && args.zero == -0.0",
        "double(args.int) / 2.0 == 2.5",
        "args.int in [1.0, 5.0] && [args.int, args.double] == [5.0, 5.5]",
    ] {
        holds(source, &numbers);
    }
    fails("args.int * 1.5 > 1.0", &numbers, Reason::WrongType);
    fails("args.double + 1 > 1", &numbers, Reason::WrongType);
    fails("args.beyond + 1 > 1", &numbers, Reason::WrongType);
    fails("args.max + 1 > 1", &numbers, Reason::Overflow);
    fails("args.min - 1 < 1", &numbers, Reason::Overflow);
    fails("-args.min > 1", &numbers, Reason::Overflow);
    fails("args.min / -1 > 1", &numbers, Reason::Overflow);
    fails("args.min % -1 == 0", &numbers, Reason::Overflow);
    fails("args.max * 2 > 1", &numbers, Reason::Overflow);
    fails("args.huge * args.huge > 1.0", &numbers, Reason::Overflow);
    fails("1 / args.zero == 1", &numbers, Reason::DivisionByZero);
    fails("1 % args.zero == 1", &numbers, Reason::DivisionByZero);
    fails("1.0 / double(args.zero) > 1.0", &numbers, Reason::DivisionByZero);
    fails("args.double % 2 == 1", &numbers, Reason::WrongType);
}

#[test]
fn integers_and_doubles_compare_exactly_where_doubles_are_sparse() {
    let numbers = args(r##"{"odd": 9007199254740993, "even": 9007199254740992, "max": 9223372036854775807}"##);
    for source in [
        "args.odd != 9007199254740992.0 && args.odd > 9007199254740992.0 && !(args.odd <= 9007199254740992.0)",
        "args.even == 9007199254740992.0 && args.even >= 9007199254740992.0",
        "args.odd != args.even && !(args.odd in [9007199254740992.0])",
        "args.max != 9223372036854775807.0 && args.max < 9223372036854775807.0",
    ] {
        holds(source, &numbers);
    }
}

#[test]
fn a_number_that_is_not_exact_is_an_error_to_whatever_reads_it() {
    let arguments = args(INEXACT);
    for member in ["args.big", "args.long", "args['big']", "args.deep.big", "args.list[1]"] {
        for source in [
            "X == 1",
            "1 == X",
            "X != 1",
            "X == X",
            "X == 'a'",
            "'a' != X",
            "X == null",
            "null == X",
            "X == 1.5",
            "X == [1]",
            "[X] == [1]",
            "[1] != [X]",
            "X < 1",
            "1 >= X",
            "X + 1 == 2",
            "1 - X == 2",
            "-X == 1",
            "X * 1.0 == 1.0",
            "X / 2 == 1",
            "X % 2 == 1",
            "int(X) == 1",
            "double(X) == 1.0",
            "string(X) == '1'",
            "timestamp(X) < now",
            "X in [1, 2]",
            "1 in [X]",
            "{'a': X} == {'a': 1}",
            "[1, 2][X] == 1",
            "X ? true : false",
            "!X",
            "X",
            "size(X) == 1",
            "X.contains('1')",
            "[X].exists(x, x == 1)",
            "[1].map(x, X) == [1]",
            "[1].filter(x, X == 1) == []",
            "(true ? X : 1) == 1",
            "has(X.y)",
            "X.y == 1",
            "X || false",
            "true && X",
        ] {
            let source = source.replace('X', member);
            fails(&source, &arguments, Reason::NumberNotExact);
        }
    }
    for source in [
        "args == args",
        "args.list == [1, 2, 3]",
        "[1, 2, 3] == args.list",
        "args.deep == {'big': 1, 'other': 1}",
        "{'big': 1, 'other': 1} != args.deep",
        "3 in args.list",
        "args.list.exists(x, x == 7)",
        "args.list.all(x, x > 0)",
        "args.list.filter(x, true) == []",
        "args.list.map(x, x) == []",
        "args.list + [1] == []",
        "args.list.exists_one(x, x == 1)",
    ] {
        fails(source, &arguments, Reason::NumberNotExact);
    }
}

#[test]
fn a_number_that_is_not_exact_is_nothing_to_who_does_not_read_it() {
    let arguments = args(INEXACT);
    for source in [
        "args.small == 5",
        "has(args.big) && has(args.deep.big) && 'big' in args && size(args) == 5",
        "args.deep.other == 1 && args.list[0] == 1 && args.list[2] == 3",
        "size(args.list) == 3 && args.list != [1, 2]",
        "args.deep != {'other': 1}",
        "1 in args.list",
        "args.list.exists(x, x == 3)",
        "!args.list.all(x, x < 3)",
        "args.list.map(x, 'seen').size() == 3",
        "args.small == 5 || args.big == 5",
        "args.big == 5 || args.small == 5",
        "!(args.big == 5 && args.small == 6)",
        "args.small == 5 ? true : args.big == 1",
        "args.exists(name, name == 'big')",
    ] {
        holds(source, &arguments);
    }
}

#[test]
fn what_is_missing_is_an_error_unless_it_is_asked_for() {
    let arguments = args(r#"{"a": {"b": null}, "l": [1]}"#);
    for source in [
        "has(args.a) && has(args.a.b) && !has(args.c) && !has(args.a.c)",
        "args.a.b == null",
        "'a' in args && !('c' in args)",
        "!has(args.c) || args.c.d == 1",
        "args['a']['b'] == null",
    ] {
        holds(source, &arguments);
    }
    for (source, reason) in [
        ("args.c == 1", Reason::MissingMember),
        ("args['c'] == 1", Reason::MissingMember),
        ("args.c.d == 1", Reason::MissingMember),
        ("has(args.c.d)", Reason::MissingMember),
        ("args.a.b.c == 1", Reason::WrongType),
        ("has(args.a.b.c)", Reason::WrongType),
        ("args.l.x == 1", Reason::WrongType),
        ("args.l[1] == 1", Reason::IndexOutOfRange),
        ("args.l[-1] == 1", Reason::IndexOutOfRange),
        ("args.l['0'] == 1", Reason::WrongType),
        ("args.a[0] == 1", Reason::WrongType),
        ("null in args.a", Reason::WrongType),
        ("1 in args.a", Reason::WrongType),
        ("true in args.a", Reason::WrongType),
        ("1 in args.l[0]", Reason::WrongType),
    ] {
        fails(source, &arguments, reason);
    }
}

#[test]
fn an_error_says_where_and_nothing_of_the_request() {
    let arguments = args(r#"{"secret": "hunter2"}"#);
    let error = answer_at("true &&\n args.secret + 1 == 2", &arguments, NOW).unwrap_err();
    assert_eq!(error.to_string(), "a value has a type that this is not defined for (line 2, column 14)");
    let error = answer_at("args.other == 'é' && args.gone == 1", &arguments, NOW).unwrap_err();
    assert_eq!(error.to_string(), "a member that is read is missing (column 5)");
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[test]
fn only_a_bool_is_an_answer() {
    let arguments = args(r#"{"yes": true, "no": false, "text": "true", "one": 1, "none": null, "list": [true]}"#);
    assert_eq!(answer("args.yes", &arguments), Ok(true));
    assert_eq!(answer("args.no", &arguments), Ok(false));
    for source in ["args.text", "args.one", "args.none", "args.list", "args.yes ? args.text : false"] {
        fails(source, &arguments, Reason::NotBool);
    }
    for source in ["!args.text", "args.one && true", "args.none || false", "args.text ? true : false"] {
        fails(source, &arguments, Reason::WrongType);
    }
}

#[test]
fn the_side_that_decides_alone_passes_over_an_error_on_the_other() {
    let arguments = args(r#"{"t": true, "f": false, "one": 1}"#);
    for source in
        ["args.t || args.x", "args.x || args.t", "args.one || args.t", "!(args.f && args.x)", "!(args.x && args.f)"]
    {
        holds(source, &arguments);
    }
    for source in ["args.f || args.x", "args.x || args.f", "args.t && args.x", "args.x && args.t", "args.x || args.x"] {
        fails(source, &arguments, Reason::MissingMember);
    }
    fails("args.x || args.one", &arguments, Reason::MissingMember);
    fails("args.x ? true : true", &arguments, Reason::MissingMember);
}

#[test]
fn no_logic_passes_over_a_limit_that_was_hit() {
    let many = Json::Array(vec![Json::Bool(true); 1_001]);
    let arguments = Json::Object(vec![("many".to_owned(), many), ("t".to_owned(), Json::Bool(true))]);
    for source in [
        "args.many.exists(x, x)",
        "args.many.all(x, x) || args.t",
        "args.t && (args.many.all(x, x) || args.t)",
        "!(args.many.all(x, x) && !args.t)",
        "[1].exists(y, args.many + [true] == [] || args.t)",
        "args.many.map(x, x) == []",
        "args.many + [1] == []",
    ] {
        fails(source, &arguments, Reason::TooManyElements);
    }
    holds("args.t || args.many.all(x, x)", &arguments);
    holds("size(args.many) == 1001 && true in args.many && args.many[1000]", &arguments);
}

#[test]
fn a_map_of_too_many_members_is_an_error_in_a_comprehension() {
    let members = |count: usize| Json::Object((0..count).map(|index| (index.to_string(), Json::Null)).collect());
    holds("args.all(name, name != '')", &members(1_000));
    fails("args.all(name, name != '')", &members(1_001), Reason::TooManyElements);
    holds("size(args) == 1001 && '1000' in args", &members(1_001));
}

#[test]
fn comprehensions_go_through_lists_and_the_keys_of_maps() {
    let arguments = args(
        r#"{"to": [{"email": "a@acme.com"}, {"email": "b@evil.example"}], "n": [1, 2, 3], "e": [], "o": {"x": 1, "y": 2}}"#,
    );
    for source in [
        "args.to.exists(r, !r.email.endsWith('@acme.com'))",
        "!args.to.all(r, r.email.endsWith('@acme.com'))",
        "args.to.exists_one(r, r.email == 'a@acme.com') && args.to.existsOne(r, r.email == 'a@acme.com')",
        "!args.n.exists_one(n, n > 1) && !args.n.exists_one(n, n > 3)",
        "args.n.filter(n, n > 1) == [2, 3]",
        "args.n.map(n, n * 2) == [2, 4, 6]",
        "args.n.map(n, n > 1, n * 2) == [4, 6]",
        "args.e.all(x, false) && !args.e.exists(x, true) && !args.e.exists_one(x, true)",
        "args.e.map(x, x) == [] && args.e.filter(x, x) == []",
        "args.o.map(k, args.o[k]) == [1, 2] && args.o.exists(k, k == 'y')",
        "args.to.map(r, r.email).filter(e, e.endsWith('.example')).size() == 1",
        "args.n.exists(n, n == 2) && args.n.exists(m, m == 3)",
        "{'a': 1}.all(k, k == 'a') && [1, 2].exists(n, n == args.n[1])",
        "args.n.map(n, [n, args.n]) == [[1, [1, 2, 3]], [2, [1, 2, 3]], [3, [1, 2, 3]]]",
        "args.n.exists(n, n.x == 1 || n == 3)",
        "!args.n.all(n, n.x == 1 && n != 3)",
    ] {
        holds(source, &arguments);
    }
    fails("args.n.exists(n, n.x == 1)", &arguments, Reason::WrongType);
    fails("args.n.filter(n, n.x == 1) == []", &arguments, Reason::WrongType);
    fails("args.n.exists_one(n, n == 1 || n.x)", &arguments, Reason::WrongType);
    fails("args.n.filter(n, args.n) == []", &arguments, Reason::WrongType);
    fails("args.nothing.exists(n, n == 1)", &arguments, Reason::MissingMember);
    fails("args.n[0].exists(n, n == 1)", &arguments, Reason::WrongType);
}

#[test]
fn strings_are_compared_by_bytes_and_counted_by_code_points() {
    let arguments = args(r#"{"e": "é", "d": "e\u0301", "smile": "\ud83d\ude00", "upper": "K", "kelvin": "\u212a"}"#);
    for source in [
        "args.e != args.d && size(args.e) == 1 && args.d.size() == 2 && size(args.smile) == 1",
        "args.upper != 'k' && args.kelvin != 'K' && args.kelvin != 'k'",
        "!args.d.endsWith(args.e) && args.d.startsWith('e') && !args.e.contains('e')",
        "args.e == '\\u00e9' && args.smile == '\\U0001F600'",
        "'a' < 'b' && 'B' < 'a' && 'a' < 'aa' && '\\uffff' < '\\U00010000'",
        "'ab' + 'c' == 'abc' && args.e + args.d == 'éé' || size(args.e + args.d) == 3",
        "args.e.contains('') && args.e.startsWith('') && args.e.endsWith('')",
        "'a\\'b' == \"a'b\" && r'\\d' == '\\\\d' && '''a'b''' == 'a\\'b'",
    ] {
        holds(source, &arguments);
    }
}

#[test]
fn patterns_match_anywhere_unless_anchored() {
    let arguments = args(r#"{"url": "https://api.acme.com/v1", "n": 5}"#);
    for source in [
        "args.url.matches('acme')",
        "matches(args.url, r'^https://([a-z]+\\.)*acme\\.com(/|$)')",
        "!args.url.matches('^acme')",
        "'abc'.matches('b')",
    ] {
        holds(source, &arguments);
    }
    fails("args.n.matches('5')", &arguments, Reason::WrongType);
}

#[test]
fn conversions_take_what_they_list_and_nothing_that_merely_looks_like_it() {
    let arguments = args(
        r##"{"i": "42", "d": "1.5", "bad": "4 2", "empty": "", "t": "2026-03-01T22:30:15.5Z", "s": "90m", "f": 2.9,
            "huge": 1e300, "edge": "#9223372036854776000", "inf": "inf", "nan": "NaN", "plus": "+7", "b": true}"##,
    );
    for source in [
        "int(args.i) == 42 && int(args.f) == 2 && int(-args.f) == -2 && int(args.plus) == 7 && int(7) == 7",
        "double(args.d) == 1.5 && double(args.i) == 42.0 && double(3) == 3.0",
        "string(42) == '42' && string(args.b) == 'true' && string(args.i) == '42'",
        "timestamp(args.t) == now && string(now) == '2026-03-01T22:30:15.5Z'",
        "int(now) == 1772404215 && timestamp(1772404215) < now",
        "duration(args.s) == duration('1h30m') && string(duration('1h30m')) == '5400s'",
    ] {
        holds(source, &arguments);
    }
    for (source, reason) in [
        ("int(args.bad) == 1", Reason::NotConvertible),
        ("int(args.empty) == 1", Reason::NotConvertible),
        ("int(args.d) == 1", Reason::NotConvertible),
        ("int(args.huge) == 1", Reason::Overflow),
        ("int(args.edge) == 1", Reason::Overflow),
        ("int(args.b) == 1", Reason::WrongType),
        ("double(args.inf) > 1.0", Reason::NotConvertible),
        ("double(args.nan) > 1.0", Reason::NotConvertible),
        ("double(args.empty) > 1.0", Reason::NotConvertible),
        ("string(args.f) == '2.9'", Reason::WrongType),
        ("timestamp(args.s) < now", Reason::NotConvertible),
        ("timestamp(9223372036854775807 - args.nothing) < now", Reason::MissingMember),
        ("timestamp(int(args.i) * 10000000000) < now", Reason::Overflow),
        ("duration(args.t) < duration('1s')", Reason::NotConvertible),
    ] {
        fails(source, &arguments, reason);
    }
}

#[test]
fn times_are_read_in_utc_or_at_a_fixed_distance_from_it() {
    let arguments = args(r#"{"start": "2026-03-02T00:30:15.5Z", "n": 1}"#);
    for source in [
        "now.getFullYear() == 2026 && now.getMonth() == 2 && now.getDate() == 1 && now.getDayOfMonth() == 0",
        "now.getDayOfWeek() == 0 && now.getDayOfYear() == 59 && now.getHours() == 22 && now.getMinutes() == 30",
        "now.getSeconds() == 15 && now.getMilliseconds() == 500",
        "now.getHours('+02:00') == 0 && now.getDate('+02:00') == 2 && now.getDayOfWeek('+02:00') == 1",
        "now.getHours('-09:30') == 13 && now.getHours('UTC') == 22",
        "timestamp(args.start) - now == duration('2h')",
        "now + duration('2h') == timestamp(args.start) && duration('2h') + now == timestamp(args.start)",
        "now - duration('22h30m15.5s') == timestamp('2026-03-01T00:00:00Z')",
        "(timestamp(args.start) - now).getHours() == 2 && duration('1h30m').getMinutes() == 90",
        "duration('1.5s').getMilliseconds() == 1500 && duration('-90s').getSeconds() == -90",
        "duration('1h') + duration('1m') > duration('1h') && duration('1h') - duration('2h') < duration('0')",
    ] {
        holds(source, &arguments);
    }
    for (source, reason) in [
        ("args.n.getHours() == 1", Reason::WrongType),
        ("duration(args.start).getHours() == 1", Reason::NotConvertible),
        ("now + args.n == now", Reason::WrongType),
        ("timestamp('9999-12-31T23:59:59Z') + (now - now) + duration(string(args.n) + 's') > now", Reason::Overflow),
        ("timestamp('9999-12-31T23:59:59Z') - timestamp(args.start) > duration('1s')", Reason::Overflow),
    ] {
        fails(source, &arguments, reason);
    }
}

#[test]
fn a_time_outside_of_the_calendar_is_an_error_to_who_reads_it() {
    let far = Timestamp::from_micros(i64::MAX);
    assert_eq!(answer_at("now > timestamp(0)", &args("{}"), far).unwrap_err().reason, Reason::Overflow);
    assert_eq!(answer_at("action != ''", &args("{}"), far), Ok(true));
}

#[test]
fn values_of_different_kinds_are_neither_equal_nor_unequal_and_have_no_order() {
    let arguments = args(r#"{"n": 1, "s": "1", "b": true, "z": null, "l": [1], "o": {"a": 1}}"#);
    for left in ["n", "s", "b", "z", "l", "o"] {
        for right in ["n", "s", "b", "z", "l", "o"] {
            let equal = answer(&format!("args.{left} == args.{right}"), &arguments);
            let comparable = left == right || left == "z" || right == "z";
            let want = |equal| if comparable { Ok(equal) } else { Err(Reason::WrongType) };
            assert_eq!(equal, want(left == right), "{left} == {right}");
            let unequal = answer(&format!("args.{left} != args.{right}"), &arguments);
            assert_eq!(unequal, want(left != right), "{left} != {right}");
            let is_in = answer(&format!("args.{left} in [args.{right}]"), &arguments);
            assert_eq!(is_in, want(left == right), "{left} in [{right}]");
            let ordered = answer(&format!("args.{left} <= args.{right}"), &arguments);
            let want = if left == right && ["n", "s", "b"].contains(&left) { Ok(true) } else { Err(Reason::WrongType) };
            assert_eq!(ordered, want, "{left} <= {right}");
        }
    }
    holds("{'a': 1, 'b': [2]} == {'b': [2.0], 'a': 1.0} && args.o == {'a': 1}", &arguments);
    holds("[1, 'a', null] != [1, 'a'] && [[1]] == [args.l]", &arguments);
}

#[test]
fn a_value_of_another_kind_does_not_get_past_a_rule_that_names_it() {
    let arguments = args(
        r#"{"to": ["evil@x.com"], "amount": "1000", "force": "true", "nested": [["evil"]], "mixed": [1, "evil"],
            "o": {"x": "1"}, "whole": 1.0, "none": null}"#,
    );
    for source in [
        "args.to == 'evil@x.com'",
        "args.to != 'kim@acme.com'",
        "'evil@x.com' == args.to",
        "args.to in ['evil@x.com', 'eve@x.com']",
        "!(args.to in ['kim@acme.com'])",
        "args.amount == 1000",
        "args.amount in [1000]",
        "args.force == true",
        "args.nested.exists(x, x == 'evil')",
        "'evil' in args.nested",
        "args.nested == ['evil']",
        "['evil'] in [args.mixed + args.nested, args.nested]",
        "args.mixed == ['1', 'evil']",
        "args.o == {'x': 1}",
        "{'x': 1} == args.o",
        "'good' in args.mixed",
        "args.o.x == args.whole",
        "args == {'to': 1} || args.o == 'x'",
    ] {
        fails(source, &arguments, Reason::WrongType);
    }
    for source in [
        "'evil' in args.mixed && 1 in args.mixed && args.whole in args.mixed",
        "args.mixed.exists(x, x == 'evil')",
        "args.none == null && args.to != null && !(null in args.mixed) && !(args.none in ['a'])",
        "args.whole == 1 && args.whole in [1] && [args.whole] == [1]",
        "args.to != [] && args.to != ['a', 'b'] && args.o != {}",
    ] {
        holds(source, &arguments);
    }
}

#[test]
fn the_names_that_other_languages_treat_specially_are_ordinary() {
    let arguments = args(r#"{"constructor": 1, "__proto__": 2, "a.b": 3, "": 4, "args": 5, "principal": 6}"#);
    holds("args.constructor == 1 && args.__proto__ == 2 && args['a.b'] == 3 && args[''] == 4", &arguments);
    holds("args.args == 5 && args.principal == 6 && principal == 'dana'", &arguments);
    fails("args.a.b == 3", &arguments, Reason::MissingMember);
}
