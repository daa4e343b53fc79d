//! The command line.

pub mod catalog;
pub mod exit;
