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

/// A `serve` with this folder's configuration: its address, while it runs.
struct Served {
    child: std::process::Child,
    address: String,
}

impl Served {
    fn start(folder: &Folder) -> Self {
        use std::io::BufRead as _;
        let mut child = Countersign::new(&["serve", "--config", "countersign.toml"]).within(folder).spawn();
        let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it served");
            if let Some((_, rest)) = line.split_once(" address=") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address }
    }

    fn ask(&self, folder: &Folder, body: &str) -> (String, String) {
        let token = std::fs::read_to_string(folder.path("runtime.token")).unwrap();
        let arguments = format!("{{\"recipient_email\":\"x@rival.example\",\"body\":\"{body}\"}}");
        crate::support::runtime().block_on(async {
            let channel = countersign::client::channel_to(&self.address).unwrap();
            let bearer = countersign::client::Bearer::new(token.trim()).unwrap();
            let mut agent = countersign::client::agent(channel, bearer);
            let answer = agent.request_approval(crate::support::question(&arguments, "")).await.unwrap().into_inner();
            (answer.approval.unwrap().id, answer.consume_token)
        })
    }

    fn arguments(&self, folder: &Folder, id: &str) -> Ran {
        Countersign::new(&["approvals", "show", "--arguments", "--json", id, "--server", &self.address])
            .arguments(&["--token-file", text(&folder.path("dana.token"))])
            .run()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_recipe_of_the_readme_replaces_a_secret() {
    let folder = Folder::new("secret-rotation");
    folder.write("policy.yaml", std::fs::read(GMAIL).unwrap());
    for name in ["runtime", "dana"] {
        let made = run(&["token", "--out", text(&folder.path(&format!("{name}.token")))]);
        assert_eq!(made.code, 0, "{made:?}");
    }
    let configure = |store: &str| {
        let config = format!(
            "listen = '127.0.0.1:0'\nhealth_listen = '127.0.0.1:0'\npolicy = 'policy.yaml'\n[store]\n{store}\n\
             [[callers]]\nname = 'runtime'\nrole = 'agent'\ntoken_file = 'runtime.token'\nagents = ['*']\nprincipals = ['*']\n\
             [[callers]]\nname = 'dana'\nrole = 'approver'\ntoken_file = 'dana.token'\nprincipal = 'dana'\n"
        );
        folder.write("countersign.toml", config);
    };
    configure("");
    let served = Served::start(&folder);
    let (asked, old_token) = served.ask(&folder, "before");
    drop(served);
    let old = key_id(&run(&["secret", "id", text(&folder.path("countersign.db.secret"))]));
    assert!(old_token.contains(&old), "tokens name the key id");

    let made = Countersign::new(&["secret", "new", "--out", "new.secret"]).within(&folder).run();
    let new = key_id(&made);
    configure("secret_file = 'new.secret'\nfurther_secret_files = ['countersign.db.secret']");
    let checked = Countersign::new(&["check", "--config", "countersign.toml"]).within(&folder).run();
    assert_eq!(checked.code, 0, "{checked:?}");
    let served = Served::start(&folder);
    let (again, token) = served.ask(&folder, "before");
    assert!(again == asked && token.contains(&new) && !token.contains(&old), "{token}");
    assert!(served.arguments(&folder, &asked).json()["arguments_json"].as_str().unwrap().contains("before"));
    served.ask(&folder, "after");
    drop(served);

    configure("secret_file = 'new.secret'");
    let ran = Countersign::new(&["serve", "--config", "countersign.toml"]).within(&folder).run();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains(&old) && ran.err.contains("further_secret_files") && !ran.err.contains(&new), "{ran:?}");
    let secret = std::fs::read_to_string(folder.path("countersign.db.secret")).unwrap();
    assert!(!ran.err.contains(&secret[..16]), "{ran:?}");
}
