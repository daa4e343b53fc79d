//! A policy's revision: SHA-256 over what was parsed, with all defaults filled in. Formatting, comments and the division
//! into files change nothing; everything that can change an answer does.

use super::model::{Accounts, Connector, Defaults, RuleEffect, Times};
use crate::domain::hex::hex;
use crate::domain::pattern::Pattern;
use crate::domain::requirement::Groups;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// The revision as lower-case hex digits.
pub(super) fn of(defaults: &Defaults, groups: &Groups, connectors: &BTreeMap<String, Connector>) -> String {
    let mut encoder = Encoder(Sha256::new());
    encoder.text("countersign.policy.revision/v1");
    encoder.text(defaults.ceiling.as_str());
    encoder.text(defaults.confirm.as_str());
    encoder.times(defaults.times);
    let (all, external): (Vec<_>, Vec<_>) =
        (groups.iter().collect(), groups.iter().filter(|(name, _)| groups.is_external(name)).collect());
    encoder.list(&all, |encoder, (name, members)| {
        encoder.text(name.as_str());
        let members: Vec<_> = members.iter().collect();
        encoder.list(&members, |encoder, member| encoder.text(member.as_str()));
    });
    let connectors: Vec<_> = connectors.iter().collect();
    encoder.list(&connectors, |encoder, (name, connector)| {
        encoder.text(name);
        encoder.connector(connector);
    });
    // Last, and only where there are some: a policy without them has the revision that it always had.
    if !external.is_empty() {
        encoder.list(&external, |encoder, (name, _)| encoder.text(name.as_str()));
    }
    hex(&encoder.0.finalize())
}

/// Writes values one after another so that different values never give the same bytes: a text is preceded by its length,
/// a list by its number of elements, a choice by a byte that says which.
struct Encoder(Sha256);

impl Encoder {
    fn byte(&mut self, byte: u8) {
        self.0.update([byte]);
    }

    fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.count(items.len());
        items.iter().for_each(|item| write(self, item));
    }

    fn option<T>(&mut self, value: Option<T>, write: impl Fn(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn span(&mut self, span: Duration) {
        self.0.update(span.as_micros().to_be_bytes());
    }

    fn times(&mut self, times: Times) {
        self.span(times.decide_within);
        self.span(times.use_within);
        self.span(times.report_within);
    }

    fn patterns(&mut self, patterns: &[Pattern]) {
        self.list(patterns, |encoder, pattern| encoder.text(pattern.as_str()));
    }

    fn connector(&mut self, connector: &Connector) {
        self.flag(connector.enabled);
        self.option(connector.agents.as_deref(), Self::patterns);
        match &connector.accounts {
            Accounts::Any => self.byte(0),
            Accounts::Only(patterns) => {
                self.byte(1);
                self.patterns(patterns);
            }
            Accounts::Without => self.byte(2),
        }
        self.text(connector.ceiling.as_str());
        self.text(connector.confirm.as_str());
        self.flag(connector.unlisted_admin);
        self.times(connector.times);
        self.flag(connector.pin_definitions);
        let actions: Vec<_> = connector.actions.iter().collect();
        self.list(&actions, |encoder, (name, action)| {
            encoder.text(name);
            encoder.text(action.entry.scope.as_str());
            encoder.flag(action.entry.curated);
            encoder.list(&action.entry.tags, |encoder, tag| encoder.text(tag));
            encoder.option(action.entry.definition, |encoder, digest| encoder.text(&digest.to_string()));
            encoder.flag(action.pinned);
            encoder.times(action.times);
        });
        self.list(&connector.rules, |encoder, rule| {
            encoder.text(&rule.name);
            encoder.option(rule.actions.as_deref(), Self::patterns);
            encoder.option(rule.when.as_ref(), |encoder, when| encoder.text(when.source()));
            encoder.effect(&rule.effect);
        });
    }

    fn effect(&mut self, effect: &RuleEffect) {
        match effect {
            RuleEffect::Deny => self.byte(0),
            RuleEffect::Confirm(ask) => {
                self.byte(1);
                self.list(&ask.clauses, |encoder, (clause, _)| {
                    encoder.list(clause.any_of(), |encoder, entry| encoder.text(&entry.to_string()));
                    encoder.count(clause.quorum() as usize);
                });
                self.flag(ask.exclude_requester);
                self.option(ask.decide_within, Self::span);
                self.option(ask.use_within, Self::span);
            }
        }
    }
}
