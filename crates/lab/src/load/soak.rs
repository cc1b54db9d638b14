//! Soak test, a load test for memory leaks: repeated load rounds with a memory measurement after each.

use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::answer::LoadFailure;
use super::client::Client;
use super::figures::Figures;
use super::rounds::Round;
use super::server::LoadTarget;
use super::state::{RouterState, StateError};

/// Time for a server to release memory after an answer.
const CALM: Duration = Duration::from_millis(20);
/// Interval between readings of the cards' temperature and clocks.
const FEEL_EVERY: Duration = Duration::from_secs(1);
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Pause after a round without an answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Limit at which the test ends. Work of a resumed state counts too.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoakLimit {
    pub time: Option<Duration>,
    pub requests: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct SoakSettings {
    pub limit: SoakLimit,
    pub round: Round,
    pub clients: usize,
    /// Time limit of one answer.
    pub patience: Duration,
    /// Time without any answer after which the test ends.
    pub give_up: Duration,
    pub state: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    #[error(
        "{target} does not answer a first request: {failure}\nhint: is the server up, and is `{model}` one of its models?"
    )]
    First { target: String, model: String, failure: LoadFailure },
    #[error(transparent)]
    State(#[from] StateError),
}

impl SoakLimit {
    fn is_reached(&self, state: &RouterState, held: Duration) -> bool {
        self.time.is_some_and(|time| held >= time) || self.requests.is_some_and(|most| state.requests >= most)
    }

    fn left(&self, state: &RouterState) -> u64 {
        self.requests.map_or(u64::MAX, |most| most.saturating_sub(state.requests))
    }
}

/// Runs rounds until the limit, Ctrl-C, or the end of the server. `progress` is called after each round, and
/// each second during one.
pub async fn soak(
    server: &LoadTarget,
    settings: &SoakSettings,
    mut figures: Figures,
    mut state: RouterState,
    progress: &mut dyn FnMut(&RouterState),
) -> Result<RouterState, SoakError> {
    // A resumed state may have ended with this flag; it describes the last run only.
    state.broke_off = false;
    let begun = server.begin(settings.patience).await;
    begun.map_err(|failure| SoakError::First {
        target: server.target.to_string(),
        model: server.model.clone(),
        failure,
    })?;
    // Measured once per run: another yardstick would change the prompts between rounds.
    let round = Round { yardstick: server.yardstick(settings.patience).await, ..settings.round.clone() };
    figures.follow(server).await;
    state.begin_series_of_another(&figures);
    let mut soaking = SoakRun {
        server,
        figures,
        before: Duration::from_millis(state.held_ms),
        state,
        start: Instant::now(),
        progress,
    };
    soaking.hold(settings, &round).await?;
    if let Some(path) = &settings.state {
        soaking.state.save(path)?;
    }
    Ok(soaking.state)
}

/// A soak test in progress.
struct SoakRun<'a> {
    server: &'a LoadTarget,
    figures: Figures,
    state: RouterState,
    start: Instant,
    /// Time of earlier runs of a resumed state.
    before: Duration,
    progress: &'a mut dyn FnMut(&RouterState),
}

impl SoakRun<'_> {
    async fn hold(&mut self, settings: &SoakSettings, round: &Round) -> Result<(), StateError> {
        let clients = (0..settings.clients).map(|_| self.server.client(settings.patience));
        let mut clients: Vec<Client> = clients.collect();
        let (mut saved, mut answered) = (None::<Instant>, Instant::now());
        // Created outside the loop: a signal between two rounds would be missed otherwise.
        let (mut stop, mut feel) = (pin!(stopped()), interval(FEEL_EVERY));
        // A stalled machine must not be sampled in a burst: equal readings would weigh several times.
        feel.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !settings.limit.is_reached(&self.state, self.before + self.start.elapsed()) {
            let left = settings.limit.left(&self.state);
            let work = round.hold(clients, &self.server.model, self.state.rounds, left, None);
            let Some((back, tally)) = self.watch(work, &mut feel, &mut stop).await else {
                // A round that is cut short is not counted: its requests would make the measurement
                // incomparable.
                self.state.note("stopped by hand".to_owned());
                break;
            };
            clients = back;
            let is_empty = tally.answered == 0;
            if !is_empty {
                answered = Instant::now();
            }
            self.state.add(tally);
            // Measured after an empty round too: a server that refuses may still be leaking.
            self.look().await;
            if answered.elapsed() >= settings.give_up {
                self.state.note("the server no longer answers".to_owned());
                self.state.broke_off = true;
                break;
            }
            if is_empty {
                sleep(PAUSE).await;
            }
            // Saving after each round would write the whole state several times a second with short prompts.
            let is_due = saved.is_none_or(|saved| saved.elapsed() >= SAVE_EVERY);
            if let Some(path) = settings.state.as_ref().filter(|_| is_due) {
                self.state.save(path)?;
                saved = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Runs one round and reads the card sensors meanwhile, since an idle card cools down and lowers its
    /// clocks. `None` if the test is stopped.
    async fn watch<T>(
        &mut self,
        work: impl Future<Output = T>,
        feel: &mut Interval,
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                _ = feel.tick() => {
                    self.state.feel(self.figures.feel(self.server).await);
                    self.tell();
                }
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
            let note = "the server runs in a new process; the analysis starts again from this measurement";
            self.state.note(note.to_owned());
            self.state.begin_series();
            self.state.process = named(&self.figures);
        }
        self.state.see(self.figures.look(self.server).await);
        self.tell();
    }

    fn tell(&mut self) {
        let held = self.before + self.start.elapsed();
        self.state.held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        (self.progress)(&self.state);
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub async fn stopped() {
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

impl RouterState {
    /// Starts a new series if the process has changed since the state was saved.
    fn begin_series_of_another(&mut self, figures: &Figures) {
        let now = named(figures);
        if self.rounds > 0 && self.process != now {
            self.note(
                "the test was resumed with another server process; the analysis starts again from \
                this measurement"
                    .to_owned(),
            );
            self.begin_series();
        } else if self.rounds > 0 {
            self.note("resumed".to_owned());
        }
        self.process = now;
    }
}

/// The measured process, in a form that can be saved.
fn named(figures: &Figures) -> Option<String> {
    // The debug form holds the start time beside the pid, which tells a reused pid from the same process.
    figures.process().map(|process| format!("{process:?}"))
}
