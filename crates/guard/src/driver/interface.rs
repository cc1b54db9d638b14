//! Finds out whether the process uses its cards through CUDA or through HIP.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};

/// Programming interface of cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// CUDA's driver.
    Cuda,
    /// AMD's runtime, whose functions are CUDA's under other names.
    Hip,
}

impl Interface {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Hip => "HIP",
        }
    }
}

// DECISION: a process has one interface, the first by which it sees a card. Cards of both would need two
// numberings in every table. Isolation shows a program the cards of one vendor, so the other interface finds
// none.
static HIP: AtomicBool = AtomicBool::new(false);

/// Chooses the interface, before guard acts.
pub(crate) fn choose(interface: Interface) {
    HIP.store(interface == Interface::Hip, Release);
}

/// The interface; CUDA until one was chosen.
pub(crate) fn chosen() -> Interface {
    if is_hip() { Interface::Hip } else { Interface::Cuda }
}

#[inline]
pub(crate) fn is_hip() -> bool {
    HIP.load(Acquire)
}
