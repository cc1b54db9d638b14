//! Rounds floating-point measurements to integers.

/// Rounds to the nearest integer, halves away from zero. Negative numbers and NaN give 0, numbers beyond the
/// range of `u64` give `u64::MAX`.
///
/// This is the one audited float-to-integer conversion of the product; rates, seconds and fitted values go
/// through it before they become counts or [`Bytes`](crate::Bytes).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "this function is meant to saturate and to turn NaN into 0, as Rust's `as` does for f64"
)]
pub fn round_u64(number: f64) -> u64 {
    // Rounding comes before the cast: the cast alone truncates, so 0.9 would become 0.
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_integer() {
        for (number, rounded) in
            [(0.0, 0), (0.49, 0), (0.5, 1), (1.5, 2), (2.5, 3), (1e15 + 0.5, 1_000_000_000_000_001)]
        {
            assert_eq!(round_u64(number), rounded, "{number}");
        }
    }

    #[test]
    fn saturates_at_both_ends_and_maps_nan_to_zero() {
        for (number, rounded) in [
            (-0.4, 0),
            (-1.0, 0),
            (f64::MIN, 0),
            (f64::NEG_INFINITY, 0),
            (f64::NAN, 0),
            (f64::MIN_POSITIVE, 0),
            (1.9e19, u64::MAX),
            (f64::INFINITY, u64::MAX),
        ] {
            assert_eq!(round_u64(number), rounded, "{number}");
        }
    }
}
