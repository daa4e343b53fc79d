//! Several secrets, and which of them a table may be used with.

use super::*;
use crate::domain::fingerprint::Digest;
use std::os::unix::fs::PermissionsExt as _;

/// A folder of its own that goes when this does, with the secrets `a`, `b`, `c` in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("countersign-keyring-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        for name in ["a", "b", "c"] {
            ServerSecret::generate().unwrap().write(&folder.path(name)).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn keys(&self, name: &str) -> Keys {
        ServerSecret::read(&self.path(name)).unwrap().unwrap().keys().unwrap()
    }

    fn ring(&self, names: &[&str]) -> Keyring {
        Keyring::new(self.keys(names[0]), names[1..].iter().map(|name| self.keys(name)).collect())
    }

    fn open(&self, names: &[&str], table: &TableKeys) -> Result<Keyring, SecretProblems> {
        let further: Vec<PathBuf> = names[1..].iter().map(|name| self.path(name)).collect();
        open(&self.path(names[0]), &further, table)
    }

    /// A table that knows these, of which some are in use.
    fn table(&self, known: &[&str], in_use: &[&str]) -> TableKeys {
        TableKeys {
            known: known.iter().map(|name| self.keys(name).stored()).collect(),
            in_use: in_use.iter().map(|name| self.keys(name).id).collect(),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn approval() -> ApprovalId {
    ApprovalId::parse("0190b6c0-0000-7000-8000-000000000001").unwrap()
}

fn fingerprint() -> Fingerprint {
    Fingerprint::from_digest(Digest::of(b"call"))
}

#[test]
fn the_first_makes_and_all_verify_and_open() {
    let folder = Folder::new("all");
    let (old, both, new) = (folder.ring(&["a"]), folder.ring(&["b", "a"]), folder.ring(&["b"]));
    let token = old.consume_token(approval());
    assert_eq!(both.approval_of(&token), Some(approval()));
    assert_eq!(both.consume_token(approval()), new.consume_token(approval()));
    assert_eq!(new.approval_of(&token), None);
    let page = old.page_token(b"query", "1|x");
    assert_eq!(both.page_cursor(b"query", &page).as_deref(), Some("1|x"));
    assert_eq!(both.page_token(b"query", "1|x"), new.page_token(b"query", "1|x"));
    assert_eq!(new.page_cursor(b"query", &page), None);
    let sealed = old.seal(approval(), &fingerprint(), "{}").unwrap();
    assert_eq!(both.unseal(approval(), &fingerprint(), &sealed).unwrap().as_str(), "{}");
    let missing = new.unseal(approval(), &fingerprint(), &sealed).unwrap_err();
    assert_eq!(missing, SealError::KeyMissing { id: folder.keys("a").id });
    assert_eq!(both.seal(approval(), &fingerprint(), "{}").unwrap().key_id, folder.keys("b").id);
}

#[test]
fn what_names_another_key_than_it_was_made_with_is_none() {
    let folder = Folder::new("other");
    let both = folder.ring(&["b", "a"]);
    let (a, b) = (folder.keys("a").id, folder.keys("b").id);
    let token = both.consume_token(approval());
    assert_eq!(both.approval_of(&token.replace(&b, &a)), None);
    let page = both.page_token(b"query", "1");
    assert_eq!(both.page_cursor(b"query", &page.replace(&b, &a)), None);
    let mut sealed = both.seal(approval(), &fingerprint(), "{}").unwrap();
    sealed.key_id = a;
    assert_eq!(both.unseal(approval(), &fingerprint(), &sealed).unwrap_err(), SealError::NotGenuine);
    for hostile in ["", ".", "..", "cs1..", &format!("cs1.{b}"), &format!("{b}."), &b] {
        assert_eq!(both.approval_of(hostile), None, "{hostile:?}");
        assert_eq!(both.page_cursor(b"query", hostile), None, "{hostile:?}");
    }
}

#[test]
fn a_table_that_was_never_used_takes_any_and_gets_one_where_there_is_none() {
    let folder = Folder::new("new");
    let unused = TableKeys::default();
    let made = folder.open(&["made"], &unused).unwrap();
    assert_eq!(std::fs::metadata(folder.path("made")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(made.stored(), [folder.keys("made").stored()]);
    assert_eq!(folder.open(&["made"], &folder.table(&["made"], &[])).unwrap().stored(), made.stored());
    let two = folder.open(&["a", "b"], &unused).unwrap();
    assert_eq!(two.stored(), [folder.keys("a").stored(), folder.keys("b").stored()]);
}

#[test]
fn a_table_needs_a_secret_that_it_knows_and_every_one_in_use() {
    let folder = Folder::new("rules");
    for (have, known, in_use, starts) in [
        (&["a"][..], &["a"][..], &["a"][..], true),
        (&["b", "a"], &["a"], &["a"], true),
        (&["b", "a", "c"], &["a"], &["a"], true),
        (&["a", "b"], &["a"], &["a"], true),
        (&["b"], &["a", "b"], &["b"], true),
        (&["a"], &["a", "b"], &[], true),
        (&["c", "b"], &["a", "b"], &["b"], true),
        // A stranger alone, or strangers alone.
        (&["b"], &["a"], &["a"], false),
        (&["b"], &["a"], &[], false),
        (&["b", "c"], &["a"], &["a"], false),
        // One that is in use is missing.
        (&["b"], &["a", "b"], &["a"], false),
        (&["b"], &["a", "b"], &["a", "b"], false),
        (&["a"], &["a", "b"], &["b"], false),
        (&["c", "b"], &["a", "b"], &["a", "b"], false),
    ] {
        let opened = folder.open(have, &folder.table(known, in_use));
        assert_eq!(opened.is_ok(), starts, "{have:?} for {known:?}, in use {in_use:?}: {opened:?}");
        let Err(problems) = opened else { continue };
        let text = problems.to_string();
        for missing in in_use.iter().filter(|name| !have.contains(*name)) {
            assert!(text.contains(&folder.keys(missing).id), "{missing} in {text}");
        }
    }
}

#[test]
fn a_missing_first_secret_is_made_for_no_table_that_was_used() {
    let folder = Folder::new("missing");
    for names in [&["none"][..], &["none", "a"]] {
        let problem = folder.open(names, &folder.table(&["a"], &["a"])).unwrap_err().to_string();
        assert!(problem.contains(&folder.keys("a").id) && problem.contains("is missing"), "{problem}");
        assert!(!folder.path("none").exists());
    }
    let problem = folder.open(&["none", "absent"], &TableKeys::default()).unwrap_err().to_string();
    assert!(problem.contains("absent") && !folder.path("none").exists(), "{problem}");
}

#[test]
fn an_id_with_another_check_value_is_of_another_secret() {
    let folder = Folder::new("check");
    for names in [["a", "b"], ["b", "a"]] {
        let mut table = folder.table(&["a", "b"], &["a"]);
        table.known[0].check = table.known[1].check.clone();
        let problems = folder.open(&names, &table).unwrap_err();
        assert!(
            matches!(&problems.0[..], [SecretError::CheckFailed { id }] if *id == folder.keys("a").id),
            "{problems}"
        );
    }
}

#[test]
fn neither_debug_nor_any_error_has_a_secret() {
    let folder = Folder::new("debug");
    let text = std::fs::read_to_string(folder.path("a")).unwrap();
    let ring = folder.ring(&["a", "b"]);
    let sealed = ring.seal(approval(), &fingerprint(), "{\"password\":\"hunter2\"}").unwrap();
    let shown = format!("{ring:?} {:?} {sealed:?}", folder.keys("a"));
    let keys = folder.keys("a");
    for secret in [text.trim(), "hunter2", &crate::domain::hex::hex(keys.seal.as_ref())] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains(&keys.id));
}

#[test]
fn what_a_table_wants_and_is_not_at_hand_is_missing() {
    let folder = Folder::new("wanted");
    for (have, known, in_use, missing) in [
        (&["a"][..], &[][..], &[][..], &[][..]),
        (&["a"], &["a"], &["a"], &[]),
        (&["b", "a"], &["a"], &["a"], &[]),
        (&["b"], &["a", "b"], &[], &[]),
        (&["a"], &["a", "b"], &["a", "b"], &["b"]),
        (&["c"], &["a", "b"], &["a", "b"], &["a", "b"]),
        (&["c"], &["a", "b"], &["b"], &["b"]),
        // A stranger wants whatever makes it known.
        (&["c"], &["a", "b"], &[], &["a", "b"]),
        (&["b", "c"], &["a"], &[], &["a"]),
    ] {
        let found = folder.ring(have).missing(&folder.table(known, in_use));
        let wanted: Vec<String> = missing.iter().map(|name| folder.keys(name).id).collect();
        assert_eq!(found, wanted, "{have:?} for {known:?}, in use {in_use:?}");
    }
}

#[test]
fn a_token_names_the_secret_that_made_it_only_where_that_is_not_at_hand() {
    let folder = Folder::new("absent");
    let (a, b) = (folder.ring(&["a"]), folder.ring(&["b"]));
    let token = a.consume_token(approval());
    assert_eq!(a.absent_key_of(&token), None);
    assert_eq!(b.absent_key_of(&token), Some(folder.keys("a").id.as_str()));
    assert_eq!(folder.ring(&["b", "a"]).absent_key_of(&token), None);
    let cut = &token[..token.len() - 1];
    for none in ["", ".", "cs1...", cut, &token.replace("cs1", "cs2"), &token.to_uppercase(), &format!("{}.", *token)] {
        assert_eq!(b.absent_key_of(none), None, "{none}");
    }
}

#[test]
fn secrets_that_others_use_too_are_read_and_never_made() {
    let folder = Folder::new("shared");
    let read = |first: &str, further: &[&str]| {
        let further: Vec<PathBuf> = further.iter().map(|name| folder.path(name)).collect();
        Keyring::read(&folder.path(first), &further).map_err(|problems| problems.to_string())
    };
    assert_eq!(read("a", &["b"]).unwrap().stored(), folder.ring(&["a", "b"]).stored());
    let problem = read("none", &["absent", "a"]).unwrap_err();
    assert_eq!(problem.lines().count(), 2, "{problem}");
    assert!(
        problem.contains("none does not exist") && problem.contains("countersign secret new --out FILE"),
        "{problem}"
    );
    assert!(problem.contains("absent") && !folder.path("none").exists(), "{problem}");
    assert!(read("a", &["a"]).unwrap_err().contains("has the key id"));
}
