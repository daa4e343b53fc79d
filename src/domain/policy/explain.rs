//! The policy's answer in words: one sentence from a fixed template, and each check with what it compared. Every name in
//! them is neutralised; arguments never appear.

use super::PolicyCall;
use super::evaluate::Ruling;
use super::model::{Accounts, Connector};
use crate::domain::decision::{Check, CheckOutcome, Effect, MatchedRule, PolicyReason};
use crate::domain::scope::Scope;
use crate::domain::text::{LineBreaks, neutralise};

/// Number of the check that asks for confirmation.
pub(super) const CONFIRMATION: u32 = 12;
/// Number of the check at which everything has passed.
pub(super) const ALLOWED: u32 = 13;

/// The checks that are made, by number and name. 0 and 9 belong to blocks and sessions.
const CHECKS: [(u32, &str); 12] = [
    (1, "connector_known"),
    (2, "connector_enabled"),
    (3, "agent_allowed"),
    (4, "account_allowed"),
    (5, "action_listed"),
    (6, "scope_within_ceiling"),
    (7, "action_curated"),
    (8, "no_deny_rule"),
    (10, "tool_definition_unchanged"),
    (11, "approver_eligible"),
    (CONFIRMATION, "no_confirmation_asked"),
    (ALLOWED, "allowed"),
];

/// The number of the check that gives this reason.
pub(super) fn check_of(reason: PolicyReason) -> u32 {
    match reason {
        PolicyReason::ConnectorUnknown => 1,
        PolicyReason::ConnectorDisabled => 2,
        PolicyReason::AgentNotAllowed => 3,
        PolicyReason::AccountNotAllowed => 4,
        PolicyReason::ActionUnknown => 5,
        PolicyReason::ScopeExceedsCeiling => 6,
        PolicyReason::ActionNotCurated => 7,
        PolicyReason::DeniedByRule => 8,
        PolicyReason::ToolDefinitionChanged => 10,
        PolicyReason::NoEligibleApprover => 11,
        PolicyReason::ConfirmationByRule | PolicyReason::ConfirmationByMode => CONFIRMATION,
        PolicyReason::Allowed => ALLOWED,
    }
}

/// Every check with its outcome, in order.
pub(super) fn checks(call: &PolicyCall<'_>, ruling: &Ruling<'_>, reason: PolicyReason) -> Vec<Check> {
    let deciding = check_of(reason);
    let check = |(number, name): (u32, &'static str)| {
        let (outcome, detail) = if number > deciding {
            (CheckOutcome::NotReached, format!("Check {deciding} had decided."))
        } else {
            let outcome = if number == deciding { CheckOutcome::Decided } else { CheckOutcome::Passed };
            (outcome, detail(number, call, ruling, number == deciding))
        };
        Check { number, name, outcome, detail }
    };
    CHECKS.into_iter().map(check).collect()
}

/// One sentence: what was decided and, where it was refused, what would have to change.
pub(super) fn message(call: &PolicyCall<'_>, ruling: &Ruling<'_>, reason: PolicyReason) -> String {
    let (connector, action) = (named(call.connector.as_str()), named(call.action.as_str()));
    match reason {
        PolicyReason::ConnectorUnknown => {
            format!("The policy has no connector {connector}: define it under `connectors`, or correct the name.")
        }
        PolicyReason::ConnectorDisabled => {
            format!("The connector {connector} is switched off: set its `enabled` to true.")
        }
        PolicyReason::AgentNotAllowed => {
            let agent = named(call.agent.as_str());
            format!("The agent {agent} may not use the connector {connector}: add it to its `agents`.")
        }
        PolicyReason::AccountNotAllowed => account_message(call, ruling, &connector, &action),
        PolicyReason::ActionUnknown => format!(
            "No catalog of the connector {connector} lists the action {action}: add it to its `actions` or its catalog, or correct the name."
        ),
        PolicyReason::ScopeExceedsCeiling => {
            let (scope, ceiling) = scopes(ruling);
            format!(
                "The action {action} has scope {scope} and the ceiling of the connector {connector} is {ceiling}: raise its `ceiling` to allow it."
            )
        }
        PolicyReason::ActionNotCurated => format!(
            "Nobody has reviewed the action {action} of the connector {connector}: review its entry and set `curated` to true."
        ),
        PolicyReason::DeniedByRule => {
            let rule = rule_phrase(ruling, Effect::Deny);
            format!("The {rule} denies the action {action} of the connector {connector}: change the call, or the rule.")
        }
        PolicyReason::ToolDefinitionChanged => definition_message(call, ruling, &connector, &action),
        PolicyReason::NoEligibleApprover => format!(
            "The action {action} of the connector {connector} must be confirmed, and nobody could: give it more `approvers`, or do not exclude the requester."
        ),
        PolicyReason::ConfirmationByRule => {
            let rule = rule_phrase(ruling, Effect::Confirm);
            format!("The action {action} of the connector {connector} must be confirmed: the {rule} asks for it.")
        }
        PolicyReason::ConfirmationByMode => {
            let mode = ruling.connector.map_or("", |connector| connector.confirm.as_str());
            let scope = counted(ruling);
            format!(
                "The action {action} of the connector {connector} must be confirmed: its mode is `{mode}` and the action counts as {scope}."
            )
        }
        PolicyReason::Allowed => format!("The action {action} of the connector {connector} is allowed."),
    }
}

