//! `countersign audit`: the audit exported, verified, and single records proven, at a sidecar or from files alone.

mod parts;
mod verify;

use super::exit::Exit;
use super::remote::{Connection, Refused, block_on};
use super::terminal::{self, safe};
use crate::client::{self, Authenticated};
use crate::proto;
use crate::proto::operator_service_client::OperatorServiceClient;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use parts::{Part, Proof};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use tonic::Status;

/// What `audit` is told.
#[derive(Args, Debug)]
pub(super) struct AuditCommand {
    #[command(flatten)]
    connection: Connection,
    /// Print as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Writes the audit with its seals and checkpoints, one JSON object a line.
    Export(ExportCommand),
    /// Finds what was changed, removed, inserted, put in another order or cut. Exits with 1 if anything was.
    Verify(verify::VerifyCommand),
    /// Prints a checkpoint: keep it elsewhere, and `verify --checkpoint` finds whatever is done to the log later.
    Checkpoint(CheckpointCommand),
    /// Writes the proof that one record is in the log; `verify --proof` checks it without the rest.
    Prove(ProveCommand),
    /// Prints the keys by which checkpoints are verified, the one that signs first.
    Key,
}

#[derive(Args, Debug)]
struct ExportCommand {
    /// Write it into this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Begin with this leaf. Only a whole export can be verified.
    #[arg(long, value_name = "LEAF", default_value_t = 0)]
    from: u64,
}

#[derive(Args, Debug)]
struct CheckpointCommand {
    /// The one of this size [default: the newest].
    #[arg(long, value_name = "SIZE")]
    size: Option<u64>,
    /// Seal and sign first what there is.
    #[arg(long, conflicts_with = "size")]
    now: bool,
}

