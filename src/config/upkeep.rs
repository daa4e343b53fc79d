//! The background work: `[sweeper]` and `[retention]`.

use crate::domain::span::{parse_span, show_span};
use crate::storage::Retention;
use serde::Deserialize;
use std::time::Duration;

/// What is kept for less is gone before anybody can look.
const LEAST: Duration = Duration::from_secs(1);
/// Longer is for ever, and that has a word.
const MOST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
/// That word.
const NEVER: &str = "never";

/// `[sweeper]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SweeperSection {
    pub(super) every: Option<String>,
}

/// `[retention]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RetentionSection {
    erase_after: Option<String>,
    approvals: Option<String>,
    executions: Option<String>,
    waits: Option<String>,
    audit_records: Option<String>,
}

/// The retention that the section says, with a problem for whatever says none.
pub(super) fn resolve(section: &RetentionSection, problems: &mut Vec<String>) -> Retention {
    let default = Retention::default();
    let mut kept = |key: &str, text: &Option<String>, default: Option<Duration>| match text.as_deref() {
        None => default,
        Some(NEVER) => None,
        Some(text) => match parse_span(text) {
            Some(span) if (LEAST..=MOST).contains(&span) => Some(span),
            Some(_) | None => {
                let (least, most) = (show_span(LEAST), show_span(MOST));
                problems.push(format!(
                    "retention.{key}: {text:?} is neither `never` nor a duration from {least} to {most}, such as `90d`"
                ));
                default
            }
        },
    };
    let mut retention = Retention {
        erase_after: kept("erase_after", &section.erase_after, default.erase_after),
        approvals: kept("approvals", &section.approvals, default.approvals),
        executions: kept("executions", &section.executions, default.executions),
        waits: kept("waits", &section.waits, default.waits),
        audit_records: kept("audit_records", &section.audit_records, default.audit_records),
    };
    let kept_longer = |kept: Option<Duration>| kept.map_or(Duration::MAX, |kept| kept);
    if kept_longer(retention.erase_after) > kept_longer(retention.approvals) {
        let show = |kept: Option<Duration>| kept.map_or_else(|| NEVER.to_owned(), show_span);
        problems.push(format!(
            "retention.erase_after: {} is longer than retention.approvals, {}: what is deleted shows nothing",
            show(retention.erase_after),
            show(retention.approvals)
        ));
        retention.erase_after = retention.approvals;
    }
    retention
}
