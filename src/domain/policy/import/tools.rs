//! Reads a `tools/list` result.

use crate::domain::canonical::{Canonical, Limits, MAX_BYTES, Top};
use crate::domain::fingerprint::{DefinitionDigest, Digest};
use crate::domain::json::Json;
use crate::domain::policy::problem::shown;
use crate::domain::scope::Scope;
use crate::domain::text::Identifier;
use std::collections::BTreeMap;
use std::fmt;

/// A title is a line on a screen; a longer one is left out of the catalog, which does not depend on it.
const MAX_TITLE_BYTES: usize = 256;

/// The members that a definition digest covers, in canonical order.
const DEFINITION_MEMBERS: [&str; 5] = ["annotations", "description", "inputSchema", "name", "outputSchema"];

/// One tool of the list, as the catalog sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name, byte for byte the server's.
    pub name: Identifier,
    /// What the server calls it for people, where that is short enough to show.
    pub title: Option<String>,
    /// How strong its annotations say it is.
    pub scope: Scope,
    /// What its annotations say, as MCP's names.
    pub tags: Vec<&'static str>,
    /// The digest of its definition.
    pub definition: DefinitionDigest,
}

/// Why a list cannot be imported, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImportProblem {
    /// JSON Pointer to the place; empty for the whole.
    pub pointer: String,
    /// What is wrong there, with whatever came from the list escaped.
    pub what: String,
}

impl fmt::Display for ImportProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            formatter.write_str(&self.what)
        } else {
            write!(formatter, "{}: {}", self.pointer, self.what)
        }
    }
}

/// Reads a `tools/list` result, or a JSON-RPC response that carries one, into its tools, in the list's order.
///
/// # Errors
///
/// Every problem at once: text that is not one JSON object within the limits, a response that is an error, a list that is
/// partial (`nextCursor`) or empty, a tool without a usable name, a name given twice, a hint that is neither `true` nor
/// `false`, a member of a definition that has the wrong type.
pub fn read_tools(text: &str) -> Result<Vec<Tool>, Vec<ImportProblem>> {
    let canonical = Canonical::of(text, Limits { max_bytes: MAX_BYTES, top: Top::Object })
        .map_err(|refusal| vec![ImportProblem { pointer: String::new(), what: refusal.to_string() }])?;
    let whole = Json::read(&canonical);
    let mut problems = Vec::new();
    let tools = match list(&whole, &mut problems) {
        Some((pointer, items)) => tools(&pointer, items, &mut problems),
        None => Vec::new(),
    };
    if problems.is_empty() { Ok(tools) } else { Err(problems) }
}

/// Finds the tools, and refuses what is not the whole of one list.
fn list<'a>(whole: &'a Json, problems: &mut Vec<ImportProblem>) -> Option<(String, &'a [Json])> {
    let mut refuse = |pointer: &str, what: &str| {
        problems.push(ImportProblem { pointer: pointer.to_owned(), what: what.to_owned() });
    };
    if given(whole, "error").is_some() {
        refuse("/error", "the server answered with an error, not with a list of tools");
        return None;
    }
    let (base, result) = match (given(whole, "result"), given(whole, "tools")) {
        (Some(_), Some(_)) => {
            refuse("", "both `result` and `tools` are here: which list is meant?");
            return None;
        }
        (Some(result), None) => ("/result", result),
        (None, _) => ("", whole),
    };
    if given(result, "nextCursor").is_some() {
        refuse(
            &format!("{base}/nextCursor"),
            "this is a part of the list only: fetch every page, and import all tools together",
        );
    }
    match given(result, "tools") {
        Some(Json::Array(items)) if items.is_empty() => {
            refuse(&format!("{base}/tools"), "the list holds no tool");
            None
        }
        Some(Json::Array(items)) => Some((format!("{base}/tools"), items)),
        Some(_) => {
            refuse(&format!("{base}/tools"), "must be an array of tools");
            None
        }
        None => {
            refuse(base, "no `tools` are here: give the result of `tools/list`, or the JSON-RPC response with it");
            None
        }
    }
}

fn tools(pointer: &str, items: &[Json], problems: &mut Vec<ImportProblem>) -> Vec<Tool> {
    let mut first: BTreeMap<Identifier, usize> = BTreeMap::new();
    let mut found = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let mut tool = Reader { pointer: format!("{pointer}/{index}"), problems };
        let Some(tool) = tool.read(item) else { continue };
        if let Some(earlier) = first.get(&tool.name) {
            problems.push(ImportProblem {
                pointer: format!("{pointer}/{index}/name"),
                what: format!("{} is already the name of {pointer}/{earlier}", shown(tool.name.as_str())),
            });
        } else {
            first.insert(tool.name.clone(), index);
            found.push(tool);
        }
    }
    found
}

/// One tool's reader: knows where it stands and collects what is wrong there.
struct Reader<'a> {
    pointer: String,
    problems: &'a mut Vec<ImportProblem>,
}

