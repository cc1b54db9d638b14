//! Speed test of the scheduler: the time of an event with two hundred models, twenty of which fit, and forty
//! waiting clients.
//!
//! `cargo test --release -p plimsoll-scheduler --lib long_the_same_events -- --nocapture` prints the times.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use plimsoll_scheduler::{SchedulerEffect, SchedulerEvent};

use super::S;
use super::client::Client;
use super::machine::{Machine, Model, Scenario, moment};
use super::random::Random;

const MODELS: u32 = 200;
const CLIENTS: u64 = 40;
/// Runs of the same events: the machine has other things to do, so the best time of each event counts.
const RUNS: usize = 5;

/// The times of the events that a machine gives to its scheduler.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    times: Vec<(&'static str, Duration)>,
    /// Hash of all effects, which tells whether a change of the code has changed a decision.
    pub(super) trace: DefaultHasher,
}

impl Machine {
    /// Gives the event to the scheduler, and returns what follows.
    pub(super) fn timed(&mut self, event: SchedulerEvent) -> Vec<SchedulerEffect> {
        let (kind, at, mut effects) = (kind(&event), moment(self.now), Vec::new());
        let begins = Instant::now();
        self.scheduler.on_event(at, event, &mut effects).unwrap();
        self.stopwatch.times.push((kind, begins.elapsed()));
        format!("{effects:?}").hash(&mut self.stopwatch.trace);
        effects
    }
}

fn kind(event: &SchedulerEvent) -> &'static str {
    match event {
        SchedulerEvent::Configured(_) => "Configured",
        SchedulerEvent::Arrived { .. } => "Arrived",
        SchedulerEvent::Finished { .. } => "Finished",
        SchedulerEvent::Surveyed { .. } => "Surveyed",
        SchedulerEvent::Ready { .. } => "Ready",
        SchedulerEvent::Ended { .. } => "Ended",
        SchedulerEvent::MemoryReturned { .. } => "MemoryReturned",
        SchedulerEvent::CardsRead { .. } => "CardsRead",
        SchedulerEvent::Tick => "Tick",
        _ => "others",
    }
}

fn crowd() -> Scenario {
    let client = |key: u64| {
        let random = &mut Random(key);
        let models = (0..100).map(|_| u32::try_from(random.within(1, MODELS.into()) - 1).unwrap()).collect();
        let answers = (0..100).map(|_| random.within(S / 2, 5 * S)).collect();
        Client { models, answers, session: 1, ..Client::agent(key, 0, 0, 100) }
    };
    let models = (0..u64::from(MODELS)).map(|place| Model::new(7, 2 * S + place * 10)).collect();
    Scenario {
        cards: vec![80; 2],
        models,
        clients: (0..CLIENTS).map(client).collect(),
        until: 300 * S,
        forgets: false,
    }
}

#[test]
fn long_the_same_events_follow_each_time_and_their_times_are_printed() {
    let mut best: Vec<(&str, Duration)> = Vec::new();
    for _ in 0..RUNS {
        let Stopwatch { times, trace } = Machine::run(&crowd()).stopwatch;
        println!("trace {:016x}", trace.finish());
        if best.is_empty() {
            best = times;
        } else {
            assert_eq!(best.len(), times.len(), "the same events each time");
            best.iter_mut().zip(times).for_each(|((_, best), (_, time))| *best = time.min(*best));
        }
    }
    let mut kinds: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for (kind, time) in best {
        kinds.entry(kind).or_default().push(time);
        kinds.entry("all").or_default().push(time);
    }
    for (kind, times) in &mut kinds {
        times.sort_unstable();
        let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{kind:15} {:6} events  median {median:9.1?}  p99 {p99:9.1?}", times.len());
    }
}
