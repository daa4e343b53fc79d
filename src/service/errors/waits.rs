//! The refusals of waits, a part of the one place where failures meet gRPC.

#![warn(clippy::wildcard_enum_match_arm)]

use super::{Metadata, metadata, precondition};
use crate::domain::wait::{Ending, Wait, WaitRefusal, WaitState};
use crate::storage::RefusedWait;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The status of a command on a wait, or a question in it, that was refused.
pub(super) fn status(refused: &RefusedWait) -> Status {
    let RefusedWait { refusal, wait } = refused;
    let mut known = of_wait(wait);
    let message = match refusal {
        WaitRefusal::Over(over) => {
            format!("the wait is {over}{}: open another one if the agent still waits", told(wait))
        }
        WaitRefusal::PrincipalMismatch => "the wait is of another principal: do not go on".to_owned(),
        WaitRefusal::AgentMismatch => "the wait is of another agent: do not go on".to_owned(),
        WaitRefusal::TranscriptChanged => "the wait is of another transcript: do not go on".to_owned(),
        WaitRefusal::AlreadyResumed => {
            format!("another attempt has resumed the wait{}: do not go on beside it", told(wait))
        }
        WaitRefusal::VersionChanged => format!(
            "the wait has changed since: its version is {}; read it, and go on only if it is still what you wait for",
            wait.version
        ),
        WaitRefusal::Pending(pending) => {
            known.insert("pending".to_owned(), pending.to_string());
            format!("{pending} of the wait's approvals wait for people: try again when they have answered")
        }
        WaitRefusal::ObjectiveConflict => {
            format!("the wait {} is active for another objective of this transcript: close it, or say replace", wait.id)
        }
        WaitRefusal::ObjectiveStale => format!(
            "the wait {} is for revision {} of this objective already: do not go back to an earlier one",
            wait.id, wait.objective.revision
        ),
        WaitRefusal::TooMany(most) => format!(
            "{most} waits of this principal and agent are active, and no more may be: close those that nobody waits in"
        ),
        WaitRefusal::NotOpen => "the wait was resumed: open it again before anything is asked in it".to_owned(),
        WaitRefusal::ObjectiveDiffers => format!(
            "this call is not for the wait's objective in its revision {}: ask for it without the wait, or in its own",
            wait.objective.revision
        ),
    };
    if let WaitRefusal::TooMany(_) = refusal {
        let mut details = ErrorDetails::with_error_info(refusal.reason(), super::DOMAIN, metadata([]));
        details.add_quota_failure_violation("waits", message.clone());
        return Status::with_error_details(Code::ResourceExhausted, message, details);
    }
    precondition(refusal.reason(), "wait", message, known)
}

/// Which wait, and where it stands.
fn of_wait(wait: &Wait) -> Metadata {
    let mut known = metadata([
        ("wait_id", wait.id.to_string()),
        ("state", wait.state.name().as_str().to_owned()),
        ("version", wait.version.to_string()),
        ("revision", wait.objective.revision.to_string()),
    ]);
    let (by, at) = since(wait);
    known.extend(by.map(|by| ("state_by".to_owned(), by)));
    known.extend(at.map(|at| ("state_time".to_owned(), at)));
    known
}

/// The same in words: who did it, and when.
fn told(wait: &Wait) -> String {
    match since(wait) {
        (Some(by), Some(at)) => format!(" (by {by} at {at})"),
        (None, Some(at)) => format!(" (at {at})"),
        (_, None) => String::new(),
    }
}

/// Who brought it into its state, and when.
fn since(wait: &Wait) -> (Option<String>, Option<String>) {
    match &wait.state {
        WaitState::Open => (None, None),
        WaitState::Resumed(resumption) => (Some(resumption.by.to_string()), Some(resumption.at.to_string())),
        WaitState::Closed { at, ending } => {
            let by = match ending {
                Ending::Closed { by, .. } | Ending::Replaced { by } => Some(by.to_string()),
                Ending::Expired => None,
            };
            (by, Some(at.to_string()))
        }
    }
}
