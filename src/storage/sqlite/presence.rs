//! Whether the database is still where it was: a file that was removed or replaced while it is open takes writes, commits
//! them, and is gone with the process.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Which file a name stood for.
type Identity = (u64, u64);

/// The names of the open database, and what they stood for.
#[derive(Debug)]
pub(super) struct Presence {
    database: (PathBuf, Identity),
    /// SQLite makes its log with the first write and keeps it for as long as the database is open.
    log: (PathBuf, OnceLock<Identity>),
}

impl Presence {
    /// The database at `path`, as it is now.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Ok(Self {
            database: (path.to_owned(), identity(&std::fs::metadata(path)?)),
            log: (PathBuf::from(log), OnceLock::new()),
        })
    }

    /// Whether what is committed can be found again under the database's name.
    pub(super) fn is_there(&self) -> bool {
        let (database, known) = &self.database;
        let (log, first) = &self.log;
        let stands_for = |path: &Path| std::fs::metadata(path).ok().map(|found| identity(&found));
        if stands_for(database) != Some(*known) {
            return false;
        }
        match (first.get(), stands_for(log)) {
            (Some(known), found) => found == Some(*known),
            (None, Some(found)) => {
                let _ = first.set(found);
                true
            }
            (None, None) => true,
        }
    }
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}
