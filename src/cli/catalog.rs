//! `countersign catalog import`: a catalog from an MCP server's tool list.

use super::exit::Exit;
use crate::domain::canonical::MAX_BYTES;
use crate::domain::policy::Problem;
use crate::domain::policy::import::{ExistingCatalog, Import, Outcome, Report, import, read_tools};
use crate::domain::scope::Scope;
use crate::policy_files::read_text;
use clap::{Args, Subcommand};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

/// Makes and updates catalogs of actions.
#[derive(Args, Debug)]
pub struct CatalogCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Makes a catalog from an MCP server's `tools/list` result.
    Import(ImportCommand),
}

/// What `catalog import` is told.
#[derive(Args, Debug)]
struct ImportCommand {
    /// The result of `tools/list`, or the JSON-RPC response with it; `-` reads standard input.
    #[arg(value_name = "FILE")]
    list: PathBuf,
    /// A reviewed catalog to update: entries whose definition is unchanged stay as they are.
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Where to write the catalog [default: the file of --into, else standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A person has reviewed every entry: mark them all as curated.
    #[arg(long)]
    curated: bool,
    /// Write nothing; exit with 1 if there would be something to write.
    #[arg(long)]
    check: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Why nothing was done: the exit, and what to print.
struct Failure {
    exit: Exit,
    lines: Vec<String>,
}

/// Runs the command. The catalog and JSON go to `out`, the report for people and problems to `err`.
///
/// # Errors
///
/// `out` or `err` cannot be written to.
pub fn run(command: &CatalogCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let Command::Import(command) = &command.command;
    match command.run(out, err) {
        Ok(exit) => exit,
        Err(failure) => {
            if command.json {
                writeln!(out, "{:#}", json!({ "problems": failure.lines }))?;
            } else {
                failure.lines.iter().try_for_each(|line| writeln!(err, "{line}"))?;
            }
            Ok(failure.exit)
        }
    }
}

impl ImportCommand {
    fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> Result<io::Result<Exit>, Failure> {
        let target = self.out.as_deref().or(self.into.as_deref());
        if self.check && target.is_none() {
            let line = "--check compares with a file: give it with --into or --out".to_owned();
            return Err(Failure { exit: Exit::Usage, lines: vec![line] });
        }
        let name = self.list.display();
        let tools = read_tools(&self.read_list()?).map_err(|problems| {
            let lines = problems.iter().map(|problem| format!("{name}: {problem}")).collect();
            Failure { exit: Exit::No, lines }
        })?;
        let existing = self.into.as_deref().map(read_catalog).transpose()?;
        let made = import(existing.as_ref().map(|(catalog, _)| catalog), &tools, self.curated)
            .map_err(|problems| refused(&problems))?;
        let before = match (target, &existing) {
            (Some(target), Some((_, text))) if Some(target) == self.into.as_deref() => Some(text.clone()),
            (Some(target), _) => read_if_there(target)?,
            (None, _) => None,
        };
        let changes = target.is_some() && before.as_ref() != Some(&made.text);
        if let (Some(target), None, Some(_), true) = (target, &existing, &before, changes && !self.check) {
            let target = target.display();
            let line = format!("{target}: is there already; update it with --into {target}, or remove it first");
            return Err(Failure { exit: Exit::No, lines: vec![line] });
        }
        if let (Some(target), true, false) = (target, changes, self.check) {
            write_whole(target, &made.text).map_err(|error| failure(target, "written", &error))?;
        }
        let exit = if self.check && changes { Exit::No } else { Exit::Done };
        Ok(self.report(&made, target, changes, out, err).map(|()| exit))
    }

    /// The text of the list, no more of it than is read as one.
    fn read_list(&self) -> Result<String, Failure> {
        let limit = MAX_BYTES as u64 + 1;
        let mut text = String::new();
        let read = if self.list.as_os_str() == "-" {
            io::stdin().lock().take(limit).read_to_string(&mut text)
        } else {
            File::open(&self.list).and_then(|file| file.take(limit).read_to_string(&mut text))
        };
        read.map(|_| text).map_err(|error| failure(&self.list, "read", &error))
    }

    fn report(
        &self,
        made: &Import,
        target: Option<&Path>,
        changes: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<()> {
        let written = changes && !self.check;
        if self.json {
            let text = if target.is_none() { Some(&made.text) } else { None };
            let report = as_json(&made.report, changes, written, text.map(String::as_str));
            return writeln!(out, "{report:#}");
        }
        if target.is_none() {
            out.write_all(made.text.as_bytes())?;
        }
        err.write_all(for_people(&made.report).as_bytes())?;
        match target {
            Some(target) if written => writeln!(err, "Written to {}.", target.display()),
            Some(target) if changes => writeln!(err, "{} would change.", target.display()),
            Some(target) => writeln!(err, "{} is up to date.", target.display()),
            None => Ok(()),
        }
    }
}

fn read_catalog(path: &Path) -> Result<(ExistingCatalog, String), Failure> {
    let text = read_file(path)?;
    let catalog = ExistingCatalog::read(&path.display().to_string(), &text).map_err(|problems| refused(&problems))?;
    Ok((catalog, text))
}

fn read_if_there(path: &Path) -> Result<Option<String>, Failure> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(_) | Err(_) => read_file(path).map(Some),
    }
}

fn read_file(path: &Path) -> Result<String, Failure> {
    read_text(path).map_err(|why| {
        let line = format!("{}: {why}", path.display());
        Failure { exit: Exit::Unreachable, lines: vec![line] }
    })
}

fn refused(problems: &[Problem]) -> Failure {
    Failure { exit: Exit::No, lines: problems.iter().map(ToString::to_string).collect() }
}

fn failure(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure { exit: Exit::Unreachable, lines: vec![format!("{}: cannot be {what}: {error}", path.display())] }
}

/// Puts the file there as a whole: whoever reads it meanwhile sees the old text or the new one, and a crash leaves one of
/// them. A link is followed, and the file keeps its permissions.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::IsADirectory)?);
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_and_rename(&temporary, &path, text);
    if written.is_err() {
        // What is left over would only be in the way; the error is the one to tell.
        _ = fs::remove_file(&temporary);
    }
    written
}

