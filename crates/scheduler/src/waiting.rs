//! Who goes for whom.
//!
//! Waiting models are looked at oldest first, or in the order of [`super::turns`]. One that cannot start yet and has waited longer than the patience
//! holds what it needs against the younger ones; until then they may pass it where they do not take from it.
//! Every look starts from nothing: who goes for whom is decided anew, except that runs which already leave stay
//! the cheapest victims, so decisions do not flutter.

use std::collections::BTreeSet;

use plimsoll_base::{Declared, Placement, RunId};

use super::effect::Effect;
use super::model::{Asking, Drain, Model, Phase, Run, Seeking};
use super::moment::{ModelId, Moment};
use super::scheduler::Scheduler;
use super::turns::{Turn, What};
use crate::place::{Ask, Holds, Standing, Tenant, Verdict, place};

/// Fruitless sets of idle runs that are remembered.
const FRUITLESS_SETS: usize = 16;
/// How often those who wait are looked at for one event; each look follows from something that the one before
/// moved, so that two or three are the rule.
const LOOKS: usize = 8;

impl Scheduler {
    /// Looks at everybody who waits for memory, oldest first, and again where that moved something.
    pub(super) fn make_room(&mut self) {
        for _ in 0..LOOKS {
            if std::mem::take(&mut self.stirred) {
                self.look_around();
            }
        }
        self.remember_idle();
    }

    fn look_around(&mut self) {
        let mut queue: Vec<Turn> = Vec::new();
        for id in self.model_ids() {
            let Some(model) = self.model(id) else { continue };
            match &model.seeking {
                Seeking::Room(room) if model.wanted() => queue.push(self.turn(id, model, Some(room))),
                Seeking::Room(_) => self.set_seeking(id, Seeking::Nothing),
                _ if model.deep.is_some() => queue.push(self.turn(id, model, None)),
                _ => {}
            }
        }
        queue.sort_unstable_by_key(Turn::key);
        let mut holds = Holds::default();
        for turn in queue {
            match turn.what {
                _ if self.holds_back(&turn) => {}
                What::Depth => self.find_depth(turn.model, turn.since, &mut holds),
                What::Load | What::Preload => self.find_room(turn.model, turn.since, &mut holds),
            }
        }
        self.call_off_drains();
        self.arm_for_waiting();
    }

    /// Whoever still waits was not helped by those who are idle now.
    fn remember_idle(&mut self) {
        if self.fruitless.len() == FRUITLESS_SETS {
            self.fruitless.remove(0);
        }
        let idle = self.idle_runs();
        self.fruitless.push(idle);
    }

    /// Since when the oldest who wants the model has waited.
    pub(super) fn waits_since(&self, model: &Model) -> Moment {
        let front = model.queue.front().and_then(|id| self.requests.get(id));
        let front = front.map_or(Moment::NEVER, |request| request.arrived);
        front.min(model.load_wanted.unwrap_or(Moment::NEVER))
    }

    fn find_room(&mut self, id: ModelId, since: Moment, holds: &mut Holds) {
        let Some((verdict, barred)) = self.judge(id, holds) else {
            return;
        };
        let pressing = self.model(id).is_some_and(Model::pressing);
        match verdict {
            Verdict::Fits(placement) if barred.is_empty() => {
                self.take_slack(None, &placement, holds);
                self.start(id, placement);
            }
            Verdict::Fits(placement) => holds.hold(&placement, &barred, &self.ledger),
            _ if !pressing => self.skip_preload(id),
            _ if self.asks_first(id, &verdict) => self.set_victims(id, Vec::new()),
            Verdict::FitsAfter { placement, evict } => self.commit(id, &placement, evict, holds),
            Verdict::WaitsFor { placement, busy } => {
                let fed_up = since + self.settings.patience;
                if self.now < fed_up {
                    self.set_victims(id, Vec::new());
                    self.arm(fed_up);
                } else {
                    self.commit(id, &placement, busy, holds);
                }
            }
            Verdict::Later => self.set_victims(id, Vec::new()),
            Verdict::Never(never) => self.refuse_for_good(id, *never),
        }
    }

    /// Whether neighbours have yet to give back what they hold idle: they are asked once in each search for room, before anybody
    /// goes for the model and before it is refused for what others hold.
    fn asks_first(&mut self, id: ModelId, verdict: &Verdict) -> bool {
        let could_help = match verdict {
            Verdict::Fits(_) | Verdict::Later => false,
            Verdict::FitsAfter { .. } | Verdict::WaitsFor { .. } => true,
            Verdict::Never(never) => never.crowded_out,
        };
        let asks = self.settings.asks && could_help;
        let Some(Model {
            seeking: Seeking::Room(room),
            ..
        }) = self.model_mut(id)
        else {
            return false;
        };
        if room.asking == Asking::Before && asks {
            room.asking = Asking::Now;
            self.emit(Effect::AskNeighbours { model: id });
            return true;
        }
        room.asking == Asking::Now
    }

    pub(super) fn neighbours_asked(&mut self, id: ModelId) {
        if let Some(Model {
            seeking: Seeking::Room(room),
            ..
        }) = self.model_mut(id)
            && room.asking == Asking::Now
        {
            room.asking = Asking::Over;
            self.stir();
        }
    }

