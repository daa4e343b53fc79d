//! What changes: told to whoever watches here, to the other sidecars, and heard from them.

use crate::storage::changes::{Changes, Feed, Touched};

/// Where it is told that something was committed.
#[derive(Debug, Default)]
pub(super) struct Teller {
    feed: Feed,
}

impl Teller {
    /// Tells what a transaction of this process touched, once it is committed.
    pub(super) fn committed(&self, touched: &Touched) {
        self.feed.committed(touched);
    }

    /// Hears which approvals change from now on, here and elsewhere.
    pub(super) fn changes(&self) -> Changes {
        self.feed.listen()
    }
}
