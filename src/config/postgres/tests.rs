//! What the file, the environment and flags say of a Postgres database, and that no password is told.

use super::super::tests::load;
use super::super::{Config, ConfigProblems, Hidden, StoreSettings};
use super::*;

const SECRET: &str = "secret_file = \"/etc/cs/secret\"\n";

/// `[store]` with a secret file, and these lines in `[store.postgres]`.
fn table(lines: &str) -> Result<PostgresSettings, ConfigProblems> {
    with(lines, &Overrides::default())
}

fn with(lines: &str, overrides: &Overrides) -> Result<PostgresSettings, ConfigProblems> {
    let text = format!("[store]\n{SECRET}[store.postgres]\n{lines}");
    settings(super::super::tests::load_with(&text, overrides)?)
}

fn settings(config: Config) -> Result<PostgresSettings, ConfigProblems> {
    let StoreSettings::Postgres(settings) = config.store else { panic!("{config:?}") };
    Ok(settings)
}

fn flag(url: &str) -> Overrides {
    Overrides { postgres: Some(url.into()), ..Overrides::default() }
}

#[test]
fn a_url_alone_means_the_documented_defaults() {
    let config = load(&format!("[store]\n{SECRET}[store.postgres]\nurl = \"postgres://u@db/cs\"")).unwrap();
    assert_eq!(config.secret_file, Path::new("/etc/cs/secret"));
    let said = settings(config).unwrap();
    assert_eq!((said.url.as_str(), said.place().as_deref()), ("postgres://u@db/cs", Some("db:5432/cs")));
    assert_eq!((said.tls, said.connections), (TlsMode::VerifyFull, 8));
    assert_eq!((said.acquire_timeout, said.statement_timeout), (Duration::from_secs(2), Duration::from_secs(5)));
    assert_eq!(said.poll_every, Duration::from_secs(1));
    assert!(said.migrate && said.notify && said.password.is_none() && said.password_file.is_none());
    assert!(said.root_certificate.is_none() && said.client_certificate.is_none() && said.clock.is_none());
}

#[test]
fn every_key_reaches_the_store() {
    let text = "[store]\nsecret_file = \"s\"\nfurther_secret_files = [\"t\"]\nacquire_timeout = \"1s\"\n\
                statement_timeout = \"3s\"\n[store.postgres]\nurl = \"postgres://u@db:6432/cs\"\n\
                password_file = \"pw\"\ntls = \"require\"\nroot_certificate_file = \"ca.pem\"\n\
                client_certificate_file = \"/c.pem\"\nclient_key_file = \"k.pem\"\nconnections = 64\n\
                poll_every = \"50ms\"\nmigrate = false\nnotify = false\n";
    let config = load(text).unwrap();
    assert_eq!(config.secret_file, Path::new("/etc/countersign/s"));
    assert_eq!(config.further_secret_files, [Path::new("/etc/countersign/t")]);
    let said = settings(config).unwrap().options();
    let file = |name: &str| Path::new("/etc/countersign").join(name);
    assert_eq!(said.url, "postgres://u@db:6432/cs");
    assert_eq!((said.password_file, said.root_certificate), (Some(file("pw")), Some(file("ca.pem"))));
    assert_eq!(said.client_certificate, Some((PathBuf::from("/c.pem"), file("k.pem"))));
    assert_eq!((said.tls, said.connections, said.poll_every), (TlsMode::Require, 64, Duration::from_millis(50)));
    assert_eq!((said.acquire_timeout, said.statement_timeout), (Duration::from_secs(1), Duration::from_secs(3)));
    assert!(!said.migrate && !said.notify && said.clock.is_none());
}

#[test]
fn flags_win_over_the_file_and_the_environments_password_over_a_file_of_one() {
    let lines = "url = \"postgres://u@db/cs\"\npassword_file = \"pw\"\nconnections = 3";
    let overrides = Overrides {
        postgres: Some("postgres://v@other/cs".into()),
        postgres_password_file: Some("here".into()),
        ..Overrides::default()
    };
    let said = with(lines, &overrides).unwrap();
    assert_eq!((said.url.as_str(), said.connections), ("postgres://v@other/cs", 3));
    assert_eq!(
        said.password_file.as_deref(),
        Some(Path::new("here")),
        "a flag's path is relative to the working directory"
    );
    let overrides = Overrides { postgres_password: Some("hunter2".into()), ..Overrides::default() };
    let said = with(lines, &overrides).unwrap();
    assert_eq!((said.password.as_ref().map(|text| text.as_str()), said.password_file), (Some("hunter2"), None));
    let both = Overrides { postgres_password_file: Some("here".into()), ..overrides };
    assert!(with(lines, &both).unwrap_err().to_string().contains("one password is enough"));
}

