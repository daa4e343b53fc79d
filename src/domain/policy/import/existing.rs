//! Reads the catalog file that an import goes into, entry by entry, together with the very lines that a person wrote:
//! what a review said, comments included, is handed back byte for byte.

use crate::domain::policy::problem::Problem;
use crate::domain::policy::yaml::{self, Value};
use crate::domain::policy::{Catalog, ListedAction};
use std::collections::BTreeMap;

/// A catalog file as it stands.
#[derive(Debug)]
pub struct ExistingCatalog {
    /// The lines before the first entry.
    pub(super) head: String,
    /// The entries, by name.
    pub(super) entries: BTreeMap<String, ExistingEntry>,
    /// The lines behind the last entry.
    pub(super) tail: String,
    /// What entries are indented by.
    pub(super) indent: String,
}

/// One entry as it stands.
#[derive(Debug)]
pub(super) struct ExistingEntry {
    /// The comment lines right above it.
    pub(super) comments: String,
    /// Its own lines.
    pub(super) lines: String,
    /// What they say.
    pub(super) listed: ListedAction,
}

impl ExistingCatalog {
    /// Reads the text of a catalog file. `file` is its name for problems.
    ///
    /// # Errors
    ///
    /// Every problem that a policy with this catalog would have, with its line; and entries that do not start a line of
    /// their own, as such a file cannot be edited line by line.
    pub fn read(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let catalog = Catalog::parse(file, text)?;
        cut_entries(text, catalog).map_err(|(line, message)| {
            vec![Problem { file: file.to_owned(), line, column: 0, key: "actions".to_owned(), message }]
        })
    }
}

/// Cuts the text into what stands before the entries, each of them, and what follows; or says on which line that fails.
fn cut_entries(text: &str, catalog: Catalog) -> Result<ExistingCatalog, (usize, String)> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut listed: Vec<(String, ListedAction)> = catalog.actions.into_iter().collect();
    listed.sort_by_key(|(_, action)| (action.line, action.column));
    let Some((first, column)) = listed.first().map(|(_, action)| (action.line, action.column)) else {
        return Err((0, "lists nothing; write a new catalog with `--out`".to_owned()));
    };
    // An entry ends where the next one starts, or the next key of the whole.
    let mut ends: Vec<(usize, usize)> = listed.iter().skip(1).map(|(_, next)| (next.line, column)).collect();
    ends.push((line_behind(text, first).unwrap_or(lines.len() + 1), 1));
    let (head_end, tail_start) = (above(&lines, first, column), ends.last().map_or(1, |end| above(&lines, end.0, 1)));
    let mut entries = BTreeMap::new();
    for ((name, listed), (end, end_column)) in listed.into_iter().zip(ends) {
        let (line, indent) = (listed.line, lines.get(listed.line - 1).map_or(0, |text| leading_spaces(text)));
        if end <= line || indent + 1 != column || listed.column != column {
            return Err((line, format!("{name:?} must start a line of its own, indented like the others")));
        }
        let comments = cut(&lines, above(&lines, line, column), line);
        let lines = cut(&lines, line, above(&lines, end, end_column));
        entries.insert(name, ExistingEntry { comments, lines, listed });
    }
    Ok(ExistingCatalog {
        head: cut(&lines, 1, head_end),
        entries,
        tail: cut(&lines, tail_start, lines.len() + 1),
        indent: " ".repeat(column - 1),
    })
}

/// The line of the first key of the whole that stands behind the entries.
fn line_behind(text: &str, first: usize) -> Option<usize> {
    let root = yaml::parse("", text, &mut Vec::new())?;
    let Value::Map(members) = root.value else { return None };
    members.iter().map(|member| member.at.line).filter(|line| *line > first).min()
}

/// The first of the comment lines right above line `line` that start in `column`; `line` itself if there are none. Lines
/// further in may be part of a text above, where `#` is no comment.
fn above(lines: &[&str], line: usize, column: usize) -> usize {
    let is_comment = |text: &&&str| text.trim_start().starts_with('#') && leading_spaces(text) + 1 == column;
    let before = lines.get(..line.saturating_sub(1)).unwrap_or_default();
    line - before.iter().rev().take_while(is_comment).count()
}

/// The lines from `from` up to and without `to`, from 1.
fn cut(lines: &[&str], from: usize, to: usize) -> String {
    lines.get(from.saturating_sub(1)..to.saturating_sub(1)).unwrap_or_default().concat()
}

fn leading_spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}
