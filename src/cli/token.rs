//! `countersign token`: mints a bearer token.

use super::exit::Exit;
use crate::auth::token::{TokenHash, mint};
use clap::Args;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// What `token` is told.
#[derive(Args, Debug)]
pub(super) struct TokenCommand {
    /// Write the token into this new file (mode 0600) instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Mints a token. The configuration takes its SHA-256; the token itself is for the caller alone.
pub(super) fn run(command: &TokenCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let Ok(token) = mint() else {
        writeln!(err, "this machine has no randomness to make a token from")?;
        return Ok(Exit::Unreachable);
    };
    let hash = TokenHash::of(token.as_bytes()).to_string();
    if let Some(path) = &command.out {
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        if let Err(cause) = written.and_then(|mut file| writeln!(file, "{}", *token).and_then(|()| file.sync_all())) {
            writeln!(err, "{}: {cause}", path.display())?;
            return Ok(Exit::Unreachable);
        }
    }
    match (&command.out, command.json) {
        (None, false) => writeln!(out, "token:        {}\ntoken_sha256: {hash}", *token)?,
        (None, true) => writeln!(out, "{}", json!({ "token": *token, "token_sha256": hash }))?,
        (Some(path), false) => writeln!(out, "token_file:   {}\ntoken_sha256: {hash}", path.display())?,
        (Some(path), true) => writeln!(out, "{}", json!({ "token_file": path, "token_sha256": hash }))?,
    }
    Ok(Exit::Done)
}
