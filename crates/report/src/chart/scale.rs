//! Chooses the range of a chart's axis, and labels at round values.

/// Values that count as round: sizes of memory are, in powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundSteps {
    Binary,
    Decimal,
}

/// Most labels of an axis, without the one at its start.
const MOST_STEPS: u64 = 4;

/// Range of an axis: from zero, or from the lowest value where all values are within a quarter of the
/// highest.
pub(super) fn y_range(lowest: u64, highest: u64) -> (u64, u64) {
    let is_nearly_flat = lowest < highest && highest - lowest < highest / 4;
    (if is_nearly_flat { lowest } else { 0 }, highest.max(1))
}

/// Widens a range to round values, and labels each step of it.
pub(super) fn round_scale(
    (low, high): (u64, u64),
    text: &dyn Fn(u64) -> String,
    steps: RoundSteps,
) -> ((u64, u64), Vec<(u64, String)>) {
    let step = round_step(low, high, steps);
    let range = (low - low % step, high.checked_next_multiple_of(step).unwrap_or(high));
    let mut ticks: Vec<_> =
        round_ticks(range.0, range.1, steps).into_iter().map(|value| (value, text(value))).collect();
    // A text rounds: neighbours may read the same.
    ticks.dedup_by(|right, left| right.1 == left.1);
    (range, ticks)
}

/// The round values of a range, at most six.
pub fn round_ticks(low: u64, high: u64, steps: RoundSteps) -> Vec<u64> {
    let step = round_step(low, high, steps);
    let first = low.checked_next_multiple_of(step);
    std::iter::successors(first, |value| value.checked_add(step)).take_while(|value| *value <= high).collect()
}

fn round_step(low: u64, high: u64, steps: RoundSteps) -> u64 {
    let least = high.saturating_sub(low).div_ceil(MOST_STEPS).max(1);
    match steps {
        RoundSteps::Binary => least.checked_next_power_of_two().unwrap_or(least),
        RoundSteps::Decimal => {
            let power = 10_u64.pow(least.ilog10());
            let of_power = [1, 2, 5, 10].into_iter().filter_map(|factor| power.checked_mul(factor));
            of_power.into_iter().find(|step| *step >= least).unwrap_or(least)
        }
    }
}