fn account_message(call: &PolicyCall<'_>, ruling: &Ruling<'_>, connector: &str, action: &str) -> String {
    let accounts = ruling.connector.map(|connector| &connector.accounts);
    match (accounts, call.account) {
        (Some(Accounts::Without), _) => {
            format!("The connector {connector} has no accounts (`accounts: none`): leave the account out.")
        }
        (_, Some(account)) => {
            let account = named(account.as_str());
            format!("The connector {connector} may not act as the account {account}: add it to its `accounts`.")
        }
        (Some(Accounts::Only(_)), None) => {
            format!("The connector {connector} acts only as one of its `accounts`: name the account.")
        }
        (_, None) => {
            let scope = counted(ruling);
            format!("The action {action} of the connector {connector} counts as {scope}: name the account.")
        }
    }
}

fn definition_message(call: &PolicyCall<'_>, ruling: &Ruling<'_>, connector: &str, action: &str) -> String {
    let listed = ruling.action.is_some_and(|action| action.entry.is_some());
    if !listed {
        return format!(
            "The connector {connector} pins its tools' definitions and lists no action {action}: review the tool and add it to the catalog."
        );
    }
    if call.tool_definition_digest.is_none() {
        return format!(
            "The connector {connector} pins the definition of the action {action}: send the tool's `tool_definition_digest`."
        );
    }
    format!(
        "The definition of the action {action} of the connector {connector} is not the one that was reviewed: review it and update the catalog."
    )
}

/// The first matching rule of this effect as a phrase.
fn rule_phrase(ruling: &Ruling<'_>, effect: Effect) -> String {
    let mut rules = ruling.rules.iter().filter(|rule| rule.effect == effect);
    let Some(first) = rules.next() else { return "rule".to_owned() };
    let failed = if first.error.is_some() { ", whose expression could not be evaluated," } else { "" };
    format!("rule {}{failed}", named(&first.name))
}

/// One sentence on what a check compared.
fn detail(number: u32, call: &PolicyCall<'_>, ruling: &Ruling<'_>, decided: bool) -> String {
    let Some(connector) = ruling.connector else {
        return format!("The policy has no connector {}.", named(call.connector.as_str()));
    };
    match number {
        1 => format!("The policy has the connector {}.", named(call.connector.as_str())),
        2 if decided => "`enabled` is false.".to_owned(),
        2 => "`enabled` is true.".to_owned(),
        3 => agent_detail(call, connector, decided),
        4 => account_detail(call, ruling, connector),
        5 => action_detail(call, ruling),
        6 => {
            let (scope, ceiling) = scopes(ruling);
            format!("The action's scope is {scope}, the ceiling {ceiling}.")
        }
        7 => curated_detail(ruling, connector),
        8 => rules_detail(&ruling.rules, Effect::Deny),
        10 => definition_detail(call, ruling, connector, decided),
        11 => approver_detail(ruling, decided),
        CONFIRMATION => confirmation_detail(ruling, connector),
        _ => "Nothing asks for confirmation.".to_owned(),
    }
}

fn agent_detail(call: &PolicyCall<'_>, connector: &Connector, decided: bool) -> String {
    let agent = named(call.agent.as_str());
    match (&connector.agents, decided) {
        (None, _) => "The connector is open to every agent.".to_owned(),
        (Some(_), false) => format!("`agents` has the agent {agent}."),
        (Some(_), true) => format!("`agents` does not have the agent {agent}."),
    }
}

