//! Release of idle pool memory after a refused allocation: the first rung of the ladder (guard's sequence of
//! remedies).
//!
//! The driver's own pools (`cudaMallocAsync`) and the ggml pools that guard (this library) serves keep freed
//! memory, and can release it. The module of the ggml pools calls the ladder, so the ladder cannot import it.
//! Instead, that module registers its release function with [`also_trim`]. Guard cannot free a program's own
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
