//! Records which pieces of an address range were used recently, to find idle ones that can be freed.

use crate::device::DeviceEvent;

/// Calls of `trim` during which a piece must be unused before its release. Otherwise memory of every other
/// phase of a program would be mapped and unmapped in turn.
pub(super) const WINDOWS: usize = 4;

// DECISION: the used bytes are one interval, not a set, so a free takes two comparisons. For use unlike a
// stack, too much memory is kept, never too little.
/// The smallest interval that covers all used bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TouchedRange {
    low: u64,
    high: u64,
}

impl Default for TouchedRange {
    fn default() -> Self {
        // Empty: overlaps nothing, and the first `add` sets both ends.
        let (low, high) = (u64::MAX, 0);
        Self { low, high }
    }
}

impl TouchedRange {
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.low = self.low.min(start);
        self.high = self.high.max(end);
    }

    pub(super) fn high(&self) -> u64 {
        self.high
    }

    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.low < end && start < self.high
    }
}

/// Used intervals of the last [`WINDOWS`] calls of `trim`.
#[derive(Clone, Debug, Default)]
pub(super) struct UseWindows {
    current: TouchedRange,
    past: [TouchedRange; WINDOWS],
}

impl UseWindows {
    pub(super) fn add(&mut self, touched: TouchedRange) {
        self.current.add(touched.low, touched.high);
    }

    pub(super) fn close(&mut self) {
        // The oldest window falls out and becomes the newest.
        self.past.rotate_right(1);
        self.past[0] = core::mem::take(&mut self.current);
    }

    pub(super) fn overlap(&self, start: u64, end: u64) -> bool {
        self.current.overlaps(start, end) || self.past.iter().any(|past| past.overlaps(start, end))
    }
}

/// Event after which memory may be released, and its age in windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingTrim {
    pub(super) event: DeviceEvent,
    age: usize,
}

impl PendingTrim {
    pub(super) fn new(event: DeviceEvent) -> Self {
        Self { event, age: 0 }
    }

    /// One window later; `None` once the windows no longer reach back to the event.
    pub(super) fn older(self) -> Option<Self> {
        let age = self.age + 1;
        // Beyond that, a use after the event could have left all windows, and the event would prove too
        // little.
        (age < WINDOWS).then_some(Self { age, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_left_alone_once_its_windows_have_passed() {
        let mut windows = UseWindows::default();
        let mut touched = TouchedRange::default();
        touched.add(10, 20);
        touched.add(15, 30);
        windows.add(touched);
        for _ in 0..WINDOWS {
            windows.close();
            assert!(windows.overlap(29, 40) && windows.overlap(0, 11));
            assert!(!windows.overlap(30, 40) && !windows.overlap(0, 10));
        }
        windows.close();
        assert!(!windows.overlap(0, 40));
    }

    #[test]
    fn an_event_is_given_up_before_the_windows_forget_what_came_after_it() {
        let mut pending = Some(PendingTrim::new(DeviceEvent(0)));
        let lives = core::iter::from_fn(|| {
            pending = pending.and_then(PendingTrim::older);
            pending
        });
        assert_eq!(lives.count(), WINDOWS - 1);
    }
}
