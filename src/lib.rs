//! Countersign: is the action that is about to run still the one a person approved?

pub mod address;
pub mod app;
pub mod auth;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod domain;
pub mod engine;
pub mod metrics;
pub mod policy_files;
pub mod policy_test;
pub mod proto;
pub mod sealer;
pub mod secrets;
pub mod service;
pub mod storage;
pub mod sweeper;
pub mod telemetry;
