//! Bound on bytes a second: each part waits until those before it have had their time.

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
        let now = Instant::now();
        let turn = self.free_at.get().map_or(now, |at| at.max(now));
        if turn > now + patience {
            return false;
        }
        let nanos = u128::from(length) * 1_000_000_000 / u128::from(self.bandwidth.get().max(1));
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at.set(turn.checked_add(time).or(Some(turn)));
        sleep_until(turn).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn parts_pass_at_the_bandwidth_and_one_that_would_wait_for_long_is_refused() {
        let (pace, began) = (Pace::new(Bytes::mib(10)), Instant::now());
        for _ in 0..21 {
            assert!(pace.turn(1 << 20, Duration::from_secs(10)).await);
        }
        assert_eq!(began.elapsed().as_millis(), 2000, "20 MiB at 10 MiB a second; the first waits for none");
        assert!(pace.turn(u64::MAX, Duration::from_secs(10)).await);
        assert!(!pace.turn(1, Duration::from_secs(10)).await);
        assert!(Pace::new(Bytes::ZERO).turn(u64::MAX, Duration::ZERO).await, "no division by zero");
    }
}
