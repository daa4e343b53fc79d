//! Seals the audit: gives every record that was committed its place in the log, and signs what the log was, now and then.
//!
//! Nothing waits for it, and it works in short slices, as the other background work does. Of many sidecars the one that holds
//! the lease seals; what keeps the log one chain is the row of the log, which two cannot change at once. It signs nothing that
//! is not an extension of what was signed before: where seals, tree or earlier checkpoints were tampered with, it says so and
//! signs no more.

mod checkpoints;
mod file;
mod status;

pub use status::{SealerReading, SealerStatus};

use crate::domain::audit::checkpoint::Checkpoint;
use crate::domain::time::Timestamp;
use crate::secrets::Keyring;
use crate::storage::{Loaded, LogStanding, SealPass, Sealed, SealedSlice, Store, StoreError};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use uuid::Uuid;

/// For how long whoever seals is left alone. Another one takes over this long after it was last heard of.
const LEASE: Duration = Duration::from_secs(15);
/// Records of the first slice.
const FIRST_ROWS: u32 = 64;
/// Records of a slice at least: fewer would cost more for the slice than for the records.
const LEAST_ROWS: u32 = 16;
/// Records of a slice at most, however fast it goes.
const MOST_ROWS: u32 = 512;
/// Slices of one pass, so that the time of a pass has a bound.
const SLICES: usize = 64;
/// Records that each pass looks at to see whether they have a seal, however old they are: so none is missed for ever.
const LOOKED_AT: u32 = 256;
/// A shorter rest is put off until several make one.
const SHORTEST_REST: Duration = Duration::from_millis(1);
/// What the origin of a log begins with that nobody has named.
const ORIGIN: &str = "countersign.v1/";

/// How the audit is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealerSettings {
    /// What the log is called; none: a random name, made once.
    pub origin: Option<String>,
    /// How often a checkpoint is signed, if the log has grown.
    pub checkpoint_every: Duration,
    /// Where each checkpoint is written to as well.
    pub checkpoint_file: Option<PathBuf>,
    /// After how long records may be deleted; none: never.
    pub deleted_after: Option<Duration>,
}

/// The secrets that may sign what is new; none while there are none that may.
pub type SigningKeys = Box<dyn Fn() -> Option<Arc<Keyring>> + Send + Sync>;

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealReport {
    /// Records that were sealed.
    pub sealed: u64,
    /// Checkpoints that were signed.
    pub checkpoints: u64,
    /// Whether a checkpoint was due and was not signed, because of what was found.
    pub refused: bool,
    /// Whether somebody else seals.
    pub held: bool,
    /// Whether there is more to do: the pass ended because it is bounded.
    pub more: bool,
}

/// Whoever seals the log of one table.
pub struct Sealer {
    store: Arc<dyn Store>,
    keys: SigningKeys,
    settings: SealerSettings,
    /// The name by which it holds the lease.
    holder: String,
    state: Mutex<State>,
    status: Arc<SealerStatus>,
}

/// What is known from one pass to the next.
#[derive(Debug)]
struct State {
    /// Records of the next slice.
    rows: u32,
    /// The position up to which all were looked at.
    looked_at: i64,
    /// The newest checkpoint that this process has signed or verified.
    last: Option<Checkpoint>,
    /// Whether the file of checkpoints was looked at.
    file_read: bool,
    /// When the next checkpoint is due, by the store's time.
    due: Option<Timestamp>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sealer").field("status", &self.status.read()).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Whoever seals over `store`.
    pub fn new(store: Arc<dyn Store>, keys: SigningKeys, settings: SealerSettings) -> Self {
        let state = State { rows: FIRST_ROWS, looked_at: i64::MIN, last: None, file_read: false, due: None };
        let holder = Uuid::new_v4().to_string();
        Self { store, keys, settings, holder, state: Mutex::new(state), status: Arc::default() }
    }

    /// How it is getting on.
    pub fn status(&self) -> &Arc<SealerStatus> {
        &self.status
    }

    /// Seals what is to be sealed, up to a bound, and signs a checkpoint where one is due.
    ///
    /// # Errors
    /// The store.
    pub async fn pass(&self) -> Result<SealReport, StoreError> {
        self.counted(false).await
    }

    /// The same, and signs a checkpoint if the log has grown, whether or not it is due.
    ///
    /// # Errors
    /// The store.
    pub async fn checkpoint_now(&self) -> Result<SealReport, StoreError> {
        self.counted(true).await
    }

    /// Seals everything and signs it, and lets another one go on, for who stops.
    ///
    /// # Errors
    /// The store.
    pub async fn finish(&self) -> Result<(), StoreError> {
        while self.counted(true).await?.more {}
        let (holder, late) = (self.holder.clone(), Vec::new());
        self.store.seal(SealPass { holder, lease: Duration::ZERO, limit: LEAST_ROWS, late }).await?;
        Ok(())
    }

