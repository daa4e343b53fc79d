//! What a policy may say and its author hardly means. Nothing here refuses a policy: a rule may well be written before the
//! action that it is for.

use super::model::{Connector, Rule, RuleEffect};
use super::problem::{Path, Problem, shown};
use crate::domain::scope::Scope;

/// The warnings about one connector that stands at `path` of `file`.
pub(super) fn of(file: &str, path: &Path<'_>, connector: &Connector) -> Vec<Problem> {
    let rules = path.key("rules");
    let warn = |(index, rule): (usize, &Rule)| {
        let message = never_applies(connector, index, rule).or_else(|| never_confirmed(connector, index, rule))?;
        let (file, key) = (file.to_owned(), rules.index(index).to_string());
        Some(Problem { file, line: rule.at.line, column: rule.at.column, key, message })
    };
    connector.rules.iter().enumerate().filter_map(warn).collect()
}

/// A misspelt action makes a `deny` rule do nothing at all.
fn never_applies(connector: &Connector, index: usize, rule: &Rule) -> Option<String> {
    let reached = connector.unlisted_admin || connector.actions.values().any(|action| action.rules.contains(&index));
    (!reached).then(|| format!("the rule {} applies to no action that the connector lists", shown(&rule.name)))
}

/// Where the mode asks for the owner and a rule excludes the requester, who is the owner, nobody can meet both.
fn never_confirmed(connector: &Connector, index: usize, rule: &Rule) -> Option<String> {
    if !matches!(&rule.effect, RuleEffect::Confirm(ask) if ask.exclude_requester) {
        return None;
    }
    let asks = |curated: bool, scope: Scope| connector.confirm.asks(if curated { scope } else { Scope::Admin });
    let hit = connector
        .actions
        .iter()
        .find(|(_, action)| action.rules.contains(&index) && asks(action.entry.curated, action.entry.scope));
    let (action, _) = hit?;
    Some(format!(
        "the rule {} excludes the requester, and for {} the mode `{}` asks the owner, who is the requester: where the rule matches, nobody can confirm",
        shown(&rule.name),
        shown(action),
        connector.confirm.as_str()
    ))
}
