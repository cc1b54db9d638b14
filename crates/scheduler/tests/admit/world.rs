//! Simulated machine for the scheduler: engines with faults, clients that leave, other processes.
mod deaths;
mod diving;
mod effects;
mod plans;
mod reading;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use plimsoll_base::{Bytes, CardId, CardKind, End, Placement, Reason, Stage};
use plimsoll_scheduler::{
    ClientId, ConfigChange, Health, ModelId, ModelSpec, Moment, ProbeOutcome, RequestId, RequestTraits,
    RunId, Scheduler, SchedulerEvent, SchedulerSettings,
};

use self::diving::{Diver, tokens};
use crate::runner::admit::desk::{PATIENCE, card, gib};
use crate::runner::admit::script::{Action, Client, Fate, Need, PlanFate};

const HUNG: u64 = u64::MAX;
/// What a sleeping engine keeps of a card.
const ASLEEP: Bytes = Bytes::mib(512);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Loading,
    Ready,
    Ended,
}

#[derive(Debug)]
struct Engine {
    model: ModelId,
    stage: Life,
    fate: Fate,
    placement: Placement,
    requests: BTreeSet<RequestId>,
    reported_to_stop: bool,
    /// How deep it really is.
    diver: Option<Diver>,
    /// The card on which it takes what it was given, however deep it is.
    host: Option<CardId>,
    /// The scheduler has been told that it ended.
    buried: bool,
    /// It has freed all but a little until its next request.
    asleep: bool,
    /// Each of its answers is an error.
    poisoned: bool,
    /// Guard holds it to what it was given: the scheduler does not know how it grows.
    is_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Waiting { since: u64 },
    InFlight(RunId),
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Requested {
    model: u32,
    takes: u64,
    prompt: u64,
    /// The engine was asked to count the prompt, and has.
    counted: bool,
    place: Where,
    looping: bool,
}

#[derive(Clone, Debug)]
enum Happening {
    Act(Action),
    AskAgain(Client),
    Surveyed(ModelId),
    /// A plan, or an engine, answers.
    Planned(SchedulerEvent),
    Ready(RunId),
    Ends(RunId, End),
    Returned(RunId),
    Requested(ModelId),
    Read,
    Checked(RunId),
    Poisoned(RunId),
    Probed(RunId),
    Answered(RequestId),
    Sounded(RequestId, RunId, bool),
    /// Sent to an engine that had just died.
    Bounces(RequestId),
    Wake,
}

impl Engine {
    /// What it really takes of a card.
    fn takes(&self, card: &CardId) -> Bytes {
        let awake = match &self.diver {
            Some(_) if self.host.as_ref() == Some(card) => self.placement.on(card),
            Some(diver) => diver.takes(card),
            None => self.placement.on(card),
        };
        let awake = if self.is_limited { awake.min(self.placement.on(card)) } else { awake };
        if self.asleep { awake.min(ASLEEP) } else { awake }
    }
}

pub(crate) struct World {
    scheduler: Scheduler,
    settings: SchedulerSettings,
    /// The card that is the host's memory, beside others.
    host: Option<CardId>,
    /// So many of the models listen on one port.
    pub(crate) on_port: u32,
    now: u64,
    agenda: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    pub(crate) needs: Vec<Need>,
    totals: Vec<u64>,
    foreign: Vec<u64>,
    fates: Vec<Fate>,
    /// How plans answer, in turn; at once if that is empty.
    plans: Vec<PlanFate>,
    questions: usize,
    at_once: VecDeque<SchedulerEvent>,
    pub(crate) events: usize,
    lives: usize,
    engines: BTreeMap<RunId, Engine>,
    requested: Vec<Requested>,
    /// Runs whose request for a budget is not answered yet.
    budget_requests: BTreeSet<RunId>,
    closing: Option<u64>,
    drained: bool,
    /// Clients ask again until then.
    busy_until: u64,
    pub(crate) longest_wait: u64,
    pub(crate) answered: usize,
    pub(crate) refused: BTreeMap<String, usize>,
}

impl World {
    pub(crate) fn new(
        totals: &[u64],
        needs: Vec<Need>,
        fates: Vec<Fate>,
        (largest_first, models_max): (bool, usize),
    ) -> Self {
        let cards = totals.iter().enumerate().map(|(i, n)| card(i, gib(*n))).collect();
        let settings = SchedulerSettings {
            patience: Duration::from_secs(PATIENCE),
            asks: true,
            largest_first,
            // Either way in half of the worlds.
            gives_way: largest_first,
            models_max: std::num::NonZeroUsize::new(models_max),
            ..SchedulerSettings::new(cards)
        };
        let mut world = Self {
            scheduler: Scheduler::new(settings.clone()),
            settings,
            host: None,
            on_port: 0,
            now: 0,
            agenda: BTreeMap::new(),
            sequence: 0,
            totals: totals.to_vec(),
            foreign: vec![0; totals.len()],
            needs,
            fates,
            plans: Vec::new(),
            questions: 0,
            at_once: VecDeque::new(),
            events: 0,
            lives: 0,
            engines: BTreeMap::new(),
            requested: Vec::new(),
            budget_requests: BTreeSet::new(),
            closing: None,
            drained: false,
            busy_until: 0,
            longest_wait: 0,
            answered: 0,
            refused: BTreeMap::new(),
        };
        world.configure();
        world
    }

