//! Property test of the table of requests with a real scheduler: every request ends exactly once, whatever
//! happens, and its client is told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use plimsoll_base::{
    Bytes, Card, CardId, CardKind, Counting, Curve, End, MemoryModel, Priority, Reason, Slots,
};
use plimsoll_log::Log;
use plimsoll_scheduler::{
    CardLimit, ClientId, ConfigChange, Health, ModelId, ModelSpec, Moment, RequestTraits, Scheduler,
    SchedulerEffect, SchedulerSettings,
};
use proptest::prelude::*;

use super::*;
use crate::forecast::answers;

const MODELS: u32 = 2;

/// A model whose memory grows with the tokens of its requests, so that their depths are measured.
#[derive(Debug)]
struct Growing;

impl MemoryModel for Growing {
    fn on(&self, cards: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
        Ok(cards.iter().take(1).map(|card| (card.id.clone(), Bytes::gib(1))).collect())
    }

    fn curve(&self, cards: &[Card]) -> Result<Curve, String> {
        let slots = Slots {
            count: 2,
            each: 1000,
            full: 2000,
            unified: false,
            keeps: false,
            scatter: 0,
            answer: None,
        };
        let ids: Vec<CardId> = cards.iter().map(|card| card.id.clone()).collect();
        let step = |n: u64| (1000 * n, vec![Bytes::gib(1 + n); ids.len()]);
        Curve::new(slots, ids.clone(), (0..=2).map(step).collect()).ok_or_else(|| "no curve".to_owned())
    }
}

/// A client's knowledge of its request.
enum Seen {
    Waits,
    Measures(RunId),
    IsServed,
}

struct Client {
    answers: mpsc::UnboundedReceiver<AdmissionAnswer>,
    seen: Seen,
}

/// One thing that happens; numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive {
        model: u32,
        patience: u64,
    },
    /// A client gets its report.
    Hear(usize),
    /// A depth was measured; the engine may have counted nothing.
    Measured(usize, Option<u64>),
    Leave(usize),
    Finish(usize),
    Bounce(usize),
    /// A task of the runtime reports.
    Report(usize),
    Dies(usize),
    Unload(u32),
    Load(u32),
    Replace(u32),
    Remove(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (model, at) = (|| 0..MODELS, || 0_usize..8);
    prop_oneof![
        6 => (model(), 1_u64..5_000).prop_map(|(model, patience)| Step::Arrive { model, patience }),
        8 => at().prop_map(Step::Hear),
        4 => (at(), prop::option::weighted(0.8, 0_u64..3_000)).prop_map(|(at, n)| Step::Measured(at, n)),
        1 => at().prop_map(Step::Leave),
        2 => at().prop_map(Step::Finish),
        1 => at().prop_map(Step::Bounce),
        10 => at().prop_map(Step::Report),
        1 => at().prop_map(Step::Dies),
        1 => model().prop_map(Step::Unload),
        1 => model().prop_map(Step::Load),
        1 => model().prop_map(Step::Replace),
        1 => model().prop_map(Step::Remove),
        2 => (0_u64..3_000).prop_map(Step::Wait),
    ]
}

struct Desk {
    scheduler: Scheduler,
    table: RequestTable,
    now: Moment,
    clients: BTreeMap<u64, Client>,
    runs: IdMap<RunId, Rc<EngineRun>>,
    /// Future reports of tasks.
    reports: VecDeque<SchedulerEvent>,
    came: u64,
    ended: u64,
}

impl Desk {
    fn new() -> Self {
        let card = Card {
            id: CardId::new("card"),
            kind: CardKind::Cuda,
            name: "card".to_owned(),
            uuid: None,
            total: Bytes::gib(4),
            free: Bytes::gib(4),
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: plimsoll_base::CardMaker::Nvidia,
            address: None,
        };
        let limit = CardLimit { card, budget: None, reserve: Bytes::ZERO };
        let mut desk = Self {
            scheduler: Scheduler::new(SchedulerSettings::new(vec![limit])),
            table: RequestTable::default(),
            now: Moment::START,
            clients: BTreeMap::new(),
            runs: IdMap::default(),
            reports: VecDeque::new(),
            came: 0,
            ended: 0,
        };
        for model in 0..MODELS {
            desk.configure(model, ConfigChange::Added(spec(model)));
        }
        desk
    }

