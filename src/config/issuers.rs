//! The issuers of tokens (OIDC) of a configuration.

use super::{file_bytes, span};
use crate::auth::{Algorithm, Issuer, IssuerSettings, KEY_SET_BYTES, KeySet, KeySource};
use crate::domain::text::Identifier;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TOLERANCE: Duration = Duration::from_secs(30);
const MOST_TOLERANCE: Duration = Duration::from_secs(5 * 60);
const AT_LEAST_EVERY: Duration = Duration::from_secs(60 * 60);
const AT_MOST_EVERY: Duration = Duration::from_secs(60);
/// How a certificate begins in PEM.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// One `[[issuers]]` section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IssuerSection {
    pub(super) name: String,
    issuer: Option<String>,
    audience: Option<OneOrMore>,
    algorithms: Option<Vec<String>>,
    typ: Option<Vec<String>>,
    tolerance: Option<String>,
    jwks_file: Option<PathBuf>,
    jwks_url: Option<String>,
    jwks_ca_file: Option<PathBuf>,
    refresh_at_least_every: Option<String>,
    refresh_at_most_every: Option<String>,
    groups_claim: Option<String>,
    groups: Option<BTreeMap<String, String>>,
}

/// A text, or a list of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Every issuer, or what is wrong with each.
pub(super) fn resolve(sections: Vec<IssuerSection>, folder: &Path, problems: &mut Vec<String>) -> Vec<Issuer> {
    let (mut names, mut identities) = (BTreeSet::new(), BTreeSet::new());
    let mut issuers = Vec::new();
    for (index, section) in sections.into_iter().enumerate() {
        let place = format!("issuers[{index}] ({})", section.name.escape_debug());
        if !names.insert(section.name.clone()) {
            problems.push(format!("{place}: another issuer has this name"));
        }
        // A token says which issuer it is from by this alone.
        if section.issuer.as_ref().is_some_and(|issuer| !identities.insert(issuer.clone())) {
            problems.push(format!("{place}: issuer: another issuer has this one"));
        }
        let said = problems.len();
        let resolved = issuer(section, folder, &place, problems);
        issuers.extend(resolved.filter(|_| problems.len() == said));
    }
    issuers
}

fn issuer(section: IssuerSection, folder: &Path, place: &str, problems: &mut Vec<String>) -> Option<Issuer> {
    let name = Identifier::parse(&section.name).map_err(|problem| problems.push(format!("{place}: name: {problem}")));
    let mut said = |key: &str, text: Option<String>| {
        let text = text.filter(|text| !text.is_empty() && text.len() <= 2048);
        if text.is_none() {
            problems.push(format!("{place}: {key}: is required, and at most 2048 bytes"));
        }
        text
    };
    let issuer = said("issuer", section.issuer);
    let audience = match section.audience {
        None => Vec::new(),
        Some(OneOrMore::One(one)) => vec![one],
        Some(OneOrMore::More(more)) => more,
    };
    // Without it a token that was made for somebody else would do.
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        problems.push(format!("{place}: audience: is required: what `aud` of a token for this sidecar says"));
    }
    let algorithms = algorithms(section.algorithms, place, problems);
    if section.typ.as_ref().is_some_and(|types| types.is_empty() || types.iter().any(String::is_empty)) {
        problems.push(format!("{place}: typ: is empty; left out it is JWT, at+jwt, or not said"));
    }
    let mut spanning = |key: &str, text: Option<String>, default: Duration, least: Duration, most: Duration| {
        span(&format!("{place}: {key}"), text, default, (least, most), problems)
    };
    let second = Duration::from_secs(1);
    let tolerance = spanning("tolerance", section.tolerance, TOLERANCE, Duration::ZERO, MOST_TOLERANCE);
    let at_least = spanning("refresh_at_least_every", section.refresh_at_least_every, AT_LEAST_EVERY, second, DAY);
    let at_most = spanning("refresh_at_most_every", section.refresh_at_most_every, AT_MOST_EVERY, second, DAY);
    if at_most > at_least {
        problems.push(format!("{place}: refresh_at_most_every: is longer than refresh_at_least_every"));
    }
    let maps_none = section.groups.as_ref().is_none_or(BTreeMap::is_empty);
    let mut groups = BTreeMap::new();
    for (theirs, ours) in section.groups.into_iter().flatten() {
        match Identifier::parse(&ours) {
            Ok(ours) => drop(groups.insert(theirs, ours)),
            Err(problem) => problems.push(format!("{place}: groups.{theirs:?}: {problem}")),
        }
    }
    match (&section.groups_claim, maps_none) {
        (None, false) => problems.push(format!("{place}: groups: means nothing without groups_claim")),
        (Some(_), true) => {
            problems.push(format!("{place}: groups_claim: means nothing without groups: only those count"));
        }
        (None, true) | (Some(_), false) => {}
    }
    let (source, keys) = source(section.jwks_file, section.jwks_url, section.jwks_ca_file, folder, place, problems)?;
    let settings = IssuerSettings {
        name: name.ok()?,
        issuer: issuer?,
        audience,
        algorithms,
        types: section.typ,
        tolerance,
        groups_claim: section.groups_claim,
        groups,
        source,
        refresh_at_least_every: at_least,
        refresh_at_most_every: at_most,
    };
    Some(Issuer::new(settings, keys))
}

