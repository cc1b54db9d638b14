//! Releases idle memory of pools after a refused allocation: the first remedy that guard tries.
//!
//! The driver's own pools and guard's pools can release freed memory.

use plimsoll_nostd::lock::Lock;

use crate::account::pools;
use crate::state::CardIndex;

/// Function that releases the idle memory of one kind of pool on a card and returns the number of bytes.
pub(crate) type TrimPools = fn(CardIndex) -> u64;

// The ggml module imports the ladder, so it registers its release function here.
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
