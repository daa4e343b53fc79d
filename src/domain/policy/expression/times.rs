//! Times and spans as CEL writes them: RFC 3339 with an upper-case `T` and `Z`, and spans such as `1h30m` or `-1.5s`.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// An instant of CEL's range, years 1 to 9999, as the time since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instant(SignedDuration);

/// A fixed distance from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset(SignedDuration);

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl Instant {
    /// So long after the Unix epoch, where that is in range.
    pub fn new(since_epoch: SignedDuration) -> Option<Self> {
        const FIRST: SignedDuration = SignedDuration::from_secs(-62_135_596_800);
        const LAST: SignedDuration = SignedDuration::new(253_402_300_799, 999_999_999);
        (FIRST..=LAST).contains(&since_epoch).then_some(Self(since_epoch))
    }

    /// Since the Unix epoch.
    pub fn since_epoch(self) -> SignedDuration {
        self.0
    }

    /// What calendar and clock show there, where that is in range.
    pub fn civil(self, offset: Offset) -> Option<DateTime> {
        EPOCH.checked_add(self.0.checked_add(offset.0)?).ok()
    }
}

/// RFC 3339 in UTC, with a fraction where there is one.
impl fmt::Display for Instant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.civil(Offset::UTC) {
            Some(civil) => write!(formatter, "{civil}Z"),
            None => Ok(()),
        }
    }
}

impl Offset {
    pub const UTC: Self = Self(SignedDuration::ZERO);
}

/// `2026-01-31T23:59:59.999999999+02:00`; a fraction has one to nine digits, a zone is `Z` or hours and minutes.
pub(super) fn parse_instant(text: &str) -> Option<Instant> {
    let shape = text.as_bytes().get(..19)?.iter().zip(b"0000-00-00T00:00:00");
    let fits = |(byte, want): (&u8, &u8)| if *want == b'0' { byte.is_ascii_digit() } else { byte == want };
    // A leap second has no instant of its own here.
    if !shape.into_iter().all(fits) || text.get(17..19)? == "60" {
        return None;
    }
    let rest = text.get(19..)?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
            let digits = fraction.len() - zone.len();
            (1..=9).contains(&digits).then_some(zone)?
        }
        None => rest,
    };
    let offset = if zone == "Z" { Offset::UTC } else { parse_offset(zone).filter(|_| zone != "UTC")? };
    let civil = text.strip_suffix(zone)?.parse::<DateTime>().ok()?;
    Instant::new(civil.duration_since(EPOCH).checked_sub(offset.0)?)
}

/// `+02:00`, `-09:30`: a fixed distance from UTC. `UTC` and `Z` are none.
pub(super) fn parse_offset(text: &str) -> Option<Offset> {
    if matches!(text, "UTC" | "Z") {
        return Some(Offset::UTC);
    }
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |digits: &str| {
        let fits = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| fits)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some(Offset(SignedDuration::from_secs(sign * (hours * 3600 + minutes * 60))))
}

/// An optional sign, then `0` or numbers with units (`h`, `m`, `s`, `ms`, `us`, `µs`, `ns`), whole or with a fraction;
/// within 64 bits of nanoseconds, which is some 292 years. What is below a nanosecond is cut off.
pub(super) fn parse_span(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let number_ends = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at_checked(number_ends)?;
        let unit_ends = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_ends)?;
        let nanos_in_unit = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" | "μs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        total = total.checked_add(scaled(number, nanos_in_unit)?)?;
        rest = after;
    }
    let nanos = i64::try_from(if negative { -total } else { total }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

/// `number` (digits, at most one point) times `unit`, cut off below one.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 20 {
        return None;
    }
    let mut total = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(unit)? };
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        total += i128::from(digit.to_digit(10)?) * place;
    }
    Some(total)
}

