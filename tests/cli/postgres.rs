//! A Postgres database on the command line: where its password may stand, and that none is ever repeated.

use crate::cluster::Database;
use crate::support::{Countersign, Folder, GMAIL, Ran, Serving, runtime};
use std::process::Command;
use std::time::{Duration, Instant};

const PASSWORD: &str = "hunter2-of-the-database";

/// One that nobody listens on.
const NOBODY: &str = "postgres://u@127.0.0.1:1/cs?sslmode=disable";

fn tells_no_password(ran: &Ran) {
    assert!(!ran.out.contains(PASSWORD) && !ran.err.contains(PASSWORD), "{ran:?}");
}

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("policy.yaml", std::fs::read(GMAIL).unwrap());
    folder
}

#[test]
fn a_url_with_a_password_is_refused_wherever_it_is_said_and_not_repeated() {
    let folder = folder("postgres-password");
    let urls = [
        format!("postgres://u:{PASSWORD}@db/cs"),
        format!("postgres://u:x/{PASSWORD}@db/cs"),
        format!("postgres://u@db/cs?password={PASSWORD}"),
        format!("postgres://u{PASSWORD}"),
        format!("u:{PASSWORD}@db"),
    ];
    for url in &urls {
        folder.write("url.toml", format!("[store]\nsecret_file = 's'\n[store.postgres]\nurl = '{url}'\n"));
        folder.write("bare.toml", format!("[store]\npostgres = {url}\n"));
        folder.write("text.toml", format!("[store]\npostgres = '{url}'\n"));
        folder.write("sqlite.toml", format!("[store]\nsqlite = 'postgres://u:{PASSWORD}@db/cs'\n"));
        for command in ["check", "serve", "migrate"] {
            let run = |arguments: &[&str]| Countersign::new(&[command]).arguments(arguments).within(&folder);
            let mut runs: Vec<Ran> = ["url.toml", "bare.toml", "text.toml", "sqlite.toml"]
                .iter()
                .map(|file| run(&["--config", file]).run())
                .collect();
            runs.push(run(&["--postgres", url]).run());
            runs.push(run(&[&format!("--postgres={url}")]).run());
            runs.push(run(&[]).env("COUNTERSIGN_POSTGRES", url).run());
            runs.push(run(&["--config", "none.toml", "--postgres", url]).run());
            for ran in runs {
                assert_eq!(ran.code, if command == "check" { 1 } else { 3 }, "{command} {ran:?}");
                tells_no_password(&ran);
            }
            // Even the help, which shows what the environment says of other flags.
            let help = run(&["--help"]).env("COUNTERSIGN_POSTGRES", url).env("COUNTERSIGN_POSTGRES_PASSWORD", PASSWORD);
            let help = help.run();
            assert!(help.code == 0 && help.out.contains("--postgres-password-file"), "{help:?}");
            tells_no_password(&help);
            let misplaced = run(&[url]).run();
            assert_eq!(misplaced.code, 2);
            tells_no_password(&misplaced);
        }
    }
    let ran = Countersign::new(&["check", "--postgres", &urls[0]]).within(&folder).run();
    for says in
        ["store.postgres.url: has a password in it", "--postgres-password-file", "COUNTERSIGN_POSTGRES_PASSWORD"]
    {
        assert!(ran.out.contains(says), "{says} in {ran:?}");
    }
    assert!(!std::path::Path::new(&folder.path("countersign.db")).exists(), "nothing is made in its place");
}

#[test]
fn check_says_what_would_be_used_and_asks_no_server() {
    let folder = folder("postgres-check");
    let made = Countersign::new(&["secret", "new", "--out", "secret"]).within(&folder).run();
    assert_eq!(made.code, 0, "{made:?}");
    folder.write("password", PASSWORD);
    let file = "policy = 'policy.yaml'\n[store]\nsecret_file = 'secret'\n[store.postgres]\nurl = 'postgres://u@db.internal/cs'\n\
                password_file = 'password'\n";
    folder.write("sidecar.toml", file);
    let check = |arguments: &[&str]| {
        Countersign::new(&["check", "--config", "sidecar.toml"]).arguments(arguments).within(&folder)
    };
    let ran = check(&[]).run();
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&[
        "others than its owner may read the password",
        "store:   postgres db.internal:5432/cs",
        "valid: 0 problems",
    ]);
    tells_no_password(&ran);
    assert_eq!(check(&["--json"]).run().json()["store"], "postgres db.internal:5432/cs");
    tells_no_password(&check(&[]).env("COUNTERSIGN_POSTGRES_PASSWORD", PASSWORD).run());

    folder.write("sidecar.toml", file.replace("'password'", "'absent'").replace("'secret'", "'no.secret'"));
    let ran = check(&[]).run();
    assert_eq!(ran.code, 1);
    ran.in_order(&["the password's file", "absent", "no.secret does not exist", "countersign secret new --out FILE"]);
    folder.write("sidecar.toml", format!("{file}tls = 'prefer'\n"));
    check(&[])
        .run()
        .in_order(&["warning: database: store.postgres.tls: what goes to the database may go in the clear"]);
}

