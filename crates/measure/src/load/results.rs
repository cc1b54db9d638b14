//! Holds the results of a soak test, a long load test for memory leaks.

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Order, round_u64};
use plimsoll_report::TrendCourse;
use serde::Serialize;

use super::rounds::{RoundTally, median};
use crate::trend::{Trend, TrendGrowth, TrendPoint, TrendSeries, TrendStep, TrendTest, judge, steps};

const MOST_NOTES: usize = 100;
const MOST_FIGURES: usize = 64;

/// A measured figure over time.
#[derive(Clone, Debug)]
pub struct SoakFigure {
    pub name: String,
    /// Judged: points since the server's process last changed.
    pub series: TrendSeries,
    /// Plotted: all points, over requests.
    pub course: TrendCourse,
}

/// Results of a soak test so far. `requests` counts those sent.
#[derive(Clone, Debug, Default)]
pub struct SoakResults {
    pub target: String,
    pub model: String,
    pub requests: u64,
    pub rounds: u64,
    pub occupied_ms: u64,
    pub prompt_tokens: u64,
    pub answer_tokens: u64,
    /// Failures by kind: the count, and a few full texts.
    pub failures: BTreeMap<String, (u64, Vec<String>)>,
    pub figures: Vec<SoakFigure>,
    /// Thousandths of tokens per second for one client, and microseconds to the first token, over requests.
    pub speed: TrendCourse,
    pub first_token: TrendCourse,
    pub looks: u64,
    /// True if the server stopped answering.
    pub broke_off: bool,
    /// Each prompt was new to the engine, whose prompt cache keeps them until it is full.
    pub fresh: bool,
    /// Events, each with the number of requests at that time.
    pub notes: Vec<(u64, String)>,
}

/// A figure with the verdict of the leak test.
#[derive(Clone, Debug, Serialize)]
pub struct SoakVerdict<'a> {
    pub name: &'a str,
    pub first: Bytes,
    pub last: Bytes,
    pub peak: Bytes,
    #[serde(flatten)]
    pub trend: Trend,
    pub steps: Vec<TrendStep>,
}

impl SoakResults {
    pub fn new(target: String, model: String) -> Self {
        Self { target, model, ..Self::default() }
    }

    pub fn note(&mut self, text: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push((self.requests, text));
        }
    }

    /// Starts a new series for every figure, because the process they belong to has ended.
    pub fn begin_series(&mut self) {
        for figure in &mut self.figures {
            figure.series = TrendSeries::default();
        }
    }

    /// Adds the results of a round.
    pub fn add(&mut self, mut tally: RoundTally) {
        self.rounds += 1;
        self.requests += tally.answered + tally.failures();
        self.prompt_tokens += tally.prompt_tokens;
        self.answer_tokens += tally.answer_tokens;
        let at = self.requests;
        // The median of the round: a single slow answer, such as the first one after a load, moves a mean.
        if let Some(speed) = median(&mut tally.speeds) {
            self.speed.push(at, thousandths(speed));
        }
        if let Some(time) = median(&mut tally.first_tokens) {
            self.first_token.push(at, thousandths(time));
        }
        for (kind, (count, texts)) in tally.failed {
            let (sum, kept) = self.failures.entry(kind).or_default();
            *sum += count;
            // The first example is kept, because later failures are mostly its consequences.
            if kept.is_empty() {
                *kept = texts;
            }
        }
    }

    /// Adds a memory measurement.
    pub fn see(&mut self, look: Vec<(String, Bytes)>) {
        self.looks += 1;
        let at = self.requests;
        for (name, occupied) in look {
            let place = self.figures.iter().position(|figure| figure.name == name);
            let place = place.unwrap_or_else(|| {
                self.figures.push(SoakFigure {
                    name,
                    series: TrendSeries::default(),
                    course: TrendCourse::default(),
                });
                self.figures.len() - 1
            });
            let figure = &mut self.figures[place];
            figure.series.push(TrendPoint { at, occupied });
            figure.course.push(at, occupied.get());
        }
        // Bounds the memory, should figure names change from look to look.
        self.figures.truncate(MOST_FIGURES);
    }

    pub fn failed(&self) -> u64 {
        self.failures.values().map(|(count, _)| count).sum()
    }

    /// Every figure with its verdict. Growth below `negligible` does not count as a leak.
    pub fn judged(&self, negligible: f64) -> Vec<SoakVerdict<'_>> {
        // The number of figures corrects for testing several at once: one of many looks like a leak by
        // chance.
        let judging = TrendTest { figures: self.figures.len(), negligible, ..TrendTest::default() };
        let occupied = |point: Option<&TrendPoint>| point.map_or(Bytes::ZERO, |point| point.occupied);
        self.figures
            .iter()
            .map(|figure| {
                let points = figure.series.points();
                SoakVerdict {
                    name: &figure.name,
                    first: occupied(points.first()),
                    last: occupied(points.last()),
                    peak: Bytes::new(figure.course.highest().unwrap_or_default()),
                    trend: judge(points, &judging),
                    steps: steps(points),
                }
            })
            .collect()
    }

    /// Median of the rounds in thousandths: the speed, or the time to the first token.
    pub fn middle(course: &TrendCourse) -> Option<u64> {
        middle(course.buckets())
    }

    /// Slowdown in per cent from the first quarter to the last; negative if the server got faster.
    pub fn slower_percent(&self) -> Option<f64> {
        let buckets = self.speed.buckets();
        let quarter = buckets.len() / 4;
        // A median of fewer than three buckets is no median.
        if quarter < 3 {
            return None;
        }
        let before = thousands(middle(&buckets[..quarter])?);
        let after = thousands(middle(&buckets[buckets.len() - quarter..])?);
        (before > 0.0).then(|| (100.0 * (before - after) / before * 10.0).round() / 10.0)
    }
}

