//! What holds for whatever bytes there are: each target panics where it does not. `tests/fuzz.rs` runs them over the corpus
//! and over what it makes of it, and any fuzzer that hands over bytes can.

use countersign::domain::arguments::Arguments;
use countersign::domain::canonical::{Canonical, Limits, MAX_BYTES, Problem, Top, canonicalise_bytes};
use countersign::domain::decision::{Decision, PolicyAnswer};
use countersign::domain::fingerprint::Fingerprint;
use countersign::domain::ids::ApprovalId;
use countersign::domain::invocation::{Invocation, Objective, Said};
use countersign::domain::permit::{Claims, Parts};
use countersign::domain::policy::{Policy, PolicyCall, SourceFile};
use countersign::domain::preview::{MAX_OMISSIONS, PreviewConfig, Previewer};
use countersign::domain::text::{Identifier, is_hidden};
use countersign::domain::time::Timestamp;
use countersign::secrets::{Keyring, PermitKeys, ServerSecret};
use std::sync::OnceLock;

/// What a permit says.
const CLAIMS: &str = r#"{"account":"work-mailbox-a","action":"GMAIL_SEND_EMAIL","agent":"assistant",
    "args_sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","attempt_id":"5b7a4a2e-7c1b-4b59-9d6c-0a1b2c3d4e5f",
    "aud":"countersign-permit","connector":"gmail","exp":1767225900,
    "fingerprint":"v1:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","iat":1767225600,"idempotency_key":"key",
    "iss":"countersign","jti":"019b0000-0000-7000-8000-000000000001","policy_revision":"r","principal":"olga"}"#;

/// A name, and what is to hold.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Panics where something does not hold for these bytes.
    pub run: fn(&[u8]),
}

/// Every one.
pub const TARGETS: &[Target] = &[
    Target { name: "canonical", run: canonical },
    Target { name: "fingerprint", run: fingerprint },
    Target { name: "preview", run: preview },
    Target { name: "policy", run: policy },
    Target { name: "expression", run: expression },
    Target { name: "consume_token", run: consume_token },
    Target { name: "page_token", run: page_token },
    Target { name: "permit", run: permit },
    Target { name: "jwks", run: jwks },
];

/// What divides an input of two parts.
pub const DIVIDER: u8 = 0xff;

/// The secret of the tokens in the corpus, as its file has it.
pub const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// One value has one text: what comes out is canonical, and reading it again changes nothing.
fn canonical(bytes: &[u8]) {
    let limits = Limits { max_bytes: MAX_BYTES, top: Top::Any };
    let text = match canonicalise_bytes(bytes, limits) {
        Ok(text) => text,
        Err(refusal) => {
            assert!(refusal.offset <= bytes.len(), "a refusal names a place that is there");
            assert!(!refusal.to_string().is_empty());
            return;
        }
    };
    assert_eq!(Canonical::from_stored(&text).expect("what was written is canonical").as_str(), text);
    match canonicalise_bytes(text.as_bytes(), limits) {
        Ok(again) => assert_eq!(again, text),
        // A number may have become longer than may be handed over.
        Err(refusal) => assert!(
            matches!(refusal.problem, Problem::TooManyDigits | Problem::ExponentOutOfRange | Problem::TooLarge { .. }),
            "{refusal}"
        ),
    }
    if let Ok(arguments) = Arguments::from_stored(&text) {
        assert_eq!(arguments.value().to_canonical(), text, "its value is that of its text");
    }
}

/// Two calls have one fingerprint where their arguments are one value, and nowhere else; and where they are for one objective.
fn fingerprint(bytes: &[u8]) {
    let Some((one, other)) = divided(bytes) else { return };
    let read = |bytes: &[u8]| Arguments::parse(std::str::from_utf8(bytes).ok()?, MAX_BYTES).ok();
    let (Some(one), Some(other)) = (read(one), read(other)) else { return };
    let same = one.canonical() == other.canonical();
    assert_eq!(fingerprint_of(&one, None) == fingerprint_of(&other, None), same);
    assert_eq!(one.digest() == other.digest(), same);
    assert_eq!(one == other, same);
    assert_ne!(fingerprint_of(&one, None), fingerprint_of(&one, Some(0)));
    assert_ne!(fingerprint_of(&one, Some(0)), fingerprint_of(&one, Some(1)));
}

