//! Arguments from a file or standard input, byte for byte.

use crate::domain::arguments::Arguments;
use crate::domain::canonical::{Limits, MAX_BYTES, Refusal, Top, canonicalise_bytes};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Why there are no arguments.
#[derive(Debug)]
pub(super) enum InputProblem {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// It was read, and is refused.
    Refused(Refusal),
}

/// The arguments in the file at `path`; `-` is standard input. Of what is too large no more is read than shows it.
///
/// # Errors
/// It cannot be read, or is not what arguments may be.
pub(super) fn arguments(path: &Path, max_bytes: usize) -> Result<Arguments, InputProblem> {
    let max_bytes = max_bytes.min(MAX_BYTES);
    let bytes = read(path, max_bytes).map_err(InputProblem::Unreadable)?;
    parse(&bytes, max_bytes).map_err(InputProblem::Refused)
}

/// What a refusal says to programs.
pub(super) fn refusal_json(refusal: &Refusal) -> Value {
    json!({
        "code": refusal.problem.code(),
        "pointer": refusal.pointer,
        "offset": refusal.offset,
        "message": refusal.to_string(),
    })
}

fn read(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn parse(bytes: &[u8], max_bytes: usize) -> Result<Arguments, Refusal> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Arguments::parse(text, max_bytes),
        // Not UTF-8: the reader says where, or names an earlier problem.
        Err(_) => canonicalise_bytes(bytes, Limits { max_bytes, top: Top::Object })
            .and_then(|canonical| Arguments::parse(&canonical, max_bytes)),
    }
}
