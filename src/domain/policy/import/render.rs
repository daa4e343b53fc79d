//! Catalog entries as YAML that reads back as what was meant, whatever the names are.

use super::existing::ExistingEntry;
use super::tools::Tool;
use crate::domain::policy::{CATALOG_VERSION, CatalogEntry};
use crate::domain::text::is_hidden;
use std::fmt::Write as _;

/// What a new file starts with.
pub(super) fn head() -> String {
    format!("version: {CATALOG_VERSION}\nactions:\n")
}

/// Appends the entry of `tool`, and returns what it says. Of what stood there before, the note and the comments above stay:
/// a person wrote them.
pub(super) fn imported(
    out: &mut String,
    indent: &str,
    tool: &Tool,
    curated: bool,
    before: Option<&ExistingEntry>,
) -> CatalogEntry {
    let entry = CatalogEntry {
        scope: tool.scope,
        curated,
        tags: tool.tags.iter().map(|tag| (*tag).to_owned()).collect(),
        definition: Some(tool.definition),
    };
    let note = before.and_then(|before| before.listed.note.as_deref());
    let comments = before.map_or("", |before| &before.comments);
    push(out, indent, tool.name.as_str(), comments, &entry, tool.title.as_deref(), note);
    entry
}

/// Appends an entry that says what it said, and that it is reviewed; returns what it says now.
pub(super) fn reviewed(out: &mut String, indent: &str, name: &str, before: &ExistingEntry) -> CatalogEntry {
    let listed = &before.listed;
    let entry = CatalogEntry { curated: true, ..listed.entry.clone() };
    push(out, indent, name, &before.comments, &entry, listed.title.as_deref(), listed.note.as_deref());
    entry
}

/// Ends the last line, which an edited file may lack.
pub(super) fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn push(
    out: &mut String,
    indent: &str,
    name: &str,
    comments: &str,
    entry: &CatalogEntry,
    title: Option<&str>,
    note: Option<&str>,
) {
    let tags: Vec<String> = entry.tags.iter().map(|tag| quoted(tag)).collect();
    end_line(out);
    out.push_str(comments);
    _ = writeln!(out, "{indent}{}:", quoted(name));
    _ = writeln!(out, "{indent}  scope: {}", entry.scope);
    _ = writeln!(out, "{indent}  curated: {}", entry.curated);
    _ = writeln!(out, "{indent}  tags: [{}]", tags.join(", "));
    if let Some(definition) = &entry.definition {
        _ = writeln!(out, "{indent}  definition: {definition}");
    }
    for (key, text) in [("title", title), ("note", note)] {
        if let Some(text) = text {
            _ = writeln!(out, "{indent}  {key}: {}", quoted(text));
        }
    }
}

/// A text that reads back as itself and as text: bare where it is plainly words, else in double quotes with everything
/// escaped that YAML, an editor or an eye could take for something else.
pub(super) fn quoted(text: &str) -> String {
    let bare = |character: char| character.is_ascii_alphanumeric() || "_-/.()".contains(character);
    let starts = text.starts_with(|character: char| character.is_ascii_alphabetic());
    let spaced = !text.ends_with(' ') && text.chars().all(|character| bare(character) || character == ' ');
    if starts && spaced && !means_something_else(text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\'' => out.push('\''),
            // Hidden is what no catalog is loaded with; Rust's own escaping also covers marks that join what is before.
            visible if !is_hidden(visible) && visible.escape_debug().len() == 1 => out.push(visible),
            hidden => _ = write!(out, "\\U{:08X}", u32::from(hidden)),
        }
    }
    out.push('"');
    out
}

/// Words that a YAML reader of one version or another takes for a flag or for nothing.
fn means_something_else(text: &str) -> bool {
    const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan"];
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_holds_nothing_that_a_catalog_is_refused_for() {
        for character in (0..0x2_0000).chain(0xE_0000..0xE_0200).filter_map(char::from_u32) {
            let text = quoted(&format!("é{character}"));
            assert!(!text.contains(is_hidden), "{text:?}");
        }
    }
}