#[test]
fn without_a_secret_file_nothing_is_begun() {
    let folder = folder("postgres-secret");
    let serve = |arguments: &[&str]| {
        Countersign::new(&["serve", "--policy", "policy.yaml", "--postgres", NOBODY])
            .arguments(arguments)
            .within(&folder)
            .run()
    };
    let ran = serve(&[]);
    assert!(ran.code == 3 && ran.err.contains("store.secret_file: is required"), "{ran:?}");
    let ran = serve(&["--secret-file", "no.secret"]);
    assert!(ran.code == 3 && ran.err.contains("no.secret does not exist"), "{ran:?}");
    assert!(ran.err.contains("countersign secret new --out FILE"), "{ran:?}");
    assert_eq!(folder.names(), ["policy.yaml"], "none is made");
}

#[test]
fn a_server_that_does_not_answer_is_three_and_the_password_stays_untold() {
    let folder = folder("postgres-nobody");
    Countersign::new(&["secret", "new", "--out", "secret"]).within(&folder).run();
    folder.write("password", PASSWORD);
    for command in [
        &["migrate", "--postgres", NOBODY][..],
        &["serve", "--policy", "policy.yaml", "--secret-file", "secret", "--postgres", NOBODY],
    ] {
        let by_file = ["--postgres-password-file", "password"];
        for ran in [
            Countersign::new(command).arguments(&by_file).within(&folder).run(),
            Countersign::new(command).env("COUNTERSIGN_POSTGRES_PASSWORD", PASSWORD).within(&folder).run(),
        ] {
            assert_eq!(ran.code, 3, "{ran:?}");
            assert!(!ran.err.is_empty());
            tells_no_password(&ran);
        }
    }
}

#[test]
fn dev_has_a_database_of_its_own() {
    let folder = folder("postgres-dev");
    let ran = Countersign::new(&["serve", "--dev", "--postgres", NOBODY]).within(&folder).run();
    assert!(ran.code == 3 && ran.err.contains("leave out --postgres"), "{ran:?}");
    assert_eq!(folder.names(), ["policy.yaml"]);
}

/// A real one, empty, and a file with a URL that names it.
fn database() -> (Database, String) {
    let database = runtime().block_on(Database::empty());
    let url = database.url();
    // On a server of somebody else's there is no certificate that anybody could check.
    let url = if url.contains("%2F") { url } else { format!("{url}?sslmode=prefer") };
    (database, url)
}

fn with_password(command: Countersign, database: &Database) -> Countersign {
    match database.password() {
        Some(password) => command.env("COUNTERSIGN_POSTGRES_PASSWORD", password),
        None => command,
    }
}

#[test]
fn migrate_makes_the_schema_whatever_the_configuration_says_and_needs_no_secret() {
    let folder = folder("postgres-migrate");
    let (database, url) = database();
    folder.write("sidecar.toml", format!("[store.postgres]\nurl = '{url}'\nmigrate = false\n"));
    let migrate = |arguments: &[&str]| {
        let command = Countersign::new(&["migrate", "--config", "sidecar.toml"]).arguments(arguments).within(&folder);
        with_password(command, &database).run()
    };
    let ran = migrate(&[]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.in_order(&[database.name(), ": schema 0 -> "]);
    migrate(&[]).in_order(&[database.name(), ": schema ", ", nothing to do"]);
    let answer = migrate(&["--json"]).json();
    assert_eq!(answer["schema_before"], answer["schema_after"]);
    assert!(answer["database"].as_str().unwrap().ends_with(&format!("/{}", database.name())), "{answer}");
}

#[test]
fn a_process_takes_new_secrets_when_it_is_told_to_and_keeps_what_it_needs() {
    let folder = folder("postgres-sighup");
    let (database, url) = database();
    for name in ["old.secret", "new.secret"] {
        assert_eq!(Countersign::new(&["secret", "new", "--out", name]).within(&folder).run().code, 0);
    }
    let id = |name: &str| {
        let answer = Countersign::new(&["secret", "--json", "id", name]).within(&folder).run().json();
        answer["key_id"].as_str().unwrap().to_owned()
    };
    let (old, new) = (id("old.secret"), id("new.secret"));
    let write = |folder: &Folder, secrets: &str| {
        let text = format!(
            "listen = '127.0.0.1:0'\nhealth_listen = '127.0.0.1:0'\npolicy = 'policy.yaml'\n[store]\n{secrets}\n[store.postgres]\n\
             url = '{url}'\n"
        );
        folder.write("sidecar.toml", text)
    };
    write(&folder, "secret_file = 'old.secret'");
    let serving = Serving::of(folder, |command| {
        with_password(command.arguments(&["serve", "--config", "sidecar.toml", "--log-format", "human"]), &database)
    });
    let told = |secrets: &str, says: &[&str]| {
        let before = serving.log().len();
        write(&serving.folder, secrets);
        let pid = serving.pid().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
        // Far longer than it takes.
        let until = Instant::now() + Duration::from_secs(60);
        while !says.iter().all(|part| serving.log()[before..].contains(part)) {
            assert!(Instant::now() < until, "{says:?} not in {}", serving.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!serving.log()[before..].contains("needs a restart"), "{}", serving.log());
    };
    told(
        "secret_file = 'new.secret'\nfurther_secret_files = ['old.secret']",
        &["the server secrets were replaced", &format!("{new},{old}")],
    );
    told("secret_file = 'old.secret'", &["makes what is new, and is not among these", "those in force stay", &new]);
    told("secret_file = 'absent.secret'", &["absent.secret does not exist", "those in force stay"]);
    told("secret_file = 'new.secret'", &["the server secrets were replaced"]);
}
