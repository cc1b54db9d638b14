//! Sums up a simulated run for its clients: lost time, answers, and the longest waits.

use std::collections::BTreeSet;

use super::client::{Call, Client};
use super::machine::Machine;
use super::speed::Stopwatch;

/// Figures of a run; times in seconds.
#[derive(Debug)]
pub(super) struct Tally {
    until: u64,
    calls: Vec<Call>,
    clients: Vec<Client>,
    pub(super) loads: Vec<u64>,
    /// Time of loads after which no answer came.
    pub(super) thrown: f64,
    pub(super) lost_streams: u64,
    pub(super) refused: u64,
    pub(super) gave_up: u64,
    /// Time of the shutdown.
    pub(super) shutdown: f64,
    pub(super) stopwatch: Stopwatch,
}

impl Tally {
    pub(super) fn of(machine: Machine) -> Self {
        let Machine { until, calls, clients, loads, thrown, lost_streams, .. } = machine;
        let Machine { refused, gave_up, drained, stopwatch, .. } = machine;
        let shutdown = seconds(drained.unwrap_or(until) - until);
        let thrown = seconds(thrown);
        Self { until, calls, clients, loads, thrown, lost_streams, refused, gave_up, shutdown, stopwatch }
    }

    /// The time that the call took beyond its own answer, until now.
    fn lost_by(&self, call: &Call) -> u64 {
        match call.answered {
            Some(at) => at - call.requested - call.answer,
            None => self.until - call.requested,
        }
    }

    /// Waits of the calls that the filter takes, in order.
    fn waits(&self, which: impl Fn(&Call, &Client) -> bool) -> Vec<u64> {
        let calls = self.calls.iter().filter(|call| which(call, &self.clients[call.client]));
        let mut waits: Vec<u64> = calls.map(|call| self.lost_by(call)).collect();
        waits.sort_unstable();
        waits
    }

    pub(super) fn longest(&self, which: impl Fn(&Call, &Client) -> bool) -> f64 {
        seconds(self.waits(which).last().copied().unwrap_or(0))
    }

    pub(super) fn p99(&self) -> f64 {
        let waits = self.waits(|_, _| true);
        seconds(waits.get(waits.len() * 99 / 100).copied().unwrap_or(0))
    }

    pub(super) fn lost(&self) -> f64 {
        seconds(self.waits(|_, _| true).iter().sum())
    }

    pub(super) fn answers(&self, which: impl Fn(&Call, &Client) -> bool) -> usize {
        let answered = self.calls.iter().filter(|call| call.answered.is_some());
        answered.filter(|call| which(call, &self.clients[call.client])).count()
    }

    pub(super) fn per_second(&self) -> f64 {
        float(self.answers(|_, _| true)) / seconds(self.until)
    }

    /// Answers, longest wait and loads of each model.
    pub(super) fn by_model(&self) -> String {
        let models = (0_u32..).zip(&self.loads).map(|(model, loads)| {
            let (answers, longest) =
                (self.answers(|call, _| call.model == model), self.longest(|call, _| call.model == model));
            format!("m{model}: {answers} answers, {longest:.1} s, {loads} loads")
        });
        models.collect::<Vec<_>>().join("; ")
    }

    /// The slowest answer to a key, with what it waited.
    pub(super) fn slowest(&self, key: u64) -> f64 {
        let calls = self.calls.iter().filter(|call| self.clients[call.client].key == key);
        seconds(calls.map(|call| call.answered.unwrap_or(self.until) - call.requested).max().unwrap())
    }

    /// The time of the first answer after this time.
    pub(super) fn next_answer(&self, after: u64) -> f64 {
        let answers = self.calls.iter().filter_map(|call| call.answered).filter(|at| *at > after);
        seconds(answers.min().unwrap_or(self.until))
    }

    /// The slowest answer to each key of clients with one call.
    pub(super) fn by_key(&self) -> String {
        let keys = self.clients.iter().filter(|client| client.calls == 1).map(|client| client.key);
        let keys = keys.collect::<BTreeSet<u64>>().into_iter();
        keys.map(|key| format!("; key {key}: after {:.1} s", self.slowest(key))).collect()
    }

    /// One line for all figures.
    pub(super) fn line(&self) -> String {
        let answers = self.answers(|_, _| true);
        format!(
            "{answers:5} answers {:5.2}/s  longest {:6.1} s  p99 {:6.1} s  lost {:7.1} s  loads {:3}  thrown {:6.1} s  \
             streams lost {:2}  refused {:3}  gave up {:3}  shutdown {:4.1} s",
            self.per_second(),
            self.longest(|_, _| true),
            self.p99(),
            self.lost(),
            self.loads.iter().sum::<u64>(),
            self.thrown,
            self.lost_streams,
            self.refused,
            self.gave_up,
            self.shutdown,
        )
    }
}

pub(super) fn seconds(milliseconds: u64) -> f64 {
    f64::from(u32::try_from(milliseconds).unwrap()) / 1000.0
}

pub(super) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
