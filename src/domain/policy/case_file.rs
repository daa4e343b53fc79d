//! Policy tests as data, `countersign.tests/v1`: calls, and what the policy must answer to each.
//!
//! ```yaml
//! version: countersign.tests/v1
//! policy: ..                        # the policy, relative to this file; --policy overrides it
//! call: { principal: dana, agent: coder, connector: github, account: acme }   # what every case's call starts from
//! cases:
//!   - name: a push to main asks the release group
//!     call:
//!       action: push_files          # principal, agent, connector and action are required, here or above
//!       arguments: { branch: main } # or arguments_json: '{"branch":"main"}'; omitted: {}
//!       definition: catalog         # the digest that the policy pins; or td1:…; omitted: none
//!       now: 2026-03-01T12:00:00Z   # omitted: 2026-01-01T00:00:00Z, so that an answer is the same tomorrow
//!     want:
//!       decision: CONFIRMATION_REQUIRED
//!       reason: CONFIRMATION_BY_RULE
//!       rules: [branches-of-people] # all that match, in the policy's order
//!       clauses: [{ any_of: [owner] }, { any_of: ["group:release"], quorum: 1 }]
//! ```
//!
//! `null` takes back what `call` at the top gives. Of `want`, `decision` is required; what else is left out is not compared.

use super::problem::{Path, Problem, shown};
use super::reader::Reader;
use super::yaml::{self, Node, Value, is_null};
use crate::domain::arguments::{Arguments, DEFAULT_MAX_ARGUMENTS_BYTES};
use crate::domain::canonical::push_string;
use crate::domain::decision::PolicyReason;
use crate::domain::fingerprint::DefinitionDigest;
use crate::domain::limits;
use crate::domain::requirement::{Approver, Clause};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The first line of a file of tests.
pub const TESTS_VERSION: &str = "countersign.tests/v1";

/// 2026-01-01T00:00:00Z, the time of a call that names none.
const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A file of tests.
#[derive(Debug)]
pub struct CaseFile {
    /// The policy that they are about, relative to the file.
    pub policy: Option<String>,
    /// The tests, in the file's order; never empty.
    pub cases: Vec<Case>,
}

/// One test.
#[derive(Debug)]
pub struct Case {
    /// What it shows; unique in its file.
    pub name: String,
    /// The line on which it starts, from 1.
    pub line: usize,
    /// What is asked.
    pub call: Call,
    /// What the answer must be.
    pub want: Want,
}

/// The call of a test.
#[derive(Debug)]
pub struct Call {
    /// On whose behalf.
    pub principal: Identifier,
    /// The program that acts.
    pub agent: Identifier,
    /// The session in which it acts.
    pub conversation: Option<Identifier>,
    /// The integration.
    pub connector: Identifier,
    /// The external identity that it acts as.
    pub account: Option<Identifier>,
    /// The operation.
    pub action: Identifier,
    /// Its arguments.
    pub arguments: Arguments,
    /// The tool's definition as the agent sees it.
    pub definition: Definition,
    /// When.
    pub now: Timestamp,
}

/// The definition digest of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// None is given.
    Absent,
    /// The one that the policy pins for the action; none where it pins none.
    Catalog,
    /// This one.
    Digest(DefinitionDigest),
}

/// What a policy must answer. What is `None` is not compared.
#[derive(Debug)]
pub struct Want {
    /// `ALLOW`, `DENY` or `CONFIRMATION_REQUIRED`.
    pub decision: &'static str,
    /// The stable reason.
    pub reason: Option<PolicyReason>,
    /// The names of all rules that match, in the policy's order.
    pub rules: Option<Vec<String>>,
    /// The names of those that match because their expression failed.
    pub rules_in_error: Option<Vec<String>>,
    /// Who must confirm, sorted.
    pub clauses: Option<Vec<Clause>>,
    /// Whether the requester may not.
    pub exclude_requester: Option<bool>,
    /// How long people have to decide.
    pub decide_within: Option<Duration>,
    /// How long the agent then has.
    pub use_within: Option<Duration>,
    /// A part of the message.
    pub message_contains: Option<String>,
}

const DECISIONS: [(&str, &str); 3] =
    [("ALLOW", "ALLOW"), ("DENY", "DENY"), ("CONFIRMATION_REQUIRED", "CONFIRMATION_REQUIRED")];

