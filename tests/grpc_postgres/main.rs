//! The product through its doors on a real Postgres: the same suite, and what many sidecars on one database owe.

// A test that cannot go on says so by panicking, also in the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod backend;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../grpc/mod.rs"]
mod grpc;
mod many;
mod role;
#[path = "../secrecy/mod.rs"]
mod secrecy;
mod secrets;
#[path = "../tokens/mod.rs"]
mod tokens;
