//! Reads a policy from the file system: one file, or a folder with its `*.yaml`, and the catalogs that they name.
//!
//! A folder is read as container platforms mount configuration: its files may be symbolic links, and names that begin with
//! a dot (`..data` and the folders behind it) are passed over. Subfolders are not read, but catalogs may stand there.

mod snapshot;

pub use snapshot::{Built, CatalogFiles, ContentDigest, Signature, Snapshot, signature};

use crate::domain::policy::{FILE_BYTES, FILES, Policy, Problem};
use crate::domain::text::is_hidden;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Why there is no policy: every problem of every file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLoadError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for PolicyLoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = if self.problems.len() == 1 { "a problem" } else { "problems" };
        write!(formatter, "the policy has {many}:")?;
        self.problems.iter().try_for_each(|problem| write!(formatter, "\n  {problem}"))
    }
}

impl std::error::Error for PolicyLoadError {}

/// Loads the policy at `path`.
///
/// # Errors
///
/// What cannot be read, else every problem of what was read. A folder without any `*.yaml` is an error, and so is one with
/// a name that only looks like it (`*.yml`, `*.YAML`): it would be passed over, and with it perhaps a rule that denies.
pub fn load_policy(path: &Path) -> Result<Policy, PolicyLoadError> {
    Snapshot::read(path, &CatalogFiles::new()).build().policy
}

/// Which files a policy is, before any of them is read.
struct Listing {
    /// The folder that catalogs are relative to.
    folder: PathBuf,
    /// The policy's own files, by name.
    paths: Vec<PathBuf>,
    /// What is wrong with the folder, whatever its files say.
    problems: Vec<Problem>,
}

impl Listing {
    fn of(path: &Path) -> Self {
        if path.is_dir() {
            return Self::of_folder(path);
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Self { folder, paths: vec![path.to_path_buf()], problems: Vec::new() }
    }

    fn of_folder(folder: &Path) -> Self {
        let problem = |path: &Path, message: String| Problem::of_file(&path.display().to_string(), message);
        let (mut paths, mut problems) = (Vec::new(), Vec::new());
        let mut sort = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default();
            let read = path.extension() == Some(OsStr::new("yaml"));
            // Asked of few: a folder may be full of other things.
            let counts =
                !name.as_encoded_bytes().starts_with(b".") && (read || looks_like_yaml(name)) && !path.is_dir();
            match (counts, read) {
                (true, true) => paths.push(path),
                (true, false) => problems.push(problem(&path, "is not read: rename it to end in `.yaml`".to_owned())),
                (false, _) => {}
            }
        };
        let walked = fs::read_dir(folder)
            .and_then(|mut entries| entries.try_for_each(|entry| entry.map(|entry| sort(entry.path()))));
        if let Err(error) = walked {
            problems.push(problem(folder, Unread::Io(error).to_string()));
        }
        if paths.is_empty() && problems.is_empty() {
            problems.push(problem(folder, "has no `*.yaml`".to_owned()));
        }
        if paths.len() > FILES {
            problems.push(problem(folder, format!("has {} files `*.yaml`; at most {FILES} are read", paths.len())));
            paths.clear();
        }
        paths.sort();
        problems.sort();
        Self { folder: folder.to_path_buf(), paths, problems }
    }
}

/// Whether a person would take a name for one that ends in `.yaml`: in other letters, with `.yml`, with something after it
/// that is easily overlooked, or with an ending of letters that may be look-alikes. An editor's backup (`~`) is none.
fn looks_like_yaml(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let seen = name.trim_end_matches(|last: char| last != '~' && !last.is_alphanumeric());
    let ending = seen.rsplit_once('.').map_or("", |(_, ending)| ending);
    let letters: String = ending.chars().filter(|letter| !is_hidden(*letter)).collect();
    let may_look_alike = !letters.is_ascii() && matches!(letters.chars().count(), 3 | 4);
    may_look_alike || ["yaml", "yml"].iter().any(|other| letters.trim().eq_ignore_ascii_case(other))
}

/// Why a file was not read, as the end of a sentence that begins with its name.
pub(crate) enum Unread {
    Io(io::Error),
    Special,
    TooLarge,
    NoText,
}

impl fmt::Display for Unread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound => formatter.write_str("does not exist"),
            Self::Io(error) => write!(formatter, "cannot be read: {error}"),
            Self::Special => formatter.write_str("is no regular file"),
            Self::TooLarge => write!(formatter, "is larger than {FILE_BYTES} bytes"),
            Self::NoText => formatter.write_str("is no UTF-8 text"),
        }
    }
}