/// The median of the last values of the buckets.
fn middle(buckets: &[plimsoll_report::Bucket]) -> Option<u64> {
    let mut rounds: Vec<u64> = buckets.iter().map(|bucket| bucket.last).collect();
    rounds.order();
    rounds.get(rounds.len() / 2).copied()
}

impl SoakVerdict<'_> {
    pub fn is_leak(&self) -> bool {
        self.trend.growth == TrendGrowth::Leak
    }
}

/// Converts to integer thousandths, which a series stores.
fn thousandths(number: f64) -> u64 {
    round_u64(number * 1000.0)
}

pub fn thousands(number: u64) -> f64 {
    // Saturates above `u32`, since there is no lossless conversion from `u64` to `f64`.
    u32::try_from(number).map_or(f64::INFINITY, f64::from) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(bytes: u64) -> Vec<(String, Bytes)> {
        vec![("host".to_owned(), Bytes::new(bytes))]
    }

    fn results(rounds: u64) -> SoakResults {
        let mut results = SoakResults::new("http://a:1".to_owned(), "m".to_owned());
        for round in 0..rounds {
            let mut tally = RoundTally { answered: 20, speeds: vec![100.0], ..RoundTally::default() };
            if round >= rounds / 2 {
                tally.speeds = vec![80.0];
            }
            results.add(tally);
            results.see(look((100 << 20) + round * 20 * 1024));
        }
        results
    }

    #[test]
    fn one_slow_last_round_is_not_the_speed_of_the_run() {
        let mut course = TrendCourse::default();
        for round in 1..=40 {
            course.push(round, if round == 40 { 3 } else { 2000 });
        }
        assert_eq!(SoakResults::middle(&course), Some(2000));
        assert_eq!(SoakResults::middle(&TrendCourse::default()), None);
    }

    #[test]
    fn a_new_process_is_judged_anew() {
        let mut results = results(60);
        assert_eq!((results.requests, results.rounds, results.judged(64.0)[0].is_leak()), (1200, 60, true));
        results.begin_series();
        assert_eq!(results.judged(64.0)[0].trend.growth, TrendGrowth::Unknown);
    }

    #[test]
    fn slowing_down_is_reported_in_per_cent() {
        assert_eq!(results(100).slower_percent(), Some(20.0));
        assert_eq!(results(5).slower_percent(), None);
    }
}
