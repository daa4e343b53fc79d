//! How much was written.

use crate::domain::audit::AuditKind;
use crate::storage::changes::Touched;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much was written since the database was opened, by this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Operations that wrote, or could have.
    pub writes: u64,
    /// Transactions that they were committed in.
    pub commits: u64,
    /// Operations that ran again because others were in the way.
    pub retries: u64,
    /// Connections that were given up.
    pub reconnects: u64,
    /// Audit records that were committed, by kind.
    pub records: Vec<(AuditKind, u64)>,
}

/// The same, counting.
#[derive(Debug)]
pub(super) struct Counters {
    writes: AtomicU64,
    commits: AtomicU64,
    retries: AtomicU64,
    records: [AtomicU64; AuditKind::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            writes: AtomicU64::default(),
            commits: AtomicU64::default(),
            retries: AtomicU64::default(),
            records: std::array::from_fn(|_| AtomicU64::default()),
        }
    }
}

impl Counters {
    /// A transaction of so many operations came to its end.
    pub(super) fn wrote(&self, writes: u64) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
    }

    /// This was committed.
    pub(super) fn committed(&self, touched: &Touched) {
        for (kind, number) in touched.records() {
            let place = AuditKind::ALL.iter().position(|known| known == kind);
            if let Some(count) = place.and_then(|place| self.records.get(place)) {
                count.fetch_add(*number, Ordering::Relaxed);
            }
        }
    }

    /// Others were in the way.
    pub(super) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, reconnects: u64) -> Statistics {
        Statistics {
            writes: self.writes.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            reconnects,
            records: AuditKind::ALL
                .into_iter()
                .zip(self.records.iter().map(|count| count.load(Ordering::Relaxed)))
                .collect(),
        }
    }
}
