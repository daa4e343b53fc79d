//! The lists that a row keeps as JSON text. Unknown members are refused: a condition that this binary does not know must
//! not be dropped.

use crate::domain::approval::{PersonDecision, Verdict};
use crate::domain::decision::{Effect, MatchedRule};
use crate::domain::preview::{Omission, OmissionKind};
use crate::domain::requirement::{Approver, Clause};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A list or map of plain text, as JSON.
pub(in crate::storage) fn list<T: Serialize + ?Sized>(value: &T) -> String {
    // Text, numbers and maps keyed by text have a JSON form; were there none, reading the row would find it corrupt.
    serde_json::to_string(value).unwrap_or_default()
}

/// One entry of `clauses`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClauseEntry {
    any_of: Vec<String>,
    quorum: u32,
}

impl ClauseEntry {
    pub(super) fn of(clause: &Clause) -> Self {
        Self { any_of: clause.any_of().iter().map(ToString::to_string).collect(), quorum: clause.quorum() }
    }

    pub(super) fn clause(&self) -> Option<Clause> {
        let entries: Option<Vec<Approver>> = self.any_of.iter().map(|entry| Approver::parse(entry)).collect();
        Clause::new(entries?, self.quorum)
    }
}

/// One entry of `rules`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleEntry {
    connector: String,
    name: String,
    effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl RuleEntry {
    pub(super) fn of(rule: &MatchedRule) -> Self {
        Self {
            connector: rule.connector.clone(),
            name: rule.name.clone(),
            effect: rule.effect.as_str().to_owned(),
            error: rule.error.clone(),
        }
    }

    pub(super) fn rule(self) -> Option<MatchedRule> {
        let effect = Effect::parse(&self.effect)?;
        Some(MatchedRule { connector: self.connector, name: self.name, effect, error: self.error })
    }
}

/// One entry of `omissions`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OmissionEntry {
    /// Which text of the approval; left out: the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    pointer: String,
    kind: String,
    count: u64,
}

impl OmissionEntry {
    pub(super) fn of(omission: &Omission) -> Self {
        Self {
            field: omission.field.clone(),
            pointer: omission.pointer.clone(),
            kind: omission.kind.as_str().to_owned(),
            count: omission.count,
        }
    }

    pub(super) fn omission(self) -> Option<Omission> {
        Some(Omission {
            field: self.field,
            kind: OmissionKind::parse(&self.kind)?,
            pointer: self.pointer,
            count: self.count,
        })
    }
}

/// One row of `approval_decisions`, as the statement that reads an approval gathers them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionEntry {
    person: String,
    groups: String,
    as_owner: u8,
    verdict: String,
    reason: Option<String>,
    caller: String,
    decide_time: i64,
}

impl DecisionEntry {
    pub(super) fn decision(self) -> Option<PersonDecision> {
        let groups: Vec<String> = serde_json::from_str(&self.groups).ok()?;
        Some(PersonDecision {
            person: Identifier::parse(&self.person).ok()?,
            groups: groups.iter().map(|group| Identifier::parse(group).ok()).collect::<Option<_>>()?,
            as_owner: match self.as_owner {
                0 => false,
                1 => true,
                _ => return None,
            },
            verdict: Verdict::parse(&self.verdict)?,
            reason: self.reason,
            caller: Identifier::parse(&self.caller).ok()?,
            at: Timestamp::from_micros(self.decide_time),
        })
    }
}
