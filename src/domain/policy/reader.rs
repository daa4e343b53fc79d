//! Reads values of a policy's tree into types, noting every problem with its place instead of stopping at the first.

use super::problem::{Path, Problem, nearest, shown};
use super::yaml::{Member, Node, Place, Value, is_null};
use crate::domain::limits;
use crate::domain::span::{parse_span, show_span};
use crate::domain::text::Identifier;
use std::collections::BTreeMap;
use std::time::Duration;

/// Keys that the design reserves. They are refused like unknown ones, but nobody should look for a spelling mistake.
const RESERVED: [&str; 3] = ["require_session", "raw", "no_elicitation_fallback"];

/// Reads one file's values.
pub(super) struct Reader {
    file: String,
    /// What was found wrong so far.
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), problems: Vec::new() }
    }

    /// Notes a problem of the value at `at`.
    pub(super) fn problem(&mut self, at: Place, path: &Path<'_>, message: impl Into<String>) {
        self.problems.push(Problem {
            file: self.file.clone(),
            line: at.line,
            column: at.column,
            key: path.to_string(),
            message: message.into(),
        });
    }

    /// The members of a mapping.
    pub(super) fn map<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<&'n [Member]> {
        match &node.value {
            Value::Map(members) => Some(members),
            Value::Scalar { .. } | Value::List(_) | Value::Refused => self.wrong(node, path, "a mapping"),
        }
    }

    /// The values of a mapping's `known` keys, in that order. Any other key is a problem.
    pub(super) fn fields<'n, const N: usize>(
        &mut self,
        node: &'n Node,
        path: &Path<'_>,
        known: [&'static str; N],
    ) -> Option<[Option<&'n Node>; N]> {
        let mut fields = [None; N];
        for member in self.map(node, path)? {
            let place = known.iter().position(|name| *name == member.key);
            match place.and_then(|place| fields.get_mut(place)) {
                Some(field) => *field = Some(&member.node),
                None => self.problem(member.at, &path.key(&member.key), unknown_key(&member.key, &known)),
            }
        }
        Some(fields)
    }

    /// The elements of a list.
    pub(super) fn list<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<&'n [Node]> {
        match &node.value {
            Value::List(items) => Some(items),
            Value::Scalar { .. } | Value::Map(_) | Value::Refused => self.wrong(node, path, "a list"),
        }
    }

    /// A text, as it was written: `no` and `1.0` are texts too.
    pub(super) fn text<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<&'n str> {
        match &node.value {
            Value::Scalar { text, plain } if !is_null(text, *plain) => Some(text),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) | Value::Refused => self.wrong(node, path, "a text"),
        }
    }

    /// `true` or `false`, unquoted.
    pub(super) fn flag(&mut self, node: &Node, path: &Path<'_>) -> Option<bool> {
        match &node.value {
            Value::Scalar { text, plain: true } if text == "true" => Some(true),
            Value::Scalar { text, plain: true } if text == "false" => Some(false),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) | Value::Refused => {
                self.wrong(node, path, "`true` or `false`")
            }
        }
    }

    /// A whole number from `least` to `most`, unquoted.
    pub(super) fn number(&mut self, node: &Node, path: &Path<'_>, least: u32, most: u32) -> Option<u32> {
        if let Value::Scalar { text, plain: true } = &node.value
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = text.parse()
            && (least..=most).contains(&number)
        {
            return Some(number);
        }
        self.wrong(node, path, &format!("a whole number from {least} to {most}"))
    }

    /// One of `words`, by its meaning.
    pub(super) fn word<T: Copy>(&mut self, node: &Node, path: &Path<'_>, words: &[(&'static str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let expected = format!("one of {}", in_ticks(&names));
        let Value::Scalar { text, .. } = &node.value else { return self.wrong(node, path, &expected) };
        let found = words.iter().find(|(name, _)| name == text);
        if found.is_none() {
            self.wrong::<()>(node, path, &expected);
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// A name.
    pub(super) fn identifier(&mut self, node: &Node, path: &Path<'_>) -> Option<Identifier> {
        let text = self.text(node, path)?;
        self.name(text, node.at, path)
    }

    /// A name in which a `*` would be an ordinary character: refused, as whoever wrote it meant a wildcard.
    pub(super) fn literal(&mut self, text: &str, at: Place, path: &Path<'_>) -> Option<Identifier> {
        if text.contains('*') {
            let message =
                "has a `*`, which is no wildcard here; it is one in `agents`, `accounts` and a rule's `actions`";
            self.problem(at, path, message);
            return None;
        }
        self.name(text, at, path)
    }

    fn name(&mut self, text: &str, at: Place, path: &Path<'_>) -> Option<Identifier> {
        match Identifier::parse(text) {
            Ok(name) => Some(name),
            Err(problem) => {
                self.problem(at, path, format!("{} is no identifier: {problem}", shown(text)));
                None
            }
        }
    }

    /// A list of different things, each read by `read` and compared by its text.
    pub(super) fn set<T>(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        mut read: impl FnMut(&mut Self, &Node, &Path<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
        let mut read_items = Vec::new();
        for (index, item) in self.list(node, path)?.iter().enumerate() {
            let path = path.index(index);
            let Some(value) = read(self, item, &path) else { continue };
            if let Value::Scalar { text, .. } = &item.value {
                if let Some(first) = lines.get(text.as_str()) {
                    let message = format!("{} is listed twice, first on line {first}", shown(text));
                    self.problem(item.at, &path, message);
                    continue;
                }
                lines.insert(text, item.at.line);
            }
            read_items.push(value);
        }
        Some(read_items)
    }

    /// A span such as `90s`, `10m`, `1h30m` or `7d`.
    pub(super) fn span(&mut self, node: &Node, path: &Path<'_>) -> Option<Duration> {
        const EXPECTED: &str = "a span such as `90s`, `10m`, `1h30m` or `7d`";
        let Value::Scalar { text, .. } = &node.value else { return self.wrong(node, path, EXPECTED) };
        let Some(span) = parse_span(text) else { return self.wrong(node, path, EXPECTED) };
        if span < limits::SHORTEST_DEADLINE || span > limits::LONGEST_DEADLINE {
            let message = format!(
                "{} is out of bounds: at least {}, at most {}",
                shown(text),
                show_span(limits::SHORTEST_DEADLINE),
                show_span(limits::LONGEST_DEADLINE)
            );
            self.problem(node.at, path, message);
            return None;
        }
        Some(span)
    }

    /// Notes that a value is not what it must be, unless it has been refused already.
    pub(super) fn wrong<T>(&mut self, node: &Node, path: &Path<'_>, expected: &str) -> Option<T> {
        let found = match &node.value {
            Value::Refused => return None,
            Value::Scalar { text, plain } if is_null(text, *plain) => {
                let message = format!("has no value; give {expected}, or leave the key out");
                self.problem(node.at, path, message);
                return None;
            }
            Value::Scalar { text, .. } => shown(text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        };
        self.problem(node.at, path, format!("must be {expected}, not {found}"));
        None
    }
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    if RESERVED.contains(&key) {
        return "is not offered by this version".to_owned();
    }
    match nearest(key, known.iter().copied()) {
        Some(name) => format!("is an unknown key; did you mean `{name}`?"),
        None => format!("is an unknown key; known here: {}", in_ticks(known)),
    }
}

/// The words in code ticks, with commas between them.
pub(super) fn in_ticks(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_gets_a_suggestion_or_the_list() {
        let known = ["ceiling", "confirm"];
        assert_eq!(unknown_key("cieling", &known), "is an unknown key; did you mean `ceiling`?");
        assert_eq!(unknown_key("colour", &known), "is an unknown key; known here: `ceiling`, `confirm`");
        assert_eq!(unknown_key("raw", &known), "is not offered by this version");
    }
}