impl Reader<'_> {
    fn read(&mut self, item: &Json) -> Option<Tool> {
        if !matches!(item, Json::Object(_)) {
            self.refuse("", "a tool must be an object");
            return None;
        }
        let name = self.name(item);
        self.expect(item, "description", "text", |value| matches!(value, Json::String(_)));
        self.expect(item, "inputSchema", "an object", |value| matches!(value, Json::Object(_)));
        self.expect(item, "outputSchema", "an object", |value| matches!(value, Json::Object(_)));
        self.expect(item, "title", "text", |value| matches!(value, Json::String(_)));
        self.expect(item, "annotations", "an object", |value| matches!(value, Json::Object(_)));
        let annotations = given(item, "annotations").unwrap_or(&Json::Null);
        self.expect_below(annotations, "/annotations", "title", "text", |value| matches!(value, Json::String(_)));
        let hints = Hints {
            read_only: self.hint(annotations, "readOnlyHint"),
            destructive: self.hint(annotations, "destructiveHint"),
            idempotent: self.hint(annotations, "idempotentHint"),
            open_world: self.hint(annotations, "openWorldHint"),
        };
        Some(Tool {
            name: name?,
            title: title(item, annotations),
            scope: hints.scope(),
            tags: hints.tags(),
            definition: definition_digest(item),
        })
    }

    fn name(&mut self, item: &Json) -> Option<Identifier> {
        let what = match given(item, "name") {
            // In a policy, `*` is a wildcard: no action can have it in its name.
            Some(Json::String(name)) if name.contains('*') => {
                format!("{} has a `*`, which policies read as a wildcard", shown(name))
            }
            Some(Json::String(name)) => match Identifier::parse(name) {
                Ok(name) => return Some(name),
                Err(problem) => format!("{} cannot name an action: {problem}", shown(name)),
            },
            Some(_) => "must be text".to_owned(),
            None => "is missing".to_owned(),
        };
        self.refuse("/name", &what);
        None
    }

    fn hint(&mut self, annotations: &Json, name: &str) -> Option<bool> {
        match given(annotations, name) {
            Some(Json::Bool(hint)) => Some(*hint),
            Some(_) => {
                self.refuse(&format!("/annotations/{name}"), "must be true or false");
                None
            }
            None => None,
        }
    }

    fn expect(&mut self, item: &Json, member: &str, kind: &str, holds: fn(&Json) -> bool) {
        self.expect_below(item, "", member, kind, holds);
    }

    fn expect_below(&mut self, item: &Json, below: &str, member: &str, kind: &str, holds: fn(&Json) -> bool) {
        if given(item, member).is_some_and(|value| !holds(value)) {
            self.refuse(&format!("{below}/{member}"), &format!("must be {kind}"));
        }
    }

    fn refuse(&mut self, below: &str, what: &str) {
        self.problems.push(ImportProblem { pointer: format!("{}{below}", self.pointer), what: what.to_owned() });
    }
}

/// What the annotations say; `None` where they say nothing.
struct Hints {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
}

impl Hints {
    /// Where two hints contradict each other, the stronger scope holds.
    fn scope(&self) -> Scope {
        match (self.destructive, self.read_only) {
            (Some(true), _) => Scope::Admin,
            (_, Some(true)) => Scope::Read,
            (Some(false), _) => Scope::Write,
            (None, _) => Scope::Admin,
        }
    }

    fn tags(&self) -> Vec<&'static str> {
        let mut tags = match self.scope() {
            Scope::Read => vec!["readOnlyHint"],
            Scope::Write => vec!["createHint", "updateHint"],
            Scope::Admin => vec!["createHint", "updateHint", "destructiveHint"],
        };
        if self.idempotent == Some(true) {
            tags.push("idempotentHint");
        }
        if self.open_world == Some(true) {
            tags.push("openWorldHint");
        }
        tags
    }
}

/// The tool's own title, else its annotations' (where older servers put it).
fn title(item: &Json, annotations: &Json) -> Option<String> {
    [item, annotations].into_iter().find_map(|holder| match given(holder, "title") {
        Some(Json::String(title)) if !title.is_empty() && title.len() <= MAX_TITLE_BYTES => Some(title.clone()),
        _ => None,
    })
}

/// The SHA-256 of the canonical JSON of the tool's `name`, `description`, `inputSchema`,
/// `outputSchema` and `annotations`; those that are absent or `null` are left out.
fn definition_digest(tool: &Json) -> DefinitionDigest {
    let members = DEFINITION_MEMBERS
        .into_iter()
        .filter_map(|member| given(tool, member).map(|value| (member.to_owned(), value.clone())))
        .collect();
    DefinitionDigest::from_digest(Digest::of(Json::Object(members).to_canonical().as_bytes()))
}

/// The member's value, unless it is absent or `null`, which mean the same here.
fn given<'a>(object: &'a Json, member: &str) -> Option<&'a Json> {
    object.get(member).filter(|value| **value != Json::Null)
}
