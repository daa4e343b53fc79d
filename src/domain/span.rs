//! Spans of time as people write them: `250ms`, `90s`, `10m`, `1h30m`, `7d`. One form for policies, the configuration, the
//! command line and what it prints.

use std::fmt::Write as _;
use std::time::Duration;

/// The units and their milliseconds, falling.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads whole numbers with units, each unit at most once and in falling order, and nothing else. None where the text is
/// no span, or one of more milliseconds than 64 bits count.
pub fn parse_span(text: &str) -> Option<Duration> {
    let mut units = UNITS.iter();
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at_checked(rest.find(|letter: char| !letter.is_ascii_digit())?)?;
        let letters = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(letters)?;
        // The search goes on where it ended: what was passed over cannot follow.
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(*length)?)?;
        rest = next;
    }
    (!text.is_empty()).then(|| Duration::from_millis(millis))
}

/// The span as [`parse_span`] reads it, in the one form that has no unit more often than the next larger one holds it, and
/// none of zero; `0s` for no time at all. What is less than a millisecond is left out.
pub fn show_span(span: Duration) -> String {
    let mut rest = span.as_millis();
    let mut shown = String::new();
    for (unit, length) in UNITS {
        let length = u128::from(length);
        if rest >= length {
            // Writing to a string does not fail.
            let _ = write!(shown, "{}{unit}", rest / length);
            rest %= length;
        }
    }
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_span_is_numbers_with_units_in_falling_order() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("1m1ms", 60_001),
            ("1m1s", 61_000),
            ("007s", 7_000),
            ("0s", 0),
            ("0ms", 0),
            ("18446744073709551615ms", u64::MAX),
        ] {
            assert_eq!(parse_span(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_a_span() {
        for text in [
            "",
            "10",
            "s",
            "m",
            "ms",
            "10 m",
            " 10m",
            "10m ",
            "10m\n",
            "-1m",
            "+1m",
            "1.5h",
            "1e3s",
            "1_000s",
            "30m1h",
            "1ms1s",
            "1m1m",
            "1s1s",
            "1M",
            "1MS",
            "1mss",
            "1sm",
            "1min",
            "1us",
            "1w",
            "10m5",
            "18446744073709551616ms",
            "18446744073709551615d",
            "18446744073709551615ms1ms",
            "213503982334d14h25m51s616ms",
            "99999999999999999999s",
            "\u{661}s",
            "\u{ff11}m",
            "1\u{b5}s",
        ] {
            assert_eq!(parse_span(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_span_is_shown_as_it_would_be_written() {
        for text in ["250ms", "1s500ms", "10m", "1m30s", "1h30m", "7d", "1d2h3m4s5ms", "0s"] {
            assert_eq!(show_span(parse_span(text).unwrap()), text);
        }
        assert_eq!(show_span(Duration::from_secs(90)), "1m30s");
        assert_eq!(show_span(Duration::from_micros(1_999)), "1ms");
        assert_eq!(show_span(Duration::from_nanos(999_999)), "0s");
        assert_eq!(show_span(Duration::MAX), "213503982334601d7h15s999ms");
    }

    proptest! {
        #[test]
        fn a_span_that_is_shown_is_read_back(millis in prop_oneof![any::<u64>(), 0..1_000_000_000_u64]) {
            let span = Duration::from_millis(millis);
            prop_assert_eq!(parse_span(&show_span(span)), Some(span));
        }

        #[test]
        fn every_text_of_one_span_is_shown_as_the_same_text(text in "([0-9]{1,4}(d|h|m|s|ms)){1,4}") {
            if let Some(span) = parse_span(&text) {
                let shown = show_span(span);
                prop_assert_eq!(parse_span(&shown), Some(span));
                prop_assert_eq!(show_span(parse_span(&shown).unwrap()), shown);
            }
        }
    }
}
