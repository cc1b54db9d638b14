//! Computes the sign test on increments of memory, by which leaks are detected, and the interval of their
//! median.

/// The probability of at least `rises` heads in `of` throws of a fair coin.
pub(super) fn at_least(rises: usize, of: usize) -> f64 {
    (rises..=of).map(|heads| exactly(heads, of)).sum::<f64>().min(1.0)
}

/// As a product of ratios, so that nothing overflows on the way.
fn exactly(heads: usize, of: usize) -> f64 {
    let tails = of.saturating_sub(heads);
    let chosen = (1..=heads.min(tails)).fold(1.0, |chosen, k| {
        // Multiplying and dividing in turn keeps intermediate values below the result's own size.
        chosen * float(of - heads.min(tails) + k) / float(k)
    });
    chosen * 0.5_f64.powi(i32::try_from(of).unwrap_or(i32::MAX))
}

/// The interval that misses the median of the distribution of `sorted` with at most the probability `miss`:
/// two of the values themselves, for any distribution. The whole range where there are too few.
pub(super) fn interval(sorted: &[f64], miss: f64) -> Option<(f64, f64)> {
    let of = sorted.len();
    // From the inside out: the narrowest interval that is still wide enough.
    let inner = (0..of / 2).rev().find(|outside| {
        let left_out = at_least(of - outside, of);
        // Both tails: the median may lie below the lower or above the upper value.
        2.0 * left_out <= miss
    });
    let outside = inner.unwrap_or(0);
    Some((*sorted.get(outside)?, *sorted.get(of - 1 - outside)?))
}

/// Counts here are of blocks, so they are small.
pub(super) fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_that_of_the_binomial() {
        for (rises, of, chance) in [
            (0, 5, 1.0),
            (5, 5, 1.0 / 32.0),
            (4, 5, 6.0 / 32.0),
            (21, 24, 2325.0 / 16_777_216.0),
            (1, 0, 0.0),
        ] {
            assert!((at_least(rises, of) - chance).abs() < 1e-12, "{rises} of {of}");
        }
    }

    #[test]
    fn the_interval_is_two_of_the_values() {
        let values: Vec<f64> = (0_u32..24).map(f64::from).collect();
        // P(at most 4 of 24) is 0.00077, P(at most 5) is 0.0033.
        assert_eq!(interval(&values, 0.01), Some((5.0, 18.0)));
        assert_eq!(interval(&values[..3], 0.01), Some((0.0, 2.0)));
        assert_eq!(interval(&[], 0.01), None);
    }
}
