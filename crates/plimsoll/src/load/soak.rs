//! Holds load on a server, round after round, and looks at it in between.

use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::answer::Failure;
use super::client::Client;
use super::figures::Figures;
use super::rounds::Round;
use super::server::Server;
use super::state::{State, StateError};

/// What servers give back after an answer is back by then.
const CALM: Duration = Duration::from_millis(20);
/// So often the cards' temperature and clocks are read.
const FEEL_EVERY: Duration = Duration::from_secs(1);
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Rounds without one answer, after which nobody is there any more; and the pause before another try.
const MOST_EMPTY_ROUNDS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// When it is enough. What a resumed state has done already counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    pub(crate) time: Option<Duration>,
    pub(crate) requests: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) limit: Limit,
    pub(crate) round: Round,
    pub(crate) clients: usize,
    /// How long one answer may take.
    pub(crate) patience: Duration,
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SoakError {
    #[error(
        "{target} does not answer a first request: {failure}\nhint: is the server up, and is `{model}` one of its models?"
    )]
    First {
        target: String,
        model: String,
        failure: Failure,
    },
    #[error(transparent)]
    State(#[from] StateError),
}

impl Limit {
    fn is_reached(&self, state: &State, held: Duration) -> bool {
        self.time.is_some_and(|time| held >= time) || self.requests.is_some_and(|most| state.requests >= most)
    }

    fn left(&self, state: &State) -> u64 {
        self.requests
            .map_or(u64::MAX, |most| most.saturating_sub(state.requests))
    }
}

/// Holds load until the limit, Ctrl-C, or the server's end. `progress` hears of every round.
pub(crate) async fn soak(
    server: &Server,
    settings: &Settings,
    mut figures: Figures,
    mut state: State,
    progress: &mut dyn FnMut(&State),
) -> Result<State, SoakError> {
    state.broke_off = false;
    server
        .begin(settings.patience)
        .await
        .map_err(|failure| SoakError::First {
            target: server.target.to_string(),
            model: server.model.clone(),
            failure,
        })?;
    let round = Round {
        yardstick: server.yardstick(settings.patience).await,
        ..settings.round.clone()
    };
    figures.follow(server).await;
    state.begin_series_of_another(&figures);
    let mut clients: Vec<Client> = (0..settings.clients)
        .map(|_| server.client(settings.patience))
        .collect();
    let (start, before) = (Instant::now(), Duration::from_millis(state.held_ms));
    let (mut saved, mut empty) = (Instant::now(), 0);
    let mut feel = interval(FEEL_EVERY);
    feel.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // One for all rounds, so that none between two of them is missed.
    let mut stop = pin!(stopped());
    while !settings.limit.is_reached(&state, before + start.elapsed()) {
        let left = settings.limit.left(&state);
        let mut work = pin!(round.hold(clients, &server.model, state.rounds, left));
        let done = loop {
            tokio::select! {
                done = &mut work => break Some(done),
                // While they are at work: an idle card is neither warm nor slow.
                _ = feel.tick() => state.feel(figures.feel(server).await),
                () = &mut stop => break None,
            }
        };
        let Some((back, tally)) = done else {
            state.note("stopped by hand".to_owned());
            break;
        };
        clients = back;
        empty = if tally.answered == 0 { empty + 1 } else { 0 };
        state.add(tally);
        sleep(CALM).await;
        if figures.follow(server).await {
            state.note("the server is another process now; what is judged begins here".to_owned());
            state.begin_series();
            state.process = named(&figures);
        }
        state.see(figures.look(server).await);
        state.held_ms = u64::try_from((before + start.elapsed()).as_millis()).unwrap_or(u64::MAX);
        progress(&state);
        if empty >= MOST_EMPTY_ROUNDS {
            state.note("the server does not answer any more".to_owned());
            state.broke_off = true;
            break;
        }
        if empty > 0 {
            sleep(PAUSE).await;
        }
        if let Some(path) = settings.state.as_ref().filter(|_| saved.elapsed() >= SAVE_EVERY) {
            state.save(path)?;
            saved = Instant::now();
        }
    }
    if let Some(path) = &settings.state {
        state.save(path)?;
    }
    Ok(state)
}

/// Ctrl-C, or SIGTERM.
pub(crate) async fn stopped() {
    let terminated = async {
        match unix::signal(SignalKind::terminate()) {
            Ok(mut terminated) => terminated.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = signal::ctrl_c() => {}
        _ = terminated => {}
    }
}

impl State {
    /// A state that is resumed may be of a process that has ended since.
    fn begin_series_of_another(&mut self, figures: &Figures) {
        let now = named(figures);
        if self.rounds > 0 && self.process != now {
            self.note("resumed with another process; what is judged begins here".to_owned());
            self.begin_series();
        }
        self.process = now;
    }
}

/// Which process is looked at, in a form that can be saved.
fn named(figures: &Figures) -> Option<String> {
    figures.process().map(|process| format!("{process:?}"))
}
