//! Tests of the policy as a whole: rules as data, the order of checks, and what must hold for every policy.

mod cases;
mod order;
mod properties;
mod revision;
