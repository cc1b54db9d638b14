//! Counts the memory that the driver's stream-ordered pools (`cudaMallocAsync`) reserve.
//!
//! The driver's figure for each pool is read after every call that may change it, and before a refusal.

use alloc::vec::Vec;
use core::ptr::with_exposed_provenance_mut;

use plimsoll_nostd::lock::Lock;

use crate::driver::{self, CuResult, MemoryPool, SUCCESS};
use crate::state::{CardIndex, ledger};

/// CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and CU_MEMPOOL_ATTR_USED_MEM_CURRENT.
const RESERVED: i32 = 5;
const USED: i32 = 7;

// DECISION: the driver's figure for a whole pool is counted, not its blocks, because the driver returns freed
// blocks unseen.
#[derive(Clone, Copy, Debug)]
struct DriverPool {
    handle: usize,
    card: CardIndex,
    /// The bytes that the card is charged with.
    charged: u64,
    /// Counts the figures that were stored.
    generation: u64,
}

#[derive(Debug)]
struct PoolTable {
    pools: Vec<DriverPool>,
}

static POOLS: Lock<PoolTable> = Lock::new(PoolTable { pools: Vec::new() });

/// Attempts of a refresh that others overtake.
const ATTEMPTS: u32 = 16;

impl PoolTable {
    fn on(&self, index: CardIndex) -> impl Iterator<Item = &DriverPool> {
        self.pools.iter().filter(move |pool| pool.card == index)
    }

    fn find(&mut self, handle: usize) -> Option<&mut DriverPool> {
        self.pools.iter_mut().find(|pool| pool.handle == handle)
    }
}

impl DriverPool {
    /// Stores a figure that was read while `generation` was current, and returns the one before. None if
    /// another figure was stored since then: that one may be the newer, so the driver has to be asked again.
    fn store(&mut self, generation: u64, reserved: u64) -> Option<u64> {
        if self.generation != generation {
            return None;
        }
        self.generation += 1;
        Some(core::mem::replace(&mut self.charged, reserved))
    }
}

/// Enters a pool that the program allocates from.
pub(crate) fn meet(handle: MemoryPool, index: CardIndex) {
    let mut table = POOLS.hold();
    if !table.pools.iter().any(|pool| pool.handle == handle.addr()) {
        table.pools.push(DriverPool {
            handle: handle.expose_provenance(),
            card: index,
            charged: 0,
            generation: 0,
        });
    }
}

/// The card of a pool that was entered.
pub(crate) fn card_of(handle: MemoryPool) -> Option<CardIndex> {
    let table = POOLS.hold();
    let pool = table.pools.iter().find(|pool| pool.handle == handle.addr())?;
    Some(pool.card)
}

/// Removes a destroyed pool and returns the memory that it held.
pub(crate) fn forget(handle: MemoryPool) {
    let mut table = POOLS.hold();
    if let Some(place) = table.pools.iter().position(|pool| pool.handle == handle.addr()) {
        let pool = table.pools.swap_remove(place);
        ledger::give(pool.card, pool.charged);
    }
}

/// Bytes that the pool has reserved and does not use.
pub(crate) fn idle(handle: MemoryPool) -> u64 {
    let figure = |attribute| read(handle, attribute).unwrap_or(0);
    figure(RESERVED).saturating_sub(figure(USED))
}

/// Charges the card with the present reserve of its pools.
pub(crate) fn refresh(index: CardIndex) {
    let handles: Vec<usize> = POOLS.hold().on(index).map(|pool| pool.handle).collect();
    for handle in handles {
        refresh_one(index, handle);
    }
}

/// Reads and stores one figure. Of two threads that do so at once, the later figure must stand. With the
/// older one, growth of the pool in the meantime would count for nothing until the next call.
fn refresh_one(index: CardIndex, handle: usize) {
    for attempt in 1..=ATTEMPTS {
        let Some(generation) = POOLS.hold().find(handle).map(|pool| pool.generation) else {
            return;
        };
        // No lock is held across a call into the driver, which takes locks of its own.
        let Some(mut reserved) = read(with_exposed_provenance_mut(handle), RESERVED) else {
            return;
        };
        let mut table = POOLS.hold();
        let Some(pool) = table.find(handle) else { return };
        let generation = if attempt < ATTEMPTS {
            generation
        } else {
            // Overtaken every time: the larger figure is the safe one until the next call.
            reserved = reserved.max(pool.charged);
            pool.generation
        };
        if let Some(before) = pool.store(generation, reserved) {
            ledger::charge(index, reserved.saturating_sub(before));
            ledger::give(index, before.saturating_sub(reserved));
            return;
        }
    }
}

/// Makes the pools of a card release their idle memory, and returns the number of bytes.
pub(crate) fn trim(index: CardIndex) -> u64 {
    refresh(index);
    let (occupied, handles) = charged(index);
    for handle in handles {
        // SAFETY: a pool that the program has not destroyed, or a number that the driver refuses.
        unsafe { driver::cuMemPoolTrimTo(with_exposed_provenance_mut(handle), 0) };
    }
    refresh(index);
    occupied.saturating_sub(charged(index).0)
}

/// Bytes that the card is charged with for its pools, and the pools.
fn charged(index: CardIndex) -> (u64, Vec<usize>) {
    let table = POOLS.hold();
    let handles = table.on(index).map(|pool| pool.handle).collect();
    (table.on(index).map(|pool| pool.charged).sum(), handles)
}

fn read(handle: MemoryPool, attribute: i32) -> Option<u64> {
    let mut figure = 0_u64;
    // SAFETY: both attributes are numbers of eight bytes.
    let result: CuResult =
        unsafe { driver::cuMemPoolGetAttribute(handle, attribute, (&raw mut figure).cast()) };
    (result == SUCCESS).then_some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_was_read_before_another_was_stored_is_read_again() {
        let mut pool = DriverPool { handle: 7, card: CardIndex::FIRST, charged: 0, generation: 0 };
        let (first, second) = (pool.generation, pool.generation);
        assert_eq!(pool.store(second, 64), Some(0));
        assert_eq!(pool.store(first, 32), None, "the older figure");
        assert_eq!(pool.charged, 64);
        assert_eq!(pool.store(pool.generation, 96), Some(64));
    }
}
