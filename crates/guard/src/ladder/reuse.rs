//! Rung 1 of the ladder: release of idle memory of pools when an allocation was refused.
//!
//! The driver's own pools (`cudaMallocAsync`) keep freed memory and can release it. The pools that guard
//! (this library) serves itself can release memory too. Their code is above the ladder because it calls the
//! ladder, so it registers its trim function here with [`also_trim`]. Guard cannot free a program's own
//! cache, but programs with one (PyTorch, ggml since #22155) flush it at OUT_OF_MEMORY and allocate again.

use plimsoll_nostd::lock::Lock;

use crate::account::pools;
use crate::state::CardIndex;

/// Function that releases the idle memory of one kind of pool on a card and returns the number of bytes.
pub(crate) type TrimPools = fn(CardIndex) -> u64;

static OTHER_POOLS: Lock<Option<TrimPools>> = Lock::new(None);

/// Enters the trim of further pools.
pub(crate) fn also_trim(trim: TrimPools) {
    *OTHER_POOLS.hold() = Some(trim);
}

/// Releases the idle memory of pools on a card, and returns the number of bytes.
pub(super) fn give_back(card: CardIndex) -> u64 {
    // Copied out: no lock is held across calls into the driver.
    let others = *OTHER_POOLS.hold();
    others.map_or(0, |trim| trim(card)) + pools::trim(card)
}
