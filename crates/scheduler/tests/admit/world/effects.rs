//! Checks every effect (action) of the scheduler against the state of the simulated machine, and carries it
//! out.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, End, Placement, Reason, Stage};
use plimsoll_scheduler::{
    ModelId, ModelState, RequestId, RequestRefusalKind, RunId, SchedulerEffect, SchedulerEvent, Stopping,
};

use super::diving::tokens;
use super::{Engine, Happening, Life, Where, World, card_id, moment, oom};
use crate::runner::admit::desk::gib;
use crate::runner::admit::script::{CHECK, COUNT, Fate, PROBE, READ, REQUESTED, RETURN, STOP, SURVEY};

impl World {
    pub(crate) fn notify(&mut self, event: SchedulerEvent) {
        let mut effects = Vec::new();
        self.events += 1;
        self.scheduler.on_event(moment(self.now), event, &mut effects).unwrap();
        self.scheduler.audit().unwrap();
        for effect in effects {
            self.carry_out(effect);
        }
        self.check_depths();
        // A driver's own answers come before anything else happens.
        while let Some(event) = self.at_once.pop_front() {
            self.planned(event);
        }
    }

    fn carry_out(&mut self, effect: SchedulerEffect) {
        match effect {
            SchedulerEffect::Survey { model } => self.later(self.now + SURVEY, Happening::Surveyed(model)),
            SchedulerEffect::AskNeed { model, search, sets } => self.plan_need(model, search, &sets),
            SchedulerEffect::PlanGrowth { run, model, cards } => self.plan_growth(run, model, &cards),
            SchedulerEffect::ReadAhead { model } => {
                let models = self.scheduler.at(moment(self.now)).snapshot().models;
                let waits = models.iter().any(|view| view.id == model && view.state == ModelState::Queued);
                assert!(waits, "{model:?} waits for no memory");
                assert!(!self.settings.largest_first, "page cache obstructs loads there");
            }
            SchedulerEffect::Start { run, model, placement } => self.start(run, model, placement),
            SchedulerEffect::Dispatch { request, run } => self.dispatch(request, run),
            SchedulerEffect::MeasureDepth { request, run, exact } => {
                let takes = if exact { COUNT } else { 0 };
                self.later(self.now + takes, Happening::Sounded(request, run, exact));
            }
            SchedulerEffect::Refuse { request, refusal } => {
                let index = usize::try_from(request.0).unwrap();
                assert!(
                    matches!(self.requested[index].place, Where::Waiting { .. }),
                    "refused, but {:?}",
                    self.requested[index]
                );
                assert!(refusal.kind != RequestRefusalKind::NeverFits || refusal.retry_after.is_none());
                assert!(
                    refusal.kind != RequestRefusalKind::TooDeep || self.requested[index].counted,
                    "too deep by a bound alone: {:?}",
                    self.requested[index]
                );
                *self.refused.entry(format!("{:?}", refusal.kind)).or_default() += 1;
                self.over(index);
            }
            SchedulerEffect::Stop { run, how } => self.stop(run, how),
            SchedulerEffect::AwaitMemory { run, .. } => {
                self.later(self.now + RETURN, Happening::Returned(run))
            }
            SchedulerEffect::ReadCards => self.later(self.now + READ, Happening::Read),
            SchedulerEffect::CheckHealth { run } => self.later(self.now + CHECK, Happening::Checked(run)),
            SchedulerEffect::Probe { run } => self.later(self.now + PROBE, Happening::Probed(run)),
            SchedulerEffect::AskNeighbours { model } => {
                self.later(self.now + REQUESTED, Happening::Requested(model))
            }
            SchedulerEffect::WakeAt(at) => {
                let at = u64::try_from(at.since_start().as_micros().div_ceil(1000)).unwrap();
                self.later(at, Happening::Wake);
            }
            SchedulerEffect::AnswerBudget { run, claim } => {
                assert!(self.budget_requests.remove(&run), "answered without a request: {run:?}");
                let (claimed, total) = (claim.unwrap_or_default(), self.totals.iter().max());
                assert!(claimed <= gib(*total.unwrap()), "{claimed} is more than a card has");
            }
            SchedulerEffect::GiveUpLoad { model, .. } => {
                let view = self.scheduler.view(model, moment(self.now)).unwrap();
                assert!(!view.load_wanted && view.queued == 0, "{view:?} is still wanted");
            }
            SchedulerEffect::Suspected { request, kills, .. } => {
                let suspect = self.requested[usize::try_from(request.0).unwrap()];
                assert_ne!(suspect.place, Where::Over, "{suspect:?} was at no engine that died");
                assert!((1..=3).contains(&kills));
            }
            SchedulerEffect::StateChanged { .. } | SchedulerEffect::ClaimChanged { .. } => {}
            SchedulerEffect::Drained => {
                assert!(self.closing.is_some() && !self.drained);
                self.drained = true;
            }
        }
    }

