//! Exponential backoff between attempts to allocate: from 1 ms to 100 ms, within a time limit.
//!
//! A process that exits frees its memory within milliseconds; a daemon needs about a second to evict a model.

use core::time::Duration;

const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

/// Remaining waits between attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    left: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn within(limit: Duration) -> Self {
        Self { left: limit, next: FIRST }
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // The last wait is cut, so that all together are exactly the limit.
        let wait = self.next.min(self.left);
        self.left -= wait;
        self.next = (self.next * 2).min(LONGEST);
        (!wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_and_add_up_to_the_limit() {
        let naps: Vec<_> = Backoff::within(Duration::from_secs(2)).collect();
        assert_eq!(naps[..4], [1, 2, 4, 8].map(Duration::from_millis));
        assert_eq!(naps.iter().sum::<Duration>(), Duration::from_secs(2));
        assert!(naps.iter().all(|nap| *nap <= LONGEST));
        assert!(naps.len() < 30);
    }

    #[test]
    fn no_time_is_no_nap() {
        assert_eq!(Backoff::within(Duration::ZERO).next(), None);
    }
}