#[test]
fn the_way_of_tls_is_said_once() {
    for (url, tls, wanted) in [
        ("", "", Some(TlsMode::VerifyFull)),
        ("?sslmode=require", "", Some(TlsMode::Require)),
        ("", "tls = \"disable\"", Some(TlsMode::Disable)),
        ("?sslmode=prefer", "tls = \"prefer\"", Some(TlsMode::Prefer)),
        ("?sslmode=verify-full", "tls = \"verify-ca\"", None),
        ("?sslmode=allow", "", None),
        ("?sslmode=verify-ca", "", None),
        ("", "tls = \"allow\"", None),
    ] {
        let said = table(&format!("url = \"postgres://u@db/cs{url}\"\n{tls}")).map(|said| (said.tls, said.url));
        match wanted {
            Some(wanted) => assert_eq!(said.unwrap(), (wanted, "postgres://u@db/cs".to_owned()), "{url} {tls}"),
            None => assert_eq!(said.unwrap_err().0.len(), 1, "{url} {tls}"),
        }
    }
}

#[test]
fn every_problem_is_named_at_once() {
    let text = "[store]\nsqlite = \"x.db\"\naccept_clock = false\nreaders = 4\n[store.postgres]\nurl = 5\n\
                password = \"hunter2\"\npasswort = \"hunter2\"\ntls = \"on\"\nclient_key_file = \"k\"\nconnections = 65\n\
                poll_every = \"49ms\"\nmigrate = \"hunter2\"\nnotify = 1\npassword_file = [\"hunter2\"]\n";
    let problems = load(text).unwrap_err().0.join("\n");
    for part in [
        "store: a database file (sqlite) and a Postgres database are both said",
        "store.accept_clock: is for a database file",
        "store.readers: is for a database file",
        "store.postgres.url: is not a text",
        "store.postgres.url: is missing",
        "store.postgres.password: is no key: put the password into a file",
        "store.postgres.passwort: is no key",
        "store.postgres.tls: is none of",
        "store.postgres.client_certificate_file: is missing",
        "store.postgres.connections: 65 is not from 1 to 64",
        "store.postgres.poll_every: \"49ms\" is no duration from 50ms to 10s",
        "store.postgres.migrate: is not true or false",
        "store.postgres.notify: is not true or false",
        "store.postgres.password_file: is not a text",
        "store.secret_file: is required with Postgres",
    ] {
        assert!(problems.contains(part), "{part}\nnot in\n{problems}");
    }
    assert!(problems.contains("countersign secret new --out FILE") && !problems.contains("hunter2"), "{problems}");
}

#[test]
fn what_the_store_would_not_be_opened_with_is_a_problem_here() {
    let text = format!("[store]\n{SECRET}acquire_timeout = \"9ms\"\n[store.postgres]\nurl = \"postgres://u@db/cs\"\n");
    let problems = load(&text).unwrap_err().0;
    assert!(problems.len() == 1 && problems[0].contains("10 ms at least"), "{problems:?}");
    let problems = table("url = \"postgres://u@db/cs\"\ntls = \"verify-ca\"").unwrap_err().0;
    assert!(problems.len() == 1 && problems[0].contains("write verify-full"), "{problems:?}");
}

