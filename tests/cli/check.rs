//! `countersign check`.

use crate::support::{Countersign, Folder, GMAIL, Ran};
use std::os::unix::fs::PermissionsExt as _;

fn check(folder: &Folder, arguments: &[&str]) -> Ran {
    Countersign::new(&["check"]).arguments(arguments).within(folder).run()
}

const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn callers() -> String {
    let caller = |name: &str, role: &str, last: char, rest: &str| {
        format!("[[callers]]\nname = '{name}'\nrole = '{role}'\ntoken_sha256 = '{}{last}'\n{rest}\n", &HASH[1..])
    };
    [
        caller("runtime", "agent", 'a', "agents = ['*']\nprincipals = ['*']"),
        caller("dana", "approver", 'b', "principal = 'dana'"),
        caller("ops", "operator", 'c', ""),
    ]
    .concat()
}

#[test]
fn what_could_start_is_valid_and_nothing_is_made() {
    let folder = Folder::new("check-valid");
    folder.write("policy.yaml", std::fs::read(GMAIL).unwrap());
    folder.write("sidecar.toml", format!("policy = 'policy.yaml'\n{}", callers()));
    let ran = check(&folder, &["--config", "sidecar.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.in_order(&["policy:  revision", "gmail", "valid: 0 problems, 0 warnings"]);
    assert_eq!(folder.names(), ["policy.yaml", "sidecar.toml"], "nothing is made");
    let ran = check(&folder, &["--config", "sidecar.toml", "--json"]);
    let answer = ran.json();
    assert_eq!((ran.code, &answer["valid"]), (0, &true.into()));
    assert_eq!(answer["policy_revision"].as_str().unwrap().len(), 64);
    assert_eq!(answer["problems"], serde_json::json!([]));
}

#[test]
fn every_problem_of_every_part_is_named_at_once() {
    let folder = Folder::new("check-invalid");
    folder.write(
        "policy.yaml",
        "version: countersign.policy/v1\nconnectors:\n  mail: { ceiling: high, confrm: writes }\n  chat: { enabled: maybe }\n",
    );
    folder.write("secret", "not a secret");
    folder.write(
        "sidecar.toml",
        "listen = 'here'\npolicy = 'policy.yaml'\ngrace_period = 'soon'\n[store]\nsqlite = 'no/such/x.db'\nsecret_file = 'secret'\n\
         [log]\nformat = 'xml'\n[[callers]]\nname = 'a'\nrole = 'boss'\n[[callers]]\nname = 'a'\nrole = 'agent'\ntoken_sha256 = 'x'\n",
    );
    let ran = check(&folder, &["--config", "sidecar.toml"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for says in [
        "problem: configuration: listen: \"here\"",
        "problem: configuration: grace_period",
        "problem: configuration: log.format: \"xml\"",
        "callers[0] (a): has no credential",
        "callers[0] (a): role: \"boss\"",
        "callers[1] (a): another caller has this name",
        "callers[1] (a): token_sha256",
        "problem: policy: policy.yaml:3:",
        "connectors.mail.ceiling",
        "connectors.mail.confrm",
        "connectors.chat.enabled",
        "problem: database: the folder no/such does not exist",
        "problem: secret: the server secret secret: is not 64",
        "invalid: ",
    ] {
        assert!(ran.out.contains(says), "{says} in\n{}", ran.out);
    }
    let ran = check(&folder, &["--config", "sidecar.toml", "--json"]);
    let answer = ran.json();
    assert_eq!((ran.code, &answer["valid"], &answer["policy_revision"]), (1, &false.into(), &serde_json::Value::Null));
    let parts: Vec<&str> =
        answer["problems"].as_array().unwrap().iter().map(|found| found["part"].as_str().unwrap()).collect();
    for part in ["configuration", "policy", "database", "secret"] {
        assert!(parts.contains(&part), "{part} in {parts:?}");
    }
}

#[test]
fn what_is_hardly_meant_is_a_warning_and_valid() {
    let folder = Folder::new("check-warnings");
    folder.write("policy.yaml", std::fs::read(GMAIL).unwrap());
    let secret = folder.write("countersign.db.secret", HASH);
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    folder.write(
        "sidecar.toml",
        format!("listen = '0.0.0.0:7400'\n[[callers]]\nname = 'runtime'\nrole = 'agent'\ntoken_sha256 = '{HASH}'\nexpires = 2020-01-01T00:00:00Z\n"),
    );
    let ran = check(&folder, &["--config", "sidecar.toml", "--policy", "policy.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for says in [
        "warning: configuration: listen: 0.0.0.0:7400 is plaintext",
        "callers: none has the role approver: nobody can decide",
        "callers: none has the role operator",
        "callers: runtime: agents is empty",
        "callers: runtime: principals is empty",
        "callers: runtime: its credential has expired",
        "warning: secret: countersign.db.secret: others than its owner may read it (mode 644)",
        "valid: 0 problems, 7 warnings",
    ] {
        assert!(ran.out.contains(says), "{says} in\n{}", ran.out);
    }
}

#[test]
fn a_file_that_is_no_configuration_does_not_hide_what_flags_name() {
    let folder = Folder::new("check-toml");
    folder.write("sidecar.toml", "listen = \n");
    folder.write("policy.yaml", "version: countersign.policy/v2\n");
    let ran = check(&folder, &["--config", "sidecar.toml", "--policy", "policy.yaml", "--sqlite", "no/x.db"]);
    assert_eq!(ran.code, 1);
    for says in
        ["problem: configuration: sidecar.toml", "problem: policy: policy.yaml:1:", "problem: database: the folder no"]
    {
        assert!(ran.out.contains(says), "{says} in\n{}", ran.out);
    }
    let ran = check(&folder, &["--config", "none.toml"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("problem: configuration: none.toml"), "{ran:?}");
}

#[test]
fn one_address_for_both_listeners_and_a_folder_for_a_database_are_problems() {
    let folder = Folder::new("check-places");
    folder.write("policy.yaml", std::fs::read(GMAIL).unwrap());
    let both = ["--listen", "127.0.0.1:7400", "--health-listen", "127.0.0.1:7400"];
    let ran = check(&folder, &[&both[..], &["--policy", "policy.yaml", "--sqlite", "/"]].concat());
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("listen and health_listen are both 127.0.0.1:7400"), "{ran:?}");
    std::fs::create_dir(folder.path("x.db")).unwrap();
    let ran = check(&folder, &["--policy", "policy.yaml", "--sqlite", "x.db"]);
    assert!(ran.code == 1 && ran.out.contains("problem: database: x.db: is no file"), "{ran:?}");
}

#[test]
fn hostile_names_stay_within_their_line() {
    let folder = Folder::new("check-hostile");
    folder.write("sidecar.toml", "[[callers]]\nname = \"a\\u001b[2J\\nvalid: 0 problems\"\nrole = \"\\u202e\"\n");
    let ran = check(&folder, &["--config", "sidecar.toml"]);
    crate::support::harmless(&ran.out);
    assert!(ran.code == 1 && !ran.out.contains("\nvalid"), "{ran:?}");
}

#[test]
fn a_caller_that_is_refused_is_not_called_missing_as_well() {
    let folder = Folder::new("check-refused-caller");
    let config = folder.write(
        "countersign.toml",
        "[[callers]]\nname = \"runtime\"\nrole = \"agent\"\ntoken_file = \"absent.token\"\nagents = [\"*\"]\nprincipals = [\"*\"]\n",
    );
    let ran = check(&folder, &["--config", config.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("absent.token") && !ran.out.contains("none has the role agent"), "{ran:?}");
}
