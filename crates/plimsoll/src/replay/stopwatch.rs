//! Timing of a policy's bookkeeping.
//!
//! DECISION: each call is timed by itself with the monotonic clock, and the median cost of reading that clock
//! twice with nothing between is taken off every time. The replay's own work is outside. What is left of the
//! clock is its noise, so several passes are made and the quietest is reported. The simulated driver is
//! inside: it is called as rarely as the policy calls a real one.

use std::time::{Duration, Instant};

use plimsoll_pool::replay::{PolicyKind, Watch, replay};
use plimsoll_pool::trace::Trace;
use serde::Serialize;

const PASSES: usize = 7;
/// A trace of more steps is long enough for one pass.
const LONG: usize = 1 << 20;

/// Nanoseconds that one call takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) mean: f64,
}

/// The times of the quietest of a few passes; `None` for an empty trace.
pub(super) fn times(trace: &Trace, kind: PolicyKind, budget: u64) -> Option<Times> {
    let steps = trace.steps().len();
    // Seven passes of a long trace would take minutes; its percentiles are stable after one.
    let passes = if steps > LONG { 1 } else { PASSES };
    let clock = clock_cost();
    let pass = |_| {
        let mut stopwatch = Stopwatch::new(steps);
        replay(trace, kind, budget, &mut stopwatch);
        stopwatch.times(clock)
    };
    (0..passes).filter_map(pass).min_by_key(|times| times.p99)
}

/// Measures the cost of reading the clock.
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
            spent: Vec::with_capacity(calls),
        }
    }

    fn times(self, clock: Duration) -> Option<Times> {
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