    fn configure(&mut self, model: u32, change: ConfigChange) {
        self.notify(SchedulerEvent::Configured(vec![(ModelId(model), change)]));
    }

    fn notify(&mut self, event: SchedulerEvent) {
        if let SchedulerEvent::Ended { run, .. } = &event {
            self.runs.remove(run);
        }
        let mut effects = Vec::new();
        self.scheduler
            .on_event(self.now, event, &mut effects)
            .expect("no event for a request that has ended");
        for effect in effects {
            self.follow(effect);
        }
    }

    fn follow(&mut self, effect: SchedulerEffect) {
        let reported = match effect {
            SchedulerEffect::Dispatch { request, run } => {
                self.table.notify(request, AdmissionAnswer::Go(Rc::clone(&self.runs[&run])))
            }
            SchedulerEffect::Refuse { request, refusal } => {
                self.table.notify(request, AdmissionAnswer::Refused(refusal))
            }
            SchedulerEffect::MeasureDepth { request, run, exact } => {
                let run = Rc::clone(&self.runs[&run]);
                self.table.notify(request, AdmissionAnswer::MeasureDepth { run, exact })
            }
            other => {
                self.promise(other);
                Ok(())
            }
        };
        reported.expect("every client of a request that lives can be told");
    }

    /// Later report of a task, for effects that start one.
    fn promise(&mut self, effect: SchedulerEffect) {
        let report = match effect {
            SchedulerEffect::Survey { model } => {
                SchedulerEvent::Surveyed { model, result: Ok(Growing.need()) }
            }
            SchedulerEffect::AskNeed { model, search, sets } => {
                SchedulerEvent::NeedAnswered { model, search, answers: answers(&Growing, &sets) }
            }
            SchedulerEffect::PlanGrowth { run, cards, .. } => {
                SchedulerEvent::GrowthPlanned { run, curve: Growing.curve(&cards) }
            }
            SchedulerEffect::ReadCards => {
                let free = vec![(CardId::new("card"), Bytes::gib(4))];
                SchedulerEvent::CardsRead { free, taken: self.now }
            }
            SchedulerEffect::Start { run, model, placement } => {
                let log = Log::new("m", Bytes::kib(1));
                self.runs.insert(run, EngineRun::new(run, model, entry(), log, placement, Vec::new()).0);
                SchedulerEvent::Ready { run }
            }
            SchedulerEffect::CheckHealth { run } => {
                SchedulerEvent::HealthChecked { run, health: Health::Answers }
            }
            SchedulerEffect::Stop { run, .. } => SchedulerEvent::Ended { run, end: End::Expected },
            SchedulerEffect::AwaitMemory { run, .. } => SchedulerEvent::MemoryReturned { run },
            _ => return,
        };
        self.reports.push_back(report);
    }

    fn nth(&self, at: usize) -> Option<RequestId> {
        self.clients.keys().nth(at).map(|id| RequestId(*id))
    }

    fn client(&mut self, request: RequestId) -> &mut Client {
        self.clients.get_mut(&request.0).expect("a client that is there")
    }

    /// Its client has heard of the end of a request, or has brought it about.
    fn ends(&mut self, request: RequestId) {
        self.clients.remove(&request.0).expect("it ends once");
        self.ended += 1;
    }

    fn happen(&mut self, step: Step) {
        match step {
            Step::Arrive { model, patience } => {
                let request = RequestId(self.came);
                self.came += 1;
                let answers = self.table.wait(request);
                self.clients.insert(request.0, Client { answers, seen: Seen::Waits });
                let deadline = self.now + Duration::from_millis(patience);
                let (model, client, priority) = (ModelId(model), ClientId(request.0 % 3), Priority::Normal);
                self.notify(SchedulerEvent::Arrived {
                    request,
                    model,
                    client,
                    priority,
                    deadline,
                    traits: RequestTraits::default(),
                });
            }
            Step::Report(at) => {
                // Tasks end in any order, but an engine is ready before it ends.
                let at = at.min(self.reports.len().saturating_sub(1));
                let ends = matches!(self.reports.get(at), Some(SchedulerEvent::Ended { .. }));
                if let Some(report) = self.reports.remove(if ends { 0 } else { at }) {
                    self.notify(report);
                }
            }
            Step::Dies(at) => {
                let run =
                    self.runs.keys().copied().min_by_key(|run| (run.0 + 7 * u64::try_from(at).unwrap()) % 5);
                if let Some(run) = run {
                    let reason = Reason::new("signal", "signal 11");
                    self.notify(SchedulerEvent::Ended { run, end: End::Crashed { reason } });
                }
            }
            Step::Unload(model) => self.notify(SchedulerEvent::UnloadWanted { model: ModelId(model) }),
            Step::Load(model) => self.notify(SchedulerEvent::LoadWanted { model: ModelId(model) }),
            Step::Replace(model) => self.configure(model, ConfigChange::Replaced(spec(model))),
            Step::Remove(model) => self.configure(model, ConfigChange::Removed),
            Step::Wait(time) => {
                self.now = self.now + Duration::from_millis(time);
                self.notify(SchedulerEvent::Tick);
            }
            Step::Hear(at)
            | Step::Measured(at, _)
            | Step::Leave(at)
            | Step::Finish(at)
            | Step::Bounce(at) => {
                if let Some(request) = self.nth(at) {
                    self.of_client(request, step);
                }
            }
        }
    }

