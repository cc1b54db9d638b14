//! Keeps the history of each model's memory on each card, for the timeline of the last hour.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_scheduler::{ModelId, Moment, SchedulerSnapshot};
use serde::Serialize;

/// The history goes back this far, and has this many samples at most.
const WINDOW: Duration = Duration::from_secs(3600);
const SAMPLES: usize = 720;
/// Time between samples that differ only in sizes.
const APART: Duration = Duration::from_secs(10);

/// The holders of each card at one moment, in the order of the cards.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ResidencySample {
    at: Moment,
    cards: Vec<CardResidency>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct CardResidency {
    /// In use by the driver's reading; null without one.
    used: Option<Bytes>,
    models: Vec<(ModelId, Bytes)>,
}

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Residency(VecDeque<ResidencySample>);

impl Residency {
    /// Takes the memory that `snapshot` shows, where it differs from the last sample.
    pub(super) fn take(&mut self, snapshot: &SchedulerSnapshot, used: impl Iterator<Item = Option<Bytes>>) {
        let id = |name: &str| snapshot.models.iter().find(|model| model.name == name).map(|model| model.id);
        let cards = snapshot.cards.iter().zip(used).map(|(card, used)| {
            let occupied = card.holders.iter().filter_map(|holder| {
                Some((id(&holder.model)?, holder.measured.filter(|bytes| !bytes.is_zero())?))
            });
            CardResidency { used, models: occupied.collect() }
        });
        self.push(ResidencySample { at: snapshot.now, cards: cards.collect() });
    }

    fn push(&mut self, sample: ResidencySample) {
        if let Some(last) = self.0.back() {
            let same_models = names(last).eq(names(&sample));
            let is_soon = sample.at.since(last.at) < APART;
            if sample.cards == last.cards || (same_models && is_soon) {
                return;
            }
        }
        while self.0.len() == SAMPLES || self.0.get(1).is_some_and(|old| sample.at.since(old.at) > WINDOW) {
            // The sample before the window stays, because it says how the window begins.
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }
}

fn names(sample: &ResidencySample) -> impl Iterator<Item = (usize, ModelId)> {
    let cards = sample.cards.iter().enumerate();
    cards.flat_map(|(at, card)| card.models.iter().map(move |(model, _)| (at, *model)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u64, model: u32, bytes: u64) -> ResidencySample {
        let models = vec![(ModelId(model), Bytes::new(bytes))];
        let at = Moment::at(Duration::from_secs(seconds));
        ResidencySample { at, cards: vec![CardResidency { used: Some(Bytes::new(bytes)), models }] }
    }

    #[test]
    fn swaps_are_kept_at_once_and_growth_from_time_to_time() {
        let mut history = Residency::default();
        for (seconds, model, bytes) in [(0, 1, 5), (1, 1, 5), (2, 1, 6), (3, 2, 6), (14, 2, 7), (90, 2, 7)] {
            history.push(sample(seconds, model, bytes));
        }
        let kept: Vec<_> = history.0.iter().map(|sample| sample.at.since_start().as_secs()).collect();
        assert_eq!(kept, [0, 3, 14]);
    }

    #[test]
    fn it_never_holds_more_than_its_bound_nor_looks_back_further_than_an_hour() {
        let mut history = Residency::default();
        (0..10_000_u32).for_each(|second| history.push(sample(second.into(), second, 1)));
        assert_eq!(history.0.len(), SAMPLES);
        history.push(sample(90_000, 1, 1));
        history.push(sample(90_001, 2, 1));
        assert_eq!(history.0.len(), 3, "the last of before, and the new ones");
    }
}
