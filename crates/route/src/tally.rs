//! Counts requests, and writes the `/metrics` page with them and the scheduler's figures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use plimsoll_base::Bytes;
use plimsoll_scheduler::{CardView, HolderView, ModelId, ModelState, ModelView, SchedulerSnapshot};

use super::exposition::{Exposition, Histogram, MetricKind};

/// Request counts per model, by the model's number.
#[derive(Debug, Default)]
pub(crate) struct TokenTally(RefCell<Vec<Counts>>);

#[derive(Clone, Debug)]
struct Counts {
    /// Answers by the first digit of their status, from 1xx on.
    answers: [u64; 5],
    first_byte: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Self { answers: [0; 5], first_byte: Histogram::of_seconds() }
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl TokenTally {
    /// Counts an answer and the time from the whole request to its first byte.
    pub(crate) fn count(&self, model: ModelId, status: StatusCode, first_byte: Duration) {
        let mut all = self.0.borrow_mut();
        let place = usize::try_from(model.0).unwrap_or(usize::MAX);
        if all.len() <= place {
            all.resize_with(place + 1, Counts::default);
        }
        // An engine may answer with any three digits.
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        all[place].answers[class] += 1;
        all[place].first_byte.add(first_byte.as_secs_f64());
    }

    fn of(&self, model: ModelId) -> Counts {
        let place = usize::try_from(model.0).unwrap_or(usize::MAX);
        self.0.borrow().get(place).cloned().unwrap_or_default()
    }

    /// Writes the requests, the queues and the cards.
    pub(crate) fn write(&self, page: &mut Exposition, snapshot: &SchedulerSnapshot) {
        self.write_requests(page, &snapshot.models);
        write_models(page, &snapshot.models);
        write_cards(page, snapshot);
    }

    fn write_requests(&self, page: &mut Exposition, models: &[ModelView]) {
        let name = "plimsoll_requests_total";
        page.family(name, MetricKind::Counter, "Requests answered for a model, including refusals");
        for model in models {
            let counts = self.of(model.id);
            // A class that never occurred has no series, which keeps the page short for many models.
            for (class, count) in CLASSES.iter().zip(counts.answers).filter(|(_, count)| *count > 0) {
                page.sample(name, &[("model", &model.name), ("code", class)], count);
            }
        }
        let name = "plimsoll_first_byte_seconds";
        page.family(
            name,
            MetricKind::Histogram,
            "Time from the end of reading a request to the first byte of its answer",
        );
        for model in models {
            page.histogram(name, &[("model", &model.name)], &self.of(model.id).first_byte);
        }
    }
}

fn write_models(page: &mut Exposition, models: &[ModelView]) {
    type TallyValue = fn(&ModelView) -> u64;
    let gauges: [(&str, &str, TallyValue); 3] = [
        ("plimsoll_requests_in_flight", "Requests that engines are processing now", |model| {
            model.in_flight.into()
        }),
        ("plimsoll_requests_queued", "Requests waiting for a model now", |model| {
            u64::try_from(model.queued).unwrap_or(u64::MAX)
        }),
        ("plimsoll_model_ready", "1 while a model accepts requests", |model| {
            u64::from(model.state == ModelState::Ready)
        }),
    ];
    // The text format wants all samples of a family in one group, so the metric is the outer loop.
    for (name, help, value) in gauges {
        page.family(name, MetricKind::Gauge, help);
        for model in models {
            page.sample(name, &[("model", &model.name)], value(model));
        }
    }
}

fn write_cards(page: &mut Exposition, snapshot: &SchedulerSnapshot) {
    type CardValue = fn(&CardView) -> Bytes;
    let cards: [(&str, &str, CardValue); 5] = [
        ("plimsoll_card_total_bytes", "Memory of a card", |card| card.total),
        ("plimsoll_card_capacity_bytes", "Memory of a card that can be reserved for models", |card| {
            card.capacity
        }),
        ("plimsoll_card_claimed_bytes", "Memory of a card that is reserved for models", |card| card.claimed),
        ("plimsoll_card_foreign_bytes", "Memory that other processes use on a card", |card| card.foreign),
        ("plimsoll_yield_bytes", "Memory of a card that is kept free for other programs", |card| {
            card.yielded.as_ref().map_or(Bytes::ZERO, |kept| kept.bytes)
        }),
    ];
    let labels: Vec<String> = snapshot.cards.iter().map(|card| label(&snapshot.cards, card)).collect();
    for (name, help, value) in cards {
        page.family(name, MetricKind::Gauge, help);
        for (card, label) in snapshot.cards.iter().zip(&labels) {
            page.sample(name, &[("card", label)], value(card).get());
        }
    }
    type HolderValue = fn(&HolderView) -> Option<Bytes>;
    let holders: [(&str, &str, HolderValue); 2] = [
        ("plimsoll_claim_bytes", "Memory of a card that is reserved for one model", |holder| {
            Some(holder.claim)
        }),
        ("plimsoll_measured_bytes", "Memory of a card that a model was last measured to take", |holder| {
            holder.measured
        }),
    ];
    for (name, help, value) in holders {
        page.family(name, MetricKind::Gauge, help);
        for (card, label) in snapshot.cards.iter().zip(&labels) {
            // A model may have two runs for a moment: one that drains, and the next.
            let mut models: BTreeMap<&str, Bytes> = BTreeMap::new();
            for (holder, bytes) in card.holders.iter().filter_map(|holder| Some((holder, value(holder)?))) {
                *models.entry(&holder.model).or_default() += bytes;
            }
            for (model, bytes) in models {
                page.sample(name, &[("card", label), ("model", model)], bytes.get());
            }
        }
    }
}

/// A card's name, with its identifier if another card has the same name: two series with the same labels make
/// the whole page invalid.
fn label(cards: &[CardView], card: &CardView) -> String {
    match cards.iter().filter(|other| other.name == card.name).count() {
        1 => card.name.clone(),
        _ => format!("{} {}", card.name, card.id),
    }
}