const CALL_KEYS: [&str; 10] = [
    "principal",
    "agent",
    "conversation",
    "connector",
    "account",
    "action",
    "arguments",
    "arguments_json",
    "definition",
    "now",
];

impl CaseFile {
    /// Reads a file of tests; `file` is its name for problems.
    ///
    /// # Errors
    ///
    /// Every problem at once, with line and key: what is no YAML, unknown keys, missing or malformed values, a name given
    /// twice, no case at all.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::new(file);
        let read = yaml::parse(file, text, &mut reader.problems).and_then(|node| read_file(&mut reader, &node));
        match read {
            Some(read) if reader.problems.is_empty() => Ok(read),
            Some(_) | None => {
                reader.problems.sort();
                Err(reader.problems)
            }
        }
    }
}

fn read_file(reader: &mut Reader, node: &Node) -> Option<CaseFile> {
    let root = Path::Root;
    let [version, policy, call, cases] = reader.fields(node, &root, ["version", "policy", "call", "cases"])?;
    super::catalog::read_version(reader, node.at, version, TESTS_VERSION);
    let policy = policy.and_then(|node| reader.text(node, &root.key("policy"))).map(str::to_owned);
    let base = match call {
        None => Some(CallNodes::default()),
        Some(node) => CallNodes::default().with(reader, node, &root.key("call")),
    }?;
    let path = root.key("cases");
    let items = match cases {
        None => None,
        Some(node) => Some(reader.list(node, &path)?),
    };
    let Some(items @ [_, ..]) = items else {
        reader.problem(node.at, &root, "lacks `cases`: a list of at least one");
        return None;
    };
    let mut names = BTreeMap::new();
    let mut read = Vec::new();
    for (index, item) in items.iter().enumerate() {
        read.extend(read_case(reader, item, &path.index(index), base, &mut names));
    }
    Some(CaseFile { policy, cases: read })
}

fn read_case(
    reader: &mut Reader,
    node: &Node,
    path: &Path<'_>,
    base: CallNodes<'_>,
    names: &mut BTreeMap<String, usize>,
) -> Option<Case> {
    let [name, call, want] = reader.fields(node, path, ["name", "call", "want"])?;
    for (key, value) in [("name", name), ("want", want)] {
        if value.is_none() {
            reader.problem(node.at, path, format!("lacks `{key}`"));
        }
    }
    let name = name.and_then(|node| reader.text(node, &path.key("name"))).map(str::to_owned);
    if let Some(name) = &name
        && let Some(first) = names.insert(name.clone(), node.at.line)
    {
        reader.problem(node.at, &path.key("name"), format!("is the name of the case on line {first} already"));
    }
    let call_path = path.key("call");
    let nodes = match call {
        None => Some(base),
        Some(node) => base.with(reader, node, &call_path),
    };
    let call = nodes.and_then(|nodes| nodes.read(reader, call.unwrap_or(node), &call_path));
    let want = want.and_then(|node| read_want(reader, node, &path.key("want")));
    Some(Case { name: name?, line: node.at.line, call: call?, want: want? })
}

/// The values of a call's keys, as far as they are given.
#[derive(Clone, Copy, Default)]
struct CallNodes<'n>([Option<&'n Node>; CALL_KEYS.len()]);

impl<'n> CallNodes<'n> {
    /// These, with those of `node` over them; a `null` there takes one back.
    fn with(mut self, reader: &mut Reader, node: &'n Node, path: &Path<'_>) -> Option<Self> {
        let over = reader.fields(node, path, CALL_KEYS)?;
        // Arguments are given in one of two ways, of which the later one holds.
        let [.., arguments, arguments_json, _, _] = &over;
        if arguments.is_some() && arguments_json.is_some() {
            reader.problem(node.at, path, "has both `arguments` and `arguments_json`");
        }
        if arguments.is_some() || arguments_json.is_some() {
            let [.., arguments, arguments_json, _, _] = &mut self.0;
            (*arguments, *arguments_json) = (None, None);
        }
        for (own, over) in self.0.iter_mut().zip(over) {
            match over.map(|node| &node.value) {
                None => {}
                Some(Value::Scalar { text, plain }) if is_null(text, *plain) => *own = None,
                Some(_) => *own = over,
            }
        }
        Some(self)
    }

