//! Builds a policy from the text of its files: whole, or not at all, with every problem named.

use super::Policy;
use super::catalog::{Catalog, SCOPES, read_version};
use super::connector::{ConnectorContext, read_connector};
use super::model::{ConfirmMode, Connector, Defaults, Times};
use super::problem::{Path, Problem};
use super::reader::Reader;
use super::revision;
use super::rules::FirstUse;
use super::yaml::{self, Node, Value};
use crate::domain::limits;
use crate::domain::requirement::Groups;
use crate::domain::text::Identifier;
use std::collections::{BTreeMap, BTreeSet};

/// The `version` of a policy file.
pub const POLICY_VERSION: &str = "countersign.policy/v1";
/// More files than anybody keeps connectors in; bounds what a wrong folder can cost.
pub const FILES: usize = 256;
/// Problems that are named one by one: more than a person mends at a time, and little enough for a log.
const PROBLEMS: usize = 1_000;

/// The text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name, for problems and as what a catalog's path is relative to.
    pub path: String,
    /// All of its text.
    pub text: String,
}

/// A catalog that a policy names: a relative path of plain names, with no way up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CatalogPath {
    /// The policy file that names it.
    pub named_in: String,
    /// The path as written there, relative to the folder of that file.
    pub file: String,
}

/// Reads the text of a catalog, or says in a few words why it cannot be read.
pub type ReadCatalog<'a> = dyn FnMut(&CatalogPath) -> Result<String, String> + 'a;

impl Policy {
    /// Builds the policy of these files, asking `read_catalog` once for each catalog that they name.
    ///
    /// # Errors
    ///
    /// Every problem of every file, in the order of files, lines and columns.
    pub fn load(files: &[SourceFile], read_catalog: &mut ReadCatalog<'_>) -> Result<Self, Vec<Problem>> {
        if files.is_empty() || files.len() > FILES {
            let message = format!("a policy is 1 to {FILES} files; there are {}", files.len());
            return Err(vec![Problem::of_file("", message)]);
        }
        let mut loader = Loader::default();
        let sections: Vec<Sections<'_>> = files.iter().filter_map(|file| loader.open(file)).collect();
        let sections: Vec<ReadSections<'_>> = sections.iter().map(|sections| loader.read_shared(sections)).collect();
        loader.check_members();
        let external = std::mem::take(&mut loader.external);
        let groups = Groups::new(std::mem::take(&mut loader.groups)).external(external);
        for sections in &sections {
            loader.read_connectors(sections, &groups, read_catalog);
        }
        loader.finish(files, groups)
    }
}

#[derive(Default)]
struct Loader {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    defaults: Defaults,
    defaults_at: Option<FirstUse>,
    groups: BTreeMap<Identifier, BTreeSet<Identifier>>,
    external: BTreeSet<Identifier>,
    groups_at: BTreeMap<Identifier, FirstUse>,
    connectors: BTreeMap<String, Connector>,
    connectors_at: BTreeMap<String, FirstUse>,
    rule_names: BTreeMap<String, FirstUse>,
    catalogs: BTreeMap<CatalogPath, Option<Catalog>>,
}

/// A file that could be parsed.
struct Sections<'a> {
    file: &'a str,
    root: Node,
}

/// Its sections that are read once all groups are known.
struct ReadSections<'a> {
    file: &'a str,
    connectors: Option<&'a Node>,
}

