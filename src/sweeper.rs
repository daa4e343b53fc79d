//! The background work: writes down that deadlines have come, erases and deletes what has been kept for long enough.
//!
//! Nothing waits for it: every read, decision and use asks the deadlines themselves. So it may be late, run twice, or on
//! every sidecar, and whatever goes wrong in a pass is left to the next. It works in short slices, each a transaction that
//! take no longer than the store has room for beside everybody else.

use crate::storage::{Retention, Store, StoreError, Sweep, Swept};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A shorter rest is put off until several make one.
const SHORTEST_REST: Duration = Duration::from_millis(1);
/// Rows of the first slice.
const FIRST_ROWS: u32 = 32;
/// Rows of a slice at least: fewer would cost more for the slice than for the rows.
const LEAST_ROWS: u32 = 8;
/// Rows of a slice at most, however fast it goes.
const MOST_ROWS: u32 = 512;
/// Slices of one step in one pass, so that no step keeps the others from their turn.
const SLICES: usize = 64;

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Approvals and waits that expired.
    pub expired: u64,
    /// Executions that nobody reported in time.
    pub timed_out: u64,
    /// Approvals whose arguments and preview were erased.
    pub erased: u64,
    /// Rows that were deleted: approvals, executions, waits and audit records.
    pub deleted: u64,
    /// How overdue the most overdue approval, wait or execution was.
    pub lag: Duration,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether there is more to do: the pass ended because it is bounded.
    pub more: bool,
}

/// How the background work is getting on, for whoever watches it.
#[derive(Debug, Default)]
pub struct SweeperStatus {
    passes: AtomicU64,
    failures: AtomicU64,
    lag_us: AtomicU64,
    expired: AtomicU64,
    timed_out: AtomicU64,
    erased: AtomicU64,
    deleted: AtomicU64,
}

/// One reading of [`SweeperStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweeperReading {
    /// Passes that came to their end.
    pub passes: u64,
    /// Passes that failed.
    pub failures: u64,
    /// How far behind it is: how overdue the most overdue approval, wait or execution is that is not written down; zero
    /// where none is.
    pub lag: Duration,
    /// Approvals and waits that expired, since the start.
    pub expired: u64,
    /// Executions that nobody reported in time, since the start.
    pub timed_out: u64,
    /// Approvals that were erased, since the start.
    pub erased: u64,
    /// Rows that were deleted, since the start.
    pub deleted: u64,
}

impl SweeperStatus {
    /// How it stands now.
    pub fn read(&self) -> SweeperReading {
        SweeperReading {
            passes: self.passes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            lag: Duration::from_micros(self.lag_us.load(Ordering::Relaxed)),
            expired: self.expired.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
            erased: self.erased.load(Ordering::Relaxed),
            deleted: self.deleted.load(Ordering::Relaxed),
        }
    }
}

/// The background work over one table.
pub struct Sweeper {
    store: Arc<dyn Store>,
    /// Each step with the rows that its next slice should have.
    steps: Mutex<Vec<(Sweep, u32)>>,
    status: Arc<SweeperStatus>,
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sweeper").field("status", &self.status.read()).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// The background work over `store`, keeping what `retention` says.
    pub fn new(store: Arc<dyn Store>, retention: &Retention) -> Self {
        let steps = retention.steps().into_iter().map(|step| (step, first_rows(step))).collect();
        Self { store, steps: Mutex::new(steps), status: Arc::default() }
    }

    /// How it is getting on.
    pub fn status(&self) -> &Arc<SweeperStatus> {
        &self.status
    }

    /// Runs each step until nothing is left for it, or its share of the pass is used up.
    ///
    /// # Errors
    /// The store does not answer, or refuses a step; the other steps have had their turn unless it does not answer at all.
    pub async fn pass(&self) -> Result<Report, StoreError> {
        let started = Instant::now();
        let mut report = Report::default();
        let mut behind = Duration::ZERO;
        let mut refused = None;
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (index, (step, rows)) in steps.into_iter().enumerate() {
            match self.run(step, rows, behind, &mut report).await {
                Ok(done) => {
                    behind = behind.max(done.behind);
                    if let Some(kept) = self.steps.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
                        kept.1 = done.rows;
                    }
                }
                Err(error @ StoreError::Unavailable { .. }) => return Err(self.failed(error)),
                Err(error) => refused = Some(error),
            }
        }
        report.elapsed = started.elapsed();
        self.status.passed(&report, behind);
        if let Some(error) = refused {
            return Err(self.failed(error));
        }
        Ok(report)
    }

    /// Waits, and runs passes, until `stopped` says so; then ends at once. What a pass has begun by then the store ends
    /// by itself.
    pub async fn run_until(self: Arc<Self>, every: Duration, mut stopped: watch::Receiver<bool>) {
        let work = async {
            let mut failing = false;
            let mut more = false;
            loop {
                if !more {
                    tokio::time::sleep(every).await;
                }
                let passed = self.pass().await;
                more = passed.as_ref().is_ok_and(|report| report.more);
                failing = note(passed, failing);
            }
        };
        tokio::select! {
            () = work => {}
            // A sender that is gone has nothing more to tell: the process is ending.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    /// Runs one step, slice by slice, from a first slice of `rows`.
    async fn run(&self, step: Sweep, rows: u32, behind: Duration, report: &mut Report) -> Result<Done, StoreError> {
        let mut done = Done { rows, behind: Duration::ZERO };
        let mut rest = Duration::ZERO;
        for _ in 0..SLICES {
            let swept = self.store.sweep(step, done.rows).await?;
            let full = swept.rows >= done.rows;
            report.add(step, &swept);
            if is_deadline(step) {
                done.behind = if full { swept.overdue } else { Duration::ZERO };
                self.status.lags(behind.max(done.behind));
            }
            done.rows = next_rows(step, done.rows, &swept);
            if !full {
                return Ok(done);
            }
            rest = rest.saturating_add(swept.rest);
            if rest >= SHORTEST_REST {
                tokio::time::sleep(std::mem::take(&mut rest)).await;
            }
        }
        report.more = true;
        Ok(done)
    }

    fn failed(&self, error: StoreError) -> StoreError {
        self.status.failures.fetch_add(1, Ordering::Relaxed);
        error
    }
}

/// What one step did in one pass.
struct Done {
    /// Rows of its next slice.
    rows: u32,
    /// How overdue the most overdue row is that is left; zero where none is.
    behind: Duration,
}

/// Whether what is left of a step is overdue, and not merely kept for longer than it need be.
const fn is_deadline(step: Sweep) -> bool {
    match step {
        Sweep::ExpireApprovals | Sweep::ExpireWaits | Sweep::TimeOutExecutions => true,
        Sweep::EraseApprovals { .. }
        | Sweep::DeleteApprovals { .. }
        | Sweep::DeleteExecutions { .. }
        | Sweep::DeleteWaits { .. }
        | Sweep::DeleteAuditRecords { .. } => false,
    }
}

/// Rows of the slice after one of `rows` that came to `swept`: as many as the store has the time for, growing by doubling
/// at most.
fn next_rows(step: Sweep, rows: u32, swept: &Swept) -> u32 {
    if swept.rows < rows && swept.elapsed <= swept.room {
        // Too few to measure anything by.
        return rows;
    }
    let allowed = swept.room.as_micros().saturating_mul(u128::from(swept.rows)) / swept.elapsed.as_micros().max(1);
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX);
    allowed.min(rows.saturating_mul(2)).clamp(least_rows(step), MOST_ROWS)
}

