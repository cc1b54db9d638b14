//! Builds a spilled allocation: reserves its addresses, then maps device memory and host memory into them.
//!
//! If a step fails, dropping the [`RangeDraft`] undoes the earlier ones.

use alloc::vec::Vec;

use plimsoll_pool::cache_head::Segment;

use super::vmm::{self, Location};
use crate::account::spilled;
use crate::driver::{CuResult, INVALID_VALUE, OUT_OF_MEMORY};
use crate::policy::pieces::{PieceSizes, up};
use crate::state::ranges::{SpillPlace, SpillRange};
use crate::state::{CardIndex, card, ledger};
use crate::{driver_guard, trace};

/// Parameters of a range to build.
#[derive(Clone, Debug)]
pub(crate) struct WantedRange {
    pub(crate) card: CardIndex,
    /// Bytes that the program requested.
    pub(crate) requested: u64,
    /// The parts of the range in whole granules, from the front on.
    pub(crate) segments: Vec<Segment>,
    /// Size of the first piece of the card's memory, and the smallest that is worth asking for.
    pub(crate) first: u64,
    pub(crate) floor: u64,
    /// Memory for the bytes outside of the card; without one all bytes must go to the card.
    pub(crate) tail: Option<SpillPlace>,
    /// Every granule is a mapping of its own, so that it can be exchanged.
    pub(crate) exchanged: bool,
}

/// Reason why a range was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeError {
    /// The limit on bytes in host memory would be exceeded.
    SpillLimit,
    /// The driver refused, with this code.
    Driver(CuResult),
}

impl From<CuResult> for RangeError {
    fn from(code: CuResult) -> Self {
        Self::Driver(code)
    }
}

/// A range under construction.
#[derive(Debug)]
struct RangeDraft {
    card: CardIndex,
    base: u64,
    size: u64,
    /// Bytes that are mapped, from the front on, and those of them on the card.
    mapped: u64,
    on_card: u64,
    pieces: Vec<u64>,
    /// For each piece, whether it is on the card.
    residence: Vec<bool>,
}

impl RangeDraft {
    /// Maps the next segment; what the card has no room for goes to host memory.
    fn fill(&mut self, segment: Segment, wanted: &WantedRange, granule: u64) -> Result<(), RangeError> {
        let end = self.mapped + segment.bytes;
        if segment.on_card {
            let first = if wanted.exchanged { granule } else { wanted.first };
            self.fill_from_card(PieceSizes::new(segment.bytes, first, wanted.floor, granule))?;
        }
        let rest = end - self.mapped;
        self.fill_from_host(rest, if wanted.exchanged { granule } else { rest }, wanted.tail)
    }

    /// Puts as many pieces on the card as budget and driver allow.
    fn fill_from_card(&mut self, mut pieces: PieceSizes) -> Result<(), CuResult> {
        while let Some(piece) = pieces.next() {
            // A refusal of the budget halves the piece as one of the driver does: a smaller one may still
            // fit.
            if !ledger::take(self.card, piece) {
                pieces.refused(piece);
                continue;
            }
            let device = self.card.device();
            match vmm::attach(self.base + self.mapped, piece, Location::card(device), device) {
                Ok(()) => {
                    self.on_card += piece;
                    self.add(piece, true);
                    pieces.given(piece);
                    ledger::confirm(self.card, piece);
                }
                Err(code) => {
                    ledger::take_back(self.card, piece);
                    if code != OUT_OF_MEMORY {
                        return Err(code);
                    }
                    pieces.refused(piece);
                }
            }
        }
        Ok(())
    }

    /// Puts the next bytes into host memory, in pieces of one size.
    fn fill_from_host(
        &mut self,
        bytes: u64,
        piece: u64,
        place: Option<SpillPlace>,
    ) -> Result<(), RangeError> {
        if bytes == 0 {
            return Ok(());
        }
        let location = place.and_then(Location::of).ok_or(OUT_OF_MEMORY)?;
        if !spilled::take(self.card, bytes) {
            return Err(RangeError::SpillLimit);
        }
        let end = self.mapped + bytes;
        while self.mapped < end {
            let attached = vmm::attach(self.base + self.mapped, piece, location, self.card.device());
            if let Err(code) = attached {
                spilled::give(self.card, end - self.mapped);
                return Err(RangeError::Driver(code));
            }
            self.add(piece, false);
        }
        card(self.card).raise_peaks();
        Ok(())
    }

    fn add(&mut self, piece: u64, on_card: bool) {
        self.mapped += piece;
        self.pieces.push(piece);
        self.residence.push(on_card);
    }
}

impl Drop for RangeDraft {
    fn drop(&mut self) {
        // The range was never handed out, so no work uses it and there is nothing to wait for.
        unmake(self.card, self.base, self.size, self.on_card, &self.pieces);
    }
}

/// Unmaps all pieces and gives addresses and accounts back.
pub(super) fn unmake(index: CardIndex, base: u64, size: u64, on_card: u64, pieces: &[u64]) {
    let mut at = base;
    for piece in pieces {
        let _ = vmm::detach(at, *piece);
        at += piece;
    }
    let _ = vmm::free_addresses(base, size);
    ledger::give(index, on_card);
    spilled::give(index, (at - base) - on_card);
}

/// Common granule of all pieces of a range: granules are powers of two, so the largest is a multiple of all.
pub(super) fn granule(card: CardIndex, tail: Option<SpillPlace>) -> Result<u64, CuResult> {
    let of_card = vmm::granule(card.device())?;
    let of_tail = tail.and_then(Location::of).and_then(|tail| vmm::granule_at(tail).ok());
    Ok(of_card.max(of_tail.unwrap_or(0)))
}

/// Makes a range of mapped memory.
pub(crate) fn range(wanted: &WantedRange) -> Result<SpillRange, RangeError> {
    let granule = granule(wanted.card, wanted.tail)?;
    let size = up(wanted.requested, granule).ok_or(INVALID_VALUE)?;
    let base = vmm::reserve(size)?;
    let mut draft = RangeDraft {
        card: wanted.card,
        base,
        size,
        mapped: 0,
        on_card: 0,
        pieces: Vec::new(),
        residence: Vec::new(),
    };
    for segment in &wanted.segments {
        draft.fill(*segment, wanted, granule)?;
    }
    let range = SpillRange {
        base: draft.base,
        requested: wanted.requested,
        size,
        on_card: draft.on_card,
        device: wanted.card.device(),
        context: driver_guard::context(),
        place: (draft.on_card < size).then_some(wanted.tail).flatten(),
        cache: None,
        pieces: core::mem::take(&mut draft.pieces),
        residence: core::mem::take(&mut draft.residence),
        is_weights: false,
        id: trace::number(),
    };
    // The range owns the memory now; the draft must not release it.
    core::mem::forget(draft);
    Ok(range)
}
