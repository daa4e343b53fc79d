//! The gate's refusals, by their order.

mod attempt;
mod order;
mod without_token;

use super::*;
use crate::domain::approval::{KnownOutcome, RetriedExecution, Verdict};
use crate::domain::execution::{ExecutionState, Start};
use crate::domain::requirement::Requirement;
use crate::domain::testing::{
    REPORT_WITHIN, asked, at, decided, execution_id, in_state, person, policy, report, requirement, start, started,
    subject,
};

/// Everything that one consumption depends on.
struct Scene {
    facts: ConsumeFacts,
    /// Whether the attempt comes with the token of [`ConsumeFacts::approval`].
    token: bool,
    attempted: Subject,
    retry_of: Option<ExecutionId>,
    today: PolicyAnswer,
    in_bounds: bool,
    now: Timestamp,
}

impl Scene {
    /// Nothing stands against it: two of finance have confirmed the retry of an execution of which nothing is known.
    fn with_token() -> Self {
        let mut approval = asked(two_of_finance());
        let retried = retried();
        approval.question.retry_of = Some(RetriedExecution { id: retried.id, known: KnownOutcome::Unknown });
        let approval = decided(&approval, &person("dana", &["finance"]), Verdict::Approve, at(1));
        let approval = decided(&approval, &person("eve", &["finance"]), Verdict::Approve, at(2));
        Self {
            facts: ConsumeFacts { approval: Some(approval), attempt: None, retried: Some(retried) },
            token: true,
            attempted: subject(),
            retry_of: None,
            today: asks(two_of_finance()),
            in_bounds: true,
            now: at(3),
        }
    }

    /// Nothing stands against it: the policy allows the retry of an execution of which nothing is known.
    fn without_token() -> Self {
        let retried = retried();
        Self {
            retry_of: Some(retried.id),
            facts: ConsumeFacts { approval: None, attempt: None, retried: Some(retried) },
            token: false,
            attempted: subject(),
            today: policy(Decision::Allow, PolicyReason::Allowed),
            in_bounds: true,
            now: at(3),
        }
    }

    fn approval(&mut self) -> &mut Approval {
        self.facts.approval.as_mut().unwrap()
    }

    fn answer(&self) -> WhyNot {
        let attempted = Attempted {
            approval: self.facts.approval.as_ref().filter(|_| self.token).map(|approval| approval.id),
            subject: &self.attempted,
            retry_of: self.retry_of,
            today: &self.today,
        };
        if self.token {
            why_not(&self.facts, &attempted, |_| self.in_bounds, self.now)
        } else {
            why_not_without_token(&self.facts, &attempted, self.now)
        }
    }

    fn told(&self) -> String {
        told(&self.answer())
    }
}

fn two_of_finance() -> Requirement {
    requirement(&[(&["group:finance"], 2)], false)
}

fn asks(requirement: Requirement) -> PolicyAnswer {
    policy(Decision::ConfirmationRequired(requirement), PolicyReason::ConfirmationByRule)
}

fn denies() -> PolicyAnswer {
    policy(Decision::Deny, PolicyReason::DeniedByRule)
}

/// Execution number 7, of which nobody knows.
fn retried() -> Execution {
    let earlier = Start { id: execution_id(7), approval: None, ..start(subject()) }.at(None, at(-1_000)).next;
    in_state(earlier, ExecutionState::Unknown(Some(report(at(-1)))))
}

/// The answer's stable reason, with what comes with it.
fn told(answer: &WhyNot) -> String {
    match answer {
        WhyNot::Nothing => "nothing".to_owned(),
        WhyNot::MeetsToday { version } => format!("meets today, version {version}"),
        WhyNot::Replay(execution) => format!("replay of {}", execution.attempt.uuid().as_u128()),
        WhyNot::Refused(refusal) => match refusal {
            ConsumeRefusal::TokenInvalid => "TOKEN_INVALID".to_owned(),
            ConsumeRefusal::Mismatch(binding) => binding.reason().to_owned(),
            ConsumeRefusal::AttemptIdReused => "ATTEMPT_ID_REUSED".to_owned(),
            ConsumeRefusal::AttemptOver(_) => "ATTEMPT_OVER".to_owned(),
            ConsumeRefusal::State(_, state) => state.reason().to_owned(),
            ConsumeRefusal::RetryNotNeeded(_) => "RETRY_NOT_NEEDED".to_owned(),
            ConsumeRefusal::PolicyDenied(reason) => format!("POLICY_DENIED {reason}"),
            ConsumeRefusal::ConfirmationRaised => "CONFIRMATION_RAISED".to_owned(),
            ConsumeRefusal::ApprovalRequired(reason) => format!("APPROVAL_REQUIRED {reason}"),
            ConsumeRefusal::RetriedUnknown => "NOT_FOUND".to_owned(),
        },
    }
}
