//! Searches the largest number that fits, with as few plans as possible.
//!
//! Memory does not always grow with slots or micro-batches, so a few numbers above the result are tried too.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Result of a search for the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FitBound {
    pub(crate) at: u64,
    /// The number above, which does not fit; `None` at the end of the range.
    pub(crate) above: Option<u64>,
}

/// Numbers above a result that are priced, in case one of them fits again.
const GUARD: u64 = 4;
/// Results that the guard may move on from.
const ROUNDS: u32 = 8;

/// Steps along a straight line before halving or doubling takes over.
const STRAIGHT: u32 = 4;

/// Callback that receives the numbers that will be evaluated next.
type Foresee<'a> = Box<dyn FnMut(&[u64]) + 'a>;

// DECISION: one evaluation may take 100 ms, so the search starts at a guess and then alternates between
// interpolation and bisection. The result was itself evaluated, and so was the next number.
/// A search over `range`. `slack` returns free bytes, below 0 missing bytes, `None` where the engine refuses.
pub(crate) struct LargestSearch<'a, F> {
    slack: F,
    foresee: Option<Foresee<'a>>,
    known: BTreeMap<u64, i64>,
    range: RangeInclusive<u64>,
    guess: Option<u64>,
}

impl<'a, F: FnMut(u64) -> Option<i64>> LargestSearch<'a, F> {
    pub(crate) fn new(range: RangeInclusive<u64>, slack: F) -> Self {
        Self { slack, foresee: None, known: BTreeMap::new(), range, guess: None }
    }

    /// Sets the likely result.
    #[must_use]
    pub(crate) fn guess(mut self, guess: Option<u64>) -> Self {
        self.guess = guess.filter(|guess| self.range.contains(guess));
        self
    }

    #[must_use]
    pub(crate) fn foreseen(mut self, foresee: impl FnMut(&[u64]) + 'a) -> Self {
        self.foresee = Some(Box::new(foresee));
        self
    }

    /// Records a known number, which is then not priced again.
    pub(crate) fn know(&mut self, number: u64, slack: i64) {
        self.known.insert(number, slack);
    }

    fn slack(&mut self, number: u64) -> i64 {
        // A refusal counts as the worst failure, below every number that has a price.
        *self.known.entry(number).or_insert_with(|| (self.slack)(number).unwrap_or(i64::MIN))
    }

    fn fits(&mut self, number: u64) -> bool {
        self.slack(number) >= 0
    }

    /// The largest number that was seen to fit.
    pub(crate) fn seen(&self) -> Option<u64> {
        let fitting = self.known.iter().rev().find(|(_, slack)| **slack >= 0);
        fitting.map(|(number, _)| *number)
    }

    /// Announces the numbers of a range that are evaluated next, if there are several.
    fn foresee(&mut self, numbers: RangeInclusive<u64>) {
        let numbers = *numbers.start()..=(*numbers.end()).min(*self.range.end());
        let unknown: Vec<u64> = numbers.filter(|number| !self.known.contains_key(number)).collect();
        if let Some(foresee) = self.foresee.as_mut().filter(|_| unknown.len() > 1) {
            foresee(&unknown);
        }
    }

