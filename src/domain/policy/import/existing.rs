//! Reads the catalog file that an import goes into, entry by entry, together with the very lines that a person wrote:
//! what a review said, comments included, is handed back byte for byte.

use super::CATALOG_VERSION;
use crate::domain::policy::problem::Problem;
use crate::domain::policy::yaml::{self, Member, Node, Value};
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
    pub(super) scope: String,
    pub(super) curated: bool,
    pub(super) tags: Option<Node>,
    pub(super) definition: Option<String>,
    pub(super) title: Option<Node>,
    /// Everything else that it says, in its order.
    pub(super) others: Vec<Member>,
}

impl ExistingCatalog {
    /// Reads the text of a catalog file. `file` is its name for problems.
    ///
    /// # Errors
    ///
    /// Every problem with its line: text that is no YAML of the plain kind that policies take, another version, entries
    /// that are not mappings, a `scope`, `curated` or `definition` that is not a single value, entries that share a line
    /// (such a file cannot be edited line by line, and is better imported anew).
    pub fn read(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let root = yaml::parse(file, text, &mut problems);
        let mut reader = Reader { file, text, problems };
        let catalog = root.and_then(|root| reader.catalog(root));
        match catalog {
            Some(catalog) if reader.problems.is_empty() => Ok(catalog),
            _ => Err(reader.problems),
        }
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn catalog(&mut self, root: Node) -> Option<ExistingCatalog> {
        let Value::Map(members) = root.value else {
            self.problem(&root, "", "must be a mapping with `version` and `actions`");
            return None;
        };
        if let Some(version) = members.iter().find(|member| member.key == "version") {
            if scalar(&version.node) != Some(CATALOG_VERSION) {
                self.problem(&version.node, "version", &format!("must be {CATALOG_VERSION}"));
            }
        } else {
            self.problems.push(Problem::of_file(self.file, format!("has no `version: {CATALOG_VERSION}`")));
        }
        let after = members.iter().skip_while(|member| member.key != "actions").nth(1).map(|member| member.at.line);
        let Some(actions) = members.into_iter().find(|member| member.key == "actions") else {
            self.problems.push(Problem::of_file(self.file, "has no `actions`"));
            return None;
        };
        let Value::Map(entries) = actions.node.value else {
            self.problem(&actions.node, "actions", "must be a mapping of names to entries");
            return None;
        };
        self.entries(entries, after)
    }

    /// Cuts the text into what stands before the entries, each of them, and what follows. `after` is the line of the key
    /// behind `actions`.
    fn entries(&mut self, entries: Vec<Member>, after: Option<usize>) -> Option<ExistingCatalog> {
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let Some(column) = entries.first().map(|entry| entry.at.column) else {
            self.problems.push(Problem::of_file(self.file, "lists no action; write a new catalog with --out"));
            return None;
        };
        let mut ends: Vec<usize> = entries.iter().skip(1).map(|entry| entry.at.line).collect();
        ends.push(after.unwrap_or(lines.len() + 1));
        let first = entries.first().map_or(1, |entry| above(&lines, entry.at.line, column));
        let last = ends.last().map_or(1, |end| above(&lines, *end, 1));
        let mut read = BTreeMap::new();
        let count = entries.len();
        for (index, (entry, end)) in entries.into_iter().zip(ends).enumerate() {
            let line = entry.at.line;
            let indent = lines.get(line.saturating_sub(1)).map_or("", |text| leading_spaces(text));
            if end <= line || indent.len() + 1 != entry.at.column || entry.at.column != column {
                let what = "must start a line of its own, indented like the others, for an import to go into this file";
                self.problem(&entry.node, &format!("actions.{:?}", entry.key), what);
                return None;
            }
            let end = above(&lines, end, if index + 1 == count { 1 } else { column });
            let comments = cut(&lines, above(&lines, line, column), line);
            let text = cut(&lines, line, end);
            if let Some(entry_read) = self.entry(&entry, comments, text) {
                read.insert(entry.key, entry_read);
            }
        }
        Some(ExistingCatalog {
            head: cut(&lines, 1, first),
            entries: read,
            tail: cut(&lines, last, lines.len() + 1),
            indent: " ".repeat(column - 1),
        })
    }

    fn entry(&mut self, entry: &Member, comments: String, lines: String) -> Option<ExistingEntry> {
        let key = format!("actions.{:?}", entry.key);
        let Value::Map(members) = &entry.node.value else {
            self.problem(&entry.node, &key, "must be a mapping with `scope`, `curated`, `tags` and `definition`");
            return None;
        };
        let mut read = ExistingEntry {
            comments,
            lines,
            scope: String::new(),
            curated: false,
            tags: None,
            definition: None,
            title: None,
            others: Vec::new(),
        };
        for member in members {
            let below = format!("{key}.{}", member.key);
            match member.key.as_str() {
                "scope" => read.scope = self.word(&member.node, &below).unwrap_or_default(),
                "definition" => read.definition = self.word(&member.node, &below),
                "curated" => match scalar(&member.node) {
                    Some("true") => read.curated = true,
                    Some("false") => read.curated = false,
                    _ => self.problem(&member.node, &below, "must be true or false"),
                },
                "tags" => read.tags = Some(member.node.clone()),
                "title" => read.title = Some(member.node.clone()),
                _ => read.others.push(member.clone()),
            }
        }
        Some(read)
    }

    fn word(&mut self, node: &Node, key: &str) -> Option<String> {
        let word = scalar(node).map(str::to_owned);
        if word.is_none() {
            self.problem(node, key, "must be one word");
        }
        word
    }

    fn problem(&mut self, node: &Node, key: &str, message: &str) {
        self.problems.push(Problem {
            file: self.file.to_owned(),
            line: node.at.line,
            column: node.at.column,
            key: key.to_owned(),
            message: message.to_owned(),
        });
    }
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::List(_) | Value::Map(_) | Value::Refused => None,
    }
}

/// The first of the comment lines right above line `line` that start in `column`; `line` itself if there are none. Lines
/// further in may be part of a text above, where `#` is no comment.
fn above(lines: &[&str], line: usize, column: usize) -> usize {
    let is_comment = |text: &&&str| text.trim_start().starts_with('#') && leading_spaces(text).len() + 1 == column;
    let before = lines.get(..line.saturating_sub(1)).unwrap_or_default();
    line - before.iter().rev().take_while(is_comment).count()
}

/// The lines from `from` up to and without `to`, from 1.
fn cut(lines: &[&str], from: usize, to: usize) -> String {
    lines.get(from.saturating_sub(1)..to.saturating_sub(1)).unwrap_or_default().concat()
}

fn leading_spaces(text: &str) -> &str {
    let rest = text.trim_start_matches(' ');
    text.get(..text.len() - rest.len()).unwrap_or_default()
}
