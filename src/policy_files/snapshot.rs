//! A policy's files as they stood at one moment. What was read is what is compared and what is parsed: nothing is read a
//! second time, so no policy is half of one moment and half of another.

use super::{Listing, PolicyLoadError, read_text};
use crate::domain::policy::{CatalogPath, Policy, Problem, SourceFile};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The catalogs that a policy names, each as a path relative to the policy's folder.
pub type CatalogFiles = BTreeSet<String>;

/// SHA-256 over the names, sizes and contents of files, and over what kept any of them from being read.
pub type ContentDigest = [u8; 32];

/// What stood in a policy's files, and in some catalogs beside them.
#[derive(Debug)]
pub struct Snapshot {
    folder: PathBuf,
    files: Vec<SourceFile>,
    /// Of the folder, and of files that could not be read.
    problems: Vec<Problem>,
    /// The text of each, or why there is none.
    catalogs: BTreeMap<String, Result<String, String>>,
}

/// What a snapshot came to.
#[derive(Debug)]
pub struct Built {
    /// The policy, or every problem of it.
    pub policy: Result<Policy, PolicyLoadError>,
    /// Every catalog that the files name.
    pub catalogs: CatalogFiles,
    /// Of the files and the catalogs that they name.
    pub digest: ContentDigest,
    /// Whether a catalog was read only now, since the snapshot did not know that it was named.
    pub read_late: bool,
}

impl Snapshot {
    /// Reads the policy at `path` and these catalogs. What cannot be read is part of it too.
    pub fn read(path: &Path, catalogs: &CatalogFiles) -> Self {
        let Listing { folder, paths, mut problems } = Listing::of(path);
        let mut files = Vec::new();
        for path in paths {
            let shown = path.display().to_string();
            match read_text(&path) {
                Ok(text) => files.push(SourceFile { path: shown, text }),
                Err(why) => problems.push(Problem::of_file(&shown, why.to_string())),
            }
        }
        let catalogs = catalogs.iter().map(|file| (file.clone(), read_catalog(&folder, file))).collect();
        Self { folder, files, problems, catalogs }
    }

    /// Equal for two snapshots exactly if the same was read.
    pub fn digest(&self) -> ContentDigest {
        let mut hash = Sha256::new();
        // Each part behind its kind and length, so that no two snapshots share their bytes.
        let mut part = |kind: u8, text: &str| {
            hash.update([kind]);
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        for file in &self.files {
            part(b'f', &file.path);
            part(b't', &file.text);
        }
        for problem in &self.problems {
            part(b'p', &problem.to_string());
        }
        for (file, read) in &self.catalogs {
            part(b'c', file);
            match read {
                Ok(text) => part(b't', text),
                Err(why) => part(b'p', why),
            }
        }
        hash.finalize().into()
    }

    /// Builds the policy of exactly these texts. A catalog that is named and not among them is read now.
    pub fn build(mut self) -> Built {
        let mut named = CatalogFiles::new();
        let mut read_late = false;
        let policy = if self.problems.is_empty() {
            let mut read = |catalog: &CatalogPath| {
                named.insert(catalog.file.clone());
                let known = self.catalogs.entry(catalog.file.clone());
                known
                    .or_insert_with_key(|file| {
                        read_late = true;
                        read_catalog(&self.folder, file)
                    })
                    .clone()
            };
            Policy::load(&self.files, &mut read)
        } else {
            Err(self.problems.clone())
        };
        self.catalogs.retain(|file, _| named.contains(file));
        let policy = policy.map_err(|problems| PolicyLoadError { problems });
        Built { policy, digest: self.digest(), catalogs: named, read_late }
    }
}

fn read_catalog(folder: &Path, file: &str) -> Result<String, String> {
    read_text(&folder.join(file)).map_err(|why| why.to_string())
}

/// What the file system says of files without reading them. It differs whenever they may have changed: other names, a
/// link that leads elsewhere, another size, a later time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(Vec<(PathBuf, Result<Stamp, io::ErrorKind>)>, Vec<Problem>);

/// One file, through all links.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(found: Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            mode: found.mode(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// The signature of the policy at `path` and these catalogs.
pub fn signature(path: &Path, catalogs: &CatalogFiles) -> Signature {
    let Listing { folder, paths, problems } = Listing::of(path);
    let all = paths.into_iter().chain(catalogs.iter().map(|file| folder.join(file)));
    let stamps = all.map(|path| {
        let stamp = fs::metadata(&path).map(Stamp::from).map_err(|error| error.kind());
        (path, stamp)
    });
    Signature(stamps.collect(), problems)
}

#[cfg(test)]
mod tests;
