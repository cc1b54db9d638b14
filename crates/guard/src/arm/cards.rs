//! Lists the CUDA devices when guard starts to act in a process.
//!
//! Each device gets an entry on the process's page, a shared-memory file with memory figures.

use core::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_wire::page::{CARDS, PageCard};

use crate::driver::{self, DeviceOrdinal, SUCCESS};
use crate::say::say;
use crate::state;

/// Creates the page with its cards; false, after a line on stderr, if the driver does not report their
/// number.
pub(super) fn enter() -> bool {
    let mut count = 0;
    // SAFETY: the driver is up, and `count` is ours.
    if unsafe { driver::cuDeviceGetCount(&raw mut count) } != SUCCESS {
        say!("the driver does not report its cards; this process runs unguarded");
        return false;
    }
    let count = u32::try_from(count).unwrap_or(0);
    let room = u32::try_from(CARDS).unwrap_or(0);
    if count > room {
        say!("there are {count} cards; only the first {room} are guarded");
    }
    state::create(|page| {
        page.count.store(count.min(room), Release);
        for (device, card) in (0..).zip(&page.cards).take(usize::try_from(count).unwrap_or(0)) {
            describe(device, card);
        }
    });
    true
}

fn describe(device: DeviceOrdinal, card: &PageCard) {
    let (mut uuid, mut total) = ([0_u8; 16], 0_usize);
    // The newer function tells a MIG instance's own UUID, the older one that of the whole card.
    // SAFETY: the device exists, and the places are ours.
    unsafe {
        if driver::cuDeviceGetUuid_v2(&raw mut uuid, device) != SUCCESS {
            driver::cuDeviceGetUuid(&raw mut uuid, device);
        }
        driver::cuDeviceTotalMem_v2(&raw mut total, device);
    }
    let (halves, _) = uuid.as_chunks::<8>();
    for (place, half) in card.uuid.iter().zip(halves) {
        place.store(u64::from_le_bytes(*half), Relaxed);
    }
    card.total.store(u64::try_from(total).unwrap_or(0), Relaxed);
}
