//! The store's time: the database's clock is the clock of all rows, for every sidecar.

use crate::clock::{Clock, SystemClock};
use crate::domain::time::Timestamp;
use crate::storage::time::StoreTime;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// For how long a time that was told is gone on from, at most: so far two clocks drift apart, and no further.
const ANCHORED: Duration = Duration::from_secs(10);
/// A time that is told this much earlier than expected is no late answer.
const SET_BACK: Duration = Duration::from_secs(1);

/// What is known of the database's time without asking for it.
#[derive(Debug)]
pub(super) struct TableTime {
    clock: Arc<dyn Clock>,
    /// What takes the place of the database's clock, in tests.
    injected: Option<StoreTime>,
    anchor: Mutex<Anchor>,
}

/// A time that the database told, and the monotonic time at which it arrived.
#[derive(Debug)]
struct Anchor {
    time: Timestamp,
    elapsed: Duration,
}

impl TableTime {
    /// The time of a database that just told `now`. A clock that is given takes the place of the database's from there on.
    pub(super) fn since(now: Timestamp, injected: Option<Arc<dyn Clock>>) -> Self {
        let clock = injected.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let injected = injected.map(|clock| StoreTime::since(Timestamp::from_micros(0), clock));
        let anchor = Mutex::new(Anchor { time: now, elapsed: clock.elapsed() });
        Self { clock, injected, anchor }
    }

    /// What statements are given in place of the database's clock: nothing, or the injected time.
    pub(super) fn given(&self) -> Option<i64> {
        self.injected.as_ref().map(|time| time.now().micros())
    }

    /// Takes in a time that the database told.
    pub(super) fn told(&self, now: Timestamp) {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = self.clock.elapsed();
        let age = elapsed.saturating_sub(anchor.elapsed);
        let carried = anchor.time.plus(age);
        // What arrives is older than it was when it left: a later reading is nearer to the truth, and an earlier one is not,
        // but where the two clocks have drifted apart, or the database's was set back.
        if now > carried || age > ANCHORED || carried.since(now) > SET_BACK {
            *anchor = Anchor { time: now, elapsed };
        }
    }

    /// The time as last told plus the monotonic time since.
    pub(super) fn estimated(&self) -> Timestamp {
        if let Some(time) = &self.injected {
            return time.now();
        }
        let anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        anchor.time.plus(self.clock.elapsed().saturating_sub(anchor.elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn the_estimate_follows_the_database_and_a_late_answer_does_not_set_it_back() {
        let time = TableTime::since(START, None);
        assert_eq!(time.given(), None, "the database's own clock is asked");
        let estimated = time.estimated();
        assert!(estimated >= START && estimated < START.plus(HOUR));
        time.told(START.plus(HOUR));
        assert!(time.estimated() >= START.plus(HOUR));
        time.told(START.plus(HOUR).minus(SET_BACK / 2));
        assert!(time.estimated() >= START.plus(HOUR), "an answer that was long under way");
        time.told(START);
        assert!(time.estimated() < START.plus(HOUR), "the database's clock was set back");
    }

    #[test]
    fn an_injected_clock_is_the_time_of_statements_and_of_the_estimate() {
        let clock = Arc::new(ManualClock::at(START));
        let time = TableTime::since(START, Some(Arc::<ManualClock>::clone(&clock)));
        clock.advance(HOUR);
        assert_eq!(time.given(), Some(START.plus(HOUR).micros()));
        assert_eq!(time.estimated(), START.plus(HOUR));
        time.told(START.plus(HOUR).plus(HOUR));
        assert_eq!(time.estimated(), START.plus(HOUR), "no other clock has a say");
    }
}