/// Seconds, with a fraction where there is one: `5400s`, `-1.5s`.
pub(super) fn write_span(span: SignedDuration) -> String {
    let nanos = span.as_nanos();
    let (seconds, fraction) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let sign = if nanos < 0 { "-" } else { "" };
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_rfc_3339_and_nothing_else() {
        for (text, nanos) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.000000001Z", 1),
            ("1970-01-01T01:00:00.5+01:00", 500_000_000),
            ("1969-12-31T23:59:59.9Z", -100_000_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000_000),
            ("9999-12-31T23:59:59.999999999Z", 253_402_300_799_999_999_999),
        ] {
            assert_eq!(parse_instant(text).map(|instant| instant.0.as_nanos()), Some(nanos), "{text}");
        }
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01t00:00:00z",
            "1970-01-01 00:00:00Z",
            "1970-01-01T00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T24:00:00Z",
            "1970-02-30T00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.0000000001Z",
            "1970-01-01T00:00:00+1:00",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00Z[UTC]",
            "1970-01-01T00:00:00UTC",
            "-1970-01-01T00:00:00Z",
            "+001970-01-01T00:00:00Z",
            " 1970-01-01T00:00:00Z",
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "１970-01-01T00:00:00Z",
            "1970-01-01T00:00:0é",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }

    #[test]
    fn the_nanosecond_outside_the_years_is_out_of_range() {
        let nanosecond = SignedDuration::from_nanos(1);
        let first = parse_instant("0001-01-01T00:00:00Z").unwrap().since_epoch();
        assert_eq!(Instant::new(first - nanosecond), None);
        let last = parse_instant("9999-12-31T23:59:59.999999999Z").unwrap().since_epoch();
        assert_eq!(Instant::new(last + nanosecond), None);
    }

    #[test]
    fn an_instant_is_written_as_it_is_read() {
        for text in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.5Z", "9999-12-31T23:59:59.999999999Z"] {
            assert_eq!(parse_instant(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_instant("2026-03-01T01:00:00.50+02:00").unwrap().to_string(), "2026-02-28T23:00:00.5Z");
    }

    #[test]
    fn spans_are_read_and_written() {
        for (text, nanos, written) in [
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("1h30m", 5_400_000_000_000, "5400s"),
            ("-1.5s", -1_500_000_000, "-1.5s"),
            ("+.5s", 500_000_000, "0.5s"),
            ("1.s", 1_000_000_000, "1s"),
            ("1ms2us3ns", 1_002_003, "0.001002003s"),
            ("0.1234567891s", 123_456_789, "0.123456789s"),
            ("2µs", 2_000, "0.000002s"),
            ("9223372036854775807ns", i64::MAX, "9223372036.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-9223372036.854775808s"),
        ] {
            let span = parse_span(text);
            assert_eq!(span, Some(SignedDuration::from_nanos(nanos)), "{text}");
            assert_eq!(span.map(write_span).as_deref(), Some(written), "{text}");
        }
        for text in [
            "",
            "-",
            "+",
            "1",
            "s",
            ".s",
            "1..s",
            "1.2.3s",
            "1d",
            "1S",
            "1 s",
            " 1s",
            "1s ",
            "--1s",
            "-+1s",
            "1s-1s",
            "9223372036854775808ns",
            "99999999999999999999999999999999999999999h",
            "2562048h",
            "1e3s",
            "１s",
        ] {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }

    #[test]
    fn a_zone_is_a_fixed_distance() {
        for (text, seconds) in [("UTC", 0), ("Z", 0), ("+00:00", 0), ("+02:00", 7_200), ("-09:30", -34_200)] {
            assert_eq!(parse_offset(text).map(|offset| offset.0.as_secs()), Some(seconds), "{text}");
        }
        for text in ["", "+", "02:00", "+2:00", "+02", "+0200", "+24:00", "+02:60", "+02:0x", "Europe/Zurich", "utc"] {
            assert_eq!(parse_offset(text), None, "{text}");
        }
    }
}
