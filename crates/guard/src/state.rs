//! Holds the tables and counters that guard keeps for its process.
//!
//! These modules make no decisions and call no driver function. Cards are numbered in the order in which the
//! program's interfaces (CUDA or HIP, Vulkan) entered them; a card that two of them have is entered once.

pub(crate) mod address_map;
pub(crate) mod captures;
pub(crate) mod ledger;
mod liveness;
mod page;
pub(crate) mod peers;
pub(crate) mod ranges;
pub(crate) mod refusals;
pub(crate) mod reservations;
pub(crate) mod shared_file;

use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use plimsoll_wire::page::{CARDS, Page, PageCard};

pub(crate) use page::{create, page};

use crate::driver::DeviceOrdinal;

/// CUDA's or HIP's number of each card plus one; 0 for a card that another interface has entered.
static ORDINALS: [AtomicI32; CARDS] = [const { AtomicI32::new(0) }; CARDS];

/// Number of a card that has an entry on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardIndex(u8);

impl CardIndex {
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(0);

    /// The card of this ordinal. None for a card beyond those that a page has room for: it is not guarded.
    pub(crate) fn of(device: DeviceOrdinal) -> Option<Self> {
        let wanted = device.checked_add(1)?;
        Self::all().find(|index| ORDINALS[index.place()].load(Relaxed) == wanted)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let count = page().count.load(Acquire);
        (0..u8::try_from(count).unwrap_or(0)).map(Self)
    }

    /// The place behind the last card of a page, for one more.
    pub(crate) fn next(page: &Page) -> Option<Self> {
        let index = u8::try_from(page.count.load(Relaxed)).ok()?;
        (usize::from(index) < CARDS).then_some(Self(index))
    }

    /// Enters CUDA's or HIP's number of the card.
    pub(crate) fn set_device(self, device: DeviceOrdinal) {
        ORDINALS[self.place()].store(device.saturating_add(1), Relaxed);
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Its place in a table with one entry for each card of a page.
    pub(crate) fn place(self) -> usize {
        usize::from(self.0) % CARDS
    }

    /// CUDA's or HIP's number of the card; -1, which the driver refuses, for a card that it does not have.
    pub(crate) fn device(self) -> DeviceOrdinal {
        ORDINALS[self.place()].load(Relaxed) - 1
    }
}

/// The card's entry on the page.
pub(crate) fn card(index: CardIndex) -> &'static PageCard {
    let page: &'static Page = page();
    &page.cards[index.place()]
}

/// The UUID of a card, as the driver reported it when guard armed itself.
pub(crate) fn uuid(card: &PageCard) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (half, place) in uuid.chunks_exact_mut(8).zip(&card.uuid) {
        half.copy_from_slice(&place.load(Relaxed).to_le_bytes());
    }
    uuid
}