/// A file's text, with no more of it in memory than a policy file may have.
pub(crate) fn read_text(path: &Path) -> Result<String, Unread> {
    // Asked before it is opened: opening a pipe would wait for somebody to write.
    if !fs::metadata(path).map_err(Unread::Io)?.is_file() {
        return Err(Unread::Special);
    }
    let limit = FILE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(Unread::Io)?;
    if bytes.len() > FILE_BYTES {
        return Err(Unread::TooLarge);
    }
    String::from_utf8(bytes).map_err(|_| Unread::NoText)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    const EMPTY: &str = "version: countersign.policy/v1\n";

    /// A folder of its own, removed at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("countersign-policy-files-{name}-{}", std::process::id()));
            _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn load(&self) -> Result<Policy, Vec<String>> {
            load(&self.0, &self.0)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Loads `path`; problems without the folder's own path.
    fn load(path: &Path, folder: &Path) -> Result<Policy, Vec<String>> {
        let prefix = format!("{}/", folder.display());
        load_policy(path)
            .map_err(|error| error.problems.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect())
    }

    fn connector(name: &str) -> String {
        format!("{EMPTY}connectors: {{ {name}: {{}} }}\n")
    }

    fn names(policy: &Policy) -> Vec<String> {
        policy.connectors().map(|connector| connector.name).collect()
    }

    #[test]
    fn a_folder_is_its_own_yaml_files_in_the_order_of_their_names() {
        let folder = Folder::new("own");
        folder.write("b.yaml", connector("b")).write("a.yaml", connector("a")).write("README.md", "no policy");
        folder.write("sub/c.yaml", connector("c")).write(".hidden.yaml", "nonsense").write("d.yaml/e.yaml", "nonsense");
        let policy = folder.load().unwrap();
        assert_eq!(names(&policy), ["a", "b"]);
        let files: Vec<&str> = policy.files().iter().map(|file| file.rsplit('/').next().unwrap()).collect();
        assert_eq!(files, ["a.yaml", "b.yaml"]);
    }

    #[test]
    fn a_folder_mounted_through_links_is_read_and_a_swap_is_seen() {
        let folder = Folder::new("mount");
        folder.write("..one/p.yaml", connector("one")).write("..two/p.yaml", connector("two"));
        let data = folder.0.join("..data");
        symlink("..one", &data).unwrap();
        symlink("..data/p.yaml", folder.0.join("p.yaml")).unwrap();
        assert_eq!(names(&folder.load().unwrap()), ["one"]);
        symlink("..two", folder.0.join("..next")).unwrap();
        fs::rename(folder.0.join("..next"), &data).unwrap();
        assert_eq!(names(&folder.load().unwrap()), ["two"]);
    }

    #[test]
    fn catalogs_are_read_relative_to_the_policy_file() {
        let folder = Folder::new("catalogs");
        folder.write("p.yaml", format!("{EMPTY}connectors: {{ hub: {{ catalog: {{ file: catalogs/hub.yaml }} }} }}\n"));
        assert_eq!(
            folder.load().unwrap_err(),
            ["p.yaml:2:39: connectors.hub.catalog.file: the catalog \"catalogs/hub.yaml\" does not exist"]
        );
        folder.write("catalogs/hub.yaml", "version: countersign.catalog/v1\nactions: { LIST: { scope: raed } }\n");
        let problems = [
            "catalogs/hub.yaml:2:12: actions.LIST: lacks `curated`: `true` once a person has reviewed this entry, else `false`",
            "catalogs/hub.yaml:2:27: actions.LIST.scope: must be one of `read`, `write`, `admin`, not \"raed\"",
        ];
        assert_eq!(folder.load().unwrap_err(), problems);
        let catalog = "version: countersign.catalog/v1\nactions: { LIST: { scope: read, curated: true } }\n";
        folder.write("catalogs/hub.yaml", catalog);
        for path in [folder.0.clone(), folder.0.join("p.yaml")] {
            let policy = load(&path, &folder.0).unwrap();
            assert!(policy.entry("hub", "LIST").is_some());
            assert_eq!(policy.catalogs().len(), 1);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = Folder::new("unread");
        assert_eq!(load(&folder.0.join("none.yaml"), &folder.0).unwrap_err(), ["none.yaml: does not exist"]);
        folder
            .write("large.yaml", vec![b'#'; FILE_BYTES + 1])
            .write("latin.yaml", b"version: \xe9\n")
            .write("q.yml", "");
        symlink("nowhere", folder.0.join("dangling.yaml")).unwrap();
        let mut problems = folder.load().unwrap_err();
        problems.sort();
        assert_eq!(
            problems,
            [
                "dangling.yaml: does not exist",
                "large.yaml: is larger than 1048576 bytes",
                "latin.yaml: is no UTF-8 text",
                "q.yml: is not read: rename it to end in `.yaml`",
            ]
        );
        assert_eq!(load(Path::new("/dev/null"), Path::new("/")).unwrap_err(), ["/dev/null: is no regular file"]);
    }

    #[test]
    fn a_name_that_only_looks_like_a_policys_is_refused() {
        for name in [
            "deny.YAML",
            "deny.Yaml",
            "deny.yml",
            "deny.YML",
            "deny.yaml ",
            "deny. yaml",
            "deny.yaml.",
            "deny.yaml\n",
            "deny.y\u{430}ml",
            "deny.yaml\u{200b}",
            "deny.y\u{200b}aml",
            "deny.\u{ff59}aml",
        ] {
            let folder = Folder::new("lookalike");
            folder.write("a.yaml", EMPTY).write(name, EMPTY);
            let problems = folder.load().unwrap_err();
            assert!(
                problems.len() == 1 && problems[0].contains("rename it to end in `.yaml`"),
                "{name:?}: {problems:?}"
            );
        }
        let folder = Folder::new("no-lookalike");
        folder.write("a.yaml", EMPTY).write("README", "").write("yaml", "").write("a.yaml~", "").write("a.json", "");
        folder.write("notes.md", "").write(".a.yaml.swp", "");
        assert!(folder.load().is_ok());
    }

    #[test]
    fn a_folder_without_a_policy_is_an_error() {
        let folder = Folder::new("empty");
        let error = load_policy(&folder.0).unwrap_err();
        assert!(error.to_string().contains("has no `*.yaml`"), "{error}");
        for number in 0..=FILES {
            folder.write(&format!("{number}.yaml"), EMPTY);
        }
        let error = load_policy(&folder.0).unwrap_err();
        assert!(error.to_string().contains("at most 256"), "{error}");
    }
}
