//! Saying little about what others cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Says something at most once a second, so that whoever causes it cannot fill the log, and counts what it left unsaid.
#[derive(Debug, Default)]
pub(crate) struct Sparing {
    said: Mutex<Option<Instant>>,
    unsaid: AtomicU64,
}

impl Sparing {
    /// Nothing has been said.
    pub(crate) const fn new() -> Self {
        Self { said: Mutex::new(None), unsaid: AtomicU64::new(0) }
    }

    /// How often it was left unsaid since it was last said, if it is to be said now.
    pub(crate) fn say(&self) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| said.elapsed() < Duration::from_secs(1)) {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *said = Some(Instant::now());
        Some(self.unsaid.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::Sparing;

    #[test]
    fn what_is_said_too_often_is_counted_instead() {
        let sparing = Sparing::default();
        assert_eq!(sparing.say(), Some(0));
        assert_eq!((sparing.say(), sparing.say()), (None, None));
        assert_eq!(sparing.unsaid.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