fn account_detail(call: &PolicyCall<'_>, ruling: &Ruling<'_>, connector: &Connector) -> String {
    let given = match call.account {
        Some(account) => format!("the account {} was given", named(account.as_str())),
        None => "no account was given".to_owned(),
    };
    match &connector.accounts {
        Accounts::Any => {
            format!("Any account will do, and the action counts as {}; {given}.", counted(ruling))
        }
        Accounts::Only(accounts) => format!("One of {} listed accounts is needed; {given}.", accounts.len()),
        Accounts::Without => format!("The connector has no accounts; {given}."),
    }
}

fn action_detail(call: &PolicyCall<'_>, ruling: &Ruling<'_>) -> String {
    let action = named(call.action.as_str());
    match ruling.action {
        Some(view) if view.entry.is_some() => format!("The action {action} is listed."),
        Some(view) if view.known => {
            format!("The action {action} is not listed; `unlisted: admin` makes it an admin one that nobody reviewed.")
        }
        Some(_) | None => format!("The action {action} is not listed."),
    }
}

fn curated_detail(ruling: &Ruling<'_>, connector: &Connector) -> String {
    let curated = ruling.action.is_some_and(|action| action.curated);
    match (curated, connector.ceiling) {
        (true, _) => "The action's entry has been reviewed.".to_owned(),
        (false, Scope::Admin) => {
            "Nobody has reviewed the action's entry; with the ceiling admin that is no obstacle.".to_owned()
        }
        (false, Scope::Read | Scope::Write) => "Nobody has reviewed the action's entry.".to_owned(),
    }
}

fn rules_detail(rules: &[MatchedRule], effect: Effect) -> String {
    let matching: Vec<String> = rules
        .iter()
        .filter(|rule| rule.effect == effect)
        .map(|rule| match &rule.error {
            None => named(&rule.name),
            Some(error) => format!("{} (in error: {})", named(&rule.name), named(error)),
        })
        .collect();
    let effect = effect.as_str();
    if matching.is_empty() {
        format!("No `{effect}` rule matches.")
    } else {
        format!("`{effect}` rules that match: {}.", matching.join(", "))
    }
}

fn definition_detail(call: &PolicyCall<'_>, ruling: &Ruling<'_>, connector: &Connector, decided: bool) -> String {
    let pinned = ruling.action.and_then(|action| action.entry).map(|entry| entry.pinned);
    let text = match (pinned, decided) {
        (None, true) => "Definitions are pinned, and the action is not listed.",
        (None | Some(false), _) if !connector.pin_definitions => "The action's definition is not pinned.",
        (_, false) => "The call carries the pinned definition digest.",
        (_, true) if call.tool_definition_digest.is_none() => "The call carries no definition digest; one is pinned.",
        (_, true) => "The call carries another definition digest than the pinned one.",
    };
    text.to_owned()
}

fn approver_detail(ruling: &Ruling<'_>, decided: bool) -> String {
    let Some(requirement) = &ruling.requirement else { return "Nothing has to be confirmed.".to_owned() };
    let enough = if decided { "not enough" } else { "enough" };
    let clauses = match requirement.clauses().len() {
        1 => "the one clause".to_owned(),
        many => format!("all {many} clauses"),
    };
    let excluded = if requirement.exclude_requester() { "; the requester is excluded" } else { "" };
    format!("There are {enough} different people for {clauses}{excluded}.")
}

fn confirmation_detail(ruling: &Ruling<'_>, connector: &Connector) -> String {
    let mode = connector.confirm.as_str();
    let asks = if ruling.mode_asks { "asks" } else { "does not ask" };
    let rules = rules_detail(&ruling.rules, Effect::Confirm);
    format!("{rules} The mode `{mode}` {asks} about scope {}.", counted(ruling))
}

/// The scope that the entry says, and the ceiling.
fn scopes(ruling: &Ruling<'_>) -> (&'static str, &'static str) {
    let scope = ruling.action.map_or(Scope::Admin, |action| action.listed);
    let ceiling = ruling.connector.map_or(Scope::Read, |connector| connector.ceiling);
    (scope.as_str(), ceiling.as_str())
}

fn counted(ruling: &Ruling<'_>) -> &'static str {
    ruling.action.map_or(Scope::Admin, |action| action.counted).as_str()
}

/// A name as it may be shown.
fn named(name: &str) -> String {
    format!("\"{}\"", neutralise(name, LineBreaks::Escape).text)
}
