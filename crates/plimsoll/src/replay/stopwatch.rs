//! Timing of an allocator policy's calls.

use std::time::{Duration, Instant};

use plimsoll_pool::replay::{PolicyKind, Watch, replay};
use plimsoll_pool::trace::Trace;
use serde::Serialize;

// An interrupt must not decide the result, and with seven passes at least one is likely to be quiet.
const PASSES: usize = 7;
/// Number of steps from which one pass suffices.
const LONG: usize = 1 << 20;

/// Nanoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) mean: f64,
}

/// The times of the quietest of a few passes; `None` for an empty trace.
pub(super) fn times(trace: &Trace, kind: PolicyKind, budget: u64) -> Option<Times> {
    // DECISION: each call is timed separately, minus the overhead of reading the clock. The replay is
    // repeated, and the fastest pass is reported. Calls to the simulated driver are included.
    let steps = trace.steps().len();
    // Seven passes of a long trace would take minutes; its percentiles are stable after one.
    let passes = if steps > LONG { 1 } else { PASSES };
    let clock = clock_cost();
    let pass = |_| {
        let mut stopwatch = Stopwatch::new(steps);
        replay(trace, kind, budget, &mut stopwatch);
        stopwatch.times(clock)
    };
    // By p99 and not by the mean, because interrupts show in the tail first.
    (0..passes).filter_map(pass).min_by_key(|times| times.p99)
}

/// Median of the time between two consecutive clock readings.
fn clock_cost() -> Duration {
    let mut costs: Vec<Duration> = (0..4096).map(|_| Instant::now().elapsed()).collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

struct Stopwatch {
    begun: Instant,
    spent: Vec<Duration>,
}

impl Stopwatch {
    fn new(calls: usize) -> Self {
        Self {
            begun: Instant::now(),
            // Allocated before the first call: a growing vector would show up in the times.
            spent: Vec::with_capacity(calls),
        }
    }

    fn times(self, clock: Duration) -> Option<Times> {
        // A call can be quicker than the median clock cost, so the difference must not wrap.
        let nanoseconds = |spent: Duration| u64::try_from(spent.saturating_sub(clock).as_nanos()).ok();
        let mut spent: Vec<u64> = self.spent.into_iter().filter_map(nanoseconds).collect();
        spent.sort_unstable();
        let at = |percent: usize| spent.get(spent.len() * percent / 100).copied();
        let sum = Duration::from_nanos(spent.iter().sum());
        let calls = u32::try_from(spent.len()).ok().filter(|&calls| calls > 0)?;
        Some(Times {
            p50: at(50)?,
            p99: at(99)?,
            mean: (sum.as_secs_f64() * 1e10 / f64::from(calls)).round() / 10.0,
        })
    }
}

impl Watch for Stopwatch {
    fn begin(&mut self) {
        self.begun = Instant::now();
    }

    fn end(&mut self) {
        self.spent.push(self.begun.elapsed());
    }
}
