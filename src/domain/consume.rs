//! The one gate before any effect, from the side of a refusal: where the store's conditional statement changed nothing,
//! [`why_not`] names the first reason in the gate's order. A property test holds the two to each other.
//!
//! The order with a token; of an attempt that has been seen before, what follows it is not asked, and its end is
//! `POLICY_DENIED`, the same permit again, or `ATTEMPT_OVER`:
//!
//! ```text
//! TOKEN_INVALID
//! PRINCIPAL_MISMATCH
//! CONNECTOR_MISMATCH
//! ACTION_MISMATCH
//! CONVERSATION_MISMATCH
//! AGENT_MISMATCH
//! ACCOUNT_MISMATCH
//! OBJECTIVE_CHANGED
//! ARGUMENTS_CHANGED
//! TOOL_DEFINITION_CHANGED
//! ATTEMPT_ID_REUSED
//! APPROVAL_PENDING | APPROVAL_DENIED | APPROVAL_CANCELLED | APPROVAL_REVOKED | APPROVAL_EXPIRED | APPROVAL_CONSUMED
//! RETRY_NOT_NEEDED
//! POLICY_DENIED
//! CONFIRMATION_RAISED
//! ```
//!
//! The order without one:
//!
//! ```text
//! ATTEMPT_ID_REUSED
//! POLICY_DENIED
//! APPROVAL_REQUIRED
//! NOT_FOUND
//! RETRY_NOT_NEEDED
//! ```

use super::approval::{Approval, StateName};
use super::decision::{Decision, PolicyAnswer, PolicyReason};
use super::execution::Execution;
use super::ids::{ApprovalId, ExecutionId};
use super::invocation::{Binding, Subject};
use super::time::Timestamp;

/// The rows that a consumption depends on, read in one transaction.
#[derive(Clone, Debug, Default)]
pub struct ConsumeFacts {
    /// The approval that the token names; none if there is none.
    pub approval: Option<Approval>,
    /// The execution that this attempt id has already started for this caller, principal and agent.
    pub attempt: Option<Execution>,
    /// The execution that is to be retried.
    pub retried: Option<Execution>,
}

/// Why the gate stayed shut. The approval is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumeRefusal {
    /// The token is none, is not this sidecar's, or is for something that does not exist for this caller.
    TokenInvalid,
    /// The call is not the one that was approved.
    Mismatch(Binding),
    /// The attempt id started something else.
    AttemptIdReused,
    /// The attempt id's execution has an outcome, or its time to report one is over.
    AttemptOver(ExecutionId),
    /// The approval is in a state in which it cannot be used.
    State(Box<Approval>, StateName),
    /// What is to be retried has meanwhile succeeded.
    RetryNotNeeded(ExecutionId),
    /// Today's policy denies the call.
    PolicyDenied(PolicyReason),
    /// Today's policy asks for more than the recorded decisions give.
    ConfirmationRaised,
    /// Without a token: today's policy asks for confirmation.
    ApprovalRequired(PolicyReason),
    /// Without a token: the execution that is to be retried does not exist for this principal and agent.
    RetriedUnknown,
}

impl ConsumeRefusal {
    /// What the audit keeps as the reason: of a denial by policy, the policy's own.
    pub const fn audit_reason(&self) -> &'static str {
        match self {
            Self::PolicyDenied(reason) => reason.as_str(),
            Self::TokenInvalid
            | Self::Mismatch(_)
            | Self::AttemptIdReused
            | Self::AttemptOver(_)
            | Self::State(..)
            | Self::RetryNotNeeded(_)
            | Self::ConfirmationRaised
            | Self::ApprovalRequired(_)
            | Self::RetriedUnknown => self.reason(),
        }
    }

    /// The stable reason of it.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TokenInvalid => "TOKEN_INVALID",
            Self::Mismatch(binding) => binding.reason(),
            Self::AttemptIdReused => "ATTEMPT_ID_REUSED",
            Self::AttemptOver(_) => "ATTEMPT_OVER",
            Self::State(_, state) => state.reason(),
            Self::RetryNotNeeded(_) => "RETRY_NOT_NEEDED",
            Self::PolicyDenied(_) => "POLICY_DENIED",
            Self::ConfirmationRaised => "CONFIRMATION_RAISED",
            Self::ApprovalRequired(_) => "APPROVAL_REQUIRED",
            Self::RetriedUnknown => "EXECUTION_NOT_FOUND",
        }
    }
}

/// What became of a consumption that the statement did not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// It is refused.
    Refused(ConsumeRefusal),
    /// This attempt was let through before: the same permit again.
    Replay(Box<Execution>),
    /// Only the requirement's digest differs, and the recorded decisions meet today's: the statement may run on this
    /// version of the row.
    MeetsToday {
        /// The version whose decisions were tested.
        version: u64,
    },
    /// Nothing stands against it, so something changed in between: try the statement again.
    Nothing,
}