/// What a person is shown is bounded, readable, and hides and reorders nothing; and it is the same each time.
fn preview(bytes: &[u8]) {
    let Some(arguments) = std::str::from_utf8(bytes).ok().and_then(|text| Arguments::parse(text, MAX_BYTES).ok())
    else {
        return;
    };
    let config = PreviewConfig::default();
    let most = config.max_total_bytes;
    let preview = Previewer::new(config).expect("the default is one").preview(arguments.value());
    assert!(preview.json.len() <= most && preview.omissions.len() <= MAX_OMISSIONS);
    assert!(!preview.json.contains(is_hidden));
    assert!(serde_json::from_str::<serde_json::Value>(&preview.json).is_ok_and(|value| value.is_object()));
    assert!(preview.omissions.iter().all(|omission| !omission.pointer.contains(is_hidden)));
    assert_eq!(Previewer::default().preview(arguments.value()), preview);
}

/// A policy loads whole, or its problems are named; and a loaded one answers whatever it is asked.
fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match loaded(text) {
        Ok(policy) => {
            assert_eq!(policy.revision().len(), 64);
            assert_eq!(loaded(text).expect("it loads each time").revision(), policy.revision());
            let connectors: Vec<String> = policy.connectors().map(|connector| connector.name).take(4).collect();
            for connector in connectors.iter().map(String::as_str).chain(["gmail"]) {
                for action in ["GMAIL_SEND_EMAIL", "x"] {
                    answered(&policy, connector, action, &Arguments::default());
                }
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "what is refused has a reason");
            assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
        }
    }
}

/// An expression is refused when the policy loads, or is true, false or in error: and then its rule matches.
fn expression(bytes: &[u8]) {
    let (when, arguments) = divided(bytes).unwrap_or((bytes, b"{}"));
    let (Ok(when), Ok(arguments)) = (std::str::from_utf8(when), std::str::from_utf8(arguments)) else { return };
    let Ok(arguments) = Arguments::parse(arguments, MAX_BYTES) else { return };
    // JSON's strings are YAML's, but for characters that a policy may not have.
    let when = serde_json::Value::String(when.to_owned());
    let text = format!(
        "version: countersign.policy/v1\nconnectors:\n  gmail:\n    ceiling: write\n    confirm: never\n    actions: {{ GMAIL_SEND_EMAIL: \
         {{ scope: write, curated: true, tags: [a] }} }}\n    rules: [{{ name: it, effect: deny, when: {when} }}]\n"
    );
    let Ok(policy) = loaded(&text) else { return };
    let answer = answered(&policy, "gmail", "GMAIL_SEND_EMAIL", &arguments);
    let denied = matches!(answer.decision, Decision::Deny);
    assert_eq!(denied, !answer.rules.is_empty(), "the rule decides, and nothing else");
    let in_error = answer.rules.iter().any(|rule| rule.error.is_some());
    assert!(!in_error || denied, "what is in error counts as matching");
}

/// A token is accepted where it is, to the last byte, the one that is made for its approval.
fn consume_token(bytes: &[u8]) {
    let Ok(token) = std::str::from_utf8(bytes) else { return };
    if let Some(approval) = keyring().approval_of(token) {
        assert_eq!(keyring().consume_token(approval).as_str(), token);
    }
    assert!(keyring().absent_key_of(token).is_none_or(|id| token.contains(id)));
}

/// A page token is accepted for the query that it was made for, and is the one that is made for its cursor.
fn page_token(bytes: &[u8]) {
    let Some((query, token)) = divided(bytes) else { return };
    let Ok(token) = std::str::from_utf8(token) else { return };
    if let Some(cursor) = keyring().page_cursor(query, token) {
        assert_eq!(keyring().page_token(query, &cursor), token);
        let another = [query, b"x"].concat();
        assert_eq!(keyring().page_cursor(&another, token), None);
    }
}

