//! The product through its doors: a real sidecar, real gRPC, real SQLite files. Nothing of ours is mocked; time is moved, not
//! waited for.

// A test that cannot go on says so by panicking, also in the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod arguments;
mod attempts;
mod audit;
mod batch;
mod bounds;
mod consume;
mod deadlines;
mod decide;
mod edge;
mod evaluations;
mod execution_lists;
mod executions;
mod gone;
mod harness;
mod health;
mod hostile;
mod limits;
mod listing;
mod metrics;
mod model;
mod moves;
mod operator;
mod outages;
mod policy_changes;
mod promises;
mod races;
mod reload;
mod reload_callers;
mod reload_files;
mod requests;
mod retries;
mod roles;
mod rotation;
mod rotation_live;
mod sealing;
mod shown;
mod shutdown;
mod socket;
mod steps;
mod story;
mod sweeping;
mod tenants;
mod waits;
mod watching;
mod wire;
mod withdraw;
