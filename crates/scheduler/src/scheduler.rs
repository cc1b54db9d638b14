//! The scheduler: one owner, one entrance.
//!
//! Requests to a ready model pass straight through, in constant time and without allocation once the tables
//! have grown. Everything that changes who holds memory goes through [`Scheduler::make_room`], which looks at
//! all waiting models again, oldest first, and is skipped while nobody waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use plimsoll_base::RunId;

use super::effect::Effect;
use super::event::Event;
use super::model::{Model, Request};
use super::moment::{ModelId, Moment, RequestId};
use super::pleas::Plea;
use super::spec::Settings;
use crate::place::Ledger;

/// Decides which model runs where and which request goes when.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) settings: Settings,
    pub(super) ledger: Ledger,
    /// By number; None for numbers not in use.
    pub(super) models: Vec<Option<Model>>,
    pub(super) requests: HashMap<RequestId, Request>,
    /// Of queued requests only.
    pub(super) deadlines: BTreeSet<(Moment, RequestId)>,
    /// Runs that have a process.
    pub(super) living: BTreeMap<RunId, ModelId>,
    /// Runs that have ended and whose memory is not back yet.
    pub(super) leaving: BTreeSet<RunId>,
    /// Runs that asked for more and wait for neighbours to go.
    pub(super) pleas: Vec<Plea>,
    pub(super) next_run: u64,
    pub(super) stamp: u64,
    /// Models that wait for room, to start or to go deeper.
    pub(super) waiting: usize,
    /// Something happened that may let a waiting model in.
    pub(super) stirred: bool,
    /// Sets of idle runs that were found to make no room for anybody who waits, since something else happened.
    pub(super) fruitless: Vec<Vec<RunId>>,
    /// Something happened that may have changed a model's state.
    pub(super) moved: bool,
    pub(super) now: Moment,
    /// The wake-up that the owner was last asked for.
    pub(super) wake: Moment,
    /// When draining ends, once shutdown has begun.
    pub(super) closing: Option<Moment>,
    pub(super) drained: bool,
    /// The caller's vector while an event is handled.
    pub(super) effects: Vec<Effect>,
}

impl Scheduler {
    pub fn new(mut settings: Settings) -> Self {
        let ledger = Ledger::new(std::mem::take(&mut settings.cards));
        Self {
            settings,
            ledger,
            models: Vec::new(),
            requests: HashMap::new(),
            deadlines: BTreeSet::new(),
            living: BTreeMap::new(),
            leaving: BTreeSet::new(),
            pleas: Vec::new(),
            next_run: 1,
            stamp: 0,
            waiting: 0,
            stirred: false,
            fruitless: Vec::new(),
            moved: false,
            now: Moment::START,
            wake: Moment::NEVER,
            closing: None,
            drained: false,
            effects: Vec::new(),
        }
    }

    /// Takes what happened and appends what is to be done to `effects`.
    pub fn on_event(&mut self, now: Moment, event: Event, effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        std::mem::swap(&mut self.effects, effects);
        self.handle(event);
        if self.stirred {
            self.make_room();
        }
        if self.moved {
            self.show();
        }
        std::mem::swap(&mut self.effects, effects);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrived {
                request,
                model,
                deadline,
            } => self.arrived(request, model, deadline),
            Event::Finished { request, tokens } => self.over(request, tokens),
            Event::Abandoned { request } => self.over(request, None),
            Event::Sounded { request, run, depth } => self.sounded(request, run, depth),
            Event::Foreseen { model, reason } => self.foreseen(model, reason),
            Event::Bounced { request } => self.bounced(request),
            Event::Configured(changes) => self.configured(changes),
            Event::Surveyed { model, result } => self.surveyed(model, result),
            Event::Progressed { run } => self.progressed(run),
            Event::Ready { run } => self.ready(run),
            Event::Ended { run, end } => self.ended(run, end),
            Event::NeighboursAsked { model } => self.neighbours_asked(model),
            Event::MemoryReturned { run } => self.memory_returned(run),
            Event::Measured { run, used } => self.measured(run, &used),
            Event::Deepened { run, tokens, used } => self.deepened(run, tokens, used),
            Event::Pleaded {
                run,
                card,
                asked,
                wanted,
            } => self.pleaded(run, card, asked, wanted),
            Event::CardsRead(cards) => self.cards_read(&cards),
            Event::LoadWanted { model } => self.load_wanted(model),
            Event::UnloadWanted { model } => self.unload_wanted(model),
            Event::Tick => self.tick(),
            Event::Shutdown => self.shutdown(),
        }
    }

    /// The books, for views and audits.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn model(&self, id: ModelId) -> Option<&Model> {
        self.models.get(usize::try_from(id.0).ok()?)?.as_ref()
    }

    pub(super) fn model_mut(&mut self, id: ModelId) -> Option<&mut Model> {
        self.models.get_mut(usize::try_from(id.0).ok()?)?.as_mut()
    }

    pub(super) fn model_ids(&self) -> Vec<ModelId> {
        let used = (0_u32..).zip(&self.models).filter(|(_, model)| model.is_some());
        used.map(|(id, _)| ModelId(id)).collect()
    }

    pub(super) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Asks to be woken at `at`, unless an earlier wake-up is on its way.
    pub(super) fn arm(&mut self, at: Moment) {
        if at < self.wake {
            self.wake = at;
            self.emit(Effect::WakeAt(at));
        }
    }

    /// Memory may have come free, or somebody may have begun or ceased to wait.
    pub(super) fn stir(&mut self) {
        if self.waiting > 0 {
            self.stirred = true;
            self.fruitless.clear();
        }
    }

    /// A run has become idle. Under traffic that happens thousands of times a second, so those who wait are looked
    /// at again only if no set that holds all who are idle now has been found fruitless.
    pub(super) fn stir_for_idle(&mut self) {
        if self.waiting > 0 {
            let idle = self.idle_runs();
            let known = |set: &Vec<RunId>| idle.iter().all(|run| set.contains(run));
            self.stirred |= !self.fruitless.iter().any(known);
        }
    }

    /// Runs that could be sent a request and have none.
    pub fn idle_runs(&self) -> Vec<RunId> {
        let runs = self
            .models
            .iter()
            .flatten()
            .filter_map(|model| model.run.as_ref());
        runs.filter(|run| run.takes_requests() && run.in_flight == 0)
            .map(|run| run.id)
            .collect()
    }

    /// Tells the owner which models are in another state than it knows.
    fn show(&mut self) {
        self.moved = false;
        for (id, slot) in (0_u32..).zip(&mut self.models) {
            let Some(model) = slot else { continue };
            let state = model.state();
            if state != model.shown {
                model.shown = state;
                self.effects.push(Effect::Changed {
                    model: ModelId(id),
                    state,
                });
            }
            if model.removed && model.run.is_none() {
                *slot = None;
            }
        }
    }
}
