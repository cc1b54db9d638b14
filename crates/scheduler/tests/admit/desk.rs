//! Test setup: a scheduler, a clock, and short functions for events (inputs) and effects (actions).

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{
    AllocationLimit, Bytes, Card, CardId, CardKind, Counting, DeclaredSize, End, MemoryModel, ModelNeed,
    NeedSize, Priority, Reason, Shortfall, Stage, UnknownSize,
};
use plimsoll_scheduler::place::{CardSet, NeedAnswer, NeedAnswers};
use plimsoll_scheduler::{
    CardLimit, ClientId, ConfigChange, Health, ModelId, ModelSpec, ModelState, ModelView, Moment, RequestId,
    RequestRefusal, RequestTraits, RunId, Scheduler, SchedulerEffect, SchedulerEvent, SchedulerSettings,
    Stopping, UnknownRequest, WhatIf,
};

pub(crate) const PATIENCE: u64 = 5;

pub(crate) fn gib(n: u64) -> Bytes {
    Bytes::gib(n)
}

pub(crate) fn card(index: usize, total: Bytes) -> CardLimit {
    let id = format!("card{index}");
    let card = Card {
        id: CardId::new(&id),
        kind: CardKind::Cuda,
        name: id.clone(),
        uuid: None,
        total,
        free: total,
        compute_capability: None,
        legacy_pool: false,
        shares_host: false,
        counting: Counting::Driver,
        maker: plimsoll_base::CardMaker::Nvidia,
        address: None,
    };
    CardLimit { card, budget: None, reserve: Bytes::ZERO }
}

/// What the plan of a model tells of these sets of cards.
pub(crate) fn answers(demand: &dyn MemoryModel, sets: &[CardSet]) -> Vec<NeedAnswer> {
    let answer = |set: &CardSet| NeedAnswer {
        cards: set.iter().map(|card| (card.id.clone(), card.free)).collect(),
        ignores_free: false,
        shares: demand.on(set),
    };
    sets.iter().map(answer).collect()
}

pub(crate) struct Desk {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Moment,
    /// What the last event led to.
    pub(crate) effects: Vec<SchedulerEffect>,
    needs: Vec<Arc<dyn MemoryModel>>,
    /// Questions about needs are answered at once.
    pub(crate) plans: bool,
    next_request: u64,
    /// Readings that the scheduler asks for find the cards as they were.
    pub(crate) reads: bool,
}

impl Desk {
    /// Cards of these sizes, and models `m0`, `m1`, … that need these.
    pub(crate) fn new(cards: &[u64], needs: &[u64]) -> Self {
        Self::tuned(cards, needs, |_, _| {})
    }

    /// The same, where neighbours can be asked for what they hold idle.
    pub(crate) fn with_neighbours(cards: &[u64], needs: &[u64]) -> Self {
        Self::set_up(cards, needs, |_, _| {}, |settings| settings.asks = true)
    }

    /// The same, where the largest goes first.
    pub(crate) fn largest_first(cards: &[u64], needs: &[u64], tune: impl Fn(u32, &mut ModelSpec)) -> Self {
        Self::set_up(cards, needs, tune, |settings| settings.largest_first = true)
    }

    pub(crate) fn tuned(cards: &[u64], needs: &[u64], tune: impl Fn(u32, &mut ModelSpec)) -> Self {
        Self::set_up(cards, needs, tune, |_| {})
    }

    /// The same, where a busy model is left alone for so many seconds.
    pub(crate) fn patient(
        cards: &[u64],
        needs: &[u64],
        seconds: u64,
        tune: impl Fn(u32, &mut ModelSpec),
    ) -> Self {
        Self::set_up(cards, needs, tune, |settings| settings.patience = Duration::from_secs(seconds))
    }

    pub(crate) fn set_up(
        cards: &[u64],
        needs: &[u64],
        tune: impl Fn(u32, &mut ModelSpec),
        set: impl Fn(&mut SchedulerSettings),
    ) -> Self {
        let cards = cards.iter().enumerate().map(|(i, n)| card(i, gib(*n))).collect();
        let mut settings =
            SchedulerSettings { patience: Duration::from_secs(PATIENCE), ..SchedulerSettings::new(cards) };
        set(&mut settings);
        let mut desk = Self {
            scheduler: Scheduler::new(settings),
            now: Moment::START,
            effects: Vec::new(),
            needs: needs.iter().map(|n| Arc::new(DeclaredSize(gib(*n))) as Arc<dyn MemoryModel>).collect(),
            plans: true,
            next_request: 0,
            reads: true,
        };
        let spec = |id: u32| {
            let mut spec = ModelSpec::new(format!("m{id}"));
            tune(id, &mut spec);
            (ModelId(id), ConfigChange::Added(spec))
        };
        desk.send(SchedulerEvent::Configured((0..).take(needs.len()).map(spec).collect()));
        desk
    }

