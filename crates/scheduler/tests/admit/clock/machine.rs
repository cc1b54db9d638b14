//! Simulated machine with realistic times: its models, its clients, the queue of what happens next, and the
//! final checks.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_base::{End, ModelNeed, NeedSize, Reason, RunId};
use plimsoll_scheduler::{
    ConfigChange, Health, ModelId, ModelSpec, Moment, ProbeOutcome, RequestId, Scheduler, SchedulerEvent,
    SchedulerSettings,
};

use super::client::{Call, Client};
use super::disk::Disk;
use super::engine::{Engine, Life, Place, Stage};
use super::speed::Stopwatch;
use super::tally::Tally;
use crate::runner::admit::desk::{card, gib};

/// A model, and how its engines behave.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) gib: u64,
    /// Time of a load beside the read of the file.
    pub(super) load: u64,
    /// Time of the read, of a cold file with the disk for itself.
    pub(super) cold: u64,
    pub(super) slots: usize,
    /// Its engines in turn; the last is like all after it.
    pub(super) lives: Vec<Life>,
    /// Its engines end by a kill alone.
    pub(super) ignores_stop: bool,
    pub(super) spec: ModelSpec,
}

impl Model {
    pub(super) fn new(gib: u64, load: u64) -> Self {
        let spec = ModelSpec::new("");
        Self { gib, load, cold: 0, slots: 4, lives: vec![Life::Sound], ignores_stop: false, spec }
    }

    pub(super) fn with(mut self, tune: impl FnOnce(&mut Self)) -> Self {
        tune(&mut self);
        self
    }
}

/// A machine with its clients, for so long.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// GiB of each card.
    pub(super) cards: Vec<u64>,
    pub(super) models: Vec<Model>,
    pub(super) clients: Vec<Client>,
    pub(super) until: u64,
    /// The page cache keeps no file beyond the end of its engine.
    pub(super) forgets: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Happening {
    Call(usize),
    Ask(usize),
    GivesUp(RequestId),
    Surveyed(ModelId),
    FilesRead,
    Ready(RunId),
    Hangs(RunId),
    Ends(RunId, End),
    Returned(RunId),
    CardsRead,
    Checked(RunId),
    Probed(RunId),
    Answered(RequestId, RunId),
    /// Sent to an engine that had just died.
    Bounces(RequestId, RunId),
    Wake,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) scheduler: Scheduler,
    pub(super) totals: Vec<u64>,
    pub(super) models: Vec<Model>,
    pub(super) clients: Vec<Client>,
    /// Calls that each client has made.
    pub(super) created: Vec<u64>,
    pub(super) until: u64,
    pub(super) now: u64,
    agenda: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    pub(super) disk: Disk,
    pub(super) engines: BTreeMap<RunId, Engine>,
    pub(super) calls: Vec<Call>,
    /// Each request's place and call.
    requests: Vec<(Place, usize)>,
    pub(super) loads: Vec<u64>,
    pub(super) thrown: u64,
    pub(super) lost_streams: u64,
    pub(super) refused: u64,
    pub(super) gave_up: u64,
    pub(super) drained: Option<u64>,
    /// Requests under which an engine has just died.
    pub(super) suspects: BTreeMap<RequestId, u32>,
    /// Models whose engine ignored a polite stop.
    pub(super) deaf: Vec<bool>,
    /// Models that the driver does not start again, because nothing has changed since a failure that lasts.
    pub(super) lasting: Vec<bool>,
    pub(super) stopwatch: Stopwatch,
}

impl Machine {
    fn new(scenario: &Scenario) -> Self {
        let Scenario { cards, models, clients, until, forgets } = scenario.clone();
        let limits = cards.iter().enumerate().map(|(index, size)| card(index, gib(*size))).collect();
        let mut machine = Self {
            scheduler: Scheduler::new(SchedulerSettings::new(limits)),
            totals: cards,
            created: vec![0; clients.len()],
            until,
            now: 0,
            agenda: BTreeMap::new(),
            sequence: 0,
            disk: Disk::new(models.iter().map(|model| model.cold), forgets),
            engines: BTreeMap::new(),
            calls: Vec::new(),
            requests: Vec::new(),
            loads: vec![0; models.len()],
            suspects: BTreeMap::new(),
            deaf: vec![false; models.len()],
            lasting: vec![false; models.len()],
            stopwatch: Stopwatch::default(),
            models,
            clients,
            thrown: 0,
            lost_streams: 0,
            refused: 0,
            gave_up: 0,
            drained: None,
        };
        let named = |(id, model): (u32, &Model)| {
            let slots = u32::try_from(model.slots).ok();
            let spec = ModelSpec { name: format!("m{id}"), slots, ..model.spec.clone() };
            (ModelId(id), ConfigChange::Added(spec))
        };
        let added = (0..).zip(&machine.models).map(named).collect();
        machine.notify(SchedulerEvent::Configured(added));
        for index in 0..machine.clients.len() {
            machine.later(machine.clients[index].begins, Happening::Call(index));
        }
        machine
    }

