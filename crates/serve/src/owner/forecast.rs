//! What the operator sees at the start, after a reload, and from `serve --check`: each card with what it has to give, each model
//! with what it will take, and those that can never run here with what would fit.
//!
//! Reading headers takes time, so this runs beside the first requests and holds nobody up. Every load is surveyed anew: a model that
//! is refused here shows as failed until somebody asks for it, and is then refused by the same arithmetic.

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, Curve, Demand, Hint, Reason};
use plimsoll_config::Entry;
use plimsoll_scheduler::place::{Answers, Ask, Holds, Ledger, Verdict, place};
use plimsoll_scheduler::{CardLimit, Event, ModelId};

use super::Owner;
use super::survey::look;
use super::talk::{in_a_line, label};

/// What is to be said of one model before anybody asks for it.
#[derive(Clone, Debug)]
pub struct Forecast {
    pub name: String,
    pub text: String,
    /// Why it is refused until something changes: its files, its engine, or its need on these cards.
    pub refused: Option<Reason>,
    pub hints: Vec<Hint>,
}

/// Looks at every model as if it were the only one.
pub(crate) fn forecast(entries: &[Entry], engine: Option<&[String]>, limits: &[CardLimit]) -> Vec<Forecast> {
    let ledger = Ledger::new(limits.to_vec());
    let cards: Vec<Card> = served(&ledger);
    let of = |entry: &Entry| foresee(entry, &cards, &ledger, look(entry, engine, &cards));
    entries.iter().map(of).collect()
}

impl Owner {
    /// The number of models in the configuration.
    pub(crate) fn count(&self) -> usize {
        self.state.borrow().roll.present().count()
    }

    /// Tells what there is to give, and what each model will take.
    pub(crate) async fn introduce(self: Rc<Self>) {
        self.introduce_cards();
        let all: Vec<ModelId> = self.state.borrow().roll.present().map(|(id, _)| id).collect();
        self.foresee(all).await;
    }

    /// Tells what these models will take; those that can never run here are refused from now on.
    pub(super) async fn foresee(self: Rc<Self>, models: Vec<ModelId>) {
        let entries: Vec<Entry> = models.iter().map(|id| Entry::clone(&self.entry(*id))).collect();
        let engine = self.terms.engine.clone();
        let limits = self.terms.settings.cards.clone();
        let looked =
            tokio::task::spawn_blocking(move || forecast(&entries, engine.as_deref(), &limits)).await;
        let forecasts = looked.unwrap_or_default();
        let width = widest(forecasts.iter().map(|forecast| forecast.name.as_str()));
        for (model, forecast) in models.into_iter().zip(forecasts) {
            let Forecast {
                name,
                text,
                refused,
                hints,
            } = forecast;
            let Some(reason) = refused else {
                tracing::info!("model {name:width$}  {text}");
                continue;
            };
            tracing::warn!("model {name:width$}  {text}");
            for hint in hints {
                tracing::warn!("hint: {name}: {hint}");
            }
            self.notes.with(model, |note| note.told = Some(reason.clone()));
            self.submit(Event::Foreseen { model, reason });
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

/// The cards, each with what it has for us if nobody else is on it.
pub(super) fn served(ledger: &Ledger) -> Vec<Card> {
    let accounts = ledger.accounts().iter();
    accounts
        .map(|account| Card {
            free: account.limit(),
            ..account.card().clone()
        })
        .collect()
}

pub fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// What a model takes, in words: on the cards that its flags name, else on the first that it may use, which is
/// what it takes on any of the same kind. A file or a program that is missing may come; what fits nowhere will not.
fn foresee(
    entry: &Entry,
    cards: &[Card],
    ledger: &Ledger,
    looked: Result<Arc<dyn Demand>, Reason>,
) -> Forecast {
    let forecast = |text: String, refused: Option<Reason>, hints| Forecast {
        name: entry.name.clone(),
        text,
        refused,
        hints,
    };
    let demand = match looked {
        Ok(demand) => demand,
        Err(reason) => {
            let text = format!("cannot be loaded: {}", in_a_line(&reason));
            return forecast(text, Some(reason), Vec::new());
        }
    };
    match verdict(entry, cards, ledger, &*demand) {
        Verdict::Never(never) if never.crowded_out => {
            let text = format!("does not fit now: {}", in_a_line(&never.reason));
            forecast(text, None, never.hints)
        }
        Verdict::Never(never) => {
            let text = format!("is refused: {}", in_a_line(&never.reason));
            forecast(text, Some(never.reason), never.hints)
        }
        _ => forecast(need(entry, cards, &*demand), None, Vec::new()),
    }
}

/// Where it would go if nobody else were there.
fn verdict(entry: &Entry, cards: &[Card], ledger: &Ledger, demand: &dyn Demand) -> Verdict {
    let may_use = |card: &&Card| entry.cards.iter().any(|name| card.answers_to(name));
    let allowed: Vec<CardId> = cards.iter().filter(may_use).map(|card| card.id.clone()).collect();
    let ask = Ask {
        name: &entry.name,
        demand,
        answers: &Answers::default(),
        learned: Bytes::ZERO,
        allowed: &allowed,
        named: demand.named(),
    };
    place(&ask, ledger, &Holds::default(), &[])
}

fn need(entry: &Entry, cards: &[Card], demand: &dyn Demand) -> String {
    if demand.alone() {
        return "not known: it gets a card to itself until it is measured".to_owned();
    }
    let said = match (entry.memory.is_some(), demand.lowered_context()) {
        (true, _) => "declared".to_owned(),
        (false, None) => "planned".to_owned(),
        (false, Some(context)) => {
            format!("planned, with a context lowered to {context}: its own fits on no card")
        }
    };
    let own = asked(entry, cards, demand);
    let shares = match demand.on(&own) {
        Ok(shares) => shares,
        Err(reason) => return in_a_line(&reason),
    };
    let total: Bytes = shares.iter().map(|(_, bytes)| *bytes).sum();
    format!("{total} {said}{}", growth(entry, &own, total, demand))
}

/// What of it comes with depth, where that is watched.
fn growth(entry: &Entry, cards: &[Card], total: Bytes, demand: &dyn Demand) -> String {
    let curve = demand.curve(cards).ok().filter(Curve::grows);
    let Some(curve) = curve.filter(|_| entry.depth_admission) else {
        return String::new();
    };
    let loaded: Bytes = curve.at(0).iter().map(|share| share.bytes).sum();
    let full: Bytes = curve.at(u64::MAX).iter().map(|share| share.bytes).sum();
    let grows = full.saturating_sub(loaded);
    match full > total {
        true => format!(
            "; at full depth it would take {full}, which fits on no card: what goes too deep is refused"
        ),
        false => format!("; {grows} of it grows with depth, by which requests are admitted"),
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
