//! Limits: of what one call may carry, of what one caller may do at once, and against questions that wear people out.

use super::bounded;
use crate::storage::OpenLimits;
use serde::Deserialize;

/// The `[limits]` section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitsSection {
    arguments_bytes: Option<usize>,
    open_per_principal: Option<u32>,
    open_per_agent: Option<u32>,
}

/// What the section comes to.
pub(super) struct Resolved {
    pub(super) arguments_bytes: usize,
    pub(super) open_limits: OpenLimits,
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
    Resolved { arguments_bytes, open_limits }
}
