//! The regular expressions of `matches`: literals, compiled at load, matched in time linear in the text.
//!
//! CEL means RE2's syntax. Where ours differs silently, the pattern is rewritten (`\d`, `\w`, `\s` and `\b` are ASCII in
//! RE2) or refused (a bracket or set operator within brackets).

use std::error::Error;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, meta};

use super::limits::{MAX_AUTOMATON_BUILD_BYTES, MAX_AUTOMATON_BYTES, MAX_PATTERN_BYTES, MAX_PATTERN_NESTING};
use super::problem::Reason;
use super::value::Meter;

/// A compiled pattern.
///
/// Linear time alone is no bound: a pattern such as `a[ab]{100}` keeps a hundred states alive, each moved on by every
/// byte. So a pattern becomes a deterministic automaton, which does one thing for a byte, where that is small; and else
/// pays for every state that it might keep alive.
pub(super) enum Pattern {
    Automaton(Box<dense::DFA<Vec<u32>>>),
    Simulation { regex: Box<meta::Regex>, states: usize },
}

/// Compiles a literal pattern.
///
/// # Errors
/// In words: what is wrong with it, or that it is too large.
pub(super) fn compile(pattern: &str) -> Result<Pattern, String> {
    let pattern = as_re2(pattern)?;
    let syntax = syntax::Config::new().nest_limit(MAX_PATTERN_NESTING);
    let nfa = thompson::Compiler::new()
        .syntax(syntax)
        .configure(thompson::Config::new().nfa_size_limit(Some(MAX_PATTERN_BYTES)).which_captures(WhichCaptures::None))
        .build(&pattern)
        .map_err(|error| problem_of(&error))?;
    if let Some(automaton) = automaton_of(&nfa) {
        return Ok(Pattern::Automaton(Box::new(automaton)));
    }
    let regex = meta::Builder::new()
        .syntax(syntax)
        .configure(meta::Config::new().nfa_size_limit(Some(MAX_PATTERN_BYTES)))
        .build(&pattern)
        .map_err(|_| TOO_LARGE.to_owned())?;
    Ok(Pattern::Simulation { regex: Box::new(regex), states: nfa.states().len() })
}

const TOO_LARGE: &str = "this pattern is too large once compiled: use smaller repetitions and classes";

fn problem_of(error: &thompson::BuildError) -> String {
    if error.size_limit().is_some() {
        return TOO_LARGE.to_owned();
    }
    // The last line says what is wrong; those before it draw the pattern.
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("this pattern is not valid: {}", text.lines().last().unwrap_or_default().trim_start_matches("error: "))
}

/// Absent where it would be large.
fn automaton_of(nfa: &NFA) -> Option<dense::DFA<Vec<u32>>> {
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(MAX_AUTOMATON_BYTES))
        .determinize_size_limit(Some(MAX_AUTOMATON_BUILD_BYTES));
    dense::Builder::new().configure(config).build_from_nfa(nfa).ok()
}

impl Pattern {
    /// Whether the pattern is found in the text.
    ///
    /// # Errors
    /// `TooMuchWork`.
    pub fn is_found_in(&self, text: &str, meter: &mut Meter) -> Result<bool, Reason> {
        match self {
            Self::Automaton(automaton) => {
                meter.spend_length(text.len(), 16)?;
                let found = automaton.try_search_fwd(&Input::new(text).earliest(true));
                found.map(|found| found.is_some()).map_err(|_| Reason::Internal)
            }
            Self::Simulation { regex, states } => {
                meter.spend_length(text.len().saturating_mul(*states), 16)?;
                Ok(regex.is_match(text))
            }
        }
    }
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

    fn compiled(pattern: &str) -> Pattern {
        compile(pattern).unwrap_or_else(|problem| panic!("{pattern}: {problem}"))
    }

    fn matches(pattern: &str, text: &str) -> bool {
        compiled(pattern).is_found_in(text, &mut Meter::full()).unwrap()
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
            assert!(compile(pattern).err().unwrap().starts_with("write \\"), "{pattern}");
        }
    }

    #[test]
    fn what_is_not_valid_or_too_large_is_refused_in_one_line() {
        for pattern in ["(", "a{2,1}", "[", "\\", "*", r"\1", "(?=a)", r"\B", r"[\b]", r"\<", "[[:", "a{99999999999}"] {
            let problem = compile(pattern).err().unwrap();
            assert!(!problem.contains('\n') && !problem.is_empty(), "{pattern}: {problem}");
        }
        for pattern in ["(a{1000}){1000}", r"\pL{500}", "((((a{10}){10}){10}){10}){10}"] {
            assert!(compile(pattern).err().unwrap().contains("too large"), "{pattern}");
        }
        assert!(compile(&format!("{}a{}", "(".repeat(40), ")".repeat(40))).is_err());
    }

    #[test]
    fn everyday_patterns_cost_one_thing_for_a_byte() {
        for pattern in [
            r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$",
            r"(?i)\b(drop|delete|truncate)\s+table\b",
            r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            r"^https://([a-z0-9-]+\.)*acme\.com(/|$)",
            r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b",
            r"^\pL[\pL\pN ]*$",
            r"^.{1,100}$",
            r"rm\s+-[a-z]*r[a-z]*\s+/",
            "",
        ] {
            assert!(matches!(compiled(pattern), Pattern::Automaton(_)), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_without_a_small_automaton_answers_alike_and_pays_for_its_states() {
        let pattern = compiled("a[ab]{100}c");
        assert!(matches!(pattern, Pattern::Simulation { .. }));
        let text = format!("b{}c", "a".repeat(101));
        assert_eq!(pattern.is_found_in(&text, &mut Meter::full()), Ok(true));
        assert_eq!(pattern.is_found_in(text.trim_end_matches('c'), &mut Meter::full()), Ok(false));
        assert_eq!(pattern.is_found_in(&"ab".repeat(100_000), &mut Meter::full()), Err(Reason::TooMuchWork));
    }
}
