//! Limits: of what one call may carry, of what one caller may do at once, and against questions that wear people out.

use super::{bounded, span};
use crate::auth::{CallerLimits, Rate};
use crate::storage::{AskedLimit, QuestionLimits, Retention};
use serde::Deserialize;
use std::time::Duration;

/// More at once is no limit any more.
const MOST: u32 = 1_000_000;
/// What was asked longer ago wears nobody out today.
const ASKED_WITHIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 60 * 60));
/// Whoever is to wait longer is better told by the policy.
const COOL_OFF: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(24 * 60 * 60));

/// The `[limits]` section.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitsSection {
    arguments_bytes: Option<usize>,
    open_per_principal: Option<u32>,
    open_per_agent: Option<u32>,
    connections: Option<usize>,
    handshake_timeout: Option<String>,
    open_per_action: Option<u32>,
    asked_per_principal: Option<u32>,
    asked_within: Option<String>,
    cool_off: Option<String>,
    message_bytes: Option<usize>,
    calls_per_caller: Option<u32>,
    streams_per_caller: Option<u32>,
    rate_per_caller: Option<u32>,
    burst_per_caller: Option<u32>,
}

/// What the section comes to.
pub(super) struct Resolved {
    pub(super) arguments_bytes: usize,
    pub(super) connections: usize,
    pub(super) handshake_timeout: Duration,
    pub(super) question_limits: QuestionLimits,
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
pub(super) fn resolve(section: LimitsSection, problems: &mut Vec<String>) -> Resolved {
    let mut number = |key: &str, said, default, least| bounded(key, said, default, least, MOST, problems);
    let per_principal = number("limits.open_per_principal", section.open_per_principal, 100, 1);
    let per_agent = number("limits.open_per_agent", section.open_per_agent, 1_000, 1);
    let per_action = number("limits.open_per_action", section.open_per_action, 50, 1);
    let asked = number("limits.asked_per_principal", section.asked_per_principal, 300, 0);
    let within =
        span("limits.asked_within", section.asked_within, Duration::from_secs(60 * 60), ASKED_WITHIN, problems);
    let cool_off = span("limits.cool_off", section.cool_off, Duration::from_secs(5 * 60), COOL_OFF, problems);
    let question_limits = QuestionLimits {
        per_principal,
        per_agent,
        per_action,
        asked: (asked > 0).then_some(AskedLimit { most: asked, within }),
        cool_off,
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
        section.handshake_timeout,
        Duration::from_secs(10),
        (Duration::from_millis(100), Duration::from_secs(60)),
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
    let of_callers = CallerLimits { calls, streams, rate };
    Resolved { arguments_bytes, message_bytes, question_limits, of_callers, connections, handshake_timeout }
}

/// Names the limits that look back further than what they look at is kept.
pub(super) fn outlive(limits: &QuestionLimits, retention: &Retention, problems: &mut Vec<String>) {
    let shorter = |kept: Option<Duration>, span: Duration| kept.is_some_and(|kept| kept < span);
    if limits.asked.is_some_and(|asked| shorter(retention.audit_records, asked.within)) {
        problems.push(
            "limits.asked_within: is longer than retention.audit_records: what is deleted is not counted".to_owned(),
        );
    }
    if shorter(retention.approvals, limits.cool_off) {
        problems
            .push("limits.cool_off: is longer than retention.approvals: what is deleted is not remembered".to_owned());
    }
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
