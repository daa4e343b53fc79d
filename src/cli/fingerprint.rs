//! `countersign fingerprint`: the fingerprint or the canonical JSON of arguments, for clients in other languages to
//! compare their own with.

use super::exit::Exit;
use super::input::{self, InputProblem};
use super::terminal;
use crate::domain::canonical::MAX_BYTES;
use crate::domain::fingerprint::{Fingerprint, FingerprintInput, ObjectiveRef};
use crate::domain::limits::MAX_REVISION;
use clap::Args;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// What `fingerprint` is told. The texts may be any: no rule for identifiers holds here.
#[derive(Args, Debug)]
pub(super) struct FingerprintCommand {
    /// The arguments, a JSON object; an empty file means `{}`; `-` reads standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the canonical JSON of the arguments instead; nothing else is needed then.
    #[arg(long)]
    canonical: bool,
    /// The connector.
    #[arg(long, value_name = "C", required_unless_present = "canonical", allow_hyphen_values = true)]
    connector: Option<String>,
    /// The account; empty where there is none.
    #[arg(long, value_name = "A", required_unless_present = "canonical", allow_hyphen_values = true)]
    account: Option<String>,
    /// The action.
    #[arg(long, value_name = "X", required_unless_present = "canonical", allow_hyphen_values = true)]
    action: Option<String>,
    /// The objective's transcript; all three of the objective, or none.
    #[arg(long, value_name = "T", requires_all = ["objective_id", "objective_revision"], allow_hyphen_values = true)]
    objective_transcript: Option<String>,
    /// The objective's id.
    #[arg(long, value_name = "I", requires_all = ["objective_transcript", "objective_revision"], allow_hyphen_values = true)]
    objective_id: Option<String>,
    /// The objective's revision: 0 to 2^53-1.
    #[arg(
        long,
        value_name = "R",
        requires_all = ["objective_transcript", "objective_id"],
        value_parser = clap::value_parser!(u64).range(..=MAX_REVISION),
    )]
    objective_revision: Option<u64>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the fingerprint, or the canonical JSON; what is refused is said on `err`.
pub(super) fn run(command: &FingerprintCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let arguments = match input::arguments(&command.file, MAX_BYTES) {
        Ok(arguments) => arguments,
        Err(InputProblem::Unreadable(cause)) => {
            writeln!(err, "{}: {cause}", command.file.display())?;
            return Ok(Exit::Unreachable);
        }
        Err(InputProblem::Refused(refusal)) => {
            if command.json {
                writeln!(out, "{}", terminal::json(&json!({ "refused": input::refusal_json(&refusal) })))?;
            }
            writeln!(err, "{refusal}")?;
            return Ok(Exit::No);
        }
    };
    let (name, text) = if command.canonical {
        ("canonical_json", arguments.canonical().to_owned())
    } else {
        let text = |option: &'_ Option<String>| option.clone().unwrap_or_default();
        let (account, action, connector) = (text(&command.account), text(&command.action), text(&command.connector));
        let objective = match (&command.objective_transcript, &command.objective_id, command.objective_revision) {
            (Some(transcript), Some(id), Some(revision)) => Some(ObjectiveRef { transcript, id, revision }),
            _ => None,
        };
        let fingerprint = Fingerprint::of(&FingerprintInput {
            account: &account,
            action: &action,
            connector: &connector,
            objective,
            arguments: &arguments,
        });
        ("fingerprint", fingerprint.to_string())
    };
    if command.json {
        writeln!(out, "{}", terminal::json(&json!({ name: text })))?;
    } else {
        // The canonical text is printed as it is: its bytes are what is compared.
        writeln!(out, "{text}")?;
    }
    Ok(Exit::Done)
}
