//! What the audit keeps: a record of every state change and every decision that let something happen or refused it. The
//! store stamps id and time, in the transaction of what is recorded. Never arguments, tokens or previews.
//!
//! Records are sealed afterwards, so that what became of them can be proven:
//!
//! - `leaf`: a record as one text, of which a seal is the hash
//! - `tree`: the Merkle tree over the seals, and its proofs
//! - `log`: the seals as they stand, and the next ones
//! - `checkpoint`: what the tree was at some size, to be signed
//! - `verify`: an export held against itself and against checkpoints

pub mod checkpoint;
pub mod leaf;
pub mod log;
pub mod tree;
pub mod verify;

use super::fingerprint::Fingerprint;
use super::ids::{ApprovalId, AuditRecordId, ExecutionId, WaitId};
use super::invocation::Subject;
use super::text::Identifier;
use super::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditKind {
    /// A question was recorded.
    ApprovalRequested,
    /// A question was refused: by the policy, or by a limit.
    RequestRefused,
    /// A person answered.
    ApprovalDecided,
    /// The answers meet the requirement.
    ApprovalApproved,
    /// An answer ended it.
    ApprovalDenied,
    /// A person's answer was refused.
    DecideRefused,
    /// The agent's side withdrew it.
    ApprovalCancelled,
    /// The agent's side could not withdraw it.
    CancelRefused,
    /// A person took the approval back.
    ApprovalRevoked,
    /// A deadline passed.
    ApprovalExpired,
    /// It was used, and an execution started.
    ApprovalConsumed,
    /// An execution started without an approval.
    ExecutionStarted,
    /// The gate stayed shut.
    ConsumeRefused,
    /// The same permit was handed out again for the same attempt.
    ConsumeReplayed,
    /// An outcome was reported.
    ExecutionReported,
    /// Nobody reported in time.
    ExecutionTimedOut,
    /// A report was refused.
    ReportRefused,
    /// The policy was asked, and answered. Only where evaluations are audited.
    EvaluationDecided,
    /// A person was given all of the arguments.
    ArgumentsRead,
    /// A person was not given the arguments.
    ArgumentsRefused,
    /// An agent stopped.
    WaitOpened,
    /// An agent that had gone on stopped again.
    WaitReopened,
    /// A wait says something else, or lasts longer.
    WaitUpdated,
    /// An agent went on.
    WaitResumed,
    /// The same attempt was told again that it may go on.
    WaitReplayed,
    /// A wait was closed.
    WaitClosed,
    /// A wait for another objective took its place.
    WaitReplaced,
    /// A wait's time was over.
    WaitExpired,
    /// A command on a wait was refused.
    WaitRefused,
}

impl AuditKind {
    /// Every kind.
    pub const ALL: [Self; 29] = [
        Self::ApprovalRequested,
        Self::RequestRefused,
        Self::ApprovalDecided,
        Self::ApprovalApproved,
        Self::ApprovalDenied,
        Self::DecideRefused,
        Self::ApprovalCancelled,
        Self::CancelRefused,
        Self::ApprovalRevoked,
        Self::ApprovalExpired,
        Self::ApprovalConsumed,
        Self::ExecutionStarted,
        Self::ConsumeRefused,
        Self::ConsumeReplayed,
        Self::ExecutionReported,
        Self::ExecutionTimedOut,
        Self::ReportRefused,
        Self::EvaluationDecided,
        Self::ArgumentsRead,
        Self::ArgumentsRefused,
        Self::WaitOpened,
        Self::WaitReopened,
        Self::WaitUpdated,
        Self::WaitResumed,
        Self::WaitReplayed,
        Self::WaitClosed,
        Self::WaitReplaced,
        Self::WaitExpired,
        Self::WaitRefused,
    ];

    /// The stable text of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "approval.requested",
            Self::RequestRefused => "request.refused",
            Self::ApprovalDecided => "approval.decided",
            Self::ApprovalApproved => "approval.approved",
            Self::ApprovalDenied => "approval.denied",
            Self::DecideRefused => "decide.refused",
            Self::ApprovalCancelled => "approval.cancelled",
            Self::ApprovalRevoked => "approval.revoked",
            Self::ApprovalExpired => "approval.expired",
            Self::ApprovalConsumed => "approval.consumed",
            Self::ExecutionStarted => "execution.started",
            Self::ConsumeRefused => "consume.refused",
            Self::ConsumeReplayed => "consume.replayed",
            Self::CancelRefused => "cancel.refused",
            Self::ReportRefused => "report.refused",
            Self::ExecutionReported => "execution.reported",
            Self::ExecutionTimedOut => "execution.timed_out",
            Self::EvaluationDecided => "evaluation.decided",
            Self::ArgumentsRead => "arguments.read",
            Self::ArgumentsRefused => "arguments.refused",
            Self::WaitOpened => "wait.opened",
            Self::WaitReopened => "wait.reopened",
            Self::WaitUpdated => "wait.updated",
            Self::WaitResumed => "wait.resumed",
            Self::WaitReplayed => "wait.replayed",
            Self::WaitClosed => "wait.closed",
            Self::WaitReplaced => "wait.replaced",
            Self::WaitExpired => "wait.expired",
            Self::WaitRefused => "wait.refused",
        }
    }

    /// The kind of that text, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for AuditKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Which evaluations the audit keeps. Whatever it says, they are counted in the metrics, and what starts an execution is a
