//! The command line: human output by default, `--json` everywhere. Exit codes: 0 done, 1 the answer is no, 2 usage, 3 cannot
//! reach or start.

mod approvals;
mod audit;
mod bench;
pub mod catalog;
mod check;
mod demo;
mod evaluate;
pub mod exit;
mod fingerprint;
mod health;
mod input;
mod migrate;
mod permit;
pub mod policy_test;
mod remote;
mod secret;
mod serve;
mod show;
mod terminal;
mod token;

use clap::{Parser, Subcommand};
use exit::Exit;
use std::ffi::OsString;
use std::io::{self, Write};

/// Is the action that is about to run still the one a person approved?
#[derive(Parser, Debug)]
#[command(name = "countersign", version, about, max_term_width = 120)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows what it is: a sidecar, an agent that wants to send an email, and you, who are asked.
    Demo(demo::DemoCommand),
    /// Runs the sidecar.
    Serve(serve::ServeCommand),
    /// Names everything that is wrong with a configuration and its policy.
    Check(check::CheckCommand),
    /// Asks a policy's files about one call, without a sidecar. Exits with 0 for ALLOW alone, with 1 for any other answer.
    Evaluate(evaluate::EvaluateCommand),
    /// Lists, shows and decides approvals, at a sidecar.
    Approvals(approvals::ApprovalsCommand),
    /// Exports the audit, verifies that nothing in it was changed, and proves single records.
    Audit(audit::AuditCommand),
    /// Makes and updates catalogs of actions.
    Catalog(catalog::CatalogCommand),
    /// Runs policy tests: cases as data against a policy.
    Test(policy_test::TestCommand),
    /// Prints the fingerprint, or the canonical JSON, of arguments.
    Fingerprint(fingerprint::FingerprintCommand),
    /// Asks whether a sidecar serves.
    Health(health::HealthCommand),
    /// Brings the database to this binary's schema.
    Migrate(migrate::MigrateCommand),
    /// Makes a server secret, or tells the key id of one.
    Secret(secret::SecretCommand),
    /// Checks a permit as whoever makes the call does.
    Permit(permit::PermitCommand),
    /// Mints a bearer token for a caller.
    Token(token::TokenCommand),
    /// Measures what calls cost on this machine, each against a floor of the same run.
    Bench(bench::BenchCommand),
    /// The floor that `bench` measures against.
    #[command(hide = true)]
    BenchEcho(bench::echo::EchoCommand),
}

/// Runs the command of these arguments, the first of which is the program's name. What a command answers goes to `out`,
/// what a person should know beside it to `err`.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = match CommandLine::try_parse_from(&arguments) {
        Ok(line) => line.command,
        Err(problem) => {
            let text = without_urls(problem.render().to_string(), &arguments);
            let (written, exit) = if problem.use_stderr() {
                (err.write_all(text.as_bytes()), Exit::Usage)
            } else {
                (out.write_all(text.as_bytes()), Exit::Done)
            };
            drop(written);
            return exit;
        }
    };
    let done = match &command {
        Command::Demo(command) => demo::run(command, out, err),
        Command::Serve(command) => serve::run(command, err),
        Command::Check(command) => check::run(command, out),
        Command::Evaluate(command) => evaluate::run(command, out, err),
        Command::Approvals(command) => approvals::run(command, out, err),
        Command::Audit(command) => audit::run(command, out, err),
        Command::Catalog(command) => catalog::run(command, out, err),
        Command::Test(command) => policy_test::run(command, out, err),
        Command::Fingerprint(command) => fingerprint::run(command, out, err),
        Command::Health(command) => health::run(command, out, err),
        Command::Migrate(command) => migrate::run(command, out, err),
        Command::Secret(command) => secret::run(command, out, err),
        Command::Permit(command) => permit::run(command, out, err),
        Command::Token(command) => token::run(command, out, err),
        Command::Bench(command) => bench::run(command, out, err),
        Command::BenchEcho(command) => bench::echo::run(command, out),
    };
    // A reader that has gone away (`| head`) wants no more, and that is no failure of the command's.
    done.unwrap_or_else(|cause| {
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return Exit::Done;
        }
        let _ = writeln!(err, "countersign: the output cannot be written: {cause}");
        Exit::Unreachable
    })
}

/// A message about arguments, without those that may be a database's URL in the wrong place: one may hold a password.
fn without_urls(message: String, arguments: &[OsString]) -> String {
    let texts = arguments.iter().map(|argument| argument.to_string_lossy());
    texts.fold(message, |message, text| {
        // A flag that is not known, with its value, or a value alone.
        let value = text.strip_prefix("--").and_then(|flag| flag.split_once('=')).map_or(&*text, |(_, value)| value);
        let meant = value.starts_with("postgres") || (value.contains(':') && value.contains('@'));
        if meant { message.replace(value, "(not repeated)") } else { message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_flag_is_declared_without_conflict() {
        <CommandLine as clap::CommandFactory>::command().debug_assert();
    }
}
