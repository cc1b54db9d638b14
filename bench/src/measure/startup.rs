//! Measures the start-up time of `plimsoll serve`, from its spawn to its first healthy response, and its
//! memory while idle.

use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::numbers::{microseconds, percentile};
use crate::process::resident_kib;
use crate::proxies::Plimsoll;
use crate::run::RunError;

const STARTS: usize = 10;
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize)]
pub(crate) struct Startup {
    pub(crate) target: String,
    pub(crate) starts: usize,
    pub(crate) first_health_p50_ms: f64,
    pub(crate) first_health_worst_ms: f64,
    pub(crate) idle_rss_kib: u64,
}

/// Of each build; the builds start in turns, so that other processes disturb all of them alike.
pub(crate) fn measure(builds: &[Plimsoll<'_>]) -> Result<Vec<Startup>, RunError> {
    let mut times = vec![Vec::with_capacity(STARTS); builds.len()];
    for _ in 0..STARTS {
        for (build, times) in builds.iter().zip(&mut times) {
            times.push(build.spawn(&["alpha"], false)?.wait_ready()?);
        }
    }
    builds.iter().zip(times).map(|(build, times)| result(build, times)).collect()
}

fn result(build: &Plimsoll<'_>, mut times: Vec<Duration>) -> Result<Startup, RunError> {
    let server = build.ready(&["alpha"], false)?;
    thread::sleep(SETTLE);
    times.sort_unstable();
    let of = |percent| percentile(&times, percent).map_or(0.0, microseconds) / 1e3;
    Ok(Startup {
        target: build.name.to_owned(),
        starts: STARTS,
        first_health_p50_ms: of(50),
        first_health_worst_ms: of(100),
        idle_rss_kib: resident_kib(&server.family()),
    })
}