    /// The largest number that fits below one that does not, or the end of the range. Numbers are tried with
    /// the one above each.
    pub(crate) fn largest(&mut self) -> Option<FitBound> {
        let (start, end) = (*self.range.start(), *self.range.end());
        let (mut low, mut high) = (None, None);
        if start > end {
            return None;
        }
        // Most requests fit as a whole, so without a guess the end comes first.
        let mut at = self.guess.unwrap_or(end);
        for round in 0.. {
            self.foresee(at..=at.saturating_add(1));
            if !self.fits(at) {
                high = Some(at);
            } else if at == end || !self.fits(at + 1) {
                return Some(FitBound { at, above: (at < end).then_some(at + 1) });
            } else {
                low = Some(at + 1);
            }
            at = match (low, high) {
                (None, Some(high)) if high <= start => return None,
                (Some(low), None) if low == end => return Some(FitBound { at: end, above: None }),
                (Some(low), Some(high)) if high - low == 1 => {
                    return Some(FitBound { at: low, above: Some(high) });
                }
                // Lines and halves in turn: a line is quick, and halves end any search.
                (Some(low), Some(high)) if round % 2 == 1 => {
                    let steps = steps_to_zero((low, self.slack(low)), (high, self.slack(high)));
                    low + steps.unwrap_or(0).unsigned_abs().clamp(1, high - low - 1)
                }
                (Some(low), Some(high)) => low + (high - low) / 2,
                (None, Some(_)) if self.guess.is_none() => start,
                (None, Some(high)) => {
                    // A line needs two points.
                    if at < end && self.known.len() == 1 {
                        self.slack(at + 1);
                    }
                    self.onward(at, round).clamp(start, high - 1)
                }
                (low, None) => self.onward(at, round).clamp(low.unwrap_or(start), end),
            };
        }
        None
    }

    /// [`Self::largest`], and a few numbers above it fail too.
    pub(crate) fn largest_guarded(&mut self) -> Option<FitBound> {
        let mut found = self.largest()?;
        let end = *self.range.end();
        for _ in 0..ROUNDS {
            let above = found.at.saturating_add(2)..=end.min(found.at.saturating_add(GUARD));
            self.foresee(above.clone());
            let Some(again) = above.into_iter().find(|&number| self.fits(number)) else {
                break;
            };
            // From the number that fits again, the search goes on one by one: the gap was short.
            let Some(next) = (again + 1..=end).find(|&number| !self.fits(number)) else {
                return Some(FitBound { at: end, above: None });
            };
            found = FitBound { at: next - 1, above: Some(next) };
        }
        Some(found)
    }

    /// The number after `at`: the zero of a line through it and its nearest neighbour, else a stride away.
    fn onward(&self, at: u64, round: u32) -> u64 {
        let here = self.known.get(&at).copied().unwrap_or(i64::MIN);
        let below = self.known.range(..at).next_back();
        let above = self.known.range(at.saturating_add(1)..).next();
        let near = [below, above].into_iter().flatten().filter(|(_, slack)| **slack > i64::MIN);
        let near = near.min_by_key(|(number, _)| number.abs_diff(at));
        let straight = near.filter(|_| round < STRAIGHT && here > i64::MIN);
        if let Some(steps) = straight.and_then(|(&other, &there)| steps_to_zero((at, here), (other, there))) {
            return at.saturating_add_signed(steps);
        }
        // Doubling strides, where no line can be drawn or it has misled too often.
        let stride = 1_u64.checked_shl(round).unwrap_or(u64::MAX);
        if here >= 0 { at.saturating_add(stride).saturating_add(1) } else { at.saturating_sub(stride) }
    }
}

