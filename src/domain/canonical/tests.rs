use std::time::{Duration, Instant};

use super::*;

const VECTORS: &str = include_str!("../../../tests/vectors/canonical-and-fingerprint.json");

#[test]
fn published_vectors_are_reproduced() {
    let vectors: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
    let vectors = vectors["canonical_json"].as_array().unwrap();
    assert!(vectors.len() >= 35);
    for vector in vectors {
        let text = vector["arguments_json"].as_str().unwrap();
        let want = vector["canonical"].as_str();
        assert_eq!(want.is_none(), vector["refused"].as_bool().unwrap_or(false));
        assert_eq!(object(text).ok().as_deref(), want, "{}", vector["name"]);
    }
}

#[test]
fn each_problem_is_named_with_its_place() {
    for (text, code, pointer, offset) in [
        ("", "UNEXPECTED_END", "", 0),
        (" ", "UNEXPECTED_END", "", 1),
        ("\u{FEFF}{}", "BYTE_ORDER_MARK", "", 0),
        ("{\"a\":[1,2", "UNEXPECTED_END", "/a", 9),
        ("{\"a\":[1,2}", "UNEXPECTED_CHARACTER", "/a", 9),
        ("{\"a\":{\"b\":[0,tru]}}", "UNEXPECTED_CHARACTER", "/a/b/1", 16),
        ("{\"a\":1} x", "TRAILING_TEXT", "", 8),
        ("{\"a\":1}{}", "TRAILING_TEXT", "", 7),
        ("{}\0", "TRAILING_TEXT", "", 2),
        ("{\"a\":1,\"b\":{\"c\":1,\"\\u0063\":2}}", "DUPLICATE_MEMBER", "/b/c", 18),
        ("{\"b\":1,\"a\":2,\"b\":3,\"a\":4}", "DUPLICATE_MEMBER", "/a", 19),
        ("{\"a/b~\":\"\\ud800\"}", "UNPAIRED_SURROGATE", "/a~1b~0", 9),
        ("[\"\\ud800\\ud800\"]", "UNPAIRED_SURROGATE", "/0", 2),
        ("[\"\\ud800\\n\"]", "UNPAIRED_SURROGATE", "/0", 2),
        ("[\"\\udc00\\ud800\"]", "UNPAIRED_SURROGATE", "/0", 2),
        ("{\"\\udfff\":1}", "UNPAIRED_SURROGATE", "", 2),
        ("[\"\\x\"]", "INVALID_ESCAPE", "/0", 2),
        ("[\"\\u12g4\"]", "INVALID_ESCAPE", "/0", 2),
        ("[\"\\u+123\"]", "INVALID_ESCAPE", "/0", 2),
        ("[\"\\u12", "UNEXPECTED_END", "/0", 6),
        ("[\"\\", "UNEXPECTED_END", "/0", 3),
        ("[\"\\ud83d\\", "UNEXPECTED_END", "/0", 9),
        ("[\"a\nb\"]", "CONTROL_CHARACTER", "/0", 3),
        ("[\"\0\"]", "CONTROL_CHARACTER", "/0", 2),
        ("[0,01]", "INVALID_NUMBER", "/1", 3),
        ("[-]", "INVALID_NUMBER", "/0", 2),
        ("[-", "UNEXPECTED_END", "/0", 2),
        ("[1.]", "INVALID_NUMBER", "/0", 3),
        ("[.5]", "UNEXPECTED_CHARACTER", "/0", 1),
        ("[1e]", "INVALID_NUMBER", "/0", 3),
        ("[1e+-1]", "INVALID_NUMBER", "/0", 4),
        ("[1e401]", "EXPONENT_OUT_OF_RANGE", "/0", 1),
        ("[0e-401]", "EXPONENT_OUT_OF_RANGE", "/0", 1),
        ("[0x10]", "UNEXPECTED_CHARACTER", "", 2),
        ("[1_000]", "UNEXPECTED_CHARACTER", "", 2),
        ("[Infinity]", "UNEXPECTED_CHARACTER", "/0", 1),
        ("[True]", "UNEXPECTED_CHARACTER", "/0", 1),
        ("[1,]", "UNEXPECTED_CHARACTER", "/1", 3),
        ("[,1]", "UNEXPECTED_CHARACTER", "/0", 1),
        ("{\"a\":1,}", "UNEXPECTED_CHARACTER", "", 7),
        ("{a:1}", "UNEXPECTED_CHARACTER", "", 1),
        ("{'a':1}", "UNEXPECTED_CHARACTER", "", 1),
        ("{\"a\" 1}", "UNEXPECTED_CHARACTER", "", 5),
        ("{1:1}", "UNEXPECTED_CHARACTER", "", 1),
        ("[1\u{A0}]", "UNEXPECTED_CHARACTER", "", 2),
        ("[1\u{C}]", "UNEXPECTED_CHARACTER", "", 2),
        ("[1/**/]", "UNEXPECTED_CHARACTER", "", 2),
    ] {
        let refusal = read(text).unwrap_err();
        assert_eq!((refusal.problem.code(), &*refusal.pointer, refusal.offset), (code, pointer, offset), "{text:?}");
    }
}

