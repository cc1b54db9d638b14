//! Holds the tables and counters that guard keeps for its process.
//!
//! These modules make no decisions and call no driver function. Cards are numbered as the program numbers
//! them.

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

use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::{CARDS, Page, PageCard};

pub(crate) use page::{create, page};

use crate::driver::DeviceOrdinal;

/// Number of a card that has an entry on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardIndex(u8);

impl CardIndex {
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(0);

    /// None for a card beyond those that a page has room for; it is not guarded.
    pub(crate) fn of(device: DeviceOrdinal) -> Option<Self> {
        let index = u8::try_from(device).ok()?;
        let count = page().count.load(Relaxed);
        (u32::from(index) < count && usize::from(index) < CARDS).then_some(Self(index))
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let count = page().count.load(Relaxed);
        (0..u8::try_from(count).unwrap_or(0)).map(Self)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Its place in a table with one entry for each card of a page.
    pub(crate) fn place(self) -> usize {
        usize::from(self.0) % CARDS
    }

    pub(crate) fn device(self) -> DeviceOrdinal {
        DeviceOrdinal::from(self.0)
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
