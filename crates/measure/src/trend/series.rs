//! Keeps the samples of one memory figure during a load test, in bounded space however long it runs.

use plimsoll_base::Bytes;
use serde::Serialize;

/// Looks that are kept. Beyond, every other one is dropped and only every other one of the later ones is
/// taken.
const MOST: usize = 4096;

/// One sample: the number of answered requests, and the memory held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrendPoint {
    pub at: u64,
    pub occupied: Bytes,
}

/// Memory allocated or released at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrendStep {
    /// The look after it.
    pub at: u64,
    pub from: Bytes,
    pub to: Bytes,
}

impl TrendStep {
    pub fn size(&self) -> Bytes {
        self.to.saturating_sub(self.from).max(self.from.saturating_sub(self.to))
    }
}

/// Samples in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrendSeries {
    points: Vec<TrendPoint>,
    /// Of how many looks one is kept.
    stride: u64,
    seen: u64,
}

impl Default for TrendSeries {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1, seen: 0 }
    }
}

impl TrendSeries {
    /// Takes one more look; one from before the last is left out.
    pub fn push(&mut self, point: TrendPoint) {
        let is_wanted = self.seen.is_multiple_of(self.stride.max(1));
        self.seen = self.seen.saturating_add(1);
        // The test needs increasing positions; a sample that is late would turn a block's slope around.
        let is_late = self.points.last().is_some_and(|last| last.at >= point.at);
        if !is_wanted || is_late {
            return;
        }
        if self.points.len() >= MOST {
            let mut keep = false;
            // Halving keeps the samples evenly spaced, which equal blocks rely on.
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = self.stride.saturating_mul(2);
        }
        self.points.push(point);
    }

    pub fn points(&self) -> &[TrendPoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_load_is_thinned_evenly_and_stays_bounded() {
        let mut series = TrendSeries::default();
        for at in 0..100_000 {
            series.push(TrendPoint { at, occupied: Bytes::new(at) });
        }
        let points = series.points();
        assert!((MOST / 2..=MOST).contains(&points.len()), "{}", points.len());
        let strides: Vec<u64> = points.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(strides.iter().all(|stride| *stride == strides[0]));
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut series = TrendSeries::default();
        for at in [5, 5, 4, 6] {
            series.push(TrendPoint { at, occupied: Bytes::ZERO });
        }
        let kept: Vec<u64> = series.points().iter().map(|point| point.at).collect();
        assert_eq!(kept, [5, 6]);
    }
}