#[test]
fn only_an_object_may_stand_at_the_top_of_arguments() {
    for text in ["[]", "\"a\"", "1", "-1", "true", "false", "null", " [1"] {
        assert_eq!(object(text).unwrap_err().problem, Problem::NotAnObject, "{text}");
    }
    for text in ["[]", "\"a\"", "1", "-1", "true", "false", "null"] {
        assert_eq!(read(text).unwrap(), text);
    }
    // The empty text alone is the empty object; white space is no text at all.
    assert_eq!(object("").unwrap(), "{}");
    assert_eq!(object(" ").unwrap_err().problem, Problem::UnexpectedEnd);
}

#[test]
fn length_is_limited_before_anything_is_read() {
    let limits = Limits { max_bytes: 4, top: Top::Any };
    assert_eq!(canonicalise("[10]", limits).unwrap(), "[10]");
    assert_eq!(canonicalise("[100]", limits).unwrap_err().problem, Problem::TooLarge { max_bytes: 4 });
    assert_eq!(canonicalise_bytes(b"\xFF\xFF\xFF\xFF\xFF", limits).unwrap_err().problem.code(), "TOO_LARGE");
}

#[test]
fn nesting_is_limited_to_64_levels() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        assert_eq!(read(&nested(64)).unwrap(), nested(64));
        let refusal = read(&nested(65)).unwrap_err();
        assert_eq!(refusal.problem, Problem::TooDeep);
        assert_eq!(refusal.offset, 64 * open.len());
        assert_eq!(refusal.pointer.matches('/').count(), 64);
        // What a million brackets would do to a reader without a limit.
        assert_eq!(read(&open.repeat(200_000)).unwrap_err().problem, Problem::TooDeep);
    }
}

#[test]
fn members_sort_by_utf16_code_units_whether_escaped_or_not() {
    let sorted = [
        "",
        "\n",
        "\"",
        "1",
        "10",
        "9",
        "A",
        "\\",
        "a",
        "a\u{0}",
        "aa",
        "\u{80}",
        "\u{D7FF}",
        "\u{10000}",
        "\u{10000}a",
        "\u{10FFFF}",
        "\u{E000}",
        "\u{FB33}",
        "\u{FFFF}",
    ];
    for left in 0..sorted.len() {
        for right in 0..sorted.len() {
            if left == right {
                continue;
            }
            let members: Vec<String> = [left, right].map(|at| format!("{}:{at}", quoted(sorted[at]))).into();
            let (low, high) = if left < right { (0, 1) } else { (1, 0) };
            let want = format!("{{{},{}}}", members[low], members[high]);
            assert_eq!(read(&format!("{{{}}}", members.join(","))).unwrap(), want);
        }
    }
}

#[test]
fn names_are_not_normalised() {
    assert_eq!(read("{\"\u{E9}\":1,\"e\u{301}\":2}").unwrap(), "{\"e\u{301}\":2,\"\u{E9}\":1}");
}

