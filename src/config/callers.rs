//! The callers of a configuration: each has one credential, one role, and explicit bounds.

use crate::auth::token::TokenHash;
use crate::auth::{AgentBounds, Caller, Callers, NewCaller, Powers};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A token is one line.
const TOKEN_BYTES: u64 = 4096;
/// Below this a token can be guessed.
const TOKEN_LEAST: usize = 24;

/// One `[[callers]]` section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallerSection {
    name: String,
    role: String,
    token_sha256: Option<String>,
    token_file: Option<PathBuf>,
    expires: Option<toml::Value>,
    agents: Option<Vec<String>>,
    principals: Option<Vec<String>>,
    principal: Option<String>,
    asserts_principal: Option<Vec<String>>,
}

/// Every caller, or what is wrong with each.
pub(super) fn resolve(sections: Vec<CallerSection>, folder: &Path, problems: &mut Vec<String>) -> Callers {
    let mut names = BTreeMap::new();
    let mut hashes: Vec<(TokenHash, String, String)> = Vec::new();
    let mut callers = Vec::new();
    for (index, section) in sections.into_iter().enumerate() {
        let place = format!("callers[{index}] ({})", section.name.escape_debug());
        if names.insert(section.name.clone(), index).is_some() {
            problems.push(format!("{place}: another caller has this name"));
        }
        let hash = credential(&section, folder, &place, problems);
        if let Some(hash) = &hash {
            // One credential for two roles would let an agent decide its own question.
            if let Some((_, other, role)) = hashes.iter().find(|(known, _, _)| known == hash) {
                problems.push(format!(
                    "{place}: has the same token as {other} (role {role}): one credential opens one door"
                ));
            }
            hashes.push((hash.clone(), place.clone(), section.role.clone()));
        }
        let name = Identifier::parse(&section.name);
        if let Err(problem) = &name {
            problems.push(format!("{place}: name: {problem}"));
        }
        let powers = powers(&section, &place, problems);
        let expires = expires(section.expires.as_ref(), &place, problems);
        if let (Some(hash), Ok(name), Some(powers)) = (hash, name, powers) {
            callers.push(NewCaller { hash, caller: Caller { name, powers }, expires });
        }
    }
    Callers::expiring(callers)
}

/// A credential's end, as a text or as one of TOML's own times.
fn expires(said: Option<&toml::Value>, place: &str, problems: &mut Vec<String>) -> Option<Timestamp> {
    let text = match said? {
        toml::Value::String(text) => text.clone(),
        toml::Value::Datetime(time) => time.to_string(),
        other => other.type_str().to_owned(),
    };
    let expires = Timestamp::parse(&text);
    if expires.is_none() {
        problems.push(format!("{place}: expires: {text:?} is no time with an offset, such as `2027-01-01T00:00:00Z`"));
    }
    expires
}

fn credential(section: &CallerSection, folder: &Path, place: &str, problems: &mut Vec<String>) -> Option<TokenHash> {
    match (&section.token_sha256, &section.token_file) {
        (Some(text), None) => {
            let hash = TokenHash::parse(text);
            if hash.is_none() {
                problems.push(format!(
                    "{place}: token_sha256: is not 64 lower-case hexadecimal digits; `countersign token` makes one"
                ));
            }
            hash
        }
        (None, Some(file)) => match token_in(&folder.join(file)) {
            Ok(hash) => Some(hash),
            Err(problem) => {
                problems.push(format!("{place}: token_file: {}: {problem}", folder.join(file).display()));
                None
            }
        },
        (Some(_), Some(_)) => {
            problems.push(format!("{place}: has both token_sha256 and token_file; one is enough"));
            None
        }
        (None, None) => {
            problems.push(format!("{place}: has neither token_sha256 nor token_file"));
            None
        }
    }
}

fn token_in(path: &Path) -> Result<TokenHash, String> {
    let mut text = Zeroizing::new(String::with_capacity(4096 + 64));
    let file = std::fs::File::open(path).map_err(|cause| cause.to_string())?;
    file.take(TOKEN_BYTES).read_to_string(&mut text).map_err(|cause| cause.to_string())?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.len() < TOKEN_LEAST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("is not one line of at least {TOKEN_LEAST} visible ASCII characters"));
    }
    Ok(TokenHash::of(token.as_bytes()))
}

fn powers(section: &CallerSection, place: &str, problems: &mut Vec<String>) -> Option<Powers> {
    let mut refuse = |keys: &[(&str, bool)], role: &str| {
        for (key, given) in keys {
            if *given {
                problems.push(format!("{place}: {key}: means nothing for the role {role}"));
            }
        }
    };
    let bounds = [("agents", section.agents.is_some()), ("principals", section.principals.is_some())];
    let persons =
        [("principal", section.principal.is_some()), ("asserts_principal", section.asserts_principal.is_some())];
    match section.role.as_str() {
        "agent" => {
            refuse(&persons, "agent");
            let agents = patterns(section.agents.as_deref(), "agents", place, problems);
            let principals = patterns(section.principals.as_deref(), "principals", place, problems);
            Some(Powers::Agent(Arc::new(AgentBounds { agents, principals })))
        }
        "approver" => {
            refuse(&bounds, "approver");
            match (&section.principal, &section.asserts_principal) {
                (Some(person), None) => match Identifier::parse(person) {
                    Ok(person) => Some(Powers::Person(person)),
                    Err(problem) => {
                        problems.push(format!("{place}: principal: {problem}"));
                        None
                    }
                },
                (None, Some(asserted)) => {
                    Some(Powers::Asserts(patterns(Some(asserted), "asserts_principal", place, problems)))
                }
                (Some(_), Some(_)) => {
                    problems.push(format!("{place}: is either one person (principal) or asserts persons, not both"));
                    None
                }
                (None, None) => {
                    problems.push(format!(
                        "{place}: an approver is a person (principal) or asserts one (asserts_principal)"
                    ));
                    None
                }
            }
        }
        "operator" => {
            refuse(&bounds, "operator");
            refuse(&persons, "operator");
            Some(Powers::Operator)
        }
        other => {
            problems.push(format!("{place}: role: {other:?} is none of `agent`, `approver`, `operator`"));
            None
        }
    }
}

fn patterns(texts: Option<&[String]>, key: &str, place: &str, problems: &mut Vec<String>) -> Vec<Pattern> {
    let texts = texts.unwrap_or_default();
    for text in texts {
        if let Err(problem) = Identifier::parse(text) {
            problems.push(format!("{place}: {key}: {problem}"));
        }
    }
    texts.iter().map(|text| Pattern::new(text)).collect()
}
