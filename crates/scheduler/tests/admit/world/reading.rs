//! Simulated readings of the cards' memory, and idle engines that free theirs.

use plimsoll_base::{Bytes, RunId};
use plimsoll_scheduler::SchedulerEvent;

use super::{Engine, Life, World, card_id, moment};
use crate::runner::admit::desk::gib;

impl World {
    /// The owner looks at the cards.
    pub(super) fn look(&mut self) {
        let mut used = self.foreign.clone().into_iter().map(gib).collect::<Vec<Bytes>>();
        let mut seen = Vec::new();
        for (run, engine) in &self.engines {
            for (index, used) in used.iter_mut().enumerate() {
                *used += engine.takes(&card_id(index));
            }
            if engine.stage != Life::Ended {
                let takes = engine
                    .placement
                    .shares
                    .iter()
                    .map(|share| (share.card.clone(), engine.takes(&share.card)));
                seen.push((*run, takes.collect()));
            }
        }
        for (run, used) in seen {
            self.notify(SchedulerEvent::Measured { run, used });
        }
        let free = used
            .iter()
            .enumerate()
            .map(|(index, used)| (card_id(index), gib(self.totals[index]).saturating_sub(*used)));
        let cards = free.collect();
        let taken = moment(self.now);
        self.notify(SchedulerEvent::CardsRead { free: cards, taken });
    }

    /// An idle engine frees its memory.
    pub(super) fn sleep(&mut self, back: usize) {
        let ready = |engine: &Engine| {
            engine.stage == Life::Ready && engine.requests.is_empty() && !engine.reported_to_stop
        };
        let idle: Vec<RunId> =
            self.engines.iter().filter(|(_, engine)| ready(engine)).map(|(run, _)| *run).collect();
        let Some(run) = idle.into_iter().rev().nth(back) else { return };
        let (model, placement) = (self.engines[&run].model.0, self.engines[&run].placement.clone());
        let diver = self.diver(model, &placement);
        let engine = self.engines.get_mut(&run).unwrap();
        // It comes back with an empty cache.
        (engine.asleep, engine.diver) = (true, diver);
        self.notify(SchedulerEvent::Slept { run });
        self.look();
    }
}