/// Whole steps from `at` for which a falling line through both points stays at or above zero; negative below
/// zero.
fn steps_to_zero((at, here): (u64, i64), (other, there): (u64, i64)) -> Option<i64> {
    // In 128 bits, because bytes times numbers exceed 64.
    let distance = i128::from(other) - i128::from(at);
    let falls = (i128::from(here) - i128::from(there)) * distance.signum();
    if falls <= 0 {
        return None;
    }
    i64::try_from((i128::from(here) * distance.abs()).div_euclid(falls)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_straight_line_takes_a_handful_of_questions(limit in 0_u64..100_000, step in 1_i64..1 << 40) {
            let mut requested = 0;
            let mut search = LargestSearch::new(0..=100_000, |n| {
                requested += 1;
                Some((i64::try_from(limit).unwrap() - i64::try_from(n).unwrap()).saturating_mul(step))
            });
            let found = search.largest().unwrap();
            prop_assert_eq!(found.at, limit);
            prop_assert_eq!(found.above, Some(limit + 1));
            prop_assert!(requested <= 6, "{}", requested);
        }

        #[test]
        fn from_any_guess_the_result_fits_and_the_next_does_not(
            slacks in prop::collection::vec(prop::option::weighted(0.9, -9_i64..9), 1..200),
            guess in 0_u64..200,
        ) {
            let at = |n: u64| slacks[usize::try_from(n).unwrap()].unwrap_or(i64::MIN);
            let last = u64::try_from(slacks.len()).unwrap() - 1;
            let mut foreseen = std::collections::BTreeSet::new();
            let found = LargestSearch::new(0..=last, |n| slacks[usize::try_from(n).unwrap()])
                .guess(Some(guess.min(last)))
                .foreseen(|numbers| foreseen.extend(numbers.iter().copied()))
                .largest();
            prop_assert!(foreseen.iter().all(|&n| n <= last));
            match found {
                Some(found) => {
                    prop_assert!(at(found.at) >= 0);
                    prop_assert!(found.above.map_or(found.at == last, |above| above == found.at + 1 && at(above) < 0));
                }
                None => prop_assert!(at(0) < 0),
            }
        }

        #[test]
        fn from_a_guess_a_straight_line_takes_two_pairs_of_questions(limit in 0_u64..100_000, guess in 0_u64..99_999, step in 1_i64..1 << 40) {
            let mut requested = 0;
            let found = LargestSearch::new(0..=100_000, |n| {
                requested += 1;
                Some((i64::try_from(limit).unwrap() - i64::try_from(n).unwrap()).saturating_mul(step))
            });
            let found = found.guess(Some(guess)).largest().unwrap();
            prop_assert_eq!((found.at, found.above), (limit, Some(limit + 1)));
            prop_assert!(requested <= 5, "{}", requested);
        }

        #[test]
        fn for_any_function_the_result_fits_and_the_next_does_not(slacks in prop::collection::vec(-9_i64..9, 1..200)) {
            let at = |n: u64| slacks[usize::try_from(n).unwrap()];
            let last = u64::try_from(slacks.len()).unwrap() - 1;
            let found = LargestSearch::new(0..=last, |n| Some(at(n))).largest_guarded();
            match found {
                Some(found) => {
                    prop_assert!(at(found.at) >= 0);
                    prop_assert!(found.above.map_or(found.at == last, |above| above == found.at + 1 && at(above) < 0));
                }
                None => prop_assert!(at(0) < 0 && at(last) < 0),
            }
        }
    }

    #[test]
    fn a_right_guess_takes_two_questions_and_a_wrong_one_is_corrected() {
        for (guess, most) in [(700, 2), (699, 4), (0, 16), (1000, 16), (690, 8)] {
            let mut requested = 0;
            let slack = |n: u64| {
                requested += 1;
                i64::try_from(n).ok().map(|n| 700 - n)
            };
            let found = LargestSearch::new(0..=1000, slack).guess(Some(guess)).largest();
            assert_eq!(found, Some(FitBound { at: 700, above: Some(701) }));
            assert!(requested <= most, "{requested} from {guess}");
        }
        assert_eq!(LargestSearch::new(5..=9, |_| Some(-1)).guess(Some(7)).largest(), None);
        assert_eq!(
            LargestSearch::new(5..=9, |_| Some(1)).guess(Some(7)).largest(),
            Some(FitBound { at: 9, above: None })
        );
    }

    #[test]
    fn the_guard_finds_numbers_that_fit_above_a_gap() {
        let fits = [true, true, false, false, true, true, false, false, false, false, false, false];
        let slack = |n: u64| Some(if fits[usize::try_from(n).unwrap()] { 1 } else { -1 });
        let found = LargestSearch::new(0..=11, slack).largest_guarded();
        assert_eq!(found, Some(FitBound { at: 5, above: Some(6) }));
    }
}
