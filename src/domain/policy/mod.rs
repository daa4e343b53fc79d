//! The policy: which actions are available at all, and which of them people must confirm.
//!
//! Text becomes a policy in `load` (`yaml` and `reader` below it, `connector`, `rules` and `catalog` for its sections,
//! `model` for what comes out, `revision` for what names it). `evaluate` puts a call through the checks in their order, and
//! `explain` says in words how they came out. Everything here is pure: files are read by the caller.
//!
//! Invariants:
//! - A policy is loaded whole or not at all; every problem is named with file, line and key.
//! - The first failing check decides. What cannot be evaluated counts against the call; all expressions of one call share
//!   one budget.
//! - Names are compared byte for byte; `*` in `agents`, `accounts` and a rule's `actions` is the only wildcard.
//! - Scope, tags and whether an action was reviewed come from here, never from the call.

pub mod case_file;
mod catalog;
mod connector;
mod evaluate;
mod explain;
pub mod expression;
pub mod import;
mod load;
mod model;
mod problem;
mod reader;
mod revision;
mod rules;
mod warnings;
mod yaml;

#[cfg(test)]
mod tests;

pub use catalog::{CATALOG_VERSION, Catalog, ListedAction};
pub use load::{CatalogPath, FILES, POLICY_VERSION, ReadCatalog, SourceFile};
pub use model::CatalogEntry;
pub use problem::Problem;
pub use yaml::FILE_BYTES;

use super::arguments::Arguments;
use super::fingerprint::DefinitionDigest;
use super::requirement::Groups;
use super::text::Identifier;
use super::time::Timestamp;
use model::{Connector, Defaults};
use std::collections::BTreeMap;
use std::fmt;

/// A policy that holds together.
#[derive(Debug)]
pub struct Policy {
    revision: String,
    defaults: Defaults,
    groups: Groups,
    connectors: BTreeMap<String, Connector>,
    files: Vec<String>,
    catalogs: Vec<CatalogPath>,
    warnings: Vec<Problem>,
}

/// One call to be decided: what the enforcing process says of it.
#[derive(Clone, Copy)]
pub struct PolicyCall<'a> {
    /// On whose behalf.
    pub principal: &'a Identifier,
    /// The program that acts.
    pub agent: &'a Identifier,
    /// The session in which it acts.
    pub conversation: Option<&'a Identifier>,
    /// The integration.
    pub connector: &'a Identifier,
    /// The external identity that it acts as.
    pub account: Option<&'a Identifier>,
    /// The operation.
    pub action: &'a Identifier,
    /// The arguments; their value is read only if a rule asks for it.
    pub arguments: &'a Arguments,
    /// The digest of the tool's definition as the agent sees it.
    pub tool_definition_digest: Option<DefinitionDigest>,
    /// The store's time.
    pub now: Timestamp,
}

impl fmt::Debug for PolicyCall<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PolicyCall")
            .field("principal", self.principal)
            .field("agent", self.agent)
            .field("conversation", &self.conversation)
            .field("connector", self.connector)
            .field("account", &self.account)
            .field("action", self.action)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// One connector in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorSummary {
    /// Its name.
    pub name: String,
    /// Whether it is switched on.
    pub enabled: bool,
    /// How many actions it lists, its catalog's included.
    pub actions: usize,
    /// How many rules it has.
    pub rules: usize,
}

impl Policy {
    /// SHA-256 over the parsed policy with its catalogs, as 64 lower-case hex digits.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Who is in which group.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Every connector in numbers, by name.
    pub fn connectors(&self) -> impl Iterator<Item = ConnectorSummary> {
        self.connectors.iter().map(|(name, connector)| ConnectorSummary {
            name: name.clone(),
            enabled: connector.enabled,
            actions: connector.actions.len(),
            rules: connector.rules.len(),
        })
    }

    /// The files that it was loaded from, as they were named to `load`.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The catalogs that it was loaded with.
    pub fn catalogs(&self) -> &[CatalogPath] {
        &self.catalogs
    }

    /// What is allowed in a policy and yet hardly meant, such as a rule that no action can ever meet.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// What is listed for an action, if it is.
    pub fn entry(&self, connector: &str, action: &str) -> Option<&CatalogEntry> {
        Some(&self.connectors.get(connector)?.actions.get(action)?.entry)
    }
}
