//! Credentials within strings, found by their looks.
//!
//! Hand-written scanners, each of which passes over the text once: whatever they have found or have ruled out they
//! never look at again. They err on the side of masking too much; the place is reported, and who may decide can ask
//! for the whole arguments.

use std::ops::Range;

use super::names::{SensitiveNames, is_url_secret};

/// A string with more credentials is masked as a whole.
const MAX_SPOTS: usize = 32;

/// How far a name before `=` or `:` is followed back, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// What keys of well-known services start with, and how many letters, digits, `-` and `_` must follow at least.
const KEY_PREFIXES: &[(&str, usize)] = &[
    ("AKIA", 12),
    ("ASIA", 12),
    ("ABIA", 12),
    ("ACCA", 12),
    ("ghp_", 6),
    ("gho_", 6),
    ("ghu_", 6),
    ("ghs_", 6),
    ("ghr_", 6),
    ("github_pat_", 8),
    ("glpat-", 8),
    ("gldt-", 8),
    ("glrt-", 8),
    ("glcbt-", 8),
    ("xoxb-", 6),
    ("xoxp-", 6),
    ("xoxa-", 6),
    ("xoxr-", 6),
    ("xoxs-", 6),
    ("xoxe-", 6),
    ("xoxe.", 6),
    ("xapp-", 6),
    ("sk-", 12),
    ("sk_live_", 6),
    ("sk_test_", 6),
    ("rk_live_", 6),
    ("rk_test_", 6),
    ("whsec_", 8),
    ("AIza", 16),
    ("ya29.", 8),
    ("GOCSPX-", 8),
    ("npm_", 16),
    ("hf_", 16),
    ("pypi-", 16),
    ("dckr_pat_", 8),
    ("dckr_oat_", 8),
    ("SG.", 16),
    ("shpat_", 8),
    ("shpss_", 8),
    ("shpca_", 8),
    ("dop_v1_", 8),
    ("doo_v1_", 8),
    ("lin_api_", 8),
    ("ntn_", 16),
    ("secret_", 20),
    ("figd_", 8),
    ("sq0atp-", 8),
    ("sq0csp-", 8),
    ("EAAA", 40),
    ("AGE-SECRET-KEY-1", 8),
    ("hvs.", 8),
    ("hvb.", 8),
    ("ATATT3", 16),
    ("ATCTT3", 16),
    ("glsa_", 8),
    ("glc_", 16),
    ("tskey-", 8),
    ("gsk_", 16),
    ("xai-", 16),
    ("r8_", 16),
    ("pplx-", 16),
    ("nvapi-", 16),
    ("sntrys_", 8),
    ("sntryu_", 8),
    ("rubygems_", 8),
    ("PMAK-", 8),
    ("pat-na1-", 8),
    ("pat-eu1-", 8),
    ("NRAK-", 8),
    ("AccountKey=", 8),
    ("SharedAccessSignature", 0),
    ("vercel_", 16),
    ("cs1.", 20),
];

/// Addresses whose path is a credential, and how many letters, digits, `-` and `_` must follow at least.
const WEBHOOKS: &[(&str, usize)] = &[
    ("hooks.slack.com/services/", 8),
    ("hooks.slack.com/workflows/", 8),
    ("hooks.slack.com/triggers/", 8),
    ("discord.com/api/webhooks/", 8),
];

/// Headers whose line is a credential, and how many words of it are, whatever they look like; further ones are if they
/// have a `=` in them. An authorization has a scheme and one or two words; of prose after it the rest is to be read.
const HEADERS: &[(&str, usize)] = &[("Authorization", 3), ("Proxy-Authorization", 3), ("Cookie", 1), ("Set-Cookie", 1)];

/// Sensitive names of members that are ordinary words, or people, before a colon in prose.
const ORDINARY: &[&str] = &["pat", "tan", "signature"];

/// The places of credentials in a string: apart from each other, in order, between characters. A string that is
/// nothing but a credential, or has too many, is one place.
pub(super) fn find(text: &str, names: &SensitiveNames) -> Vec<Range<usize>> {
    let mut spots = Vec::new();
    armoured(text, &mut spots);
    in_words(text, names, &mut spots);
    in_urls(text, &mut spots);
    assigned(text, names, &mut spots);
    if spots.is_empty() {
        return spots;
    }
    let spots = merged(spots);
    let mut left = 0;
    let mut rest_is_bare = true;
    for spot in &spots {
        rest_is_bare &= is_bare(text, left..spot.start);
        left = spot.end;
    }
    rest_is_bare &= is_bare(text, left..text.len());
    if rest_is_bare || spots.len() > MAX_SPOTS { vec![Range { start: 0, end: text.len() }] } else { spots }
}