    fn start(&mut self, run: RunId, model: ModelId, placement: Placement) {
        assert!(self.closing.is_none(), "started while shutting down");
        let alive = self.engines.values().filter(|engine| engine.stage != Life::Ended);
        assert!(alive.clone().all(|engine| engine.model != model), "{model:?} runs twice");
        let shares = |other: ModelId| other.0.max(model.0) < self.on_port;
        assert!(alive.clone().all(|engine| !shares(engine.model)), "two listen on the port of {model:?}");
        let fate = self.fates[self.lives % self.fates.len()];
        self.lives += 1;
        self.check_calm(model, &placement);
        let diver = self.diver(model.0, &placement);
        let engine = Engine {
            model,
            stage: Life::Loading,
            fate,
            placement,
            requests: BTreeSet::new(),
            reported_to_stop: false,
            diver,
            host: self.host.clone(),
            buried: false,
            asleep: false,
            poisoned: false,
            is_limited: true,
        };
        assert!(self.engines.insert(run, engine).is_none(), "{run:?} is used twice");
        for (index, total) in self.totals.iter().enumerate() {
            let id = card_id(index);
            let account = self.scheduler.ledger().account(&id).unwrap();
            // Nothing is started into memory that is kept free for other processes.
            assert!(
                self.engines[&run].placement.on(&id).is_zero() || account.claimed() <= account.capacity()
            );
            let occupied: Bytes = self.engines.values().map(|engine| engine.takes(&id)).sum();
            assert!(
                self.scheduler.ledger().account(&id).unwrap().claimed() <= gib(*total)
                    && occupied <= gib(*total)
            );
        }
        let crash = End::Crashed { reason: Reason::new("exit", "exit status 1") };
        match fate {
            Fate::Serves { load }
            | Fate::Stubborn { load }
            | Fate::Poisoned { load, .. }
            | Fate::DiesServing { load, .. } => {
                self.later(self.now + load, Happening::Ready(run));
            }
            Fate::CrashesLoading { after } => self.later(self.now + after, Happening::Ends(run, crash)),
            Fate::OutOfMemory { after } => {
                self.later(self.now + after, Happening::Ends(run, oom(Stage::Loading)))
            }
            Fate::NeverReady => {}
            Fate::Unstartable => {
                let end = End::Unstartable { reason: Reason::new("missing", "no such file"), lasts: true };
                self.later(self.now, Happening::Ends(run, end));
            }
        }
    }

    /// No load begins beside a start that measures free memory, and none that measures beside memory that
    /// changes.
    fn check_calm(&self, model: ModelId, placement: &Placement) {
        let alongside = self.engines.values().filter(|engine| share_a_card(&engine.placement, placement));
        for engine in alongside {
            let measures = self.need(engine.model.0).measures && engine.stage == Life::Loading;
            assert!(!measures || engine.reported_to_stop, "{model:?} loads while {engine:?} measures");
            let changes = engine.stage != Life::Ready || engine.reported_to_stop;
            assert!(!changes || !self.need(model.0).measures, "{model:?} measures while {engine:?} changes");
        }
    }

