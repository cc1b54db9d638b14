//! Takes events (inputs) and returns effects (actions): the state machine of the scheduler.
//!
//! Each submodule handles one kind of event. Whenever memory is taken or freed, waiting models are placed
//! again.

#[cfg(test)]
mod audit;
mod blame;
mod budget_requests;
mod commands;
mod eviction;
mod growth;
mod health;
mod leavers;
mod loading;
mod out_of_memory;
mod planning;
mod readings;
mod requests;
mod running;
mod search;
mod sleeping;
mod timers;
mod yields;

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, CardId, Reason, RunId};

use super::effect::SchedulerEffect;
use super::event::{SchedulerEvent, UnknownRequest};
use super::models::{ModelTable, RunState};
use super::placements::Placements;
use super::queue::{Queue, RequestState};
use super::runs::Runs;
use super::spec::SchedulerSettings;
use super::state::{BudgetRequest, ModelView, StateRef, WhatIfKeptFree};
use super::time::{ModelId, Moment};
use crate::place::Ledger;

/// Times of a shutdown.
#[derive(Clone, Copy, Debug)]
struct Closing {
    /// Engines that still answer are stopped then.
    cut_off: Moment,
    /// Engines that have not ended by then are killed.
    end: Moment,
}

// Each part keeps its own invariants (`ModelTable`, `Queue`, `Runs`, `Placements`, `Clock`). `StateRef` gives
// read-only access.
/// Decides which model runs on which card, and when each request is sent.
///
/// The example follows a model from its first request until its memory is free again:
///
/// ```
/// use std::time::Duration;
///
/// use plimsoll_base::{Bytes, Card, ModelNeed, NeedSize, Priority};
/// use plimsoll_scheduler::*;
///
/// let card: Card = "name=H200,total=140GiB,cc=9.0".parse().unwrap();
/// let id = card.id.clone();
/// let limit = CardLimit { card, budget: None, reserve: Bytes::gib(1) };
/// let mut scheduler = Scheduler::new(SchedulerSettings::new(vec![limit]));
/// let (now, model, request) = (Moment::START, ModelId(0), RequestId(0));
/// let mut on = |event| {
///     let mut effects = Vec::new();
///     scheduler.on_event(now, event, &mut effects).expect("each event is about a request that lives");
///     use SchedulerEffect::{StateChanged, WakeAt};
///     effects.retain(|effect| !matches!(effect, StateChanged { .. } | WakeAt(_)));
///     effects
/// };
///
/// on(SchedulerEvent::Configured(vec![(model, ConfigChange::Added(ModelSpec::new("alpha")))]));
/// let deadline = now + Duration::from_secs(60);
/// let (client, priority, traits) = (ClientId(0), Priority::Normal, RequestTraits::default());
/// let arrived = SchedulerEvent::Arrived { request, model, client, priority, deadline, traits };
/// assert_eq!(on(arrived), [SchedulerEffect::Survey { model }]);
///
/// let result = Ok(ModelNeed::new(NeedSize::Declared(Bytes::gib(24))));
/// assert_eq!(on(SchedulerEvent::Surveyed { model, result }), [SchedulerEffect::ReadCards]);
/// let free = vec![(id, Bytes::gib(140))];
/// let effects = on(SchedulerEvent::CardsRead { free, taken: now });
/// let [SchedulerEffect::Start { run, placement, .. }] = &effects[..] else { panic!() };
/// assert_eq!(placement.total(), Bytes::gib(24));
///
/// let run = *run;
/// assert_eq!(on(SchedulerEvent::Ready { run }), [SchedulerEffect::Dispatch { request, run }]);
/// assert_eq!(on(SchedulerEvent::Finished { request, tokens: None, failed: false }), []);
///
/// let stop = SchedulerEffect::Stop { run, how: Stopping::Graceful };
/// assert_eq!(on(SchedulerEvent::UnloadWanted { model }), [stop]);
/// let effects = on(SchedulerEvent::Ended { run, end: End::Expected });
/// assert!(matches!(&effects[..], [SchedulerEffect::AwaitMemory { .. }]));
/// assert_eq!(on(SchedulerEvent::MemoryReturned { run }), []);
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler {
    settings: SchedulerSettings,
    models: ModelTable,
    queue: Queue,
    runs: Runs,
    placements: Placements,
    budgets: Vec<BudgetRequest>,
    /// Runs that leave for other programs' memory of a card, with the reason.
    yielding: BTreeMap<RunId, (CardId, Reason)>,
    now: Moment,
    /// The time at which the caller must call again.
    wake: Moment,
    /// The times of a shutdown, once it has begun.
    closing: Option<Closing>,
    drained: bool,
    /// No run ends for being idle.
    holds_idle: bool,
    /// The caller's vector while an event is handled.
    effects: Vec<SchedulerEffect>,
}