    fn read(self, reader: &mut Reader, holder: &Node, path: &Path<'_>) -> Option<Call> {
        let [principal, agent, conversation, connector, account, action, arguments, arguments_json, definition, now] =
            self.0;
        let needed = [("principal", principal), ("agent", agent), ("connector", connector), ("action", action)];
        for (key, _) in needed.iter().filter(|(_, node)| node.is_none()) {
            reader.problem(holder.at, path, format!("lacks `{key}`, and so does `call` at the top"));
        }
        let [principal, agent, connector, action] =
            needed.map(|(key, node)| node.and_then(|node| reader.identifier(node, &path.key(key))));
        let mut optional = |node: Option<&Node>, key| match node {
            None => Some(None),
            Some(node) => reader.identifier(node, &path.key(key)).map(Some),
        };
        let (conversation, account) = (optional(conversation, "conversation"), optional(account, "account"));
        let arguments = match (arguments, arguments_json) {
            (Some(node), _) => read_arguments(reader, node, &path.key("arguments")),
            (None, Some(node)) => {
                let path = path.key("arguments_json");
                reader.text(node, &path).map(str::to_owned).and_then(|text| parse_arguments(reader, node, &path, &text))
            }
            (None, None) => Some(Arguments::default()),
        };
        let definition = match definition {
            None => Some(Definition::Absent),
            Some(node) => read_definition(reader, node, &path.key("definition")),
        };
        let now = match now {
            None => Some(NOW),
            Some(node) => read_time(reader, node, &path.key("now")),
        };
        Some(Call {
            principal: principal?,
            agent: agent?,
            conversation: conversation?,
            connector: connector?,
            account: account?,
            action: action?,
            arguments: arguments?,
            definition: definition?,
            now: now?,
        })
    }
}

fn read_time(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Timestamp> {
    let text = reader.text(node, path)?;
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(Timestamp::from_micros(time.as_microsecond())),
        Err(_) => {
            reader.problem(
                node.at,
                path,
                format!("must be a time such as `2026-03-01T12:00:00Z`, not {}", shown(text)),
            );
            None
        }
    }
}

/// A malformed digest is none that a call could carry: the doors refuse it before any policy is asked.
fn read_definition(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Definition> {
    let text = reader.text(node, path)?;
    if text == "catalog" {
        return Some(Definition::Catalog);
    }
    let digest = DefinitionDigest::parse(text).ok();
    if digest.is_none() {
        let message = format!("must be `catalog`, or `td1:` and 64 lower-case hex digits, not {}", shown(text));
        reader.problem(node.at, path, message);
    }
    digest.map(Definition::Digest)
}

fn read_arguments(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Arguments> {
    reader.map(node, path)?;
    let mut json = String::new();
    let before = reader.problems.len();
    write_json(reader, node, path, &mut json);
    (reader.problems.len() == before).then(|| parse_arguments(reader, node, path, &json)).flatten()
}

fn parse_arguments(reader: &mut Reader, node: &Node, path: &Path<'_>, json: &str) -> Option<Arguments> {
    Arguments::parse(json, DEFAULT_MAX_ARGUMENTS_BYTES)
        .map_err(|refusal| reader.problem(node.at, path, format!("are no arguments: {refusal}")))
        .ok()
}

/// Writes a YAML value as JSON. A number keeps its exact text; what YAML reads as a number, a flag or nothing, and JSON
/// does not, is refused, as it would be a guess. The tree's depth is bounded where it is read.
fn write_json(reader: &mut Reader, node: &Node, path: &Path<'_>, out: &mut String) {
    match &node.value {
        Value::Scalar { text, plain: false } => push_string(text, out),
        Value::Scalar { text, plain: true } => match text.as_str() {
            "" | "null" | "~" => out.push_str("null"),
            "true" | "false" => out.push_str(text),
            number if is_json_number(number) => out.push_str(number),
            unclear if looks_like_a_value(unclear) => {
                let text = shown(unclear);
                reader.problem(node.at, path, format!("is not clear: write {text} in quotes, or as JSON writes it"));
            }
            text => push_string(text, out),
        },
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_json(reader, item, &path.index(index), out);
            }
            out.push(']');
        }
        Value::Map(members) => {
            out.push('{');
            for (index, member) in members.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                push_string(&member.key, out);
                out.push(':');
                write_json(reader, &member.node, &path.key(&member.key), out);
            }
            out.push('}');
        }
        Value::Refused => {}
    }
}

/// Whether the text is a number by JSON's grammar.
fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

