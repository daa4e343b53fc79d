//! The product through its doors: a real sidecar, real gRPC, real SQLite files. Nothing of ours is mocked; time is moved, not
//! waited for.

// Helpers of tests end a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod arguments;
mod audit;
mod batch;
mod bounds;
mod consume;
mod decide;
mod harness;
mod health;
mod hostile;
mod limits;
mod listing;
mod moves;
mod operator;
mod requests;
mod roles;
mod shown;
mod shutdown;
mod story;
mod tenants;
mod wire;
mod withdraw;