impl Scheduler {
    pub fn new(mut settings: SchedulerSettings) -> Self {
        let ledger = Ledger::new(std::mem::take(&mut settings.cards)).with_most_runs(settings.models_max);
        Self {
            settings,
            models: ModelTable::default(),
            queue: Queue::default(),
            runs: Runs::default(),
            placements: Placements::new(ledger),
            budgets: Vec::new(),
            yielding: BTreeMap::new(),
            now: Moment::START,
            wake: Moment::NEVER,
            closing: None,
            drained: false,
            holds_idle: false,
            effects: Vec::new(),
        }
    }

    /// Takes an event and appends the actions that follow from it to `effects`.
    pub fn on_event(
        &mut self,
        now: Moment,
        event: SchedulerEvent,
        effects: &mut Vec<SchedulerEffect>,
    ) -> Result<(), UnknownRequest> {
        // A time in the past leaves it as it is.
        self.now = self.now.max(now);
        // The caller's vector is used, so that the fast path allocates nothing.
        std::mem::swap(&mut self.effects, effects);
        let handled = self.handle(event);
        self.give_way();
        self.make_room();
        self.placements.end_event();
        // States come last, so that one event reports each model at most once.
        let shown = &mut self.effects;
        self.models.report_states(|model, state| shown.push(SchedulerEffect::StateChanged { model, state }));
        std::mem::swap(&mut self.effects, effects);
        handled
    }

    fn handle(&mut self, event: SchedulerEvent) -> Result<(), UnknownRequest> {
        match event {
            SchedulerEvent::Arrived { request, model, client, priority, deadline, traits } => {
                let times = (self.now, deadline);
                self.arrived(request, RequestState::new(model, client, priority, times, traits))
            }
            SchedulerEvent::Finished { request, tokens, failed } => {
                return self.finished(request, tokens, failed);
            }
            SchedulerEvent::Abandoned { request } => return self.over(request, None),
            SchedulerEvent::GaveUp { request } => return self.gave_up(request),
            SchedulerEvent::DepthMeasured { request, run, depth } => {
                return self.depth_measured(request, run, depth);
            }
            SchedulerEvent::ForecastFailed { model, reason } => self.forecast_failed(model, reason),
            SchedulerEvent::Bounced { request } => return self.bounced(request),
            SchedulerEvent::HealthChecked { run, health } => self.health_checked(run, health),
            SchedulerEvent::Probed { run, outcome } => self.probed(run, outcome),
            SchedulerEvent::Configured(changes) => self.configured(changes),
            SchedulerEvent::Surveyed { model, result } => self.surveyed(model, result),
            SchedulerEvent::NeedAnswered { model, search, answers } => {
                self.need_answered(model, search, answers)
            }
            SchedulerEvent::GrowthPlanned { run, curve } => self.growth_planned(run, curve),
            SchedulerEvent::Progressed { run, measured } => self.progressed(run, measured),
            SchedulerEvent::Ready { run } => self.ready(run),
            SchedulerEvent::SlotsKnown { run, slots } => self.slots_known(run, slots),
            SchedulerEvent::Slept { run } => self.slept(run),
            SchedulerEvent::Ended { run, end } => self.ended(run, end),
            SchedulerEvent::NeighboursRequested { model } => self.neighbours_requested(model),
            SchedulerEvent::MemoryReturned { run } => self.memory_returned(run),
            SchedulerEvent::Measured { run, used } => self.measured(run, &used),
            SchedulerEvent::GrowthObserved { run, tokens, used } => self.growth_observed(run, tokens, used),
            SchedulerEvent::BudgetRequested { run, card, requested, wanted } => {
                self.budget_requested(run, card, requested, wanted)
            }
            SchedulerEvent::CardsRead { free, taken } => self.cards_read(&free, taken),
            SchedulerEvent::LoadWanted { model } => self.load_wanted(model),
            SchedulerEvent::UnloadWanted { model } => self.unload_wanted(model),
            SchedulerEvent::PinWanted { model, until } => self.pin_wanted(model, until),
            SchedulerEvent::YieldWanted { card, bytes, until } => self.yield_wanted(&card, bytes, until),
            SchedulerEvent::PrecedenceTaken { card, name } => self.precedence_taken(&card, &name),
            SchedulerEvent::KeepWanted { model, time } => self.keep_wanted(model, time),
            SchedulerEvent::IdleOccupied { occupied } => self.hold_idle(occupied),
            SchedulerEvent::Tick => self.tick(),
            SchedulerEvent::Shutdown => self.shutdown(),
        }
        Ok(())
    }