    /// Waits, and runs passes, until `stopped` says so; then ends at once.
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
                failing = say(passed, failing);
            }
        };
        tokio::select! {
            () = work => {}
            // A sender that is gone has nothing more to tell: the process is ending.
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    async fn counted(&self, now: bool) -> Result<SealReport, StoreError> {
        // One pass of this process at a time.
        let mut state = self.state.lock().await;
        let passed = self.run(&mut state, now).await;
        match &passed {
            Ok(report) => self.status.passed(report),
            Err(_) => self.status.failed(),
        }
        passed
    }

    async fn run(&self, state: &mut State, at_once: bool) -> Result<SealReport, StoreError> {
        let mut report = SealReport::default();
        let Loaded { row: standing, now } = self.standing().await?;
        let lag = |standing: &LogStanding| standing.oldest_unsealed.map_or(Duration::ZERO, |oldest| now.since(oldest));
        self.status.lags(lag(&standing));
        if standing.log.is_held(&self.holder, now) {
            report.held = true;
            return Ok(report);
        }
        let (late, last) = self.store.look_for_unsealed(state.looked_at, LOOKED_AT).await?;
        state.looked_at = last.unwrap_or(i64::MIN);
        if standing.oldest_unsealed.is_some() || !late.is_empty() {
            self.seal(state, late, &mut report).await?;
        }
        if report.held || report.more {
            return Ok(report);
        }
        self.status.lags(Duration::ZERO);
        let due = state.due.is_none_or(|due| now >= due);
        if at_once || due {
            self.sign(state, now, at_once, &mut report).await?;
        }
        Ok(report)
    }

    /// The log as it stands; it is begun where it was not.
    async fn standing(&self) -> Result<Loaded<LogStanding>, StoreError> {
        for _ in 0..2 {
            let Loaded { row, now } = self.store.audit_log().await?;
            if let Some(row) = row {
                return Ok(Loaded { row, now });
            }
            let origin = self.settings.origin.clone().unwrap_or_else(|| format!("{ORIGIN}{}", Uuid::new_v4()));
            self.store.begin_audit_log(&origin).await?;
        }
        Err(StoreError::Inconsistent { cause: "the log of the audit was begun and is not there".to_owned() })
    }

    /// Seals slice by slice.
    async fn seal(&self, state: &mut State, late: Vec<i64>, report: &mut SealReport) -> Result<(), StoreError> {
        let mut late = Some(late);
        let mut rest = Duration::ZERO;
        for _ in 0..SLICES {
            let pass = SealPass {
                holder: self.holder.clone(),
                lease: LEASE,
                limit: state.rows,
                late: late.take().unwrap_or_default(),
            };
            let Loaded { row: slice, .. } = self.store.seal(pass).await?;
            let Sealed::Done { seals, more } = slice.sealed else {
                report.held = true;
                return Ok(());
            };
            report.sealed = report.sealed.saturating_add(u64::from(seals));
            state.rows = next_rows(state.rows, seals, &slice);
            if !more {
                return Ok(());
            }
            rest = rest.saturating_add(slice.rest);
            if rest >= SHORTEST_REST {
                tokio::time::sleep(std::mem::take(&mut rest)).await;
            }
        }
        report.more = true;
        Ok(())
    }
}

/// Records of the slice after one of `rows` that sealed so many: as many as the store has the time for, growing by doubling at
/// most.
fn next_rows(rows: u32, sealed: u32, slice: &SealedSlice) -> u32 {
    if sealed < rows && slice.elapsed <= slice.room {
        return rows;
    }
    let allowed = slice.room.as_micros().saturating_mul(u128::from(sealed.max(1))) / slice.elapsed.as_micros().max(1);
    u32::try_from(allowed).unwrap_or(u32::MAX).min(rows.saturating_mul(2)).clamp(LEAST_ROWS, MOST_ROWS)
}

/// Logs what a pass came to: of failures the first and the last. Whether it failed.
fn say(passed: Result<SealReport, StoreError>, failing: bool) -> bool {
    match passed {
        Ok(report) => {
            if failing {
                tracing::info!("the audit is sealed again");
            }
            if report.sealed > 0 || report.checkpoints > 0 {
                tracing::debug!(sealed = report.sealed, checkpoints = report.checkpoints, "sealed");
            }
            false
        }
        Err(error) => {
            if !failing {
                tracing::error!(%error, "the audit is not sealed; it is tried again until it succeeds");
            }
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_takes_as_long_as_it_may() {
        let us = Duration::from_micros;
        for (rows, sealed, elapsed, room, next) in [
            (64, 64, us(1_000), us(1_000), 64),
            (64, 64, us(2_000), us(1_000), 32),
            (64, 64, us(10), us(1_000), 128),
            (64, 64, us(60_000), us(1_000), LEAST_ROWS),
            (MOST_ROWS, MOST_ROWS, us(10), us(1_000), MOST_ROWS),
            (64, 3, us(10), us(1_000), 64),
            (64, 0, us(90_000), us(1_000), LEAST_ROWS),
        ] {
            let slice = SealedSlice {
                sealed: Sealed::Done { seals: sealed, more: false },
                elapsed,
                room,
                rest: Duration::ZERO,
            };
            assert_eq!(next_rows(rows, sealed, &slice), next, "{rows} {sealed}");
        }
    }
}