    fn of_client(&mut self, request: RequestId, step: Step) {
        match (step, &self.client(request).seen) {
            (Step::Hear(_), Seen::Waits | Seen::Measures(_)) => match self.client(request).answers.try_recv()
            {
                Ok(AdmissionAnswer::Go(_)) => self.client(request).seen = Seen::IsServed,
                Ok(AdmissionAnswer::MeasureDepth { run, .. }) => {
                    self.client(request).seen = Seen::Measures(run.id);
                }
                Ok(AdmissionAnswer::Refused(_)) => self.ends(request),
                Err(_) => {}
            },
            (Step::Measured(_, depth), Seen::Measures(run)) => {
                let run = *run;
                self.client(request).seen = Seen::Waits;
                if self.table.is_open(request) {
                    let prompt = depth;
                    let depth =
                        depth.map(|_| RequestDepth { prompt, answer: Some(1), answers: 1, exact: true });
                    self.notify(SchedulerEvent::DepthMeasured { request, run, depth });
                }
            }
            (Step::Leave(_), _) => {
                if self.table.end(request) {
                    self.notify(SchedulerEvent::Abandoned { request });
                }
                self.ends(request);
            }
            (Step::Finish(_), Seen::IsServed) => {
                assert!(self.table.end(request), "a served request ends with its answer");
                self.ends(request);
                self.notify(SchedulerEvent::Finished { request, tokens: None, failed: false });
            }
            (Step::Bounce(_), Seen::IsServed) => {
                let answers = self.table.wait(request);
                *self.client(request) = Client { answers, seen: Seen::Waits };
                self.notify(SchedulerEvent::Bounced { request });
            }
            _ => {}
        }
    }

    /// Lets everything come to its end: tasks report, clients hear, and served requests are answered.
    fn settle(&mut self) {
        self.notify(SchedulerEvent::Shutdown);
        for _ in 0..200 {
            while !self.reports.is_empty() {
                self.happen(Step::Report(0));
            }
            for request in self.clients.keys().copied().map(RequestId).collect::<Vec<_>>() {
                for step in [Step::Hear(0), Step::Measured(0, Some(1)), Step::Finish(0)] {
                    if self.clients.contains_key(&request.0) {
                        self.of_client(request, step);
                    }
                }
            }
            self.happen(Step::Wait(500));
        }
    }
}

fn spec(model: u32) -> ModelSpec {
    ModelSpec { concurrency: Some(2), ..ModelSpec::new(format!("m{model}")) }
}

fn entry() -> Rc<plimsoll_config::ConfiguredModel> {
    let text = "[models.m]\ncmd = 'x ${PORT}'\nmemory = '1MiB'\n";
    let read = plimsoll_config::parse("test.toml", text, &|_| None).expect("a good file");
    Rc::new(read.models.into_iter().next().expect("one model"))
}

proptest! {
    #[test]
    fn every_request_ends_once_and_its_client_hears_of_it(steps in prop::collection::vec(step(), 1..160)) {
        let mut desk = Desk::new();
        for step in steps {
            desk.happen(step);
        }
        desk.settle();
        prop_assert!(desk.clients.is_empty(), "{} of {} are never answered", desk.clients.len(), desk.came);
        prop_assert_eq!(desk.ended, desk.came);
        prop_assert!(desk.table.open.borrow().is_empty());
    }
}
