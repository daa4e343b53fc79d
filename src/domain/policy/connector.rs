//! Reads one connector: its switches, its actions with its catalog, its rules.

use super::catalog::{Catalog, EntryNodes, SCOPES, read_entry};
use super::load::{CatalogPath, ReadCatalog, TimeNodes};
use super::model::{Accounts, Action, CatalogEntry, ConfirmMode, Connector, Defaults, Rule, Times};
use super::problem::{Path, Problem, shown};
use super::reader::Reader;
use super::rules::{Empty, FirstUse, RuleContext, read_patterns, read_rules};
use super::warnings;
use super::yaml::{Node, Place, Value};
use crate::domain::requirement::Groups;
use std::collections::BTreeMap;

/// What connectors are read with.
pub(super) struct ConnectorContext<'a, 'r> {
    pub(super) file: &'a str,
    pub(super) defaults: Defaults,
    pub(super) groups: &'a Groups,
    pub(super) rule_names: &'a mut BTreeMap<String, FirstUse>,
    /// Catalogs that were read already; none for one that could not be.
    pub(super) catalogs: &'a mut BTreeMap<CatalogPath, Option<Catalog>>,
    pub(super) catalog_problems: &'a mut Vec<Problem>,
    pub(super) warnings: &'a mut Vec<Problem>,
    pub(super) read_catalog: &'a mut ReadCatalog<'r>,
}

const KEYS: [&str; 12] = [
    "enabled",
    "agents",
    "accounts",
    "ceiling",
    "confirm",
    "unlisted",
    "decide_within",
    "use_within",
    "report_within",
    "actions",
    "rules",
    "catalog",
];

/// Reads a connector. None where it could not be understood, which has then been noted.
pub(super) fn read_connector(
    reader: &mut Reader,
    context: &mut ConnectorContext<'_, '_>,
    node: &Node,
    path: &Path<'_>,
) -> Option<Connector> {
    let [
        enabled,
        agents,
        accounts,
        ceiling,
        confirm,
        unlisted,
        decide_within,
        use_within,
        report_within,
        actions,
        rules,
        catalog,
    ] = reader.fields(node, path, KEYS)?;
    let enabled = enabled.map_or(Some(true), |node| reader.flag(node, &path.key("enabled")));
    let agents = match agents {
        None => Some(None),
        Some(node) => read_patterns(reader, node, &path.key("agents"), Empty::None).map(Some),
    };
    let accounts = accounts.map_or(Some(Accounts::Any), |node| read_accounts(reader, node, &path.key("accounts")));
    let ceiling = match ceiling {
        None => Some(context.defaults.ceiling),
        Some(node) => reader.word(node, &path.key("ceiling"), &SCOPES),
    };
    let confirm = match confirm {
        None => Some(context.defaults.confirm),
        Some(node) => reader.word(node, &path.key("confirm"), &ConfirmMode::WORDS),
    };
    let unlisted_admin = match unlisted {
        None => Some(false),
        Some(node) => reader.word(node, &path.key("unlisted"), &[("deny", false), ("admin", true)]),
    };
    let times = TimeNodes { decide_within, use_within, report_within }.read(reader, path, context.defaults.times);
    let own = actions.map(|node| read_actions(reader, node, &path.key("actions"), times)).unwrap_or_default();
    let catalog = catalog.and_then(|node| read_catalog(reader, context, node, &path.key("catalog")));
    if let Some(catalog) = catalog.as_ref().filter(|catalog| catalog.pin_definitions) {
        check_pins(reader, context, catalog, &own, &path.key("actions"));
    }
    let mut rule_context = RuleContext { file: context.file, groups: context.groups, names: context.rule_names };
    let rules = rules.map(|node| read_rules(reader, &mut rule_context, node, &path.key("rules"))).unwrap_or_default();
    let pin_definitions = catalog.as_ref().is_some_and(|catalog| catalog.pin_definitions);
    let actions = merge(own, catalog, times, &rules);
    let connector = Connector {
        enabled: enabled?,
        agents: agents?,
        accounts: accounts?,
        ceiling: ceiling?,
        confirm: confirm?,
        unlisted_admin: unlisted_admin?,
        times,
        pin_definitions,
        actions,
        rules,
    };
    context.warnings.extend(warnings::of(context.file, path, &connector));
    Some(connector)
}

