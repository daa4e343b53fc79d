//! `countersign audit verify`.

use super::super::exit::Exit;
use super::super::terminal::{self, safe};
use super::parts::{Log, PROOF_VERSION, Part, Proof};
use super::{Failure, Operator};
use crate::domain::audit::checkpoint::{Checkpoint, Note, VerifierKey};
use crate::domain::audit::tree::{self, leaf_hash};
use crate::domain::audit::verify::{Verdict, Verifier};
use crate::domain::hex::parse_hex;
use crate::proto;
use crate::secrets::is_signed;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read as _, Write};
use std::path::{Path, PathBuf};

/// A line of an export: a record with all of its labels is a tenth of it.
const LINE_BYTES: u64 = 1024 * 1024;
/// Checkpoints that were kept: a minute each for many years.
const CHECKPOINTS_BYTES: u64 = 1024 * 1024 * 1024;

/// What `audit verify` is told.
#[derive(Args, Debug)]
pub(super) struct VerifyCommand {
    /// An export, in place of asking a sidecar; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "proof")]
    file: Option<PathBuf>,
    /// The proof of one record, as `audit prove` writes it: nothing else is looked at.
    #[arg(long, value_name = "FILE", conflicts_with = "checkpoint")]
    proof: Option<PathBuf>,
    /// A key that is trusted, `NAME+ID+BASE64`; may be given several times [default: those that the sidecar names].
    #[arg(long, value_name = "KEY", value_parser = key)]
    key: Vec<VerifierKey>,
    /// Checkpoints that were kept elsewhere, one or many: the log must be an extension of each. May be given several times.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
}

fn key(text: &str) -> Result<VerifierKey, String> {
    VerifierKey::parse(text)
        .ok_or_else(|| "is no key of the form `NAME+ID+BASE64`, as `audit key` prints it".to_owned())
}

/// A verification under way.
struct Verification<'a> {
    verifier: Verifier<'a>,
    kept: Vec<String>,
    /// Whether the keys are those that the export itself names.
    believed: bool,
}

fn check(key: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    is_signed(key, message, signature)
}

impl VerifyCommand {
    /// Whether no sidecar is asked.
    pub(super) fn is_offline(&self) -> bool {
        self.file.is_some() || self.proof.is_some()
    }

    /// Verifies a file.
    pub(super) fn offline(&self, json: bool, out: &mut dyn Write, err: &mut dyn Write) -> Result<Exit, Failure> {
        if let Some(path) = &self.proof {
            return self.proven(path, json, out, err);
        }
        let Some(path) = &self.file else { return Ok(Exit::Usage) };
        let name = path.display().to_string();
        let failed = |cause| Failure::File(name.clone(), cause);
        let mut lines: Box<dyn BufRead> = if path.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(io::BufReader::new(std::fs::File::open(path).map_err(failed)?))
        };
        let mut verification = self.begin()?;
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            line.clear();
            let read = (&mut lines).take(LINE_BYTES).read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                break;
            }
            number = number.saturating_add(1);
            let part = serde_json::from_slice(&line).map_err(|cause| {
                Failure::Told(Exit::No, format!("{name}: line {number} is no part of an export: {cause}"))
            })?;
            verification.take(part);
        }
        verification.finish(json, out, err)
    }

    /// Verifies what a sidecar tells.
    pub(super) async fn at(
        &self,
        mut operator: Operator,
        json: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Exit, Failure> {
        let mut verification = self.begin()?;
        let mut parts = operator.export_audit(proto::ExportAuditRequest::default()).await?.into_inner();
        while let Some(answer) = parts.message().await? {
            if let Some(part) = Part::of(answer) {
                verification.take(part);
            }
        }
        verification.finish(json, out, err)
    }

    fn begin(&self) -> Result<Verification<'static>, Failure> {
        let mut kept = Vec::new();
        for path in &self.checkpoint {
            let name = path.display().to_string();
            let failed = |cause| Failure::File(name.clone(), cause);
            let mut text = String::new();
            let file = std::fs::File::open(path).map_err(failed)?;
            file.take(CHECKPOINTS_BYTES).read_to_string(&mut text).map_err(failed)?;
            let notes = Note::parse_all(&text);
            if notes.is_empty() {
                return Err(Failure::Told(Exit::No, format!("{name}: there is no checkpoint in it")));
            }
            kept.extend(notes.iter().map(ToString::to_string));
        }
        let verifier = Verifier::new(self.key.clone(), Box::new(check));
        Ok(Verification { believed: !verifier.has_keys(), verifier, kept })
    }

    /// Verifies the proof of one record.
    fn proven(&self, path: &Path, json: bool, out: &mut dyn Write, err: &mut dyn Write) -> Result<Exit, Failure> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(LINE_BYTES).read_to_string(&mut text));
        read.map_err(|cause| Failure::File(name.clone(), cause))?;
        let proof: Proof = serde_json::from_str(&text)
            .ok()
            .filter(|proof: &Proof| proof.v == PROOF_VERSION)
            .ok_or_else(|| Failure::Told(Exit::No, format!("{name}: is no proof of a record")))?;
        let keys = match self.key.is_empty() {
            true => proof.keys.iter().filter_map(|key| VerifierKey::parse(key)).collect(),
            false => self.key.clone(),
        };
        let wrong = is_wrong(&proof, &keys);
        if self.key.is_empty() {
            writeln!(err, "the keys are those that the proof itself names: give --key to trust others")?;
        }
        let record = proof.entry.leaf_text.clone().unwrap_or_default();
        if json {
            let answer = json!({
                "proven": wrong.is_none(), "leaf": proof.entry.leaf, "leaf_text": proof.entry.leaf_text, "problem": wrong,
            });
            writeln!(out, "{}", terminal::json(&answer))?;
        } else {
            match wrong {
                None if record.is_empty() => {
                    writeln!(out, "proven: a record with this hash was sealed as leaf {}", proof.entry.leaf)?
                }
                None => writeln!(out, "proven, as leaf {}:\n{}", proof.entry.leaf, safe(&record))?,
                Some(wrong) => writeln!(out, "not proven: {wrong}")?,
            }
        }
        Ok(if wrong.is_none() { Exit::Done } else { Exit::No })
    }
}

