//! What holds for every text, against references that know nothing of ours.

// The offsets and digits of generated texts are few and ASCII.
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss, clippy::string_slice)]

use proptest::prelude::*;

use super::tests::{quoted, read};
use super::*;

proptest! {
    #[test]
    fn numbers_are_equal_exactly_if_their_texts_are(one in number_text(), other in number_text()) {
        let texts = (read(&one).unwrap(), read(&other).unwrap());
        prop_assert_eq!(Decimal::of(&one) == Decimal::of(&other), texts.0 == texts.1);
        prop_assert_eq!(Decimal::of(&texts.0), Decimal::of(&one));
    }

    #[test]
    fn a_number_written_otherwise_is_the_same(text in number_text(), shift in -30..30_i64, zeros in 0..5_usize) {
        let decimal = Decimal::of(&text);
        let other = decimal.written_with_point_moved(shift, zeros);
        prop_assume!(other.rsplit(['e', 'E']).next().unwrap().parse::<i32>().unwrap().abs() <= 400);
        prop_assert_eq!(read(&other).unwrap(), read(&text).unwrap());
    }

    #[test]
    fn a_double_is_written_as_ecmascript_writes_it(bits in any::<u64>()) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let shortest = serde_json::to_string(&double).unwrap();
        let text = read(&shortest).unwrap();
        prop_assert_eq!(text.parse::<f64>().unwrap(), double);
        prop_assert_eq!(&text, &ecmascript(&shortest));
        prop_assert_eq!(read(&text).unwrap(), text);
    }

    #[test]
    fn canonical_text_stays_as_it_is(text in json_text()) {
        let canonical = read(&text).unwrap();
        prop_assert_eq!(read(&canonical).unwrap(), canonical.clone());
        prop_assert_eq!(Canonical::from_stored(&canonical).unwrap().into_string(), canonical);
    }

    #[test]
    fn value_is_the_one_that_another_reader_finds(text in json_text()) {
        let canonical = read(&text).unwrap();
        let ours = serde_json::from_str(&canonical).unwrap();
        let theirs = serde_json::from_str(&text).unwrap();
        prop_assert!(same(&ours, &theirs), "{ours} {theirs}");
    }

    #[test]
    fn order_of_members_and_white_space_do_not_matter(members in prop::collection::btree_map(any::<String>(), 0..9, 0..8), seed in any::<u64>()) {
        let mut written: Vec<String> = members.iter().map(|(name, value)| format!("\t{} :\r{value}\n", quoted(name))).collect();
        let first = read(&format!("{{{}}}", written.join(","))).unwrap();
        let turns = seed as usize % written.len().max(1);
        written.rotate_left(turns);
        written.reverse();
        prop_assert_eq!(read(&format!(" {{{}}} ", written.join(" , "))).unwrap(), first);
    }

    #[test]
    fn whatever_comes_in_there_is_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let limits = Limits { max_bytes: 50, top: Top::Any };
        if let Ok(canonical) = canonicalise_bytes(&bytes, limits) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&canonical).is_ok());
        }
    }

    #[test]
    fn what_almost_is_json_has_the_verdict_of_another_reader(
        text in "[{}\\[\\]\",:0-2ea.+ \\-]{0,12}|\\{\"a\":[\\[\\]0-9eE.+\\-tru]{1,8}\\}|\"[\\\\udD8cC0-2n\"]{0,14}\""
    ) {
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match read(&text) {
            Ok(_) => prop_assert!(theirs.is_ok() || theirs.is_err_and(|problem| problem.to_string().contains("out of range"))),
            Err(refusal) => {
                let stricter = matches!(refusal.problem, Problem::DuplicateMember | Problem::ExponentOutOfRange);
                prop_assert!(theirs.is_err() || stricter, "{refusal}");
            }
        }
    }

    #[test]
    fn a_text_cut_anywhere_is_refused(text in json_text(), cut in any::<prop::sample::Index>()) {
        let wrapped = format!("[{text}]");
        let at = cut.index(wrapped.len());
        prop_assume!(wrapped.is_char_boundary(at));
        let refusal = read(&wrapped[..at]).unwrap_err();
        prop_assert_eq!(refusal.problem, Problem::UnexpectedEnd);
        prop_assert_eq!(refusal.offset, at);
    }
}

