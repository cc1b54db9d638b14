//! Rung 1: what is held and not used.
//!
//! The driver's own pools (`cudaMallocAsync`) keep what was freed into them and can let go of it. A program's own cache cannot
//! be reached from here, but programs that have one (PyTorch, ggml since #22155) flush it themselves when they are told
//! OUT_OF_MEMORY, and ask again.

use crate::account::{CardIndex, pools};

/// Lets go of what pools hold idle on a card; whether that was anything.
pub(super) fn give_back(card: CardIndex) -> bool {
    pools::trim(card)
}