    /// Makes a model's need grow with depth.
    pub(crate) fn grows(&mut self, model: u32, demand: impl MemoryModel + 'static) {
        self.needs[usize::try_from(model).unwrap()] = Arc::new(demand);
    }

    /// What the scheduler wants sounded, and whether exactly.
    pub(crate) fn soundings(&self) -> Vec<(RequestId, bool)> {
        let sounded = self.effects.iter().filter_map(|effect| match effect {
            SchedulerEffect::MeasureDepth { request, exact, .. } => Some((*request, *exact)),
            _ => None,
        });
        sounded.collect()
    }

    pub(crate) fn unknown_need(&mut self, model: u32) {
        self.needs[usize::try_from(model).unwrap()] = Arc::new(UnknownSize);
    }

    pub(crate) fn send(&mut self, event: SchedulerEvent) -> &[SchedulerEffect] {
        self.effects.clear();
        self.scheduler.on_event(self.now, event, &mut self.effects).unwrap();
        self.answer_questions();
        // A reading that finds the cards as they were changes nothing but its age.
        if let Some(requested) = self.effects.iter().position(|effect| *effect == SchedulerEffect::ReadCards)
            && self.reads
        {
            self.effects.remove(requested);
            let accounts = self.scheduler.ledger().accounts().iter();
            let free = accounts.map(|account| (account.card().id.clone(), account.card().free));
            let taken = self.now;
            let free = free.collect();
            let read = SchedulerEvent::CardsRead { free, taken };
            self.scheduler.on_event(self.now, read, &mut self.effects).unwrap();
            self.answer_questions();
        }
        self.scheduler.audit().unwrap();
        &self.effects
    }

    /// Answers the questions to plans, and those that follow.
    fn answer_questions(&mut self) {
        let is_question = |effect: &mut SchedulerEffect| {
            matches!(effect, SchedulerEffect::AskNeed { .. } | SchedulerEffect::PlanGrowth { .. })
        };
        while self.plans
            && let Some(place) = self.effects.iter_mut().position(is_question)
        {
            let question = self.effects.remove(place);
            let event = match question {
                SchedulerEffect::AskNeed { model, search, sets } => {
                    let answers = answers(&*self.needs[usize::try_from(model.0).unwrap()], &sets);
                    SchedulerEvent::NeedAnswered { model, search, answers }
                }
                SchedulerEffect::PlanGrowth { run, model, cards } => {
                    let curve = self.needs[usize::try_from(model.0).unwrap()].curve(&cards);
                    SchedulerEvent::GrowthPlanned { run, curve }
                }
                _ => continue,
            };
            self.scheduler.on_event(self.now, event, &mut self.effects).unwrap();
        }
    }

    /// Sends an event for a request that has ended, which changes nothing.
    pub(crate) fn stray(&mut self, event: SchedulerEvent) -> UnknownRequest {
        self.effects.clear();
        let refused = self.scheduler.on_event(self.now, event, &mut self.effects);
        assert_eq!(self.effects, []);
        refused.unwrap_err()
    }

    pub(crate) fn read(&mut self, free: Vec<(CardId, Bytes)>) -> &[SchedulerEffect] {
        let taken = self.now;
        self.send(SchedulerEvent::CardsRead { free, taken })
    }

    pub(crate) fn health(&mut self, run: RunId, health: Health) -> &[SchedulerEffect] {
        self.send(SchedulerEvent::HealthChecked { run, health })
    }

    pub(crate) fn pass(&mut self, seconds: u64) -> &[SchedulerEffect] {
        self.now = self.now + Duration::from_secs(seconds);
        self.send(SchedulerEvent::Tick)
    }

    /// A request that may wait for ten minutes.
    pub(crate) fn ask(&mut self, model: u32) -> RequestId {
        self.ask_until(model, 600)
    }

    pub(crate) fn ask_until(&mut self, model: u32, seconds: u64) -> RequestId {
        self.ask_as(0, model, seconds)
    }

