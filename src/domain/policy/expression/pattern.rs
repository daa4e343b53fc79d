//! The regular expressions of `matches`: literals, compiled at load, matched in time linear in the text.
//!
//! CEL means RE2's syntax. Where this crate's differs silently, the pattern is rewritten (`\d`, `\w`, `\s` and `\b` are
//! ASCII in RE2) or refused (a bracket or set operator within brackets).

use regex::{Regex, RegexBuilder};

use super::limits::{MAX_PATTERN_BYTES, MAX_PATTERN_NESTING};

/// Compiles a literal pattern.
///
/// # Errors
/// In words: what is wrong with it, or that it is too large.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&as_re2(pattern)?).size_limit(MAX_PATTERN_BYTES).nest_limit(MAX_PATTERN_NESTING).build().map_err(
        |error| match error {
            regex::Error::CompiledTooBig(_) => {
                "this pattern is too large once compiled: use smaller repetitions and classes".to_owned()
            }
            // The last line says what is wrong; those before it draw the pattern.
            error => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                format!("this pattern is not valid: {reason}")
            }
        },
    )
}

/// The pattern with RE2's meaning of what both write alike.
fn as_re2(pattern: &str) -> Result<String, String> {
    let mut rewritten = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let Some(escaped) = letters.next() else {
                    return Err("this pattern ends in a backslash".to_owned());
                };
                match escaped {
                    'd' => rewritten.push_str("[0-9]"),
                    'D' => rewritten.push_str("[^0-9]"),
                    'w' => rewritten.push_str("[0-9A-Za-z_]"),
                    'W' => rewritten.push_str("[^0-9A-Za-z_]"),
                    's' => rewritten.push_str(r"[\t\n\f\r ]"),
                    'S' => rewritten.push_str(r"[^\t\n\f\r ]"),
                    'b' if !in_class => rewritten.push_str(r"(?-u:\b)"),
                    'b' | 'B' | '<' | '>' => return Err(format!("\\{escaped} is not available in a pattern here")),
                    _ => rewritten.extend(['\\', escaped]),
                }
            }
            '[' if in_class && letters.peek() == Some(&':') => {
                // A named class such as [:alpha:] goes over whole.
                rewritten.push('[');
                for letter in letters.by_ref() {
                    rewritten.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            '[' if in_class => return Err("write \\[ for a bracket within brackets".to_owned()),
            '&' | '-' | '~' if in_class && letters.peek() == Some(&letter) => {
                return Err(format!("write \\{letter} for a doubled {letter} within brackets"));
            }
            '[' => {
                in_class = true;
                rewritten.push('[');
                if letters.next_if_eq(&'^').is_some() {
                    rewritten.push('^');
                }
                if letters.next_if_eq(&']').is_some() {
                    rewritten.push_str("\\]");
                }
            }
            ']' => {
                in_class = false;
                rewritten.push(']');
            }
            _ => rewritten.push(letter),
        }
    }
    Ok(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn a_pattern_may_match_anywhere_and_is_exact_about_case_and_form() {
        assert!(matches("cme", "acme.com"));
        assert!(!matches("^cme", "acme.com"));
        assert!(!matches("CME", "acme.com"));
        assert!(!matches("^\u{e9}$", "e\u{301}"));
        assert!(matches("^.$", "\u{1f600}"));
        assert!(!matches("^a$", "a\n"));
        assert!(!matches(".", "\n"));
        assert!(matches("(?i)^k$", "K"));
    }

    #[test]
    fn perl_classes_are_ascii_as_in_re2() {
        for (pattern, yes, no) in [
            (r"^\d+$", "0189", "\u{661}"),
            (r"^[\d.]+$", "1.2", "\u{661}"),
            (r"^\w+$", "aZ_9", "\u{e9}"),
            (r"^[^\w]$", "\u{e9}", "a"),
            (r"^\s$", "\t", "\u{a0}"),
            (r"^\D$", "\u{661}", "1"),
            (r"^\W$", "\u{e9}", "a"),
            (r"^\S$", "\u{a0}", " "),
            (r"^[\S]$", "\u{b}", "\n"),
            (r"\bb", "\u{e9}b", "ab"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn brackets_within_brackets_keep_their_re2_meaning_or_are_refused() {
        assert!(matches("^[[:alpha:]-]+$", "ab-c"));
        assert!(matches("^[]a]+$", "]a"));
        assert!(matches("^[^]a]+$", "b"));
        assert!(matches(r"^[\[\]]+$", "[]"));
        assert!(matches(r"^a\[b$", "a[b"));
        assert!(matches("^[a-c&x-z]+$", "a&z"));
        for pattern in ["[a[b]]", "[[]", "[a&&b]", "[a--b]", "[a~~b]", "[[:alpha:]&&a]"] {
            assert!(compile(pattern).unwrap_err().starts_with("write \\"), "{pattern}");
        }
    }

    #[test]
    fn what_is_not_valid_or_too_large_is_refused_in_one_line() {
        for pattern in ["(", "a{2,1}", "[", "\\", "*", r"\1", "(?=a)", r"\B", r"[\b]", r"\<", "[[:", "a{99999999999}"] {
            let problem = compile(pattern).unwrap_err();
            assert!(!problem.contains('\n') && !problem.is_empty(), "{pattern}: {problem}");
        }
        for pattern in ["(a{1000}){1000}", r"\pL{500}", "((((a{10}){10}){10}){10}){10}"] {
            assert!(compile(pattern).unwrap_err().contains("too large"), "{pattern}");
        }
        assert!(compile(&format!("{}a{}", "(".repeat(40), ")".repeat(40))).is_err());
    }

    #[test]
    fn everyday_patterns_are_within_the_limit() {
        for pattern in [
            r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$",
            r"(?i)\b(drop|delete|truncate)\s+table\b",
            r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            r"^https://([a-z0-9-]+\.)*acme\.com(/|$)",
            r"^\pL[\pL\pN ]*$",
            r"^.{1,100}$",
        ] {
            assert!(compile(pattern).is_ok(), "{pattern}: {:?}", compile(pattern));
        }
    }
}
