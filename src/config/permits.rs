//! Permits for others to check: `[permits]`.

use crate::domain::permit::{DEFAULT_AUDIENCE, DEFAULT_ISSUER, PermitNames};
use crate::domain::text::Identifier;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[permits]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PermitsSection {
    enabled: Option<bool>,
    issuer: Option<String>,
    audience: Option<String>,
    audiences: BTreeMap<String, String>,
}

/// The names under which permits are signed, none if they are not, with a problem for each that is no name.
pub(super) fn resolve(section: &PermitsSection, problems: &mut Vec<String>) -> Option<PermitNames> {
    let mut named = |key: &str, text: &str| match Identifier::parse(text) {
        Ok(name) => Some(name),
        Err(problem) => {
            problems.push(format!("permits.{key}: {problem}"));
            None
        }
    };
    let issuer = named("issuer", section.issuer.as_deref().unwrap_or(DEFAULT_ISSUER));
    let audience = named("audience", section.audience.as_deref().unwrap_or(DEFAULT_AUDIENCE));
    let mut audiences = BTreeMap::new();
    for (connector, audience) in &section.audiences {
        let key = format!("audiences.{}", connector.escape_debug());
        if let (Some(connector), Some(audience)) = (named(&key, connector), named(&key, audience)) {
            audiences.insert(connector, audience);
        }
    }
    let names = PermitNames { issuer: issuer?, audience: audience?, audiences };
    section.enabled.unwrap_or(true).then_some(names)
}
