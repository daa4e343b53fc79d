//! Catalogs: the actions of a connector, in a file of their own, `countersign.catalog/v1`. The same entries stand under a
//! connector's `actions` in a policy, where they may have times as well.

use super::model::CatalogEntry;
use super::problem::{Path, Problem, shown};
use super::reader::{Reader, in_ticks};
use super::yaml::{self, Node, Place};
use crate::domain::fingerprint::DefinitionDigest;
use crate::domain::scope::Scope;
use std::collections::BTreeMap;

/// The first line of a catalog.
pub const CATALOG_VERSION: &str = "countersign.catalog/v1";

/// Every scope by its word.
pub(super) const SCOPES: [(&str, Scope); 3] =
    [(Scope::Read.as_str(), Scope::Read), (Scope::Write.as_str(), Scope::Write), (Scope::Admin.as_str(), Scope::Admin)];

/// A catalog as its file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Every entry by the action's name.
    pub actions: BTreeMap<String, ListedAction>,
}

/// One entry of a catalog with its reviewer's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAction {
    /// What the policy uses.
    pub entry: CatalogEntry,
    /// What the tool is called, for the reviewer. The policy ignores it.
    pub title: Option<String>,
    /// What a reviewer wants to remember. The policy ignores it.
    pub note: Option<String>,
    /// The line in the file on which the entry starts, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl Catalog {
    /// Reads a catalog; `file` is only for problems. All of them are named at once.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::new(file);
        let catalog = yaml::parse(file, text, &mut reader.problems).map(|node| read_catalog(&mut reader, &node));
        match catalog {
            Some(catalog) if reader.problems.is_empty() => Ok(catalog),
            Some(_) | None => Err(reader.problems),
        }
    }
}

fn read_catalog(reader: &mut Reader, node: &Node) -> Catalog {
    let mut catalog = Catalog::default();
    let root = Path::Root;
    let Some([version, actions]) = reader.fields(node, &root, ["version", "actions"]) else { return catalog };
    read_version(reader, node.at, version, CATALOG_VERSION);
    let Some(actions) = actions else {
        reader.problem(node.at, &root, "lacks `actions`: the entries by the action's name");
        return catalog;
    };
    let path = root.key("actions");
    for member in reader.map(actions, &path).unwrap_or_default() {
        let path = path.key(&member.key);
        let name = reader.literal(&member.key, member.at, &path);
        let Some([scope, curated, tags, definition, title, note]) =
            reader.fields(&member.node, &path, ["scope", "curated", "tags", "definition", "title", "note"])
        else {
            continue;
        };
        let entry = read_entry(reader, member.at, &path, EntryNodes { scope, curated, tags, definition });
        let title = title.and_then(|node| reader.text(node, &path.key("title"))).map(str::to_owned);
        let note = note.and_then(|node| reader.text(node, &path.key("note"))).map(str::to_owned);
        if let (Some(name), Some(entry)) = (name, entry) {
            let Place { line, column } = member.at;
            catalog.actions.insert(name.as_str().to_owned(), ListedAction { entry, title, note, line, column });
        }
    }
    catalog
}

/// Checks a file's `version`.
pub(super) fn read_version(reader: &mut Reader, file: Place, version: Option<&Node>, wanted: &str) {
    let path = Path::Root.key("version");
    match version {
        None => reader.problem(file, &Path::Root, format!("lacks `version: {wanted}`")),
        Some(node) => match reader.text(node, &path) {
            Some(text) if text != wanted => {
                let hint = if text == CATALOG_VERSION { "; a catalog belongs into a subfolder" } else { "" };
                reader.problem(node.at, &path, format!("must be `{wanted}`, not {}{hint}", shown(text)));
            }
            Some(_) | None => {}
        },
    }
}

/// The values of an entry's keys.
#[derive(Clone, Copy)]
pub(super) struct EntryNodes<'n> {
    pub(super) scope: Option<&'n Node>,
    pub(super) curated: Option<&'n Node>,
    pub(super) tags: Option<&'n Node>,
    pub(super) definition: Option<&'n Node>,
}

/// Reads an entry. `scope` and `curated` must be said: neither has a default that would be safe and expected at once.
pub(super) fn read_entry(
    reader: &mut Reader,
    at: Place,
    path: &Path<'_>,
    nodes: EntryNodes<'_>,
) -> Option<CatalogEntry> {
    if nodes.scope.is_none() {
        let scopes = in_ticks(&SCOPES.map(|(name, _)| name));
        reader.problem(at, path, format!("lacks `scope`: one of {scopes}"));
    }
    if nodes.curated.is_none() {
        reader.problem(at, path, "lacks `curated`: `true` once a person has reviewed this entry, else `false`");
    }
    let scope = nodes.scope.and_then(|node| reader.word(node, &path.key("scope"), &SCOPES));
    let curated = nodes.curated.and_then(|node| reader.flag(node, &path.key("curated")));
    let tags = match nodes.tags {
        None => Some(Vec::new()),
        Some(node) => reader.set(node, &path.key("tags"), |reader, node, path| {
            reader.identifier(node, path).map(|tag| tag.as_str().to_owned())
        }),
    };
    let definition = match nodes.definition {
        None => Some(None),
        Some(node) => read_definition(reader, node, &path.key("definition")).map(Some),
    };
    Some(CatalogEntry { scope: scope?, curated: curated?, tags: tags?.into(), definition: definition? })
}

fn read_definition(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<DefinitionDigest> {
    let text = reader.text(node, path)?;
    let digest = DefinitionDigest::parse(text).ok();
    if digest.is_none() {
        reader.problem(node.at, path, format!("must be `td1:` and 64 lower-case hex digits, not {}", shown(text)));
    }
    digest
}
