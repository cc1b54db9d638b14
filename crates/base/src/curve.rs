//! Represents the memory that an engine takes on each card as a function of the number of tokens in its KV
//! cache.

use crate::Order;
use serde::Serialize;

use super::card::{CardId, Share};
use crate::Bytes;

/// Slots (parallel sequences) of an engine, and how they share its KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slots {
    /// Requests that it works on at once.
    pub count: u64,
    /// Tokens that one of them may have.
    pub each: u64,
    /// Tokens at which the run is as deep as it can get.
    pub full: u64,
    /// One cache for all.
    pub unified: bool,
    /// A slot that is idle keeps its tokens in the cache.
    pub keeps: bool,
    /// With one cache for several slots, how far their cells may reach beyond the sum of their tokens.
    pub scatter: u64,
    /// Tokens of an answer where the request sets no limit; `None` for as many as the slot has.
    pub answer: Option<u64>,
}

// DECISION: a curve is a table of steps, not a formula, because ggml's legacy pool grows in steps. A depth
// between two points gets the memory of the deeper point, so a curve never shows too little.
/// Bytes on each card up to this depth.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CurveStep {
    depth: u64,
    bytes: Vec<Bytes>,
}

/// Memory of a run on each card as a function of depth, the tokens in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    pub slots: Slots,
    cards: Vec<CardId>,
    /// Deeper and never smaller; the last is as deep as a run can get.
    steps: Vec<CurveStep>,
}

impl Curve {
    /// Makes a curve of `steps`, each with its depth and the bytes on every one of `cards`. `None` without a
    /// step, or where a step has another number of cards.
    pub fn new(slots: Slots, cards: Vec<CardId>, mut steps: Vec<(u64, Vec<Bytes>)>) -> Option<Self> {
        // Callers collect steps from several sources; only the order by depth is an invariant.
        steps.order_by_key(|(depth, _)| *depth);
        let mut most = vec![Bytes::ZERO; cards.len()];
        let mut rising = Vec::with_capacity(steps.len());
        for (depth, bytes) in steps {
            if bytes.len() != cards.len() {
                return None;
            }
            for (most, bytes) in most.iter_mut().zip(bytes) {
                // A pool does not return memory, so a later step is never below an earlier one.
                *most = bytes.max(*most);
            }
            rising.push(CurveStep { depth, bytes: most.clone() });
        }
        let known = !rising.is_empty();
        // A curve without a step could answer no question.
        known.then_some(Self { slots, cards, steps: rising })
    }

    /// Bytes on each card once the run has reached this depth.
    pub fn at(&self, depth: u64) -> Vec<Share> {
        // With one cache for all slots, depth is the sum over all slots. With one cache per slot, depth is
        // the deepest slot's tokens times the number of busy slots.

        // The first step at or beyond this depth; beyond the last, the last: a run cannot grow past its
        // cache.
        let index = self.steps.partition_point(|step| step.depth < depth);
        let step = &self.steps[index.min(self.steps.len() - 1)];
        let shares = self.cards.iter().zip(&step.bytes);
        shares.map(|(card, bytes)| Share::new(card.clone(), *bytes)).collect()
    }

    /// The depth for which `held` is enough on every card; `None` if not even for the first step.
    pub fn within(&self, occupied: impl Fn(&CardId) -> Bytes) -> Option<u64> {
        let occupied: Vec<Bytes> = self.cards.iter().map(occupied).collect();
        let enough =
            |step: &CurveStep| step.bytes.iter().zip(&occupied).all(|(need, occupied)| need <= occupied);
        let fitting = self.steps.partition_point(enough);
        // All steps fit, so no depth is too deep.
        if fitting == self.steps.len() {
            return Some(u64::MAX);
        }
        Some(self.steps[fitting.checked_sub(1)?].depth)
    }

    /// The curve with this much more, or less, on each card at every depth.
    #[must_use]
    pub fn shifted(&self, by: &[i64]) -> Self {
        let shift = |(bytes, by): (&Bytes, &i64)| bytes.shifted(*by);
        let step = |step: &CurveStep| CurveStep {
            depth: step.depth,
            bytes: step.bytes.iter().zip(by.iter().chain(std::iter::repeat(&0))).map(shift).collect(),
        };
        Self { slots: self.slots, cards: self.cards.clone(), steps: self.steps.iter().map(step).collect() }
    }

    /// The same at every depth: the memory of the full depth is taken from the start.
    #[must_use]
    pub fn reserved(mut self) -> Self {
        self.steps.drain(..self.steps.len() - 1);
        self
    }

    /// True if depth costs anything.
    pub fn grows(&self) -> bool {
        self.steps.first().map(|step| &step.bytes) != self.steps.last().map(|step| &step.bytes)
    }

    /// Average bytes per token, over all cards.
    pub fn bytes_per_token(&self) -> Bytes {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else {
            return Bytes::ZERO;
        };
        // A curve of one step has no distance; its increment is zero anyway.
        let tokens = last.depth.saturating_sub(first.depth).max(1);
        sum(last).saturating_sub(sum(first)).scaled(1, tokens)
    }

