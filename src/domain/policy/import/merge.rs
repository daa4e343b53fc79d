//! What an import makes of a catalog: kept, changed, new and removed entries, and the text of the file.

use super::existing::{ExistingCatalog, ExistingEntry};
use super::render;
use super::tools::Tool;
use crate::domain::policy::problem::Problem;
use crate::domain::policy::yaml::Value;
use crate::domain::scope::Scope;
use std::collections::BTreeMap;

/// What an import comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The whole text of the catalog file.
    pub text: String,
    /// What is in it, and how it came there.
    pub report: Report,
}

/// How a catalog and a tool list compare. Every list is sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Every entry of the catalog that comes out.
    pub entries: Vec<Entry>,
    /// Entries whose digest was equal, kept as they were reviewed.
    pub kept: Vec<String>,
    /// Tools that the catalog did not list.
    pub added: Vec<String>,
    /// Entries whose digest differed or was missing, and what they said before.
    pub changed: Vec<Was>,
    /// Entries whose tools the list does not have any more: they are no longer in the file. What they said.
    pub removed: Vec<Was>,
}

/// An entry of the catalog that comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The action's name.
    pub name: String,
    /// Its scope, in the policy's words.
    pub scope: String,
    /// Whether a person has reviewed it.
    pub curated: bool,
}

/// What an entry said before the import.
pub type Was = Entry;

impl Report {
    /// The number of entries of that scope.
    pub fn count(&self, scope: Scope) -> usize {
        self.entries.iter().filter(|entry| entry.scope == scope.as_str()).count()
    }

    /// The entries that nobody has reviewed.
    pub fn uncurated(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.curated)
    }
}

/// Makes a catalog of `tools`, going into `existing` where there is one.
///
/// An entry whose digest is equal stays byte for byte, comments included; one whose digest differs takes scope, tags, title
/// and digest from the list, is `curated: false`, and keeps what else a person wrote into it; one whose tool is gone is
/// left out. With `curated`, a person has reviewed every entry of the outcome. Names are sorted.
///
/// # Errors
///
/// The text that would come out does not say what was meant, which is a fault of this program: nothing may be written.
pub fn import(existing: Option<&ExistingCatalog>, tools: &[Tool], curated: bool) -> Result<Import, Vec<Problem>> {
    let listed: BTreeMap<&str, &Tool> = tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let indent = existing.map_or("  ", |catalog| &catalog.indent);
    let mut report = Report::default();
    let mut text = existing.map_or_else(render::head, |catalog| catalog.head.clone());
    for (name, tool) in &listed {
        let before = existing.and_then(|catalog| catalog.entries.get(*name));
        let equal = before.filter(|entry| entry.definition.as_ref() == Some(&tool.definition));
        match (equal, before) {
            (Some(entry), _) => {
                report.kept.push((*name).to_owned());
                if curated && !entry.curated {
                    render::reviewed(&mut text, indent, name, entry);
                } else {
                    end_line(&mut text);
                    text.push_str(&entry.comments);
                    text.push_str(&entry.lines);
                }
                report.entries.push(Entry { curated: curated || entry.curated, ..was(name, entry) });
                continue;
            }
            (None, Some(entry)) => report.changed.push(was(name, entry)),
            (None, None) => report.added.push((*name).to_owned()),
        }
        render::imported(&mut text, indent, tool, curated, before);
        report.entries.push(Entry { name: (*name).to_owned(), scope: tool.scope.as_str().to_owned(), curated });
    }
    if let Some(catalog) = existing {
        let gone = catalog.entries.iter().filter(|(name, _)| !listed.contains_key(name.as_str()));
        report.removed.extend(gone.map(|(name, entry)| was(name, entry)));
        end_line(&mut text);
        text.push_str(&catalog.tail);
    }
    verify(&text, &report, &listed)?;
    Ok(Import { text, report })
}

fn was(name: &str, entry: &ExistingEntry) -> Was {
    Was { name: name.to_owned(), scope: entry.scope.clone(), curated: entry.curated }
}

/// A last line of an edited file may lack its end.
pub(super) fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Reads the text back: a catalog decides what runs, so no text leaves here that says something else than was meant.
fn verify(text: &str, report: &Report, listed: &BTreeMap<&str, &Tool>) -> Result<(), Vec<Problem>> {
    let read = ExistingCatalog::read("the new catalog", text)?;
    let said: Vec<Entry> = read.entries.iter().map(|(name, entry)| was(name, entry)).collect();
    let pinned = read.entries.iter().all(|(name, entry)| {
        let tool = listed.get(name.as_str());
        let titled = match entry.title.as_ref().map(|title| &title.value) {
            Some(Value::Scalar { .. }) | None => true,
            Some(Value::List(_) | Value::Map(_) | Value::Refused) => false,
        };
        titled && tool.is_some_and(|tool| entry.definition.as_ref() == Some(&tool.definition))
    });
    if said == report.entries && pinned {
        Ok(())
    } else {
        Err(vec![Problem::of_file("", "the catalog that was made does not read as it was meant; nothing is written")])
    }
}