/// PEM and PGP blocks: the first line, the last, and between them what looks like base64, so that nothing else can be
/// hidden there. Where the last line is missing, the block ends before the first line that does not belong in one.
fn armoured(text: &str, spots: &mut Vec<Range<usize>>) {
    let mut from = 0;
    // Many first lines share one search for a last one.
    let mut next_end = Some(0);
    while let Some(start) = find_from(text, "-----BEGIN ", from) {
        from = start + 11;
        let is_label = |character| matches!(character, 'A'..='Z' | '0'..='9' | ' ');
        let label_end = skip_while(text, from, is_label).filter(|end| *end > from);
        let Some(body) = label_end.filter(|end| text.get(*end..).is_some_and(|rest| rest.starts_with("-----"))) else {
            continue;
        };
        let body = body + 5;
        if next_end.is_some_and(|end| end < body) {
            next_end = find_from(text, "-----END ", body);
        }
        // A last line beyond another first line is that one's. So no part of the text is looked at for two blocks.
        let next_start = find_from(text, "-----BEGIN ", body).unwrap_or(text.len());
        let first = next_end.filter(|end| *end < next_start);
        let last = first.and_then(|last| find_from(text, "-----", last + 9)).map(|last| last + 5);
        let (mut spot, mut at, mut joined) = (start..body, body, true);
        'lines: for line in text.get(body..first.unwrap_or(next_start)).unwrap_or_default().split_inclusive('\n') {
            let alone = line.split_whitespace().nth(1).is_none();
            let is_header = line.contains(": ");
            for word in line.split_inclusive(char::is_whitespace) {
                let content = word.trim_end();
                if is_armour(content, alone) {
                    if joined {
                        spot.end = at + content.len();
                    } else {
                        spots.push(std::mem::replace(&mut spot, at..at + content.len()));
                    }
                    joined = true;
                } else if !content.is_empty() {
                    joined = false;
                    if last.is_none() && !is_header {
                        break 'lines;
                    }
                }
                at += word.len();
            }
        }
        from = spot.end;
        if let (Some(first), Some(last)) = (first, last) {
            if joined {
                spot.end = last;
            } else {
                spots.push(first..last);
            }
            from = last;
        }
        spots.push(spot);
    }
}

/// Whether a word within a block is base64, also where line ends were written as `\\n`. One that shares its line with
/// others must be longer than words are.
fn is_armour(word: &str, alone: bool) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\\');
    (alone || word.len() >= 20) && !word.is_empty() && word.bytes().all(fits)
}

/// What the scanner of words expects of the next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Nothing,
    /// The word before was `Bearer`.
    Bearer,
    /// The word before was `Basic`.
    Basic,
    /// The word before was a flag such as `--password`.
    Secret,
    /// The word before was `-u` of `curl`: a user's name and a password.
    Login,
}

/// Keys and JWTs by their looks; what follows `Bearer` and `Basic`; what follows a flag.
fn in_words(text: &str, names: &SensitiveNames, spots: &mut Vec<Range<usize>>) {
    let mut expect = Expect::Nothing;
    let mut curl = false;
    let mut from = 0;
    while let Some(start) = skip_while(text, from, is_delimiter) {
        let end = skip_while(text, start, |character| !is_delimiter(character)).unwrap_or(text.len());
        let word = text.get(start..end).unwrap_or_default();
        let secret = match expect {
            Expect::Nothing | Expect::Login => false,
            Expect::Secret => true,
            Expect::Bearer => looks_random(word) || is_bare(text, end..text.len()) && text.len() - word.len() < 12,
            Expect::Basic => is_base64_pair(word),
        };
        let login = word
            .split_once(':')
            .filter(|(name, password)| expect == Expect::Login && !name.is_empty() && !password.is_empty());
        curl |= ends_with_word(word, "curl");
        expect = Expect::Nothing;
        if secret {
            spots.push(start..end);
        } else if let Some((name, _)) = login {
            spots.push(start + name.len() + 1..end);
        } else {
            keys(word, start, spots);
            if ends_with_word(word, "bearer") {
                expect = Expect::Bearer;
            } else if ends_with_word(word, "basic") {
                expect = Expect::Basic;
            } else if word.starts_with("--") && !word.contains(['=', ':']) && names.is_sensitive_label(word) {
                expect = Expect::Secret;
            } else if curl && matches!(word, "-u" | "--user" | "-U" | "--proxy-user") {
                expect = Expect::Login;
            }
        }
        from = end;
    }
}

