//! Limits: of what one call may carry, of what one caller may do at once, and against questions that wear people out.

use super::{bounded, span};
use crate::storage::OpenLimits;
use serde::Deserialize;
use std::time::Duration;

/// The `[limits]` section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitsSection {
    arguments_bytes: Option<usize>,
    open_per_principal: Option<u32>,
    open_per_agent: Option<u32>,
    connections: Option<usize>,
    handshake_timeout: Option<String>,
}

/// What the section comes to.
pub(super) struct Resolved {
    pub(super) arguments_bytes: usize,
    pub(super) open_limits: OpenLimits,
    pub(super) connections: usize,
    pub(super) handshake_timeout: Duration,
}

/// The limits, with a problem for each that is out of its range.
pub(super) fn resolve(section: &LimitsSection, problems: &mut Vec<String>) -> Resolved {
    let mut open = |key: &str, said, default| bounded(key, said, default, 1, 1_000_000, problems);
    let open_limits = OpenLimits {
        per_principal: open("limits.open_per_principal", section.open_per_principal, 100),
        per_agent: open("limits.open_per_agent", section.open_per_agent, 1_000),
    };
    let arguments_bytes = bounded(
        "limits.arguments_bytes",
        section.arguments_bytes,
        crate::domain::arguments::DEFAULT_MAX_ARGUMENTS_BYTES,
        2,
        crate::domain::canonical::MAX_BYTES,
        problems,
    );
    // A descriptor each, and some memory: what a listener of a sidecar has to do with is far below.
    let connections = bounded("limits.connections", section.connections, 1_024, 1, 1_000_000, problems);
    let handshake_timeout = span(
        "limits.handshake_timeout",
        section.handshake_timeout.clone(),
        Duration::from_secs(10),
        (Duration::from_millis(100), Duration::from_secs(60)),
        problems,
    );
    Resolved { arguments_bytes, open_limits, connections, handshake_timeout }
}
