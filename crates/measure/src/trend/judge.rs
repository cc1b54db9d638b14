//! Judges a series of samples by the leak test: leak, no leak or undecided.

use plimsoll_base::{Bytes, Order};
use serde::Serialize;

use super::blocks::{Increment, increments, middle, wide};
use super::series::{TrendPoint, TrendStep};
use super::sign::{at_least, float, interval};

/// Numbers of blocks that are tried: many where the figure is fine-grained, few where it moves in granules of
/// 2 MiB. Each is a chance to be wrong, so each counts.
const BLOCKS: [usize; 3] = [25, 19, 14];
const TRIES: f64 = 3.0;
/// Looks that are not judged: one of so many at the beginning.
const WARM_UP: usize = 4;
/// A slope outside the interval is this unlikely.
const MISS: f64 = 0.01;
/// Maximum number of reported steps, and the smallest size reported.
const MOST_STEPS: usize = 8;
const LEAST_STEP: Bytes = Bytes::kib(256);
/// A step is at least this many times the figure's usual change.
const STANDS_OUT: f64 = 8.0;

/// Thresholds of the leak test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrendTest {
    /// Accepted rate of false alarms, over all figures of one load.
    pub false_alarms: f64,
    /// Number of figures that are judged.
    pub figures: usize,
    /// Growth in bytes per request that is not reported.
    pub negligible: f64,
}

impl Default for TrendTest {
    fn default() -> Self {
        Self { false_alarms: 0.002, figures: 1, negligible: 64.0 }
    }
}

/// Verdict on a figure under load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrendGrowth {
    /// It grows with the requests, and as fast at the end as before.
    Leak,
    /// It still grows, but ever more slowly; only a longer test can decide.
    Settling,
    /// No growth was seen.
    Flat,
    /// It rose in most parts of the test, by more than is negligible, and that may be chance; only a longer
    /// test can decide.
    Open,
    /// Too few samples for a verdict.
    #[default]
    Unknown,
}

/// Verdict of the leak test with its evidence. Slopes are in bytes per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Trend {
    pub growth: TrendGrowth,
    pub slope: f64,
    /// With 99 %.
    pub slope_low: f64,
    pub slope_high: f64,
    /// 1 minus the probability of this result for a program without a leak.
    pub confidence: f64,
    pub looks: usize,
    pub blocks: usize,
    /// Of the increments between blocks, how many rise.
    pub rising: usize,
}

/// Judges a series of looks.
pub fn judge(points: &[TrendPoint], judging: &TrendTest) -> Trend {
    // Caches, lazily loaded kernels and pools grow in the first requests of every server.
    let settled = &points[points.len() / WARM_UP..];
    let figures = float(judging.figures.max(1));
    let found = BLOCKS
        .iter()
        .filter_map(|blocks| StepEvidence::new(settled, *blocks))
        // The smallest chance of three block counts; the factor below pays for choosing it.
        .min_by(|a, b| a.chance.total_cmp(&b.chance));
    let Some(sight) = found else {
        return Trend { looks: points.len(), ..Trend::default() };
    };
    // Bonferroni: each block count and each figure is one more chance of a false alarm.
    let chance = (sight.chance * TRIES * figures).min(1.0);
    let slopes = sorted(&sight.increments);
    let slope = middle(&slopes);
    let (slope_low, slope_high) = interval(&slopes, MISS).unwrap_or_default();
    let growth = if chance > judging.false_alarms {
        // Not significant, however steep it looks; nothing speaks for a flat figure either.
        let is_open = sight.is_open() && slope >= judging.negligible && slope_low >= 0.0;
        if is_open { TrendGrowth::Open } else { TrendGrowth::Flat }
    } else if !sight.lasts() || slope < judging.negligible {
        TrendGrowth::Flat
    } else if sight.slows_down() {
        TrendGrowth::Settling
    } else {
        TrendGrowth::Leak
    };
    Trend {
        growth,
        slope,
        slope_low,
        slope_high,
        confidence: 1.0 - chance,
        looks: points.len(),
        blocks: sight.increments.len() + 1,
        rising: sight.rising,
    }
}

impl Trend {
    /// Looks that a verdict takes at least.
    pub const LEAST_LOOKS: usize = BLOCKS[BLOCKS.len() - 1] * WARM_UP / (WARM_UP - 1) + 1;
}

/// Result of the test for one number of blocks.
struct StepEvidence {
    increments: Vec<Increment>,
    rising: usize,
    chance: f64,
}

impl StepEvidence {
    fn new(points: &[TrendPoint], blocks: usize) -> Option<Self> {
        let increments = increments(points, blocks);
        // Fewer samples than blocks.
        if increments.is_empty() {
            return None;
        }
        let rising = increments.iter().filter(|increment| increment.rise > 0.0).count();
        let chance = at_least(rising, increments.len());
        Some(Self { increments, rising, chance })
    }

    /// True if the growth is still there at the end.
    fn lasts(&self) -> bool {
        let net: f64 = self.increments.iter().map(|increment| increment.rise).sum();
        let mut rises: Vec<f64> = self.increments.iter().map(|increment| increment.rise).collect();
        rises.sort_by(f64::total_cmp);
        2.0 * net >= middle(&rises) * float(rises.len())
    }

    /// Most parts rise, and the growth is still there at the end.
    fn is_open(&self) -> bool {
        2 * self.rising > self.increments.len() && self.lasts()
    }

    /// The later half rises less than half as fast.
    fn slows_down(&self) -> bool {
        let (before, after) = self.increments.split_at(self.increments.len() / 2);
        2.0 * middle(&sorted(after)) < middle(&sorted(before))
    }
}

fn sorted(increments: &[Increment]) -> Vec<f64> {
    let mut slopes: Vec<f64> = increments.iter().map(|increment| increment.slope).collect();
    slopes.sort_by(f64::total_cmp);
    slopes
}

/// The largest single changes, in their order: those that stand out from the figure's usual changes.
pub fn steps(points: &[TrendPoint]) -> Vec<TrendStep> {
    let all = points.windows(2).map(|pair| TrendStep {
        at: pair[1].at,
        from: pair[0].occupied,
        to: pair[1].occupied,
    });
    let mut sizes: Vec<f64> = all.clone().map(|step| wide(step.size().get())).collect();
    sizes.sort_by(f64::total_cmp);
    // Steps stand out against the figure's own noise, so no absolute threshold fits all.
    let usual = middle(&sizes);
    let stands_out =
        |step: &TrendStep| step.size() >= LEAST_STEP && wide(step.size().get()) >= STANDS_OUT * usual;
    let mut steps: Vec<TrendStep> = all.filter(stands_out).collect();
    steps.order_by_key(|step| std::cmp::Reverse(step.size()));
    steps.truncate(MOST_STEPS);
    steps.order_by_key(|step| step.at);
    steps
}

#[cfg(test)]
mod tests;
