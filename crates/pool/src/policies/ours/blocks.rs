//! Places blocks in an address range as on a stack, and allows frees out of order.
//!
//! A block freed out of order becomes a hole, and holes are reused, lowest address first.

use alloc::vec::Vec;

/// Capacity from the start, so that the stack allocates nothing in ordinary use.
const ROOM: usize = 1024;

// DECISION: scratch memory is used like a stack, so allocation and free are a push and a pop. A scan for
// holes is skipped when it cannot succeed.
#[derive(Clone, Debug)]
pub(super) struct BlockStack {
    entries: Vec<StackEntry>,
    /// End of the last entry.
    top: u64,
    limit: u64,
    holes: usize,
    /// No hole has a lower index.
    lowest: usize,
    /// A size that no run of holes has, by the last failed scan.
    too_large: u64,
}

#[derive(Clone, Copy, Debug)]
struct StackEntry {
    start: u64,
    /// Requested bytes, if it is live.
    requested: Option<u64>,
}

impl StackEntry {
    const fn hole(start: u64) -> Self {
        Self { start, requested: None }
    }
}

impl BlockStack {
    /// `limit` bytes of addresses.
    pub(super) fn new(limit: u64) -> Self {
        Self { entries: Vec::with_capacity(ROOM), top: 0, limit, holes: 0, lowest: 0, too_large: u64::MAX }
    }

    /// End of the highest block.
    pub(super) fn top(&self) -> u64 {
        self.top
    }

    /// Places `size` bytes for a request of `asked` and returns their start. `None` if the addresses are used
    /// up.
    pub(super) fn take(&mut self, size: u64, requested: u64) -> Option<u64> {
        // Holes first, lowest address first: what lies low keeps the top of the stack low, and with it the
        // end of the memory that trimming cannot release.
        if self.holes > 0
            && size < self.too_large
            && let Some(start) = self.take_hole(size, requested)
        {
            return Some(start);
        }
        // No hole fits: the block goes on top.
        let start = self.top;
        self.top = start.checked_add(size).filter(|&end| end <= self.limit)?;
        let requested = Some(requested);
        self.entries.push(StackEntry { start, requested });
        Some(start)
    }

    /// Frees the block at `start` and returns its requested bytes. `None` if there is no block.
    pub(super) fn give(&mut self, start: u64) -> Option<u64> {
        match self.entries.last() {
            Some(last) if last.start == start => self.pop(),
            _ => self.bury(start),
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let requested = self.entries.last()?.requested?;
        self.drop_last();
        // Holes below the freed block are at the end now and go with it.
        while self.holes > 0 && self.entries.last().is_some_and(|last| last.requested.is_none()) {
            self.holes -= 1;
            self.drop_last();
        }
        Some(requested)
    }

    fn drop_last(&mut self) {
        if let Some(last) = self.entries.pop() {
            // Entries have no gaps between them, so the end of the one before is the start of the one that is
            // gone.
            self.top = last.start;
        }
    }

    fn bury(&mut self, start: u64) -> Option<u64> {
        // A binary search: entries are in address order, because blocks are only ever placed at the top or
        // inside of a hole.
        let index = self.find(start)?;
        let requested = self.entries[index].requested.take()?;
        self.lowest = if self.holes == 0 { index } else { self.lowest.min(index) };
        self.holes += 1;
        // The new hole may fit what the last scan did not find.
        self.too_large = u64::MAX;
        Some(requested)
    }

    fn find(&self, start: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&start, |entry| entry.start).ok()
    }

    /// Requested bytes of the block at `start`, if there is one.
    pub(super) fn requested(&self, start: u64) -> Option<u64> {
        self.entries[self.find(start)?].requested
    }

    fn end(&self, index: usize) -> u64 {
        self.entries.get(index + 1).map_or(self.top, |next| next.start)
    }

