//! `countersign bench`: what a call costs on this machine, beside a floor that is measured in the same run. Absolute figures
//! say more about the machine than about the sidecar; the ratios, and the CPU time of a call, are what to compare.

mod consume;
pub(super) mod echo;
mod evaluate;
mod expire;
mod load;
mod pgbench;
mod postgres;
mod process;
mod report;
mod sealed;
mod start;
mod world;

use super::exit::Exit;
use clap::{Args, ValueEnum};
use report::Part;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;
use world::World;

/// What `bench` is told.
#[derive(Args, Debug)]
pub(super) struct BenchCommand {
    /// Only these parts.
    #[arg(long, value_name = "NAME", num_args = 1.., value_enum)]
    only: Vec<Name>,
    /// How long one measurement takes; what is counted instead of timed grows with it.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// How often everything is measured, in turn with its floor: the medians are told.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// The approvals in the database that `start` starts on, and that expire in `expire`.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = rows)]
    rows: usize,
    /// Where the databases are made, and removed again: on the disk that is to be measured [default: the system's folder
    /// for temporary files].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measures on this Postgres server as well, in databases that are made there and removed again: a url without a
    /// password, which COUNTERSIGN_POSTGRES_PASSWORD may say. It needs `pgbench`, which comes with Postgres.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Measures what TLS costs as well, with the certificates in this folder: `ca.pem`, `sidecar.pem` and `sidecar.key`,
    /// `chat.pem` and `chat.key`, as the commands in the README make them.
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Evaluate, against an empty call of the same size on the same transport.
    Evaluate,
    /// Durable Consume, against the same statements without a server, a bare commit, and an empty call.
    Consume,
    /// Evaluate through TLS, without and with a client's certificate, and what a connection costs, against plaintext.
    Tls,
    /// From the start to SERVING, memory, the first page of a long list.
    Start,
    /// Durable Consume while everything else in the database expires, against itself while nothing does; once.
    Expire,
    /// Consume through two sidecars on one Postgres database, against pgbench's update of one row.
    Shared,
    /// The same as `expire`, with two sidecars on one Postgres database.
    SharedExpire,
    /// How long a decision through one sidecar takes to be seen through another.
    SharedWatch,
}

/// How much is measured.
pub(super) struct Plan {
    /// How long a measurement takes.
    span: Duration,
    /// How often each is repeated.
    rounds: u32,
    /// Approvals to start on, or to expire.
    rows: usize,
}

impl Plan {
    /// So many a second, for as long as a measurement takes; at least one.
    fn count(&self, per_second: u32) -> usize {
        let count = (f64::from(per_second) * self.span.as_secs_f64()).ceil().max(1.0);
        // At most some millions, by the bounds of both.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let count = count as usize;
        count
    }
}

/// Measures, and prints. 0 whether or not the targets are met: that is for whoever knows the machine to judge.
pub(super) fn run(command: &BenchCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let plan = Plan { span: Duration::from_secs_f64(command.seconds), rounds: command.rounds, rows: command.rows };
    let parts = match measure(command, &plan, err) {
        Ok(parts) => parts,
        Err(cause) => {
            writeln!(err, "bench: {cause}")?;
            return Ok(Exit::Unreachable);
        }
    };
    if command.json {
        report::print_json(&parts, plan.rounds, command.seconds, out)?;
    } else {
        for part in &parts {
            part.print(out)?;
        }
    }
    Ok(Exit::Done)
}

fn measure(command: &BenchCommand, plan: &Plan, err: &mut dyn Write) -> io::Result<Vec<Part>> {
    if cfg!(debug_assertions) {
        writeln!(err, "this binary is not optimised: its figures say little")?;
    }
    let place = command.dir.clone().unwrap_or_else(std::env::temp_dir);
    let world = World::make(&place).map_err(|cause| io::Error::other(format!("{}: {cause}", place.display())))?;
    let all = [Name::Evaluate, Name::Consume, Name::Start, Name::Expire];
    let shared = [Name::Shared, Name::SharedExpire, Name::SharedWatch];
    let server = match &command.postgres {
        Some(url) => Some(postgres::Server::new(&world, url)?),
        None if shared.iter().any(|name| command.only.contains(name)) => {
            return Err(io::Error::other("a part that needs a Postgres server is asked for without --postgres"));
        }
        None => None,
    };
    if command.only.contains(&Name::Tls) && command.certificates.is_none() {
        return Err(io::Error::other("what TLS costs is asked for without --certificates"));
    }
    let all = all.into_iter().chain(command.certificates.as_ref().map(|_| Name::Tls));
    let all = all.chain(shared.into_iter().filter(|_| server.is_some()));
    let wanted = all.filter(|name| command.only.is_empty() || command.only.contains(name));
    wanted
        .map(|name| match name {
            Name::Evaluate => evaluate::run(&world, plan),
            Name::Consume => consume::run(&world, plan),
            Name::Tls => {
                let certificates = command.certificates.as_deref().ok_or(io::ErrorKind::NotFound)?;
                sealed::run(&world, plan, certificates)
            }
            Name::Start => start::run(&world, plan),
            Name::Expire => expire::run(&world, plan),
            Name::Shared | Name::SharedExpire | Name::SharedWatch => {
                let server = server.as_ref().ok_or(io::ErrorKind::NotFound)?;
                match name {
                    Name::SharedExpire => server.expire(&world, plan),
                    Name::SharedWatch => server.watch(&world, plan),
                    _ => server.consume(&world, plan),
                }
            }
        })
        .collect()
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=600.0).contains(seconds));
    seconds.ok_or_else(|| format!("{text:?} is no number of seconds from 0.001 to 600"))
}

fn rows(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| (1..=10_000_000).contains(rows));
    rows.ok_or_else(|| format!("{text:?} is no number from 1 to 10000000"))
}
