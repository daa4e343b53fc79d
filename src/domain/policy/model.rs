//! A policy as it stands in memory once it has been checked: every omitted key has its default, every name is resolved.

use super::expression::Expression;
use super::yaml::Place;
use crate::domain::decision::Effect;
use crate::domain::fingerprint::DefinitionDigest;
use crate::domain::pattern::{Pattern, any_matches};
use crate::domain::requirement::Clause;
use crate::domain::scope::Scope;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What the policy or a catalog says of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// How strong it is.
    pub scope: Scope,
    /// Whether a person reviewed this entry.
    pub curated: bool,
    /// Its tags, in the file's order.
    pub tags: Arc<[String]>,
    /// The digest of the tool's definition when the entry was made.
    pub definition: Option<DefinitionDigest>,
}

/// How long people, the agent and the enforcing process have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) decide_within: Duration,
    pub(super) use_within: Duration,
    pub(super) report_within: Duration,
}

/// Which calls a connector asks a person about without a rule saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfirmMode {
    Always,
    Writes,
    Admin,
    Never,
}

impl ConfirmMode {
    pub(super) const WORDS: [(&'static str, Self); 4] =
        [("always", Self::Always), ("writes", Self::Writes), ("admin", Self::Admin), ("never", Self::Never)];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Writes => "writes",
            Self::Admin => "admin",
            Self::Never => "never",
        }
    }

    pub(super) fn asks(self, scope: Scope) -> bool {
        match self {
            Self::Always => true,
            Self::Writes => scope >= Scope::Write,
            Self::Admin => scope >= Scope::Admin,
            Self::Never => false,
        }
    }
}

/// The section `defaults`, as shown in the design where it is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Defaults {
    pub(super) ceiling: Scope,
    pub(super) confirm: ConfirmMode,
    pub(super) times: Times,
}

impl Default for Defaults {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        let times = Times { decide_within: minutes(10), use_within: minutes(10), report_within: minutes(5) };
        Self { ceiling: Scope::Read, confirm: ConfirmMode::Writes, times }
    }
}

/// The accounts that a connector may act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accounts {
    /// Any, and one must be given where the action is more than a read.
    Any,
    /// One of these must be given.
    Only(Vec<Pattern>),
    /// The connector has no accounts; none may be given.
    Without,
}

/// One connector. Its name is its key.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) enabled: bool,
    /// None: any agent.
    pub(super) agents: Option<Vec<Pattern>>,
    pub(super) accounts: Accounts,
    pub(super) ceiling: Scope,
    pub(super) confirm: ConfirmMode,
    /// Whether an action that no catalog lists is an `admin` one that nobody reviewed, instead of unknown.
    pub(super) unlisted_admin: bool,
    pub(super) times: Times,
    /// Whether every action must show the definition that the catalog pins.
    pub(super) pin_definitions: bool,
    pub(super) actions: BTreeMap<String, Action>,
    pub(super) rules: Vec<Rule>,
}

/// One action that a connector lists.
#[derive(Debug)]
pub(super) struct Action {
    pub(super) entry: CatalogEntry,
    pub(super) times: Times,
    /// Whether a call must carry the entry's definition digest.
    pub(super) pinned: bool,
    /// Places in the connector's rules of those that apply to it.
    pub(super) rules: Vec<usize>,
}

/// One rule of a connector.
#[derive(Debug)]
pub(super) struct Rule {
    /// Where it stands, for warnings.
    pub(super) at: Place,
    pub(super) name: String,
    /// None: all actions.
    pub(super) actions: Option<Vec<Pattern>>,
    /// None: always.
    pub(super) when: Option<Expression>,
    pub(super) effect: RuleEffect,
}

impl Rule {
    pub(super) fn applies_to(&self, action: &str) -> bool {
        self.actions.as_ref().is_none_or(|patterns| any_matches(patterns, action))
    }
}

/// What a rule does when it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleEffect {
    Deny,
    Confirm(Ask),
}

impl RuleEffect {
    pub(super) fn effect(&self) -> Effect {
        match self {
            Self::Deny => Effect::Deny,
            Self::Confirm(_) => Effect::Confirm,
        }
    }
}

/// What a rule adds to the requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// Sorted, never empty; each with the number of people that it names, the owner not counted.
    pub(super) clauses: Vec<(Clause, usize)>,
    pub(super) exclude_requester: bool,
    pub(super) decide_within: Option<Duration>,
    pub(super) use_within: Option<Duration>,
}