fn read_accounts(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Accounts> {
    match &node.value {
        Value::List(_) => read_patterns(reader, node, path, Empty::None).map(Accounts::Only),
        Value::Scalar { text, .. } if text == "none" => Some(Accounts::Without),
        Value::Scalar { .. } | Value::Map(_) | Value::Refused => {
            reader.wrong(node, path, "a list of accounts, or `none` for a connector that has no accounts")
        }
    }
}

/// The policy's own entries by name.
type OwnActions = BTreeMap<String, OwnAction>;

struct OwnAction {
    entry: CatalogEntry,
    times: Times,
    at: Place,
}

fn read_actions(reader: &mut Reader, node: &Node, path: &Path<'_>, outer: Times) -> OwnActions {
    const KEYS: [&str; 7] = ["scope", "curated", "tags", "definition", "decide_within", "use_within", "report_within"];
    let mut actions = OwnActions::new();
    for member in reader.map(node, path).unwrap_or_default() {
        let path = path.key(&member.key);
        let name = reader.literal(&member.key, member.at, &path);
        let Some([scope, curated, tags, definition, decide_within, use_within, report_within]) =
            reader.fields(&member.node, &path, KEYS)
        else {
            continue;
        };
        let entry = read_entry(reader, member.at, &path, EntryNodes { scope, curated, tags, definition });
        let times = TimeNodes { decide_within, use_within, report_within }.read(reader, &path, outer);
        if let (Some(name), Some(entry)) = (name, entry) {
            actions.insert(name.as_str().to_owned(), OwnAction { entry, times, at: member.at });
        }
    }
    actions
}

/// A catalog as a connector uses it.
struct UsedCatalog {
    path: CatalogPath,
    catalog: Catalog,
    pin_definitions: bool,
    trust_annotations: bool,
}

fn read_catalog(
    reader: &mut Reader,
    context: &mut ConnectorContext<'_, '_>,
    node: &Node,
    path: &Path<'_>,
) -> Option<UsedCatalog> {
    let [file, pin_definitions, trust_annotations] =
        reader.fields(node, path, ["file", "pin_definitions", "trust_annotations"])?;
    let mut flag = |node: Option<&Node>, key| node.map_or(Some(false), |node| reader.flag(node, &path.key(key)));
    let pin_definitions = flag(pin_definitions, "pin_definitions");
    let trust_annotations = flag(trust_annotations, "trust_annotations");
    let Some(file_node) = file else {
        reader.problem(node.at, path, "lacks `file`: the catalog's path, relative to this file");
        return None;
    };
    let path = path.key("file");
    let file = reader.text(file_node, &path)?;
    if !is_plain_path(file) {
        let message = format!(
            "{} must be a relative path inside the policy's folder, such as `catalogs/github.yaml`",
            shown(file)
        );
        reader.problem(file_node.at, &path, message);
        return None;
    }
    let catalog_path = CatalogPath { named_in: context.file.to_owned(), file: file.to_owned() };
    if !context.catalogs.contains_key(&catalog_path) {
        let catalog = match (context.read_catalog)(&catalog_path) {
            Err(why) => {
                reader.problem(file_node.at, &path, format!("the catalog {} {why}", shown(file)));
                None
            }
            Ok(text) => Catalog::parse(&catalog_path.display_name(), &text)
                .map_err(|mut problems| context.catalog_problems.append(&mut problems))
                .ok(),
        };
        context.catalogs.insert(catalog_path.clone(), catalog);
    }
    let catalog = context.catalogs.get(&catalog_path)?.clone()?;
    let (pin_definitions, trust_annotations) = (pin_definitions?, trust_annotations?);
    Some(UsedCatalog { path: catalog_path, catalog, pin_definitions, trust_annotations })
}

/// Under `pin_definitions` every entry needs a digest to compare with, also one of the policy's own.
fn check_pins(
    reader: &mut Reader,
    context: &mut ConnectorContext<'_, '_>,
    used: &UsedCatalog,
    own: &OwnActions,
    path: &Path<'_>,
) {
    const MESSAGE: &str = "lacks `definition`, which `pin_definitions` compares calls with";
    let without = |entry: &CatalogEntry| entry.definition.is_none();
    for (name, listed) in &used.catalog.actions {
        if without(&listed.entry) && !own.contains_key(name) {
            context.catalog_problems.push(Problem {
                file: used.path.display_name(),
                line: listed.line,
                column: listed.column,
                key: Path::Root.key("actions").key(name).to_string(),
                message: MESSAGE.to_owned(),
            });
        }
    }
    for (name, action) in own.iter().filter(|(_, action)| without(&action.entry)) {
        reader.problem(action.at, &path.key(name), MESSAGE);
    }
}

/// A relative path of plain names: no way up, no root, no drive, nothing that a file system would read otherwise.
fn is_plain_path(path: &str) -> bool {
    let plain = |name: &str| {
        !name.is_empty()
            && name != "."
            && name != ".."
            && !name.contains(['\\', ':'])
            && !name.contains(char::is_control)
    };
    path.split('/').all(plain)
}

impl CatalogPath {
    /// The catalog's name in problems: its path beside the policy file's.
    pub fn display_name(&self) -> String {
        match self.named_in.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{}", self.file),
            None => self.file.clone(),
        }
    }
}

/// All actions of a connector: the policy's own entries replace the catalog's of the same name whole.
fn merge(own: OwnActions, catalog: Option<UsedCatalog>, times: Times, rules: &[Rule]) -> BTreeMap<String, Action> {
    let mut actions: BTreeMap<String, Action> = BTreeMap::new();
    if let Some(UsedCatalog { catalog, pin_definitions, trust_annotations, .. }) = catalog {
        for (name, listed) in catalog.actions {
            let entry = CatalogEntry { curated: listed.entry.curated || trust_annotations, ..listed.entry };
            actions.insert(name, Action { entry, times, pinned: pin_definitions, rules: Vec::new() });
        }
    }
    for (name, OwnAction { entry, times, .. }) in own {
        // A digest in the policy itself has no other meaning than to be compared with.
        let pinned = entry.definition.is_some();
        actions.insert(name, Action { entry, times, pinned, rules: Vec::new() });
    }
    for (name, action) in &mut actions {
        let applies = |(index, rule): (usize, &Rule)| rule.applies_to(name).then_some(index);
        action.rules = rules.iter().enumerate().filter_map(applies).collect();
    }
    actions
}
