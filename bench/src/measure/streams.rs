//! Measures streaming throughput: 64 streams at once, with 256 events each, without pauses. The events that
//! arrive are counted.

use std::time::Duration;

use serde::Serialize;

use crate::cpu::CpuClock;
use crate::crowd;
use crate::crowd::{Load, Until};
use crate::numbers::{microseconds, per};
use crate::proxies::{EVENTS, FRAMING_EVENTS};
use crate::requests;
use crate::run::{RunError, Target};

const STREAMS: u64 = 64;
const EVENTS_A_RUN: u64 = STREAMS * (EVENTS + FRAMING_EVENTS);

#[derive(Debug, Serialize)]
pub(crate) struct Streams {
    pub(crate) target: String,
    /// Of the fastest repetition: neighbours only ever add.
    pub(crate) wall_ms: f64,
    pub(crate) cpu_us_per_event: f64,
    pub(crate) events_lost: u64,
    pub(crate) failures: u64,
}

pub(crate) fn measure(targets: &[Target], repeats: u32) -> Result<Vec<Streams>, RunError> {
    let empty = |target: &Target| Streams {
        target: target.name.clone(),
        wall_ms: f64::INFINITY,
        cpu_us_per_event: 0.0,
        events_lost: 0,
        failures: 0,
    };
    let mut results: Vec<Streams> = targets.iter().map(empty).collect();
    for _ in 0..repeats {
        for (target, result) in targets.iter().zip(&mut results) {
            let cpu = repeat(target, result)?;
            result.cpu_us_per_event += per(microseconds(cpu), EVENTS_A_RUN) / f64::from(repeats);
        }
    }
    Ok(results)
}

fn repeat(target: &Target, result: &mut Streams) -> Result<Duration, RunError> {
    let request = requests::chat_stream("alpha", 400);
    let connections = usize::try_from(STREAMS).unwrap_or(usize::MAX);
    let load = Load { address: target.address, request: &request, connections, until: Until::Requests(1) };
    let clock = CpuClock::start(&target.pids);
    let outcome = target.talk(crowd::run(load))?;
    result.wall_ms = result.wall_ms.min(microseconds(outcome.wall) / 1e3);
    result.events_lost += EVENTS_A_RUN.saturating_sub(outcome.events);
    result.failures += outcome.failures;
    Ok(clock.spent())
}
