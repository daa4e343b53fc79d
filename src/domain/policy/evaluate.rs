//! The order of checks. The first that fails decides; its reason is stable.

use super::explain;
use super::expression::{EvaluationError, Facts, FactsInput, Meter};
use super::model::{Accounts, Action, Connector, Rule, RuleEffect, Times};
use super::{Policy, PolicyCall};
use crate::domain::decision::{Decision, MatchedRule, PolicyAnswer, PolicyReason};
use crate::domain::pattern::any_matches;
use crate::domain::requirement::{Approver, Clause, Groups, Requirement};
use crate::domain::scope::Scope;
use crate::domain::text::Identifier;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

impl Policy {
    /// Decides one call. Changes nothing, keeps nothing, and answers whatever the call holds: what cannot be evaluated
    /// counts against it. `explain` adds every check's outcome.
    pub fn evaluate(&self, call: &PolicyCall<'_>, explain: bool) -> PolicyAnswer {
        let mut ruling = Ruling::default();
        let reason = self.decide(call, &mut ruling);
        let message = explain::message(call, &ruling, reason);
        let checks = if explain { explain::checks(call, &ruling, reason) } else { Vec::new() };
        let decision = match (explain::check_of(reason), ruling.requirement) {
            (explain::CONFIRMATION, Some(requirement)) => Decision::ConfirmationRequired(requirement),
            (explain::ALLOWED, _) => Decision::Allow,
            _ => Decision::Deny,
        };
        let known = ruling.action.filter(|action| action.known);
        PolicyAnswer {
            decision,
            reason,
            message,
            scope: known.map(|action| action.counted),
            tags: known
                .and_then(|action| action.entry)
                .map(|action| Arc::clone(&action.entry.tags))
                .unwrap_or_default(),
            rules: ruling.rules,
            report_within: ruling.action.map_or(self.defaults.times, |action| action.times).report_within,
            checks,
            policy_revision: self.revision.clone(),
        }
    }

    fn decide<'p>(&'p self, call: &PolicyCall<'_>, ruling: &mut Ruling<'p>) -> PolicyReason {
        let Some(connector) = self.connectors.get(call.connector.as_str()) else {
            return PolicyReason::ConnectorUnknown;
        };
        let action = ActionView::of(connector, call.action.as_str());
        (ruling.connector, ruling.action) = (Some(connector), Some(action));
        if !connector.enabled {
            return PolicyReason::ConnectorDisabled;
        }
        if connector.agents.as_ref().is_some_and(|agents| !any_matches(agents, call.agent.as_str())) {
            return PolicyReason::AgentNotAllowed;
        }
        if !account_allowed(connector, action, call) {
            return PolicyReason::AccountNotAllowed;
        }
        if !action.known {
            return PolicyReason::ActionUnknown;
        }
        if action.listed > connector.ceiling {
            return PolicyReason::ScopeExceedsCeiling;
        }
        if !action.curated && connector.ceiling < Scope::Admin {
            return PolicyReason::ActionNotCurated;
        }
        let matching = matching_rules(connector, action, call);
        ruling.rules = matching.iter().map(|matched| matched.record(call.connector.as_str())).collect();
        if matching.iter().any(|matched| matches!(matched.rule.effect, RuleEffect::Deny)) {
            return PolicyReason::DeniedByRule;
        }
        if !definition_unchanged(connector, action, call) {
            return PolicyReason::ToolDefinitionChanged;
        }
        ruling.mode_asks = connector.confirm.asks(action.counted);
        let asked = Asked::of(&matching, ruling.mode_asks, action.times);
        ruling.requirement = asked.requirement();
        if ruling.requirement.is_none() {
            return PolicyReason::Allowed;
        }
        if !could_be_met(&asked.clauses, asked.exclude_requester, &self.groups, call.principal) {
            return PolicyReason::NoEligibleApprover;
        }
        if asked.by_rule { PolicyReason::ConfirmationByRule } else { PolicyReason::ConfirmationByMode }
    }
}

/// What is known of a call by the time that a check decides.
#[derive(Default)]
pub(super) struct Ruling<'p> {
    pub(super) connector: Option<&'p Connector>,
    pub(super) action: Option<ActionView<'p>>,
    pub(super) rules: Vec<MatchedRule>,
    pub(super) mode_asks: bool,
    pub(super) requirement: Option<Requirement>,
}

