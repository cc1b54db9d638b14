//! Checks each effect (action) of the scheduler against the state of the simulated machine, and carries it
//! out.

use plimsoll_base::{Bytes, CardId, End, Placement, Reason, RunId};
use plimsoll_scheduler::{ModelId, RequestId, RequestRefusal, SchedulerEffect, SchedulerEvent, Stopping};

use super::S;
use super::engine::{Engine, Life, Place, Stage, crash};
use super::machine::{Happening, Machine, moment};
use crate::runner::admit::desk::gib;

const SURVEY: u64 = 20;
const READ: u64 = 5;
const STOP: u64 = 300;
const KILL: u64 = 20;
const RETURN: u64 = 100;
const CHECK: u64 = 5;
/// A check of an engine that does not answer.
const SILENT: u64 = 1500;
/// Requests of our own: to an engine that answers, and to one that does not.
const PROBE: (u64, u64) = (200, 10 * S);
/// Time for an engine that ignored the last stop.
const GRACE: u64 = S;
/// A shutdown lets answers finish until then.
const CUT_OFF: u64 = 24 * S;

impl Machine {
    pub(super) fn notify(&mut self, event: SchedulerEvent) {
        let effects = self.timed(event);
        self.scheduler.audit().unwrap();
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: SchedulerEffect) {
        let now = self.now;
        match effect {
            SchedulerEffect::Survey { model } => self.later(now + SURVEY, Happening::Surveyed(model)),
            SchedulerEffect::ReadAhead { model } => self.reads_change(|disk| disk.read(place(model))),
            SchedulerEffect::ReadCards => self.later(now + READ, Happening::CardsRead),
            SchedulerEffect::Start { run, model, placement } => self.start(run, model, placement),
            SchedulerEffect::Dispatch { request, run } => self.dispatch(request, run),
            SchedulerEffect::Refuse { request, refusal } => self.refuse(request, &refusal),
            SchedulerEffect::Stop { run, how } => self.stop(run, how),
            SchedulerEffect::AwaitMemory { run, .. } => self.later(now + RETURN, Happening::Returned(run)),
            SchedulerEffect::CheckHealth { run } => {
                let takes = if self.engines[&run].hung { SILENT } else { CHECK };
                self.later(now + takes, Happening::Checked(run));
            }
            SchedulerEffect::Probe { run } => {
                let takes = if self.engines[&run].hung { PROBE.1 } else { PROBE.0 };
                self.later(now + takes, Happening::Probed(run));
            }
            SchedulerEffect::WakeAt(at) => {
                let at = at.since_start().as_micros().div_ceil(1000);
                self.later(u64::try_from(at).unwrap(), Happening::Wake);
            }
            SchedulerEffect::Suspected { request, kills, .. } => drop(self.suspects.insert(request, kills)),
            SchedulerEffect::Drained => assert!(self.drained.replace(now).is_none() && now >= self.until),
            SchedulerEffect::AskNeed { .. }
            | SchedulerEffect::PlanGrowth { .. }
            | SchedulerEffect::AskNeighbours { .. }
            | SchedulerEffect::MeasureDepth { .. }
            | SchedulerEffect::AnswerBudget { .. } => panic!("{effect:?} of models of one size"),
            SchedulerEffect::GiveUpLoad { .. }
            | SchedulerEffect::StateChanged { .. }
            | SchedulerEffect::ClaimChanged { .. } => {}
        }
    }

    fn start(&mut self, run: RunId, model: ModelId, placement: Placement) {
        let now = self.now;
        assert!(now < self.until, "started while shutting down");
        let living = |engine: &&Engine| engine.lives() && engine.model == model.0;
        assert!(!self.engines.values().any(|engine| living(&engine)), "{model:?} runs twice");
        let kind = &self.models[place(model)];
        let lives = &kind.lives;
        let count = usize::try_from(self.loads[place(model)]).unwrap();
        let life = lives[count.min(lives.len() - 1)];
        self.loads[place(model)] += 1;
        assert!(self.engines.insert(run, Engine::new(model.0, life, placement, now)).is_none());
        self.check_room();
        if let Life::FailsToLoad { after, lasts } = life {
            let reason = Reason::new("broken", "the engine cannot load this file");
            let end = if lasts { End::Unstartable { reason, lasts } } else { crash() };
            self.engines.get_mut(&run).unwrap().stage = Stage::Starting;
            return self.later(now + after, Happening::Ends(run, end));
        }
        self.reads_change(|disk| disk.read(place(model)));
    }

    /// Neither claims nor engines take more than a card has.
    fn check_room(&self) {
        for (index, total) in self.totals.iter().enumerate() {
            let id = CardId::new(&format!("card{index}"));
            let living = self.engines.values().filter(|engine| engine.lives());
            let occupied: Bytes = living.map(|engine| engine.placement.on(&id)).sum();
            let claimed = self.scheduler.ledger().account(&id).unwrap().claimed();
            assert!(
                occupied <= gib(*total) && claimed <= gib(*total),
                "{occupied} of card {index} at {}",
                self.now
            );
        }
    }

    fn dispatch(&mut self, request: RequestId, run: RunId) {
        let (place, call) = self.look_up(request);
        assert_eq!(place, Place::Waiting, "{request:?} is sent");
        self.put(request, Place::Sent(run));
        let limit = self.models[usize::try_from(self.calls[call].model).unwrap()].spec.concurrency;
        let engine = self.engines.get_mut(&run).unwrap();
        assert_eq!(engine.model, self.calls[call].model);
        assert!(!engine.noticed, "{request:?} is sent to a dead run");
        if !engine.lives() {
            return self.later(self.now, Happening::Bounces(request, run));
        }
        assert!(engine.stage == Stage::Ready && !engine.stopping, "{request:?} is sent to {engine:?}");
        engine.take(request);
        assert!(limit.is_none_or(|limit| engine.requests() <= usize::try_from(limit).unwrap()));
        self.fill_slots(run);
    }

    fn refuse(&mut self, request: RequestId, refusal: &RequestRefusal) {
        let (place, call) = self.look_up(request);
        assert_eq!(place, Place::Waiting, "{request:?} is refused");
        self.over(request);
        if self.now < self.until {
            self.refused += 1;
        }
        let after = refusal.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap());
        self.unanswered(call, after);
    }

    fn stop(&mut self, run: RunId, how: Stopping) {
        let cut_off = self.now >= self.until + CUT_OFF;
        let engine = &self.engines[&run];
        assert!(!engine.noticed, "a dead run is stopped");
        let reason = self.scheduler.at(moment(self.now)).stop_reason(run).map(|reason| reason.code);
        assert!(reason.is_some(), "{engine:?} is stopped without a reason");
        let busy = engine.requests() > 0 && !cut_off && !engine.hung;
        assert!(!busy, "a busy run is stopped: {engine:?}, {reason:?}");
        let model = usize::try_from(engine.model).unwrap();
        let ignores = self.models[model].ignores_stop;
        self.engines.get_mut(&run).unwrap().stopping = true;
        match how {
            // The driver has learned from the last stop.
            Stopping::Graceful if self.deaf[model] => {
                self.later(self.now + GRACE, Happening::Ends(run, End::Expected));
            }
            Stopping::Graceful if ignores => self.deaf[model] = true,
            Stopping::Graceful => self.later(self.now + STOP, Happening::Ends(run, End::Expected)),
            Stopping::Kill => self.later(self.now + KILL, Happening::Ends(run, End::Expected)),
        }
    }
}

fn place(model: ModelId) -> usize {
    usize::try_from(model.0).unwrap()
}
