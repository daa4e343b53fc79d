//! What opens a door, credential by credential, and what must not.

#[path = "../../tests/tokens/mod.rs"]
mod tokens;

mod bearer;
mod connections;
mod cost;
mod jwt;

use super::token::TokenHash;
use super::*;
use crate::clock::ManualClock;
use crate::domain::pattern::Pattern;
use crate::domain::time::Timestamp;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokens::{Signer, base64url, key_set};

/// 2026-01-01T12:00:00Z.
const NOON: i64 = 1_767_268_800;
const ISSUER: &str = "https://id.example.com/realm";

struct Keys {
    ed: Signer,
    ec: Signer,
    rsa: Signer,
    /// Of no issuer.
    stranger: Signer,
}

static KEYS: LazyLock<Keys> =
    LazyLock::new(|| Keys { ed: Signer::ed(), ec: Signer::ec(), rsa: Signer::rsa(), stranger: Signer::ed() });

fn id(text: &str) -> Identifier {
    Identifier::parse(text).unwrap()
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text)).collect()
}

fn agent(principals: &[&str]) -> Powers {
    Powers::Agent(Arc::new(AgentBounds { agents: patterns(&["*"]), principals: patterns(principals) }))
}

fn new(name: &str, powers: Powers, known_by: KnownBy) -> NewCaller {
    let caller = Caller { name: id(name), powers };
    NewCaller { known_by, caller, expires: None, limits: CallerLimits::default() }
}

fn claims(pairs: &[(&str, &str)], principal_claim: Option<&str>) -> KnownBy {
    KnownBy::Claims(RequiredClaims {
        issuer: id("corp"),
        claims: pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        principal_claim: principal_claim.map(str::to_owned),
    })
}

fn settings() -> IssuerSettings {
    IssuerSettings {
        name: id("corp"),
        issuer: ISSUER.to_owned(),
        audience: vec!["countersign".to_owned(), "countersign-2".to_owned()],
        algorithms: Algorithm::DEFAULT.to_vec(),
        types: None,
        tolerance: Duration::from_secs(30),
        groups_claim: Some("groups".to_owned()),
        groups: BTreeMap::from([("idp-oncall".to_owned(), id("oncall")), ("idp-fin".to_owned(), id("finance"))]),
        source: KeySource::File(PathBuf::from("keys.json")),
        refresh_at_least_every: Duration::from_secs(3_600),
        refresh_at_most_every: Duration::from_secs(60),
    }
}

fn keys() -> KeySet {
    let Keys { ed, ec, rsa, .. } = &*KEYS;
    let all = [ed.jwk(r#""kid":"ed","#), ec.jwk(r#""kid":"ec","#), rsa.jwk(r#""kid":"rsa","#)];
    KeySet::parse(key_set(&all).as_bytes()).unwrap()
}

fn everybody() -> Vec<NewCaller> {
    vec![
        new("people", Powers::Claimed, claims(&[("azp", "console")], Some("sub"))),
        new("runtime", agent(&["*"]), claims(&[("azp", "agents")], None)),
        new("own", agent(&["olga", "team-*"]), claims(&[("azp", "own")], Some("on_behalf_of"))),
        new("chat", Powers::Asserts(patterns(&["*"])), claims(&[("azp", "chat")], None)),
        new("root", Powers::Operator, KnownBy::User(0)),
        new("static", agent(&["*"]), KnownBy::Token(TokenHash::of(b"a.static.token"))),
        new("dns", agent(&["*"]), KnownBy::Certificate(CertificateName::Dns("agent.acme.com".to_owned()))),
        new("uri", Powers::Operator, KnownBy::Certificate(CertificateName::Uri("urn:x:1".to_owned()))),
        new("spiffe", agent(&["*"]), spiffe("spiffe://acme.com/ns/*/sa/agent")),
        new("exact", Powers::Operator, spiffe("spiffe://acme.com/ops")),
    ]
}

fn spiffe(text: &str) -> KnownBy {
    KnownBy::Certificate(CertificateName::Spiffe(SpiffePattern::parse(text).unwrap()))
}

struct World {
    shared: SharedCallers,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        Self::of(everybody(), settings())
    }

    fn of(callers: Vec<NewCaller>, settings: IssuerSettings) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(NOON * 1_000_000)));
        let callers = Callers::of_issuers(callers, vec![Issuer::new(settings, Some(keys()))]);
        Self { shared: SharedCallers::new(callers, Arc::<ManualClock>::clone(&clock)), clock }
    }

    fn bearer(&self, token: &str, role: Role) -> Result<Credential, AuthError> {
        let header = format!("Bearer {token}");
        self.shared.authenticate(Presented { authorization: Authorization::One(header.as_bytes()), peer: None }, role)
    }

    fn peer(&self, peer: &Peer, role: Role) -> Result<Credential, AuthError> {
        self.shared.authenticate(Presented { authorization: Authorization::None, peer: Some(peer) }, role)
    }

    fn issuer(&self) -> Arc<Issuer> {
        Arc::clone(self.shared.now().issuers().next().unwrap())
    }
}

/// Claims of a good token, an hour long, with these in place of its own; an empty text takes one out.
fn said(changes: &[(&str, &str)]) -> String {
    let exp = (NOON + 3_600).to_string();
    let mut all = BTreeMap::from([
        ("iss", format!("\"{ISSUER}\"")),
        ("aud", "\"countersign\"".to_owned()),
        ("sub", "\"dana\"".to_owned()),
        ("azp", "\"console\"".to_owned()),
        ("exp", exp),
    ]);
    for (name, value) in changes {
        all.insert(name, (*value).to_owned());
    }
    let members = all.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn token(changes: &[(&str, &str)]) -> String {
    KEYS.ed.token(&KEYS.ed.header("ed"), &said(changes))
}

fn wrong(problem: JwtProblem) -> Option<AuthError> {
    Some(AuthError::Jwt(problem))
}