/// Rows of the first slice of a step.
fn first_rows(step: Sweep) -> u32 {
    if step == Sweep::ExpireWaits { 1 } else { FIRST_ROWS }
}

/// Rows of a slice of a step at least. A wait takes all of its approvals with it.
fn least_rows(step: Sweep) -> u32 {
    if step == Sweep::ExpireWaits { 1 } else { LEAST_ROWS }
}

/// Logs what a pass came to: what it did, and of failures the first and the last. Whether it failed.
fn note(passed: Result<Report, StoreError>, failing: bool) -> bool {
    match passed {
        Ok(report) => {
            if failing {
                tracing::info!("the background work goes on");
            }
            if report.is_something() {
                tracing::debug!(
                    expired = report.expired,
                    timed_out = report.timed_out,
                    erased = report.erased,
                    deleted = report.deleted,
                    lag_ms = report.lag.as_millis(),
                    elapsed_ms = report.elapsed.as_millis(),
                    "swept"
                );
            }
            false
        }
        Err(error) => {
            if !failing {
                tracing::warn!(%error, "the background work failed; it is tried again until it succeeds");
            }
            true
        }
    }
}

impl Report {
    fn add(&mut self, step: Sweep, swept: &Swept) {
        let rows = u64::from(swept.rows);
        let count = match step {
            Sweep::ExpireApprovals | Sweep::ExpireWaits => &mut self.expired,
            Sweep::TimeOutExecutions => &mut self.timed_out,
            Sweep::EraseApprovals { .. } => &mut self.erased,
            Sweep::DeleteApprovals { .. }
            | Sweep::DeleteExecutions { .. }
            | Sweep::DeleteWaits { .. }
            | Sweep::DeleteAuditRecords { .. } => &mut self.deleted,
        };
        *count = count.saturating_add(rows);
        if is_deadline(step) {
            self.lag = self.lag.max(swept.overdue);
        }
    }

    /// Whether the pass found anything to do.
    pub fn is_something(&self) -> bool {
        [self.expired, self.timed_out, self.erased, self.deleted].into_iter().any(|count| count > 0)
    }
}

impl SweeperStatus {
    fn lags(&self, lag: Duration) {
        self.lag_us.store(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn passed(&self, report: &Report, behind: Duration) {
        self.lags(behind);
        self.passes.fetch_add(1, Ordering::Relaxed);
        for (total, count) in [
            (&self.expired, report.expired),
            (&self.timed_out, report.timed_out),
            (&self.erased, report.erased),
            (&self.deleted, report.deleted),
        ] {
            total.fetch_add(count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_takes_as_long_as_it_may() {
        let us = Duration::from_micros;
        for (rows, found, elapsed, room, next) in [
            (32, 32, us(1_000), us(1_000), 32),
            (32, 32, us(2_000), us(1_000), 16),
            (32, 32, us(700), us(1_000), 45),
            (32, 32, us(10), us(1_000), 64),
            (32, 32, us(60_000), us(1_000), LEAST_ROWS),
            (MOST_ROWS - 1, MOST_ROWS - 1, us(10), us(1_000), MOST_ROWS),
            (32, 32, us(1_000), us(1_500), 48),
            (256, 256, us(4_000), us(4_000), 256),
            (256, 256, us(4_000), us(25_000), 512),
            // What found little says little, unless it was slow all the same.
            (32, 0, us(90), us(1_000), 32),
            (32, 5, us(90), us(1_000), 32),
            (32, 16, us(2_400), us(1_000), LEAST_ROWS),
        ] {
            let swept = Swept { rows: found, elapsed, room, ..Swept::default() };
            assert_eq!(next_rows(Sweep::ExpireApprovals, rows, &swept), next, "{rows} {swept:?}");
        }
    }
}