/// Keys with a known start, and JWTs, in one word that stands at `offset`.
fn keys(word: &str, offset: usize, spots: &mut Vec<Range<usize>>) {
    let bytes = word.as_bytes();
    let in_url = word.contains("://");
    // Up to here it is known that no JWT starts.
    let mut no_jwt_before = 0;
    let mut at = 0;
    let mut before = b' ';
    while let Some(first) = bytes.get(at).copied() {
        let rest = bytes.get(at..).unwrap_or_default();
        let mut key = false;
        if first.is_ascii_alphabetic() && !before.is_ascii_alphanumeric() {
            key = KEY_PREFIXES.iter().chain(WEBHOOKS).any(|(prefix, count)| {
                rest.strip_prefix(prefix.as_bytes()).is_some_and(|tail| has_tail(tail, *count, prefix.ends_with('_')))
            });
            if !key && at >= no_jwt_before && rest.starts_with(b"eyJ") {
                let length = rest.iter().take_while(|byte| is_base64url(**byte) || **byte == b'.').count();
                let dots = rest.iter().take(length).filter(|byte| **byte == b'.').count();
                key = dots >= 2 && length >= 20;
                // What starts later in the same row has fewer dots still.
                no_jwt_before = at + length;
            }
        }
        let length = if key { rest.iter().take_while(|byte| is_key_byte(**byte)).count() } else { 0 };
        // What stands before `@host` is a mailbox, except in a URL.
        let mailbox = !in_url && matches!(rest.get(length..), Some([b'@', next, ..]) if next.is_ascii_alphanumeric());
        if key && mailbox {
            at += length;
            before = b'@';
        } else if key {
            // The host of a secret address is no secret.
            let host = WEBHOOKS.iter().find(|(prefix, _)| rest.starts_with(prefix.as_bytes()));
            let start = host.map_or(0, |(prefix, _)| prefix.len());
            spots.push(offset + at + start..offset + at + length);
            at += length;
            before = b' ';
        } else {
            at += 1;
            before = first;
        }
    }
}

/// Passwords before the host of a URL, and long names there, which are tokens.
fn in_urls(text: &str, spots: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    // The end of the word that the scanner is in, and the last `@` of that word.
    let mut word_end = 0;
    let mut last_at = None;
    while let Some(found) = find_from(text, "://", from) {
        let start = found + 3;
        let rest = bytes.get(start..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| !matches!(byte, b'/' | b'?' | b'#') && !ends_url(**byte)).count();
        let authority = rest.get(..length).unwrap_or_default();
        if start >= word_end {
            word_end = start + rest.iter().take_while(|byte| !ends_url(**byte)).count();
            last_at = bytes.get(..word_end).unwrap_or_default().iter().rposition(|byte| *byte == b'@');
        }
        let colon = authority.iter().position(|byte| *byte == b':');
        let at = authority.iter().rposition(|byte| *byte == b'@').map(|at| start + at);
        // A password with a slash in it is not written as it should be, but is a password.
        let odd_port =
            colon.and_then(|colon| authority.get(colon + 1..)).is_some_and(|port| !port.iter().all(u8::is_ascii_digit));
        let at = at.or(last_at.filter(|at| odd_port && *at > start && !authority.starts_with(b"[")));
        from = start + length;
        let Some(at) = at else { continue };
        match colon.map(|colon| start + colon).filter(|colon| *colon < at) {
            Some(colon) if colon + 1 < at => spots.push(colon + 1..at),
            None if at - start >= 20 => spots.push(start..at),
            _ => {}
        }
        from = from.max(at);
    }
}

