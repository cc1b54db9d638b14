//! Lists the program's cards in the process's page, the shared-memory file through which guard reports
//! memory.
//!
//! A card that two interfaces have (CUDA and Vulkan, or HIP and Vulkan) is entered once, by its identity.

use alloc::vec::Vec;
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Relaxed, Release};

use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CARDS, Page, PageCard};

use crate::driver::{self, DeviceOrdinal, SUCCESS, interface};
use crate::say::say;
use crate::settings;
use crate::state::{self, CardIndex, card, ledger, page, uuid};

/// A card as an interface describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundCard {
    pub(crate) uuid: [u8; 16],
    pub(crate) total: u64,
}

/// Creates the page with these cards.
pub(super) fn create(found: &[FoundCard]) -> Vec<Option<CardIndex>> {
    let room = found.len().min(CARDS);
    if found.len() > room {
        say!("there are {} cards; only the first {room} are guarded", found.len());
    }
    let mut entered = Vec::new();
    state::create(|page| entered.extend(found.iter().map(|found| append(page, found))));
    entered
}

/// Enters cards of a further interface on the page that is there.
pub(super) fn add(found: &[FoundCard]) -> Vec<Option<CardIndex>> {
    found.iter().map(|found| known(found).or_else(|| admitted(found))).collect()
}

fn known(found: &FoundCard) -> Option<CardIndex> {
    // A driver without UUIDs reports zeroes, which identify nothing.
    let is_same = |index: &CardIndex| found.uuid != [0; 16] && uuid(card(*index)) == found.uuid;
    CardIndex::all().find(is_same)
}

fn admitted(found: &FoundCard) -> Option<CardIndex> {
    let index = CardIndex::next(page())?;
    describe(card(index), found);
    if !ledger::admit(index, settings::options()) {
        say!("the ledger has no room for one more card, which is not guarded");
        return None;
    }
    // Last: other threads and processes see a card that is described and counted.
    page().count.fetch_add(1, Release);
    Some(index)
}

fn append(page: &Page, found: &FoundCard) -> Option<CardIndex> {
    let index = CardIndex::next(page)?;
    describe(&page.cards[index.place()], found);
    page.count.fetch_add(1, Release);
    Some(index)
}

fn describe(card: &PageCard, found: &FoundCard) {
    let (halves, _) = found.uuid.as_chunks::<8>();
    for (place, half) in card.uuid.iter().zip(halves) {
        place.store(u64::from_le_bytes(*half), Relaxed);
    }
    card.total.store(found.total, Relaxed);
}

/// The cards of CUDA or HIP; None, after a line on stderr, if the driver does not report their number.
pub(super) fn of_interface() -> Option<Vec<FoundCard>> {
    let mut count = 0;
    // SAFETY: the driver is up, and `count` is ours.
    if unsafe { driver::cuDeviceGetCount(&raw mut count) } != SUCCESS {
        say!("the driver does not report its cards; this process runs unguarded");
        return None;
    }
    Some((0..count).map(described).collect())
}

/// Where the card is on the PCI bus.
fn place(device: DeviceOrdinal) -> Option<Uuid> {
    let mut text = [0_u8; 32];
    // SAFETY: the device exists, and the place is ours, with one byte more than it is said to have.
    let code = unsafe { driver::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 31, device) };
    let text = CStr::from_bytes_until_nul(&text).ok().filter(|_| code == SUCCESS)?;
    Uuid::of_address(text.to_str().ok()?)
}

fn described(device: DeviceOrdinal) -> FoundCard {
    let (mut uuid, mut total) = ([0_u8; 16], 0_usize);
    // The newer function tells a MIG instance's own UUID, the older one that of the whole card.
    // SAFETY: the device exists, and the places are ours.
    unsafe {
        if driver::cuDeviceGetUuid_v2(&raw mut uuid, device) != SUCCESS {
            driver::cuDeviceGetUuid(&raw mut uuid, device);
        }
        driver::cuDeviceTotalMem_v2(&raw mut total, device);
    }
    // By its place an AMD card is the same card to HIP, to Vulkan and to the kernel, which write its UUID in
    // three ways.
    if let Some(Uuid(place)) = place(device).filter(|_| interface::is_hip()) {
        uuid = place;
    }
    FoundCard { uuid, total: u64::try_from(total).unwrap_or(0) }
}
