//! Manages the unified address space of the fake driver: which addresses are in use, by what, and the memory
//! behind them.
//!
//! It has three layers, as in the real driver. A *span* is address space, reserved by a PROT_NONE mapping. So
//! no other mapping is placed there, and host code that follows a device pointer crashes at once. A *region*
//! is the result of one allocation call. A *segment* maps addresses to a block, with the granted access.
//! Spans start at a fixed address and reuse the lowest hole, so that two runs of a program get the same
//! addresses.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::abi::{Context, DevicePtr, Physical, Pool};
use crate::blocks::{Block, GRANULE};
use crate::code::{Code, OUT_OF_MEMORY, Outcome, UNKNOWN};

/// Far from where Linux puts programs, libraries and stacks.
const FIRST: u64 = 0x2000_0000_0000;
const LAST: u64 = 0x6000_0000_0000;
/// Foreign mappings that we step over before giving up.
const MOST_STEPS: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Space {
    spans: BTreeMap<u64, u64>,
    pub(crate) regions: BTreeMap<u64, Region>,
    pub(crate) segments: BTreeMap<u64, Segment>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) length: u64,
    pub(crate) kind: Kind,
    pub(crate) card: usize,
    /// The context it dies with.
    pub(crate) context: Option<Context>,
    /// Tells one use of an address from the next.
    pub(crate) id: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Linear,
    /// A part of a 2 MiB chunk.
    Small,
    Managed,
    /// With the flags of its making.
    HostAllocated(u32),
    HostRegistered(u32),
    Pooled(Pool),
    /// Made by a node of a graph.
    InGraph,
    /// Opened from another process.
    Imported,
    /// By `cuMemAddressReserve`.
    Reserved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) length: u64,
    pub(crate) behind: Behind,
    pub(crate) access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A block, from this offset on.
    Block(Physical, u64),
    /// The program's own memory at the same address.
    Host,
}

/// Who may touch a segment: a bit per card for reads and for writes, and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    pub(crate) host: i32,
}

impl Access {
    /// All cards, as for everything but VMM.
    pub(crate) const EVERY_CARD: Self = Self { readers: u32::MAX, writers: u32::MAX, host: 0 };

    pub(crate) fn permits(self, card: usize, write: bool) -> bool {
        let cards = if write { self.writers } else { self.readers };
        cards & 1 << card != 0
    }
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

fn bytes(length: u64) -> Result<usize, Code> {
    usize::try_from(length).map_err(|_| OUT_OF_MEMORY)
}

/// Holds `[at, at + length)` with no access; `fresh` only where nothing was before.
fn hold(at: u64, length: u64, fresh: bool) -> rustix::io::Result<()> {
    let place = if fresh { MapFlags::FIXED_NOREPLACE } else { MapFlags::FIXED };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | place;
    let length = usize::try_from(length).map_err(|_| rustix::io::Errno::NOMEM)?;
    // SAFETY: either nothing was mapped there, or one of our own spans, which only the driver hands out.
    unsafe { mmap_anonymous(pointer(at), length, ProtFlags::empty(), flags) }.map(drop)
}

impl Space {
    /// Takes addresses. `length` and `align` are multiples of the page; `hint` is tried first.
    pub(crate) fn take(&mut self, length: u64, align: u64, hint: u64) -> Result<u64, Code> {
        let hinted = hint != 0 && hint.is_multiple_of(align);
        if hinted && !self.overlaps(hint, length) && hold(hint, length, true).is_ok() {
            self.spans.insert(hint, length);
            return Ok(hint);
        }
        let mut from = FIRST;
        for _ in 0..MOST_STEPS {
            let at = self.hole(from, length, align).ok_or(OUT_OF_MEMORY)?;
            if hold(at, length, true).is_ok() {
                self.spans.insert(at, length);
                return Ok(at);
            }
            from = at + GRANULE.max(align) * 512;
        }
        Err(OUT_OF_MEMORY)
    }

    /// Gives the addresses of a whole span back.
    pub(crate) fn give(&mut self, at: u64) -> Outcome {
        let length = self.spans.remove(&at).ok_or(UNKNOWN)?;
        // SAFETY: the span was ours alone, and nothing leads to it any more.
        unsafe { munmap(pointer(at), bytes(length)?) }.map_err(|_| UNKNOWN)
    }

