//! Pure decisions, given `now`: no async, SQL, gRPC, clock, randomness or environment.

pub mod arguments;
pub mod canonical;
pub mod fingerprint;
pub mod json;
pub mod preview;
pub mod text;
pub mod time;