    /// The ledger, for reports and audits.
    pub fn ledger(&self) -> &Ledger {
        &self.placements.ledger
    }

    /// Returns one model's part of the snapshot.
    pub fn view(&self, id: ModelId, now: Moment) -> Option<ModelView> {
        let state = self.at(now);
        Some(state.model_view(id, state.model(id)?))
    }

    /// Dry run of an operator's order to keep so much of a card free.
    pub fn what_if_kept_free(&self, card: &CardId, bytes: Bytes, now: Moment) -> WhatIfKeptFree {
        let mut dry = self.clone();
        let order = SchedulerEvent::YieldWanted { card: card.clone(), bytes, until: Moment::NEVER };
        // No request is named in it.
        let _ = dry.on_event(now, order, &mut Vec::new());
        let leaving = dry.yielding.iter().filter(|(_, (from, _))| from == card).map(|(run, _)| *run);
        let leaving: Vec<RunId> = leaving.collect();
        let given: Bytes = leaving.iter().map(|run| dry.state().occupied_by(*run, card)).sum();
        let lacks = dry.ledger().account(card).map_or(Bytes::ZERO, |account| account.overdrawn());
        let named = leaving.iter().filter_map(|run| Some(dry.state().model_of(*run)?.1.name.to_string()));
        WhatIfKeptFree { stops: named.collect(), lacks: lacks.saturating_sub(given) }
    }

    /// True while the start of an engine measures the free memory of one of these cards.
    pub fn is_measured(&self, cards: &[CardId]) -> bool {
        let on_cards = |run: &RunState| run.placement.cards().any(|card| cards.contains(card));
        self.models.running().any(|(_, _, run)| run.measures_now() && on_cards(run))
    }

    /// The run that is sent a request of the model as soon as it arrives; `None` if it may have to wait.
    pub fn free_run(&self, model: ModelId) -> Option<RunId> {
        let slot = self.models.get(model).filter(|slot| !slot.removed && self.closing.is_none())?;
        slot.free_run()
    }

    /// Runs that could be sent a request and have none.
    pub fn idle_runs(&self) -> Vec<RunId> {
        self.state().idle_runs()
    }

    /// The cause of the wait for a model: `check`, `load`, `room` or `slot`.
    pub fn wait_cause(&self, model: ModelId) -> Option<&'static str> {
        Some(self.state().wait_cause(self.models.get(model)?).0)
    }

    /// True if the run's depth is tracked, so that the tokens of its answers matter.
    pub fn tracks_depth(&self, run: RunId) -> bool {
        let model = self.state().model_of(run);
        model.is_some_and(|(_, slot)| slot.tracked().is_some())
    }

    /// The state at the time of the last event.
    pub fn state(&self) -> StateRef<'_> {
        self.at(self.now)
    }

    /// The state now, to be read.
    pub fn at(&self, now: Moment) -> StateRef<'_> {
        StateRef {
            settings: &self.settings,
            models: &self.models,
            queue: &self.queue,
            runs: &self.runs,
            budgets: &self.budgets,
            yielding: &self.yielding,
            ledger: &self.placements.ledger,
            now,
            closing: self.closing.is_some(),
        }
    }

    fn emit(&mut self, effect: SchedulerEffect) {
        self.effects.push(effect);
    }

    /// Requests a wake-up at `at`, unless an earlier one is pending.
    fn arm(&mut self, at: Moment) {
        if at < self.wake {
            self.wake = at;
            self.emit(SchedulerEffect::WakeAt(at));
        }
    }

    /// Marks that memory may have become free, or that a model began or ended waiting.
    fn mark_dirty(&mut self) {
        // Nothing to search while no model waits; every model that begins to wait marks it again.
        if !self.models.none_waits() {
            self.placements.mark_dirty();
        }
    }
}
