//! Forecasts memory for the operator: free memory of each card, need of each model, and models that can never
//! run here.
//!
//! It is logged at start and after a reload, and printed by `serve --check`.

mod configured;
mod doubts;
mod parts;
mod planned;
mod together;

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, CardKind, Curve, Hint, MemoryModel, NeedSize, Placement, Reason};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::quoted;
use plimsoll_planner::HostRoom;
use plimsoll_scheduler::place::{LearnedNeed, Ledger, NeedAnswers, PlacementQuery, PlacementVerdict};
use plimsoll_scheduler::{ModelId, SchedulerEvent};

pub use self::configured::{StandingConflicts, TogetherForecast, conflicts, loaded_together};
pub use self::doubts::{FlagsLeftOut, this_host};
pub(crate) use self::planned::{advise, answers, place_planned, with_answers};
pub use self::together::{Beside, CandidateModel, CandidateVerdict, LoadedTogether, together};
use super::Runtime;
use super::operator_log::{in_a_line, label};
use super::survey::{FoundProgram, Patience, Surveyor, profile};
use plimsoll_route::{ModelProfile, ModelService};
use plimsoll_task::spawn_blocking;

/// Forecast for one model: its need, and whether it can run.
#[derive(Clone, Debug)]
pub struct Forecast {
    pub name: String,
    pub text: String,
    /// Terms of the need, a line for each card, where a plan knows them.
    pub parts: Vec<String>,
    /// Probably unintended consequences of its flags.
    pub warnings: Vec<Reason>,
    /// Explanation of a part of it.
    pub note: Option<String>,
    /// The reason why it cannot run now: its files, its engine, or its need on these cards.
    pub refused: Option<Reason>,
    pub hints: Vec<Hint>,
    /// Its program is missing, and nothing else.
    pub lacks_program: Option<Reason>,
    /// The host has less memory than the model takes beside its cards. It is served all the same.
    pub host_too_small: bool,
    /// It fits on no set of cards, even on empty ones.
    never: bool,
    pub(crate) profile: Option<ModelProfile>,
    /// The need, if it is known.
    demand: Option<Arc<dyn MemoryModel>>,
}

impl Forecast {
    /// True for a model that fits on no set of cards, even on empty ones.
    pub fn never_fits(&self) -> bool {
        self.never
    }

    /// Tokens that one request may use, as planned.
    pub fn context(&self) -> Option<u64> {
        self.profile.as_ref().and_then(|profile| profile.context)
    }

    /// A forecast that says nothing yet.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: String::new(),
            parts: Vec::new(),
            warnings: Vec::new(),
            note: None,
            refused: None,
            hints: Vec::new(),
            lacks_program: None,
            host_too_small: false,
            never: false,
            profile: None,
            demand: None,
        }
    }

    /// The forecast of a model whose engine is missing: it cannot be loaded, whatever it needs.
    fn without_engine(self, missing: Reason) -> Self {
        let text = format!("{}; cannot be started: {}", self.text, in_a_line(&missing));
        let lacks_program = self.refused.is_none().then(|| missing.clone());
        Self { text, lacks_program, refused: Some(self.refused.unwrap_or(missing)), ..self }
    }
}

impl Surveyor {
    /// Looks at every model as if it were the only one.
    pub fn forecast(&self, entries: &[ConfiguredModel], host: Option<HostRoom>) -> Vec<Forecast> {
        let ledger = Ledger::new(self.limits.clone());
        let cards = served(&ledger);
        let of = |entry: &ConfiguredModel| {
            let looked = |program: &FoundProgram| {
                foresee(entry, &cards, &ledger, self.look(entry, program)).on_host(entry, &cards, host)
            };
            match self.program(entry) {
                Ok(program) => looked(&program),
                Err(reason)
                    if entry.launch.options().is_none()
                        && entry.memory.is_none()
                        && entry.part().is_none() =>
                {
                    foresee(entry, &cards, &ledger, Err(reason))
                }
                // Neither a plan nor a declared size needs an engine.
                Err(reason) => looked(&FoundProgram::default()).without_engine(reason),
            }
        };
        entries.iter().map(of).collect()
    }
}

impl Runtime {
    /// Prepares the first load, and logs the memory of each card and the need of each model.
    pub async fn introduce(self: Rc<Self>) {
        self.engines.launcher.prepare();
        self.introduce_cards();
        let all = self.models();
        self.foresee(all).await;
    }

