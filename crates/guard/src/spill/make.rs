//! Making a range: addresses, a head on the card in as few pieces as the driver gives, a tail in host memory.
//!
//! A range that is half made belongs to a [`Draft`], which takes everything back when it is dropped, so that no way out of here
//! leaks memory, addresses or budget.

use alloc::vec::Vec;

use super::cascade::Place;
use super::ranges::Range;
use super::vmm::{self, Location};
use super::{budget, quiet};
use crate::account::{CardIndex, card, tree};
use crate::driver::{CuResult, INVALID_VALUE, OUT_OF_MEMORY};
use crate::ladder::pieces::{Pieces, up};
use crate::trace;

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) card: CardIndex,
    /// Bytes that the program asked for.
    pub(crate) asked: u64,
    /// At most so many of them on the card, in whole granules.
    pub(crate) head: u64,
    /// The first piece of the card's memory to ask for, and the smallest.
    pub(crate) first: u64,
    pub(crate) floor: u64,
    /// Where the rest goes; without a place all must go to the card.
    pub(crate) tail: Option<Place>,
}

/// Why a range was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// More would lie in host memory than may.
    OfSpill,
    /// The driver said no, with this code.
    Driver(CuResult),
}

impl From<CuResult> for Short {
    fn from(code: CuResult) -> Self {
        Self::Driver(code)
    }
}

/// A range in the making.
#[derive(Debug)]
struct Draft {
    card: CardIndex,
    base: u64,
    size: u64,
    head: u64,
    pieces: Vec<u64>,
}

impl Draft {
    /// Puts as many pieces on the card as budget and driver allow.
    fn fill_head(&mut self, mut pieces: Pieces) -> Result<(), CuResult> {
        while let Some(piece) = pieces.next() {
            if !tree::take(self.card, piece) {
                pieces.refused(piece);
                continue;
            }
            let device = self.card.device();
            match vmm::attach(self.base + self.head, piece, Location::card(device), device) {
                Ok(()) => {
                    self.head += piece;
                    self.pieces.push(piece);
                    pieces.given(piece);
                    tree::confirm(self.card, piece);
                }
                Err(code) => {
                    tree::take_back(self.card, piece);
                    if code != OUT_OF_MEMORY {
                        return Err(code);
                    }
                    pieces.refused(piece);
                }
            }
        }
        Ok(())
    }

    /// Puts the rest into host memory.
    fn fill_tail(&mut self, place: Option<Place>) -> Result<(), Short> {
        let rest = self.size - self.head;
        if rest == 0 {
            return Ok(());
        }
        let location = place.and_then(Location::of).ok_or(OUT_OF_MEMORY)?;
        if !budget::take(self.card, rest) {
            return Err(Short::OfSpill);
        }
        let attached = vmm::attach(self.base + self.head, rest, location, self.card.device());
        match attached {
            Ok(()) => {
                self.pieces.push(rest);
                card(self.card).raise_peaks();
            }
            Err(_) => budget::give(self.card, rest),
        }
        attached.map_err(Short::Driver)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What was never handed out was never used, so there is no work to wait for.
        unmake(self.card, self.base, self.size, self.head, &self.pieces);
    }
}

/// Unmaps all pieces and gives addresses and accounts back.
pub(super) fn unmake(index: CardIndex, base: u64, size: u64, head: u64, pieces: &[u64]) {
    let mut at = base;
    for piece in pieces {
        let _ = vmm::detach(at, *piece);
        at += piece;
    }
    let _ = vmm::free_addresses(base, size);
    tree::give(index, head);
    budget::give(index, (at - base) - head);
}

/// What all pieces of a range are multiples of. They are powers of two, so the largest is a multiple of all.
pub(super) fn granule(card: CardIndex, tail: Option<Place>) -> Result<u64, CuResult> {
    let of_card = vmm::granule(card.device())?;
    let of_tail = tail
        .and_then(Location::of)
        .and_then(|tail| vmm::granule_at(tail).ok());
    Ok(of_card.max(of_tail.unwrap_or(0)))
}

/// Makes a range of mapped memory.
pub(crate) fn range(wanted: Wanted) -> Result<Range, Short> {
    let granule = granule(wanted.card, wanted.tail)?;
    let size = up(wanted.asked, granule).ok_or(INVALID_VALUE)?;
    let mut draft = Draft {
        card: wanted.card,
        base: vmm::reserve(size)?,
        size,
        head: 0,
        pieces: Vec::new(),
    };
    draft.fill_head(Pieces::new(
        wanted.head.min(size),
        wanted.first,
        wanted.floor,
        granule,
    ))?;
    draft.fill_tail(wanted.tail)?;
    let range = Range {
        base: draft.base,
        asked: wanted.asked,
        size,
        head: draft.head,
        device: wanted.card.device(),
        context: quiet::context(),
        place: (draft.head < size).then_some(wanted.tail).flatten(),
        pieces: core::mem::take(&mut draft.pieces),
        id: trace::number(),
    };
    // The range owns it all now.
    core::mem::forget(draft);
    Ok(range)
}
