//! Finds, for any address, the allocation that guard made instead of the driver.

use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Release};

use plimsoll_nostd::lock::Lock;

/// Kind of host memory that holds spilled bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpillPlace {
    /// Host memory of this NUMA node, mapped behind the device part.
    Node(i32),
    /// Host memory of any node, mapped likewise.
    Host,
    /// Managed memory with the host as its preferred location.
    Managed,
    /// Page-locked host memory.
    Pinned,
}

impl SpillPlace {
    /// True if device memory can precede it in one range.
    pub(crate) const fn follows_device_memory(self) -> bool {
        matches!(self, Self::Node(_) | Self::Host)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Node(_) => "host memory of the card's NUMA node",
            Self::Host => "host memory",
            Self::Managed => "managed memory that prefers the host",
            Self::Pinned => "pinned host memory",
        }
    }
}

/// An allocation of the program that guard built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpillRange {
    pub(crate) base: u64,
    /// Bytes that the program requested.
    pub(crate) requested: u64,
    /// Size of the range: `asked` in whole granules.
    pub(crate) size: u64,
    /// Bytes on the card.
    pub(crate) on_card: u64,
    pub(crate) device: i32,
    /// The context in which it was requested, as a number.
    pub(crate) context: usize,
    /// Memory of the rest; none if all is on the card.
    pub(crate) place: Option<SpillPlace>,
    /// The number of the cache that it holds, if it was divided by position.
    pub(crate) cache: Option<usize>,
    /// The sizes of the mappings, from the front on; none where the range is not mapped by us.
    pub(crate) pieces: Vec<u64>,
    /// For each of them, whether it is on the card.
    pub(crate) residence: Vec<bool>,
    /// True for the program's weights in granules that can be exchanged.
    pub(crate) is_weights: bool,
    /// The id of the block in the trace.
    pub(crate) id: u64,
}

impl SpillRange {
    /// Bytes in host memory.
    pub(crate) const fn spilled(&self) -> u64 {
        self.size - self.on_card
    }

    pub(crate) const fn holds(&self, address: u64) -> bool {
        // Subtraction first: the end of a range may be the end of all addresses.
        self.base <= address && address - self.base < self.size
    }
}

// DECISION: the table is a sorted list under one lock, because a program has only a few such ranges.
static RANGES: Lock<Vec<SpillRange>> = Lock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// True without any range.
pub(crate) fn none() -> bool {
    COUNT.load(Acquire) == 0
}

pub(crate) fn add(range: SpillRange) {
    let mut ranges = RANGES.hold();
    let at = ranges.partition_point(|other| other.base < range.base);
    ranges.insert(at, range);
    COUNT.store(ranges.len(), Release);
}

/// Takes out the range that begins at `base`; the caller frees it.
pub(crate) fn take(base: u64) -> Option<SpillRange> {
    if none() {
        return None;
    }
    let mut ranges = RANGES.hold();
    let at = ranges.binary_search_by_key(&base, |range| range.base).ok()?;
    let range = ranges.remove(at);
    COUNT.store(ranges.len(), Release);
    Some(range)
}

/// Applies `look` to the range that holds `address`.
pub(crate) fn find<T>(address: u64, look: impl FnOnce(&SpillRange) -> T) -> Option<T> {
    if none() {
        return None;
    }
    let ranges = RANGES.hold();
    let after = ranges.partition_point(|range| range.base <= address);
    let range = ranges.get(after.checked_sub(1)?)?;
    range.holds(address).then(|| look(range))
}

/// Changes the range that begins at `base`.
pub(crate) fn change(base: u64, change: impl FnOnce(&mut SpillRange)) {
    let mut ranges = RANGES.hold();
    if let Ok(at) = ranges.binary_search_by_key(&base, |range| range.base)
        && let Some(range) = ranges.get_mut(at)
    {
        change(range);
    }
}

/// True if `address` is in one of the ranges.
pub(crate) fn has(address: u64) -> bool {
    find(address, |_| ()).is_some()
}

/// Applies `pick` to each range.
pub(crate) fn collect<T>(pick: impl FnMut(&SpillRange) -> Option<T>) -> Vec<T> {
    RANGES.hold().iter().filter_map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(base: u64, head: u64, tail: u64) -> SpillRange {
        SpillRange {
            base,
            requested: head + tail,
            size: head + tail,
            on_card: head,
            device: 0,
            context: 0,
            place: Some(SpillPlace::Host),
            cache: None,
            pieces: Vec::new(),
            residence: Vec::new(),
            is_weights: false,
            id: 0,
        }
    }

    #[test]
    fn a_range_is_found_by_every_address_inside_it_and_taken_by_its_first() {
        add(range(0x5000, 0x100, 0x100));
        add(range(0x1000, 0x100, 0));
        add(range(0x5200, 0, 0x100));
        let base = |address| find(address, |range| range.base);
        assert_eq!(base(0x5000), Some(0x5000));
        assert_eq!(base(0x51ff), Some(0x5000));
        assert_eq!(base(0x5200), Some(0x5200));
        assert_eq!(base(0x5300), None);
        assert_eq!(base(0xfff), None);
        assert_eq!(base(0x1100), None);
        assert_eq!(take(0x5001), None);
        assert_eq!(take(0x5000).map(|range| range.spilled()), Some(0x100));
        assert_eq!(take(0x5000), None);
        assert!(!has(0x5000) && has(0x1000) && !none());
        assert_eq!(take(0x1000).map(|range| range.spilled()), Some(0));
        assert_eq!(take(0x5200).map(|range| range.spilled()), Some(0x100));
        assert!(none());
    }

    #[test]
    fn the_last_address_of_all_is_no_overflow() {
        let last = range(u64::MAX - 0xff, 0, 0xff);
        assert!(last.holds(u64::MAX - 1) && !last.holds(u64::MAX) && !last.holds(0));
    }
}
