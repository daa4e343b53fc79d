//! The callers of a configuration: each has one credential, one role, and explicit bounds.

use super::issuers::{self, IssuerSection};
use crate::auth::token::TokenHash;
use crate::auth::{
    AgentBounds, Caller, CallerLimits, Callers, CertificateName, KnownBy, NewCaller, Powers, RequiredClaims,
    SpiffePattern,
};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
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
    certificate: Option<CertificateSection>,
    uid: Option<u32>,
    issuer: Option<String>,
    claims: Option<BTreeMap<String, String>>,
    principal_claim: Option<String>,
    calls: Option<u32>,
    streams: Option<u32>,
    rate: Option<u32>,
    burst: Option<u32>,
    expires: Option<toml::Value>,
    agents: Option<Vec<String>>,
    principals: Option<Vec<String>>,
    principal: Option<String>,
    asserts_principal: Option<Vec<String>>,
}

/// The name in a client's certificate by which a caller is known: one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct CertificateSection {
    spiffe: Option<String>,
    dns: Option<String>,
    uri: Option<String>,
}

/// Every caller and issuer, or what is wrong with each. `limits` hold for a caller of which nothing else is said.
pub(super) fn resolve(
    sections: Vec<CallerSection>,
    issuers: Vec<IssuerSection>,
    limits: CallerLimits,
    folder: &Path,
    problems: &mut Vec<String>,
) -> Callers {
    let issuer_names: BTreeSet<String> = issuers.iter().map(|issuer| issuer.name.clone()).collect();
    let issuers = issuers::resolve(issuers, folder, problems);
    let mut names = BTreeMap::new();
    let mut known: Vec<(KnownBy, String, String)> = Vec::new();
    let mut callers = Vec::new();
    for (index, section) in sections.into_iter().enumerate() {
        let place = format!("callers[{index}] ({})", section.name.escape_debug());
        if names.insert(section.name.clone(), index).is_some() {
            problems.push(format!("{place}: another caller has this name"));
        }
        let known_by = credential(&section, &issuer_names, folder, &place, problems);
        if let Some(known_by) = &known_by {
            // One credential for two roles would let an agent decide its own question.
            if let Some((other_by, other, role)) = known.iter().find(|(other, _, _)| other.overlaps(known_by)) {
                let what = match known_by {
                    KnownBy::Token(_) | KnownBy::User(_) => {
                        format!("has the same {} as {other} (role {role})", known_by.noun())
                    }
                    KnownBy::Certificate(_) => format!("one certificate may be this and {other} (role {role})"),
                    KnownBy::Claims(_) => format!(
                        "one token may be this and {other} (role {role}): let both require a claim of one name and \
                         different values"
                    ),
                };
                debug_assert_eq!(other_by.noun(), known_by.noun());
                problems.push(format!("{place}: {what}: one credential opens one door"));
            }
            known.push((known_by.clone(), place.clone(), section.role.clone()));
        }
        let name = Identifier::parse(&section.name);
        if let Err(problem) = &name {
            problems.push(format!("{place}: name: {problem}"));
        }
        let powers = powers(&section, &place, problems);
        let expires = expires(section.expires.as_ref(), &place, problems);
        let limits = limits_of(&section, limits, &place, problems);
        if let (Some(known_by), Ok(name), Some(powers)) = (known_by, name, powers) {
            callers.push(NewCaller { known_by, caller: Caller { name, powers }, expires, limits });
        }
    }
    Callers::of_issuers(callers, issuers)
}

