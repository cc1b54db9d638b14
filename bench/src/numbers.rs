//! Computes percentiles of measured times, and the random order of the servers in a benchmark round.

use std::time::Duration;

/// Nearest-rank percentile; none of nothing.
pub(crate) fn percentile<T: Copy + PartialOrd>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A share of a count that fits a float exactly, as all counts here do.
#[expect(clippy::cast_precision_loss, reason = "counts of requests stay far below 2^52")]
pub(crate) fn per(total: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total / count as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests stay far below 2^52")]
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Marsaglia's xorshift64: order is all that is asked of it, and the same seed gives the same run.
#[derive(Debug)]
pub(crate) struct Shuffle(u64);

impl Shuffle {
    pub(crate) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// The numbers below `count`, in random order.
    pub(crate) fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_cached_key(|_| self.next());
        order
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(
            [50, 99, 100].map(|percent| percentile(&hundred, percent)),
            [Some(50), Some(99), Some(100)]
        );
        assert_eq!((percentile(&[7], 50), percentile::<u32>(&[], 50)), (Some(7), None));
    }

    #[test]
    fn an_order_holds_every_number_once() {
        let mut shuffle = Shuffle::new();
        let orders: Vec<Vec<usize>> = (0..20).map(|_| shuffle.order(3)).collect();
        assert!(orders.iter().any(|order| order != &orders[0]));
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2]);
        }
    }
}
