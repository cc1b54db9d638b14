//! What the program holds of each card.
//!
//! A request is claimed of the tree's budget before the driver is asked ([`tree`]), so that no two threads or processes pass it
//! together; totals are atomics of the budget page, and [`blocks`] remembers what to give back for which address. Cards are
//! numbered as the program numbers them.

pub(crate) mod blocks;
mod cards;
mod file;
mod living;
pub(crate) mod oom;
mod page;
pub(crate) mod physical;
pub(crate) mod pinned;
pub(crate) mod pools;
pub(crate) mod request;
pub(crate) mod tree;

use plimsoll_wire::page::{CARDS, Card, Page};

pub(crate) use cards::{context, current, managed_stays, open, uuid};
pub(crate) use page::page;

use crate::driver::Device;

/// The number of a card that has a place on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardIndex(u8);

impl CardIndex {
    /// None for a card beyond those that a page has room for; it is not guarded.
    pub(crate) fn of(device: Device) -> Option<Self> {
        let index = u8::try_from(device).ok()?;
        let count = page().count.load(core::sync::atomic::Ordering::Relaxed);
        (u32::from(index) < count && usize::from(index) < CARDS).then_some(Self(index))
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let count = page().count.load(core::sync::atomic::Ordering::Relaxed);
        (0..u8::try_from(count).unwrap_or(0)).map(Self)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn device(self) -> Device {
        Device::from(self.0)
    }
}

/// The card's place on the page.
pub(crate) fn card(index: CardIndex) -> &'static Card {
    let page: &'static Page = page();
    &page.cards[usize::from(index.0) % CARDS]
}