/// A decimal number by sign, digits without zeros around them, and the power of ten of the last digit: our reference.
#[derive(Debug, PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    power: i64,
}

impl Decimal {
    fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let negative = mantissa.starts_with('-');
        let mantissa = mantissa.trim_start_matches('-');
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let all = all.trim_start_matches('0');
        let digits = all.trim_end_matches('0');
        if digits.is_empty() {
            return Self { negative: false, digits: String::new(), power: 0 };
        }
        let power = exponent.parse::<i64>().unwrap() - fraction.len() as i64 + (all.len() - digits.len()) as i64;
        Self { negative, digits: digits.to_owned(), power }
    }

    fn written_with_point_moved(&self, shift: i64, zeros: usize) -> String {
        let sign = if self.negative { "-" } else { "" };
        if self.digits.is_empty() {
            return format!("-0.0{}e{shift}", "0".repeat(zeros));
        }
        let digits = &self.digits;
        // 0.00DIGITS00 or DIGITS0000, with the exponent that makes up for it.
        let power = self.power;
        if shift < 0 {
            let lead = "0".repeat(shift.unsigned_abs() as usize);
            let exponent = power + digits.len() as i64 - shift;
            return format!("{sign}0.{lead}{digits}{}E{exponent:+}", "0".repeat(zeros));
        }
        let tail = "0".repeat(shift as usize);
        format!("{sign}{digits}{tail}.{}e{}", "0".repeat(zeros + 1), power - shift)
    }
}

/// ECMAScript's Number::toString, step by step from its specification, given the shortest digits in any notation.
fn ecmascript(shortest: &str) -> String {
    let Decimal { negative, digits, power } = Decimal::of(shortest);
    if digits.is_empty() {
        return "0".to_owned();
    }
    let k = digits.len() as i64;
    let n = k + power;
    let zeros = |count: i64| "0".repeat(count as usize);
    let text = if k <= n && n <= 21 {
        format!("{digits}{}", zeros(n - k))
    } else if 0 < n && n <= 21 {
        format!("{}.{}", &digits[..n as usize], &digits[n as usize..])
    } else if -6 < n && n <= 0 {
        format!("0.{}{digits}", zeros(-n))
    } else if k == 1 {
        format!("{digits}e{:+}", n - 1)
    } else {
        format!("{}.{}e{:+}", &digits[..1], &digits[1..], n - 1)
    };
    if negative { format!("-{text}") } else { text }
}

/// Whether two values are the same; of numbers all but the last digits, which serde_json may get wrong.
fn same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Number(one), Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= 1e-12 * one.abs()
        }
        (Array(one), Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Object(one), Object(other)) => {
            let equal = |(name, value)| other.get(name).is_some_and(|other| same(value, other));
            one.len() == other.len() && one.iter().all(equal)
        }
        _ => one == other,
    }
}

fn number_text() -> impl Strategy<Value = String> {
    // Few different digits, so that equal values are met often.
    "-?(0|[1-2][0-1]{0,3}|[1-9][0-9]{0,24})(\\.[0-1]{1,3}0{0,3}|\\.[0-9]{1,30})?([eE][+-]?0{0,2}([0-9]|[1-3][0-9]{0,2}))?"
}

/// JSON text with white space, escapes that need not be, and members out of order.
fn json_text() -> impl Strategy<Value = String> {
    let string = || {
        prop_oneof![
            any::<String>().prop_map(|text| quoted(&text)),
            "\"([a-c]|\\\\[\"\\\\/bfnrt]|\\\\u(00[0-7][0-9a-fA-F]|[1-9abcefABCEF][0-9a-fA-F]{3}|d83d\\\\ude0[0-9]))*\"",
        ]
    };
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just(" false ".to_owned()),
        "-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?",
        string(),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        let members = prop::collection::btree_map("[a-d\u{E000}-\u{E002}\u{1F600}]{0,3}", inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[ {} ]", items.join(" ,\n"))),
            (members, any::<bool>()).prop_map(|(members, reversed)| {
                let mut members: Vec<String> =
                    members.into_iter().map(|(name, value)| format!("{} : {value}", quoted(&name))).collect();
                if reversed {
                    members.reverse();
                }
                format!("{{{}}}", members.join("\t,"))
            }),
        ]
    })
}