/// What is about to run, and what the policy says of it now.
#[derive(Clone, Copy, Debug)]
pub struct Attempted<'a> {
    /// The approval that the token names; none without a token.
    pub approval: Option<ApprovalId>,
    /// The invocation, as it is about to be made.
    pub subject: &'a Subject,
    /// The execution that it retries, if the caller said so (only without a token).
    pub retry_of: Option<ExecutionId>,
    /// Today's answer of the policy.
    pub today: &'a PolicyAnswer,
}

/// Names the first reason why `attempted` was not let through with its token. `in_bounds` says whether the approval's
/// principal and agent are within the caller's bounds.
pub fn why_not(
    facts: &ConsumeFacts,
    attempted: &Attempted<'_>,
    in_bounds: impl Fn(&Subject) -> bool,
    now: Timestamp,
) -> WhyNot {
    let Some(approval) = facts.approval.as_ref().filter(|approval| in_bounds(&approval.question.subject)) else {
        return WhyNot::Refused(ConsumeRefusal::TokenInvalid);
    };
    if let Some(binding) = approval.question.subject.first_difference(attempted.subject) {
        return WhyNot::Refused(ConsumeRefusal::Mismatch(binding));
    }
    if let Some(earlier) = &facts.attempt {
        return of_attempt(earlier, attempted, now);
    }
    let state = approval.state_at(now);
    if state != StateName::Approved {
        return WhyNot::Refused(ConsumeRefusal::State(Box::new(approval.clone().as_of(now)), state));
    }
    if let Some(refusal) = retry_not_needed(facts) {
        return WhyNot::Refused(refusal);
    }
    match &attempted.today.decision {
        Decision::Deny => WhyNot::Refused(ConsumeRefusal::PolicyDenied(attempted.today.reason)),
        Decision::Allow => WhyNot::Nothing,
        Decision::ConfirmationRequired(today) if today.digest() == approval.question.requirement.digest() => {
            WhyNot::Nothing
        }
        Decision::ConfirmationRequired(today) if approval.meets(today) => {
            WhyNot::MeetsToday { version: approval.version }
        }
        Decision::ConfirmationRequired(_) => WhyNot::Refused(ConsumeRefusal::ConfirmationRaised),
    }
}

/// Names the first reason why `attempted` was not let through without a token.
pub fn why_not_without_token(facts: &ConsumeFacts, attempted: &Attempted<'_>, now: Timestamp) -> WhyNot {
    if let Some(earlier) = &facts.attempt {
        return of_attempt(earlier, attempted, now);
    }
    match &attempted.today.decision {
        Decision::Deny => return WhyNot::Refused(ConsumeRefusal::PolicyDenied(attempted.today.reason)),
        Decision::ConfirmationRequired(_) => {
            return WhyNot::Refused(ConsumeRefusal::ApprovalRequired(attempted.today.reason));
        }
        Decision::Allow => {}
    }
    if attempted.retry_of.is_some()
        && !facts.retried.as_ref().is_some_and(|retried| retried.is_theirs(attempted.subject))
    {
        return WhyNot::Refused(ConsumeRefusal::RetriedUnknown);
    }
    retry_not_needed(facts).map_or(WhyNot::Nothing, WhyNot::Refused)
}

/// What an attempt id that has been seen before gets: never a second start.
fn of_attempt(earlier: &Execution, attempted: &Attempted<'_>, now: Timestamp) -> WhyNot {
    let same = earlier.approval == attempted.approval
        && earlier.subject.conversation == attempted.subject.conversation
        && earlier.subject.tool_definition_digest == attempted.subject.tool_definition_digest
        && earlier.subject.fingerprint == attempted.subject.fingerprint;
    if !same {
        return WhyNot::Refused(ConsumeRefusal::AttemptIdReused);
    }
    if attempted.today.decision == Decision::Deny {
        return WhyNot::Refused(ConsumeRefusal::PolicyDenied(attempted.today.reason));
    }
    if earlier.may_be_replayed(now) {
        WhyNot::Replay(Box::new(earlier.clone()))
    } else {
        WhyNot::Refused(ConsumeRefusal::AttemptOver(earlier.id))
    }
}

fn retry_not_needed(facts: &ConsumeFacts) -> Option<ConsumeRefusal> {
    let retried = facts.retried.as_ref()?;
    retried.has_succeeded().then_some(ConsumeRefusal::RetryNotNeeded(retried.id))
}

#[cfg(test)]
mod tests;
