//! What the policy answers: a decision, with a reason that is stable.

use super::requirement::Requirement;
use super::scope::Scope;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// May it run?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not; no confirmation changes that.
    Deny,
    /// It may once these people have confirmed it.
    ConfirmationRequired(Requirement),
}

impl Decision {
    /// The word for it in messages, tables and the audit.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "ALLOW",
            Self::Deny => "DENY",
            Self::ConfirmationRequired(_) => "CONFIRMATION_REQUIRED",
        }
    }
}

/// Why the policy answered as it did: one for each check of its order, which is the contract. Blocks, sessions and grants have numbers
/// in that order and get their reasons when they are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyReason {
    /// Check 1: the connector is not in the policy.
    ConnectorUnknown,
    /// Check 2: the connector is switched off.
    ConnectorDisabled,
    /// Check 3: the connector does not list the agent.
    AgentNotAllowed,
    /// Check 4: the account is not allowed, missing, or given where there are none.
    AccountNotAllowed,
    /// Check 5: no catalog lists the action.
    ActionUnknown,
    /// Check 6: the action is stronger than the connector's ceiling.
    ScopeExceedsCeiling,
    /// Check 7: nobody reviewed the action, and the ceiling is not `admin`.
    ActionNotCurated,
    /// Check 8: a `deny` rule matches.
    DeniedByRule,
    /// Check 10: the tool's definition is not the one that the catalog pins.
    ToolDefinitionChanged,
    /// Check 11: nobody could meet the requirement.
    NoEligibleApprover,
    /// Check 12: a `confirm` rule matches.
    ConfirmationByRule,
    /// Check 12: the connector's mode asks for this scope.
    ConfirmationByMode,
    /// Check 13: nothing asks.
    Allowed,
}

impl PolicyReason {
    /// Every reason, in the order of the checks.
    pub const ALL: [Self; 13] = [
        Self::ConnectorUnknown,
        Self::ConnectorDisabled,
        Self::AgentNotAllowed,
        Self::AccountNotAllowed,
        Self::ActionUnknown,
        Self::ScopeExceedsCeiling,
        Self::ActionNotCurated,
        Self::DeniedByRule,
        Self::ToolDefinitionChanged,
        Self::NoEligibleApprover,
        Self::ConfirmationByRule,
        Self::ConfirmationByMode,
        Self::Allowed,
    ];

    /// The stable text of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectorUnknown => "CONNECTOR_UNKNOWN",
            Self::ConnectorDisabled => "CONNECTOR_DISABLED",
            Self::AgentNotAllowed => "AGENT_NOT_ALLOWED",
            Self::AccountNotAllowed => "ACCOUNT_NOT_ALLOWED",
            Self::ActionUnknown => "ACTION_UNKNOWN",
            Self::ScopeExceedsCeiling => "SCOPE_EXCEEDS_CEILING",
            Self::ActionNotCurated => "ACTION_NOT_CURATED",
            Self::DeniedByRule => "DENIED_BY_RULE",
            Self::ToolDefinitionChanged => "TOOL_DEFINITION_CHANGED",
            Self::NoEligibleApprover => "NO_ELIGIBLE_APPROVER",
            Self::ConfirmationByRule => "CONFIRMATION_BY_RULE",
            Self::ConfirmationByMode => "CONFIRMATION_BY_MODE",
            Self::Allowed => "ALLOWED",
        }
    }

    /// The reason of that text, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for PolicyReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a rule does when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Asks for confirmation.
    Confirm,
    /// Denies.
    Deny,
}

impl Effect {
    /// The word for it in policies and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Deny => "deny",
        }
    }

    /// The effect of that word, if it is one.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Confirm, Self::Deny].into_iter().find(|effect| effect.as_str() == word)
    }
}

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRule {
    /// The connector that it belongs to.
    pub connector: String,
    /// Its name.
    pub name: String,
    /// What it does.
    pub effect: Effect,
    /// How its expression failed, which counts as a match. Never argument values.
    pub error: Option<String>,
}

/// How one check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It was made and did not decide.
    Passed,
    /// It was made and decided.
    Decided,
    /// An earlier one had decided.
    NotReached,
}

/// One check of the order, for who asked to have it explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its number in the order.
    pub number: u32,
    /// What it asks, as a short stable name.
    pub name: &'static str,
    /// How it came out.
    pub outcome: CheckOutcome,
    /// One sentence about what it compared. Never arguments.
    pub detail: String,
}

/// The policy's whole answer to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAnswer {
    /// May it run?
    pub decision: Decision,
    /// Why.
    pub reason: PolicyReason,
    /// The same in one sentence over neutralised identifiers. Never arguments.
    pub message: String,
    /// The action's scope as it counts (an action that nobody reviewed counts as `admin`); none if it is not known.
    pub scope: Option<Scope>,
    /// The action's tags.
    pub tags: Arc<[String]>,
    /// Every rule that matched, in the policy's order.
    pub rules: Vec<MatchedRule>,
    /// How long the enforcing process has to report an outcome.
    pub report_within: Duration,
    /// Every check's outcome, where it was asked for.
    pub checks: Vec<Check>,
    /// The revision of the policy that answered.
    pub policy_revision: String,
}

#[cfg(test)]
mod tests {
    use super::{Effect, PolicyReason};

    #[test]
    fn reasons_and_effects_are_read_from_the_words_they_are_written_as_and_from_no_others() {
        for reason in PolicyReason::ALL {
            assert_eq!(PolicyReason::parse(reason.as_str()), Some(reason));
        }
        for effect in [Effect::Confirm, Effect::Deny] {
            assert_eq!(Effect::parse(effect.as_str()), Some(effect));
        }
        for text in ["", "allowed", "ALLOW", "ALLOWED ", "Deny", "DENY", "allow"] {
            assert_eq!((PolicyReason::parse(text), Effect::parse(text)), (None, None), "{text:?}");
        }
    }

    #[test]
    fn the_reasons_stand_in_the_order_of_the_checks() {
        assert!(PolicyReason::ALL.is_sorted());
        assert_eq!(PolicyReason::ALL.first(), Some(&PolicyReason::ConnectorUnknown));
        assert_eq!(PolicyReason::ALL.last(), Some(&PolicyReason::Allowed));
    }
}
