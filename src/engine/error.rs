//! Every way in which the engine refuses, or cannot answer. `service/errors` gives each its code and its reason.

use crate::domain::approval::{Approval, CommandRefusal};
use crate::domain::consume::ConsumeRefusal;
use crate::domain::decision::PolicyAnswer;
use crate::domain::execution::{Execution, ReportRefusal};
use crate::domain::ids::{ApprovalId, ExecutionId};
use crate::secrets::{SealError, SecretError};
use crate::storage::{AskedLimit, CoolingOff, OpenLimit, RefusedWait, StoreError};
use std::time::Duration;

/// Why the engine did not do what it was asked to.
#[derive(Debug)]
pub enum EngineError {
    /// The store did not answer, or holds what cannot be.
    Store(StoreError),
    /// Something panicked while it decided; nothing was let through.
    Panicked,
    /// The caller may not act for this principal and agent.
    OutOfBounds,
    /// The caller may not speak for this person.
    PersonOutOfBounds,
    /// A caller that asserts persons named none.
    PersonMissing,
    /// There is no such approval for this caller, principal and agent, or for this person.
    ApprovalUnknown,
    /// There is no such execution for this caller, principal and agent.
    ExecutionUnknown,
    /// There is no such wait for this caller, principal and agent.
    WaitUnknown,
    /// A command on a wait, or a question in it, was refused; the wait as it stands.
    Wait(Box<RefusedWait>),
    /// The policy denies the invocation.
    PolicyDenied(Box<PolicyAnswer>),
    /// The `request_id` stands for another request.
    RequestIdReused,
    /// Too many questions are open.
    TooManyOpen {
        /// Which limit.
        limit: OpenLimit,
        /// Its value.
        most: u32,
    },
    /// The principal was asked too much of late.
    AskedTooOften {
        /// The limit.
        limit: AskedLimit,
        /// For so long there is no room.
        for_another: Duration,
    },
    /// A person has just denied this very question.
    CoolingOff {
        /// What was denied, and until when it is not asked again.
        refused: Box<CoolingOff>,
        /// How long that is.
        for_another: Duration,
    },
    /// What is to be retried has succeeded.
    RetryNotNeeded(ExecutionId),
    /// A command on an approval was refused; the approval as it stands.
    Command(CommandRefusal, Box<Approval>),
    /// The gate stayed shut.
    Consume(Box<ConsumeRefusal>),
    /// A report was refused; the execution as it stands.
    Report(ReportRefusal, Box<Execution>),
    /// The arguments of this approval are no longer kept.
    ArgumentsErased(ApprovalId),
    /// Arguments were not sealed, or do not open.
    Sealing(SealError),
    /// A permit was not signed.
    Signing(SecretError),
    /// These server secrets are not at hand, and the table needs them: with them it might be done.
    SecretMissing(Vec<String>),
    /// Others changed the record each time; nothing was written.
    LostRace,
    /// The page token was not made for this query.
    PageTokenInvalid,
    /// Too many watch at once.
    TooManyWatchers {
        /// Whether it is the caller's own limit, or everybody's.
        per_caller: bool,
        /// Its value.
        most: usize,
    },
    /// A watcher did not take what it was told.
    WatchTooSlow,
    /// What a watcher has not been told is not known any more.
    WatchInterrupted,
    /// The sidecar stops, and nobody watches any more.
    Stopping,
    /// Something of the audit cannot be told or proven.
    Audit(AuditRefusal),
}

/// Why something of the audit cannot be told or proven.
#[derive(Debug)]
pub enum AuditRefusal {
    /// No seal is of a record with this id: there is none, or it has not been sealed.
    RecordNotSealed,
    /// There is no such checkpoint, or none that covers the record yet.
    CheckpointUnknown,
    /// The log never had this size, or there is nothing to prove about it.
    SizeUnknown,
    /// So many export at once.
    TooManyExports,
    /// The log is not what it should be.
    Damaged(&'static str),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SealError> for EngineError {
    fn from(error: SealError) -> Self {
        Self::Sealing(error)
    }
}

impl From<SecretError> for EngineError {
    fn from(error: SecretError) -> Self {
        Self::Signing(error)
    }
}
