//! The packages for other languages: built as they are published, checked by their own tests and by their languages' type
//! checkers, and held to the sidecar's canonical JSON and fingerprints on values that nobody chose. And the example of a
//! connector's proxy, which is written with one of them. Where Python or Node is missing, or a package cannot be had, this fails
//! and never skips.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../clients/mod.rs"]
mod clients;
mod equal;
mod proxy;
mod python;
#[path = "../random/mod.rs"]
mod random;
mod typescript;
mod upstream;

use std::path::{Path, PathBuf};

/// Folders that building and trying out a package makes.
const LEFT_BEHIND: [&str; 3] = ["__pycache__", "node_modules", "dist"];

/// Every file in a folder and the folders in it, in the order of their names.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    // What tools leave behind is no part of a package.
    found.retain(|path| !LEFT_BEHIND.iter().any(|name| path.ends_with(name)));
    found.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// What these files and folders are now, for telling whether anything changed.
pub fn content(paths: &[&str]) -> String {
    let mut text = String::new();
    for path in paths {
        let path = Path::new(path);
        for file in if path.is_dir() { files(path) } else { vec![path.to_owned()] } {
            text.push_str(&format!("{}\n{}\n", file.display(), std::fs::read_to_string(&file).unwrap()));
        }
    }
    text
}