    fn configure(&mut self) {
        self.agenda.clear();
        let models = 0..u32::try_from(self.needs.len()).unwrap();
        let added = models.map(|id| (ModelId(id), ConfigChange::Added(self.spec(id)))).collect();
        self.notify(SchedulerEvent::Configured(added));
    }

    /// The same, where the last of several cards is the host's memory, of which models take a part.
    pub(crate) fn with_host(mut self, host: bool) -> Self {
        if host && self.totals.len() > 1 {
            let mut cards: Vec<_> = self.totals.iter().enumerate().map(|(i, n)| card(i, gib(*n))).collect();
            let last = cards.last_mut().unwrap();
            last.card.kind = CardKind::Host;
            self.host = Some(last.card.id.clone());
            let settings = SchedulerSettings { cards, ..self.settings.clone() };
            self.scheduler = Scheduler::new(settings);
            self.configure();
        }
        self
    }

    /// Where plans answer late, wrongly or never.
    pub(crate) fn with_plans(mut self, plans: Vec<PlanFate>) -> Self {
        self.plans = plans;
        self
    }

    fn need(&self, model: u32) -> &Need {
        &self.needs[usize::try_from(model).unwrap()]
    }

    pub(crate) fn spec(&self, model: u32) -> ModelSpec {
        let need = self.need(model);
        ModelSpec {
            pinned: need.pinned,
            concurrency: need.concurrency,
            priority: need.priority,
            port: (model < self.on_port).then_some(9000),
            max_requests: need.most,
            measures_free: need.measures,
            ttl: need.ttl.map(Duration::from_millis),
            preload: model % 2 == 1,
            ..ModelSpec::new(format!("m{model}"))
        }
    }

    pub(crate) fn plan(&mut self, actions: &[(u64, Action)]) {
        let mut at = self.now;
        for (gap, action) in actions {
            at += gap;
            self.later(at, Happening::Act(*action));
        }
    }

    pub(crate) fn with_clients(&mut self, clients: &[Client], busy_until: u64) {
        self.busy_until = busy_until;
        for client in clients {
            self.later(self.now, Happening::AskAgain(*client));
        }
    }

    fn later(&mut self, at: u64, happening: Happening) {
        if at != HUNG {
            self.sequence += 1;
            self.agenda.insert((at.max(self.now), self.sequence), happening);
        }
    }

    /// Lets everything happen that is going to, then shuts down, and checks that nothing is left.
    pub(crate) fn run(&mut self) {
        self.settle();
        self.closing = Some(self.now);
        self.notify(SchedulerEvent::Shutdown);
        self.settle();
        assert!(self.drained, "an engine is left: {:?}", self.engines);
        assert!(self.engines.values().all(|engine| engine.stage == Life::Ended));
        for account in self.scheduler.ledger().accounts() {
            assert_eq!(account.claims(), [], "the ledger is not back to zero");
        }
        assert!(self.budget_requests.is_empty(), "no answer: {:?}", self.budget_requests);
        let open: Vec<&Requested> =
            self.requested.iter().filter(|requested| requested.place != Where::Over).collect();
        assert!(open.is_empty(), "requests without an end: {open:?}");
    }

