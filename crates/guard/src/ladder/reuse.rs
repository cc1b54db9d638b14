//! Rung 1: what is held and not used.
//!
//! The driver's own pools (`cudaMallocAsync`) keep what was freed into them and can let go of it, and so can the pools that guard
//! serves in ggml's stead. A program's own cache cannot
//! be reached from here, but programs that have one (PyTorch, ggml since #22155) flush it themselves when they are told
//! OUT_OF_MEMORY, and ask again.

use crate::account::{CardIndex, pools};
use crate::ggml;

/// Lets go of what pools hold idle on a card, and returns how many bytes that was.
pub(super) fn give_back(card: CardIndex) -> u64 {
    ggml::trim(card) + pools::trim(card)
}
