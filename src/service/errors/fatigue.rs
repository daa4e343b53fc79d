//! The refusals of questions that would wear people out, a part of the one place where failures meet gRPC.

#![warn(clippy::wildcard_enum_match_arm)]

use super::{DOMAIN, metadata, of_approval, told};
use crate::domain::span::show_span;
use crate::storage::{AskedLimit, CoolingOff, OpenLimit};
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// A person's reason as a refusal tells it again: a status travels in headers, of which clients take 8 KiB.
const REASON_TOLD_BYTES: usize = 1024;

/// Too many approvals are open. Nobody knows when people answer, so there is no time after which to try again.
pub(super) fn too_many_open(limit: OpenLimit, most: u32) -> Status {
    let (per, whose) = match limit {
        OpenLimit::PerPrincipal => ("principal", "this principal has"),
        OpenLimit::PerAgent => ("agent", "this agent has"),
        OpenLimit::PerAction => ("action", "this action of this principal has"),
    };
    let known = metadata([("per", per.to_owned()), ("limit", most.to_string())]);
    let mut details = ErrorDetails::with_error_info("TOO_MANY_OPEN_APPROVALS", DOMAIN, known);
    let message = format!("{whose} {most} open approvals already: wait for answers, or cancel what no longer matters");
    details.add_quota_failure_violation(per, message.clone());
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// The principal was asked too much of late.
pub(super) fn asked_too_often(limit: AskedLimit, for_another: Duration) -> Status {
    let known = metadata([
        ("per", "principal".to_owned()),
        ("limit", limit.most.to_string()),
        ("within", show_span(limit.within)),
        ("retry_after", whole(for_another)),
    ]);
    let mut details = ErrorDetails::with_error_info("ASKED_TOO_OFTEN", DOMAIN, known);
    let message = format!(
        "this principal was asked {} questions within {}: ask again in {}, and ask for less at once",
        limit.most,
        show_span(limit.within),
        whole(for_another)
    );
    details.add_quota_failure_violation("principal", message.clone());
    details.set_retry_info(Some(for_another));
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// A person has just denied this very question. It is a precondition and no quota: what a client does by itself on the latter
/// is to try again, and that is what the person is to be spared.
pub(super) fn cooling_off(refused: &CoolingOff, for_another: Duration) -> Status {
    let CoolingOff { denied, until } = refused;
    let mut known = of_approval(denied);
    known.insert("until".to_owned(), until.to_string());
    known.insert("retry_after".to_owned(), whole(for_another));
    if let Some(reason) = denied.decisions.last().and_then(|denial| denial.reason.as_deref()) {
        known.insert("denial_reason".to_owned(), bounded(reason));
    }
    let message = format!(
        "a person has denied this very question{}: it is not asked again before {until}; do not run it, and do something else",
        told(&known)
    );
    let mut details = ErrorDetails::with_error_info("COOLING_OFF", DOMAIN, known);
    details.add_precondition_failure_violation("COOLING_OFF", "approval", message.clone());
    details.set_retry_info(Some(for_another));
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

/// The span in whole milliseconds, never less: whoever comes after it does not come too early.
fn whole(span: Duration) -> String {
    show_span(span.saturating_add(Duration::from_micros(999)))
}

/// As much of a text as is told; what was left out is shown to be.
fn bounded(text: &str) -> String {
    if text.len() <= REASON_TOLD_BYTES {
        return text.to_owned();
    }
    let mut end = REASON_TOLD_BYTES;
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}
