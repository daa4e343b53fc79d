//! Choices that a seed decides, so that a failing run can be made again.

/// A small generator (splitmix64): the same seed, the same choices.
pub(in super::super) struct Random(u64);

impl Random {
    pub(in super::super) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(in super::super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(in super::super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    /// One of these.
    pub(in super::super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Yes in one of `times`.
    pub(in super::super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