/// A permit holds where it is, to the last byte, the one that is signed for what it says; and what is said is read as it was.
fn permit(bytes: &[u8]) {
    let Ok(token) = std::str::from_utf8(bytes) else { return };
    if let Ok(claims) = Parts::of(token).and_then(|parts| parts.claims()) {
        assert_eq!(Claims::parse(&claims.to_json()), Ok(claims));
    }
    match PermitKeys::of(keyring()).verify(token) {
        Ok(claims) => assert_eq!(keyring().first().permit().sign(&claims).expect("it is signed").as_str(), token),
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}

/// A set of keys is read as it is written, or refused.
fn jwks(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(keys) = PermitKeys::parse(text) {
        assert_eq!(PermitKeys::parse(&keys.to_jwks()), Ok(keys));
    }
}

/// Valid inputs of the targets that nobody writes by hand.
pub fn made() -> Vec<(&'static str, Vec<u8>)> {
    let approval = ApprovalId::parse("019b0000-0000-7000-8000-000000000001").expect("it is an id");
    let token = keyring().consume_token(approval).as_bytes().to_vec();
    let query = b"\x00\x00\x00\x00\x00\x00\x00\x09approvals".to_vec();
    let page = keyring().page_token(&query, "1767225600000000|019b0000-0000-7000-8000-000000000001");
    let claims = Claims::parse(CLAIMS).expect("it is what a permit says");
    let permit = keyring().first().permit().sign(&claims).expect("it is signed").as_str().as_bytes().to_vec();
    vec![
        ("consume_token", token),
        ("page_token", [query, vec![DIVIDER], page.into_bytes()].concat()),
        ("permit", permit),
        ("jwks", PermitKeys::of(keyring()).to_jwks().into_bytes()),
    ]
}

fn divided(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == DIVIDER)?;
    let (before, after) = bytes.split_at(at);
    Some((before, after.get(1..)?))
}

fn name(text: &str) -> Option<Identifier> {
    Identifier::parse(text).ok()
}

fn fingerprint_of(arguments: &Arguments, revision: Option<u64>) -> Fingerprint {
    let name = |text| name(text).expect("it is a name");
    let said = Said {
        principal: name("olga"),
        agent: name("assistant"),
        conversation: None,
        connector: name("gmail"),
        account: None,
        connection: None,
        action: name("GMAIL_SEND_EMAIL"),
        objective: revision.map(|revision| Objective { transcript: name("t"), id: name("i"), revision }),
        tool_definition_digest: None,
        labels: std::collections::BTreeMap::new(),
    };
    Invocation::new(said, arguments.clone()).subject.fingerprint
}

fn loaded(text: &str) -> Result<Policy, Vec<countersign::domain::policy::Problem>> {
    let file = SourceFile { path: "policy.yaml".to_owned(), text: text.to_owned() };
    Policy::load(&[file], &mut |_| Err("there is none".to_owned()))
}

/// The policy's answer, explained or not.
fn answered(policy: &Policy, connector: &str, action: &str, arguments: &Arguments) -> PolicyAnswer {
    let names = [name("olga"), name("assistant"), name(connector), name(action), name("work-mailbox-a")];
    let [Some(principal), Some(agent), Some(connector), Some(action), Some(account)] = &names else {
        unreachable!("a policy names connectors by identifiers");
    };
    let call = PolicyCall {
        principal,
        agent,
        conversation: None,
        connector,
        account: Some(account),
        action,
        arguments,
        tool_definition_digest: None,
        now: Timestamp::from_micros(1_767_225_600_000_000),
    };
    let answer = policy.evaluate(&call, false);
    let explained = policy.evaluate(&call, true);
    assert_eq!(
        (&answer.decision, answer.reason),
        (&explained.decision, explained.reason),
        "explaining decides nothing"
    );
    assert_eq!(answer.policy_revision, policy.revision());
    answer
}

fn keyring() -> &'static Keyring {
    static KEYRING: OnceLock<Keyring> = OnceLock::new();
    KEYRING.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("countersign-fuzz-{}.secret", std::process::id()));
        std::fs::write(&path, SECRET).expect("the temporary folder takes files");
        let secret = ServerSecret::read(&path);
        let _ = std::fs::remove_file(&path);
        let keys = secret.expect("it can be read").expect("it is there").keys().expect("keys are derived");
        Keyring::new(keys, Vec::new())
    })
}
