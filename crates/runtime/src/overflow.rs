//! Describes KV caches that overflow into host memory: the context at full speed, and the speed beyond it.

use std::cell::Cell;
use std::time::Duration;

use plimsoll_base::{BusRate, Bytes, CacheOverflow, Card, CardId, Placement};
use plimsoll_cards::HOST_CARD;
use plimsoll_probe::bus;
use plimsoll_scheduler::ModelId;
use serde_json::{Value, json};

use super::run::EngineRun;
use super::state::SchedulerState;
use plimsoll_task::spawn_blocking;

/// Tokens beyond the depth at full speed for which a time is given.
const TOKENS: u64 = 1000;
/// Name of a plan's term for the cache.
const CACHE: &str = "kv";

/// The rate of this machine's bus, once it is known.
#[derive(Debug, Default)]
pub(super) struct KnownBus(Cell<Option<BusRate>>);

impl KnownBus {
    /// The rate that an earlier engine has measured.
    pub(super) fn read() -> Self {
        Self(Cell::new(bus::measured()))
    }
}

impl SchedulerState {
    /// The part of a model's cache that goes to host memory with these shares of cards.
    pub(super) fn overflow(&self, model: ModelId, placement: &Placement) -> Vec<CacheOverflow> {
        let demand = self.statuses.demand(model);
        let Some(demand) = demand.filter(|_| self.entry(model).spill.is_some()) else { return Vec::new() };
        let given = self.settings.cards().filter(|card| placement.cards().any(|id| *id == card.id));
        let given = given.map(|card| Card { free: placement.on(&card.id), ..card.clone() });
        demand.overflow(&given.collect::<Vec<_>>())
    }
}

impl KnownBus {
    /// Logs the depth at full speed of a run whose cache overflows.
    pub(super) fn log_overflow(&self, run: &EngineRun) {
        let Some(speed) = self.full_speed(run) else { return };
        let beyond = speed.beyond.map_or(String::new(), |time| {
            format!("; each {TOKENS} tokens beyond them delay each new token by {:.1} ms", milliseconds(time))
        });
        tracing::info!(
            "{}: {} of its cache are in host memory, so only the first {} tokens of a conversation are at \
                full speed{beyond}",
            run.entry.name,
            speed.on_host,
            speed.tokens,
        );
    }

    /// The overflow of the model's run, for listings; `None` where all of its cache is on cards.
    pub(super) fn spilled(&self, model: ModelId, state: &SchedulerState) -> Option<Value> {
        let run = state.statuses.with(model, |status| status.run.as_ref().map(|run| run.id))?;
        // One that has ended holds nothing.
        let speed = self.full_speed(&*state.run(run)?)?;
        Some(json!({
            "on_host": speed.on_host,
            "full_speed_tokens": speed.tokens,
            "ms_per_1000_tokens_beyond": speed.beyond.map(|time| (milliseconds(time) * 10.0).round() / 10.0),
        }))
    }

    /// Takes a measured rate, and keeps it for plans if it is the first of this machine; else false.
    pub(super) fn measured(&self, rate: BusRate) -> bool {
        let is_first = self.0.get().is_none();
        if is_first {
            self.0.set(Some(rate));
            drop(spawn_blocking(move || {
                if let Err(error) = bus::keep(rate) {
                    tracing::debug!(
                        "the measured speed of the bus to the card could not be saved: \
                        {error}"
                    );
                }
            }));
        }
        is_first
    }

    fn full_speed(&self, run: &EngineRun) -> Option<FullSpeed> {
        let overflow = run.overflow();
        let position: Bytes = overflow.iter().map(|part| part.position_bytes).sum();
        Some(FullSpeed {
            // Layers are divided over the cards, so a token waits for the card with the least.
            tokens: overflow.iter().map(|part| part.tokens).min()?,
            on_host: overflow.iter().map(|part| part.on_host).sum(),
            beyond: self.0.get().map(|bus| bus.time(position * TOKENS)),
        })
    }
}

/// Moves what is in host memory from the terms of the cards to those of the host, where they are known.
pub(super) fn move_to_host(overflow: &[CacheOverflow], terms: &mut [(CardId, Vec<(&'static str, Bytes)>)]) {
    for part in overflow {
        let mut of_card = |id: &str, change: &dyn Fn(Bytes) -> Bytes| {
            let terms = terms.iter_mut().filter(|(card, _)| card.as_str() == id);
            let caches = terms.flat_map(|(_, terms)| terms).filter(|(term, _)| *term == CACHE);
            caches.for_each(|(_, bytes)| *bytes = change(*bytes));
        };
        of_card(part.card.as_str(), &|bytes| bytes.saturating_sub(part.on_host));
        of_card(HOST_CARD, &|bytes| bytes + part.on_host);
    }
}

/// Speed of a run whose cache overflows.
struct FullSpeed {
    /// Tokens of a conversation that are on the cards.
    tokens: u64,
    on_host: Bytes,
    /// Time of a token for each thousand beyond them.
    beyond: Option<Duration>,
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
