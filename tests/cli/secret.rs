//! `countersign secret`, `check` on several of them, and a rotation as the README tells it.

use crate::support::{Countersign, Folder, GMAIL, Ran, run, text};
use std::os::unix::fs::PermissionsExt as _;

fn key_id(ran: &Ran) -> String {
    ran.out.lines().find_map(|line| line.strip_prefix("key_id:")).unwrap().trim().to_owned()
}

#[test]
fn a_secret_is_made_for_its_owner_alone_and_only_its_id_is_told() {
    let folder = Folder::new("secret-new");
    let path = folder.path("new.secret");
    let made = run(&["secret", "new", "--out", text(&path)]);
    assert_eq!((made.code, made.err.as_str()), (0, ""), "{made:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&path).unwrap();
    assert!(secret.len() == 65 && !made.out.contains(&secret[..16]), "{made:?}");
    let id = run(&["secret", "id", text(&path)]);
    assert_eq!(id.code, 0, "{id:?}");
    assert_eq!((key_id(&id), key_id(&id).len()), (key_id(&made), 16));
    assert!(!id.out.contains(&secret[..16]), "{id:?}");
    let json = run(&["secret", "id", text(&path), "--json"]).json();
    assert_eq!(json, serde_json::json!({ "secret_file": text(&path), "key_id": key_id(&made) }));
    assert_eq!(folder.names(), ["new.secret"]);

    let again = run(&["secret", "new", "--out", text(&path)]);
    assert!(again.code == 3 && again.out.is_empty() && again.err.contains("new.secret"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), secret, "what is there stays");
    let other = run(&["secret", "new", "--json", "--out", text(&folder.path("other.secret"))]).json();
    assert_ne!(other["key_id"], key_id(&made));
}

#[test]
fn what_is_no_secret_has_no_id() {
    let folder = Folder::new("secret-id");
    let hostile = folder.write("a\u{1b}[2J\n.secret", "hunter2\n");
    let ran = run(&["secret", "id", text(&hostile)]);
    assert!(ran.code == 1 && ran.out.is_empty() && !ran.err.contains("hunter2"), "{ran:?}");
    crate::support::harmless(&ran.err);
    for name in ["none", "", "no/such/folder"] {
        let ran = run(&["secret", "id", text(&folder.path(name))]);
        assert!(ran.code == 3 && ran.out.is_empty() && ran.err.lines().count() == 1, "{ran:?}");
    }
    assert_eq!(run(&["secret", "new", "--out", text(&folder.path("no/such/folder"))]).code, 3);
    assert_eq!(run(&["secret", "new"]).code, 2, "it is never printed");
}

#[test]
fn check_names_every_secret_that_is_wrong() {
    let folder = Folder::new("secret-check");
    folder.write("policy.yaml", std::fs::read(GMAIL).unwrap());
    for name in ["first.secret", "old.secret"] {
        assert_eq!(run(&["secret", "new", "--out", text(&folder.path(name))]).code, 0);
    }
    std::fs::copy(folder.path("first.secret"), folder.path("copy.secret")).unwrap();
    folder.write("word.secret", "hunter2");
    let old = folder.path("old.secret");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o640)).unwrap();
    folder.write(
        "countersign.toml",
        "policy = 'policy.yaml'\n[store]\nsecret_file = 'first.secret'\n\
         further_secret_files = ['old.secret', 'copy.secret', 'word.secret', 'absent.secret']\n",
    );
    let check = |arguments: &[&str]| Countersign::new(&["check"]).arguments(arguments).within(&folder).run();
    let ran = check(&["--config", "countersign.toml"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for says in [
        "problem: secret: the server secret copy.secret has the key id",
        "problem: secret: the server secret word.secret: is not 64",
        "problem: secret: the server secret absent.secret is missing",
        "warning: secret: old.secret: others than its owner may read it (mode 640)",
    ] {
        assert!(ran.out.contains(says), "{says} in\n{}", ran.out);
    }
    assert_eq!(ran.out.matches("problem: secret").count(), 3, "{ran:?}");
    assert!(!ran.out.contains("hunter2"));
    // Flags and the environment name files as the configuration does.
    for ran in [
        check(&["--config", "countersign.toml", "--further-secret-files", "old.secret"]),
        Countersign::new(&["check", "--config", "countersign.toml"])
            .env("COUNTERSIGN_FURTHER_SECRET_FILES", "old.secret")
            .within(&folder)
            .run(),
    ] {
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = check(&["--config", "countersign.toml", "--further-secret-files", "old.secret:absent.secret"]);
    assert!(ran.code == 1 && ran.out.matches("problem: secret").count() == 1, "{ran:?}");
    let many = vec!["x"; 16].join(":");
    let ran = check(&["--config", "countersign.toml", "--further-secret-files", &many]);
    assert!(ran.out.contains("store.further_secret_files: 16 are more than 15"), "{ran:?}");
}
