//! Pure decisions, given `now`: no async, SQL, gRPC, clock, randomness or environment.

pub mod approval;
pub mod arguments;
pub mod audit;
pub mod canonical;
pub mod change;
pub mod consume;
pub mod decision;
pub mod execution;
pub mod fingerprint;
pub mod hex;
pub mod ids;
pub mod invocation;
pub mod json;
pub mod limits;
pub mod pattern;
pub mod permit;
pub mod policy;
pub mod preview;
pub mod requirement;
pub mod scope;
pub mod span;
#[cfg(test)]
pub mod testing;
pub mod text;
pub mod time;
pub mod wait;
pub mod wording;
