//! The product through its doors: a real sidecar, real gRPC, real SQLite files. Nothing of ours is mocked; time is moved, not
//! waited for.

// Helpers of tests end a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod attempts;
mod consume;
mod deadlines;
mod executions;
mod gone;
mod harness;
mod outages;
mod policy_changes;
mod races;
mod retries;
mod steps;
mod story;
