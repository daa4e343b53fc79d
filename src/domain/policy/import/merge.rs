//! What an import makes of a catalog: kept, changed, new and removed entries, and the text of the file.

use super::existing::{ExistingCatalog, ExistingEntry};
use super::render;
use super::tools::Tool;
use crate::domain::policy::problem::Problem;
use crate::domain::policy::{Catalog, CatalogEntry};
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
    pub entries: Vec<Outcome>,
    /// Entries whose digest was equal, kept as they were reviewed.
    pub kept: Vec<String>,
    /// Tools that the catalog did not list.
    pub added: Vec<String>,
    /// Entries whose digest differed or was missing, as they were before.
    pub changed: Vec<Outcome>,
    /// Entries whose tools the list does not have any more, as they were: they are no longer in the file.
    pub removed: Vec<Outcome>,
}

/// An entry in short, before the import or after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The action's name.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
    /// Whether a person has reviewed it.
    pub curated: bool,
}

impl Report {
    /// The number of entries of that scope.
    pub fn count(&self, scope: Scope) -> usize {
        self.entries.iter().filter(|entry| entry.scope == scope).count()
    }

    /// The entries that nobody has reviewed.
    pub fn uncurated(&self) -> impl Iterator<Item = &Outcome> {
        self.entries.iter().filter(|entry| !entry.curated)
    }
}

/// Makes a catalog of `tools`, going into `existing` where there is one.
///
/// An entry whose digest is equal stays byte for byte, comments included. One whose digest differs, or that has none, takes
/// scope, tags, title and digest from the list and is `curated: false`; its note stays, as do the comments above it. One
/// whose tool is gone is left out. With `curated`, a person has reviewed every entry of the outcome. Names are sorted.
///
/// # Errors
///
/// The text that would come out does not say what was meant, which is a fault of this program: nothing may be written.
pub fn import(existing: Option<&ExistingCatalog>, tools: &[Tool], curated: bool) -> Result<Import, Vec<Problem>> {
    let listed: BTreeMap<&str, &Tool> = tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let indent = existing.map_or("  ", |catalog| &catalog.indent);
    let mut report = Report::default();
    let mut meant = BTreeMap::new();
    let mut text = existing.map_or_else(render::head, |catalog| catalog.head.clone());
    for (name, tool) in &listed {
        let before = existing.and_then(|catalog| catalog.entries.get(*name));
        let entry = match before {
            Some(before) if before.listed.entry.definition == Some(tool.definition) => {
                report.kept.push((*name).to_owned());
                keep(&mut text, indent, name, before, curated)
            }
            Some(before) => {
                report.changed.push(outcome(name, &before.listed.entry));
                render::imported(&mut text, indent, tool, curated, Some(before))
            }
            None => {
                report.added.push((*name).to_owned());
                render::imported(&mut text, indent, tool, curated, None)
            }
        };
        report.entries.push(outcome(name, &entry));
        meant.insert((*name).to_owned(), entry);
    }
    if let Some(catalog) = existing {
        let gone = catalog.entries.iter().filter(|(name, _)| !listed.contains_key(name.as_str()));
        report.removed.extend(gone.map(|(name, entry)| outcome(name, &entry.listed.entry)));
        render::end_line(&mut text);
        text.push_str(&catalog.tail);
    }
    verify(&text, &meant)?;
    Ok(Import { text, report })
}

/// An entry as it was, or, where `curated` says so of one that was not, the same marked as reviewed.
fn keep(text: &mut String, indent: &str, name: &str, before: &ExistingEntry, curated: bool) -> CatalogEntry {
    if curated && !before.listed.entry.curated {
        return render::reviewed(text, indent, name, before);
    }
    render::end_line(text);
    text.push_str(&before.comments);
    text.push_str(&before.lines);
    before.listed.entry.clone()
}

fn outcome(name: &str, entry: &CatalogEntry) -> Outcome {
    Outcome { name: name.to_owned(), scope: entry.scope, curated: entry.curated }
}

/// Reads the text back: a catalog decides what runs, so no text leaves here that says something else than was meant.
fn verify(text: &str, meant: &BTreeMap<String, CatalogEntry>) -> Result<(), Vec<Problem>> {
    let read = Catalog::parse("the new catalog", text)?;
    let said = read.actions.into_iter().map(|(name, action)| (name, action.entry));
    if said.eq(meant.iter().map(|(name, entry)| (name.clone(), entry.clone()))) {
        return Ok(());
    }
    Err(vec![Problem::of_file("", "the catalog that was made does not read as it was meant, so nothing is written")])
}