    /// Logs the need of these models, and returns what stops or troubles one; those that can never run here
    /// show as failed.
    pub async fn foresee(self: Rc<Self>, models: Vec<ModelId>) -> Vec<String> {
        let _turn = self.turns.forecast.lock().await;
        let entries: Vec<ConfiguredModel> =
            models.iter().map(|id| ConfiguredModel::clone(&self.state.entry(*id))).collect();
        let surveyor = self.readings.surveyor(Patience::Kept);
        // Memory of running engines is not free, and is their own.
        let host =
            if self.state.runs().is_empty() { this_host() } else { this_host().map(HostRoom::emptied) };
        // Headers come from disk; on the one thread that serves, the reads would stop every stream.
        let looked = spawn_blocking(move || surveyor.forecast(&entries, host));
        // A survey that panicked gives no forecast; each load surveys anew anyway.
        let forecasts = looked.await.unwrap_or_default();
        let width = widest(forecasts.iter().map(|forecast| forecast.name.as_str()));
        let mut troubles = Vec::new();
        for (model, forecast) in models.into_iter().zip(forecasts) {
            let Forecast { name, text, warnings, refused, hints, profile, demand, .. } = forecast;
            for extension in &self.extensions {
                extension.foreseen(model, demand.as_ref().filter(|_| refused.is_none()));
            }
            self.state.statuses.with(model, |status| status.profile = profile.map(Rc::new));
            for warning in warnings {
                let warning = format!("{name}: {}", in_a_line(&warning));
                tracing::warn!("{warning}");
                troubles.push(format!("warning: {warning}"));
            }
            // Warnings stand out only if models that fit are logged at a lower level.
            let Some(reason) = refused else {
                tracing::info!("model {name:width$}  {text}");
                continue;
            };
            tracing::warn!("model {name:width$}  {text}");
            troubles.push(format!("warning: {name} {text}"));
            for hint in hints {
                tracing::warn!("hint: {name}: {hint}");
            }
            self.state
                .statuses
                // The warning above is the report; the change of state must not repeat it.
                .with(model, |status| status.reported = Some(reason.clone()));
            self.submit(SchedulerEvent::ForecastFailed { model, reason });
        }
        troubles
    }

    fn introduce_cards(&self) {
        let snapshot = self.state.snapshot();
        let cards: Vec<&Card> = self.settings.cards().collect();
        let labels: Vec<String> = snapshot.cards.iter().map(|card| label(&cards, &card.id)).collect();
        let width = widest(labels.iter().map(String::as_str));
        for (card, label) in snapshot.cards.iter().zip(&labels) {
            tracing::info!("card  {label:width$}  {} available of {}", card.capacity, card.total);
        }
    }
}

/// The cards, each with the memory that it would have for models if it were empty.
pub(super) fn served(ledger: &Ledger) -> Vec<Card> {
    let accounts = ledger.accounts().iter();
    accounts
        .map(|account| Card {
            // The whole limit, because the forecast treats each model as the only one.
            free: account.limit(),
            ..account.card().clone()
        })
        .collect()
}

pub fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    // Characters and not bytes, because `{:width$}` pads by characters.
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// Forecast of a model: on the cards that its flags name, else on the first that it may use, since its need
/// is the same on any of that kind.
fn foresee(
    entry: &ConfiguredModel,
    cards: &[Card],
    ledger: &Ledger,
    looked: Result<Arc<dyn MemoryModel>, Reason>,
) -> Forecast {
    let known = looked.as_ref().ok().cloned();
    let profile =
        known.as_ref().and_then(|demand| profile(entry, &**demand, &requested(entry, cards, &**demand)));
    let doubts = |demand: &Arc<dyn MemoryModel>| demand.doubts(&requested(entry, cards, &**demand));
    let forecast = |text: String, refused: Option<Reason>, hints| Forecast {
        text,
        warnings: known.as_ref().map_or(Vec::new(), doubts),
        refused,
        hints,
        profile,
        demand: known.clone(),
        ..Forecast::named(&entry.name)
    };
    let demand = match looked {
        Ok(demand) => demand,
        Err(reason) => {
            let text = format!("cannot be loaded: {}", in_a_line(&reason));
            return forecast(text, Some(reason), Vec::new());
        }
    };
    match verdict(entry, cards, ledger, &*demand) {
        // Other processes may leave; the model is not marked as failed.
        PlacementVerdict::Never(never) if never.crowded_out => {
            let text = format!("does not fit now: {}", in_a_line(&never.reason));
            forecast(text, None, never.hints)
        }
        PlacementVerdict::Never(never) => {
            let text = format!("is refused: {}", in_a_line(&never.reason));
            Forecast { never: true, ..forecast(text, Some(never.reason), never.hints) }
        }
        verdict => {
            let placement = match &verdict {
                PlacementVerdict::Fits(placement) => Some(placement),
                _ => None,
            };
            let own = taken(entry, cards, &*demand, placement);
            let (text, parts) = need(entry, &own, &*demand);
            Forecast { parts, note: parts::note(&*demand), ..forecast(text, None, Vec::new()) }
        }
    }
}

