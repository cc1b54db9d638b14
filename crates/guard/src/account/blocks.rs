//! Which address is how many bytes of which card.
//!
//! Sharded, so that threads seldom meet; ordered within a shard, so that memory grows and shrinks with what is alive and nothing
//! is ever rebuilt at once. Locks are held for the look-up alone. An address leaves the map before the driver frees it: afterwards
//! another thread may be given the same one.

use alloc::collections::BTreeMap;

use super::CardIndex;
use crate::lock::Lock;

/// What is known of a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) card: CardIndex,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    /// Its number in the trace.
    pub(crate) id: u64,
}

/// How it was asked for, which says how it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`: the driver moves it; not counted against the budget.
    Managed,
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`.
    Async,
}

const SHARDS: usize = 64;

/// Blocks by address, or by whatever number names them.
#[derive(Debug)]
pub(crate) struct Blocks<T = Block> {
    shards: [Lock<BTreeMap<u64, T>>; SHARDS],
}

/// Device memory by its address.
pub(crate) static BLOCKS: Blocks = Blocks::new();

impl<T: Copy> Blocks<T> {
    pub(crate) const fn new() -> Self {
        Self {
            shards: [const { Lock::new(BTreeMap::new()) }; SHARDS],
        }
    }

    fn shard(&self, key: u64) -> &Lock<BTreeMap<u64, T>> {
        // Fibonacci hashing: addresses differ in their middle bits.
        let mixed = (key >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[usize::try_from(mixed).unwrap_or(0) % SHARDS]
    }

    pub(crate) fn insert(&self, key: u64, value: T) {
        self.shard(key).hold().insert(key, value);
    }

    pub(crate) fn remove(&self, key: u64) -> Option<T> {
        self.shard(key).hold().remove(&key)
    }

    pub(crate) fn find(&self, key: u64) -> Option<T> {
        self.shard(key).hold().get(&key).copied()
    }

    /// Changes the value of a key, if there is one; a key whose value becomes None is forgotten.
    pub(crate) fn change<R>(&self, key: u64, change: impl FnOnce(&mut Option<T>) -> R) -> R {
        let mut shard = self.shard(key).hold();
        let mut value = shard.get(&key).copied();
        let result = change(&mut value);
        match value {
            Some(value) => shard.insert(key, value),
            None => shard.remove(&key),
        };
        result
    }
}
