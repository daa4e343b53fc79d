//! Pure decisions, given `now`: no async, SQL, gRPC, clock, randomness or environment.

pub mod arguments;
pub mod canonical;
pub mod decision;
pub mod fingerprint;
pub mod json;
pub mod limits;
pub mod policy;
pub mod requirement;
pub mod scope;
pub mod text;
pub mod time;
