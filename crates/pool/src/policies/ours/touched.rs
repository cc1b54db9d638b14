//! What was used since when.
//!
//! DECISION: an interval, not a set. Giving a block back costs two comparisons; whether a piece of memory was left
//! alone is then a question of not overlapping the interval, which is exact for stack-like traffic and errs on the side
//! of keeping for any other.

use crate::device::Event;

/// For how many calls of `trim` a piece must have been left alone before it is given back: what one phase of a program
/// needs and the next does not is not mapped and unmapped in turn.
pub(super) const WINDOWS: usize = 4;

/// The smallest interval that covers what was used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    low: u64,
    high: u64,
}

impl Default for Touched {
    fn default() -> Self {
        let (low, high) = (u64::MAX, 0);
        Self { low, high }
    }
}

impl Touched {
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

/// What was touched in the last so many calls of `trim`.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    current: Touched,
    past: [Touched; WINDOWS],
}

impl Windows {
    pub(super) fn add(&mut self, touched: Touched) {
        self.current.add(touched.low, touched.high);
    }

    pub(super) fn close(&mut self) {
        self.past.rotate_right(1);
        self.past[0] = core::mem::take(&mut self.current);
    }

    pub(super) fn overlap(&self, start: u64, end: u64) -> bool {
        self.current.overlaps(start, end) || self.past.iter().any(|past| past.overlaps(start, end))
    }
}

/// The event behind which memory waits to be given back, and its age in windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) event: Event,
    age: usize,
}

impl Pending {
    pub(super) fn new(event: Event) -> Self {
        Self { event, age: 0 }
    }

    /// One window later; `None` where the windows no longer reach back to the event.
    pub(super) fn older(self) -> Option<Self> {
        let age = self.age + 1;
        (age < WINDOWS).then_some(Self { age, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_left_alone_once_its_windows_have_passed() {
        let mut windows = Windows::default();
        let mut touched = Touched::default();
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
        let mut pending = Some(Pending::new(Event(0)));
        let lives = core::iter::from_fn(|| {
            pending = pending.and_then(Pending::older);
            pending
        });
        assert_eq!(lives.count(), WINDOWS - 1);
    }
}
