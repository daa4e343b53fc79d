//! What one caller does at once and how fast, within its limits.

use crate::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What one caller may do at once and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// Calls that are under way.
    pub calls: u32,
    /// Streams that are open.
    pub streams: u32,
    /// Calls a second; none: as many as come.
    pub rate: Option<Rate>,
}

impl Default for CallerLimits {
    fn default() -> Self {
        Self { calls: 1024, streams: 1024, rate: None }
    }
}

/// How fast calls may follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls a second; at least one.
    pub per_second: u32,
    /// So many may come at once after a pause; at least one.
    pub burst: u32,
}

/// A limit that a caller has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// Of calls that are under way.
    Calls {
        /// How many there may be.
        most: u32,
    },
    /// Of open streams.
    Streams {
        /// How many there may be.
        most: u32,
    },
    /// Of calls a second.
    Rate {
        /// How many there may be.
        per_second: u32,
        /// When there is room for one more.
        again_after: Duration,
    },
}

/// What one caller does. It is the caller's own, also after the configuration has been read again.
#[derive(Debug, Default)]
pub struct Usage {
    calls: AtomicU32,
    streams: AtomicU32,
    /// When the calls so far would have been over had they come at the rate: nanoseconds on the clock that never goes back.
    paid_until: AtomicU64,
}

/// A call's or a stream's place among those of its caller; given back when dropped.
#[derive(Debug)]
pub struct Place {
    usage: Arc<Usage>,
    of: fn(&Usage) -> &AtomicU32,
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.usage).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Usage {
    /// A call begins.
    ///
    /// # Errors
    /// Too many are under way, or they come too fast. A call that is refused counts for neither.
    pub(super) fn call(self: &Arc<Self>, limits: &CallerLimits, clock: &dyn Clock) -> Result<Place, LimitReached> {
        let place = self.place(|usage| &usage.calls, limits.calls).ok_or(LimitReached::Calls { most: limits.calls })?;
        if let Some(rate) = limits.rate {
            self.pay(rate, clock.elapsed())?;
        }
        Ok(place)
    }

    /// A stream begins.
    ///
    /// # Errors
    /// Too many are open.
    pub(super) fn stream(self: &Arc<Self>, limits: &CallerLimits) -> Result<Place, LimitReached> {
        let most = limits.streams;
        self.place(|usage| &usage.streams, most).ok_or(LimitReached::Streams { most })
    }

    fn place(self: &Arc<Self>, of: fn(&Self) -> &AtomicU32, most: u32) -> Option<Place> {
        let more = |now: u32| now.checked_add(1).filter(|next| *next <= most);
        of(self).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place { usage: Arc::clone(self), of })
    }

    fn pay(&self, rate: Rate, now: Duration) -> Result<(), LimitReached> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let each = 1_000_000_000 / u64::from(rate.per_second.max(1));
        let ahead = each.saturating_mul(u64::from(rate.burst.max(1)));
        // Nobody pays further ahead than a burst, unless at the rate of an earlier configuration: of that, a burst is left that
        // is used up but for this call.
        let latest = now.saturating_add(ahead);
        let paid = |until: u64| {
            let until = if until > latest { latest.saturating_sub(each) } else { until };
            let next = until.max(now).saturating_add(each);
            (next - now <= ahead).then_some(next)
        };
        self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid).map(drop).map_err(|until| {
            let over = until.max(now).saturating_add(each).saturating_sub(now).saturating_sub(ahead);
            LimitReached::Rate { per_second: rate.per_second, again_after: Duration::from_nanos(over) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::domain::time::Timestamp;

    #[test]
    fn places_are_given_back_and_never_more_than_there_are() {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let usage = Arc::new(Usage::default());
        let limits = CallerLimits { calls: 2, streams: 1, rate: None };
        let (first, _second) = (usage.call(&limits, &clock).unwrap(), usage.call(&limits, &clock).unwrap());
        assert_eq!(usage.call(&limits, &clock).unwrap_err(), LimitReached::Calls { most: 2 });
        let stream = usage.stream(&limits).unwrap();
        assert_eq!(usage.stream(&limits).unwrap_err(), LimitReached::Streams { most: 1 });
        drop((first, stream));
        assert!(usage.call(&limits, &clock).is_ok() && usage.stream(&limits).is_ok());
    }

    #[test]
    fn another_rate_holds_from_the_next_call_on() {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let usage = Arc::new(Usage::default());
        let at = |per_second, burst| CallerLimits { rate: Some(Rate { per_second, burst }), ..CallerLimits::default() };
        for _ in 0..40 {
            assert!(usage.call(&at(1, 100_000), &clock).is_ok());
        }
        // Forty seconds were paid ahead, which is more than this burst is worth.
        assert!(usage.call(&at(1_000, 10), &clock).is_ok());
        assert!(usage.call(&at(1_000, 10), &clock).is_err());
        clock.advance(Duration::from_millis(1));
        assert!(usage.call(&at(1_000, 10), &clock).is_ok());
        assert!(usage.call(&at(1_000, 10), &clock).is_err());
    }

    #[test]
    fn a_burst_is_let_through_and_then_calls_at_the_rate() {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let usage = Arc::new(Usage::default());
        let limits = CallerLimits { rate: Some(Rate { per_second: 10, burst: 3 }), ..CallerLimits::default() };
        let again_after = Duration::from_millis(100);
        for _ in 0..2 {
            for _ in 0..3 {
                assert!(usage.call(&limits, &clock).is_ok());
            }
            let refused = usage.call(&limits, &clock).unwrap_err();
            assert_eq!(refused, LimitReached::Rate { per_second: 10, again_after });
            clock.advance(again_after - Duration::from_nanos(1));
            assert!(usage.call(&limits, &clock).is_err(), "a refusal costs nothing, and helps nothing");
            clock.advance(Duration::from_nanos(1));
            assert!(usage.call(&limits, &clock).is_ok());
            clock.advance(Duration::from_secs(60));
        }
    }
}