/// What is assigned to a sensitive name: in a query, a connection string, a header, a setting, or in JSON, YAML or XML
/// within a string.
fn assigned(text: &str, names: &SensitiveNames, spots: &mut Vec<Range<usize>>) {
    let mut from = 0;
    while let Some(sign) = find_byte(text, from, |byte| matches!(byte, b'=' | b':' | b'>')) {
        from = sign + 1;
        let Some(kind) = assigned_name(text, sign, names) else { continue };
        if let Some(value) = assigned_value(text, sign, kind) {
            from = value.end.max(from);
            spots.push(value);
        }
    }
}

/// How far the value of a sensitive name goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// To the end of the word.
    Word,
    /// So many words, and further ones with a `=`, to the end of the line, as a header goes; or to the quote that stands
    /// before the header's name.
    Line(usize, Option<u8>),
    /// To the tag that ends the element.
    Element,
}

/// Whether a sensitive name stands before the sign at `sign`.
fn assigned_name(text: &str, sign: usize, names: &SensitiveNames) -> Option<Reach> {
    let bytes = text.as_bytes();
    let before = |end: usize| end.checked_sub(1).and_then(|at| bytes.get(at)).copied();
    let mut end = sign;
    // As in `"name" :`, `\"name\":`, `name =`, `['name']:`.
    for _ in 0..8 {
        if matches!(before(end), Some(b' ' | b'\t' | b'"' | b'\'' | b'\\' | b']' | b'`')) {
            end -= 1;
        }
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let floor = end.saturating_sub(MAX_NAME_BYTES);
    let length = bytes.get(floor..end)?.iter().rev().take_while(|byte| is_name(byte)).count();
    let start = end - length;
    let name = text.get(start..end).filter(|name| !name.is_empty())?;
    if bytes.get(sign) == Some(&b'>') {
        return (before(start) == Some(b'<') && names.is_sensitive(name)).then_some(Reach::Element);
    }
    if let Some((_, words)) = HEADERS.iter().find(|(header, _)| name.eq_ignore_ascii_case(header)) {
        return Some(Reach::Line(*words, before(start).filter(|byte| matches!(byte, b'"' | b'\'' | b'`'))));
    }
    let ordinary = bytes.get(sign) == Some(&b':') && ORDINARY.iter().any(|word| name.eq_ignore_ascii_case(word));
    if !ordinary && names.is_sensitive(name) {
        return Some(Reach::Word);
    }
    if bytes.get(sign) == Some(&b'=') && matches!(before(start), Some(b'?' | b'&' | b';' | b'#')) && is_url_secret(name)
    {
        return Some(Reach::Word);
    }
    // `API key: …`
    let floor = start.saturating_sub(MAX_NAME_BYTES);
    let earlier = bytes.get(floor..start)?.strip_suffix(b" ")?;
    let length = earlier.iter().rev().take_while(|byte| is_name(byte)).count();
    let both = text.get(start - 1 - length..end)?;
    (length > 0 && names.ends_sensitive(both)).then_some(Reach::Word)
}

/// The value that follows the sign at `sign`, if there is one.
fn assigned_value(text: &str, sign: usize, reach: Reach) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied();
    let mut start = sign + 1;
    // As in `=`, `: `, `:=`, `=>`, `==`.
    for _ in 0..8 {
        if matches!(at(start), Some(b' ' | b'\t' | b'=' | b'>')) {
            start += 1;
        }
    }
    if reach != Reach::Element && matches!(at(start), Some(b'{' | b'[')) {
        return Some(start..start + bracketed(bytes.get(start..)?));
    }
    let backslashes = bytes.get(start..)?.iter().take_while(|byte| **byte == b'\\').count();
    if reach != Reach::Element
        && let Some(quote @ (b'"' | b'\'' | b'`')) = at(start + backslashes)
    {
        let inside = start + backslashes + 1;
        let end = closing_quote(bytes.get(inside..)?, quote, backslashes).map_or_else(
            || find_byte(text, inside, |byte| byte == b'\n').unwrap_or(text.len()),
            |length| inside + length,
        );
        return (end > inside).then_some(inside..end);
    }
    let ends = |byte: u8| match reach {
        Reach::Line(_, quote) => matches!(byte, b'\n' | b'\r') || quote == Some(byte),
        Reach::Element => byte == b'<',
        Reach::Word => byte.is_ascii_whitespace() || matches!(byte, b'&' | b';' | b'"' | b'\'' | b'`' | b'<' | b'>'),
    };
    let mut end = find_byte(text, start, ends).unwrap_or(text.len());
    if let Reach::Line(words, _) = reach {
        end = start + header_length(text.get(start..end)?, words);
    }
    (end > start).then_some(start..end)
}

