//! Divides the samples into blocks of equal size, and computes the growth of memory from each block to the
//! next for the leak test.

use super::series::TrendPoint;

/// Difference between two neighbouring blocks of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Increment {
    /// Bytes more, or fewer.
    pub(super) rise: f64,
    /// Bytes per request.
    pub(super) slope: f64,
}

/// The increments between `count` blocks; looks that make no whole block are left out at the front.
pub(super) fn increments(points: &[TrendPoint], count: usize) -> Vec<Increment> {
    let size = points.len() / count.max(1);
    if size == 0 {
        return Vec::new();
    }
    // The remainder is dropped at the front, where warm-up may still show.
    let whole = &points[points.len() - size * count..];
    let levels: Vec<(f64, f64)> = whole.chunks_exact(size).map(level).collect();
    levels
        .windows(2)
        .map(|pair| {
            let rise = pair[1].1 - pair[0].1;
            // Two blocks may cover the same number of requests when a server stalls.
            let run = (pair[1].0 - pair[0].0).max(1.0);
            Increment { rise, slope: rise / run }
        })
        .collect()
}

/// The centre of a block, and the median of its held memory.
fn level(block: &[TrendPoint]) -> (f64, f64) {
    let mut occupied: Vec<f64> = block.iter().map(|point| wide(point.occupied.get())).collect();
    occupied.sort_by(f64::total_cmp);
    let at = |point: Option<&TrendPoint>| point.map_or(0.0, |point| wide(point.at));
    ((at(block.first()) + at(block.last())) / 2.0, middle(&occupied))
}

/// The median of sorted values; zero of none.
pub(super) fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.get(half), sorted.len() % 2) {
        (None, _) => 0.0,
        (Some(upper), 1) => *upper,
        (Some(upper), _) => f64::midpoint(sorted[half - 1], *upper),
    }
}

/// Exact up to 2^53, which is more bytes than any machine has.
pub(super) fn wide(number: u64) -> f64 {
    let upper = u32::try_from(number >> 32).unwrap_or(u32::MAX);
    let lower = u32::try_from(number & 0xffff_ffff).unwrap_or(u32::MAX);
    f64::from(upper) * 4_294_967_296.0 + f64::from(lower)
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;

    use super::*;

    #[test]
    fn a_block_is_as_high_as_its_median_and_one_outlier_is_nothing() {
        let occupied = [9, 1, 100, 1, 5, 5, 0, 9, 9, 9];
        let points: Vec<TrendPoint> = (0_u64..)
            .zip(occupied)
            .map(|(at, occupied)| TrendPoint { at: at * 10, occupied: Bytes::new(occupied) })
            .collect();
        let found = increments(&points, 3);
        let rises: Vec<f64> = found.iter().map(|increment| increment.rise).collect();
        assert_eq!(rises, [4.0, 4.0]);
        assert!((found[0].slope - 4.0 / 30.0).abs() < 1e-12);
        assert!(increments(&points, 11).is_empty());
    }

    #[test]
    fn large_numbers_stay_exact() {
        assert_eq!(wide((1 << 52) + 1).to_string(), ((1_u64 << 52) + 1).to_string());
    }
}