#[test]
fn one_database_is_named_wherever_it_is_said() {
    let url = "postgres://u@db/cs";
    let file = |text: &str| format!("[store]\n{SECRET}{text}");
    let sqlite = || Some(PathBuf::from("x.db"));
    for (text, overrides) in [
        (file(&format!("sqlite = \"x\"\n[store.postgres]\nurl = \"{url}\"")), Overrides::default()),
        (file(""), Overrides { sqlite: sqlite(), ..flag(url) }),
        (file("sqlite = \"x\""), flag(url)),
        (file(&format!("[store.postgres]\nurl = \"{url}\"")), Overrides { sqlite: sqlite(), ..Overrides::default() }),
    ] {
        let problems = super::super::tests::load_with(&text, &overrides).unwrap_err();
        assert!(problems.0.len() == 1 && problems.0[0].starts_with("store: "), "{text}: {problems}");
    }
    let alone = super::super::tests::load_with(&file(""), &flag(url)).unwrap();
    assert_eq!(settings(alone).unwrap().url, url, "a database file that nobody named is none");
    let alone = Overrides { postgres_password_file: Some("pw".into()), ..Overrides::default() };
    let problems = super::super::tests::load_with("", &alone).unwrap_err().to_string();
    assert!(problems.starts_with("store.postgres.url: is missing"), "{problems}");
    let unused = Overrides { without_secrets: true, ..flag(url) };
    super::super::tests::load_with("", &unused).unwrap();
}

#[test]
fn a_password_stands_in_no_problem_and_no_debug() {
    let urls = [
        "postgres://u:hunter2@db/cs",
        "postgres://u:hun@hunter2@db/cs",
        "postgres://u:5432/hunter2@db/cs",
        "postgres://u@db/cs?password=hunter2",
        "postgres//u:hunter2@db/cs",
        "u:hunter2@db",
        "hunter2",
        "postgres://u@db/hunter2#",
    ];
    for url in urls {
        let mut problems = Vec::new();
        for text in [
            format!("[store.postgres]\nurl = \"{url}\""),
            format!("[store.postgres]\nurl = '{url}'\nurl = '{url}'"),
            format!("[store.postgres]\nurl = {url}"),
            format!("[store.postgres]\nurl = \"{url}"),
            format!("[store.postgres]\nurl = [\"{url}\"]"),
            format!("[store.postgres]\nconnections = \"{url}\""),
            format!("[store]\npostgres = \"{url}\""),
        ] {
            problems.push(load(&text).unwrap_err().to_string());
        }
        for overrides in [flag(url), Overrides { sqlite: Some(url.into()), ..Overrides::default() }] {
            assert!(!format!("{overrides:?}").contains("hunter2") || overrides.sqlite.is_some());
            match super::super::tests::load_with("[store]\nsecret_file = \"s\"", &overrides) {
                Err(refused) => problems.push(refused.to_string()),
                // What is not spelled as a URL is a file's name.
                Ok(_) => assert!(overrides.sqlite.is_some() && !url.starts_with("postgres:"), "{url}"),
            }
        }
        assert!(problems.iter().all(|problem| !problem.contains("hunter2")), "{problems:#?}");
    }
    let overrides = Overrides { postgres_password: Some("hunter2".into()), ..flag("postgres://u@db/cs") };
    let config = super::super::tests::load_with(&format!("[store]\n{SECRET}"), &overrides).unwrap();
    assert!(!format!("{overrides:?} {config:?}").contains("hunter2"));
    let options = settings(config).unwrap().options();
    assert!(options.password.is_some() && !format!("{options:?}").contains("hunter2"));
    let by_hand = PostgresSettings::at("postgres://u:hunter2@db/cs");
    assert!(!format!("{by_hand:?}").contains("hunter2"));
    let empty = Overrides { postgres_password: Some("".into()), ..flag("postgres://u@db/cs") };
    let problem = super::super::tests::load_with(&format!("[store]\n{SECRET}"), &empty).unwrap_err().to_string();
    assert!(problem.contains("COUNTERSIGN_POSTGRES_PASSWORD"), "{problem}");
    assert_eq!(Hidden::from("a"), Hidden::from(std::ffi::OsString::from("a")));
}

#[test]
fn what_stays_on_this_machine_is_known() {
    for (url, local) in [
        ("postgres://u@%2Frun%2Fpg/cs", true),
        ("postgres://u@localhost/cs", true),
        ("postgres://u@127.0.0.1:1/cs", true),
        ("postgres://u@[::1]/cs", true),
        ("postgres://u@db/cs", false),
        ("postgres://u@10.0.0.1/cs", false),
        ("no url", false),
    ] {
        assert_eq!(PostgresSettings::at(url).is_local(), local, "{url}");
    }
}