    /// A request of this client.
    pub(crate) fn ask_as(&mut self, client: u64, model: u32, seconds: u64) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let deadline = self.now + Duration::from_secs(seconds);
        let client = ClientId(client);
        self.send(SchedulerEvent::Arrived {
            request,
            model: ModelId(model),
            client,
            priority: Priority::Normal,
            deadline,
            traits: RequestTraits::default(),
        });
        request
    }

    pub(crate) fn finish(&mut self, request: RequestId) -> &[SchedulerEffect] {
        self.send(SchedulerEvent::Finished { request, tokens: None, failed: false })
    }

    pub(crate) fn bounce(&mut self, request: RequestId) -> &[SchedulerEffect] {
        self.send(SchedulerEvent::Bounced { request })
    }

    pub(crate) fn surveyed(&mut self, model: u32) -> &[SchedulerEffect] {
        let result = Ok(self.needs[usize::try_from(model).unwrap()].need());
        self.send(SchedulerEvent::Surveyed { model: ModelId(model), result })
    }

    pub(crate) fn survey_fails(&mut self, model: u32) -> &[SchedulerEffect] {
        let result = Err(Reason::new("model_missing", "the file is missing"));
        self.send(SchedulerEvent::Surveyed { model: ModelId(model), result })
    }

    pub(crate) fn ready(&mut self, run: RunId) -> &[SchedulerEffect] {
        self.send(SchedulerEvent::Ready { run })
    }

    pub(crate) fn ended(&mut self, run: RunId) -> &[SchedulerEffect] {
        self.send(SchedulerEvent::Ended { run, end: End::Expected })
    }

    pub(crate) fn crashes(&mut self, run: RunId) -> &[SchedulerEffect] {
        let reason = Reason::new("signal", "killed by signal 11");
        self.send(SchedulerEvent::Ended { run, end: End::Crashed { reason } })
    }

    pub(crate) fn runs_out_of_memory(&mut self, run: RunId, shortfall: Option<Bytes>) -> &[SchedulerEffect] {
        let reason = Reason::new("cuda_oom", "cudaMalloc failed: out of memory");
        let shortfall = shortfall.map(|bytes| self.refused_by_driver(bytes));
        let end = End::OutOfMemory { stage: Stage::Loading, reason, shortfall };
        self.send(SchedulerEvent::Ended { run, end })
    }

    /// A shortfall on the first card, as it is now.
    pub(crate) fn refused_by_driver(&self, bytes: Bytes) -> Shortfall {
        let card = self.scheduler.ledger().accounts()[0].card();
        let (id, free) = (card.id.clone(), card.free);
        Shortfall { bytes, limit: AllocationLimit::Driver { card: Some(id), free, occupied: Bytes::ZERO } }
    }

    pub(crate) fn memory_returned(&mut self, run: RunId) -> &[SchedulerEffect] {
        self.send(SchedulerEvent::MemoryReturned { run })
    }

    /// Ends a run that was told to stop, and gives its memory back.
    pub(crate) fn gone(&mut self, run: RunId) {
        self.ended(run);
        self.memory_returned(run);
    }

    /// Brings a model to ready for one request, which it then finishes.
    pub(crate) fn loaded(&mut self, model: u32) -> RunId {
        let request = self.ask(model);
        self.surveyed(model);
        let run = self.started().unwrap();
        self.ready(run);
        self.finish(request);
        run
    }

    pub(crate) fn started(&self) -> Option<RunId> {
        self.effects.iter().find_map(|effect| match effect {
            SchedulerEffect::Start { run, .. } => Some(*run),
            _ => None,
        })
    }

    pub(crate) fn dispatched(&self) -> Vec<RequestId> {
        let dispatched = self.effects.iter().filter_map(|effect| match effect {
            SchedulerEffect::Dispatch { request, .. } => Some(*request),
            _ => None,
        });
        dispatched.collect()
    }

    pub(crate) fn stopped(&self) -> Vec<(RunId, Stopping)> {
        let stopped = self.effects.iter().filter_map(|effect| match effect {
            SchedulerEffect::Stop { run, how } => Some((*run, *how)),
            _ => None,
        });
        stopped.collect()
    }

    pub(crate) fn refusals(&self) -> Vec<&RequestRefusal> {
        let refused = self.effects.iter().filter_map(|effect| match effect {
            SchedulerEffect::Refuse { refusal, .. } => Some(&**refusal),
            _ => None,
        });
        refused.collect()
    }

    pub(crate) fn surveys(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, SchedulerEffect::Survey { .. })).count()
    }

    /// Dry run of a load of the model with a declared need of so many GiB.
    pub(crate) fn what_if(&self, model: u32, size: u64) -> WhatIf {
        let need = ModelNeed::new(NeedSize::Declared(gib(size)));
        let answers = NeedAnswers::default();
        self.scheduler.at(self.now).what_if(ModelId(model), &need, &answers).unwrap().unwrap()
    }

    pub(crate) fn view(&self, model: u32) -> ModelView {
        self.scheduler.view(ModelId(model), self.now).unwrap()
    }

    pub(crate) fn state(&self, model: u32) -> ModelState {
        self.view(model).state
    }
}
