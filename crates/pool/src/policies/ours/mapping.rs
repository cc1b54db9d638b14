//! Records which pieces of an address range have memory behind them.

use alloc::vec::Vec;

use super::growth;
use crate::device::{Address, OutOfMemory, PoolDevice};

#[derive(Clone, Debug)]
pub(super) struct RegionMapping {
    base: Address,
    limit: u64,
    pieces: Vec<MappedPiece>,
    /// Everything below is mapped.
    solid: u64,
    reserved: u64,
}

// DECISION: each piece is exactly one `map` call, because a piece can only be unmapped as a whole. The
// region's end grows in chunks (`growth`); a gap gets only the needed bytes.
#[derive(Clone, Copy, Debug)]
struct MappedPiece {
    start: u64,
    end: u64,
}

impl RegionMapping {
    pub(super) fn new(base: Address, limit: u64) -> Self {
        Self { base, limit, pieces: Vec::new(), solid: 0, reserved: 0 }
    }

    pub(super) fn solid(&self) -> u64 {
        self.solid
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Maps memory to `start..end`, which lies in the region.
    #[cold]
    pub(super) fn back(
        &mut self,
        device: &mut dyn PoolDevice,
        start: u64,
        end: u64,
    ) -> Result<(), OutOfMemory> {
        // The driver maps whole granules only, so both ends are moved outwards; the rest of the last granule
        // serves the next block.
        let granule = device.granule();
        let end = end.checked_next_multiple_of(granule).unwrap_or(end).min(self.limit);
        let mut from = start - start % granule;
        while from < end {
            // The first piece that ends behind `from`: it covers `from`, or it bounds the gap that begins
            // there.
            let next = self.pieces.partition_point(|piece| piece.end <= from);
            from = match self.pieces.get(next) {
                Some(piece) if piece.start <= from => piece.end,
                Some(piece) => self.map(device, next, from, end.min(piece.start), 0)?,
                None => self.grow(device, from, end)?,
            };
        }
        Ok(())
    }

    /// Maps at the end of the region, ahead of need if there is room.
    fn grow(&mut self, device: &mut dyn PoolDevice, from: u64, end: u64) -> Result<u64, OutOfMemory> {
        let need = end - from;
        // Asked at every growth and never remembered: the budget and the other processes on the card change
        // it at any time.
        let headroom = device.available().saturating_sub(need);
        let size = growth::chunk(need, self.reserved, headroom, device.granule());
        let ahead = size.min(self.limit - from) - need;
        self.map(device, self.pieces.len(), from, end, ahead)
    }

    /// Maps `from..end`, and `ahead` more if the device has it. Returns the end of the new piece.
    fn map(
        &mut self,
        device: &mut dyn PoolDevice,
        index: usize,
        from: u64,
        end: u64,
        ahead: u64,
    ) -> Result<u64, OutOfMemory> {
        let mut end = end + ahead;
        let at = self.base.offset(from);
        if let Err(refused) = device.map(at, end - from) {
            if ahead == 0 {
                return Err(refused);
            }
            // The hint was outdated: another process took the memory. The need alone may still fit.
            end -= ahead;
            device.map(at, end - from)?;
        }
        self.pieces.insert(index, MappedPiece { start: from, end });
        self.reserved += end - from;
        self.settle();
        Ok(end)
    }

    /// Unmaps the pieces for which `idle(start, end)` holds and returns their bytes.
    pub(super) fn unmap(
        &mut self,
        device: &mut dyn PoolDevice,
        mut idle: impl FnMut(u64, u64) -> bool,
    ) -> u64 {
        let before = self.reserved;
        let Self { base, pieces, reserved, .. } = self;
        pieces.retain(|piece| {
            let goes = idle(piece.start, piece.end);
            if goes {
                device.unmap(base.offset(piece.start), piece.end - piece.start);
                *reserved -= piece.end - piece.start;
            }
            !goes
        });
        self.settle();
        before - self.reserved
    }

    pub(super) fn any(&self, mut idle: impl FnMut(u64, u64) -> bool) -> bool {
        self.pieces.iter().any(|piece| idle(piece.start, piece.end))
    }

    fn settle(&mut self) {
        // Recomputed and not adjusted: trimming can open gaps anywhere, and there are a few dozen pieces at
        // most.
        self.solid =
            self.pieces.iter().fold(0, |solid, piece| if piece.start == solid { piece.end } else { solid });
    }
}
