//! The binary: arguments in, exit code out.

use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = countersign::cli::run(std::env::args_os(), &mut stdout().lock(), &mut stderr());
    ExitCode::from(exit.code())
}
