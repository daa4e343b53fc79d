//! The product through its doors: a real sidecar, real gRPC, real SQLite files. Nothing of ours is mocked; time is moved, not
//! waited for.

mod audit;
mod batch;
mod consume;
mod decide;
mod harness;
mod health;
mod hostile;
mod listing;
mod requests;
mod roles;
mod shutdown;
mod steps;
mod story;
mod tenants;
mod wire;
