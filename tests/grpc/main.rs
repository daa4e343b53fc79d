//! The product through its doors: a real sidecar, real gRPC, real SQLite files. Nothing of ours is mocked; time is moved, not
//! waited for.

// A test that cannot go on says so by panicking, also in the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod backend;
#[path = "../certificates/mod.rs"]
mod certificates;
mod file;
#[path = "mod.rs"]
mod grpc;
// Listeners know nothing of the database behind them: these are run once.
mod listeners;
mod mtls;
#[path = "../secrecy/mod.rs"]
mod secrecy;
mod tls;
#[path = "../tokens/mod.rs"]
mod tokens;
