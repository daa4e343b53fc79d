//! Bytes as hexadecimal digits: two for each byte, in lower case, and nothing else.

use std::fmt;

/// Writes the digits of `bytes`, one by one: no copy of them is left anywhere but in `out`, which matters for secrets.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]).try_for_each(|value| out.write_char(char::from(digit(value))))
}

/// The digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = vec![0; bytes.len() * 2];
    fill(&mut digits, bytes);
    // Digits are text.
    String::from_utf8(digits).unwrap_or_default()
}

/// Fills `digits` with the digits of `bytes`, as far as it has room.
pub(super) fn fill(digits: &mut [u8], bytes: &[u8]) {
    let (pairs, _) = digits.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 0xF)];
    }
}

/// Reads exactly `N` bytes. Capitals are refused, so that one value has one text.
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

/// The digit of a value up to 15.
fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + (value - 10) }
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_two_digits_in_lower_case() {
        assert_eq!(hex(&[0x00, 0x09, 0x0a, 0x7f, 0x90, 0xff]), "00090a7f90ff");
        assert_eq!(hex(&[]), "");
        for byte in 0..=u8::MAX {
            assert_eq!(hex(&[byte]), format!("{byte:02x}"));
        }
    }

    #[test]
    fn only_exactly_so_many_bytes_in_lower_case_are_read() {
        assert_eq!(parse_hex("00ff1a"), Some([0x00, 0xff, 0x1a]));
        assert_eq!(parse_hex(""), Some([]));
        for text in ["", "00ff1", "00ff1a0", "00ff1a00", "00FF1A", "00ff1g", "0xff1a", " 0ff1a", "+0ff1a", "00ff:a"] {
            assert_eq!(parse_hex::<3>(text), None, "{text:?}");
        }
        for text in ["é0ff1", "00ffé", "\u{661}0ff1", "00ff1\0"] {
            assert_eq!(parse_hex::<3>(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in any::<[u8; 32]>()) {
            let text = hex(&bytes);
            prop_assert_eq!(parse_hex(&text), Some(bytes));
            let mut written = String::new();
            write(&mut written, &bytes).unwrap();
            prop_assert_eq!(written, text);
        }

        #[test]
        fn what_is_read_is_written_back(text in "[0-9a-fA-F]{8}") {
            match parse_hex::<4>(&text) {
                Some(bytes) => prop_assert_eq!(hex(&bytes), text),
                None => prop_assert!(text.bytes().any(|byte| byte.is_ascii_uppercase())),
            }
        }
    }
}
