//! What the operator sees at the start: each card with what it has to give, each model with what it will take.
//!
//! Reading headers takes time, so this runs beside the first requests and holds nobody up. It decides nothing:
//! every load is surveyed anew.

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_core::bytes::Bytes;
use plimsoll_core::explain::Reason;
use plimsoll_core::flags::Entry;
use plimsoll_core::place::{Card, Demand};

use super::Owner;
use super::survey::look;
use super::talk::{in_a_line, label};

impl Owner {
    /// The number of models in the configuration.
    pub(crate) fn count(&self) -> usize {
        self.state.borrow().roll.present().count()
    }

    /// Tells what there is to give, and what each model will take.
    pub(crate) async fn introduce(self: Rc<Self>) {
        self.introduce_cards();
        let entries: Vec<Entry> = {
            let books = self.state.borrow();
            books
                .roll
                .present()
                .map(|(_, entry)| Entry::clone(entry))
                .collect()
        };
        let engine = self.terms.engine.clone();
        let cards: Vec<Card> = self.terms.cards().cloned().collect();
        let looked = tokio::task::spawn_blocking(move || {
            let width = widest(entries.iter().map(|entry| entry.name.as_str()));
            let line = |entry: &Entry| {
                let need = need(entry, &cards, look(entry, engine.as_deref(), &cards));
                format!("model {:width$}  {need}", entry.name)
            };
            entries.iter().map(line).collect::<Vec<_>>()
        });
        for line in looked.await.unwrap_or_default() {
            tracing::info!("{line}");
        }
    }

    fn introduce_cards(&self) {
        let snapshot = self.state.borrow().scheduler.snapshot(self.now());
        let cards: Vec<&Card> = self.terms.cards().collect();
        let labels: Vec<String> = snapshot
            .cards
            .iter()
            .map(|card| label(&cards, &card.id))
            .collect();
        let width = widest(labels.iter().map(String::as_str));
        for (card, label) in snapshot.cards.iter().zip(&labels) {
            tracing::info!(
                "card  {label:width$}  {} to give of {}",
                card.capacity,
                card.total
            );
        }
    }
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// What a model takes, in words: on the cards that its flags name, else on the first that it may use, which is
/// what it takes on any of the same kind.
fn need(entry: &Entry, cards: &[Card], looked: Result<Arc<dyn Demand>, Reason>) -> String {
    let demand = match looked {
        Ok(demand) if demand.alone() => {
            return "not known: it gets a card to itself until it is measured".to_owned();
        }
        Ok(demand) => demand,
        Err(reason) => return format!("cannot be loaded: {}", in_a_line(&reason)),
    };
    let card = asked(entry, cards, &*demand);
    let said = if entry.memory.is_some() {
        "declared"
    } else {
        "planned"
    };
    match demand.on(&card) {
        Ok(shares) => {
            let total: Bytes = shares.iter().map(|(_, bytes)| *bytes).sum();
            format!("{total} {said}")
        }
        Err(reason) => in_a_line(&reason),
    }
}

fn asked(entry: &Entry, cards: &[Card], demand: &dyn Demand) -> Vec<Card> {
    let named = &demand.named().cards;
    if !named.is_empty() {
        return cards
            .iter()
            .filter(|card| named.contains(&card.id))
            .cloned()
            .collect();
    }
    let may_use =
        |card: &&Card| entry.cards.is_empty() || entry.cards.iter().any(|name| card.answers_to(name));
    cards.iter().filter(may_use).take(1).cloned().collect()
}
