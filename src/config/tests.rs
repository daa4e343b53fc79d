use super::*;
use crate::auth::token::TokenHash;
use crate::auth::{AgentBounds, Caller, NewCaller, Powers};
use crate::domain::pattern::Pattern;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::AskedLimit;
use std::sync::Arc;

pub(super) fn load(text: &str) -> Result<Config, ConfigProblems> {
    load_with(text, &Overrides::default())
}

pub(super) fn load_with(text: &str, overrides: &Overrides) -> Result<Config, ConfigProblems> {
    let (file, unknown) = File::parse(text).map_err(|problem| ConfigProblems(vec![problem]))?;
    let config = resolve(file, Path::new("/etc/countersign"), overrides);
    if unknown.is_empty() { config } else { Err(ConfigProblems(unknown)) }
}

fn resolve(file: File, folder: &Path, overrides: &Overrides) -> Result<Config, ConfigProblems> {
    let (config, problems) = Config::resolve(file, folder, overrides);
    if problems.is_empty() { Ok(config) } else { Err(ConfigProblems(problems)) }
}

fn hash(byte: char) -> String {
    byte.to_string().repeat(64)
}

#[test]
fn nothing_said_means_the_documented_defaults() {
    let config = load("").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7400");
    assert_eq!(config.health_listen.to_string(), "127.0.0.1:7401");
    assert_eq!(config.policy, Path::new("/etc/countersign/policy"));
    assert_eq!(config.store.sqlite().unwrap().path, Path::new("/etc/countersign/countersign.db"));
    assert_eq!(config.secret_file, Path::new("/etc/countersign/countersign.db.secret"));
    assert_eq!(config.grace_period, Duration::from_secs(10));
    assert_eq!(
        config.question_limits,
        QuestionLimits {
            per_principal: 100,
            per_agent: 1_000,
            per_action: 50,
            asked: Some(AskedLimit { most: 300, within: Duration::from_secs(60 * 60) }),
            cool_off: Duration::from_secs(5 * 60),
        }
    );
    assert_eq!(config.arguments_bytes, 256 * 1024);
    assert!(!config.reflection && !config.store.sqlite().unwrap().accept_clock);
    assert_eq!(config.sweep_every, Duration::from_secs(1));
    assert_eq!(config.retention, Retention::default());
}

#[test]
fn retention_is_a_duration_or_never() {
    let hours = |hours: u64| Some(Duration::from_secs(hours * 60 * 60));
    let text = "[retention]\nerase_after = \"1h\"\napprovals = \"never\"\nexecutions = \"2h\"\nwaits = \"never\"\n\
                audit_records = \"48h\"\n[sweeper]\nevery = \"250ms\"";
    let config = load(text).unwrap();
    let said = Retention {
        erase_after: hours(1),
        approvals: None,
        executions: hours(2),
        waits: None,
        audit_records: hours(48),
    };
    assert_eq!((config.retention, config.sweep_every), (said, Duration::from_millis(250)));
    let text = "[retention]\nerase_after = \"soon\"\napprovals = \"0s\"\nexecutions = \"999ms\"\nwaits = \"\"\n\
                audit_records = \"36501d\"\n[sweeper]\nevery = \"0s\"";
    let problems = load(text).unwrap_err().0.join("\n");
    for key in
        ["erase_after: \"soon\"", "approvals: \"0s\"", "executions: \"999ms\"", "waits: \"\"", "records: \"36501d\""]
    {
        assert!(problems.contains(key), "{key} in {problems}");
    }
    assert!(problems.contains("sweeper.every: \"0s\""), "{problems}");
}

#[test]
fn what_is_deleted_is_erased_first() {
    for (erase, approvals, holds) in [
        ("1d", "1d", true),
        ("1d", "never", true),
        ("never", "never", true),
        ("25h", "1d", false),
        ("never", "90d", false),
    ] {
        let text = format!("[retention]\nerase_after = \"{erase}\"\napprovals = \"{approvals}\"");
        match load(&text) {
            Ok(_) => assert!(holds, "{erase} {approvals}"),
            Err(problems) => {
                assert!(!holds && problems.0.len() == 1, "{problems}");
                assert!(problems.0[0].starts_with("retention.erase_after: "), "{problems}");
            }
        }
    }
}

