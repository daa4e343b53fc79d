//! The store's time: one process owns the file, so one clock in it is the clock of all rows.

use crate::clock::Clock;
use crate::domain::time::Timestamp;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The greater of the wall clock and the last time plus the elapsed monotonic time: it neither goes back, also over a
/// restart, nor stands still while the wall clock is behind.
#[derive(Debug)]
pub(in crate::storage) struct StoreTime {
    clock: Arc<dyn Clock>,
    anchor: Mutex<Anchor>,
}

/// An instant of the store's time and the monotonic time at which it was. It moves only when the wall clock is ahead, so
/// that fractions of a microsecond are not lost with each reading.
#[derive(Debug)]
struct Anchor {
    time: Timestamp,
    elapsed: Duration,
}

impl StoreTime {
    /// The time of a store whose newest committed time is `newest`.
    pub(in crate::storage) fn since(newest: Timestamp, clock: Arc<dyn Clock>) -> Self {
        let anchor = Mutex::new(Anchor { time: newest, elapsed: clock.elapsed() });
        Self { clock, anchor }
    }

    /// The time now, not before any time that this returned.
    pub(in crate::storage) fn now(&self) -> Timestamp {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: of two readings, the later one is not the earlier time.
        let (wall, elapsed) = (self.clock.wall(), self.clock.elapsed());
        let carried = anchor.time.plus(elapsed.saturating_sub(anchor.elapsed));
        if wall <= carried {
            return carried;
        }
        *anchor = Anchor { time: wall, elapsed };
        wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn store_time(newest: Timestamp) -> (StoreTime, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(START));
        (StoreTime::since(newest, Arc::<ManualClock>::clone(&clock)), clock)
    }

    #[test]
    fn the_wall_clock_leads_while_it_is_ahead() {
        let (time, clock) = store_time(START.minus(Duration::from_secs(9)));
        assert_eq!(time.now(), START);
        clock.set_wall(START.plus(Duration::from_secs(60)));
        assert_eq!(time.now(), START.plus(Duration::from_secs(60)));
        clock.set_wall(START);
        assert_eq!(time.now(), START.plus(Duration::from_secs(60)), "also where it led without time passing");
    }

    #[test]
    fn a_wall_clock_set_back_neither_turns_time_back_nor_stops_it() {
        let (time, clock) = store_time(START);
        assert_eq!(time.now(), START);
        clock.set_wall(START.minus(Duration::from_secs(3_600)));
        assert_eq!(time.now(), START);
        clock.advance(Duration::from_secs(7));
        assert_eq!(time.now(), START.plus(Duration::from_secs(7)));
        clock.set_wall(START.plus(Duration::from_secs(5)));
        assert_eq!(time.now(), START.plus(Duration::from_secs(7)));
    }

    #[test]
    fn time_goes_on_from_the_newest_committed_one() {
        let newest = START.plus(Duration::from_secs(120));
        let (time, clock) = store_time(newest);
        assert_eq!(time.now(), newest);
        clock.advance(Duration::from_secs(1));
        assert_eq!(time.now(), newest.plus(Duration::from_secs(1)));
        clock.advance(Duration::from_secs(1_000));
        assert_eq!(time.now(), newest.plus(Duration::from_secs(1_001)));
    }

    #[test]
    fn readings_closer_than_a_microsecond_lose_no_time() {
        let (time, clock) = store_time(START.plus(Duration::from_secs(60)));
        for _ in 0..10 {
            clock.advance(Duration::from_nanos(300));
            time.now();
        }
        assert_eq!(time.now(), START.plus(Duration::from_secs(60)).plus(Duration::from_micros(3)));
    }
}
