//! Measures request throughput: 8 or 64 connections, each with one request in flight, in short slices that
//! alternate between the servers under test.

use std::time::Duration;

use serde::Serialize;

use crate::cpu::CpuClock;
use crate::crowd;
use crate::crowd::{Load, Until};
use crate::numbers::{microseconds, per, percentile, rate};
use crate::requests;
use crate::run::{RunError, Target};

const CONNECTIONS: [usize; 2] = [8, 64];

#[derive(Debug, Serialize)]
pub(crate) struct Throughput {
    pub(crate) target: String,
    pub(crate) connections: usize,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_us_per_request: f64,
    pub(crate) failures: u64,
}

#[derive(Debug, Default)]
struct Sum {
    wall: Duration,
    cpu: Duration,
    latencies: Vec<Duration>,
    failures: u64,
}

pub(crate) fn measure(
    targets: &[Target],
    slice: Duration,
    repeats: u32,
) -> Result<Vec<Throughput>, RunError> {
    let request = requests::chat("alpha", 400);
    let mut results = Vec::new();
    for connections in CONNECTIONS {
        let mut sums: Vec<Sum> = targets.iter().map(|_| Sum::default()).collect();
        for _ in 0..repeats {
            for (target, sum) in targets.iter().zip(&mut sums) {
                let until = Until::Time(slice);
                let load = Load { address: target.address, request: &request, connections, until };
                sum.add(target, load)?;
            }
        }
        results.extend(targets.iter().zip(sums).map(|(target, sum)| sum.result(target, connections)));
    }
    Ok(results)
}

impl Sum {
    fn add(&mut self, target: &Target, load: Load<'_>) -> Result<(), RunError> {
        let clock = CpuClock::start(&target.pids);
        let outcome = target.talk(crowd::run(load))?;
        self.cpu += clock.spent();
        self.wall += outcome.wall;
        self.failures += outcome.failures;
        self.latencies.extend(outcome.latencies);
        Ok(())
    }

    fn result(mut self, target: &Target, connections: usize) -> Throughput {
        self.latencies.sort_unstable();
        let requests = u64::try_from(self.latencies.len()).unwrap_or(u64::MAX);
        let latency = |percent| percentile(&self.latencies, percent).map_or(0.0, microseconds);
        Throughput {
            target: target.name.clone(),
            connections,
            requests,
            requests_per_second: rate(requests, self.wall),
            p50_us: latency(50),
            p99_us: latency(99),
            cpu_us_per_request: per(microseconds(self.cpu), requests),
            failures: self.failures,
        }
    }
}
