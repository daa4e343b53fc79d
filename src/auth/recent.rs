//! Tokens of issuers that were verified a short while ago, so that a signature is checked once and not at each call.

use super::callers::Found;
use crate::domain::time::Timestamp;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Half of how many are kept.
const HALF: usize = 1024;

/// What a token came to.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The keys that it was verified with, all issuers' together.
    pub(super) generation: u64,
    /// From when on it is not good.
    pub(super) until: Timestamp,
    pub(super) found: Found,
}

/// Good tokens by their hash; those that have not been asked for in a while make room for others. It is part of the callers of
/// one reading of the configuration, and ends with them.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    newer: HashMap<[u8; 32], Seen>,
    older: HashMap<[u8; 32], Seen>,
}

impl Recent {
    /// What a token came to under these keys.
    pub(super) fn get(&self, hash: &[u8; 32], generation: u64) -> Option<Seen> {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match halves.newer.get(hash) {
            Some(seen) => seen.clone(),
            None => {
                let seen = halves.older.remove(hash)?;
                halves.put(*hash, seen.clone());
                seen
            }
        };
        (found.generation == generation).then_some(found)
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Halves::default();
    }

    pub(super) fn put(&self, hash: [u8; 32], seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(hash, seen);
    }
}

impl Halves {
    fn put(&mut self, hash: [u8; 32], seen: Seen) {
        if self.newer.len() >= HALF {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(hash, seen);
    }
}
