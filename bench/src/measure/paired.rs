//! Measures the latency that a proxy adds. In each round every server under test gets one request, in random
//! order, over a persistent connection.

use std::time::Duration;

use serde::Serialize;

use crate::client::Connection;
use crate::cpu::CpuClock;
use crate::numbers::{Shuffle, microseconds, per, percentile, sorted};
use crate::requests;
use crate::run::{RunError, Target};

/// How a request is made from a model's name and a length.
type Write = fn(&str, usize) -> Vec<u8>;

/// Name, request, length of the body, and the divisor of the number of rounds.
const PROMPTS: [(&str, Write, usize, u32); 4] = [
    ("400 B", requests::chat, 400, 1),
    ("200 KB", requests::chat, 200_000, 4),
    ("2 MB", requests::chat, 2_000_000, 4),
    ("2 MB, model first", requests::chat_model_first, 2_000_000, 4),
];
const WARM_UP_ROUNDS: u32 = 20;

#[derive(Debug, Serialize)]
pub(crate) struct Paired {
    pub(crate) target: String,
    pub(crate) prompt: &'static str,
    pub(crate) rounds: usize,
    pub(crate) p50_us: f64,
    /// Differences from the direct path in the same round; none for the direct path itself.
    pub(crate) added_p50_us: Option<f64>,
    pub(crate) added_p99_us: Option<f64>,
    pub(crate) cpu_us_per_request: f64,
}

/// The first target is the direct path.
pub(crate) fn measure(targets: &[Target], rounds: u32) -> Result<Vec<Paired>, RunError> {
    let mut results = Vec::new();
    for (prompt, write, bytes, divisor) in PROMPTS {
        let request = write("alpha", bytes);
        results.extend(measure_prompt(targets, prompt, &request, (rounds / divisor).max(1))?);
    }
    Ok(results)
}

fn measure_prompt(
    targets: &[Target],
    prompt: &'static str,
    request: &[u8],
    rounds: u32,
) -> Result<Vec<Paired>, RunError> {
    let open = |target: &Target| target.talk(Connection::open(target.address));
    let mut lines = targets.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut shuffle = Shuffle::new();
    let mut rounds_of = |count: u32| {
        let rounds = (0..count).map(|_| round(targets, &mut lines, request, &mut shuffle));
        rounds.collect::<Result<Vec<_>, _>>()
    };
    rounds_of(WARM_UP_ROUNDS.min(rounds))?;
    let clocks: Vec<CpuClock<'_>> = targets.iter().map(|target| CpuClock::start(&target.pids)).collect();
    let times = rounds_of(rounds)?;
    let spent: Vec<Duration> = clocks.iter().map(CpuClock::spent).collect();
    let summaries = targets.iter().zip(spent).enumerate();
    Ok(summaries.map(|(number, (target, cpu))| summary(target, prompt, number, &times, cpu)).collect())
}

/// The times of one round, in the order of the targets.
fn round(
    targets: &[Target],
    lines: &mut [Connection],
    request: &[u8],
    shuffle: &mut Shuffle,
) -> Result<Vec<Duration>, RunError> {
    let mut times = vec![Duration::ZERO; targets.len()];
    for number in shuffle.order(targets.len()) {
        let (reply, time) = targets[number].talk(lines[number].exchange(request))?;
        targets[number].insist(reply.status, "paired request")?;
        times[number] = time;
    }
    Ok(times)
}

fn summary(
    target: &Target,
    prompt: &'static str,
    number: usize,
    times: &[Vec<Duration>],
    cpu: Duration,
) -> Paired {
    let own = sorted(times.iter().map(|round| microseconds(round[number])).collect());
    let added =
        sorted(times.iter().map(|round| microseconds(round[number]) - microseconds(round[0])).collect());
    let is_direct = number == 0;
    Paired {
        target: target.name.clone(),
        prompt,
        rounds: times.len(),
        p50_us: percentile(&own, 50).unwrap_or_default(),
        added_p50_us: percentile(&added, 50).filter(|_| !is_direct),
        added_p99_us: percentile(&added, 99).filter(|_| !is_direct),
        cpu_us_per_request: per(microseconds(cpu), u64::try_from(times.len()).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_latency_is_the_difference_within_a_round() {
        let micros = Duration::from_micros;
        let times = [[10, 15], [100, 104], [20, 26]].map(|round| round.map(micros).to_vec());
        let target = Target { name: "x".to_owned(), address: ([127, 0, 0, 1], 1).into(), pids: Vec::new() };
        let summary = summary(&target, "400 B", 1, &times, micros(30));
        assert!((summary.added_p50_us.unwrap() - 5.0).abs() < 1e-6);
        assert!((summary.cpu_us_per_request - 10.0).abs() < 1e-6);
    }
}
