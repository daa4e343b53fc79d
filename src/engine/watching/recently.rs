//! Which version of an approval was told last, of those that changed lately.

use crate::domain::ids::ApprovalId;
use std::collections::HashMap;

/// Approvals in one half of the memory. What has not changed for that many others is forgotten.
const HALF: usize = 16_384;

/// A bounded memory: a store may tell several changes of one approval as one, or one again.
#[derive(Debug, Default)]
pub(super) struct Recently {
    young: HashMap<ApprovalId, u64>,
    old: HashMap<ApprovalId, u64>,
}

impl Recently {
    /// The version that was told last, if it is remembered.
    pub(super) fn told(&self, id: ApprovalId) -> Option<u64> {
        self.young.get(&id).or_else(|| self.old.get(&id)).copied()
    }

    /// Notes that this version has been told.
    pub(super) fn tell(&mut self, id: ApprovalId, version: u64) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_memory_is_bounded_and_keeps_what_is_newest() {
        let id = |number| ApprovalId::new(Uuid::from_u64_pair(1, number));
        let mut recently = Recently::default();
        for number in 1..=100_000 {
            recently.tell(id(number), number);
            assert_eq!(recently.told(id(number)), Some(number));
        }
        assert_eq!(recently.told(id(90_000)), Some(90_000));
        assert_eq!(recently.told(id(1)), None);
        assert!(recently.young.len() + recently.old.len() <= 2 * HALF);
        recently.tell(id(90_000), 90_001);
        assert_eq!(recently.told(id(90_000)), Some(90_001), "the newest counts");
    }
}
