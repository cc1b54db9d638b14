//! Which address is how many bytes of which card.
//!
//! Sharded, so that threads seldom meet; ordered within a shard, so that memory grows and shrinks with what is alive and nothing
//! is ever rebuilt at once. Locks are held for the look-up alone. An address leaves the map before the driver frees it: afterwards
//! another thread may be given the same one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use super::{CardIndex, card, context, pools, tree};
use crate::lock::Lock;
use crate::trace::{self, Event};

/// What is known of a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) card: CardIndex,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    /// The context in which it was allocated, and with which it goes.
    pub(crate) context: usize,
    /// Its number in the trace.
    pub(crate) id: u64,
}

impl Block {
    /// A block that the driver has given in this thread's context.
    pub(crate) fn new(index: CardIndex, size: u64, kind: Kind, stream: usize) -> Self {
        let id = trace::number();
        let event = Event {
            id,
            size,
            stream,
            ..Event::on(index)
        };
        trace::emit(trace::Kind::Alloc, event);
        card(index).allocations.fetch_add(1, Relaxed);
        Self {
            card: index,
            size,
            kind,
            context: context(),
            id,
        }
    }

    /// Its bytes are the card's again, in the order of a stream if it is one.
    pub(crate) fn gone(self, stream: usize) {
        match self.kind {
            Kind::Linear => tree::give(self.card, self.size),
            Kind::Managed => {}
            Kind::Pooled => pools::refresh(self.card),
        }
        let event = Event {
            id: self.id,
            size: self.size,
            stream,
            ..Event::on(self.card)
        };
        trace::emit(trace::Kind::Free, event);
    }
}

/// How it was asked for, which says how it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`: the driver moves it; not counted against the budget.
    Managed,
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`: its pool is counted, not the block.
    Pooled,
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

    /// Removes what fits, and hands it over with no lock held.
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
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let blocks = Blocks::<u64>::new();
        (0..10_000_u64).for_each(|key| blocks.insert(key << 9, key));
        assert_eq!(blocks.find(77 << 9), Some(77));
        assert_eq!(blocks.remove(77 << 9), Some(77));
        assert_eq!(blocks.remove(77 << 9), None);
        let mut sum = 0;
        blocks.drain(|value| value % 2 == 0, |value| sum += value);
        assert_eq!(sum, (0..10_000).step_by(2).sum());
        assert_eq!((blocks.find(4 << 9), blocks.find(5 << 9)), (None, Some(5)));
    }
}
