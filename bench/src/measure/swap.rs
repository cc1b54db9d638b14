//! Measurement of the time to swap models: two models that load instantly, memory for one, requested in turn.

use std::time::Duration;

use serde::Serialize;

use crate::client::Connection;
use crate::numbers::{microseconds, percentile};
use crate::proxies::Plimsoll;
use crate::requests;
use crate::run::{RunError, Target};

const SWAPS: usize = 30;

#[derive(Debug, Serialize)]
pub(crate) struct Swap {
    pub(crate) swaps: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The same request when its model is already there.
    pub(crate) warm_p50_ms: f64,
}

pub(crate) fn measure(plimsoll: &Plimsoll<'_>) -> Result<Swap, RunError> {
    let mut server = plimsoll.spawn(&["alpha", "beta"], false)?;
    server.wait_ready()?;
    let target = Target { name: "plimsoll".to_owned(), address: server.address, pids: server.family() };
    let mut line = target.talk(Connection::open(server.address))?;
    let mut ask = |model: &str| {
        let (reply, time) = target.talk(line.exchange(&requests::chat(model, 400)))?;
        target.insist(reply.status, "swap request")?;
        Ok::<Duration, RunError>(time)
    };
    ask("beta")?;
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for number in 0..SWAPS {
        let model = if number % 2 == 0 { "alpha" } else { "beta" };
        cold.push(ask(model)?);
        warm.push(ask(model)?);
    }
    cold.sort_unstable();
    warm.sort_unstable();
    let of = |times: &[Duration], percent| percentile(times, percent).map_or(0.0, microseconds) / 1e3;
    Ok(Swap { swaps: SWAPS, p50_ms: of(&cold, 50), p99_ms: of(&cold, 99), warm_p50_ms: of(&warm, 50) })
}