/// An action as the checks see it.
#[derive(Clone, Copy)]
pub(super) struct ActionView<'p> {
    /// The entry, if the connector lists the action.
    pub(super) entry: Option<&'p Action>,
    /// Whether the connector knows it: it is listed, or `unlisted` is `admin`.
    pub(super) known: bool,
    /// The scope that its entry says; `admin` without one.
    pub(super) listed: Scope,
    /// The scope as it counts: `admin` where nobody reviewed the entry.
    pub(super) counted: Scope,
    pub(super) curated: bool,
    pub(super) tags: &'p [String],
    pub(super) times: Times,
}

impl<'p> ActionView<'p> {
    fn of(connector: &'p Connector, name: &str) -> Self {
        match connector.actions.get(name) {
            Some(action) => {
                let entry = &action.entry;
                Self {
                    entry: Some(action),
                    known: true,
                    listed: entry.scope,
                    counted: if entry.curated { entry.scope } else { Scope::Admin },
                    curated: entry.curated,
                    tags: &entry.tags,
                    times: action.times,
                }
            }
            None => Self {
                entry: None,
                known: connector.unlisted_admin,
                listed: Scope::Admin,
                counted: Scope::Admin,
                curated: false,
                tags: &[],
                times: connector.times,
            },
        }
    }
}

/// Check 4. An action that nobody lists was reviewed by nobody either, so it needs an account as an `admin` one does.
fn account_allowed(connector: &Connector, action: ActionView<'_>, call: &PolicyCall<'_>) -> bool {
    match (&connector.accounts, call.account) {
        (Accounts::Any, account) => account.is_some() || action.counted < Scope::Write,
        (Accounts::Only(accounts), Some(account)) => any_matches(accounts, account.as_str()),
        (Accounts::Only(_), None) => false,
        (Accounts::Without, account) => account.is_none(),
    }
}

/// Check 10.
fn definition_unchanged(connector: &Connector, action: ActionView<'_>, call: &PolicyCall<'_>) -> bool {
    match action.entry {
        None => !connector.pin_definitions,
        Some(entry) if entry.pinned => {
            entry.entry.definition.is_some() && entry.entry.definition == call.tool_definition_digest
        }
        Some(_) => true,
    }
}

/// A rule that matched, or that failed, which counts as matching.
struct Matched<'p> {
    rule: &'p Rule,
    error: Option<String>,
}

impl Matched<'_> {
    fn record(&self, connector: &str) -> MatchedRule {
        MatchedRule {
            connector: connector.to_owned(),
            name: self.rule.name.clone(),
            effect: self.rule.effect.effect(),
            error: self.error.clone(),
        }
    }
}

/// Every rule of the connector that matches the call, in the file's order. The facts are made only for the first rule that
/// has an expression.
///
/// All expressions share one budget. The rule that exhausts it is in error, and so is every later one that has a `when`:
/// they count as matching. Which rules these are depends on the file's order alone, and in any other order the answer
/// differs only in rules that are in error instead of not matching, never in one that is passed over: rules only take
/// away, so that a call for which the budget is too small is asked about or denied, and not let through.
fn matching_rules<'p>(connector: &'p Connector, action: ActionView<'p>, call: &PolicyCall<'_>) -> Vec<Matched<'p>> {
    let (mut facts, mut meter) = (None, Meter::full());
    let mut matching = Vec::new();
    let mut take = |rule: &'p Rule| {
        let Some(expression) = &rule.when else {
            matching.push(Matched { rule, error: None });
            return;
        };
        let (facts, meter) = (&mut facts, &mut meter);
        let outcome = outcome_of(|| {
            let facts = facts.get_or_insert_with(|| facts_of(call, action));
            expression.matches(facts, meter)
        });
        if let Some(error) = outcome {
            matching.push(Matched { rule, error });
        }
    };
    match action.entry {
        Some(entry) => entry.rules.iter().filter_map(|index| connector.rules.get(*index)).for_each(&mut take),
        None => connector.rules.iter().filter(|rule| rule.applies_to(call.action.as_str())).for_each(&mut take),
    }
    matching
}

