//! Checkpoints in a file of their own: whoever can write the database alone cannot make them undone.

use crate::domain::audit::checkpoint::{NOTE_BYTES, Note};
use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Adds a note at the end, and waits until it is on the disk. The file is made, readable and writable for its owner alone, if
/// it is not there.
///
/// # Errors
/// It cannot be written.
pub(super) fn append(path: &Path, note: &Note) -> io::Result<()> {
    let new = !path.exists();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("{note}\n").as_bytes())?;
    file.sync_all()?;
    if new && let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// The last notes that the file has, the last one last; none if there is no file.
///
/// # Errors
/// It cannot be read.
pub(super) fn last(path: &Path) -> io::Result<Vec<Note>> {
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let read = u64::try_from(NOTE_BYTES).unwrap_or(u64::MAX);
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(read)))?;
    let mut bytes = Vec::new();
    file.take(read).read_to_end(&mut bytes)?;
    Ok(Note::parse_all(&String::from_utf8_lossy(&bytes)))
}
