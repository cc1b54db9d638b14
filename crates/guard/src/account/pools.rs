//! Stream-ordered pools: what they hold of their cards, in use or not.
//!
//! A block of a pool goes back to the pool, and the pool gives memory back when the driver likes, at some synchronisation that we
//! do not see. So not blocks are counted but pools, by the driver's own figure for what each has reserved, which is read again after
//! every call that may change it and before a request is refused.

use alloc::vec::Vec;

use super::{CardIndex, tree};
use crate::driver::{self, CuResult, MemoryPool, SUCCESS};
use crate::lock::Lock;

/// CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and CU_MEMPOOL_ATTR_USED_MEM_CURRENT.
const RESERVED: i32 = 5;
const USED: i32 = 7;

#[derive(Clone, Copy, Debug)]
struct Pool {
    handle: usize,
    card: CardIndex,
    /// The bytes that the card is charged with.
    charged: u64,
}

static POOLS: Lock<Vec<Pool>> = Lock::new(Vec::new());

/// A pool that the program allocates from.
pub(crate) fn meet(handle: MemoryPool, index: CardIndex) {
    let mut pools = POOLS.hold();
    if !pools.iter().any(|pool| pool.handle == handle.addr()) {
        pools.push(Pool {
            handle: handle.addr(),
            card: index,
            charged: 0,
        });
    }
}

/// The card of a pool that was met.
pub(crate) fn card_of(handle: MemoryPool) -> Option<CardIndex> {
    let pools = POOLS.hold();
    let pool = pools.iter().find(|pool| pool.handle == handle.addr())?;
    Some(pool.card)
}

/// The pool is gone, and what it held.
pub(crate) fn forget(handle: MemoryPool) {
    let mut pools = POOLS.hold();
    if let Some(place) = pools.iter().position(|pool| pool.handle == handle.addr()) {
        let pool = pools.swap_remove(place);
        tree::give(pool.card, pool.charged);
    }
}

/// Bytes that the pool has reserved and does not use.
pub(crate) fn idle(handle: MemoryPool) -> u64 {
    let figure = |attribute| read(handle, attribute).unwrap_or(0);
    figure(RESERVED).saturating_sub(figure(USED))
}

/// Charges the card with what its pools have reserved now.
pub(crate) fn refresh(index: CardIndex) {
    let mut known = [(0, 0); 16];
    let count = {
        let pools = POOLS.hold();
        let ours = pools.iter().filter(|pool| pool.card == index);
        known
            .iter_mut()
            .zip(ours)
            .map(|(place, pool)| place.0 = pool.handle)
            .count()
    };
    for place in known.iter_mut().take(count) {
        place.1 = read(core::ptr::with_exposed_provenance_mut(place.0), RESERVED).unwrap_or(u64::MAX);
    }
    let mut pools = POOLS.hold();
    for (handle, reserved) in known.into_iter().take(count).filter(|known| known.1 != u64::MAX) {
        if let Some(pool) = pools.iter_mut().find(|pool| pool.handle == handle) {
            let before = core::mem::replace(&mut pool.charged, reserved);
            tree::charge(index, reserved.saturating_sub(before));
            tree::give(index, before.saturating_sub(reserved));
        }
    }
}

/// Gives back to the card what its pools hold idle, and returns how many bytes that was.
pub(crate) fn trim(index: CardIndex) -> u64 {
    refresh(index);
    let (held, handles) = charged(index);
    for handle in handles {
        // SAFETY: a pool that the program has not destroyed, or a number that the driver refuses.
        unsafe { driver::cuMemPoolTrimTo(core::ptr::with_exposed_provenance_mut(handle), 0) };
    }
    refresh(index);
    held.saturating_sub(charged(index).0)
}

/// What the card is charged with for its pools, and these.
fn charged(index: CardIndex) -> (u64, Vec<usize>) {
    let pools = POOLS.hold();
    let ours = pools.iter().filter(|pool| pool.card == index);
    let handles = ours.clone().map(|pool| pool.handle).collect();
    (ours.map(|pool| pool.charged).sum(), handles)
}

fn read(handle: MemoryPool, attribute: i32) -> Option<u64> {
    let mut figure = 0_u64;
    // SAFETY: both attributes are numbers of eight bytes.
    let result: CuResult =
        unsafe { driver::cuMemPoolGetAttribute(handle, attribute, (&raw mut figure).cast()) };
    (result == SUCCESS).then_some(figure)
}