    /// The lowest hole from `from` on.
    fn hole(&self, from: u64, length: u64, align: u64) -> Option<u64> {
        let mut at = from.checked_next_multiple_of(align)?;
        for (&start, &taken) in &self.spans {
            if start >= at.checked_add(length)? {
                break;
            }
            at = at.max((start + taken).checked_next_multiple_of(align)?);
        }
        (at.checked_add(length)? <= LAST).then_some(at)
    }

    fn overlaps(&self, at: u64, length: u64) -> bool {
        let Some(end) = at.checked_add(length) else {
            return true;
        };
        let before = self.spans.range(..end).next_back();
        before.is_some_and(|(start, taken)| start + taken > at)
    }

    /// Lets host code reach a block through `at`.
    pub(crate) fn open_to_host(&self, at: u64, block: &Block, offset: u64, length: u64) -> Outcome {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        let (start, length) = (pointer(at), bytes(length)?);
        // SAFETY: the addresses lie in a span of ours; what was there is being replaced on purpose.
        let mapped = unsafe { mmap(start, length, protection, flags, &*block.file, block.offset + offset) };
        mapped.map(drop).map_err(|_| OUT_OF_MEMORY)
    }

    /// Takes the reach of [`Self::open_to_host`] back.
    pub(crate) fn close_to_host(&self, at: u64, length: u64) -> Outcome {
        hold(at, length, false).map_err(|_| UNKNOWN)
    }

    /// The region that an address lies in, with its start.
    pub(crate) fn region(&self, address: DevicePtr) -> Option<(u64, &Region)> {
        let (&start, region) = self.regions.range(..=address.0).next_back()?;
        (address.0 - start < region.length).then_some((start, region))
    }

    /// The segments that cover `[at, at + length)` without a gap, inside one region; each with its start.
    pub(crate) fn cover(&self, at: DevicePtr, length: u64) -> Option<Vec<(u64, Segment)>> {
        let (start, region) = self.region(at)?;
        let end = at.0.checked_add(length)?;
        if end > start + region.length {
            return None;
        }
        let (&first, _) = self.segments.range(..=at.0).next_back()?;
        let mut next = first;
        let mut covering = Vec::new();
        while next < end {
            let segment = self.segments.get(&next)?;
            covering.push((next, *segment));
            next += segment.length;
            if next <= at.0 {
                return None;
            }
        }
        Some(covering)
    }

    /// The segments that lie wholly in a range; None if the range cuts one or is not filled by them.
    pub(crate) fn exactly(&self, range: Range<u64>) -> Option<Vec<(u64, Segment)>> {
        let within: Vec<_> =
            self.segments.range(range.clone()).map(|(start, segment)| (*start, *segment)).collect();
        let end = within.iter().try_fold(range.start, |next, (start, segment)| {
            (*start == next).then_some(next + segment.length)
        });
        (end == Some(range.end)).then_some(within)
    }

    /// Some segment begins or ends in the range.
    pub(crate) fn any_in(&self, range: Range<u64>) -> bool {
        let before = self.segments.range(..range.end).next_back();
        before.is_some_and(|(start, segment)| start + segment.length > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_hole_is_used_again() {
        let mut space = Space::default();
        let take = |space: &mut Space| space.take(GRANULE, GRANULE, 0).unwrap();
        let first = take(&mut space);
        let second = take(&mut space);
        assert_eq!(second, first + GRANULE);
        space.give(first).unwrap();
        assert_eq!(take(&mut space), first);
        assert_eq!(take(&mut space), second + GRANULE);
    }

    #[test]
    fn a_range_is_covered_by_adjacent_segments_of_one_region_only() {
        let segment = Segment { length: 10, behind: Behind::Host, access: Access::EVERY_CARD };
        let region = Region { length: 20, kind: Kind::Reserved, card: 0, context: None, id: 1 };
        let mut space = Space::default();
        space.segments.extend([(100, segment), (110, segment), (120, segment)]);
        space.regions.extend([(100, region), (120, region)]);
        let covering = |at, length| space.cover(DevicePtr(at), length).map(|found| found.len());
        assert_eq!(covering(105, 10), Some(2));
        assert_eq!(covering(100, 20), Some(2));
        assert_eq!(covering(115, 10), None, "it crosses into another region");
        assert_eq!(covering(125, 10), None, "nothing is mapped from 130 on");
        assert_eq!(space.exactly(100..120).map(|found| found.len()), Some(2));
        assert_eq!(space.exactly(100..115), None);
    }
}
