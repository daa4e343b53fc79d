//! What the store answers about waits.

use crate::domain::approval::Approval;
use crate::domain::ids::ApprovalId;
use crate::domain::wait::{Wait, WaitRefusal};

/// A wait, and what is told of its approvals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRecord {
    /// The wait.
    pub wait: Wait,
    /// The newest of its approvals, oldest first, at most [`crate::domain::limits::WAIT_APPROVALS`].
    pub approvals: Vec<ApprovalId>,
    /// Whether it has older ones beside these.
    pub more_approvals: bool,
    /// How many of all of them wait for people at the store's time.
    pub pending: u32,
}

/// A wait that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedWait {
    /// As it stands now.
    pub record: WaitRecord,
    /// Whether it had been active before.
    pub existing: bool,
}

/// A wait whose agent goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedWait {
    /// As it stands now.
    pub record: WaitRecord,
    /// Its approvals, as `record` lists them, as they stand in the table.
    pub approvals: Vec<Approval>,
    /// Whether this attempt had resumed it before.
    pub replayed: bool,
}

/// A command on a wait that was refused: why, and the wait as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWait {
    /// Why.
    pub refusal: WaitRefusal,
    /// As it stands now.
    pub wait: Wait,
}

/// What became of a command on a wait.
pub type Waited<T> = Result<T, Box<RefusedWait>>;