/// Placement of a model on empty cards.
fn verdict(
    entry: &ConfiguredModel,
    cards: &[Card],
    ledger: &Ledger,
    demand: &dyn MemoryModel,
) -> PlacementVerdict {
    let allowed = cards.iter().filter(|card| entry.names_card(card));
    let allowed: Vec<CardId> = allowed.map(|card| card.id.clone()).collect();
    let query = PlacementQuery {
        name: &entry.name,
        need: &demand.need(),
        answers: &NeedAnswers::default(),
        // Nothing is learned from runs here: the forecast comes before the first one.
        learned: LearnedNeed::default(),
        allowed: &allowed,
        port: None,
        apart: 0,
    };
    place_planned(&query, demand, ledger, &[])
}

/// The cards among which a placement divides the model; else the one that is asked about.
fn taken(
    entry: &ConfiguredModel,
    cards: &[Card],
    demand: &dyn MemoryModel,
    placement: Option<&Placement>,
) -> Vec<Card> {
    let is_taken = |card: &&Card| {
        card.kind != CardKind::Host && placement.is_some_and(|placement| !placement.on(&card.id).is_zero())
    };
    let divided: Vec<Card> = cards.iter().filter(is_taken).cloned().collect();
    if divided.len() > 1 { divided } else { requested(entry, cards, demand) }
}

/// The need on these cards in a sentence, and its parts.
fn need(entry: &ConfiguredModel, own: &[Card], demand: &dyn MemoryModel) -> (String, Vec<String>) {
    if let Some(address) = entry.launch.elsewhere().filter(|_| entry.is_foreign() && entry.memory.is_none()) {
        return (
            format!("takes no memory of this machine: its requests go to {}", quoted(address)),
            Vec::new(),
        );
    }
    // A number would be made up.
    if demand.alone() {
        let text = "memory need unknown: the model is loaded alone on a card until its memory is measured";
        return (text.to_owned(), Vec::new());
    }
    let is_declared = entry.memory.is_some_and(|declared| match demand.need().size {
        // The part that its command takes is more than is declared.
        NeedSize::Planned if entry.launch.options().is_none() => demand
            .on(own)
            .is_ok_and(|shares| shares.iter().map(|(_, bytes)| *bytes).sum::<Bytes>() <= declared),
        _ => true,
    });
    let stated = match (is_declared, demand.lowered_context()) {
        (true, _) => "declared".to_owned(),
        (false, None) if entry.memory.is_some() => "by its command".to_owned(),
        (false, None) if entry.launch.options().is_none() && entry.part().is_none() => {
            "as measured before".to_owned()
        }
        (false, None) if entry.part().is_some() => "by the flags of its command".to_owned(),
        (false, None) if demand.reported(own) => "as the engine reports".to_owned(),
        (false, None) => "planned".to_owned(),
        (false, Some(context)) => {
            format!("planned with its context lowered to {context}: the configured context fits on no card")
        }
    };
    let shares = match demand.on(own) {
        Ok(shares) => shares,
        Err(reason) => return (in_a_line(&reason), Vec::new()),
    };
    let alongside = parts::alongside(&shares, own);
    let total = shares.iter().map(|(_, bytes)| *bytes).sum::<Bytes>().saturating_sub(alongside);
    let of_host =
        if alongside.is_zero() { String::new() } else { format!(", and {alongside} of host memory") };
    let text =
        format!("{total} {stated}{of_host}{}{}", growth(entry, own, total, demand), overflowing(own, demand));
    (text, parts::lines(&shares, own, demand))
}

/// The part of its need that grows with depth, if that is tracked.
fn growth(entry: &ConfiguredModel, cards: &[Card], total: Bytes, demand: &dyn MemoryModel) -> String {
    let curve = demand.curve(cards).ok().filter(Curve::grows);
    let Some(curve) = curve.filter(|_| entry.depth_admission) else {
        return String::new();
    };
    let loaded: Bytes = curve.at(0).iter().map(|share| share.bytes).sum();
    let full: Bytes = curve.at(u64::MAX).iter().map(|share| share.bytes).sum();
    let grows = full.saturating_sub(loaded);
    if full > total {
        format!(
            "; a full context would take {full}, which fits on no card, so a request with too many tokens is \
                refused"
        )
    } else {
        format!(
            "; {grows} of it are used only when the context is full; until they are free, a long request \
                waits"
        )
    }
}

/// The depth at full speed of a model whose cache overflows.
fn overflowing(cards: &[Card], demand: &dyn MemoryModel) -> String {
    let overflow = demand.overflow(cards);
    let on_host: Bytes = overflow.iter().map(|part| part.on_host).sum();
    overflow.iter().map(|part| part.tokens).min().map_or(String::new(), |tokens| {
        format!(
            "; {on_host} of its cache go to host memory, so only the first {tokens} tokens of a \
            conversation are at full speed"
        )
    })
}

fn requested(entry: &ConfiguredModel, cards: &[Card], demand: &dyn MemoryModel) -> Vec<Card> {
    let named = &demand.named().cards;
    if !named.is_empty() {
        return cards.iter().filter(|card| named.contains(&card.id)).cloned().collect();
    }
    cards.iter().filter(|card| entry.may_use(card)).take(1).cloned().collect()
}