#[test]
fn numbers_are_written_from_their_exact_value() {
    let zeros = |count| "0".repeat(count);
    for (text, want) in [
        ("-0.0e-5".to_owned(), "0".to_owned()),
        ("0.00".to_owned(), "0".to_owned()),
        ("-1.50".to_owned(), "-1.5".to_owned()),
        ("100e-2".to_owned(), "1".to_owned()),
        ("123456789012345678901".to_owned(), "123456789012345678901".to_owned()),
        ("1234567890123456789012".to_owned(), "1.234567890123456789012e+21".to_owned()),
        ("123456789012345678901.5".to_owned(), "123456789012345678901.5".to_owned()),
        (format!("1{}", zeros(20)), format!("1{}", zeros(20))),
        (format!("1{}", zeros(21)), "1e+21".to_owned()),
        (format!("0.{}12", zeros(5)), format!("0.{}12", zeros(5))),
        (format!("0.{}12", zeros(6)), "1.2e-7".to_owned()),
        ("1E400".to_owned(), "1e+400".to_owned()),
        ("1e-0400".to_owned(), "1e-400".to_owned()),
        ("12.5e+1".to_owned(), "125".to_owned()),
        ("0.1e1".to_owned(), "1".to_owned()),
        ("0.0001234e3".to_owned(), "0.1234".to_owned()),
        (format!("1{}e400", zeros(799)), "1e+1199".to_owned()),
        (format!("0.{}1e-400", zeros(798)), "1e-1199".to_owned()),
        ("9".repeat(800), format!("9.{}e+799", "9".repeat(799))),
        (format!("1e{}7", zeros(799)), "10000000".to_owned()),
    ] {
        assert_eq!(read(&text).unwrap(), want, "{text}");
    }
}

#[test]
fn digits_of_a_number_are_limited_to_800_before_and_in_the_exponent() {
    for text in ["1".repeat(801), format!("0.{}", "0".repeat(800)), format!("1e{}", "0".repeat(801))] {
        assert_eq!(read(&text).unwrap_err().problem, Problem::TooManyDigits, "{text}");
    }
    for exponent in ["401", "-401", "4294967697", "18446744073709551617", "99999999999999999999999999"] {
        assert_eq!(read(&format!("1e{exponent}")).unwrap_err().problem, Problem::ExponentOutOfRange, "{exponent}");
    }
}

