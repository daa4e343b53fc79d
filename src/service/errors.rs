//! The one place where failures meet gRPC: each gets its code, its stable reason in `google.rpc.ErrorInfo`, a message that
//! says what happened and what to do about it, and every dynamic value of it as metadata. There is no catch-all.

#![warn(clippy::wildcard_enum_match_arm)]

mod audit;
mod callers;
mod fatigue;
mod waits;

pub(super) use callers::{limit_reached, unauthenticated, unauthorised};

use super::sparing::Sparing;
use crate::domain::approval::{Approval, CommandRefusal, StateName};
use crate::domain::consume::ConsumeRefusal;
use crate::domain::decision::PolicyAnswer;
use crate::domain::execution::{Execution, ReportRefusal};
use crate::domain::ids::ExecutionId;
use crate::domain::invocation::Binding;
use crate::engine::EngineError;
use crate::storage::StoreError;
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use uuid::Uuid;

/// A store that is away is away for every call.
static UNAVAILABLE: Sparing = Sparing::new();
/// A secret that is missing is missing for every call that needs it.
static SECRET_MISSING: Sparing = Sparing::new();
/// A caller out of its bounds may try again and again.
static OUT_OF_BOUNDS: Sparing = Sparing::new();

/// The domain of every `google.rpc.ErrorInfo`.
pub(super) const DOMAIN: &str = "countersign.v1";

/// A store that is away is tried again after this long.
const RETRY_STORE: Duration = Duration::from_secs(1);
/// Whoever lost every race tries again after this long.
const RETRY_RACE: Duration = Duration::from_millis(50);
/// A status travels in headers, of which clients take 8 KiB; names of rules are at most this much of it.
const RULES_TOLD_BYTES: usize = 1024;

type Metadata = HashMap<String, String>;

/// A refusal: code, reason, message, metadata.
fn refusal(code: Code, reason: &str, message: impl Into<String>, metadata: Metadata) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, message, details)
}

