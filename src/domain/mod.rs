//! Pure decisions, given `now`: no async, SQL, gRPC, clock, randomness or environment.

pub mod time;
