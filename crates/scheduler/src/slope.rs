//! Measures how much memory a model takes for each further token of context.
//!
//! Two samples of one engine, taken after answers of different depth (tokens in the KV cache), give the
//! growth.

use plimsoll_base::{Bytes, RunId};
use serde::Serialize;

// Depths that are close together give none, because memory grows in pieces of 2 MiB and more.
/// Tokens between two samples at least.
const APART: u64 = 256;

/// An observed slope, and the range of depths for which it was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedGrowth {
    pub bytes_per_token: Bytes,
    /// Tokens of the shallowest and the deepest sample.
    pub from: u64,
    pub to: u64,
}

/// Samples of a model's run, and the slope that follows from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowthTracker {
    run: Option<RunId>,
    /// Tokens and memory of the first sample.
    first: Option<(u64, Bytes)>,
    deepest: u64,
    learned: Option<ObservedGrowth>,
}

impl GrowthTracker {
    /// Records the memory of the run after an answer of this depth. The slope of an earlier run is kept until
    /// this run gives another.
    pub(crate) fn sample(&mut self, run: RunId, tokens: u64, used: Bytes) {
        if self.run != Some(run) {
            // Each run has a pool of its own, which starts empty.
            (self.run, self.first, self.deepest) = (Some(run), None, 0);
        }
        // A pool is a high-water mark, so that a shallower answer shows the memory of the deepest one.
        if tokens < self.deepest.saturating_add(APART) {
            return;
        }
        self.deepest = tokens;
        let (from, first) = *self.first.get_or_insert((tokens, used));
        if let Some(each) = used.saturating_sub(first).get().checked_div(tokens - from) {
            self.learned = Some(ObservedGrowth { bytes_per_token: Bytes::new(each), from, to: tokens });
        }
    }

    pub(crate) fn learned(&self) -> Option<ObservedGrowth> {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slope(run: u64, looks: &[(u64, u64)], slope: &mut GrowthTracker) -> Option<ObservedGrowth> {
        for (tokens, kib) in looks {
            slope.sample(RunId(run), *tokens, Bytes::kib(*kib));
        }
        slope.learned()
    }

    #[test]
    fn it_is_unknown_until_two_samples_lie_apart_and_then_holds_for_their_range() {
        let mut state = GrowthTracker::default();
        assert_eq!(slope(1, &[(500, 1000)], &mut state), None);
        assert_eq!(slope(1, &[(600, 9999), (100, 9999)], &mut state), None, "too close, and shallower");
        let growth = ObservedGrowth { bytes_per_token: Bytes::kib(4), from: 500, to: 1500 };
        assert_eq!(slope(1, &[(1500, 5000)], &mut state), Some(growth));
        assert_eq!(slope(2, &[(9000, 7)], &mut state), Some(growth), "a new run has to teach first");
    }

    #[test]
    fn memory_that_shrinks_is_no_growth() {
        let learned = slope(1, &[(500, 1000), (1000, 900)], &mut GrowthTracker::default()).unwrap();
        assert_eq!(learned.bytes_per_token, Bytes::ZERO);
    }
}
