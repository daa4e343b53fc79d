//! Reading the hashes of the tree that something is made of: which ones it takes is asked first, and then they are read, many
//! that follow each other at once.

use super::{SealStore, StoreError};
use crate::domain::audit::tree::{Hash, Kept};
use std::collections::{BTreeMap, BTreeSet};

/// Hashes that are read at once.
const RUN: u32 = 512;

/// What `make` makes of the hashes that are kept; none if it makes nothing of them, or one of them is not there.
///
/// # Errors
/// The store.
pub async fn made_of<T>(
    store: &(impl SealStore + ?Sized),
    make: impl Fn(&mut Kept<'_>) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let mut wanted = BTreeSet::new();
    make(&mut |level, place| {
        wanted.insert((level, place));
        Some([0; 32])
    });
    let mut read: BTreeMap<(u8, u64), Hash> = BTreeMap::new();
    let mut wanted = wanted.into_iter().peekable();
    while let Some((level, first)) = wanted.next() {
        let mut count = 1_u32;
        while count < RUN && wanted.next_if_eq(&(level, first.saturating_add(u64::from(count)))).is_some() {
            count = count.saturating_add(1);
        }
        let run = store.audit_hashes(level, first, count).await?;
        read.extend(run.into_iter().map(|(place, hash)| ((level, place), hash)));
    }
    Ok(make(&mut |level, place| read.get(&(level, place)).copied()))
}
