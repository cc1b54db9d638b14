//! Replays an allocation trace under several allocator policies, and compares their reserved memory and
//! failures.

use crate::replay::{Cause, PolicyKind, ReplayFailure, UNLIMITED, replay, smallest_budget};
use crate::trace::Trace;
use plimsoll_base::Bytes;
use plimsoll_pool::replay::GRANULE;
use serde::{Serialize, Serializer};

const SCHEMA: &str = "plimsoll.replay/1";

/// Result of a replay under several policies.
#[derive(Debug, Serialize)]
pub(crate) struct Replay {
    schema: &'static str,
    pub(crate) steps: usize,
    pub(crate) blocks: u32,
    /// Requests that the recorded allocator refused; the replay omits them.
    pub(crate) refused: u64,
    pub(crate) peak_live: Bytes,
    /// Lower bound for every allocator that maps whole granules.
    pub(crate) peak_live_in_granules: Bytes,
    pub(crate) budget: Option<Bytes>,
    pub(crate) policies: Vec<Replayed>,
}

/// Result of one policy.
#[derive(Debug, Serialize)]
pub(crate) struct Replayed {
    #[serde(serialize_with = "by_name")]
    pub(crate) policy: PolicyKind,
    pub(crate) peak_reserved: Bytes,
    /// Peak reserved for each byte of peak live.
    pub(crate) ratio: f64,
    pub(crate) driver_allocs: usize,
    driver_sizes: Vec<u64>,
    pub(crate) completed: bool,
    pub(crate) failure: Option<String>,
    pub(crate) smallest_budget: Option<Bytes>,
}

fn by_name<S: Serializer>(kind: &PolicyKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

impl Replay {
    /// Replays the trace over each policy; without a budget the simulated card is unlimited.
    pub(crate) fn of(trace: &Trace, policies: &[PolicyKind], budget: Option<Bytes>) -> Self {
        let limit = budget.map_or(UNLIMITED, Bytes::get);
        let peak_live = Bytes::new(trace.peak_live());
        Self {
            schema: SCHEMA,
            steps: trace.steps().len(),
            blocks: trace.blocks(),
            refused: trace.refused(),
            peak_live,
            peak_live_in_granules: peak_live.padded(GRANULE),
            budget,
            policies: policies.iter().map(|&policy| over(trace, policy, limit)).collect(),
        }
    }

    pub(crate) fn completed(&self) -> bool {
        self.policies.iter().all(|policy| policy.completed)
    }
}

fn over(trace: &Trace, policy: PolicyKind, budget: u64) -> Replayed {
    let outcome = replay(trace, policy, budget);
    Replayed {
        policy,
        peak_reserved: Bytes::new(outcome.peak_reserved),
        ratio: ratio(outcome.peak_reserved, trace.peak_live()),
        driver_allocs: outcome.driver_sizes.len(),
        // A policy that stops is still measured up to there, so that the table has no gaps.
        completed: outcome.completed(),
        failure: outcome.failure.map(|failure| stated(&failure)),
        // Independent of the given budget, so that the figure of two runs can be compared.
        smallest_budget: smallest_budget(trace, policy).map(Bytes::new),
        driver_sizes: outcome.driver_sizes,
    }
}

/// Describes a failed replay, with readable sizes.
fn stated(failure: &ReplayFailure) -> String {
    // Other causes carry no sizes, and their own text is already readable.
    let Cause::Refused { size, by } = failure.cause else {
        return failure.to_string();
    };
    let [size, requested, free, live, reserved] =
        [size, by.requested, by.free, failure.live, failure.reserved].map(Bytes::new);
    format!(
        "request {}: {size} were requested, {requested} of them from the driver, which had {free} free; in the \
        pool, {live} were in use and {reserved} were reserved",
        // Steps count from 0 in the code; the row of the CSV that a user looks up counts from 1.
        failure.step + 1
    )
}

/// Ratio rounded to four decimals; 1 if nothing was requested.
fn ratio(reserved: u64, live: u64) -> f64 {
    // Four decimals in integer arithmetic keep the JSON the same on every platform.
    let places = Bytes::new(reserved).scaled(10_000, live.max(1)).get();
    if live == 0 {
        return 1.0;
    }
    u32::try_from(places).map_or(f64::INFINITY, |places| f64::from(places) / 10_000.0)
}
