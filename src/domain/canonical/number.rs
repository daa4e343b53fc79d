//! Numbers in ECMAScript's notation, from their decimal digits rather than from a double.

/// The most digits of a number that is written without an exponent, as ECMAScript has it.
pub(super) const MAX_PLAIN_DIGITS: usize = 21;

/// The most zeros that are written between the decimal point and the first digit.
const MAX_LEADING_ZEROS: i64 = 6;

/// Writes the number ±`whole`.`fraction` × 10^`exponent`, exactly.
///
/// `whole` and `fraction` are decimal digits, with any zeros before and after. Zero is written `0`, without a sign.
pub(in crate::domain) fn write_decimal(negative: bool, whole: &str, fraction: &str, exponent: i64, out: &mut String) {
    let mut digits = Digits { whole, fraction };
    let leading = digits.leading_zeros();
    if leading == digits.len() {
        out.push('0');
        return;
    }
    // The value is 0.DIGITS × 10^point.
    let point = signed(whole.len()) - signed(leading) + exponent;
    digits.trim(leading);
    if negative {
        out.push('-');
    }
    let within = usize::try_from(point).ok().filter(|point| (1..=MAX_PLAIN_DIGITS).contains(point));
    match within {
        Some(point) if digits.len() <= point => {
            digits.push_range(0, digits.len(), out);
            push_zeros(point - digits.len(), out);
        }
        Some(point) => {
            digits.push_range(0, point, out);
            out.push('.');
            digits.push_range(point, digits.len(), out);
        }
        None if (1 - MAX_LEADING_ZEROS..=0).contains(&point) => {
            out.push_str("0.");
            push_zeros(usize::try_from(-point).unwrap_or(0), out);
            digits.push_range(0, digits.len(), out);
        }
        None => {
            digits.push_range(0, 1, out);
            if digits.len() > 1 {
                out.push('.');
                digits.push_range(1, digits.len(), out);
            }
            out.push('e');
            out.push(if point > 0 { '+' } else { '-' });
            out.push_str(&(point - 1).unsigned_abs().to_string());
        }
    }
}

/// Decimal digits in two pieces, read as one row.
struct Digits<'a> {
    whole: &'a str,
    fraction: &'a str,
}

impl Digits<'_> {
    fn len(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    fn leading_zeros(&self) -> usize {
        self.whole.bytes().chain(self.fraction.bytes()).take_while(|digit| *digit == b'0').count()
    }

    /// Leaves out the first `leading` digits and every zero at the end.
    fn trim(&mut self, leading: usize) {
        let from_whole = leading.min(self.whole.len());
        self.whole = self.whole.get(from_whole..).unwrap_or_default();
        self.fraction = self.fraction.get(leading - from_whole..).unwrap_or_default().trim_end_matches('0');
        if self.fraction.is_empty() {
            self.whole = self.whole.trim_end_matches('0');
        }
    }

    fn push_range(&self, from: usize, to: usize, out: &mut String) {
        let middle = self.whole.len();
        out.push_str(self.whole.get(from.min(middle)..to.min(middle)).unwrap_or_default());
        out.push_str(self.fraction.get(from.saturating_sub(middle)..to.saturating_sub(middle)).unwrap_or_default());
    }
}

/// A count of digits of a text, which memory bounds far below the limits of the type.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn push_zeros(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n('0', count));
}
