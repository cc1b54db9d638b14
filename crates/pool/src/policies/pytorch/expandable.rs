//! Expandable segments of PyTorch: one address range for each stream and size class, filled with pages as
//! needed.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::chunks::{ChunkKind, ChunkMap, ChunkState};
use super::{LARGE_SEGMENT, SMALL_SEGMENT};
use crate::device::{Address, OutOfMemory, PoolDevice, Stream};

/// Address ranges of expandable segments, and the pages mapped in them.
#[derive(Clone, Debug, Default)]
pub(super) struct SegmentRanges {
    ranges: Vec<SegmentRange>,
    pages: BTreeMap<Address, u64>,
}

#[derive(Clone, Copy, Debug)]
struct SegmentRange {
    start: Address,
    kind: ChunkKind,
    stream: Stream,
}

const fn page(kind: ChunkKind) -> u64 {
    match kind {
        ChunkKind::Small => SMALL_SEGMENT,
        ChunkKind::Large => LARGE_SEGMENT,
    }
}

impl SegmentRanges {
    /// Maps enough of a range for an idle chunk of `size` bytes, and returns its start.
    pub(super) fn grow(
        &mut self,
        chunks: &mut ChunkMap,
        device: &mut dyn PoolDevice,
        reserved: &mut u64,
        size: u64,
        kind: ChunkKind,
        stream: Stream,
    ) -> Result<Address, OutOfMemory> {
        let refused = OutOfMemory { asked: size, free: device.available() };
        let mut at = match self.candidate(chunks, size, kind, stream) {
            Some(found) => found,
            None => self.reserve(chunks, device, *reserved, kind, stream).ok_or(refused)?,
        };
        loop {
            // An idle chunk in front of the hole counts: only the missing bytes are mapped.
            let have = if chunks.is_idle(at) { chunks.size(at) } else { 0 };
            if have >= size {
                return Ok(at);
            }
            let hole = at.offset(have);
            let room = chunks.size(hole);
            // Whole pages; the driver has no smaller unit in this mode.
            let more = (size - have).next_multiple_of(page(kind)).min(room);
            if more == 0 {
                return Err(refused);
            }
            self.map(device, reserved, hole, more, kind)?;
            chunks.split(hole, more);
            chunks.set(hole, ChunkState::Idle);
            at = chunks.join(hole);
        }
    }

    /// Addresses for `size` bytes that are idle or not mapped, the first of them before a hole.
    fn candidate(&self, chunks: &ChunkMap, size: u64, kind: ChunkKind, stream: Stream) -> Option<Address> {
        let own = |range: &&SegmentRange| range.kind == kind && range.stream == stream;
        self.ranges.iter().filter(own).find_map(|range| {
            let holes = chunks.from(range.start).filter(|(_, chunk)| chunk.state == ChunkState::Unmapped);
            holes
                .map(|(hole, _)| chunks.before(hole).filter(|at| chunks.is_idle(*at)).unwrap_or(hole))
                .find(|&at| room(chunks, at, size))
        })
    }

    /// Reserves addresses for nine eighths of the card's memory, as ExpandableSegment does.
    fn reserve(
        &mut self,
        chunks: &mut ChunkMap,
        device: &mut dyn PoolDevice,
        reserved: u64,
        kind: ChunkKind,
        stream: Stream,
    ) -> Option<Address> {
        // The original takes the total memory of the card; with a budget, that is the budget.
        let total = device.available().saturating_add(reserved);
        let size = (total.saturating_add(total / 8)).checked_next_multiple_of(LARGE_SEGMENT)?;
        let start = device.reserve(size)?;
        self.ranges.push(SegmentRange { start, kind, stream });
        chunks.insert(start, size, start, kind, stream, ChunkState::Unmapped);
        Some(start)
    }

    /// Maps page by page; a refusal takes back what this call has mapped.
    fn map(
        &mut self,
        device: &mut dyn PoolDevice,
        reserved: &mut u64,
        at: Address,
        size: u64,
        kind: ChunkKind,
    ) -> Result<(), OutOfMemory> {
        let page = page(kind);
        let pages = (0..size / page).map(|n| at.offset(n * page));
        for (done, start) in pages.clone().enumerate() {
            if let Err(error) = device.map(start, page) {
                pages.take(done).for_each(|start| self.unmap(device, reserved, start));
                return Err(error);
            }
            self.pages.insert(start, page);
            *reserved += page;
        }
        Ok(())
    }

    fn unmap(&mut self, device: &mut dyn PoolDevice, reserved: &mut u64, at: Address) {
        if let Some(size) = self.pages.remove(&at) {
            device.unmap(at, size);
            *reserved -= size;
        }
    }

    /// Unmaps the whole pages of every idle chunk.
    pub(super) fn release(&mut self, chunks: &mut ChunkMap, device: &mut dyn PoolDevice, reserved: &mut u64) {
        for (at, size) in chunks.idle() {
            let end = at.offset(size);
            let inside =
                |(start, page): (&Address, &u64)| (start.offset(*page) <= end).then_some((*start, *page));
            let pages: Vec<(Address, u64)> = self.pages.range(at..end).filter_map(inside).collect();
            let (Some(&(first, _)), Some(&(last, page))) = (pages.first(), pages.last()) else {
                continue;
            };
            chunks.split(at, first.0 - at.0);
            chunks.split(first, last.offset(page).0 - first.0);
            for (start, _) in pages {
                self.unmap(device, reserved, start);
            }
            chunks.set(first, ChunkState::Unmapped);
            chunks.join(first);
        }
    }
}

fn room(chunks: &ChunkMap, at: Address, size: u64) -> bool {
    let usable = |chunk: &super::chunks::Chunk| !matches!(chunk.state, ChunkState::Lent { .. });
    let mut bytes = 0;
    for (_, chunk) in chunks.from(at).take_while(|(_, chunk)| usable(chunk)) {
        bytes += chunk.size;
        if bytes >= size {
            return true;
        }
    }
    false
}