#[derive(Args, Debug)]
struct ProveCommand {
    /// The record's id.
    #[arg(value_name = "RECORD_ID")]
    record_id: String,
    /// Write it into this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Why a command did not do what it was for.
enum Failure {
    Refused(Refused),
    /// A file that cannot be read or written, by name.
    File(String, io::Error),
    /// How it ends, and what to say.
    Told(Exit, String),
    Output(io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused(Refused::of(&status))
    }
}

impl From<io::Error> for Failure {
    fn from(cause: io::Error) -> Self {
        Self::Output(cause)
    }
}

/// Runs the command: 0 done, 1 something is wrong with the audit or the sidecar says no, 2 asked wrongly, 3 no answer, or a
/// file that cannot be read.
pub(super) fn run(command: &AuditCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let done = match &command.command {
        // Nobody is asked.
        Command::Verify(verify) if verify.is_offline() => verify.offline(command.json, out, err),
        _ => match command.connection.credential() {
            Ok(token) => block_on(async {
                let channel = command.connection.channel().map_err(Failure::Refused)?;
                run_at(command, client::operator(channel, token), out, err).await
            })?,
            Err((exit, line)) => Err(Failure::Told(exit, line)),
        },
    };
    match done {
        Ok(exit) => Ok(exit),
        Err(Failure::Output(cause)) => Err(cause),
        Err(Failure::File(name, cause)) => {
            writeln!(err, "{}: {cause}", safe(&name))?;
            Ok(Exit::Unreachable)
        }
        Err(Failure::Told(exit, line)) => {
            writeln!(err, "{}", safe(&line))?;
            Ok(exit)
        }
        Err(Failure::Refused(refused)) => {
            if command.json {
                writeln!(out, "{}", terminal::json(&json!({ "error": refused.json() })))?;
            }
            let server = command.connection.server();
            let place = if refused.reason.is_empty() { format!("{server}: ") } else { String::new() };
            writeln!(err, "{place}{refused}")?;
            Ok(refused.exit())
        }
    }
}

type Operator = OperatorServiceClient<Authenticated>;

async fn run_at(
    command: &AuditCommand,
    mut operator: Operator,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Exit, Failure> {
    match &command.command {
        Command::Export(export) => run_export(export, operator, out, err).await,
        Command::Verify(verify) => verify.at(operator, command.json, out, err).await,
        Command::Checkpoint(wanted) => {
            let request = proto::GetAuditCheckpointRequest { size: wanted.size.unwrap_or(0), sign_now: wanted.now };
            let told = operator.get_audit_checkpoint(request).await?.into_inner();
            let checkpoint = parts::Checkpoint::from(told.checkpoint.unwrap_or_default());
            if command.json {
                let (note, time, key_id) = (&checkpoint.note, &checkpoint.time, &checkpoint.key_id);
                writeln!(out, "{}", terminal::json(&json!({ "note": note, "time": time, "key_id": key_id })))?;
            } else {
                // As it is: its bytes are what is signed.
                out.write_all(checkpoint.note.as_bytes())?;
            }
            Ok(Exit::Done)
        }
        Command::Prove(prove) => {
            let request = proto::ProveAuditRecordRequest { record_id: prove.record_id.clone() };
            let told = operator.prove_audit_record(request).await?.into_inner();
            let keys = keys(&mut operator).await?;
            let proof = Proof {
                v: parts::PROOF_VERSION.to_owned(),
                entry: told.entry.unwrap_or_default().into(),
                path: told.path.iter().map(|hash| STANDARD.encode(hash)).collect(),
                checkpoint: told.checkpoint.unwrap_or_default().note,
                keys,
            };
            let text = serde_json::to_string_pretty(&proof).map_err(io::Error::other)?;
            match &prove.out {
                None => writeln!(out, "{text}")?,
                Some(path) => {
                    let failed = |cause| Failure::File(path.display().to_string(), cause);
                    std::fs::write(path, format!("{text}\n")).map_err(failed)?;
                }
            }
            Ok(Exit::Done)
        }
        Command::Key => {
            let keys = keys(&mut operator).await?;
            if command.json {
                writeln!(out, "{}", terminal::json(&json!({ "keys": keys })))?;
            } else {
                keys.iter().try_for_each(|key| writeln!(out, "{}", safe(key)))?;
            }
            Ok(Exit::Done)
        }
    }
}

/// The keys that the sidecar names: an export begins with them.
async fn keys(operator: &mut Operator) -> Result<Vec<String>, Failure> {
    let request = proto::ExportAuditRequest { from_leaf: u64::MAX };
    let mut parts = operator.export_audit(request).await?.into_inner();
    match parts.message().await?.and_then(Part::of) {
        Some(Part::Log(log)) => Ok(log.keys),
        _ => Err(Failure::Refused(Refused::ended())),
    }
}

async fn run_export(
    export: &ExportCommand,
    mut operator: Operator,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Exit, Failure> {
    let request = proto::ExportAuditRequest { from_leaf: export.from };
    let mut parts = operator.export_audit(request).await?.into_inner();
    let name = export.out.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let failed = |cause| Failure::File(name.clone(), cause);
    let mut file = match &export.out {
        None => None,
        Some(path) => Some(io::BufWriter::new(std::fs::File::create(path).map_err(failed)?)),
    };
    let mut ended = None;
    while let Some(answer) = parts.message().await? {
        let Some(part) = Part::of(answer) else { continue };
        if let Part::End { entries, unsealed } = part {
            ended = Some((entries, unsealed));
        }
        let line = serde_json::to_string(&part).map_err(io::Error::other)?;
        match &mut file {
            None => writeln!(out, "{line}")?,
            Some(file) => writeln!(file, "{line}").map_err(failed)?,
        }
    }
    if let Some(mut file) = file {
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
    }
    let Some((entries, unsealed)) = ended else { return Err(Failure::Refused(Refused::ended())) };
    if export.out.is_some() {
        writeln!(err, "{entries} sealed records, {unsealed} without a seal yet")?;
    }
    Ok(Exit::Done)
}
