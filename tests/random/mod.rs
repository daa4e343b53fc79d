//! Choices that can be repeated.

/// A small generator (SplitMix64): good enough to choose with, and the same everywhere.
pub struct Random {
    seed: u64,
    state: u64,
}

impl From<u64> for Random {
    fn from(seed: u64) -> Self {
        Self { seed, state: seed }
    }
}

impl Random {
    /// From `COUNTERSIGN_TEST_SEED`, else new each time.
    pub fn seeded() -> Self {
        let seed = match std::env::var("COUNTERSIGN_TEST_SEED") {
            Ok(text) => text.parse().expect("COUNTERSIGN_TEST_SEED is a number"),
            Err(_) => uuid::Uuid::new_v4().as_u64_pair().0,
        };
        Self::from(seed)
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }
}
