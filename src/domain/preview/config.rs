//! How much a preview shows, and what it takes for a secret.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;

use super::names::{letters, split_words};

/// The most words of each list.
const MAX_WORDS: usize = 256;

/// The most bytes of one word.
const MAX_WORD_BYTES: usize = 64;

/// The bounds of a preview. Words are added to the built-in ones, which cannot be taken away.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PreviewConfig {
    /// The most graphemes (characters as a reader counts them) of a string. Default 1,000; 16 to 100,000.
    pub max_string_graphemes: usize,
    /// The most bytes of a string, as it stands in the arguments. Default 4,096; 64 to 262,144.
    pub max_string_bytes: usize,
    /// The most items of an array. Default 50; 1 to 10,000.
    pub max_array_items: usize,
    /// The most members of an object. Default 100; 1 to 10,000.
    pub max_object_members: usize,
    /// The deepest object or array that is shown; the outermost is the first level, scalars are none. Default 8; 1 to 64.
    pub max_depth: usize,
    /// The most bytes of the whole preview. Default 16,384; 256 to 1,048,576.
    pub max_total_bytes: usize,
    /// Further words that make a name sensitive wherever they stand in it, letters only, without regard to case:
    /// `iban` also finds `customerIBAN_2`. Default none; at least three letters each.
    pub sensitive_words: Vec<String>,
    /// Further words that make a name sensitive where they stand as a whole word, singular or plural: `sid` finds
    /// `user_sid` and `SIDs`, not `side`. Default none; one word of at least two letters each.
    pub sensitive_short_words: Vec<String>,
    /// Further expressions that are not sensitive though a sensitive word is in them, as the built-in `secretary` and
    /// `max_tokens`. Default none.
    pub not_sensitive: Vec<String>,
}

/// Something wrong with a [`PreviewConfig`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewProblem {
    /// The key, as it is written in the configuration.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for PreviewProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.key, self.message)
    }
}

impl std::error::Error for PreviewProblem {}

impl Default for PreviewConfig {
    fn default() -> Self {
        Self {
            max_string_graphemes: 1_000,
            max_string_bytes: 4_096,
            max_array_items: 50,
            max_object_members: 100,
            max_depth: 8,
            max_total_bytes: 16_384,
            sensitive_words: Vec::new(),
            sensitive_short_words: Vec::new(),
            not_sensitive: Vec::new(),
        }
    }
}

impl PreviewConfig {
    /// Everything that is wrong with it; empty if it can be used.
    pub fn validate(&self) -> Vec<PreviewProblem> {
        let mut problems = Vec::new();
        let mut within = |key, value: usize, range: RangeInclusive<usize>| {
            if !range.contains(&value) {
                let message = format!("{value} is not within {} and {}", range.start(), range.end());
                problems.push(PreviewProblem { key, message });
            }
        };
        within("max_string_graphemes", self.max_string_graphemes, 16..=100_000);
        within("max_string_bytes", self.max_string_bytes, 64..=262_144);
        within("max_array_items", self.max_array_items, 1..=10_000);
        within("max_object_members", self.max_object_members, 1..=10_000);
        within("max_depth", self.max_depth, 1..=64);
        within("max_total_bytes", self.max_total_bytes, 256..=1_048_576);
        check_words("sensitive_words", &self.sensitive_words, &mut problems, |word| {
            (letters(word).chars().count() < 3).then_some("at least three letters are needed")
        });
        check_words("sensitive_short_words", &self.sensitive_short_words, &mut problems, |word| {
            let words = split_words(word);
            let one = matches!(&words[..], [only] if only.chars().count() >= 2);
            (!one).then_some("one word of at least two letters is needed")
        });
        check_words("not_sensitive", &self.not_sensitive, &mut problems, |word| {
            (letters(word).chars().count() < 3).then_some("at least three letters are needed")
        });
        problems
    }
}

fn check_words(
    key: &'static str,
    words: &[String],
    problems: &mut Vec<PreviewProblem>,
    check: impl Fn(&str) -> Option<&'static str>,
) {
    if words.len() > MAX_WORDS {
        problems
            .push(PreviewProblem { key, message: format!("{} words, at most {MAX_WORDS} are allowed", words.len()) });
    }
    for word in words {
        let problem = if word.len() > MAX_WORD_BYTES { Some("at most 64 bytes are allowed") } else { check(word) };
        if let Some(problem) = problem {
            problems.push(PreviewProblem { key, message: format!("{word:?}: {problem}") });
        }
    }
}