    /// The curve corrected by a measured slope: `each` bytes per token between these depths, over all cards.
    ///
    /// A steeper slope replaces the planned one everywhere. A flatter slope was measured only as far as `to`;
    /// beyond it, the planned slope applies.
    #[must_use]
    pub fn seen(&self, each: Bytes, from: u64, to: u64) -> Self {
        let between = total(&self.at(to)).saturating_sub(total(&self.at(from)));
        let seen = each * to.saturating_sub(from);
        let Some(first) = self.steps.first().map(|step| step.bytes.clone()) else {
            return self.clone();
        };
        if between.is_zero() || seen == between {
            return self.clone();
        }
        let scaled = |bytes: Bytes| bytes.scaled(seen.get(), between.get());
        let steeper = seen > between;
        let at_to: Vec<Bytes> = self.at(to).iter().map(|share| share.bytes).collect();
        let step = |step: &CurveStep| {
            let bytes = step.bytes.iter().zip(&first).zip(&at_to);
            let bytes = bytes.map(|((bytes, base), at_to)| {
                // Beyond the measured range only the planned part may be used for a flatter slope.
                let known = if steeper { *bytes } else { *bytes.min(at_to) };
                *base + scaled(known.saturating_sub(*base)) + bytes.saturating_sub(known)
            });
            (step.depth, bytes.collect())
        };
        let steps = self.steps.iter().map(step).collect();
        Self::new(self.slots, self.cards.clone(), steps).unwrap_or_else(|| self.clone())
    }
}

fn sum(step: &CurveStep) -> Bytes {
    step.bytes.iter().copied().sum()
}

fn total(shares: &[Share]) -> Bytes {
    shares.iter().map(|share| share.bytes).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots(full: u64) -> Slots {
        Slots { count: 1, each: full, full, unified: true, keeps: true, scatter: 0, answer: None }
    }

    /// 10 MiB, and one more for each of ten steps of 100 tokens.
    fn line() -> Curve {
        let steps = (0..=10).map(|n| (n * 100, vec![Bytes::mib(10 + n)])).collect();
        Curve::new(slots(1000), vec![CardId::new("a")], steps).unwrap()
    }

    fn at(curve: &Curve, depth: u64) -> u64 {
        total(&curve.at(depth)).whole_mib()
    }

    #[test]
    fn between_two_steps_the_upper_one_counts_and_beyond_the_last_nothing_is_added() {
        let curve = line();
        assert_eq!([0, 1, 100, 101, 5000].map(|depth| at(&curve, depth)), [10, 11, 11, 12, 20]);
        let within = |mib| curve.within(|_| Bytes::mib(mib));
        assert_eq!([9, 10, 12, 19].map(within), [None, Some(0), Some(200), Some(900)]);
        assert_eq!(within(20), Some(u64::MAX), "no depth takes more");
    }

    #[test]
    fn a_curve_never_falls_whatever_it_is_made_of() {
        let steps = vec![(200, vec![Bytes::mib(1)]), (0, vec![Bytes::mib(4)])];
        let curve = Curve::new(slots(200), vec![CardId::new("a")], steps).unwrap();
        assert_eq!(at(&curve, 200), 4);
        assert!(!curve.grows());
        assert_eq!(Curve::new(slots(1), vec![CardId::new("a")], vec![(1, vec![])]), None);
        assert_eq!(Curve::new(slots(1), vec![], vec![]), None);
    }

    #[test]
    fn a_steeper_slope_holds_everywhere_and_a_flatter_one_as_far_as_it_was_seen() {
        let each = |mib| Bytes::mib(mib).scaled(1, 100);
        let steep = line().seen(each(3), 0, 500);
        assert_eq!([0, 500, 1000].map(|depth| at(&steep, depth)), [10, 25, 40]);
        let flat = line().seen(Bytes::ZERO, 0, 500);
        assert_eq!([0, 500, 1000].map(|depth| at(&flat, depth)), [10, 10, 15]);
    }

    #[test]
    fn a_shift_moves_every_depth_and_never_below_nothing() {
        let curve = line();
        assert_eq!([0, 1000].map(|depth| at(&curve.shifted(&[3 << 20]), depth)), [13, 23]);
        assert_eq!([0, 1000].map(|depth| at(&curve.shifted(&[-(15 << 20)]), depth)), [0, 5]);
        assert_eq!(curve.shifted(&[i64::MIN]).at(1000)[0].bytes, Bytes::ZERO);
        assert_eq!(curve.shifted(&[]), curve);
    }

    proptest! {
        #[test]
        fn curve_depth_within_a_limit_fits_and_one_token_more_does_not(
            rises in prop::collection::vec((1_u64..500, 0_u64..9), 1..40),
            occupied in 0_u64..200,
        ) {
            let mut sum = (0, 0);
            let steps = rises.iter().map(|(tokens, mib)| {
                sum = (sum.0 + tokens, sum.1 + mib);
                (sum.0, vec![Bytes::mib(sum.1)])
            }).collect();
            let curve = Curve::new(slots(sum.0), vec![CardId::new("a")], steps).unwrap();
            let occupied = Bytes::mib(occupied);
            match curve.within(|_| occupied) {
                None => prop_assert!(total(&curve.at(0)) > occupied),
                Some(u64::MAX) => prop_assert!(total(&curve.at(u64::MAX)) <= occupied),
                Some(depth) => {
                    prop_assert!(total(&curve.at(depth)) <= occupied);
                    prop_assert!(total(&curve.at(depth + 1)) > occupied);
                }
            }
        }
    }
}