impl Loader {
    fn open<'a>(&mut self, file: &'a SourceFile) -> Option<Sections<'a>> {
        let root = yaml::parse(&file.path, &file.text, &mut self.problems)?;
        Some(Sections { file: &file.path, root })
    }

    /// Reads what every connector depends on: `version`, `defaults` and `groups`.
    fn read_shared<'a>(&mut self, sections: &'a Sections<'a>) -> ReadSections<'a> {
        let mut reader = Reader::new(sections.file);
        let root = Path::Root;
        let fields = reader.fields(&sections.root, &root, ["version", "defaults", "groups", "connectors"]);
        let mut read = ReadSections { file: sections.file, connectors: None };
        if let Some([version, defaults, groups, connectors]) = fields {
            read_version(&mut reader, sections.root.at, version, POLICY_VERSION);
            if let Some(node) = defaults {
                self.read_defaults(&mut reader, sections.file, node, &root.key("defaults"));
            }
            if let Some(node) = groups {
                self.read_groups(&mut reader, sections.file, node, &root.key("groups"));
            }
            read.connectors = connectors;
        }
        self.problems.append(&mut reader.problems);
        read
    }

    fn read_defaults(&mut self, reader: &mut Reader, file: &str, node: &Node, path: &Path<'_>) {
        if let Some(first) = &self.defaults_at {
            reader.problem(node.at, path, defined_twice("`defaults`", first));
            return;
        }
        self.defaults_at = Some(FirstUse { file: file.to_owned(), line: node.at.line });
        const KEYS: [&str; 6] =
            ["ceiling", "confirm", "decide_within", "use_within", "report_within", "always_approve"];
        let Some([ceiling, confirm, decide_within, use_within, report_within, always_approve]) =
            reader.fields(node, path, KEYS)
        else {
            return;
        };
        if let Some(scope) = ceiling.and_then(|node| reader.word(node, &path.key("ceiling"), &SCOPES)) {
            self.defaults.ceiling = scope;
        }
        if let Some(mode) = confirm.and_then(|node| reader.word(node, &path.key("confirm"), &ConfirmMode::WORDS)) {
            self.defaults.confirm = mode;
        }
        let times = TimeNodes { decide_within, use_within, report_within };
        self.defaults.times = times.read(reader, path, self.defaults.times);
        if let Some(node) = always_approve {
            let path = path.key("always_approve");
            let offered = reader.word(node, &path, &[("never", true), ("session", false)]);
            if offered == Some(false) {
                reader.problem(node.at, &path, "`session` is not offered by this version; write `never`");
            }
        }
    }

    fn read_groups(&mut self, reader: &mut Reader, file: &str, node: &Node, path: &Path<'_>) {
        for member in reader.map(node, path).unwrap_or_default() {
            let path = path.key(&member.key);
            let name = reader.literal(&member.key, member.at, &path);
            let (people, external) = read_group(reader, &member.node, &path);
            let Some(name) = name else { continue };
            if let Some(first) = self.groups_at.get(&name) {
                reader.problem(member.at, &path, defined_twice("this group", first));
                continue;
            }
            self.groups_at.insert(name.clone(), FirstUse { file: file.to_owned(), line: member.at.line });
            if external {
                self.external.insert(name.clone());
            }
            self.groups.insert(name, people.into_iter().collect());
        }
    }

    fn check_members(&mut self) {
        let members: usize = self.groups.values().map(BTreeSet::len).sum();
        if members > limits::GROUP_MEMBERS {
            let message = format!("all groups together have {members} members; at most {}", limits::GROUP_MEMBERS);
            self.problems.push(Problem::of_file("", message));
        }
    }

    fn read_connectors(&mut self, sections: &ReadSections<'_>, groups: &Groups, read_catalog: &mut ReadCatalog<'_>) {
        let Some(node) = sections.connectors else { return };
        let mut reader = Reader::new(sections.file);
        let root = Path::Root;
        let path = root.key("connectors");
        for member in reader.map(node, &path).unwrap_or_default() {
            let path = path.key(&member.key);
            let name = reader.literal(&member.key, member.at, &path);
            if let Some(first) = self.connectors_at.get(&member.key) {
                reader.problem(member.at, &path, defined_twice("this connector", first));
                continue;
            }
            let first = FirstUse { file: sections.file.to_owned(), line: member.at.line };
            self.connectors_at.insert(member.key.clone(), first);
            let mut context = ConnectorContext {
                file: sections.file,
                defaults: self.defaults,
                groups,
                rule_names: &mut self.rule_names,
                catalogs: &mut self.catalogs,
                catalog_problems: &mut self.problems,
                warnings: &mut self.warnings,
                read_catalog,
            };
            let connector = read_connector(&mut reader, &mut context, &member.node, &path);
            if let (Some(name), Some(connector)) = (name, connector) {
                self.connectors.insert(name.as_str().to_owned(), connector);
            }
        }
        self.problems.append(&mut reader.problems);
    }

    fn finish(mut self, files: &[SourceFile], groups: Groups) -> Result<Policy, Vec<Problem>> {
        if !self.problems.is_empty() {
            let place = |file: &str| files.iter().position(|other| other.path == file).unwrap_or(files.len());
            self.problems.sort_by_cached_key(|problem| (place(&problem.file), problem.clone()));
            self.problems.dedup();
            let more = self.problems.len().saturating_sub(PROBLEMS);
            if more > 0 {
                self.problems.truncate(PROBLEMS);
                self.problems.push(Problem::of_file("", format!("there are {more} more problems")));
            }
            return Err(self.problems);
        }
        if self.connectors.is_empty() {
            self.warnings.push(Problem::of_file("", "the policy has no connectors, so every call is denied"));
        }
        let revision = revision::of(&self.defaults, &groups, &self.connectors);
        let files = files.iter().map(|file| file.path.clone()).collect();
        let catalogs = self.catalogs.into_keys().collect();
        Ok(Policy {
            revision,
            defaults: self.defaults,
            groups,
            connectors: self.connectors,
            files,
            catalogs,
            warnings: self.warnings,
        })
    }
}

fn defined_twice(what: &str, first: &FirstUse) -> String {
    format!("{what} is defined already, at {}:{}", first.file, first.line)
}

/// The values of the three times, wherever they may stand.
pub(super) struct TimeNodes<'n> {
    pub(super) decide_within: Option<&'n Node>,
    pub(super) use_within: Option<&'n Node>,
    pub(super) report_within: Option<&'n Node>,
}

impl TimeNodes<'_> {
    /// The times given here, and for the others those of `outer`.
    pub(super) fn read(&self, reader: &mut Reader, path: &Path<'_>, outer: Times) -> Times {
        let mut read = |node: Option<&Node>, key, default| {
            node.and_then(|node| reader.span(node, &path.key(key))).unwrap_or(default)
        };
        Times {
            decide_within: read(self.decide_within, "decide_within", outer.decide_within),
            use_within: read(self.use_within, "use_within", outer.use_within),
            report_within: read(self.report_within, "report_within", outer.report_within),
        }
    }
}

/// The members of a group, and whether it has others beside: a list, or `members` with `external`.
fn read_group(reader: &mut Reader, node: &Node, path: &Path<'_>) -> (Vec<Identifier>, bool) {
    let members = |reader: &mut Reader, node: &Node, path: &Path<'_>| {
        let people = reader.set(node, path, |reader, node, path| {
            let text = reader.text(node, path)?;
            reader.literal(text, node.at, path)
        });
        people.unwrap_or_default()
    };
    if !matches!(node.value, Value::Map(_)) {
        return (members(reader, node, path), false);
    }
    let Some([listed, external]) = reader.fields(node, path, ["members", "external"]) else {
        return (Vec::new(), false);
    };
    let people = listed.map(|node| members(reader, node, &path.key("members"))).unwrap_or_default();
    let external = external.and_then(|node| reader.flag(node, &path.key("external"))).unwrap_or(false);
    (people, external)
}