fn limits_of(section: &CallerSection, general: CallerLimits, place: &str, problems: &mut Vec<String>) -> CallerLimits {
    let mut at_most = |key: &str, said: Option<u32>, otherwise: u32| {
        super::bounded(&format!("{place}: {key}"), said, otherwise, 1, super::limits::MOST_AT_ONCE, problems)
    };
    let calls = at_most("calls", section.calls, general.calls);
    let streams = at_most("streams", section.streams, general.streams);
    let rate = super::limits::rate(
        (&format!("{place}: rate"), section.rate),
        (&format!("{place}: burst"), section.burst),
        general.rate,
        problems,
    );
    CallerLimits { calls, streams, rate }
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

/// The one credential of a caller.
fn credential(
    section: &CallerSection,
    issuers: &BTreeSet<String>,
    folder: &Path,
    place: &str,
    problems: &mut Vec<String>,
) -> Option<KnownBy> {
    let given = [
        ("token_sha256", section.token_sha256.is_some()),
        ("token_file", section.token_file.is_some()),
        ("certificate", section.certificate.is_some()),
        ("uid", section.uid.is_some()),
        ("issuer", section.issuer.is_some()),
    ];
    let given: Vec<&str> = given.into_iter().filter_map(|(key, given)| given.then_some(key)).collect();
    for (key, said) in [("claims", section.claims.is_some()), ("principal_claim", section.principal_claim.is_some())] {
        if said && section.issuer.is_none() {
            problems.push(format!("{place}: {key}: means nothing without an issuer"));
        }
    }
    match given.as_slice() {
        [] => {
            problems.push(format!(
                "{place}: has no credential: one of token_file, token_sha256, certificate, uid and issuer"
            ));
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            problems.push(format!("{place}: has both {first} and {second}; a caller has one credential"));
            return None;
        }
    }
    if let Some(text) = &section.token_sha256 {
        let hash = TokenHash::parse(text);
        if hash.is_none() {
            problems.push(format!(
                "{place}: token_sha256: is not 64 lower-case hexadecimal digits; `countersign token` makes one"
            ));
        }
        return hash.map(KnownBy::Token);
    }
    if let Some(file) = &section.token_file {
        return match token_in(&folder.join(file)) {
            Ok(hash) => Some(KnownBy::Token(hash)),
            Err(problem) => {
                problems.push(format!("{place}: token_file: {}: {problem}", folder.join(file).display()));
                None
            }
        };
    }
    if let Some(certificate) = &section.certificate {
        return match certificate_name(certificate) {
            Ok(name) => Some(KnownBy::Certificate(name)),
            Err(problem) => {
                problems.push(format!("{place}: certificate: {problem}"));
                None
            }
        };
    }
    if let Some(uid) = section.uid {
        return Some(KnownBy::User(uid));
    }
    let issuer = section.issuer.as_deref().unwrap_or_default();
    if !issuers.contains(issuer) {
        problems.push(format!("{place}: issuer: {issuer:?} is no name of an `[[issuers]]`"));
    }
    claims(section, issuer, place, problems).map(KnownBy::Claims)
}

fn certificate_name(section: &CertificateSection) -> Result<CertificateName, String> {
    match (&section.spiffe, &section.dns, &section.uri) {
        (Some(pattern), None, None) => {
            let pattern = SpiffePattern::parse(pattern).map_err(|problem| format!("spiffe: {pattern:?} {problem}"))?;
            Ok(CertificateName::Spiffe(pattern))
        }
        (None, Some(name), None) => {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
            if name.is_empty() || name.len() > 255 || !name.bytes().all(fits) {
                return Err(format!("dns: {name:?} is no DNS name in lower case; a wildcard is none"));
            }
            Ok(CertificateName::Dns(name.clone()))
        }
        (None, None, Some(uri)) => {
            if uri.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("spiffe://")) {
                return Err(format!("uri: {uri:?} is a SPIFFE id: write it as `spiffe`"));
            }
            if !uri.contains(':') || !uri.bytes().all(|byte| byte.is_ascii_graphic()) || uri.len() > 2048 {
                return Err(format!("uri: {uri:?} is no URI"));
            }
            Ok(CertificateName::Uri(uri.clone()))
        }
        (None, None, None) => Err("names none of spiffe, dns and uri".to_owned()),
        _ => Err("names more than one of spiffe, dns and uri; one is enough".to_owned()),
    }
}

/// What a token of an issuer must say, and which of its claims is the person or the principal.
fn claims(section: &CallerSection, issuer: &str, place: &str, problems: &mut Vec<String>) -> Option<RequiredClaims> {
    let claims = section.claims.clone().unwrap_or_default();
    if claims.iter().any(|(name, text)| name.is_empty() || text.is_empty()) {
        problems.push(format!("{place}: claims: a name or a value is empty"));
    }
    // An approver is the person of its token, unless it is said which one it is or speaks for.
    let is_person = section.role == "approver" && section.principal.is_none() && section.asserts_principal.is_none();
    let principal_claim = match &section.principal_claim {
        Some(claim) if !is_person && section.role != "agent" => {
            problems.push(format!("{place}: principal_claim: means nothing for this caller"));
            Some(claim.clone())
        }
        Some(claim) if claim.is_empty() => {
            problems.push(format!("{place}: principal_claim: is empty"));
            None
        }
        Some(claim) => Some(claim.clone()),
        None => is_person.then(|| "sub".to_owned()),
    };
    if claims.is_empty() && principal_claim.is_none() {
        problems.push(format!(
            "{place}: claims: is missing: every token of the issuer would be this caller; say what its tokens claim, such as \
             `claims = {{ client_id = \"agent-runtime\" }}`"
        ));
    }
    Some(RequiredClaims { issuer: Identifier::parse(issuer).ok()?, claims, principal_claim })
}

fn token_in(path: &Path) -> Result<TokenHash, String> {
    super::is_file(path)?;
    let mut text = Zeroizing::new(String::with_capacity(4096 + 64));
    let file = std::fs::File::open(path).map_err(|cause| cause.to_string())?;
    let read = file.take(TOKEN_BYTES + 1).read_to_string(&mut text).map_err(|cause| cause.to_string())?;
    if read as u64 > TOKEN_BYTES {
        return Err(format!("is larger than {TOKEN_BYTES} bytes"));
    }
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
                (None, None) if section.issuer.is_some() => Some(Powers::Claimed),
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