    /// What engines take of a card together never passes it.
    fn check_room(&self) {
        for (index, total) in self.totals.iter().enumerate() {
            let occupied: Bytes = self.engines.values().map(|engine| engine.takes(&card_id(index))).sum();
            assert!(occupied <= gib(*total), "{occupied} of card {index} at {}", self.now);
        }
    }

    fn dispatch(&mut self, request: RequestId, run: RunId) {
        let index = usize::try_from(request.0).unwrap();
        let requested = self.requested[index];
        let Where::Waiting { since } = requested.place else {
            panic!("request {index} is sent, but {requested:?}");
        };
        let limit = self.need(requested.model).concurrency;
        let engine = self.engines.get_mut(&run).unwrap();
        assert_eq!(engine.model, ModelId(requested.model));
        assert!(engine.stage != Life::Loading && !engine.reported_to_stop, "sent to {engine:?}");
        assert!(!engine.buried, "sent to a dead run: {engine:?}");
        self.longest_wait = self.longest_wait.max(self.now - since);
        self.requested[index].place = Where::InFlight(run);
        if engine.stage == Life::Ended {
            return self.later(self.now, Happening::Bounces(request));
        }
        engine.requests.insert(request);
        engine.asleep = false;
        if let Some(diver) = &mut engine.diver {
            diver.enter(request, tokens(requested.prompt));
        }
        assert!(limit.is_none_or(|limit| engine.requests.len() <= usize::try_from(limit).unwrap()));
        self.later(self.now + requested.takes, Happening::Answered(request));
        self.check_room();
    }

    fn stop(&mut self, run: RunId, how: Stopping) {
        let cut_off = self.closing.is_some_and(|since| self.now >= since + 25_000);
        let engine = &self.engines[&run];
        let placement = engine.placement.clone();
        assert!(!engine.buried, "a dead run is stopped");
        let busy = !engine.requests.is_empty();
        let (now, model, is_first) = (moment(self.now), engine.model, !engine.reported_to_stop);
        let pinned = self.scheduler.view(model, now).is_some_and(|view| view.pinned);
        let reason = self.scheduler.at(now).stop_reason(run).map(|reason| reason.code);
        assert!(reason.is_some(), "{model:?} is stopped without a reason");
        assert!(
            !pinned || !is_first || !matches!(reason, Some("makes_room" | "idle" | "yields")),
            "{model:?}: {reason:?}"
        );
        match how {
            Stopping::Graceful => {
                let measures = |other: &Engine| {
                    let loads = other.stage == Life::Loading && !other.reported_to_stop;
                    loads && self.need(other.model.0).measures && share_a_card(&other.placement, &placement)
                };
                let measured = self.engines.iter().any(|(id, other)| *id != run && measures(other));
                assert!(!measured || self.closing.is_some(), "{model:?} is stopped while another measures");
                assert!(!busy || cut_off, "a busy run is stopped: {engine:?}");
                if !matches!(engine.fate, Fate::Stubborn { .. } | Fate::NeverReady) {
                    self.later(self.now + STOP, Happening::Ends(run, End::Expected));
                }
            }
            Stopping::Kill => {
                let is_dead = engine.poisoned || engine.stage == Life::Ended;
                assert!(reason != Some("unresponsive") || is_dead, "a healthy run is killed: {engine:?}");
                assert!(!busy || cut_off || is_dead, "a busy run is killed: {engine:?}");
                self.later(self.now + 5, Happening::Ends(run, End::Expected));
            }
        }
        self.engines.get_mut(&run).unwrap().reported_to_stop = true;
    }
}

fn share_a_card(one: &Placement, other: &Placement) -> bool {
    one.shares.iter().any(|share| !share.bytes.is_zero() && !other.on(&share.card).is_zero())
}