    fn settle(&mut self) {
        let mut steps = 0;
        while let Some(((at, _), happening)) = self.agenda.pop_first() {
            self.now = at;
            self.happen(happening);
            steps += 1;
            assert!(steps < 50_000, "the world does not come to rest");
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Act(action) => self.act(action),
            Happening::AskAgain(client) if self.now < self.busy_until => {
                self.ask(client.model, client.takes, 3_600_000, client.prompt, true);
            }
            Happening::AskAgain(_) => {}
            Happening::Surveyed(model) => {
                let fails = self.need(model.0).survey_fails;
                let need = self.demand(model.0).need();
                let result = if fails { Err(Reason::new("missing", "missing")) } else { Ok(need) };
                self.notify(SchedulerEvent::Surveyed { model, result });
            }
            Happening::Planned(event) => self.planned(event),
            Happening::Ready(run) => self.becomes_ready(run),
            Happening::Ends(run, end) => self.ends(run, end),
            Happening::Returned(run) => {
                let engine = self.engines.get_mut(&run).unwrap();
                engine.placement = Placement::default();
                engine.diver = None;
                self.notify(SchedulerEvent::MemoryReturned { run });
            }
            Happening::Read => self.look(),
            Happening::Checked(run) => {
                let health = match self.engines[&run].stage {
                    Life::Ended => Health::Fails,
                    Life::Loading | Life::Ready => Health::Answers,
                };
                self.notify(SchedulerEvent::HealthChecked { run, health });
            }
            Happening::Poisoned(run) => self.engines.get_mut(&run).unwrap().poisoned = true,
            Happening::Probed(run) => {
                let engine = &self.engines[&run];
                let outcome = if engine.poisoned || engine.stage == Life::Ended {
                    ProbeOutcome::Fails
                } else {
                    ProbeOutcome::Lives
                };
                self.notify(SchedulerEvent::Probed { run, outcome });
            }
            Happening::Requested(model) => self.notify(SchedulerEvent::NeighboursRequested { model }),
            Happening::Answered(request) => self.answer(request),
            Happening::Sounded(request, run, exact) => self.sounded(request, run, exact),
            Happening::Bounces(request) => self.bounces(request),
            Happening::Wake => self.notify(SchedulerEvent::Tick),
        }
    }

    fn act(&mut self, action: Action) {
        let model = |id: u32| ModelId(id);
        match action {
            Action::Ask { model, takes, patient_for, prompt } => {
                self.ask(model, takes, patient_for, prompt, false)
            }
            Action::Leave { back } => self.leave(back),
            Action::RequestBudget { back, gib } => self.request_budget(back, gib),
            Action::Foreign { card, gib } => {
                let card = card % self.totals.len();
                self.foreign[card] = gib.min(self.totals[card]);
                self.look();
            }
            Action::Measure => self.look(),
            Action::Sleep { back } => self.sleep(back),
            Action::Replace { model: id } => {
                self.notify(SchedulerEvent::Configured(vec![(
                    model(id),
                    ConfigChange::Replaced(self.spec(id)),
                )]));
            }
            Action::Retune { model: id } => {
                self.notify(SchedulerEvent::Configured(vec![(
                    model(id),
                    ConfigChange::Retuned(self.spec(id)),
                )]));
            }
            Action::Remove { model: id } => {
                self.notify(SchedulerEvent::Configured(vec![(model(id), ConfigChange::Removed)]))
            }
            Action::Load { model: id } => self.notify(SchedulerEvent::LoadWanted { model: model(id) }),
            Action::Pin { model: id, time } => {
                self.notify(SchedulerEvent::PinWanted { model: model(id), until: moment(self.now + time) });
            }
            Action::Yield { card, gib: size, time } => {
                let card = card_id(card % self.totals.len());
                let until = moment(self.now + time);
                self.notify(SchedulerEvent::YieldWanted { card, bytes: gib(size), until });
            }
            Action::Precedence { card } => {
                let card = card_id(card % self.totals.len());
                self.notify(SchedulerEvent::PrecedenceTaken { card, name: "blender".to_owned() });
            }
            Action::Unload { model: id } => self.notify(SchedulerEvent::UnloadWanted { model: model(id) }),
        }
    }

