//! What is wrong with a policy, each problem at its place.

use std::fmt;

/// One thing that is wrong with a policy or a catalog. All of them are named at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, as it was named to the loader; empty where no file is concerned.
    pub file: String,
    /// The line, from 1; 0 where the file as a whole is concerned.
    pub line: usize,
    /// The column in characters, from 1; 0 where the file as a whole is concerned.
    pub column: usize,
    /// The place in the document, as `connectors.gmail.rules[0].effect`; empty for the whole of it.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: 0, column: 0, key: String::new(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(formatter, "{}:", self.file)?;
        }
        if self.line > 0 {
            write!(formatter, "{}:{}:", self.line, self.column)?;
        }
        if !self.file.is_empty() || self.line > 0 {
            formatter.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(formatter, "{}: ", self.key)?;
        }
        formatter.write_str(&self.message)
    }
}

/// Where in a document a value stands: a chain that lives on the reader's stack.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    /// The document itself.
    Root,
    /// A member of a mapping.
    Key(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn key(&'a self, name: &'a str) -> Self {
        Path::Key(self, name)
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(parent, name) => {
                parent.fmt(formatter)?;
                write_key(formatter, matches!(parent, Path::Root), name)
            }
            Path::Index(parent, index) => {
                parent.fmt(formatter)?;
                write!(formatter, "[{index}]")
            }
        }
    }
}

/// Writes one step of a dotted path. A name that is more than letters, digits, `_` and `-` is quoted, so that a dot in it
/// is not taken for a step.
pub(super) fn write_key(out: &mut impl fmt::Write, first: bool, name: &str) -> fmt::Result {
    if !first {
        out.write_str(".")?;
    }
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
    if !name.is_empty() && name.len() <= SHOWN_BYTES && name.chars().all(plain) {
        out.write_str(name)
    } else {
        out.write_str(&shown(name))
    }
}

/// As much of a text as a problem quotes.
const SHOWN_BYTES: usize = 80;

/// A text from a file in quotes, cut and escaped so that it can be read on one line of a log.
pub(super) fn shown(text: &str) -> String {
    let mut cut = text.len().min(SHOWN_BYTES);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let (start, rest) = text.split_at(cut);
    let ellipsis = if rest.is_empty() { "" } else { "…" };
    format!("\"{}{ellipsis}\"", start.escape_debug())
}

/// The candidate that `text` was probably meant to be: the nearest one, if it is near.
pub(super) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > SHOWN_BYTES {
        return None;
    }
    let limit = if text.chars().count() <= 4 { 1 } else { 2 };
    candidates
        .into_iter()
        .map(|candidate| (edits(text, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Characters to insert, remove or replace, case aside.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, character) in from.to_lowercase().chars().enumerate() {
        let mut next = vec![above + 1];
        for ((other, beside), pair) in to.iter().zip(1..).zip(row.windows(2)) {
            let [diagonal, up] = pair else { continue };
            let left = next.get(beside - 1).copied().unwrap_or(usize::MAX - 1);
            next.push((diagonal + usize::from(*other != character)).min(up + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_one_line_with_its_place() {
        let problem = Problem {
            file: "policy.yaml".into(),
            line: 3,
            column: 5,
            key: "connectors.gmail".into(),
            message: "is wrong".into(),
        };
        assert_eq!(problem.to_string(), "policy.yaml:3:5: connectors.gmail: is wrong");
        assert_eq!(Problem::of_file("policy.yaml", "is empty").to_string(), "policy.yaml: is empty");
        assert_eq!(Problem::of_file("", "no file").to_string(), "no file");
    }

    #[test]
    fn a_path_quotes_what_could_be_mistaken_for_a_step() {
        let root = Path::Root;
        let connectors = root.key("connectors");
        let name = connectors.key("a.b\n");
        let rules = name.key("rules");
        assert_eq!(rules.index(2).to_string(), "connectors.\"a.b\\n\".rules[2]");
    }

    #[test]
    fn what_is_quoted_is_cut_and_escaped() {
        assert_eq!(shown("a\u{202e}\n\"b"), "\"a\\u{202e}\\n\\\"b\"");
        let long = shown(&"é".repeat(100));
        assert!(long.ends_with("…\"") && long.len() < 100, "{long}");
    }

    #[test]
    fn the_nearest_word_is_suggested_only_when_it_is_near() {
        let words = ["ceiling", "confirm", "catalog"];
        assert_eq!(nearest("celing", words), Some("ceiling"));
        assert_eq!(nearest("Confirm", words), Some("confirm"));
        assert_eq!(nearest("colour", words), None);
        assert_eq!(nearest("", words), None);
    }
}
