//! Limits a copy to a number of bytes per second: each part waits until the earlier ones have used their
//! time.

use std::cell::Cell;
use std::time::Duration;

use plimsoll_base::Bytes;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second.
    bandwidth: Bytes,
    free_at: Cell<Option<Instant>>,
}

impl Pace {
    pub(super) fn new(bandwidth: Bytes) -> Self {
        Self { bandwidth, free_at: Cell::default() }
    }

    /// Waits for the turn of so many bytes; false, and at once, if it would come later than `patience`.
    pub(super) async fn turn(&self, length: u64, patience: Duration) -> bool {
        let Some(turn) = self.reserve(Instant::now(), length, patience) else { return false };
        sleep_until(turn).await;
        true
    }

    /// The time of a turn, which it takes.
    fn reserve(&self, now: Instant, length: u64, patience: Duration) -> Option<Instant> {
        let turn = self.free_at.get().map_or(now, |at| at.max(now));
        if turn > now + patience {
            return None;
        }
        let nanos = u128::from(length) * 1_000_000_000 / u128::from(self.bandwidth.get().max(1));
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at.set(turn.checked_add(time).or(Some(turn)));
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_pass_at_the_bandwidth_and_one_that_would_wait_for_long_is_refused() {
        let (pace, now) = (Pace::new(Bytes::mib(10)), Instant::now());
        let turn = |length, seconds| pace.reserve(now, length, Duration::from_secs(seconds));
        for part in 0..21 {
            assert_eq!(turn(1 << 20, 10), Some(now + Duration::from_millis(100) * part));
        }
        assert_eq!(turn(1, 2), None);
        let late = now + Duration::from_secs(60);
        assert_eq!(
            pace.reserve(late, 1 << 20, Duration::ZERO),
            Some(late),
            "what was not used is not saved up"
        );
        assert!(turn(u64::MAX, 100).is_some());
        assert_eq!(turn(1, 3600), None);
        assert!(
            Pace::new(Bytes::ZERO).reserve(now, u64::MAX, Duration::ZERO).is_some(),
            "no division by zero"
        );
    }
}