/// Whether some YAML reader takes a plain text for something else than text.
fn looks_like_a_value(text: &str) -> bool {
    const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "null", ".inf", ".nan", "y"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let based = |prefix: &str| unsigned.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    let numeric = unsigned.bytes().all(|byte| byte.is_ascii_digit() || b"._eE+-".contains(&byte))
        && unsigned.bytes().any(|byte| byte.is_ascii_digit())
        && unsigned.parse::<f64>().is_ok();
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(unsigned) || text == "n") || based("0x") || based("0o") || numeric
}

fn read_want(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Want> {
    const KEYS: [&str; 9] = [
        "decision",
        "reason",
        "rules",
        "rules_in_error",
        "clauses",
        "exclude_requester",
        "decide_within",
        "use_within",
        "message_contains",
    ];
    let [decision, reason, rules, rules_in_error, clauses, exclude, decide_within, use_within, message] =
        reader.fields(node, path, KEYS)?;
    if decision.is_none() {
        reader.problem(node.at, path, "lacks `decision`: `ALLOW`, `DENY` or `CONFIRMATION_REQUIRED`");
    }
    let decision = decision.and_then(|node| reader.word(node, &path.key("decision"), &DECISIONS));
    let reasons = PolicyReason::ALL.map(|reason| (reason.as_str(), reason));
    let before = reader.problems.len();
    let reason = reason.and_then(|node| reader.word(node, &path.key("reason"), &reasons));
    let mut names = |node: Option<&Node>, key| {
        node.and_then(|node| {
            let path = path.key(key);
            reader.set(node, &path, |reader, node, path| reader.text(node, path).map(str::to_owned))
        })
    };
    let (rules, rules_in_error) = (names(rules, "rules"), names(rules_in_error, "rules_in_error"));
    let clauses = clauses.and_then(|node| read_clauses(reader, node, &path.key("clauses")));
    let exclude_requester = exclude.and_then(|node| reader.flag(node, &path.key("exclude_requester")));
    let decide_within = decide_within.and_then(|node| reader.span(node, &path.key("decide_within")));
    let use_within = use_within.and_then(|node| reader.span(node, &path.key("use_within")));
    let message_contains = message.and_then(|node| reader.text(node, &path.key("message_contains"))).map(str::to_owned);
    // What could not be read must not become what is not compared.
    (reader.problems.len() == before).then_some(())?;
    Some(Want {
        decision: decision?,
        reason,
        rules,
        rules_in_error,
        clauses,
        exclude_requester,
        decide_within,
        use_within,
        message_contains,
    })
}

fn read_clauses(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Vec<Clause>> {
    let items = reader.list(node, path)?;
    // All are read before one that could not be decides, so that every problem is named.
    let read: Vec<Option<Clause>> =
        items.iter().enumerate().map(|(index, item)| read_clause(reader, item, &path.index(index))).collect();
    let mut clauses = read.into_iter().collect::<Option<Vec<Clause>>>()?;
    clauses.sort();
    Some(clauses)
}

fn read_clause(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Clause> {
    let [any_of, quorum] = reader.fields(node, path, ["any_of", "quorum"])?;
    let quorum = match quorum {
        None => Some(1),
        Some(node) => reader.number(node, &path.key("quorum"), 1, limits::QUORUM),
    };
    let Some(any_of) = any_of else {
        reader.problem(node.at, path, "lacks `any_of`: a list of `owner`, `group:NAME` or `person:ID`");
        return None;
    };
    let path = path.key("any_of");
    let entries = reader.set(any_of, &path, |reader, node, path| {
        let text = reader.text(node, path)?;
        let approver = Approver::parse(text);
        if approver.is_none() {
            reader.problem(node.at, path, format!("must be `owner`, `group:NAME` or `person:ID`, not {}", shown(text)));
        }
        approver
    })?;
    if reader.list(any_of, &path)?.is_empty() {
        reader.problem(any_of.at, &path, "is empty");
    }
    Clause::new(entries, quorum?)
}

/// Shows a clause as a file of tests has it.
pub fn show_clause(clause: &Clause) -> String {
    let mut text = String::from("{any_of: [");
    for (index, entry) in clause.any_of().iter().enumerate() {
        _ = write!(text, "{}{entry}", if index > 0 { ", " } else { "" });
    }
    _ = write!(text, "], quorum: {}}}", clause.quorum());
    text
}

#[cfg(test)]
mod tests;
