//! Keeps ggml on HIP within the budget under `GGML_CUDA_ENABLE_UNIFIED_MEMORY`, where it allocates only
//! managed memory.
//!
//! With `spill` such a request is served as one for the card's memory, so that only the overflow leaves the
//! card.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_wire::page::UNLIMITED;

use crate::driver::interface::is_hip;
use crate::say::say;
use crate::state::{CardIndex, ledger};
use crate::{process, settings};

const VARIABLE: &str = "GGML_CUDA_ENABLE_UNIFIED_MEMORY";

/// True if managed memory is to be the card's own as far as that goes.
pub(crate) fn is_overflow_alone() -> bool {
    // DECISION: ggml reaches its buffers by copies and kernels alone, so memory of the card can take the
    // place of managed memory. Another program may touch managed memory directly; it does not set the
    // variable.
    is_hip() && settings::options().spill.is_some() && process::variable(VARIABLE).is_some()
}

/// Reports once how such a program is served.
pub(crate) fn say_once(index: CardIndex) {
    static STATED: AtomicBool = AtomicBool::new(false);
    if !is_hip() || process::variable(VARIABLE).is_none() || STATED.swap(true, Relaxed) {
        return;
    }
    if is_overflow_alone() {
        say!("{VARIABLE} is set: buffers are placed on the card, and only what does not fit in host memory");
    } else if ledger::budget(index) != UNLIMITED {
        say!(
            "{VARIABLE} is set: every buffer is managed memory, which the budget does not count; with --spill only \
                what does not fit leaves the card"
        );
    }
}
