//! Measurement of the start-up time of `plimsoll serve`, from its spawn to its first healthy response, and of
//! its memory while idle.

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
    pub(crate) starts: usize,
    pub(crate) first_health_p50_ms: f64,
    pub(crate) first_health_worst_ms: f64,
    pub(crate) idle_rss_kib: u64,
}

pub(crate) fn measure(plimsoll: &Plimsoll<'_>) -> Result<Startup, RunError> {
    let mut times = Vec::with_capacity(STARTS);
    let mut idle_rss_kib = 0;
    for number in 0..STARTS {
        let mut server = plimsoll.spawn(&["alpha"], false)?;
        times.push(server.wait_ready()?);
        if number == 0 {
            thread::sleep(SETTLE);
            idle_rss_kib = resident_kib(&server.family());
        }
    }
    times.sort_unstable();
    let of = |percent| percentile(&times, percent).map_or(0.0, microseconds) / 1e3;
    Ok(Startup { starts: STARTS, first_health_p50_ms: of(50), first_health_worst_ms: of(100), idle_rss_kib })
}
