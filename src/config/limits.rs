//! Limits: of what one call may carry, of what one caller may do at once, and against questions that wear people out.

use super::bounded;
use crate::auth::{CallerLimits, Rate};
use crate::storage::OpenLimits;
use serde::Deserialize;

/// The `[limits]` section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitsSection {
    arguments_bytes: Option<usize>,
    open_per_principal: Option<u32>,
    open_per_agent: Option<u32>,
    message_bytes: Option<usize>,
    calls_per_caller: Option<u32>,
    streams_per_caller: Option<u32>,
    rate_per_caller: Option<u32>,
    burst_per_caller: Option<u32>,
}

/// What the section comes to.
pub(super) struct Resolved {
    pub(super) arguments_bytes: usize,
    pub(super) open_limits: OpenLimits,
    pub(super) message_bytes: usize,
    pub(super) of_callers: CallerLimits,
}

/// What a message may measure where nothing is said: a batch of a hundred ordinary invocations, or a few large ones.
pub(super) const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// No caller may do more at once.
pub(super) const MOST_AT_ONCE: u32 = 65_536;
/// Calls a second that nobody reaches are no limit, which is said by leaving it out.
const MOST_RATE: u32 = 1_000_000;
/// Beside its arguments a message has names, labels and notes.
const BESIDE_ARGUMENTS: usize = 64 * 1024;

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
    let message_bytes = bounded(
        "limits.message_bytes",
        section.message_bytes,
        MESSAGE_BYTES,
        BESIDE_ARGUMENTS,
        64 * 1024 * 1024,
        problems,
    );
    if message_bytes < arguments_bytes.saturating_add(BESIDE_ARGUMENTS) {
        problems.push(format!(
            "limits.message_bytes: {message_bytes} has no room for arguments of {arguments_bytes} bytes and {BESIDE_ARGUMENTS} beside"
        ));
    }
    let mut at_most = |key: &str, said, default| bounded(key, said, default, 1, MOST_AT_ONCE, problems);
    let default = CallerLimits::default();
    let calls = at_most("limits.calls_per_caller", section.calls_per_caller, default.calls);
    let streams = at_most("limits.streams_per_caller", section.streams_per_caller, default.streams);
    let rate = rate(
        ("limits.rate_per_caller", section.rate_per_caller),
        ("limits.burst_per_caller", section.burst_per_caller),
        default.rate,
        problems,
    );
    Resolved { arguments_bytes, open_limits, message_bytes, of_callers: CallerLimits { calls, streams, rate } }
}

/// A rate, with its burst, which is a second's worth where nothing is said. 0 is none.
pub(super) fn rate(
    (rate_key, rate): (&str, Option<u32>),
    (burst_key, burst): (&str, Option<u32>),
    otherwise: Option<Rate>,
    problems: &mut Vec<String>,
) -> Option<Rate> {
    let per_second = match rate {
        None => otherwise.map(|otherwise| otherwise.per_second),
        Some(0) => None,
        Some(rate) => Some(bounded(rate_key, Some(rate), 1, 1, MOST_RATE, problems)),
    };
    let Some(per_second) = per_second else {
        if burst.is_some() {
            problems.push(format!("{burst_key}: means nothing without a rate"));
        }
        return None;
    };
    let inherited = otherwise.filter(|_| rate.is_none()).map(|otherwise| otherwise.burst);
    let burst = bounded(burst_key, burst, inherited.unwrap_or(per_second), 1, MOST_RATE, problems);
    Some(Rate { per_second, burst })
}