#[test]
fn flags_win_over_the_file() {
    let file = toml::from_str("listen = \"127.0.0.1:1\"\npolicy = \"a\"").unwrap();
    let overrides =
        Overrides { listen: Some("127.0.0.1:2".to_owned()), policy: Some(PathBuf::from("b")), ..Overrides::default() };
    let config = resolve(file, Path::new("/etc"), &overrides).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:2");
    assert_eq!(config.policy, Path::new("b"), "a flag's path is relative to the working directory");
}

#[test]
fn every_problem_is_named_at_once() {
    let text = format!(
        "listen = \"nowhere\"\ngrace_period = \"soon\"\n[store]\nreaders = 0\n[limits]\nopen_per_agent = 0\n\
         [log]\nformat = \"xml\"\n\
         [[callers]]\nname = \"a\"\nrole = \"agent\"\ntoken_sha256 = \"{0}\"\nprincipal = \"dana\"\n\
         [[callers]]\nname = \"a\"\nrole = \"approver\"\ntoken_sha256 = \"{0}\"\n\
         [[callers]]\nname = \"c\"\nrole = \"king\"\ntoken_sha256 = \"short\"\n\
         [[callers]]\nname = \" d\"\nrole = \"operator\"\nagents = [\"*\"]\n",
        hash('a')
    );
    let problems = load(&text).unwrap_err().0.join("\n");
    for part in [
        "listen: \"nowhere\"",
        "grace_period: \"soon\"",
        "store.readers: 0",
        "limits.open_per_agent: 0",
        "log.format: \"xml\"",
        "callers[0] (a): principal: means nothing for the role agent",
        "callers[1] (a): another caller has this name",
        "callers[1] (a): has the same token as callers[0] (a) (role agent): one credential opens one door",
        "callers[1] (a): an approver is a person",
        "callers[2] (c): token_sha256",
        "callers[2] (c): role: \"king\"",
        "callers[3] ( d): has no credential",
        "callers[3] ( d): name",
        "callers[3] ( d): agents: means nothing for the role operator",
    ] {
        assert!(problems.contains(part), "{part}\nnot in\n{problems}");
    }
}

#[test]
fn one_credential_never_opens_both_the_agents_and_the_approvers_door() {
    let text = format!(
        "[[callers]]\nname = \"runtime\"\nrole = \"agent\"\ntoken_sha256 = \"{0}\"\n\
         [[callers]]\nname = \"dana\"\nrole = \"approver\"\nprincipal = \"dana\"\ntoken_sha256 = \"{0}\"\n",
        hash('b')
    );
    assert!(load(&text).unwrap_err().to_string().contains("one credential opens one door"));
}

#[test]
fn every_unknown_key_is_named_with_its_place() {
    let text =
        "liste = \"x\"\n[store]\nsqlit = \"x\"\n[preview]\nmax = 1\n[[callers]]\nname = \"a\"\nadmin = true\n[extra]\n";
    let problems = load(text).unwrap_err().0;
    assert_eq!(
        problems,
        ["callers.0.admin", "extra", "liste", "preview.max", "store.sqlit"].map(|key| format!("{key}: is no key"))
    );
}

#[test]
fn a_value_of_another_type_is_named_with_its_line() {
    let problem = load("listen = \"127.0.0.1:1\"\n[store]\nreaders = \"four\"\n").unwrap_err().to_string();
    assert!(problem.starts_with("line 3: ") && problem.contains("invalid type"), "{problem}");
    let problem = load("listen = \n").unwrap_err().to_string();
    assert!(problem.starts_with("line 1: "), "{problem}");
}