fn algorithms(said: Option<Vec<String>>, place: &str, problems: &mut Vec<String>) -> Vec<Algorithm> {
    let Some(said) = said else { return Algorithm::DEFAULT.to_vec() };
    if said.is_empty() {
        problems.push(format!("{place}: algorithms: names none"));
    }
    let mut algorithms = Vec::new();
    for name in said {
        match Algorithm::parse(&name) {
            Some(algorithm) => algorithms.push(algorithm),
            None => {
                let known = Algorithm::ALL.map(|algorithm| format!("`{}`", algorithm.as_str())).join(", ");
                problems.push(format!("{place}: algorithms: {name:?} is none of {known}"));
            }
        }
    }
    algorithms
}

fn source(
    file: Option<PathBuf>,
    url: Option<String>,
    authorities: Option<PathBuf>,
    folder: &Path,
    place: &str,
    problems: &mut Vec<String>,
) -> Option<(KeySource, Option<KeySet>)> {
    if authorities.is_some() && url.is_none() {
        problems.push(format!("{place}: jwks_ca_file: means nothing without jwks_url"));
    }
    match (file, url) {
        (Some(file), None) => {
            let path = folder.join(file);
            let keys = file_bytes(&path, KEY_SET_BYTES).and_then(|text| KeySet::parse(&text));
            let keys =
                keys.map_err(|problem| problems.push(format!("{place}: jwks_file: {}: {problem}", path.display())));
            Some((KeySource::File(path), keys.ok()))
        }
        (None, Some(url)) => {
            if !is_safe(&url) {
                // It may have a password in it, so it is not repeated.
                problems.push(format!(
                    "{place}: jwks_url: is no `https://HOST/PATH` URL without user and password; `http://` is for loopback alone"
                ));
            }
            let authorities = authorities.map(|file| folder.join(file));
            let certificates = |text: Vec<u8>| match text.windows(CERTIFICATE.len()).any(|part| part == CERTIFICATE) {
                true => Ok(()),
                false => Err("has no certificate in it".to_owned()),
            };
            if let Some(path) = &authorities
                && let Err(problem) = file_bytes(path, 1024 * 1024).and_then(certificates)
            {
                problems.push(format!("{place}: jwks_ca_file: {}: {problem}", path.display()));
            }
            Some((KeySource::Url { url, authorities }, None))
        }
        (Some(_), Some(_)) => {
            problems.push(format!("{place}: has both jwks_file and jwks_url; one is enough"));
            None
        }
        (None, None) => {
            problems.push(format!("{place}: has neither jwks_file nor jwks_url"));
            None
        }
    }
}

/// Whether what comes from this URL comes from whom it names.
fn is_safe(url: &str) -> bool {
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.len() > 2048 {
        return false;
    }
    let host = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    if let Some(rest) = url.strip_prefix("https://") {
        let host = host(rest);
        return !host.is_empty() && !host.contains('@');
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = host(rest);
    let is_port = |rest: &str| {
        rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    ["127.0.0.1", "[::1]", "localhost"].iter().any(|name| host.strip_prefix(name).is_some_and(is_port))
}
