//! The product through its doors: a real sidecar, real gRPC, real SQLite files. Nothing of ours is mocked; time is moved, not
//! waited for.

mod consume;
mod harness;
mod story;
