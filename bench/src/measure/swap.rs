//! Measures the time to swap models: two models that load instantly are requested in turn, with memory for
//! one.

use std::time::Duration;

use serde::Serialize;

use crate::client::Connection;
use crate::numbers::{microseconds, percentile};
use crate::process::Server;
use crate::proxies::Plimsoll;
use crate::requests;
use crate::run::{RunError, Target};

const SWAPS: usize = 30;

#[derive(Debug, Serialize)]
pub(crate) struct Swap {
    pub(crate) target: String,
    pub(crate) swaps: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The same request when its model is already there.
    pub(crate) warm_p50_ms: f64,
}

/// Of each build; the builds swap in turns, so that other processes disturb all of them alike.
pub(crate) fn measure(builds: &[Plimsoll<'_>]) -> Result<Vec<Swap>, RunError> {
    let mut pairs = builds.iter().map(Pair::start).collect::<Result<Vec<_>, _>>()?;
    for number in 0..SWAPS {
        let model = if number % 2 == 0 { "alpha" } else { "beta" };
        pairs.iter_mut().try_for_each(|pair| pair.swap(model))?;
    }
    Ok(pairs.into_iter().map(Pair::result).collect())
}

/// A build that serves two models, and the times of its swaps.
struct Pair {
    target: Target,
    line: Connection,
    cold: Vec<Duration>,
    warm: Vec<Duration>,
    _server: Server,
}

impl Pair {
    fn start(build: &Plimsoll<'_>) -> Result<Self, RunError> {
        let server = build.ready(&["alpha", "beta"], false)?;
        let target = Target::of(build.name, &server);
        let line = target.talk(Connection::open(server.address))?;
        let mut pair = Self { target, line, cold: Vec::new(), warm: Vec::new(), _server: server };
        pair.ask("beta")?;
        Ok(pair)
    }

    fn ask(&mut self, model: &str) -> Result<Duration, RunError> {
        let answer = self.line.exchange(&requests::chat(model, 400));
        let (reply, time) = self.target.talk(answer)?;
        self.target.insist(reply.status, "swap request")?;
        Ok(time)
    }

    fn swap(&mut self, model: &str) -> Result<(), RunError> {
        let cold = self.ask(model)?;
        self.cold.push(cold);
        let warm = self.ask(model)?;
        self.warm.push(warm);
        Ok(())
    }

    fn result(mut self) -> Swap {
        self.cold.sort_unstable();
        self.warm.sort_unstable();
        let of = |times: &[Duration], percent| percentile(times, percent).map_or(0.0, microseconds) / 1e3;
        Swap {
            target: self.target.name,
            swaps: SWAPS,
            p50_ms: of(&self.cold, 50),
            p99_ms: of(&self.cold, 99),
            warm_p50_ms: of(&self.warm, 50),
        }
    }
}
