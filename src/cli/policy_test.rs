//! `countersign test`: policy tests as data.

use super::exit::Exit;
use crate::policy_test::{Difference, Failure, TestProblem, TestReport, run_tests};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// Runs policy tests: calls, and what the policy must answer to each.
#[derive(Args, Debug)]
pub struct TestCommand {
    /// The policy to test, a file or a folder [default: the one that each file of tests names].
    #[arg(long, value_name = "PATH")]
    policy: Option<PathBuf>,
    /// Files of tests (countersign.tests/v1), or folders with their *.yaml.
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command: [`Exit::Done`] if every case got its answer, [`Exit::No`] if one did not, [`Exit::Usage`] if a file of
/// tests is malformed, [`Exit::Unreachable`] if a file or a policy could not be read. The report goes to `out`, problems
/// to `err`.
///
/// # Errors
///
/// `out` or `err` cannot be written to.
pub fn run(command: &TestCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let report = run_tests(&command.paths, command.policy.as_deref());
    if command.json {
        writeln!(out, "{:#}", as_json(&report))?;
    } else {
        for_people(&report, out, err)?;
    }
    Ok(exit(&report))
}

fn exit(report: &TestReport) -> Exit {
    let malformed = |problem: &TestProblem| match problem {
        TestProblem::Tests(_) => true,
        TestProblem::Unreadable(_) | TestProblem::Policy(_) => false,
    };
    if report.problems.iter().any(|problem| !malformed(problem)) {
        Exit::Unreachable
    } else if !report.problems.is_empty() {
        Exit::Usage
    } else if !report.failures.is_empty() {
        Exit::No
    } else {
        Exit::Done
    }
}

fn for_people(report: &TestReport, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    for problem in &report.problems {
        writeln!(err, "{problem}")?;
    }
    for Failure { file, line, name, differences } in &report.failures {
        let differences: Vec<String> =
            differences.iter().map(|Difference { key, want, got }| format!("{key}: want {want}, got {got}")).collect();
        writeln!(out, "{file}:{line}: {}: {}", name.escape_debug(), differences.join("; "))?;
    }
    let (cases, failed) = (report.cases, report.failures.len());
    let not_run = if report.problems.is_empty() { "" } else { "; not everything was run" };
    writeln!(out, "{cases} cases: {} passed, {failed} failed{not_run}", cases - failed)
}

fn as_json(report: &TestReport) -> Value {
    let failures: Vec<Value> = report
        .failures
        .iter()
        .map(|failure| {
            let differences: Vec<Value> = failure
                .differences
                .iter()
                .map(|difference| json!({ "key": difference.key, "want": difference.want, "got": difference.got }))
                .collect();
            json!({ "file": failure.file, "line": failure.line, "name": failure.name, "differences": differences })
        })
        .collect();
    json!({
        "cases": report.cases,
        "passed": report.cases - report.failures.len(),
        "failed": report.failures.len(),
        "failures": failures,
        "problems": report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
