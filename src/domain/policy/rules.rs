//! Reads a connector's rules.

use super::expression::Expression;
use super::model::{Ask, Rule, RuleEffect};
use super::problem::{Path, nearest, shown};
use super::reader::Reader;
use super::yaml::{Node, Place, Value};
use crate::domain::decision::Effect;
use crate::domain::limits;
use crate::domain::pattern::Pattern;
use crate::domain::requirement::{Approver, Clause, Groups, Requirement};
use crate::domain::text::Identifier;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Where a name was first given.
pub(super) struct FirstUse {
    pub(super) file: String,
    pub(super) line: usize,
}

/// What rules are read with: the groups of all files, and the names that are taken.
pub(super) struct RuleContext<'a> {
    pub(super) file: &'a str,
    pub(super) groups: &'a Groups,
    /// Rule names of the whole policy. One name is one rule, so that an audit record names it without its connector.
    pub(super) names: &'a mut BTreeMap<String, FirstUse>,
}

/// Reads the list `rules`.
pub(super) fn read_rules(
    reader: &mut Reader,
    context: &mut RuleContext<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    let items = reader.list(node, path).unwrap_or_default();
    if items.len() > limits::RULES {
        let message = format!("has {} rules; at most {} may stand in one connector", items.len(), limits::RULES);
        reader.problem(node.at, path, message);
        return rules;
    }
    for (index, item) in items.iter().enumerate() {
        rules.extend(read_rule(reader, context, item, &path.index(index)));
    }
    let people: u32 = distinct_clauses(&rules).values().fold(0, |sum, quorum| sum.saturating_add(*quorum));
    if people > REQUIREMENT_PEOPLE {
        let message = format!("ask for {people} people altogether; at most {REQUIREMENT_PEOPLE}");
        reader.problem(node.at, path, message);
    }
    rules
}

/// People that all confirm rules of a connector can demand together: bounds the matching of people to clauses.
const REQUIREMENT_PEOPLE: u32 = 512;

fn distinct_clauses(rules: &[Rule]) -> BTreeMap<&[Approver], u32> {
    let mut clauses = BTreeMap::new();
    for rule in rules {
        let RuleEffect::Confirm(ask) = &rule.effect else { continue };
        for (clause, _) in &ask.clauses {
            let quorum = clauses.entry(clause.any_of()).or_insert(0);
            *quorum = clause.quorum().max(*quorum);
        }
    }
    clauses
}

fn read_rule(reader: &mut Reader, context: &mut RuleContext<'_>, node: &Node, path: &Path<'_>) -> Option<Rule> {
    const KEYS: [&str; 8] =
        ["name", "actions", "when", "effect", "approvers", "exclude_requester", "decide_within", "use_within"];
    let [name, actions, when, effect, approvers, exclude_requester, decide_within, use_within] =
        reader.fields(node, path, KEYS)?;
    let name = read_name(reader, context, node.at, name, path);
    let actions = actions.map(|node| read_patterns(reader, node, &path.key("actions"), Empty::Refused));
    let when = when.map(|node| read_condition(reader, node, &path.key("when")));
    if effect.is_none() {
        reader.problem(node.at, path, "lacks `effect`: `confirm` or `deny`");
    }
    let effect = effect.and_then(|node| {
        let words = [Effect::Confirm, Effect::Deny].map(|effect| (effect.as_str(), effect));
        reader.word(node, &path.key("effect"), &words)
    });
    if effect == Some(Effect::Deny) {
        for (key, node) in KEYS.iter().skip(4).zip([approvers, exclude_requester, decide_within, use_within]) {
            if let Some(node) = node {
                reader.problem(node.at, &path.key(key), "belongs to a `confirm` rule; this one denies");
            }
        }
    }
    let excludes = match exclude_requester {
        None => Some(false),
        Some(node) => reader.flag(node, &path.key("exclude_requester")),
    };
    let clauses = match approvers {
        None => Some(vec![Clause::owner()]),
        Some(node) => read_approvers(reader, context.groups, node, &path.key("approvers")),
    };
    let decide_within = decide_within.and_then(|node| reader.span(node, &path.key("decide_within")));
    let use_within = use_within.and_then(|node| reader.span(node, &path.key("use_within")));
    let effect = match effect? {
        Effect::Deny => RuleEffect::Deny,
        Effect::Confirm => {
            let (clauses, exclude_requester) = (clauses?, excludes?);
            let at = RuleNodes { rule: node, approvers };
            let named = check_reachable(reader, context.groups, at, path, &clauses, exclude_requester);
            let mut clauses: Vec<(Clause, usize)> = clauses.into_iter().zip(named).collect();
            clauses.sort();
            RuleEffect::Confirm(Ask { clauses, exclude_requester, decide_within, use_within })
        }
    };
    Some(Rule { at: node.at, name: name?, actions: transpose(actions)?, when: transpose(when)?, effect })
}