    fn take_hole(&mut self, size: u64, requested: u64) -> Option<u64> {
        let mut first = None;
        for index in self.lowest..self.entries.len() {
            if self.entries[index].requested.is_some() {
                first = None;
                continue;
            }
            let run = *first.get_or_insert(index);
            let (start, end) = (self.entries[run].start, self.end(index));
            if end - start >= size {
                self.fill(run, index, start + size, end);
                self.entries[run].requested = Some(requested);
                return Some(start);
            }
        }
        // No run of holes fits. Until another hole appears, requests of this size or more skip the scan:
        // without this every push would walk all blocks above the lowest hole.
        self.too_large = size;
        None
    }

    /// Merges the holes `run..=last` into one entry, and another for the rest `rest..end`.
    fn fill(&mut self, run: usize, last: usize, rest: u64, end: u64) {
        self.holes -= last - run + 1;
        let remains = (rest < end).then_some(StackEntry::hole(rest));
        self.holes += usize::from(remains.is_some());
        // Entries behind the run move by the difference. That is the only place where a block costs time in
        // proportion to the blocks above it.
        self.entries.splice(run + 1..=last, remains);
    }

    /// True if no live block overlaps `start..end`.
    pub(super) fn idle(&self, start: u64, end: u64) -> bool {
        let first = self.entries.partition_point(|entry| entry.start <= start).saturating_sub(1);
        let here = self.entries[first.min(self.entries.len())..].iter().enumerate();
        !here
            .take_while(|(_, entry)| entry.start < end)
            .any(|(offset, entry)| entry.requested.is_some() && self.end(first + offset) > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> BlockStack {
        BlockStack::new(100)
    }

    #[test]
    fn a_stack_reuses_its_top() {
        let mut blocks = blocks();
        assert_eq!(blocks.take(10, 9), Some(0));
        assert_eq!(blocks.take(20, 20), Some(10));
        assert_eq!(blocks.give(10), Some(20));
        assert_eq!(blocks.take(5, 5), Some(10));
        assert_eq!(blocks.top(), 15);
    }

    #[test]
    fn blocks_given_back_in_any_order_leave_nothing_behind() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut blocks = blocks();
            let starts: Vec<u64> = (0..3).map(|_| blocks.take(10, 7).unwrap()).collect();
            for index in order {
                assert_eq!(blocks.give(starts[index]), Some(7));
            }
            assert_eq!((blocks.top(), blocks.holes, blocks.entries.len()), (0, 0, 0), "{order:?}");
        }
    }

    #[test]
    fn holes_that_touch_are_used_as_one_and_what_is_left_stays_a_hole() {
        let mut blocks = blocks();
        let starts: Vec<u64> = (0..5).map(|_| blocks.take(10, 10).unwrap()).collect();
        blocks.give(starts[1]);
        blocks.give(starts[2]);
        assert_eq!(blocks.take(25, 25), Some(50), "no run is so large");
        assert_eq!(blocks.take(15, 15), Some(10));
        assert_eq!(blocks.take(5, 5), Some(25));
        assert_eq!(blocks.holes, 0);
        assert!(!blocks.idle(29, 31) && blocks.idle(75, 100));
    }

    #[test]
    fn double_and_unknown_frees_are_ignored() {
        let mut blocks = blocks();
        assert_eq!(blocks.give(0), None);
        blocks.take(10, 10);
        blocks.take(10, 10);
        assert_eq!(blocks.give(5), None);
        assert_eq!(blocks.give(0), Some(10));
        assert_eq!(blocks.give(0), None);
    }

    #[test]
    fn addresses_run_out_without_overflow() {
        let mut blocks = blocks();
        assert_eq!(blocks.take(101, 1), None);
        assert_eq!(blocks.take(u64::MAX, 1), None);
        assert_eq!(blocks.take(100, 1), Some(0));
        assert_eq!(blocks.take(1, 1), None);
    }

    #[test]
    fn idle_is_what_no_live_block_touches() {
        let mut blocks = blocks();
        assert!(blocks.idle(0, 100));
        let low = blocks.take(10, 10).unwrap();
        blocks.take(10, 10);
        blocks.give(low);
        assert!(blocks.idle(0, 10) && blocks.idle(3, 5) && blocks.idle(20, 50));
        assert!(!blocks.idle(0, 11) && !blocks.idle(19, 20) && !blocks.idle(0, 100));
    }
}