/// How much of a line is a header's value.
fn header_length(line: &str, words: usize) -> usize {
    let mut length = 0;
    let mut count = 0;
    for word in line.split_inclusive(' ') {
        let content = word.trim_end();
        // Prose after the value is no part of it: a name without a value ends the row.
        if count >= words && !content.is_empty() && !content.contains('=') {
            break;
        }
        count += usize::from(!content.is_empty());
        length += word.len();
    }
    line.get(..length).unwrap_or(line).trim_end().len()
}

/// Where the quote stands that closes a value opened by `quote` after so many backslashes. One with more backslashes
/// is within the value.
fn closing_quote(bytes: &[u8], quote: u8, backslashes: usize) -> Option<usize> {
    let mut row = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == quote && row <= backslashes {
            return Some(at - row);
        }
        row = if *byte == b'\\' { row + 1 } else { 0 };
    }
    None
}

/// How far the object or list goes that starts here; all the way if it has no end.
fn bracketed(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return at + 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    bytes.len()
}

/// Sorted and without overlaps.
fn merged(mut spots: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spots.sort_unstable_by_key(|spot| (spot.start, spot.end));
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spots.len());
    for spot in spots {
        match merged.last_mut() {
            Some(last) if spot.start <= last.end => last.end = last.end.max(spot.end),
            _ => merged.push(spot),
        }
    }
    merged
}

/// Neither letter nor digit stands there.
fn is_bare(text: &str, range: Range<usize>) -> bool {
    !text.get(range).unwrap_or_default().contains(char::is_alphanumeric)
}

/// At least `count` bytes that keys are made of; after an underscore no further one, so that `npm_config_cache` is no key.
fn has_tail(tail: &[u8], count: usize, after_underscore: bool) -> bool {
    let fits = |byte: &&u8| byte.is_ascii_alphanumeric() || !after_underscore && matches!(byte, b'-' | b'_');
    tail.iter().take(count).take_while(fits).count() == count
}

/// What a token looks like and an ordinary word does not.
fn looks_random(word: &str) -> bool {
    let inner_capital = word.chars().skip(1).any(char::is_uppercase) && word.chars().any(char::is_lowercase);
    word.len() >= 16
        || inner_capital
        || word.contains(|character: char| character.is_ascii_digit() || "_~+/=".contains(character))
}

/// Base64 of `name:password`.
fn is_base64_pair(word: &str) -> bool {
    let digits = word.trim_end_matches('=');
    let mut bits = 0_u32;
    let mut count = 0;
    let mut colon = false;
    for byte in digits.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        bits = (bits << 6 | u32::from(value)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            colon |= (bits >> count) & 0xFF == u32::from(b':');
        }
    }
    colon
}

fn ends_with_word(text: &str, word: &str) -> bool {
    let Some(start) = text.len().checked_sub(word.len()) else { return false };
    let bytes = text.as_bytes();
    bytes.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(word.as_bytes()))
        && !start.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric)
}

/// What parts words: white space, quotes and brackets.
fn is_delimiter(character: char) -> bool {
    character.is_whitespace()
        || matches!(character, '"' | '\'' | '`' | '<' | '>' | ',' | ';' | '|' | '(' | ')' | '{' | '}' | '[' | ']')
}

fn ends_url(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// What a key may contain, generously; a character beyond ASCII does not end it.
fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || !byte.is_ascii()
        || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+' | b'/' | b'=' | b'%' | b':')
}

fn find_from(text: &str, needle: &str, from: usize) -> Option<usize> {
    text.get(from..)?.find(needle).map(|found| from + found)
}

fn find_byte(text: &str, from: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
    text.as_bytes().get(from..)?.iter().position(|byte| wanted(*byte)).map(|found| from + found)
}

/// The first character from `from` on that is not `skipped`; none if all are.
fn skip_while(text: &str, from: usize, skipped: impl Fn(char) -> bool) -> Option<usize> {
    text.get(from..)?.find(|character| !skipped(character)).map(|found| from + found)
}
