//! `countersign secret`: makes a server secret, and tells the key id of one. What is in a file is never printed.

use super::exit::Exit;
use super::terminal::safe;
use crate::secrets::{SecretError, ServerSecret};
use clap::{Args, Subcommand};
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What `secret` is told.
#[derive(Args, Debug)]
pub(super) struct SecretCommand {
    /// Print as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Makes a new secret.
    New(NewCommand),
    /// Prints the key id of a secret: what tokens, rows and messages name it by.
    Id(IdCommand),
}

#[derive(Args, Debug)]
struct NewCommand {
    /// Write it into this new file (mode 0600).
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Args, Debug)]
struct IdCommand {
    /// The secret's file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command: 0 done, 1 the file is no secret, 3 it cannot be read or made.
pub(super) fn run(command: &SecretCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let (path, made) = match &command.command {
        Command::New(new) => (&new.out, ServerSecret::generate().and_then(|secret| secret.write(&new.out))),
        Command::Id(id) => (&id.file, Ok(())),
    };
    // What the file has is what counts, also for the one who made it.
    let id = made.and_then(|()| id_in(path));
    match id {
        Ok(id) if command.json => {
            writeln!(out, "{}", json!({ "secret_file": path.to_string_lossy(), "key_id": id }))?;
        }
        Ok(id) => {
            writeln!(out, "secret_file: {}\nkey_id:      {id}", safe(&path.to_string_lossy()))?;
        }
        Err(problem) => {
            writeln!(err, "{}", safe(&problem.to_string()))?;
            let not_a_secret = matches!(problem, SecretError::NotASecret { .. });
            return Ok(if not_a_secret { Exit::No } else { Exit::Unreachable });
        }
    }
    Ok(Exit::Done)
}

fn id_in(path: &Path) -> Result<String, SecretError> {
    let secret = ServerSecret::read(path)?.ok_or_else(|| SecretError::Missing { path: path.to_owned() })?;
    Ok(secret.keys()?.id().to_owned())
}
