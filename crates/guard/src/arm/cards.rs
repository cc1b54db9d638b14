//! The cards: asked of the driver once, when guard arms itself.

use core::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_wire::options::Options;
use plimsoll_wire::page::{CARDS, Card};

use super::{CardIndex, page, tree};
use crate::driver::{self, Device, SUCCESS};
use crate::say::say;

/// Makes the page, writes the cards on it and joins the tree; false, and said, if that cannot be.
pub(crate) fn open(options: &Options) -> bool {
    let mut count = 0;
    // SAFETY: the driver is up, and `count` is ours.
    if unsafe { driver::cuDeviceGetCount(&raw mut count) } != SUCCESS {
        say!("the driver does not count its cards; this process runs unguarded");
        return false;
    }
    let count = u32::try_from(count).unwrap_or(0);
    let room = u32::try_from(CARDS).unwrap_or(0);
    if count > room {
        say!("{count} cards, of which only the first {room} are guarded");
    }
    page::create(|page| {
        page.count.store(count.min(room), Release);
        for (device, card) in (0..).zip(&page.cards).take(usize::try_from(count).unwrap_or(0)) {
            describe(device, card);
        }
    });
    tree::join(options)
}

fn describe(device: Device, card: &Card) {
    let (mut uuid, mut total) = ([0_u8; 16], 0_usize);
    // SAFETY: the device exists, and the places are ours. The newer function tells a MIG instance's own UUID.
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

/// The UUID of a card.
pub(crate) fn uuid(card: &Card) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (half, place) in uuid.chunks_exact_mut(8).zip(&card.uuid) {
        half.copy_from_slice(&place.load(Relaxed).to_le_bytes());
    }
    uuid
}

/// The card of the calling thread's context; None without one, in which case the driver has its own answer.
pub(crate) fn current() -> Option<CardIndex> {
    let mut device = -1;
    // SAFETY: the place is ours.
    let result = unsafe { driver::cuCtxGetDevice(&raw mut device) };
    (result == SUCCESS).then(|| CardIndex::of(device)).flatten()
}

/// The calling thread's context, as a number.
pub(crate) fn context() -> usize {
    let mut context = core::ptr::null_mut();
    // SAFETY: the place is ours; if the driver fails it stays null.
    unsafe { driver::cuCtxGetCurrent(&raw mut context) };
    context.addr()
}

/// Whether managed memory of this card lies on it for good, because the driver cannot move it while kernels run.
pub(crate) fn managed_stays(index: CardIndex) -> bool {
    const CONCURRENT_MANAGED_ACCESS: i32 = 89;
    let mut concurrent = 1;
    // SAFETY: the place is ours; if the driver fails it stays what it is.
    unsafe { driver::cuDeviceGetAttribute(&raw mut concurrent, CONCURRENT_MANAGED_ACCESS, index.device()) };
    concurrent == 0
}