    /// Asks for a place, and for the runs that must be gone before it may be taken.
    ///
    /// What others hold beyond their need is counted as free: it is taken before anybody is stopped.
    fn judge(&self, id: ModelId, holds: &Holds) -> Option<(Verdict, Vec<RunId>)> {
        let model = self.model(id)?;
        let Seeking::Room(room) = &model.seeking else {
            return None;
        };
        let there = |run: &RunId| self.leaving.contains(run) || self.living.contains_key(run);
        let barred = room.after.iter().copied().filter(there).collect();
        let known = model
            .record
            .measured
            .filter(|_| room.demand.alone())
            .map(Declared);
        let ask = Ask {
            name: &model.name,
            demand: known.as_ref().map_or(&*room.demand, |known| known),
            answers: &room.answers,
            learned: model.record.learned,
            allowed: &model.spec.allowed,
            named: room.demand.named(),
        };
        let tenants = self.tenants(id);
        let verdict = match place(&ask, &self.ledger, holds, &tenants) {
            fits @ Verdict::Fits(_) => fits,
            other => match self.slimmed() {
                Some(ledger) => place(&ask, &ledger, holds, &tenants),
                None => other,
            },
        };
        Some((verdict, barred))
    }

    /// Who holds memory, and how ready each is to go for the model `asking`. A run whose own next request has waited longer does
    /// not go for it: whoever has waited longest must get on, or two that wait could make each other go for ever.
    pub(super) fn tenants(&self, asking: ModelId) -> Vec<Tenant> {
        let promised = self.victims_of(|id| id != asking);
        let own = self.victims_of(|id| id == asking);
        let age = |id: ModelId| self.model(id).map(|model| (self.waits_since(model), id));
        let asked = age(asking);
        let standing_of =
            |run: RunId, standing: Standing| match promised.contains(&run) && !own.contains(&run) {
                true => Standing::Promised,
                false => standing,
            };
        let gone = self.leaving.iter().map(|run| Tenant {
            run: *run,
            standing: standing_of(*run, Standing::Leaving),
            last_used: 0,
        });
        let here = self.living.iter().filter_map(|(id, model)| {
            let (model_id, model) = (*model, self.model(*model)?);
            let run = model.run.as_ref()?;
            let standing = match model.deep.is_some() && age(model_id) < asked {
                true => Standing::Promised,
                false => standing_of(*id, self.standing(model, run)),
            };
            Some(Tenant {
                run: *id,
                standing,
                last_used: run.stamp,
            })
        });
        gone.chain(here).collect()
    }

    fn standing(&self, model: &Model, run: &Run) -> Standing {
        match run.phase {
            _ if run.leaves() => Standing::Leaving,
            _ if model.spec.pinned => Standing::Stays,
            _ if run.draining.is_some() => Standing::Leaving,
            Phase::Ready { .. } if run.in_flight == 0 && model.queue.is_empty() => Standing::Idle,
            Phase::Ready { since, .. }
                if (run.owed.min(model.queue.len()) == 0 || model.deep.is_some())
                    && self.now >= since + self.settings.patience =>
            {
                Standing::Busy
            }
            _ => Standing::Protected,
        }
    }

    fn victims_of(&self, which: impl Fn(ModelId) -> bool) -> BTreeSet<RunId> {
        let models = (0_u32..).zip(&self.models).filter(|(id, _)| which(ModelId(*id)));
        let victims = models.flat_map(|(_, model)| model.iter().flat_map(Model::victims));
        victims.copied().collect()
    }

    pub(super) fn set_victims(&mut self, id: ModelId, victims: Vec<RunId>) {
        let Some(model) = self.model_mut(id) else { return };
        if let Some(deep) = &mut model.deep {
            deep.victims = victims;
        } else if let Seeking::Room(room) = &mut model.seeking {
            room.victims = victims;
        }
    }

    /// Lets the victims go as each is ready to, and holds what the model will take.
    fn commit(&mut self, id: ModelId, placement: &Placement, victims: Vec<RunId>, holds: &mut Holds) {
        holds.hold(placement, &victims, &self.ledger);
        for run in &victims {
            if let Some(model) = self.living.get(run).copied() {
                self.make_go(model);
            }
        }
        self.set_victims(id, victims);
        if let Some(Model {
            seeking: Seeking::Room(room),
            ..
        }) = self.model_mut(id)
        {
            room.needs = placement.total();
        }
    }

    pub(super) fn make_go(&mut self, id: ModelId) {
        let standing = match self
            .model(id)
            .and_then(|model| Some((model, model.run.as_ref()?)))
        {
            Some((model, run)) => self.standing(model, run),
            None => return,
        };
        if matches!(standing, Standing::Idle | Standing::Busy) {
            self.drain(id, Drain::Evict);
        }
    }

    /// Drains that no waiting model needs any more are called off.
    fn call_off_drains(&mut self) {
        let needed = self.victims_of(|_| true);
        let living: Vec<(RunId, ModelId)> = self.living.iter().map(|(run, model)| (*run, *model)).collect();
        for (run_id, id) in living {
            let Some(run) = self.model_mut(id).and_then(|model| model.run_mut(run_id)) else {
                continue;
            };
            let drains = run.draining == Some(Drain::Evict) && matches!(run.phase, Phase::Ready { .. });
            if drains && !needed.contains(&run_id) {
                run.draining = None;
                self.moved = true;
                self.stir();
                self.dispatch_queue(id);
            }
        }
    }

    /// While somebody waits, the end of each newcomer's protection is worth another look.
    fn arm_for_waiting(&mut self) {
        if self.waiting > 0
            && let Some(at) = self.next_unprotected()
        {
            self.arm(at);
        }
    }

    pub(super) fn next_unprotected(&self) -> Option<Moment> {
        let runs = self
            .models
            .iter()
            .flatten()
            .filter_map(|model| model.run.as_ref());
        let ends = runs.filter_map(|run| match run.phase {
            Phase::Ready { since, .. } => Some(since + self.settings.patience).filter(|at| *at > self.now),
            _ => None,
        });
        ends.min()
    }
}