/// record by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditedEvaluations {
    /// Those that act: what starts an execution, which is a record in any case.
    #[default]
    Acting,
    /// Every one.
    All,
    /// None.
    None,
}

impl AuditedEvaluations {
    /// What is meant by that word, if it is one.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "acting" => Some(Self::Acting),
            "all" => Some(Self::All),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// Something that happened, before the store has given it an id and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// What.
    pub kind: AuditKind,
    /// The authenticated caller; none where the sidecar itself saw a deadline pass.
    pub caller: Option<Identifier>,
    /// On whose behalf the agent acts.
    pub principal: Identifier,
    /// The program that acts.
    pub agent: Identifier,
    /// The session.
    pub conversation: Option<Identifier>,
    /// The integration; none where no invocation is concerned.
    pub connector: Option<Identifier>,
    /// The external identity.
    pub account: Option<Identifier>,
    /// The operation; none where no invocation is concerned.
    pub action: Option<Identifier>,
    /// The approval concerned.
    pub approval: Option<ApprovalId>,
    /// The execution concerned.
    pub execution: Option<ExecutionId>,
    /// The wait concerned: of a record about an approval, the one in which it was asked.
    pub wait: Option<WaitId>,
    /// The invocation's fingerprint; none where no invocation is concerned.
    pub fingerprint: Option<Fingerprint>,
    /// The revision of the policy that was asked.
    pub policy_revision: Option<String>,
    /// The person who decided, revoked or read.
    pub person: Option<Identifier>,
    /// What was decided, or the state that was reached.
    pub decision: String,
    /// The stable reason.
    pub reason: Option<String>,
    /// What the person or the caller said about it, neutralised: never a reason of ours. Of an evaluation, its id.
    pub note: Option<String>,
    /// The labels of the invocation.
    pub labels: BTreeMap<String, String>,
}

impl AuditEvent {
    /// What happened, to the invocation of `subject`, by `caller`; the rest is added by name.
    pub fn about(kind: AuditKind, subject: &Subject, caller: Option<&Identifier>, decision: impl Into<String>) -> Self {
        Self {
            conversation: subject.conversation.clone(),
            connector: Some(subject.connector.clone()),
            account: subject.account.clone(),
            action: Some(subject.action.clone()),
            fingerprint: Some(subject.fingerprint),
            labels: subject.labels.clone(),
            ..Self::of(kind, &subject.principal, &subject.agent, caller, decision)
        }
    }

    /// What happened to a principal and agent, and to no invocation; the rest is added by name.
    pub fn of(
        kind: AuditKind,
        principal: &Identifier,
        agent: &Identifier,
        caller: Option<&Identifier>,
        decision: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            caller: caller.cloned(),
            principal: principal.clone(),
            agent: agent.clone(),
            conversation: None,
            connector: None,
            account: None,
            action: None,
            approval: None,
            execution: None,
            wait: None,
            fingerprint: None,
            policy_revision: None,
            person: None,
            decision: decision.into(),
            reason: None,
            note: None,
            labels: BTreeMap::new(),
        }
    }
}

/// A record as it stands in the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its id.
    pub id: AuditRecordId,
    /// Its place in this store's order of writing.
    pub position: i64,
    /// When, by the store's time.
    pub time: Timestamp,
    /// What happened.
    pub event: AuditEvent,
}

#[cfg(test)]
mod tests {
    use super::AuditKind;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_are_read_from_the_words_they_are_written_as_and_from_no_others() {
        for kind in AuditKind::ALL {
            assert_eq!(AuditKind::parse(kind.as_str()), Some(kind));
        }
        for text in ["", "approval", "Approval.Requested", "approval.requested ", "approval_requested"] {
            assert_eq!(AuditKind::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_two_kinds_share_a_word() {
        let words: BTreeSet<&str> = AuditKind::ALL.into_iter().map(AuditKind::as_str).collect();
        assert_eq!(words.len(), AuditKind::ALL.len());
    }
}
