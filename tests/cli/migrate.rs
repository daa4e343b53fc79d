//! `countersign migrate`.

use crate::support::{Countersign, Folder, Ran, Serving, text};

fn migrate(folder: &Folder, arguments: &[&str]) -> Ran {
    Countersign::new(&["migrate"]).arguments(arguments).within(folder).run()
}

#[test]
fn a_new_database_is_made_and_the_next_time_there_is_nothing_to_do() {
    let folder = Folder::new("migrate");
    let ran = migrate(&folder, &["--sqlite", "x.db"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    ran.in_order(&["x.db: schema 0 -> "]);
    let ran = migrate(&folder, &["--sqlite", "x.db"]);
    assert_eq!(ran.code, 0);
    ran.in_order(&["x.db: schema ", ", nothing to do"]);
    folder.write("sidecar.toml", "[store]\nsqlite = 'x.db'\n");
    let answer = migrate(&folder, &["--config", "sidecar.toml", "--json"]).json();
    assert_eq!(answer["schema_before"], answer["schema_after"]);
    assert!(!folder.path("x.db.secret").exists(), "a secret is made by serving alone");
}

#[test]
fn what_cannot_be_migrated_is_three_and_left_alone() {
    let folder = Folder::new("migrate-refused");
    let ran = migrate(&folder, &["--sqlite", "no/x.db"]);
    assert!(ran.code == 3 && ran.err.contains("does not exist"), "{ran:?}");
    let other = folder
        .write("other.db", "this is no database, but it is somebody's file, and long enough for a header. ".repeat(20));
    let before = std::fs::read(&other).unwrap();
    let ran = migrate(&folder, &["--sqlite", text(&other)]);
    assert!(ran.code == 3 && ran.err.contains("is not a database"), "{ran:?}");
    assert_eq!(std::fs::read(&other).unwrap(), before);
    folder.write("sidecar.toml", "[store]\nsqlit = 'x.db'\n");
    assert_eq!(migrate(&folder, &["--config", "sidecar.toml"]).code, 3);
}

#[test]
fn a_database_that_is_being_served_names_who_has_it() {
    let serving = Serving::start("migrate-served");
    let ran = migrate(&serving.folder, &["--sqlite", "dev/countersign.db"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains(&format!("in use by process {}", serving.pid())), "{ran:?}");
}