#[test]
fn doubles_of_rfc_8785_are_written_as_its_appendix_writes_them() {
    for (bits, want) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7FEF_FFFF_FFFF_FFFF, "1.7976931348623157e+308"),
        (0xFFEF_FFFF_FFFF_FFFF, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xC340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44B5_2D02_C7E1_4AF5, "9.999999999999997e+22"),
        (0x44B5_2D02_C7E1_4AF6, "1e+23"),
        (0x44B5_2D02_C7E1_4AF7, "1.0000000000000001e+23"),
        (0x444B_1AE4_D6E2_EF4E, "999999999999999700000"),
        (0x444B_1AE4_D6E2_EF4F, "999999999999999900000"),
        (0x444B_1AE4_D6E2_EF50, "1e+21"),
        (0x3EB0_C6F7_A0B5_ED8C, "9.999999999999997e-7"),
        (0x3EB0_C6F7_A0B5_ED8D, "0.000001"),
        (0x41B3_DE43_5555_5553, "333333333.3333332"),
        (0x41B3_DE43_5555_5554, "333333333.33333325"),
        (0x41B3_DE43_5555_5555, "333333333.3333333"),
        (0x41B3_DE43_5555_5556, "333333333.3333334"),
        (0x41B3_DE43_5555_5557, "333333333.33333343"),
        (0xBECB_F647_612F_3696, "-0.0000033333333333333333"),
        (0x4314_3FF3_C1CB_0959, "1424953923781206.2"),
    ] {
        let written = serde_json::to_string(&f64::from_bits(bits)).unwrap();
        assert_eq!(read(&written).unwrap(), want, "{bits:x}");
        assert_eq!(read(want).unwrap(), want);
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused_at_their_place() {
    for (bytes, pointer, offset) in [
        (&b"{\"a\":\"x\xFF\"}"[..], "/a", 7),
        (b"\xFF", "", 0),
        (b"{\"a\":1}\xFF", "", 7),
        (b"[\"\xED\xA0\x80\"]", "/0", 2),
        (b"[\"\xC0\x80\"]", "/0", 2),
    ] {
        let refusal = canonicalise_bytes(bytes, Limits { max_bytes: MAX_BYTES, top: Top::Any }).unwrap_err();
        assert_eq!((refusal.problem, &*refusal.pointer, refusal.offset), (Problem::InvalidUtf8, pointer, offset));
    }
    // An earlier problem is named first.
    let refusal = canonicalise_bytes(b"[x\"\xFF\"]", Limits { max_bytes: 99, top: Top::Any }).unwrap_err();
    assert_eq!((refusal.problem, refusal.offset), (Problem::UnexpectedCharacter, 1));
    assert_eq!(canonicalise_bytes(b"{}", Limits { max_bytes: 99, top: Top::Any }).unwrap(), "{}");
}

#[test]
fn refusal_is_short_and_fit_for_printing_whatever_the_names() {
    let name = format!("a\u{202E}\n/~{}", "x".repeat(1000));
    let refusal = read(&format!("{{{}:?}}", quoted(&name))).unwrap_err();
    assert!(refusal.pointer.starts_with("/a\\u{202E}\\u{A}~1~0xxx"), "{refusal}");
    assert!(refusal.pointer.ends_with('…'));
    assert!(refusal.pointer.len() < 120);
    let deep = format!("{}?", format!("{{{}:", quoted(&name)).repeat(60));
    let refusal = read(&deep).unwrap_err();
    assert!(refusal.pointer.len() < 520, "{}", refusal.pointer.len());
    assert!(refusal.pointer.ends_with("/…"));
    assert_eq!(
        read("{\"to\":[\"a\",\"b\n\"]}").unwrap_err().to_string(),
        "an unescaped control character in a string (at byte 13, in /to/1)"
    );
}

#[test]
fn debug_of_canonical_text_shows_no_content() {
    let canonical = Canonical::of("{\"password\":\"hunter2\"}", Limits { max_bytes: 99, top: Top::Any }).unwrap();
    assert_eq!(format!("{canonical:?}"), "Canonical(22 bytes)");
}

/// Generous for a debug build on a busy machine: a quadratic reader would need minutes.
#[test]
fn time_is_linear_in_hostile_texts() {
    let names = |count: usize, escape: &str| {
        let members: Vec<String> = (0..count).rev().map(|at| format!("\"{escape}{at:06}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    let shuffled = "{\"b\":".repeat(64) + "1" + &",\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}".repeat(64);
    let wide = format!("{{\"b\":[{}],\"a\":1}}", vec![names(1000, "\\n"); 50].join(","));
    for text in [
        names(40_000, ""),
        names(30_000, "\\n"),
        shuffled,
        wide,
        format!("[{}]", vec!["1e20"; 200_000].join(",")),
        format!("[{}]", vec!["1e-400"; 100_000].join(",")),
        format!("1e{}", "0".repeat(1_000_000)),
        "9".repeat(1_000_000),
        format!("\"{}\"", "\\u0000".repeat(170_000)),
        "{\"a\":".repeat(200_000),
    ] {
        let start = Instant::now();
        let outcome = read(&text);
        assert!(start.elapsed() < Duration::from_secs(60), "{} bytes, {outcome:?}", text.len());
    }
    let twice = names(40_000, "").replace("000001", "000002");
    assert_eq!(read(&twice).unwrap_err().problem, Problem::DuplicateMember);
}

#[test]
fn plain_runs_end_at_the_first_special_byte_wherever_it_stands() {
    for special in 0..=u8::MAX {
        let ends = special == b'"' || special == b'\\' || special < 0x20;
        for at in 0..20 {
            let mut bytes = [b'!'; 20];
            bytes[at] = special;
            assert_eq!(string::plain_run(&bytes), if ends { at } else { 20 }, "{special:#x} at {at}");
        }
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

pub(super) fn read(text: &str) -> Result<String, Refusal> {
    canonicalise(text, Limits { max_bytes: 2 * MAX_BYTES, top: Top::Any })
}

fn object(text: &str) -> Result<String, Refusal> {
    canonicalise(text, Limits { max_bytes: MAX_BYTES, top: Top::Object })
}
