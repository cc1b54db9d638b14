//! Concurrent map from addresses or handles to values, in which guard records allocations.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use plimsoll_nostd::lock::Lock;

use crate::driver::{CuResult, SUCCESS};

/// A power of two; 64 locks of 32 bytes are half a page.
const SHARDS: usize = 64;

// DECISION: the map consists of shards, so that threads rarely wait for each other. Each shard is an ordered
// map, which is never rehashed.
/// Map from 64-bit keys to values, which are returned as copies.
#[derive(Debug)]
pub(crate) struct AddressMap<T> {
    shards: [Lock<BTreeMap<u64, T>>; SHARDS],
}

impl<T: Copy> AddressMap<T> {
    pub(crate) const fn new() -> Self {
        Self { shards: [const { Lock::new(BTreeMap::new()) }; SHARDS] }
    }

    fn shard(&self, key: u64) -> &Lock<BTreeMap<u64, T>> {
        // Fibonacci hashing: addresses are aligned and differ in their middle bits. The upper six bits choose
        // one of 64 shards.
        let mixed = (key >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[usize::try_from(mixed).unwrap_or(0) % SHARDS]
    }

    pub(crate) fn insert(&self, key: u64, value: T) {
        self.shard(key).hold().insert(key, value);
    }

    pub(crate) fn remove(&self, key: u64) -> Option<T> {
        self.shard(key).hold().remove(&key)
    }

    /// Frees what is known by this key through `real`, and hands it to `gone` if that succeeds. It leaves the
    /// map before the driver frees it, because afterwards another thread may get the same key. An unknown key
    /// is passed on.
    pub(crate) fn free(&self, key: u64, real: impl FnOnce() -> CuResult, gone: impl FnOnce(T)) -> CuResult {
        let value = self.remove(key);
        let result = real();
        match value {
            Some(value) if result == SUCCESS => gone(value),
            Some(value) => self.insert(key, value),
            None => {}
        }
        result
    }

    /// Removes the values for which `fits` is true, and hands each to `take` with no lock held.
    pub(crate) fn drain(&self, fits: impl Fn(&T) -> bool, mut take: impl FnMut(T)) {
        for shard in &self.shards {
            let mut gone = Vec::new();
            shard.hold().retain(|_, value| {
                let fits = fits(value);
                if fits {
                    gone.push(*value);
                }
                !fits
            });
            gone.into_iter().for_each(&mut take);
        }
    }

    pub(crate) fn find(&self, key: u64) -> Option<T> {
        self.shard(key).hold().get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_until_it_is_removed() {
        let blocks = AddressMap::<u64>::new();
        (0..10_000_u64).for_each(|key| blocks.insert(key << 9, key));
        assert_eq!(blocks.find(77 << 9), Some(77));
        assert_eq!(blocks.remove(77 << 9), Some(77));
        assert_eq!(blocks.remove(77 << 9), None);
        let mut sum = 0;
        blocks.drain(|value| value % 2 == 0, |value| sum += value);
        assert_eq!(sum, (0..10_000).step_by(2).sum::<u64>());
        assert_eq!((blocks.find(4 << 9), blocks.find(5 << 9)), (None, Some(5)));
    }
}
