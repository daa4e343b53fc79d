//! Where time comes from: the machine's clocks, or a test's.

use crate::domain::time::Timestamp;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The two clocks of a machine.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock, which somebody may set.
    fn wall(&self) -> Timestamp;

    /// The time since some fixed instant of this process, which never goes back.
    fn elapsed(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's own clocks, elapsed time counting from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        // A machine that thinks it is before 1970 has no usable clock: the store's own last time then carries on.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Clocks that move only when they are told to.
#[derive(Debug)]
pub struct ManualClock(Mutex<(Timestamp, Duration)>);

impl ManualClock {
    /// Clocks that stand at `wall`.
    pub fn at(wall: Timestamp) -> Self {
        Self(Mutex::new((wall, Duration::ZERO)))
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, span: Duration) {
        let mut clocks = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *clocks = (clocks.0.plus(span), clocks.1.saturating_add(span));
    }

    /// Sets the wall clock alone, as an operator or a time daemon might, back or forth.
    pub fn set_wall(&self, wall: Timestamp) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0 = wall;
    }

    fn read(&self) -> (Timestamp, Duration) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        self.read().0
    }

    fn elapsed(&self) -> Duration {
        self.read().1
    }
}