/// None where the expression does not match; else what kept it from an answer, if something did. A rule must never be
/// skipped because the code that evaluates it failed.
fn outcome_of(evaluate: impl FnOnce() -> Result<bool, EvaluationError>) -> Option<Option<String>> {
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(Ok(false)) => None,
        Ok(Ok(true)) => Some(None),
        Ok(Err(error)) => Some(Some(error.to_string())),
        Err(_) => Some(Some("the evaluator failed".to_owned())),
    }
}

fn facts_of<'a>(call: &PolicyCall<'a>, action: ActionView<'a>) -> Facts<'a> {
    Facts::new(FactsInput {
        args: call.arguments.value(),
        principal: call.principal.as_str(),
        agent: call.agent.as_str(),
        conversation: call.conversation.map_or("", Identifier::as_str),
        account: call.account.map_or("", Identifier::as_str),
        action: call.action.as_str(),
        scope: action.counted.as_str(),
        tags: action.tags,
        now: call.now,
    })
}

/// What mode and rules ask for together.
struct Asked {
    /// Each with the number of people that it names, the owner not counted.
    clauses: Vec<(Clause, usize)>,
    exclude_requester: bool,
    decide_within: Duration,
    use_within: Duration,
    by_rule: bool,
}

impl Asked {
    fn of(matching: &[Matched<'_>], mode_asks: bool, times: Times) -> Self {
        let Times { decide_within, use_within, .. } = times;
        let mut asked =
            Self { clauses: Vec::new(), exclude_requester: false, decide_within, use_within, by_rule: false };
        if mode_asks {
            asked.clauses.push((Clause::owner(), 0));
        }
        for matched in matching {
            let RuleEffect::Confirm(ask) = &matched.rule.effect else { continue };
            asked.by_rule = true;
            asked.clauses.extend(ask.clauses.iter().cloned());
            asked.exclude_requester |= ask.exclude_requester;
            asked.decide_within = asked.decide_within.min(ask.decide_within.unwrap_or(Duration::MAX));
            asked.use_within = asked.use_within.min(ask.use_within.unwrap_or(Duration::MAX));
        }
        asked
    }

    /// None where nothing asks.
    fn requirement(&self) -> Option<Requirement> {
        let clauses = self.clauses.iter().map(|(clause, _)| clause.clone());
        Requirement::new(clauses, self.exclude_requester, self.decide_within, self.use_within)
    }
}

/// Check 11. The same as [`Groups::could_meet`] of all clauses, at a cost that does not grow with the size of the groups: a
/// clause that names as many people as all clauses together ask for can be filled last, whoever the others took, so that
/// only the others need matching. Each clause comes with the number of people that it names, the owner not counted.
pub(super) fn could_be_met(
    clauses: &[(Clause, usize)],
    exclude_requester: bool,
    groups: &Groups,
    principal: &Identifier,
) -> bool {
    let mut tight: Vec<(usize, &Clause)> = clauses
        .iter()
        .filter(|(clause, _)| !groups.is_open(clause))
        .map(|(clause, named)| {
            let owner = clause.any_of().contains(&Approver::Owner);
            // The requester may be one of those named: then, excluded, it is missing, and as the owner adds nobody.
            let people = if exclude_requester { named.saturating_sub(1) } else { (*named).max(usize::from(owner)) };
            (people, clause)
        })
        .collect();
    tight.sort_by_key(|(people, _)| *people);
    let mut slots: usize = tight.iter().map(|(_, clause)| clause.quorum() as usize).sum();
    while let Some((_, clause)) = tight.pop_if(|(people, _)| *people >= slots) {
        slots -= clause.quorum() as usize;
    }
    let tight = tight.into_iter().map(|(_, clause)| clause.clone());
    Requirement::new(tight, exclude_requester, Duration::ZERO, Duration::ZERO)
        .is_none_or(|requirement| groups.could_meet(&requirement, principal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_breaks_off_counts_as_matching() {
        assert_eq!(outcome_of(|| Ok(false)), None);
        assert_eq!(outcome_of(|| Ok(true)), Some(None));
        assert_eq!(
            outcome_of(|| panic!("as a defect in a library would")),
            Some(Some("the evaluator failed".to_owned()))
        );
    }
}
