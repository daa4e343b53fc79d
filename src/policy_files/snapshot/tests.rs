use super::*;
use std::fs;
use std::os::unix::fs::symlink;

const POLICY: &str = "version: countersign.policy/v1\nconnectors: { hub: { catalog: { file: hub.yaml } } }\n";

/// A folder of its own, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("countersign-snapshot-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        fs::write(self.0.join(name), text).unwrap();
        self
    }

    /// Without any catalog, so that one is named and not read.
    fn read(&self) -> Snapshot {
        Snapshot::read(&self.0, &CatalogFiles::new())
    }

    fn digest(&self) -> ContentDigest {
        self.read().digest()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn catalog(action: &str) -> String {
    format!("version: countersign.catalog/v1\nactions: {{ {action}: {{ scope: read, curated: true }} }}\n")
}

fn known(files: &[&str]) -> CatalogFiles {
    files.iter().map(|file| (*file).to_owned()).collect()
}

#[test]
fn a_policy_is_what_was_read_whatever_stands_there_by_then() {
    let folder = Folder::new("held");
    let path = folder.0.join("p.yaml");
    folder.write("p.yaml", POLICY).write("hub.yaml", &catalog("OLD"));
    let snapshot = Snapshot::read(&path, &known(&["hub.yaml"]));
    let digest = snapshot.digest();
    folder.write("p.yaml", "nonsense").write("hub.yaml", &catalog("NEW"));
    let built = snapshot.build();
    let policy = built.policy.unwrap();
    assert!(policy.entry("hub", "OLD").is_some() && policy.entry("hub", "NEW").is_none());
    assert_eq!((built.digest, built.read_late), (digest, false));
}

#[test]
fn a_catalog_that_nobody_knew_of_is_read_and_told() {
    let folder = Folder::new("late");
    let path = folder.0.join("p.yaml");
    folder.write("p.yaml", POLICY).write("hub.yaml", &catalog("LIST")).write("stale.yaml", &catalog("X"));
    let built = Snapshot::read(&path, &known(&["stale.yaml"])).build();
    assert!(built.read_late && built.policy.is_ok());
    assert_eq!(built.catalogs, known(&["hub.yaml"]));
    let again = Snapshot::read(&path, &built.catalogs);
    assert_eq!(again.digest(), built.digest, "what it was built from, without what nobody names");
    let again = again.build();
    assert_eq!((again.read_late, again.digest), (false, built.digest));
}

#[test]
fn whatever_may_change_a_policy_changes_the_digest() {
    let folder = Folder::new("digest");
    folder.write("a.yaml", "one").write("b.yaml", "two");
    let mut seen = BTreeSet::from([folder.digest()]);
    let mut differs = |what: &str| assert!(seen.insert(folder.digest()), "{what}");
    folder.write("a.yaml", "oneb");
    differs("a longer text");
    folder.write("a.yaml", "onea.yaml");
    differs("a text that ends in a name");
    fs::rename(folder.0.join("b.yaml"), folder.0.join("c.yaml")).unwrap();
    differs("another name");
    folder.write("d.yml", "");
    differs("a name that looks like a policy's");
    symlink("nowhere", folder.0.join("e.yaml")).unwrap();
    differs("a file that cannot be read");
    for name in ["a.yaml", "c.yaml", "d.yml", "e.yaml"] {
        fs::remove_file(folder.0.join(name)).unwrap();
    }
    differs("nothing left");
    fs::remove_dir(&folder.0).unwrap();
    differs("no folder");
    fs::create_dir(&folder.0).unwrap();
    folder.write("a.yaml", "one").write("b.yaml", "two").write("README.md", "not read").write(".hidden.yaml", "x");
    assert!(!seen.insert(folder.digest()), "the same again");
}

#[test]
fn catalogs_count_and_so_does_what_keeps_them_from_being_read() {
    let folder = Folder::new("catalog");
    let path = folder.0.join("p.yaml");
    folder.write("p.yaml", POLICY);
    let digest = || Snapshot::read(&path, &known(&["hub.yaml"])).digest();
    let without = digest();
    folder.write("hub.yaml", &catalog("LIST"));
    let with = digest();
    folder.write("hub.yaml", &catalog("LISZ"));
    let other = digest();
    assert!(without != with && with != other && other != without);
    fs::remove_file(folder.0.join("hub.yaml")).unwrap();
    assert_eq!(digest(), without);
    let refused = Snapshot::read(&path, &known(&["hub.yaml"])).build();
    assert_eq!((refused.policy.is_err(), refused.digest), (true, without));
}

#[test]
fn the_signature_sees_what_happens_to_a_file_without_reading_it() {
    let folder = Folder::new("signature");
    folder.write("a.yaml", "one").write("..one", "x").write("..two", "y").write("catalog", "c");
    symlink("..one", folder.0.join("link.yaml")).unwrap();
    let look = || signature(&folder.0, &known(&["catalog", "none"]));
    let mut last = look();
    assert_eq!(last, look(), "nothing happened");
    let mut differs = |what: &str| {
        let now = look();
        assert_ne!(last, now, "{what}");
        last = now;
    };
    folder.write("a.yaml", "three");
    differs("another size");
    folder.write("new", "three");
    fs::rename(folder.0.join("new"), folder.0.join("a.yaml")).unwrap();
    differs("another file of the same size under the same name");
    symlink("..two", folder.0.join("..next")).unwrap();
    fs::rename(folder.0.join("..next"), folder.0.join("link.yaml")).unwrap();
    differs("a link that leads elsewhere");
    folder.write("b.yml", "");
    differs("a name that looks like a policy's");
    folder.write("catalog", "longer");
    differs("a catalog");
    folder.write("none", "");
    differs("a catalog that was not there");
    fs::remove_file(folder.0.join("a.yaml")).unwrap();
    differs("a file less");
    fs::remove_dir_all(&folder.0).unwrap();
    differs("no folder");
}
