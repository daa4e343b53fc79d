//! Strings of canonical JSON: writing, reading back, and the order of names.

use std::cmp::Ordering;
use std::str::Chars;

/// Where the first byte stands that ends a run of plain text: a quote, a backslash or a control character; the length
/// of `bytes` if there is none.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut length = 0;
    // Eight bytes at a time. A byte is zero exactly where subtracting one from it borrows and its high bit was not set;
    // a false mark can only stand above a true one, so "is there any" is exact.
    for chunk in bytes.chunks_exact(8) {
        let Ok(word) = <[u8; 8]>::try_from(chunk).map(u64::from_le_bytes) else { break };
        let quote = word ^ (ONES * 0x22);
        let backslash = word ^ (ONES * 0x5C);
        let special = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if special & HIGH != 0 {
            break;
        }
        length += 8;
    }
    let rest = bytes.get(length..).unwrap_or_default();
    length + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

/// Writes a string as RFC 8785 does: in quotes, with the shortest escape where one is needed and nowhere else.
pub(in crate::domain) fn push_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    loop {
        let (plain, after) = rest.split_at_checked(plain_run(rest.as_bytes())).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut characters = after.chars();
        let Some(special) = characters.next() else { break };
        push_escaped(special, out);
        rest = characters.as_str();
    }
    out.push('"');
}

/// Writes one character of a string, escaped if it must be.
pub(super) fn push_escaped(character: char, out: &mut String) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{C}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\0'..='\u{1F}' => {
            out.push_str("\\u00");
            let code = u32::from(character);
            out.extend([char::from_digit(code >> 4, 16), char::from_digit(code & 0xF, 16)].into_iter().flatten());
        }
        _ => out.push(character),
    }
}

/// The characters of a canonical string, given what stands between its quotes.
pub(in crate::domain) struct Unescaped<'a>(Chars<'a>);

impl<'a> Unescaped<'a> {
    /// Reads `inside`, the canonical text between two quotes.
    pub(in crate::domain) fn new(inside: &'a str) -> Self {
        Self(inside.chars())
    }
}

impl Iterator for Unescaped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let character = self.0.next()?;
        if character != '\\' {
            return Some(character);
        }
        match self.0.next()? {
            'b' => Some('\u{8}'),
            't' => Some('\t'),
            'n' => Some('\n'),
            'f' => Some('\u{C}'),
            'r' => Some('\r'),
            'u' => {
                let mut code = 0;
                for _ in 0..4 {
                    code = code * 16 + self.0.next()?.to_digit(16)?;
                }
                char::from_u32(code)
            }
            // A quote or a backslash.
            same => Some(same),
        }
    }
}

/// The order of names: by UTF-16 code units, as RFC 8785 sorts them.
///
/// Bytes of UTF-8 sort by code point, which differs in one thing only: UTF-16 writes what lies beyond U+FFFF with
/// surrogates, which come before U+E000 to U+FFFF.
pub(in crate::domain) fn compare_names(left: &str, right: &str) -> Ordering {
    let differing = left.bytes().zip(right.bytes()).find(|(ours, theirs)| ours != theirs);
    let Some((ours, theirs)) = differing else { return left.len().cmp(&right.len()) };
    // Only a first byte of a character can be 0xEE or more, and then both are first bytes.
    let beyond = |byte: u8| byte >= 0xF0;
    if ours >= 0xEE && theirs >= 0xEE && beyond(ours) != beyond(theirs) {
        return theirs.cmp(&ours);
    }
    ours.cmp(&theirs)
}

/// As [`compare_names`], for names as canonical text writes them between quotes, where either may have escapes.
pub(super) fn compare_escaped_names(left: &str, right: &str) -> Ordering {
    let rank = |character: char| match u32::from(character) {
        code @ 0xE000..=0xFFFF => code + 0x11_0000,
        code => code,
    };
    Unescaped::new(left).map(rank).cmp(Unescaped::new(right).map(rank))
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1F)
}
