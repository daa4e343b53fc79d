//! Durations as people write them.

use std::time::Duration;

/// Reads `250ms`, `10s`, `5m`, `1h30m`, `7d`: whole numbers with units, largest first or not, each unit at most once.
pub fn parse_span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.find(|character: char| character.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(letters)?;
        let unit_span = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(60 * 60),
            "d" => Duration::from_secs(24 * 60 * 60),
            _ => return None,
        };
        if seen.contains(&unit) {
            return None;
        }
        seen.push(unit);
        total = total.checked_add(unit_span.checked_mul(number.parse().ok()?)?)?;
        rest = next;
    }
    (!seen.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_units_and_nothing_else() {
        for (text, want) in [
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("1h30m", Some(5_400_000)),
            ("7d", Some(7 * 24 * 3_600_000)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("s", None),
            ("1m1m", None),
            ("-1s", None),
            ("1.5s", None),
            (" 1s", None),
            ("1 s", None),
            ("1M", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
            ("\u{661}s", None),
        ] {
            assert_eq!(parse_span(text), want.map(Duration::from_millis), "{text:?}");
        }
    }
}