/// What is wrong with a proof.
fn is_wrong(proof: &Proof, keys: &[VerifierKey]) -> Option<&'static str> {
    let Some(note) = Note::parse(&proof.checkpoint) else { return Some("the checkpoint is no signed note") };
    match note.verified(keys, &check) {
        Ok(Some(_)) => {}
        Ok(None) => return Some("the checkpoint is signed by no key that is trusted"),
        Err(_) => return Some("the checkpoint is not signed by the key that it names"),
    }
    let Some(checkpoint) = Checkpoint::parse(&note.text) else { return Some("the checkpoint says nothing of a log") };
    let Some(sealed) = parse_hex(&proof.entry.leaf_hash) else { return Some("the seal is no hash") };
    if proof.entry.leaf_text.as_ref().is_some_and(|text| leaf_hash(text.as_bytes()) != sealed) {
        return Some("the record is not what was sealed");
    }
    let path = proof.path.iter().map(|hash| STANDARD.decode(hash).ok()?.try_into().ok());
    let Some(path) = path.collect::<Option<Vec<_>>>() else { return Some("the way to the root is not one of hashes") };
    let is_included = tree::is_included(&sealed, proof.entry.leaf, checkpoint.size, &path, &checkpoint.root);
    (!is_included).then_some("the record is not in the log that the checkpoint signed")
}

impl Verification<'_> {
    fn take(&mut self, part: Part) {
        match part {
            Part::Log(log) => self.log(&log),
            Part::Checkpoint(checkpoint) => self.verifier.checkpoint(&checkpoint.note),
            Part::Entry(entry) => self.verifier.entry(entry.said()),
            Part::Unsealed { leaf_text } => self.verifier.unsealed(&leaf_text),
            Part::End { entries, unsealed } => self.verifier.end(entries, unsealed),
        }
    }

    fn log(&mut self, log: &Log) {
        if self.believed {
            log.keys.iter().filter_map(|key| VerifierKey::parse(key)).for_each(|key| self.verifier.trust(key));
        }
        self.verifier.log(log.said());
        for note in std::mem::take(&mut self.kept) {
            self.verifier.kept_elsewhere(&note);
        }
    }

    fn finish(self, json: bool, out: &mut dyn Write, err: &mut dyn Write) -> Result<Exit, Failure> {
        let Self { verifier, kept, believed } = self;
        if !kept.is_empty() {
            return Err(Failure::Told(Exit::No, "the export does not begin with what log it is of".to_owned()));
        }
        let verdict = verifier.finish();
        if json {
            writeln!(out, "{}", terminal::json(&answer(&verdict, believed)))?;
        } else {
            shown(&verdict, out)?;
        }
        if believed {
            writeln!(err, "the keys are those that the sidecar itself names: give --key to trust others")?;
        }
        Ok(if verdict.is_good() { Exit::Done } else { Exit::No })
    }
}

fn answer(verdict: &Verdict, believed: bool) -> Value {
    let findings: Vec<Value> = verdict
        .findings
        .iter()
        .map(|finding| {
            json!({
                "kind": finding.kind.as_str(),
                "leaf": finding.leaf,
                "position": finding.position,
                "record_id": finding.record_id,
                "what": finding.what,
            })
        })
        .collect();
    json!({
        "verified": verdict.is_good(),
        "origin": verdict.origin,
        "size": verdict.size,
        "signed_size": verdict.signed,
        "records": verdict.records,
        "deleted": verdict.deleted,
        "unsealed": verdict.unsealed,
        "checkpoints": verdict.checkpoints,
        "checkpoints_of_other_keys": verdict.unknown_keys,
        "keys_given": !believed,
        "findings": findings,
        "findings_left_out": verdict.untold,
    })
}

fn shown(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    let Verdict { size, signed, records, deleted, unsealed, checkpoints, unknown_keys, .. } = verdict;
    writeln!(out, "log:         {}", safe(verdict.origin.as_deref().unwrap_or("(none)")))?;
    writeln!(out, "seals:       {size}, of which the first {signed} are as they were signed")?;
    writeln!(out, "records:     {records}; {deleted} were deleted in their time, {unsealed} have no seal yet")?;
    writeln!(out, "checkpoints: {checkpoints}; {unknown_keys} are signed by other keys, and were not looked at")?;
    if verdict.is_good() {
        return writeln!(out, "nothing was changed, removed, inserted or cut");
    }
    let number = u64::try_from(verdict.findings.len()).unwrap_or(u64::MAX).saturating_add(verdict.untold);
    writeln!(out, "{number} findings:")?;
    for finding in &verdict.findings {
        write!(out, "  {}", finding.kind)?;
        if let Some(leaf) = finding.leaf {
            write!(out, " leaf {leaf}")?;
        }
        if let Some(position) = finding.position {
            write!(out, " position {position}")?;
        }
        if let Some(id) = &finding.record_id {
            write!(out, " record {}", safe(id))?;
        }
        writeln!(out, ": {}", safe(&finding.what))?;
    }
    Ok(())
}
