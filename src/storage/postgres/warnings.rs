//! Warnings that come in floods, and of which one in a while is enough.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two warnings at least.
const EVERY: Duration = Duration::from_secs(10);

/// What has been said, and what has been kept back since.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    kept_back: u64,
}

impl Warnings {
    /// Warns, unless it has just been done. A cause is what the driver or the server said, never a statement or a value.
    pub(super) fn warn(&self, what: &'static str, cause: &str) {
        if let Some(kept_back) = self.due() {
            tracing::warn!(cause, kept_back, "{what}");
        }
    }

    /// How many were kept back, if it is time for another one.
    fn due(&self) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.last.is_some_and(|last| last.elapsed() < EVERY) {
            said.kept_back = said.kept_back.saturating_add(1);
            return None;
        }
        let kept_back = said.kept_back;
        *said = Said { last: Some(Instant::now()), kept_back: 0 };
        Some(kept_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_one_warning_is_given_and_the_rest_are_counted() {
        let warnings = Warnings::default();
        assert_eq!(warnings.due(), Some(0));
        assert_eq!((warnings.due(), warnings.due()), (None, None));
        let a_while_ago = Instant::now().checked_sub(EVERY);
        warnings.0.lock().unwrap().last = a_while_ago;
        assert_eq!(warnings.due(), Some(2));
    }
}
