//! The floor on Postgres: `pgbench`, which comes with it, at the bare conditional update of one row.

use super::load::Sample;
use super::world::PASSWORD;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use uuid::Uuid;

/// Threads of `pgbench`: what two processors can use.
const THREADS: usize = 2;

/// `pgbench`, on a database with the floor's table.
pub(super) struct Floor {
    program: PathBuf,
    url: String,
    script: PathBuf,
    folder: PathBuf,
}

impl Floor {
    /// The floor over so many rows; what it needs is put into `folder`.
    pub(super) fn new(url: &str, rows: usize, folder: &Path) -> io::Result<Self> {
        let script = folder.join(format!("floor-{}.sql", Uuid::new_v4().simple()));
        let update = "UPDATE floor SET used = used + 1 WHERE id = :id AND used < 1000000";
        std::fs::write(&script, format!("\\set id random(1, {rows})\n{update};\n"))?;
        Ok(Self { program: program()?, url: url.to_owned(), script, folder: folder.to_owned() })
    }

    /// Updates for so long with so many clients, each statement prepared once.
    pub(super) fn run(&self, clients: usize, span: Duration) -> io::Result<Sample> {
        let log = format!("floor-{}", Uuid::new_v4().simple());
        let seconds = span.as_secs().max(1);
        let mut command = Command::new(&self.program);
        if let Some(password) = std::env::var_os(PASSWORD) {
            command.env("PGPASSWORD", password);
        }
        let threads = THREADS.min(clients);
        let ran = command
            .args(["-n", "-M", "prepared", "-l"])
            .args(["-c", &clients.to_string(), "-j", &threads.to_string(), "-T", &seconds.to_string()])
            .arg(format!("--log-prefix={log}"))
            .arg("-f")
            .arg(&self.script)
            .arg(&self.url)
            .current_dir(&self.folder)
            .output()?;
        if !ran.status.success() {
            return Err(io::Error::other(format!("pgbench: {}", String::from_utf8_lossy(&ran.stderr))));
        }
        let mut sample = Sample { elapsed: Duration::from_secs(seconds), ..Sample::default() };
        for file in std::fs::read_dir(&self.folder)? {
            let file = file?;
            if !file.file_name().to_string_lossy().starts_with(&log) {
                continue;
            }
            for line in BufReader::new(File::open(file.path())?).lines() {
                // The client, its transaction's number, and how long that took, in microseconds.
                let line = line?;
                let took = line.split_whitespace().nth(2).and_then(|word| word.parse().ok());
                let took = took.ok_or_else(|| io::Error::other("pgbench logs what is not known"))?;
                sample.latencies.push(Duration::from_micros(took));
                sample.answered = sample.answered.saturating_add(1);
            }
            std::fs::remove_file(file.path())?;
        }
        Ok(sample)
    }
}

/// Where it is: on the path, or with the newest of the servers that are installed.
fn program() -> io::Result<PathBuf> {
    let on_path =
        std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    installed.sort();
    let found = on_path.chain(installed.into_iter().rev()).map(|folder| folder.join("pgbench")).find(|it| it.is_file());
    found.ok_or_else(|| io::Error::other("pgbench is not on the path: it comes with Postgres"))
}
