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

#[cfg(test)]
mod tests {
    use crate::config::tests::load;

    #[test]
    fn permits_are_signed_unless_somebody_says_otherwise() {
        let names = load("").unwrap().permits.unwrap();
        assert_eq!((names.issuer.as_str(), names.audience.as_str()), ("countersign", "countersign-permit"));
        assert!(names.audiences.is_empty());
        assert_eq!(load("[permits]\nenabled = false").unwrap().permits, None);
        let said = load("[permits]\nissuer = \"i\"\naudience = \"a\"\naudiences = { gmail = \"m\" }").unwrap();
        let names = said.permits.clone().unwrap();
        assert_eq!((names.issuer.as_str(), names.audience.as_str(), names.audiences.len()), ("i", "a", 1));
        assert_eq!(load("").unwrap().needs_restart(&said), ["permits"]);
    }

    #[test]
    fn a_name_that_is_none_is_a_problem_also_where_permits_are_switched_off() {
        let text = "[permits]\nenabled = false\nissuer = \"\"\naudience = \" x\"\naudiences = { \"\" = \"a\", b = \"\\u202e\" }";
        let problems = load(text).unwrap_err().0;
        assert_eq!(problems.len(), 4, "{problems:?}");
        for (problem, key) in problems.iter().zip(["issuer", "audience", "audiences.", "audiences.b"]) {
            assert!(problem.starts_with(&format!("permits.{key}: ")), "{problem}");
        }
        assert_eq!(load("[permits]\nkeys = 1").unwrap_err().0, ["permits.keys: is no key"]);
    }
}
