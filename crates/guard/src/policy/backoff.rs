//! How long to wait before the next try: naps that grow from one millisecond to a hundred, inside a limit.
//!
//! A neighbour that ends gives its memory back within milliseconds, one that is evicted takes a second; the first is not kept
//! waiting and the second is not asked about a thousand times.

use core::time::Duration;

const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Naps {
    left: Duration,
    nap: Duration,
}

impl Naps {
    pub(crate) const fn within(limit: Duration) -> Self {
        Self {
            left: limit,
            nap: FIRST,
        }
    }
}

impl Iterator for Naps {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let nap = self.nap.min(self.left);
        self.left -= nap;
        self.nap = (self.nap * 2).min(LONGEST);
        (!nap.is_zero()).then_some(nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_and_add_up_to_the_limit() {
        let naps: Vec<_> = Naps::within(Duration::from_secs(2)).collect();
        assert_eq!(naps[..4], [1, 2, 4, 8].map(Duration::from_millis));
        assert_eq!(naps.iter().sum::<Duration>(), Duration::from_secs(2));
        assert!(naps.iter().all(|nap| *nap <= LONGEST));
        assert!(naps.len() < 30);
    }

    #[test]
    fn no_time_is_no_nap() {
        assert_eq!(Naps::within(Duration::ZERO).next(), None);
    }
}
