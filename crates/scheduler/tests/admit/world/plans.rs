//! Simulated plans, which answer the scheduler's questions about a model's memory: at once, late, wrongly or
//! never.

use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, DeclaredSize, MemoryModel, RunId, UnknownSize};
use plimsoll_scheduler::place::{CardSet, NeedAnswer};
use plimsoll_scheduler::{ModelId, SchedulerEvent, SearchId};

use super::diving::Grower;
use super::{Happening, Life, World};
use crate::runner::admit::desk::{answers, gib};
use crate::runner::admit::host::AlongsideHost;
use crate::runner::admit::script::PlanFate;

impl World {
    /// The need of a model, as it is.
    pub(super) fn demand(&self, model: u32) -> Arc<dyn MemoryModel> {
        let need = self.need(model);
        let demand: Arc<dyn MemoryModel> = match need.gib {
            Some(n) if need.grows.is_some() => Arc::new(Grower::new(n, need.grows.unwrap())),
            Some(n) => Arc::new(DeclaredSize(gib(n))),
            None => return Arc::new(UnknownSize),
        };
        match self.host.clone() {
            Some(host) => Arc::new(AlongsideHost { demand, host, bytes: gib(need.host) }),
            None => demand,
        }
    }

    fn plan_fate(&mut self) -> PlanFate {
        self.questions += 1;
        let fate = self.plans.get(self.questions % self.plans.len().max(1));
        fate.copied().unwrap_or(PlanFate::Answers)
    }

    pub(super) fn plan_need(&mut self, model: ModelId, search: SearchId, sets: &[CardSet]) {
        assert!(!sets.is_empty(), "a question about nothing");
        let mut answers = answers(&*self.demand(model.0), sets);
        let (mut after, mut of) = (0, search);
        match self.plan_fate() {
            PlanFate::Answers => {}
            PlanFate::Late(late) => after = late,
            PlanFate::OtherCards => answers.iter_mut().for_each(|answer| answer.cards.clear()),
            PlanFate::Nonsense(kind) => answers.iter_mut().for_each(|answer| spoil(answer, kind)),
            PlanFate::OtherSearch => of = SearchId(search.0.wrapping_sub(1)),
            PlanFate::Never => return,
        }
        self.answer_after(after, SchedulerEvent::NeedAnswered { model, search: of, answers });
    }

    fn answer_after(&mut self, time: u64, event: SchedulerEvent) {
        match time {
            0 => self.at_once.push_back(event),
            _ => self.later(self.now + time, Happening::Planned(event)),
        }
    }

    pub(super) fn planned(&mut self, event: SchedulerEvent) {
        if let SchedulerEvent::GrowthPlanned { run, curve: Ok(curve) } = &event {
            let engine = self.engines.get_mut(run).unwrap();
            let is_reported = curve.at(0).iter().all(|share| share.card != none()) || !curve.grows();
            engine.is_limited &= !is_reported || engine.stage != Life::Loading || engine.reported_to_stop;
        }
        self.notify(event);
    }

    pub(super) fn plan_growth(&mut self, run: RunId, model: ModelId, cards: &[Card]) {
        let mut curve = self.demand(model.0).curve(cards);
        let mut after = 0;
        match self.plan_fate() {
            PlanFate::Answers | PlanFate::OtherSearch => {}
            PlanFate::Late(late) => after = late,
            PlanFate::OtherCards => {
                let others: Vec<Card> =
                    cards.iter().map(|card| Card { id: none(), ..card.clone() }).collect();
                curve = self.demand(model.0).curve(&others);
            }
            PlanFate::Nonsense(_) => curve = Err("a broken plan".to_owned()),
            PlanFate::Never => return,
        }
        self.answer_after(after, SchedulerEvent::GrowthPlanned { run, curve });
    }
}

fn none() -> CardId {
    CardId::new("none")
}

fn spoil(answer: &mut NeedAnswer, kind: u8) {
    let Ok(shares) = &mut answer.shares else { return };
    match kind % 3 {
        0 => shares.iter_mut().for_each(|(_, bytes)| *bytes = Bytes::MAX),
        1 => shares.iter_mut().for_each(|(card, _)| *card = none()),
        _ => shares.extend(shares.clone()),
    }
}