    /// Lets the clients have their time, then shuts down, and checks that nothing is left.
    pub(super) fn run(scenario: &Scenario) -> Tally {
        let mut machine = Self::new(scenario);
        machine.settle(scenario.until);
        machine.now = scenario.until;
        machine.notify(SchedulerEvent::Shutdown);
        machine.settle(u64::MAX);
        assert!(machine.drained.is_some(), "an engine is left: {:?}", machine.engines);
        assert!(machine.engines.values().all(|engine| !engine.lives()));
        for account in machine.scheduler.ledger().accounts() {
            assert_eq!(account.claims(), [], "the ledger is not back to zero");
        }
        assert!(machine.requests.iter().all(|(place, _)| *place == Place::Over), "a request has no end");
        Tally::of(machine)
    }

    fn settle(&mut self, until: u64) {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 < until) {
            let ((at, _), happening) = entry.remove_entry();
            self.now = at;
            self.happen(happening);
            assert!(self.sequence < 10_000_000, "the machine does not come to rest");
        }
    }

    pub(super) fn later(&mut self, at: u64, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((at.max(self.now), self.sequence), happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Call(client) => self.call(client),
            Happening::Ask(call) => self.ask(call),
            Happening::GivesUp(request) => self.gives_up(request),
            Happening::Surveyed(model) => {
                let place = usize::try_from(model.0).unwrap();
                let size = NeedSize::Declared(gib(self.models[place].gib));
                let result = if self.lasting[place] {
                    Err(Reason::new("unstartable", "nothing has changed since the last load"))
                } else {
                    Ok(ModelNeed::new(size))
                };
                self.notify(SchedulerEvent::Surveyed { model, result });
            }
            Happening::FilesRead => self.reads_change(|_| {}),
            Happening::Ready(run) => self.becomes_ready(run),
            Happening::Hangs(run) => self.engines.get_mut(&run).unwrap().hung = true,
            Happening::Ends(run, end) => self.ends(run, end),
            Happening::Returned(run) => self.notify(SchedulerEvent::MemoryReturned { run }),
            Happening::CardsRead => self.read_cards(),
            Happening::Checked(run) => {
                let health = match &self.engines[&run] {
                    engine if !engine.lives() => Health::Fails,
                    engine if engine.hung => Health::Silent,
                    _ => Health::Answers,
                };
                self.notify(SchedulerEvent::HealthChecked { run, health });
            }
            Happening::Probed(run) => {
                let engine = &self.engines[&run];
                let fails = engine.hung || !engine.lives();
                let outcome = if fails { ProbeOutcome::Fails } else { ProbeOutcome::Lives };
                self.notify(SchedulerEvent::Probed { run, outcome });
            }
            Happening::Answered(request, run) => self.answer(request, run),
            Happening::Bounces(request, run) => self.bounces(request, run),
            Happening::Wake => self.notify(SchedulerEvent::Tick),
        }
    }

    /// Changes what is read from the disk, and goes on with loads whose files have been read.
    pub(super) fn reads_change(&mut self, change: impl FnOnce(&mut Disk)) {
        self.disk.advance(self.now);
        change(&mut self.disk);
        if let Some(at) = self.disk.next() {
            self.later(at, Happening::FilesRead);
        }
        self.files_read();
    }

    fn read_cards(&mut self) {
        let free = self.scheduler.ledger().accounts().iter().map(|account| {
            let id = account.card().id.clone();
            let occupied = self.engines.values().filter(|engine| engine.stage != Stage::Ended);
            let occupied = occupied.map(|engine| engine.placement.on(&id)).sum();
            (id, account.card().total.saturating_sub(occupied))
        });
        let free = free.collect();
        self.notify(SchedulerEvent::CardsRead { free, taken: moment(self.now) });
    }

    pub(super) fn request(&mut self, call: usize) -> RequestId {
        self.requests.push((Place::Waiting, call));
        RequestId(u64::try_from(self.requests.len() - 1).unwrap())
    }

    /// The place of a request, and its call.
    pub(super) fn look_up(&self, request: RequestId) -> (Place, usize) {
        self.requests[usize::try_from(request.0).unwrap()]
    }

    pub(super) fn put(&mut self, request: RequestId, place: Place) {
        self.requests[usize::try_from(request.0).unwrap()].0 = place;
    }

    /// The request has its one end.
    pub(super) fn over(&mut self, request: RequestId) {
        let place = self.look_up(request).0;
        assert_ne!(place, Place::Over, "{request:?} ends twice");
        self.put(request, Place::Over);
        if let Place::Sent(run) = place {
            self.engines.get_mut(&run).unwrap().leave(request);
            self.fill_slots(run);
        }
    }
}

pub(super) fn moment(milliseconds: u64) -> Moment {
    Moment::at(Duration::from_millis(milliseconds))
}
