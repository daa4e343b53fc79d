//! A Postgres database on the command line: where its password may stand, and that none is ever repeated.

use crate::support::{Countersign, Folder, GMAIL, Ran};

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