/// An omitted value stays omitted; one that could not be read makes the whole unreadable.
fn transpose<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(read) => read.map(Some),
    }
}

fn read_name(
    reader: &mut Reader,
    context: &mut RuleContext<'_>,
    at: Place,
    node: Option<&Node>,
    path: &Path<'_>,
) -> Option<String> {
    let Some(node) = node else {
        reader.problem(at, path, "lacks `name`, by which decisions and the audit refer to it");
        return None;
    };
    let path = path.key("name");
    let name = reader.identifier(node, &path)?.as_str().to_owned();
    if let Some(FirstUse { file, line }) = context.names.get(&name) {
        let message = format!("{} is the name of the rule at {file}:{line} already", shown(&name));
        reader.problem(node.at, &path, message);
        return None;
    }
    context.names.insert(name.clone(), FirstUse { file: context.file.to_owned(), line: node.at.line });
    Some(name)
}

/// What an empty list of patterns means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Empty {
    /// None at all.
    None,
    /// A mistake.
    Refused,
}

/// Reads a list of names with `*` as wildcard. Its order does not matter.
pub(super) fn read_patterns(reader: &mut Reader, node: &Node, path: &Path<'_>, empty: Empty) -> Option<Vec<Pattern>> {
    let mut patterns = reader.set(node, path, |reader, node, path| {
        let text = reader.identifier(node, path)?;
        if text.as_str().contains("**") {
            let message = format!("{} has `**`; a single `*` matches any run of characters", shown(text.as_str()));
            reader.problem(node.at, path, message);
            return None;
        }
        Some(Pattern::new(text.as_str()))
    })?;
    if empty == Empty::Refused && reader.list(node, path)?.is_empty() {
        reader.problem(node.at, path, "is empty, so the rule would never apply; leave the key out for all actions");
        return None;
    }
    patterns.sort();
    Some(patterns)
}

