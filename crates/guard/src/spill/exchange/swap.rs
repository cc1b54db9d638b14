//! Exchange of two granules, one on the card and one in host memory, so that no failure of the driver loses a byte.
//!
//! Both granules are copied to spares first, and the spares are mapped in their places. Until the last step the old
//! memory has the same bytes as the new one, so either may be mapped: whatever the driver refuses, one of them is.
//! The old memory becomes the next spares.

use super::super::vmm;
use super::spares::{Spare, Spares};
use crate::driver::{AllocationHandle, DevicePointer};
use crate::say::say;

/// Attempts to map one of two memories with the same bytes.
const ATTEMPTS: usize = 8;

/// What came of an exchange.
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

/// Exchanges the granule at `leaves`, on the card, and the one at `comes`, in host memory. No work uses them.
pub(super) fn swap(spares: &mut Spares, leaves: DevicePointer, comes: DevicePointer) -> Swap {
    let (Some(card), Some(host)) = (spares.card.handle, spares.host.handle) else { return Swap::default() };
    if spares.copy(leaves, comes).is_err() {
        return Swap::default();
    }
    let Ok(from_card) = vmm::retain(leaves) else { return Swap::default() };
    let Ok(from_host) = vmm::retain(comes) else {
        vmm::release(from_card);
        return Swap::default();
    };
    let replace = |at, old, new| replace(spares, at, old, new);
    let mut left = replace(leaves, from_card, host);
    let came = if left == Behind::New { replace(comes, from_host, card) } else { Behind::Old };
    if came == Behind::Old && left == Behind::New {
        left = replace(leaves, host, from_card).other();
    }
    match (left, came) {
        (Behind::New, Behind::New) => {
            let goes_on = renew(spares, from_card, from_host);
            Swap { left: true, came: true, goes_on }
        }
        (left, _) => {
            vmm::release(from_card);
            vmm::release(from_host);
            if left == Behind::New {
                // The spare of host memory is the program's now, and its granule of the card is nobody's.
                vmm::release(host);
                spares.host.handle = None;
                spares.gave_card();
            }
            Swap { left: left == Behind::New, ..Swap::default() }
        }
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
fn replace(spares: &Spares, at: DevicePointer, old: AllocationHandle, new: AllocationHandle) -> Behind {
    if vmm::detach(at, spares.granule).is_err() {
        return Behind::Old;
    }
    for _ in 0..ATTEMPTS {
        for (handle, behind) in [(new, Behind::New), (old, Behind::Old)] {
            if vmm::put(at, spares.granule, handle, spares.device()).is_ok() {
                return behind;
            }
        }
    }
    // The driver takes back no memory that it had before. The next use of the address fails there, with an error.
    say!("the driver refuses to map {at:#x} again; the program's next use of it will fail");
    Behind::Old
}

/// Makes the memory that was replaced the new spares; false if they cannot be used.
fn renew(spares: &mut Spares, card: AllocationHandle, host: AllocationHandle) -> bool {
    let (granule, device) = (spares.granule, spares.device());
    let renew = |spare: &mut Spare, handle| {
        let mapped =
            vmm::detach(spare.at, granule).and_then(|()| vmm::put(spare.at, granule, handle, device));
        // Its mapping in the program's range keeps the memory that the spare was.
        if let Some(before) = spare.handle.replace(handle) {
            vmm::release(before);
        }
        mapped.is_ok()
    };
    let renewed = [renew(&mut spares.card, card), renew(&mut spares.host, host)];
    renewed == [true, true]
}
