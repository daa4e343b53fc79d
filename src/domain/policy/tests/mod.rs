//! Tests of the policy as a whole: rules as data, the order of checks, and what must hold for every policy.

mod budget;
mod cases;
mod loading;
mod order;
mod properties;
mod revision;