fn read_condition(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Expression> {
    let text = reader.text(node, path)?;
    match Expression::compile(text) {
        Ok(expression) => Some(expression),
        Err(problem) => {
            reader.problem(node.at, path, format!("does not compile: {problem}"));
            None
        }
    }
}

fn read_approvers(reader: &mut Reader, groups: &Groups, node: &Node, path: &Path<'_>) -> Option<Vec<Clause>> {
    let items = reader.list(node, path)?;
    if items.is_empty() {
        reader.problem(node.at, path, "is empty, which nobody could meet; leave the key out for the owner");
        return None;
    }
    if items.len() > limits::CLAUSES {
        reader.problem(node.at, path, format!("has more than {} clauses", limits::CLAUSES));
        return None;
    }
    let clauses: Vec<Option<Clause>> =
        items.iter().enumerate().map(|(index, item)| read_clause(reader, groups, item, &path.index(index))).collect();
    clauses.into_iter().collect()
}

fn read_clause(reader: &mut Reader, groups: &Groups, node: &Node, path: &Path<'_>) -> Option<Clause> {
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
    let entries = reader.set(any_of, &path, |reader, node, path| read_approver(reader, groups, node, path))?;
    let listed = reader.list(any_of, &path)?.len();
    if listed == 0 {
        reader.problem(any_of.at, &path, "is empty, which nobody could meet");
    }
    (entries.len() == listed).then(|| Clause::new(entries, quorum?)).flatten()
}

fn read_approver(reader: &mut Reader, groups: &Groups, node: &Node, path: &Path<'_>) -> Option<Approver> {
    let text = reader.text(node, path)?;
    let approver = Approver::parse(text);
    match &approver {
        None => {
            let message = format!("must be `owner`, `group:NAME` or `person:ID`, not {}", shown(text));
            reader.problem(node.at, path, message);
        }
        Some(Approver::Owner) => {}
        Some(Approver::Person(name)) => return reader.literal(name.as_str(), node.at, path).map(Approver::Person),
        Some(Approver::Group(name)) if !groups.contains(name) => {
            let known = groups.iter().map(|(name, _)| name.as_str());
            let hint = match nearest(name.as_str(), known) {
                Some(known) => format!("did you mean `group:{known}`?"),
                None => "define it under `groups`".to_owned(),
            };
            reader.problem(node.at, path, format!("there is no group {}; {hint}", shown(name.as_str())));
            return None;
        }
        Some(Approver::Group(_)) => {}
    }
    approver
}

/// Refuses a clause, and then a rule, that nobody could ever meet: with the most helpful owner, one that is in no group.
/// Returns, for each clause, how many people it names.
fn check_reachable(
    reader: &mut Reader,
    groups: &Groups,
    at: RuleNodes<'_>,
    path: &Path<'_>,
    clauses: &[Clause],
    exclude_requester: bool,
) -> Vec<usize> {
    let path = path.key("approvers");
    let named: Vec<usize> = clauses.iter().map(|clause| people_named(groups, clause)).collect();
    let mut alone = true;
    for (index, (clause, named)) in clauses.iter().zip(&named).enumerate() {
        let owner = clause.any_of().contains(&Approver::Owner);
        let people = named + usize::from(owner && !exclude_requester);
        if people >= clause.quorum() as usize || groups.is_open(clause) {
            continue;
        }
        alone = false;
        let (quorum, barred) = (clause.quorum(), owner && exclude_requester);
        let why = if barred { "; the owner is the requester, whom this rule excludes" } else { "" };
        let message = format!("could never be met: {quorum} must approve and {people} could{why}");
        reader.problem(at.clause(index), &path.index(index), message);
    }
    let requirement = Requirement::new(clauses.iter().cloned(), exclude_requester, Duration::ZERO, Duration::ZERO);
    if alone
        && let Some(requirement) = requirement
        && let Some(owner) = stranger(groups, clauses)
        && !groups.could_meet(&requirement, &owner)
    {
        let message = "could never be met: each clause needs people of its own, and there are not enough for all";
        reader.problem(at.approvers(), &path, message);
    }
    named
}

/// Where the approvers of a rule stand, for problems.
#[derive(Clone, Copy)]
struct RuleNodes<'n> {
    rule: &'n Node,
    approvers: Option<&'n Node>,
}

impl RuleNodes<'_> {
    fn approvers(self) -> Place {
        self.approvers.unwrap_or(self.rule).at
    }

    fn clause(self, index: usize) -> Place {
        match self.approvers.map(|node| &node.value) {
            Some(Value::List(items)) => items.get(index).map_or(self.rule.at, |item| item.at),
            Some(Value::Scalar { .. } | Value::Map(_) | Value::Refused) | None => self.rule.at,
        }
    }
}

/// How many different people a clause names, by themselves or through groups; the owner is not counted.
fn people_named(groups: &Groups, clause: &Clause) -> usize {
    let mut people: BTreeSet<&Identifier> = BTreeSet::new();
    for entry in clause.any_of() {
        match entry {
            Approver::Owner => {}
            Approver::Person(name) => {
                people.insert(name);
            }
            Approver::Group(name) => {
                people.extend(groups.iter().filter(|(group, _)| *group == name).flat_map(|(_, members)| members));
            }
        }
    }
    people.len()
}

/// Somebody whom neither a group nor a clause names.
fn stranger(groups: &Groups, clauses: &[Clause]) -> Option<Identifier> {
    let mut named: BTreeSet<&str> = groups.iter().flat_map(|(_, members)| members).map(Identifier::as_str).collect();
    for entry in clauses.iter().flat_map(Clause::any_of) {
        if let Approver::Person(name) = entry {
            named.insert(name.as_str());
        }
    }
    let mut names = (0..=named.len()).map(|number| format!("stranger-{number}"));
    Identifier::parse(&names.find(|name| !named.contains(name.as_str()))?).ok()
}