#[test]
fn a_token_file_is_hashed_and_its_content_shown_nowhere() {
    let folder = std::env::temp_dir().join(format!("countersign-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), "cst_0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::write(folder.join("short"), "secret-word\n").unwrap();
    let section = |file: &str| {
        let text = format!(
            "[[callers]]\nname = \"a\"\nrole = \"agent\"\nagents = [\"*\"]\nprincipals = [\"*\"]\ntoken_file = \"{file}\""
        );
        resolve(toml::from_str(&text).unwrap(), &folder, &Overrides::default())
    };
    let config = section("token").unwrap();
    let everyone = || vec![Pattern::new("*")];
    let bounds = AgentBounds { agents: everyone(), principals: everyone() };
    let caller = Caller { name: Identifier::parse("a").unwrap(), powers: Powers::Agent(Arc::new(bounds)) };
    let token = TokenHash::of(b"cst_0123456789abcdef0123456789abcdef");
    assert!(config.callers.changed(&Callers::new(vec![(token, caller)])).is_empty());
    let refused = section("short").unwrap_err().to_string();
    assert!(refused.contains("at least 24") && !refused.contains("secret-word"), "{refused}");
    assert!(section("absent").unwrap_err().to_string().contains("token_file"));
    assert!(!format!("{config:?}").contains("cst_"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_credential_ends_at_an_instant_whose_offset_is_said() {
    let with = |expires: &str| {
        load(&format!(
            "[[callers]]\nname = \"ops\"\nrole = \"operator\"\ntoken_sha256 = \"{}\"\nexpires = {expires}\n",
            hash('a')
        ))
    };
    let ending = |micros: i64| {
        let caller = Caller { name: Identifier::parse("ops").unwrap(), powers: Powers::Operator };
        let hash = TokenHash::parse(&hash('a')).unwrap();
        Callers::expiring(vec![NewCaller {
            expires: Some(Timestamp::from_micros(micros)),
            ..NewCaller::bearer(hash, caller)
        }])
    };
    for (text, micros) in [
        ("\"2027-01-01T00:00:00Z\"", 1_798_761_600_000_000),
        ("2027-01-01T00:00:00Z", 1_798_761_600_000_000),
        ("\"2027-01-01T01:00:00+01:00\"", 1_798_761_600_000_000),
        ("\"2027-01-01T00:00:00.000001Z\"", 1_798_761_600_000_001),
    ] {
        assert!(with(text).unwrap().callers.changed(&ending(micros)).is_empty(), "{text}");
    }
    for text in
        ["\"2027-01-01\"", "2027-01-01", "\"2027-01-01T00:00:00\"", "2027-01-01T00:00:00", "\"\"", "1", "\"soon\""]
    {
        let problems = with(text).unwrap_err().to_string();
        assert!(
            problems.contains("callers[0] (ops): expires: ") && problems.contains("2027-01-01T00:00:00Z"),
            "{text}: {problems}"
        );
    }
}

#[test]
fn the_policy_need_not_hold_still_for_ever() {
    assert_eq!(load("").unwrap().policy_settle, Duration::from_millis(300));
    assert_eq!(load("policy_settle = \"2s\"").unwrap().policy_settle, Duration::from_secs(2));
    for text in ["0s", "2m", "soon"] {
        assert!(
            load(&format!("policy_settle = \"{text}\"")).unwrap_err().to_string().contains("policy_settle"),
            "{text}"
        );
    }
}

#[test]
fn every_problem_of_credentials_and_issuers_is_named_at_once() {
    let caller =
        |name: &str, role: &str, rest: &str| format!("[[callers]]\nname = \"{name}\"\nrole = \"{role}\"\n{rest}\n");
    let issuer = |name: &str, rest: &str| format!("[[issuers]]\nname = \"{name}\"\n{rest}\n");
    let whole = "issuer = \"https://id\"\naudience = \"cs\"\njwks_url = \"https://id/keys\"";
    let text = [
        issuer("corp", whole),
        issuer("corp", whole),
        issuer("no-audience", "issuer = \"x\"\njwks_url = \"https://x\""),
        issuer("empty", "issuer = \"\"\naudience = []\nalgorithms = []\ntyp = []"),
        issuer(
            "weak",
            "issuer = \"y\"\naudience = \"cs\"\nalgorithms = [\"none\", \"HS256\", \"RS256\"]\ntolerance = \"6m\"\n\
             jwks_url = \"http://id.example.com/\"\njwks_ca_file = \"absent.pem\"\ngroups = { a = \" b\" }",
        ),
        issuer("both", "issuer = \"z\"\naudience = \"cs\"\njwks_url = \"https://x\"\njwks_file = \"absent.json\""),
        issuer("file", "issuer = \"f\"\naudience = \"cs\"\njwks_file = \"absent.json\"\ngroups_claim = \"g\""),
        issuer("often", "issuer = \"o\"\naudience = \"cs\"\njwks_url = \"https://o\"\nrefresh_at_most_every = \"2h\""),
        caller("two", "operator", "uid = 1\ncertificate = { dns = \"a\" }"),
        caller("same-uid", "operator", "uid = 2"),
        caller("other-uid", "agent", "uid = 2"),
        caller("mesh", "agent", "certificate = { spiffe = \"spiffe://a/ns/*\" }"),
        caller("person", "approver", "principal = \"x\"\ncertificate = { spiffe = \"spiffe://a/ns/x\" }"),
        caller("domain", "agent", "certificate = { spiffe = \"spiffe://*/x\" }"),
        caller("wild", "agent", "certificate = { dns = \"*.acme.com\" }"),
        caller("kinds", "agent", "certificate = { dns = \"a\", uri = \"urn:a\" }"),
        caller("none", "agent", "certificate = {}"),
        caller("uri", "agent", "certificate = { uri = \"SPIFFE://a/b\" }"),
        caller("anybody", "approver", "issuer = \"corp\""),
        caller("runtime", "agent", "issuer = \"corp\"\nclaims = { azp = \"runtime\" }"),
        caller("unknown", "agent", "issuer = \"nobody\"\nclaims = { azp = \"\" }"),
        caller("no-issuer", "agent", "uid = 3\nclaims = { azp = \"x\" }\nprincipal_claim = \"sub\""),
        caller(
            "pointless",
            "operator",
            "issuer = \"corp\"\nclaims = { azp = \"p\", x = \"1\" }\nprincipal_claim = \"sub\"",
        ),
        caller("limits", "operator", "uid = 4\nrate = 0\nburst = 5\ncalls = 0\nstreams = 70000"),
        caller("every", "operator", "issuer = \"corp\""),
        "[limits]\nmessage_bytes = 100000\nburst_per_caller = 1\ncalls_per_caller = 0\n".to_owned(),
    ]
    .concat();
    let problems = load(&text).unwrap_err().0.join("\n");
    for part in [
        "issuers[1] (corp): another issuer has this name",
        "issuers[1] (corp): issuer: another issuer has this one",
        "issuers[2] (no-audience): audience: is required",
        "issuers[3] (empty): issuer: is required",
        "issuers[3] (empty): audience: is required",
        "issuers[3] (empty): algorithms: names none",
        "issuers[3] (empty): typ: is empty",
        "issuers[3] (empty): has neither jwks_file nor jwks_url",
        "issuers[4] (weak): algorithms: \"none\" is none of `RS256`",
        "issuers[4] (weak): algorithms: \"HS256\" is none of",
        "issuers[4] (weak): tolerance: \"6m\"",
        "issuers[4] (weak): jwks_url: is no `https://HOST/PATH` URL",
        "issuers[4] (weak): jwks_ca_file: ",
        "issuers[4] (weak): groups.\"a\"",
        "issuers[4] (weak): groups: means nothing without groups_claim",
        "issuers[5] (both): has both jwks_file and jwks_url",
        "issuers[6] (file): jwks_file: ",
        "issuers[6] (file): groups_claim: means nothing without groups",
        "issuers[7] (often): refresh_at_most_every: is longer",
        "callers[0] (two): has both certificate and uid",
        "callers[2] (other-uid): has the same uid as callers[1] (same-uid) (role operator): one credential opens one door",
        "callers[4] (person): one certificate may be this and callers[3] (mesh) (role agent): one credential",
        "callers[5] (domain): certificate: spiffe: ",
        "callers[6] (wild): certificate: dns: ",
        "callers[7] (kinds): certificate: names more than one",
        "callers[8] (none): certificate: names none",
        "callers[9] (uri): certificate: uri: ",
        "callers[11] (runtime): one token may be this and callers[10] (anybody) (role approver)",
        "callers[12] (unknown): issuer: \"nobody\" is no name",
        "callers[12] (unknown): claims: a name or a value is empty",
        "callers[13] (no-issuer): claims: means nothing without an issuer",
        "callers[13] (no-issuer): principal_claim: means nothing without an issuer",
        "callers[14] (pointless): principal_claim: means nothing for this caller",
        "callers[15] (limits): burst: means nothing without a rate",
        "callers[15] (limits): calls: 0 is not from 1",
        "callers[15] (limits): streams: 70000 is not from 1",
        "callers[16] (every): claims: is missing",
        "limits.message_bytes: 100000 has no room",
        "limits.burst_per_caller: means nothing without a rate",
        "limits.calls_per_caller: 0 is not from 1",
    ] {
        assert!(problems.contains(part), "{part}\nnot in\n{problems}");
    }
}

#[test]
fn a_caller_has_its_own_limits_or_those_of_all() {
    let caller = |name: &str, uid: u32, rest: &str| {
        format!("[[callers]]\nname = \"{name}\"\nrole = \"operator\"\nuid = {uid}\n{rest}\n")
    };
    let of = |rest: &str, calls, streams, rate: Option<(u32, u32)>| {
        let known_by = crate::auth::KnownBy::User(1);
        let caller = Caller { name: Identifier::parse("x").unwrap(), powers: Powers::Operator };
        let rate = rate.map(|(per_second, burst)| crate::auth::Rate { per_second, burst });
        let limits = crate::auth::CallerLimits { calls, streams, rate };
        let want = Callers::expiring(vec![NewCaller { known_by, caller: caller.clone(), expires: None, limits }]);
        (rest.to_owned(), want)
    };
    let general =
        "[limits]\ncalls_per_caller = 10\nstreams_per_caller = 20\nrate_per_caller = 30\nburst_per_caller = 40\n";
    for (rest, want) in [
        of("", 10, 20, Some((30, 40))),
        of("calls = 1\nstreams = 2", 1, 2, Some((30, 40))),
        of("rate = 5", 10, 20, Some((5, 5))),
        of("rate = 5\nburst = 6", 10, 20, Some((5, 6))),
        of("burst = 6", 10, 20, Some((30, 6))),
        of("rate = 0", 10, 20, None),
    ] {
        let config = load(&(general.to_owned() + &caller("x", 1, &rest))).unwrap();
        assert!(config.callers.changed(&want).is_empty(), "{rest}");
    }
    let defaults = load(&caller("x", 1, "")).unwrap();
    assert!(defaults.callers.changed(&of("", 1024, 1024, None).1).is_empty());
}

#[test]
fn loopback_alone_needs_no_tls_for_keys() {
    let with = |url: &str| {
        load(&format!("[[issuers]]\nname = \"c\"\nissuer = \"i\"\naudience = \"a\"\njwks_url = \"{url}\"\n")).is_ok()
    };
    for good in ["https://id.example.com/keys", "http://127.0.0.1:80/x", "http://localhost/x", "http://[::1]:8/x"] {
        assert!(with(good), "{good}");
    }
    for bad in [
        "http://id.example.com/keys",
        "http://127.0.0.1.evil.com/x",
        "http://localhost@evil.com/x",
        "http://localhost:80@evil.com/x",
        "http://127.0.0.1:x/",
        "https://a@evil.com/",
        "https://",
        "file:///etc/passwd",
        "HTTP://localhost/x",
        "",
        "https://a b",
    ] {
        assert!(!with(bad), "{bad}");
    }
}
