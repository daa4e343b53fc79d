//! Catalog entries as YAML that reads back as what was meant, whatever the names are.

use super::CATALOG_VERSION;
use super::existing::ExistingEntry;
use super::merge::end_line;
use super::tools::Tool;
use crate::domain::policy::yaml::{Node, Value};
use std::fmt::Write as _;

/// What a new file starts with.
pub(super) fn head() -> String {
    format!("version: {CATALOG_VERSION}\nactions:\n")
}

/// Appends the entry of `tool`. Of what stood there before, comments and further members stay: a person wrote them.
pub(super) fn imported(out: &mut String, indent: &str, tool: &Tool, curated: bool, before: Option<&ExistingEntry>) {
    let tags: Vec<String> = tool.tags.iter().map(|tag| quoted(tag)).collect();
    let mut members = vec![
        ("scope", tool.scope.as_str().to_owned()),
        ("curated", curated.to_string()),
        ("tags", format!("[{}]", tags.join(", "))),
        ("definition", tool.definition.clone()),
    ];
    if let Some(title) = &tool.title {
        members.push(("title", quoted(title)));
    }
    entry(out, indent, tool.name.as_str(), &members, before);
}

/// Appends an entry that says what it said, and that it is reviewed.
pub(super) fn reviewed(out: &mut String, indent: &str, name: &str, before: &ExistingEntry) {
    let mut members = vec![("scope", before.scope.clone()), ("curated", "true".to_owned())];
    if let Some(tags) = &before.tags {
        members.push(("tags", flow(tags)));
    }
    if let Some(definition) = &before.definition {
        members.push(("definition", quoted(definition)));
    }
    if let Some(title) = &before.title {
        members.push(("title", flow(title)));
    }
    entry(out, indent, name, &members, Some(before));
}

fn entry(out: &mut String, indent: &str, name: &str, members: &[(&str, String)], before: Option<&ExistingEntry>) {
    end_line(out);
    out.push_str(before.map_or("", |before| &before.comments));
    _ = writeln!(out, "{indent}{}:", quoted(name));
    for (key, value) in members {
        _ = writeln!(out, "{indent}  {key}: {value}");
    }
    for other in before.map_or(&[][..], |before| &before.others) {
        _ = writeln!(out, "{indent}  {}: {}", quoted(&other.key), flow(&other.node));
    }
}

/// A value on one line.
fn flow(node: &Node) -> String {
    match &node.value {
        // What stood without quotes may be a number, a flag or nothing at all, and stays so where it is one word.
        Value::Scalar { text, plain: true } if is_word(text) => text.clone(),
        Value::Scalar { text, plain: true } if text.is_empty() => "null".to_owned(),
        Value::Scalar { text, .. } => quoted(text),
        Value::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Map(members) => {
            let members = members.iter().map(|member| format!("{}: {}", quoted(&member.key), flow(&member.node)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Refused => "null".to_owned(),
    }
}

/// Characters that mean nothing to YAML wherever they stand in a word.
fn is_word(text: &str) -> bool {
    let first = text.starts_with(|character: char| character.is_ascii_alphanumeric() || "~._/+".contains(character));
    first && text.chars().all(|character| character.is_ascii_alphanumeric() || "~._/+-".contains(character))
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
    if is_digest(text) {
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
            // What Rust's own escaping leaves alone is visible; the rest is control, format, unassigned and the like.
            visible if visible.escape_debug().len() == 1 => out.push(visible),
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

/// `td1:` and hex digits, whose colon is inside a word and thus none of YAML's.
fn is_digest(text: &str) -> bool {
    text.strip_prefix("td1:").is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
