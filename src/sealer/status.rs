//! How sealing is getting on, for whoever watches it.

use super::SealReport;
use crate::domain::audit::log::StoredCheckpoint;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// How sealing is getting on.
#[derive(Debug, Default)]
pub struct SealerStatus {
    passes: AtomicU64,
    failures: AtomicU64,
    sealed: AtomicU64,
    checkpoints: AtomicU64,
    refusals: AtomicU64,
    lag_us: AtomicU64,
    size: AtomicU64,
    time_us: AtomicI64,
}

/// One reading of [`SealerStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealerReading {
    /// Passes that came to their end.
    pub passes: u64,
    /// Passes that failed, and checkpoints that could not be written to their file.
    pub failures: u64,
    /// Records that this process sealed, since the start.
    pub sealed: u64,
    /// Checkpoints that this process signed, since the start.
    pub checkpoints: u64,
    /// Times that a checkpoint was due and not signed, because the log is not what was signed before.
    pub refusals: u64,
    /// For how long the oldest record that has no seal has had none.
    pub lag: Duration,
    /// The size and the time of the newest checkpoint that this process knows, in seconds since the epoch; none if it knows of
    /// none.
    pub newest: Option<(u64, i64)>,
}

impl SealerStatus {
    /// How it stands now.
    pub fn read(&self) -> SealerReading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let time = self.time_us.load(Ordering::Relaxed);
        SealerReading {
            passes: load(&self.passes),
            failures: load(&self.failures),
            sealed: load(&self.sealed),
            checkpoints: load(&self.checkpoints),
            refusals: load(&self.refusals),
            lag: Duration::from_micros(load(&self.lag_us)),
            newest: (time != 0).then(|| (load(&self.size), time.div_euclid(1_000_000))),
        }
    }

    pub(super) fn lags(&self, lag: Duration) {
        self.lag_us.store(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn passed(&self, report: &SealReport) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        self.sealed.fetch_add(report.sealed, Ordering::Relaxed);
        self.checkpoints.fetch_add(report.checkpoints, Ordering::Relaxed);
        self.refusals.fetch_add(u64::from(report.refused), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest checkpoint.
    pub(super) fn newest(&self, checkpoint: &StoredCheckpoint) {
        self.size.store(checkpoint.size, Ordering::Relaxed);
        self.time_us.store(checkpoint.time.micros(), Ordering::Relaxed);
    }
}