    fn ask(&mut self, model: u32, takes: u64, patient_for: u64, prompt: u64, looping: bool) {
        let request = RequestId(u64::try_from(self.requested.len()).unwrap());
        self.requested.push(Requested {
            model,
            takes,
            prompt,
            counted: false,
            place: Where::Waiting { since: self.now },
            looping,
        });
        let deadline = moment(self.now + patient_for);
        let client = ClientId(request.0 % 3);
        let (priority, traits) = (self.need(model).priority, RequestTraits::default());
        self.notify(SchedulerEvent::Arrived {
            request,
            model: ModelId(model),
            client,
            priority,
            deadline,
            traits,
        });
    }

    fn leave(&mut self, back: usize) {
        let Some(index) = self.requested.len().checked_sub(back + 1) else {
            return;
        };
        if self.requested[index].place != Where::Over {
            self.over(index);
            self.notify(SchedulerEvent::Abandoned { request: RequestId(u64::try_from(index).unwrap()) });
        }
    }

    fn over(&mut self, index: usize) {
        let requested = self.requested[index];
        assert_ne!(requested.place, Where::Over, "request {index} ends twice");
        if let Where::InFlight(run) = requested.place {
            let request = RequestId(u64::try_from(index).unwrap());
            let engine = self.engines.get_mut(&run).unwrap();
            engine.requests.remove(&request);
            if let Some(diver) = &mut engine.diver {
                diver.leave(request);
            }
        }
        self.requested[index].place = Where::Over;
        if requested.looping {
            self.later(
                self.now,
                Happening::AskAgain(Client {
                    model: requested.model,
                    takes: requested.takes,
                    prompt: requested.prompt,
                }),
            );
        }
    }

    fn answer(&mut self, request: RequestId) {
        let index = usize::try_from(request.0).unwrap();
        if let Where::InFlight(run) = self.requested[index].place {
            let failed = self.engines[&run].poisoned;
            self.over(index);
            self.answered += 1;
            let tokens = tokens(self.requested[index].prompt);
            self.notify(SchedulerEvent::Finished {
                request,
                tokens: request.0.is_multiple_of(2).then_some(tokens),
                failed,
            });
        }
    }

    fn becomes_ready(&mut self, run: RunId) {
        let engine = self.engines.get_mut(&run).unwrap();
        if engine.stage != Life::Loading || engine.reported_to_stop {
            return;
        }
        engine.stage = Life::Ready;
        if let Fate::DiesServing { after, out_of_memory, .. } = engine.fate {
            let end = if out_of_memory {
                oom(Stage::Serving)
            } else {
                End::Crashed { reason: Reason::new("signal", "signal 11") }
            };
            self.later(self.now + after, Happening::Ends(run, end));
        }
        if let Fate::Poisoned { after, .. } = self.engines[&run].fate {
            self.later(self.now + after, Happening::Poisoned(run));
        }
        self.notify(SchedulerEvent::Ready { run });
    }

    /// A run asks for more of its first card.
    fn request_budget(&mut self, back: usize, more: u64) {
        let alive = self.engines.iter().filter(|(_, engine)| engine.stage != Life::Ended);
        let placed = alive.filter_map(|(run, engine)| Some((*run, engine.placement.cards().next()?.clone())));
        let Some((run, card)) = placed.collect::<Vec<_>>().into_iter().rev().nth(back) else {
            return;
        };
        let claim = self.scheduler.ledger().account(&card).unwrap().occupied_by(run);
        if self.budget_requests.insert(run) {
            self.notify(SchedulerEvent::BudgetRequested {
                run,
                card,
                requested: gib(more),
                wanted: claim + gib(more),
            });
        }
    }
}

fn oom(stage: Stage) -> End {
    End::OutOfMemory { stage, reason: Reason::new("cuda_oom", "out of memory"), shortfall: None }
}

fn card_id(index: usize) -> CardId {
    CardId::new(&format!("card{index}"))
}

fn moment(milliseconds: u64) -> Moment {
    Moment::at(Duration::from_millis(milliseconds))
}
