//! Reads a copy of the budget ledger, the file through which the processes of one command share a budget.

use core::mem::{offset_of, size_of};

use super::{TreeCard, read_budget};
use crate::page::{CARDS, UNLIMITED};

/// Bytes of a card in the ledger, which begins with its cards.
const CARD: usize = size_of::<TreeCard>();

/// Copy of the ledger's cards at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSnapshot {
    cards: [(u64, TreeCardSnapshot); CARDS],
}

/// Copy of one card of the ledger at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCardSnapshot {
    /// The tree's budget; `None` without one.
    pub budget: Option<u64>,
    /// The most bytes that living processes held at a time.
    pub peak: u64,
}

impl TreeSnapshot {
    /// Bytes to read, from the beginning of the file.
    pub const SIZE: usize = CARDS * CARD;

    /// Reads the first bytes of a ledger; `None` if they are too few.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let cards = bytes.get(..Self::SIZE)?;
        Some(Self {
            cards: core::array::from_fn(|place| {
                let number = |at: usize| long(cards, place * CARD + at);
                // The same conversion as in the mapped ledger: 0 is a budget that was never set, which is no
                // budget of 0.
                let budget = read_budget(number(offset_of!(TreeCard, budget)));
                let card = TreeCardSnapshot {
                    budget: (budget != UNLIMITED).then_some(budget),
                    peak: number(offset_of!(TreeCard, peak)),
                };
                (number(offset_of!(TreeCard, key)), card)
            }),
        })
    }

    /// The card with this [`key`](super::key), if a process has seen it.
    pub fn card(&self, key: u64) -> Option<TreeCardSnapshot> {
        let found = self.cards.iter().find(|(other, _)| *other == key);
        found.map(|(_, card)| *card)
    }

    /// Offset of the budget of this card, which is set by an aligned eight-byte write of
    /// [`budget_word`](super::budget_word).
    pub fn budget_offset(&self, key: u64) -> Option<usize> {
        let place = self.cards.iter().position(|(other, _)| *other == key)?;
        Some(place * CARD + offset_of!(TreeCard, budget))
    }
}

/// The eight bytes at an offset within the cards, in this machine's order, as atomics wrote them.
fn long(cards: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&cards[at..at + 8]);
    u64::from_ne_bytes(bytes)
}
