//! Countersign: is the action that is about to run still the one a person approved?

pub mod auth;
pub mod clock;
pub mod domain;
pub mod engine;
pub mod policy_files;
pub mod proto;
pub mod secrets;
pub mod service;
pub mod storage;
