//! Added latency: one request to every target a round, in random order, over kept connections.

use std::time::Duration;

use serde::Serialize;

use crate::client::Connection;
use crate::numbers::{Shuffle, microseconds, per, percentile, sorted};
use crate::process::cpu_time;
use crate::requests;
use crate::run::{RunError, Target};

/// Name, length of the body, and the divisor of the number of rounds.
const SIZES: [(&str, usize, u32); 3] = [("400 B", 400, 1), ("200 KB", 200_000, 4), ("2 MB", 2_000_000, 20)];
const WARM_UP_ROUNDS: u32 = 20;

#[derive(Debug, Serialize)]
pub(crate) struct Paired {
    pub(crate) target: String,
    pub(crate) prompt: &'static str,
    pub(crate) rounds: u32,
    pub(crate) p50_us: f64,
    /// Differences from the direct path in the same round; none for the direct path itself.
    pub(crate) added_p50_us: Option<f64>,
    pub(crate) added_p99_us: Option<f64>,
    pub(crate) cpu_us_per_request: f64,
}

/// The first target is the direct path.
pub(crate) fn measure(targets: &[Target], rounds: u32) -> Result<Vec<Paired>, RunError> {
    let mut results = Vec::new();
    for (prompt, bytes, divisor) in SIZES {
        let rounds = (rounds / divisor).max(1);
        let request = requests::chat("alpha", bytes);
        let mut lines = targets
            .iter()
            .map(|target| target.talk(Connection::open(target.address)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut shuffle = Shuffle::new();
        for _ in 0..WARM_UP_ROUNDS.min(rounds) {
            round(targets, &mut lines, &request, &mut shuffle)?;
        }
        let before: Vec<Duration> = targets.iter().map(|target| cpu_time(&target.pids)).collect();
        let mut times = Vec::with_capacity(usize::try_from(rounds).unwrap_or(0));
        for _ in 0..rounds {
            times.push(round(targets, &mut lines, &request, &mut shuffle)?);
        }
        for (number, target) in targets.iter().enumerate() {
            let cpu = cpu_time(&target.pids).saturating_sub(before[number]);
            results.push(Paired {
                prompt,
                rounds,
                ..summary(target, number, &times, cpu)
            });
        }
    }
    Ok(results)
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

fn summary(target: &Target, number: usize, times: &[Vec<Duration>], cpu: Duration) -> Paired {
    let own = sorted(times.iter().map(|round| microseconds(round[number])).collect());
    let added = sorted(
        times
            .iter()
            .map(|round| microseconds(round[number]) - microseconds(round[0]))
            .collect(),
    );
    let is_direct = number == 0;
    Paired {
        target: target.name.clone(),
        prompt: "",
        rounds: 0,
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
    fn what_is_added_is_the_difference_within_a_round() {
        let micros = Duration::from_micros;
        let times = [[10, 15], [100, 104], [20, 26]].map(|round| round.map(micros).to_vec());
        let target = Target {
            name: "x".to_owned(),
            address: ([127, 0, 0, 1], 1).into(),
            pids: Vec::new(),
        };
        let summary = summary(&target, 1, &times, micros(30));
        assert!((summary.added_p50_us.unwrap() - 5.0).abs() < 1e-6);
        assert!((summary.cpu_us_per_request - 10.0).abs() < 1e-6);
    }
}
