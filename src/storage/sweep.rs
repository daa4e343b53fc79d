//! Upkeep of the table: what is written down or removed because time has passed, step by step.

use std::time::Duration;

/// For how long what is over is kept. None: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// After an approval is final: its sealed arguments, preview, omissions and agent's note. Not longer than `approvals`.
    /// Default: a day.
    pub erase_after: Option<Duration>,
    /// After it is final: an approval, with its decisions and request ids. Default: 90 days.
    pub approvals: Option<Duration>,
    /// After its outcome or its time to report one: an execution. Default: 90 days.
    pub executions: Option<Duration>,
    /// After it was closed: a wait. Default: 90 days.
    pub waits: Option<Duration>,
    /// After it was written: an audit record. Default: for ever.
    pub audit_records: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |days: u64| Some(Duration::from_secs(days * 24 * 60 * 60));
        Self { erase_after: days(1), approvals: days(90), executions: days(90), waits: days(90), audit_records: None }
    }
}

impl Retention {
    /// Every step of upkeep under this retention, in the order in which one makes work for the next.
    pub fn steps(&self) -> Vec<Sweep> {
        let mut steps = vec![Sweep::ExpireApprovals, Sweep::ExpireWaits, Sweep::TimeOutExecutions];
        steps.extend(self.erase_after.map(|kept| Sweep::EraseApprovals { kept }));
        steps.extend(self.approvals.map(|kept| Sweep::DeleteApprovals { kept }));
        steps.extend(self.executions.map(|kept| Sweep::DeleteExecutions { kept }));
        steps.extend(self.waits.map(|kept| Sweep::DeleteWaits { kept }));
        steps.extend(self.audit_records.map(|kept| Sweep::DeleteAuditRecords { kept }));
        steps
    }
}

/// One step of upkeep. Doing it again changes nothing, on however many sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Writes down that the deadlines of approvals have come: what `Approval::expired` says of each.
    ExpireApprovals,
    /// Writes down that the time of waits is over: what `Wait::expired` says of each, with what it withdraws.
    ExpireWaits,
    /// Writes down that nobody reported in time: what `Execution::timed_out` says of each.
    TimeOutExecutions,
    /// Erases what approvals show of their arguments, once they have been final for `kept`. Their version stays: nothing of
    /// what became of them changes.
    EraseApprovals {
        /// How long.
        kept: Duration,
    },
    /// Deletes approvals that are erased and have been final for `kept`, with everything that belongs to them alone.
    DeleteApprovals {
        /// How long.
        kept: Duration,
    },
    /// Deletes executions that have had an outcome, or none in time, for `kept`, but none that an open approval retries.
    DeleteExecutions {
        /// How long.
        kept: Duration,
    },
    /// Deletes waits that have been closed for `kept`.
    DeleteWaits {
        /// How long.
        kept: Duration,
    },
    /// Deletes audit records that were written `kept` ago.
    DeleteAuditRecords {
        /// How long.
        kept: Duration,
    },
}

/// What one bounded run of a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows that were dealt with. Fewer than were allowed: there are no more, or another sidecar is dealing with them.
    pub rows: u32,
    /// How overdue the first of them was, by the store's time.
    pub overdue: Duration,
    /// How long the store worked on it, without waiting and without its commit.
    pub elapsed: Duration,
    /// How long the next run may work, as the store sees who else has to wait for it.
    pub room: Duration,
    /// How long whoever sweeps leaves the store to everybody else after this run.
    pub rest: Duration,
}
