//! Pure decisions, given `now`: no async, SQL, gRPC, clock, randomness or environment.

pub mod time;
pub mod text;
pub mod canonical;
pub mod json;
pub mod fingerprint;
pub mod arguments;
