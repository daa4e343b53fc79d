//! Countersign: is the action that is about to run still the one a person approved?

pub mod cli;
pub mod domain;
pub mod policy_files;
pub mod policy_test;
pub mod proto;