/// A refusal because of a state, with what would have had to hold.
fn precondition(reason: &str, subject: &str, message: impl Into<String>, metadata: Metadata) -> Status {
    let message = message.into();
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    details.add_precondition_failure_violation(reason, subject, message.clone());
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

fn metadata<const N: usize>(pairs: [(&str, String); N]) -> Metadata {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A request with fields that cannot be read.
pub(super) fn bad_request(
    reason: &str,
    message: String,
    metadata: Metadata,
    violations: Vec<(String, String)>,
) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    for (field, what) in violations {
        details.add_bad_request_violation(field, what);
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// A field that was not read though nothing was found wrong with it: refused, as all that is unclear.
pub(super) fn unreadable() -> Status {
    refusal(Code::InvalidArgument, "INVALID_REQUEST", "the request cannot be read", Metadata::new())
}

/// A stream whose credential no longer opens its door.
pub(super) fn credential_ended() -> Status {
    refusal(
        Code::Unauthenticated,
        "CREDENTIALS_ENDED",
        "the credential that this stream was opened with no longer opens it: call again with the one that replaced it",
        Metadata::new(),
    )
}

/// A deadline that the client set and that has passed.
pub(super) fn deadline_exceeded() -> Status {
    refusal(
        Code::DeadlineExceeded,
        "DEADLINE_EXCEEDED",
        "the deadline passed: what was begun is done whole or not at all; ask again with the same ids",
        Metadata::new(),
    )
}

/// A message that is larger than any that is taken.
pub(super) fn message_too_large(most: usize) -> Status {
    let most = most.to_string();
    refusal(
        Code::ResourceExhausted,
        "MESSAGE_TOO_LARGE",
        format!("a message may have at most {most} bytes: send less at once"),
        metadata([("limit", most)]),
    )
}

/// A method that no service has, or a form of message that is not taken.
pub(super) fn method_unknown(message: &str) -> Status {
    let message = if message.is_empty() { "there is no such method: see `proto/`" } else { message };
    refusal(Code::Unimplemented, "METHOD_UNKNOWN", message, Metadata::new())
}

/// Too many calls at once.
pub(super) fn too_many_calls() -> Status {
    let mut details = ErrorDetails::with_error_info("TOO_MANY_CALLS", DOMAIN, Metadata::new());
    details.set_retry_info(Some(RETRY_RACE));
    Status::with_error_details(
        Code::ResourceExhausted,
        "too many calls are under way: nothing was begun; try again with the same ids",
        details,
    )
}

/// A stream that ends because the sidecar does.
pub(super) fn stopping() -> Status {
    let mut details = ErrorDetails::with_error_info("STOPPING", DOMAIN, Metadata::new());
    details.set_retry_info(Some(RETRY_STORE));
    Status::with_error_details(Code::Unavailable, "the sidecar is stopping: call again", details)
}

/// A message that is none of the protos'.
pub(super) fn message_unreadable() -> Status {
    refusal(
        Code::InvalidArgument,
        "INVALID_MESSAGE",
        "the message cannot be read: it is not what `proto/` says, or not UTF-8 where it says text",
        Metadata::new(),
    )
}

/// The status of anything that the engine refuses or cannot do.
pub(super) fn status(error: &EngineError) -> Status {
    match error {
        EngineError::Store(error) => store(error),
        EngineError::Panicked => internal("a panic while deciding"),
        EngineError::OutOfBounds => out_of_bounds(
            "this caller may not act for this principal and agent: see `agents` and `principals` of the caller",
        ),
        EngineError::PersonOutOfBounds => out_of_bounds(
            "this caller may not speak for this person: see `principal` or `asserts_principal` of the caller",
        ),
        EngineError::PersonMissing => bad_request(
            "PRINCIPAL_REQUIRED",
            "principal: this caller speaks for several people, so each request names one".to_owned(),
            metadata([("field", "principal".to_owned())]),
            vec![("principal".to_owned(), "is required of a caller that asserts persons".to_owned())],
        ),
        EngineError::ApprovalUnknown => not_found(
            "APPROVAL_NOT_FOUND",
            "approval",
            "there is no such approval for this caller, principal and agent (or person)",
        ),
        EngineError::ExecutionUnknown => not_found(
            "EXECUTION_NOT_FOUND",
            "execution",
            "there is no such execution for this caller, principal and agent",
        ),
        EngineError::WaitUnknown => {
            not_found("WAIT_NOT_FOUND", "wait", "there is no such wait for this caller, principal and agent")
        }
        EngineError::Wait(refused) => waits::status(refused),
        EngineError::PolicyDenied(answer) => policy_denied(answer),
        EngineError::RequestIdReused => refusal(
            Code::AlreadyExists,
            "REQUEST_ID_REUSED",
            "this request_id stands for another request: make a new one for each question",
            Metadata::new(),
        ),
        EngineError::TooManyOpen { limit, most } => fatigue::too_many_open(*limit, *most),
        EngineError::AskedTooOften { limit, for_another } => fatigue::asked_too_often(*limit, *for_another),
        EngineError::CoolingOff { refused, for_another } => fatigue::cooling_off(refused, *for_another),
        EngineError::RetryNotNeeded(execution) => retry_not_needed(*execution),
        EngineError::Command(refusal, approval) => command(refusal, approval),
        EngineError::Consume(refusal) => consume(refusal),
        EngineError::Report(refusal, execution) => report(*refusal, execution),
        EngineError::ArgumentsErased(approval) => precondition(
            "ARGUMENTS_ERASED",
            "approval",
            "the arguments of this approval are not kept: erased a while after it was final, or asked before any were kept",
            metadata([("approval_id", approval.to_string())]),
        ),
        EngineError::Sealing(error) => internal(&error.to_string()),
        EngineError::Signing(error) => internal(&error.to_string()),
        EngineError::SecretMissing(ids) => secret_missing(ids),
        EngineError::LostRace => {
            let mut details = ErrorDetails::with_error_info("LOST_RACE", DOMAIN, Metadata::new());
            details.set_retry_info(Some(RETRY_RACE));
            Status::with_error_details(
                Code::Aborted,
                "others changed the record each time it was tried; nothing was changed: try again with the same ids",
                details,
            )
        }
        EngineError::PageTokenInvalid => bad_request(
            "PAGE_TOKEN_INVALID",
            "page_token: was not made for this query: start again without one".to_owned(),
            metadata([("field", "page_token".to_owned())]),
            vec![("page_token".to_owned(), "was not made for this query".to_owned())],
        ),
        EngineError::TooManyWatchers { per_caller, most } => too_many_watchers(*per_caller, *most),
        EngineError::WatchTooSlow => watch_again("WATCH_TOO_SLOW", "what there was to tell was not taken in time"),
        EngineError::WatchInterrupted => watch_again("WATCH_INTERRUPTED", "some changes can no longer be told"),
        EngineError::Stopping => stopping(),
        EngineError::Audit(refused) => audit::status(refused),
    }
}

/// A caller that reaches for what is not its own: told to the log, since it is about nothing that the audit keeps.
fn out_of_bounds(message: &'static str) -> Status {
    if let Some(unsaid) = OUT_OF_BOUNDS.say() {
        tracing::warn!(reason = "CALLER_OUT_OF_BOUNDS", unsaid, "a call was refused");
    }
    refusal(Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS", message, Metadata::new())
}

fn store(error: &StoreError) -> Status {
    match error {
        StoreError::Unavailable { .. } => {
            if let Some(unsaid) = UNAVAILABLE.say() {
                tracing::error!(cause = %error, unsaid, "the store does not answer");
            }
            let mut details = ErrorDetails::with_error_info("STORE_UNAVAILABLE", DOMAIN, Metadata::new());
            details.set_retry_info(Some(RETRY_STORE));
            Status::with_error_details(
                Code::Unavailable,
                "the approval table does not answer: nothing is let through, though it may have been recorded; try again \
                 with the same ids",
                details,
            )
        }
        StoreError::Inconsistent { .. } | StoreError::Corrupt { .. } => internal(&error.to_string()),
    }
}

/// The sidecar is not ready, and says what it lacks.
fn secret_missing(ids: &[String]) -> Status {
    let ids = ids.join(",");
    if let Some(unsaid) = SECRET_MISSING.say() {
        tracing::error!(key_ids = ids, unsaid, "a call needs a server secret that is not at hand");
    }
    let known = metadata([("key_ids", ids.clone())]);
    let mut details = ErrorDetails::with_error_info("SECRET_MISSING", DOMAIN, known);
    details.set_retry_info(Some(RETRY_STORE));
    let message = format!(
        "this sidecar lacks the server secret of the key id {ids}, which the approval table needs: nothing was changed; ask \
         another sidecar, or try again with the same ids once it has it"
    );
    Status::with_error_details(Code::Unavailable, message, details)
}

/// The cause goes to the log, under an id that the client sees.
fn internal(cause: &str) -> Status {
    let error_id = Uuid::now_v7().to_string();
    tracing::error!(%error_id, cause, "internal error");
    refusal(
        Code::Internal,
        "INTERNAL",
        format!("internal error; nothing was allowed. The sidecar's log has its cause under the id {error_id}"),
        metadata([("error_id", error_id)]),
    )
}

fn not_found(reason: &str, what: &str, message: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, Metadata::new());
    details.set_resource_info(format!("countersign.v1/{what}"), "", "", message);
    Status::with_error_details(Code::NotFound, message, details)
}

fn policy_denied(answer: &PolicyAnswer) -> Status {
    let mut room = RULES_TOLD_BYTES;
    let fitting = answer.rules.iter().map(|rule| rule.name.as_str()).take_while(|name| {
        let rest = room.checked_sub(name.len() + 1);
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    let rules: Vec<&str> = fitting.collect();
    let mut known = metadata([
        ("policy_reason", answer.reason.as_str().to_owned()),
        ("policy_message", answer.message.clone()),
        ("policy_revision", answer.policy_revision.clone()),
        ("rules", rules.join(",")),
    ]);
    let left_out = answer.rules.len() - rules.len();
    if left_out > 0 {
        known.insert("rules_left_out".to_owned(), left_out.to_string());
    }
    refusal(
        Code::PermissionDenied,
        "POLICY_DENIED",
        format!("the policy denies this ({}): {}", answer.reason, answer.message),
        known,
    )
}

fn too_many_watchers(per_caller: bool, most: usize) -> Status {
    let per = if per_caller { "caller" } else { "sidecar" };
    let mut details = ErrorDetails::with_error_info(
        "TOO_MANY_WATCHERS",
        DOMAIN,
        metadata([("per", per.to_owned()), ("limit", most.to_string())]),
    );
    let message = format!("this {per} has {most} streams that watch already: end those that nobody reads");
    details.add_quota_failure_violation(per, message.clone());
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

fn watch_again(reason: &str, what: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, Metadata::new());
    details.set_retry_info(Some(RETRY_RACE));
    let message = format!("{what}: watch again, which begins with what is so then");
    Status::with_error_details(Code::Unavailable, message, details)
}

fn retry_not_needed(execution: ExecutionId) -> Status {
    precondition(
        "RETRY_NOT_NEEDED",
        "execution",
        format!("the execution {execution} that this would retry has succeeded: do not run it again"),
        metadata([("execution_id", execution.to_string())]),
    )
}

/// Where an approval stands, who ended it, and who answered last: for whoever came too late.
fn of_approval(approval: &Approval) -> Metadata {
    let mut known =
        metadata([("approval_id", approval.id.to_string()), ("state", approval.state.name().as_str().to_owned())]);
    let since = match approval.closed() {
        Some(closed) => {
            // Of a denial the answer itself says who.
            let by = closed.by.filter(|_| approval.state.name() != StateName::Denied);
            known.extend(by.map(|by| ("state_by".to_owned(), by.to_string())));
            Some(closed.at)
        }
        None => approval.state.confirmed().map(|confirmed| confirmed.at),
    };
    known.extend(since.map(|time| ("state_time".to_owned(), time.to_string())));
    if let Some(last) = approval.decisions.last() {
        known.insert("decided_by".to_owned(), last.person.to_string());
        known.insert("verdict".to_owned(), last.verdict.as_str().to_owned());
        known.insert("decide_time".to_owned(), last.at.to_string());
    }
    known
}

/// The same in words: who ended it, and who answered last.
fn told(known: &Metadata) -> String {
    let said = |key: &str| known.get(key).map(String::as_str);
    let ended = said("state_by").zip(said("state_time")).map(|(by, time)| format!("by {by} at {time}"));
    let answered = match (said("decided_by"), said("verdict"), said("decide_time")) {
        (Some(by), Some(verdict), Some(time)) => Some(format!("{by} answered {verdict} at {time}")),
        _ => None,
    };
    let parts: Vec<String> = ended.into_iter().chain(answered).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
}

fn command(refused: &CommandRefusal, approval: &Approval) -> Status {
    let known = of_approval(approval);
    match refused {
        CommandRefusal::State(state) => {
            precondition(refused.reason(), "approval", format!("the approval is {state}{}", told(&known)), known)
        }
        CommandRefusal::NotAnApprover => refusal(
            Code::PermissionDenied,
            refused.reason(),
            "this person is none of those who may decide this approval: see its requirement",
            metadata([("approval_id", approval.id.to_string())]),
        ),
        CommandRefusal::ShownFingerprintDiffers => precondition(
            refused.reason(),
            "approval",
            "the fingerprint that was shown is not this approval's: show the approval again, then decide",
            metadata([
                ("approval_id", approval.id.to_string()),
                ("fingerprint", approval.question.subject.fingerprint.to_string()),
            ]),
        ),
    }
}

fn mismatch(binding: Binding) -> Status {
    precondition(
        binding.reason(),
        "approval",
        format!(
            "this call differs from what was approved in its {}: do not run it; request approval for what is to run",
            binding.noun()
        ),
        metadata([("binding", binding.noun().to_owned())]),
    )
}

fn consume(refused: &ConsumeRefusal) -> Status {
    let reason = refused.reason();
    match refused {
        ConsumeRefusal::TokenInvalid => precondition(
            reason,
            "consume_token",
            "the consume token is not valid: use the one that RequestApproval returned for this call",
            Metadata::new(),
        ),
        ConsumeRefusal::Mismatch(binding) => mismatch(*binding),
        ConsumeRefusal::AttemptIdReused => precondition(
            reason,
            "attempt",
            "this attempt_id has started another call: make a new one for each attempt",
            Metadata::new(),
        ),
        ConsumeRefusal::AttemptOver(execution) => precondition(
            reason,
            "attempt",
            format!("the execution {execution} of this attempt_id is over: do not run it again under this attempt_id"),
            metadata([("execution_id", execution.to_string())]),
        ),
        ConsumeRefusal::State(approval, state) => {
            let what_to_do = match state {
                StateName::Pending => "wait for people to decide",
                StateName::Consumed => "it was used once, and once is all: do not run it again",
                StateName::Approved
                | StateName::Denied
                | StateName::Cancelled
                | StateName::Revoked
                | StateName::Expired => "do not run it; ask again if it is still wanted",
            };
            let known = of_approval(approval);
            precondition(reason, "approval", format!("the approval is {state}{}: {what_to_do}", told(&known)), known)
        }
        ConsumeRefusal::RetryNotNeeded(execution) => retry_not_needed(*execution),
        // The engine answers this one with the whole of the policy's answer; the reason alone is enough to refuse.
        ConsumeRefusal::PolicyDenied(policy_reason) => refusal(
            Code::PermissionDenied,
            reason,
            format!("today's policy denies this ({policy_reason}): do not run it"),
            metadata([("policy_reason", policy_reason.as_str().to_owned())]),
        ),
        ConsumeRefusal::ConfirmationRaised => precondition(
            reason,
            "approval",
            "today's policy asks for more than the recorded decisions give: request approval again",
            Metadata::new(),
        ),
        ConsumeRefusal::ApprovalRequired(policy_reason) => precondition(
            reason,
            "approval",
            format!("the policy asks for confirmation ({policy_reason}): request approval, and consume with its token"),
            metadata([("policy_reason", policy_reason.as_str().to_owned())]),
        ),
        ConsumeRefusal::RetriedUnknown => {
            not_found(reason, "execution", "there is no such execution for this caller, principal and agent")
        }
    }
}

fn report(refused: ReportRefusal, execution: &Execution) -> Status {
    let state = execution.state.name().as_str();
    let known = metadata([("execution_id", execution.id.to_string()), ("state", state.to_owned())]);
    match refused {
        ReportRefusal::OutcomeFinal(_) => precondition(
            "OUTCOME_FINAL",
            "execution",
            format!("the outcome of this execution is known: {state}; it cannot become another"),
            known,
        ),
        ReportRefusal::EvidenceMissing => precondition(
            "OUTCOME_EVIDENCE_MISSING",
            "execution",
            "the outcome of this execution is unknown: to settle it, say how it is known in remote_reference or detail",
            known,
        ),
    }
}