fn write_and_rename(temporary: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(temporary)?;
    file.write_all(text.as_bytes())?;
    if let Ok(metadata) = fs::metadata(path) {
        file.set_permissions(metadata.permissions())?;
    }
    file.sync_all()?;
    fs::rename(temporary, path)
}

fn for_people(report: &Report) -> String {
    let [read, write, admin] = Scope::ALL.map(|scope| report.count(scope));
    let mut text = format!("{} actions: {read} read, {write} write, {admin} admin.\n", report.entries.len());
    if !report.kept.is_empty() {
        _ = writeln!(text, "Kept as reviewed: {}.", report.kept.len());
    }
    let update = report.added.len() < report.entries.len() || !report.removed.is_empty();
    let now = |name: &String| report.entries.iter().find(|entry| entry.name == *name);
    // Of a first import everything is new.
    if update {
        list(&mut text, "New", report.added.iter().filter_map(now).map(said));
    }
    let change = |was: &Outcome| {
        let now = now(&was.name).map(|now| now.scope.as_str()).unwrap_or_default();
        format!("{} -> {now}", said(was))
    };
    list(&mut text, "Changed", report.changed.iter().map(change));
    list(&mut text, "Removed", report.removed.iter().map(said));
    let open = report.uncurated().count();
    if open > 0 {
        _ = writeln!(text, "Not reviewed: {open}. Read each, correct its scope and tags, and set `curated: true`.");
    }
    text
}

fn list(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        _ = writeln!(text, "{title}: {}", lines.len());
        lines.iter().for_each(|line| _ = writeln!(text, "  {line}"));
    }
}

fn said(entry: &Outcome) -> String {
    let reviewed = if entry.curated { ", reviewed" } else { "" };
    format!("{} ({}{reviewed})", entry.name, entry.scope)
}

fn as_json(report: &Report, changes: bool, written: bool, catalog: Option<&str>) -> serde_json::Value {
    let short =
        |entry: &Outcome| json!({ "name": entry.name, "scope": entry.scope.as_str(), "curated": entry.curated });
    let all = |entries: &[Outcome]| entries.iter().map(short).collect::<Vec<_>>();
    let [read, write, admin] = Scope::ALL.map(|scope| report.count(scope));
    let mut value = json!({
        "actions": report.entries.len(),
        "scopes": { "read": read, "write": write, "admin": admin },
        "kept": report.kept,
        "added": report.added,
        "changed": all(&report.changed),
        "removed": all(&report.removed),
        "not_curated": report.uncurated().map(|entry| &entry.name).collect::<Vec<_>>(),
        "changes": changes,
        "written": written,
    });
    if let (Some(catalog), Some(members)) = (catalog, value.as_object_mut()) {
        members.insert("catalog".to_owned(), catalog.into());
    }
    value
}

#[cfg(test)]
mod tests;
