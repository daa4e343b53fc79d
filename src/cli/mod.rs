//! The command line.

pub mod catalog;
pub mod exit;
pub mod policy_test;
