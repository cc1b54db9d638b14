//! Lets a piece of memory on the card and one in host memory change places, so that no driver failure loses a
//! byte.
//!
//! Both granules were copied to spares, which are mapped in their places. Until the last step the old memory
//! has the same bytes as the new one, so either may be mapped: whatever the driver refuses, one of them is.
//! The old memory becomes the next spares.

use super::super::vmm;
use super::frames::Frames;
use crate::driver::{AllocationHandle, DevicePointer};
use crate::say::say;

/// Attempts to map one of two memories with the same bytes.
const ATTEMPTS: usize = 8;

/// A granule of the program, by its number and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GranulePlace {
    pub(super) number: usize,
    pub(super) at: DevicePointer,
}

/// Outcome of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swap {
    /// The one granule has left the card.
    pub(super) left: bool,
    /// The other one has come to it.
    pub(super) came: bool,
    /// Another exchange may follow.
    pub(super) goes_on: bool,
}

/// The memory behind an address after an attempt to replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Old,
    New,
}

/// Exchanges a granule on the card and one in host memory, which were copied to the spares with this number.
/// No work uses them.
pub(super) fn swap(frames: &mut Frames, spare: usize, leaves: GranulePlace, comes: GranulePlace) -> Swap {
    let Some((card, host)) = frames.spare_handles(spare) else { return Swap::default() };
    let Some(from_card) = frames.handle_behind(leaves) else { return Swap::default() };
    let Some(from_host) = frames.handle_behind(comes) else { return Swap::default() };
    let mut left = replace(frames, leaves.at, from_card, host);
    let came = if left == Behind::New { replace(frames, comes.at, from_host, card) } else { Behind::Old };
    if came == Behind::Old && left == Behind::New {
        left = replace(frames, leaves.at, host, from_card).other();
    }
    match (left, came) {
        (Behind::New, Behind::New) => {
            let goes_on = frames.exchanged(spare, leaves, comes);
            Swap { left: true, came: true, goes_on }
        }
        (Behind::New, Behind::Old) => {
            frames.lost(spare, leaves);
            Swap { left: true, ..Swap::default() }
        }
        (Behind::Old, _) => Swap::default(),
    }
}

impl Behind {
    const fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }
}

/// Maps `new` in the place of `old`, which has the same bytes.
fn replace(frames: &Frames, at: DevicePointer, old: AllocationHandle, new: AllocationHandle) -> Behind {
    if vmm::detach(at, frames.granule).is_err() {
        return Behind::Old;
    }
    for _ in 0..ATTEMPTS {
        for (handle, behind) in [(new, Behind::New), (old, Behind::Old)] {
            if vmm::put(at, frames.granule, handle, frames.index().device()).is_ok() {
                return behind;
            }
        }
    }
    // The driver takes back no memory that it had before. The next use of the address fails there, with an
    // error.
    say!("the driver refuses to map the memory at {at:#x} again; the program's next use of it will fail");
    Behind::Old
}
