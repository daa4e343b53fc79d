//! What counts: atomics, touched without a lock, an allocation or a lookup by text.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// How many by now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// So many more, or fewer.
    pub fn add(&self, number: i64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// So many.
    pub fn set(&self, number: i64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// How many now.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that a label may have: one of a few, known when this was compiled.
pub trait Label: Copy + PartialEq + 'static {
    /// Every value.
    const ALL: &'static [Self];

    /// The text of it.
    fn text(self) -> &'static str;
}

/// A counter for each value of a label.
#[derive(Debug)]
pub struct CounterBy<L>(Vec<(L, Counter)>);

impl<L: Label> Default for CounterBy<L> {
    fn default() -> Self {
        Self(L::ALL.iter().map(|label| (*label, Counter::default())).collect())
    }
}

impl<L: Label> CounterBy<L> {
    /// One more of this.
    pub fn one(&self, of: L) {
        self.add(of, 1);
    }

    /// So many more of this.
    pub fn add(&self, of: L, number: u64) {
        if let Some((_, counter)) = self.0.iter().find(|(label, _)| *label == of) {
            counter.add(number);
        }
    }

    /// Every value with how many there are by now.
    pub fn read(&self) -> impl Iterator<Item = (L, u64)> {
        self.0.iter().map(|(label, counter)| (*label, counter.get()))
    }
}

/// What may be waited for on a request's path: 50 µs to 10 s.
pub const CALL_BOUNDS: &[Duration] = &[
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// What people may take: a second to a day.
pub const PEOPLE_BOUNDS: &[Duration] = &[
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(2 * 60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(4 * 60 * 60),
    Duration::from_secs(24 * 60 * 60),
];

/// How long things took: so many within each bound, and the sum of all.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [Duration],
    within: Vec<Counter>,
    sum_nanos: Counter,
}

impl Histogram {
    /// Nothing yet, in buckets up to these bounds, which ascend.
    pub fn new(bounds: &'static [Duration]) -> Self {
        let within = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, within, sum_nanos: Counter::default() }
    }

    /// One that took so long.
    pub fn observe(&self, took: Duration) {
        let bucket = self.bounds.iter().position(|bound| took <= *bound).unwrap_or(self.bounds.len());
        if let Some(counter) = self.within.get(bucket) {
            counter.one();
        }
        self.sum_nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.within.iter().map(Counter::get).sum()
    }

    /// All of it in seconds: the sum, the count, and per upper bound what is within it and no smaller one.
    pub(super) fn read(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let bounds = self.bounds.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.within.iter().map(Counter::get)).collect();
        let sum = Duration::from_nanos(self.sum_nanos.get()).as_secs_f64();
        (sum, buckets.iter().map(|(_, count)| count).sum(), buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_as_long_as_a_bound_is_within_it() {
        for bounds in [CALL_BOUNDS, PEOPLE_BOUNDS] {
            assert!(bounds.is_sorted());
            for (index, bound) in bounds.iter().enumerate() {
                let histogram = Histogram::new(bounds);
                histogram.observe(*bound);
                histogram.observe(*bound + Duration::from_nanos(1));
                let (_, count, buckets) = histogram.read();
                assert_eq!((count, buckets[index].1, buckets[index + 1].1), (2, 1, 1), "{bound:?}");
            }
        }
    }

    #[test]
    fn the_sum_is_in_seconds() {
        let histogram = Histogram::new(CALL_BOUNDS);
        histogram.observe(Duration::from_millis(1_500));
        histogram.observe(Duration::from_secs(60));
        assert_eq!(histogram.read().0, 61.5);
    }
}
