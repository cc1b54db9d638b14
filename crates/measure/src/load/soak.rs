//! Soak test: repeats rounds of requests and measures memory after each, to find memory leaks.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::answer::LoadFailure;
use super::client::Client;
use super::figures::Figures;
use super::results::SoakResults;
use super::rounds::Round;
use super::server::LoadTarget;

/// Time for a server to release memory after an answer.
const CALM: Duration = Duration::from_millis(20);
/// Interval of progress reports during a round.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);
/// Readings of a test whose rounds are paced; a verdict needs about half of them.
const READINGS: u32 = 40;
/// Pause after a round without an answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Limit at which the test ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoakLimit {
    pub time: Option<Duration>,
    pub requests: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct SoakSettings {
    pub limit: SoakLimit,
    pub round: Round,
    /// Shorten the rounds of a short test, so that it has enough readings for a verdict.
    pub paced: bool,
    pub clients: usize,
    /// Time limit of one answer.
    pub patience: Duration,
    /// Time without any answer after which the test ends.
    pub give_up: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{target} does not answer a first request: {failure}\nhint: is the server up, is `{model}` one of its models, and does it stream its answers?"
)]
pub struct SoakError {
    target: String,
    model: String,
    failure: LoadFailure,
}

impl SoakLimit {
    fn is_reached(&self, results: &SoakResults, occupied: Duration) -> bool {
        self.time.is_some_and(|time| occupied >= time)
            || self.requests.is_some_and(|most| results.requests >= most)
    }

    fn left(&self, results: &SoakResults) -> u64 {
        self.requests.map_or(u64::MAX, |most| most.saturating_sub(results.requests))
    }

    /// The requests of a round that takes its part of both limits, of the time by the pace so far.
    fn paced(&self, results: &SoakResults, occupied: Duration, clients: usize) -> u64 {
        let least = u64::try_from(clients).unwrap_or(u64::MAX);
        let of_time = |time: Duration| {
            let part = u128::from(results.requests) * (time / READINGS).as_millis();
            u64::try_from(part / occupied.as_millis().max(1)).unwrap_or(u64::MAX)
        };
        let of_requests = self.requests.map_or(u64::MAX, |most| most / u64::from(READINGS));
        self.time.map_or(u64::MAX, of_time).min(of_requests).max(least)
    }
}

/// Runs rounds until the limit, Ctrl-C, or the end of the server. `progress` is called after each round, and
/// each second during one.
pub async fn soak(
    server: &LoadTarget,
    settings: &SoakSettings,
    mut figures: Figures,
    progress: &mut dyn FnMut(&SoakResults),
) -> Result<SoakResults, SoakError> {
    let begun = server.begin(settings.patience).await;
    begun.map_err(|failure| SoakError {
        target: server.target.to_string(),
        model: server.model.clone(),
        failure,
    })?;
    // Measured once per run: another yardstick would change the prompts between rounds.
    let round = Round { yardstick: server.yardstick(settings.patience).await, ..settings.round.clone() };
    figures.follow(server).await;
    let results = SoakResults::new(server.target.to_string(), server.model.clone());
    let mut soaking = SoakRun { server, figures, results, start: Instant::now(), progress };
    soaking.hold(settings, &round).await;
    Ok(soaking.results)
}

/// A soak test in progress.
struct SoakRun<'a> {
    server: &'a LoadTarget,
    figures: Figures,
    results: SoakResults,
    start: Instant,
    progress: &'a mut dyn FnMut(&SoakResults),
}

impl SoakRun<'_> {
    async fn hold(&mut self, settings: &SoakSettings, round: &Round) {
        let clients = (0..settings.clients).map(|_| self.server.client(settings.patience));
        let mut clients: Vec<Client> = clients.collect();
        let mut answered = Instant::now();
        // Created outside the loop: a signal between two rounds would be missed otherwise.
        let (mut stop, mut ticks) = (pin!(stopped()), interval(NOTIFY_EVERY));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !settings.limit.is_reached(&self.results, self.start.elapsed()) {
            let mut left = settings.limit.left(&self.results);
            if settings.paced {
                left = left.min(settings.limit.paced(&self.results, self.start.elapsed(), settings.clients));
            }
            let work = round.hold(clients, &self.server.model, self.results.rounds, left);
            let Some((back, tally)) = self.watch(work, &mut ticks, &mut stop).await else {
                // A round that is cut short is not counted: its requests would make the measurement
                // incomparable.
                self.results.note("stopped by hand".to_owned());
                break;
            };
            clients = back;
            let is_empty = tally.answered == 0;
            if !is_empty {
                answered = Instant::now();
            }
            self.results.add(tally);
            // Measured after an empty round too: a server that refuses may still be leaking.
            self.look().await;
            // Nothing more is asked of a server that failed the whole last round.
            let is_last = settings.limit.is_reached(&self.results, self.start.elapsed());
            if answered.elapsed() >= settings.give_up || (is_empty && is_last) {
                self.results.note("the server no longer answers".to_owned());
                self.results.broke_off = true;
                break;
            }
            if is_empty {
                sleep(PAUSE).await;
            }
        }
    }

    /// Runs one round and reports progress meanwhile. `None` if the test is stopped.
    async fn watch<T>(
        &mut self,
        work: impl Future<Output = T>,
        ticks: &mut Interval,
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                _ = ticks.tick() => self.notify(),
                () = &mut *stop => return None,
            }
        }
    }

    /// Measures memory with no request in flight.
    async fn look(&mut self) {
        // The last event can arrive before the server has released what the request held.
        sleep(CALM).await;
        if self.figures.follow(self.server).await {
            // Two processes have different baselines; a trend across both would be meaningless.
            let note = "the engine runs in a new process; the analysis starts again from this measurement";
            self.results.note(note.to_owned());
            self.results.begin_series();
        }
        self.results.see(self.figures.look(self.server).await);
        self.notify();
    }

    fn notify(&mut self) {
        self.results.occupied_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        (self.progress)(&self.results);
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn stopped() {
    let terminated = async {
        match unix::signal(SignalKind::terminate()) {
            Ok(mut terminated) => terminated.recv().await,
            // Without the handler the default action ends the process, so nothing has to be waited for.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = signal::ctrl_c() => {}
        _ = terminated => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_a_short_test_take_a_fortieth_of_its_time() {
        let limit = |seconds| SoakLimit { time: Some(Duration::from_secs(seconds)), requests: None };
        let mut results = SoakResults::new(String::new(), String::new());
        let paced = |limit: SoakLimit, results: &SoakResults, occupied| {
            limit.paced(results, Duration::from_secs(occupied), 4)
        };
        assert_eq!(paced(limit(60), &results, 0), 4, "a first round shows the pace");
        results.requests = 100;
        assert_eq!(paced(limit(60), &results, 10), 15);
        assert_eq!(paced(limit(60), &results, 1000), 4);
        assert_eq!(paced(limit(8 * 3600), &results, 10), 7200);
        assert_eq!(paced(SoakLimit::default(), &results, 10), u64::MAX);
    }
}
