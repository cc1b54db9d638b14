//! Rung 1: idle memory of pools.
//!
//! The driver's own pools (`cudaMallocAsync`) keep what was freed into them and can release it. Pools that
//! guard serves itself can as well; they stand above the ladder, because they climb it, and enter their trim
//! here with [`also_trim`]. A program's own cache is out of reach, but programs that have one (PyTorch, ggml
//! since #22155) flush it themselves at OUT_OF_MEMORY, and ask again.

use plimsoll_nostd::lock::Lock;

use crate::account::pools;
use crate::state::CardIndex;

/// Releases the idle memory of one kind of pools on a card, and returns how many bytes that was.
pub(crate) type TrimPools = fn(CardIndex) -> u64;

static OTHER_POOLS: Lock<Option<TrimPools>> = Lock::new(None);

/// Enters the trim of further pools.
pub(crate) fn also_trim(trim: TrimPools) {
    *OTHER_POOLS.hold() = Some(trim);
}

/// Releases what pools hold idle on a card, and returns how many bytes that was.
pub(super) fn give_back(card: CardIndex) -> u64 {
    // Copied out: no lock is held across calls into the driver.
    let others = *OTHER_POOLS.hold();
    others.map_or(0, |trim| trim(card)) + pools::trim(card)
}
