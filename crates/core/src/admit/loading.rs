//! The way of a model from being wanted to having a run: survey, room, start.
//!
//! Waiting models are looked at oldest first. One that cannot start yet and has waited longer than the patience
//! holds what it needs against the younger ones; until then they may pass it where they do not take from it.
//! Every look starts from nothing: who goes for whom is decided anew, except that runs which already leave stay
//! the cheapest victims, so decisions do not flutter.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::effect::{Effect, Refusal};
use super::model::{Drain, Model, Phase, Room, Run, Seeking};
use super::moment::{ModelId, Moment};
use super::refusal;
use super::scheduler::Scheduler;
use crate::explain::Reason;
use crate::place::{Ask, Declared, Demand, Holds, Never, Placement, RunId, Standing, Tenant, Verdict, place};

impl Scheduler {
    /// Begins to look for a place if somebody wants the model and nothing is under way.
    pub(super) fn seek(&mut self, id: ModelId) {
        let now = self.now;
        let ready = self.model(id).is_some_and(|model| {
            model.run.is_none()
                && matches!(model.seeking, Seeking::Nothing)
                && model.wanted()
                && model.record.held_back(now).is_none()
        });
        if ready && self.closing.is_none() {
            self.set_seeking(id, Seeking::Survey { stale: false });
            self.emit(Effect::Survey { model: id });
        }
    }

    pub(super) fn set_seeking(&mut self, id: ModelId, seeking: Seeking) {
        let enters = matches!(seeking, Seeking::Room(_));
        let Some(model) = self.model_mut(id) else { return };
        let left = std::mem::replace(&mut model.seeking, seeking);
        let leaves = matches!(left, Seeking::Room(_));
        self.moved = true;
        self.stirred |= enters || leaves;
        self.waiting = self.waiting + usize::from(enters) - usize::from(leaves);
    }

    pub(super) fn surveyed(&mut self, id: ModelId, result: Result<Arc<dyn Demand>, Reason>) {
        let Some(model) = self.model(id) else { return };
        let Seeking::Survey { stale } = model.seeking else {
            return;
        };
        self.set_seeking(id, Seeking::Nothing);
        match result {
            _ if stale => self.seek(id),
            Ok(demand) => self.await_room(id, demand, Vec::new()),
            Err(reason) => {
                if let Some(model) = self.model_mut(id) {
                    model.record.note(reason);
                    let refusal = refusal::load_failed(&model.name, &model.record, None);
                    self.refuse_queue(id, &refusal);
                }
            }
        }
    }

    /// The model is known to load: it waits for room, and for the memory of the runs in `after`.
    pub(super) fn await_room(&mut self, id: ModelId, demand: Arc<dyn Demand>, after: Vec<RunId>) {
        if self.model(id).is_some_and(Model::wanted) && self.closing.is_none() {
            self.set_seeking(
                id,
                Seeking::Room(Room {
                    demand,
                    victims: Vec::new(),
                    after,
                }),
            );
        }
    }

    /// Looks at everybody who waits for memory, oldest first.
    pub(super) fn make_room(&mut self) {
        self.stirred = false;
        let mut queue: Vec<(bool, Moment, ModelId)> = Vec::new();
        for id in self.model_ids() {
            let Some(model) = self.model(id) else { continue };
            match model.seeking {
                Seeking::Room(_) if model.wanted() => {
                    queue.push((!model.pressing(), self.waits_since(model), id))
                }
                Seeking::Room(_) => self.set_seeking(id, Seeking::Nothing),
                _ => {}
            }
        }
        queue.sort_unstable();
        let mut holds = Holds::default();
        for (_, since, id) in queue {
            self.find_room(id, since, &mut holds);
        }
        self.call_off_drains();
        self.arm_for_waiting();
        self.stirred = false;
    }

    /// Since when the oldest who wants the model has waited.
    fn waits_since(&self, model: &Model) -> Moment {
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
            Verdict::Fits(placement) if barred.is_empty() => self.start(id, placement),
            Verdict::Fits(placement) => holds.hold(&placement, &barred, &self.ledger),
            _ if !pressing => self.skip_preload(id),
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

    /// Asks for a place, and for the runs that must be gone before it may be taken.
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
            learned: model.record.learned,
            allowed: &model.spec.allowed,
        };
        Some((place(&ask, &self.ledger, holds, &self.tenants(id)), barred))
    }

    /// Who holds memory, and how ready each is to go for the model `asking`.
    fn tenants(&self, asking: ModelId) -> Vec<Tenant> {
        let promised = self.victims_of(|id| id != asking);
        let own = self.victims_of(|id| id == asking);
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
            let model = self.model(*model)?;
            let run = model.run.as_ref()?;
            let standing = standing_of(*id, self.standing(model, run));
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
                if run.owed.min(model.queue.len()) == 0 && self.now >= since + self.settings.patience =>
            {
                Standing::Busy
            }
            _ => Standing::Protected,
        }
    }

    fn victims_of(&self, which: impl Fn(ModelId) -> bool) -> BTreeSet<RunId> {
        let models = (0_u32..).zip(&self.models).filter(|(id, _)| which(ModelId(*id)));
        let rooms = models.filter_map(|(_, model)| match &model.as_ref()?.seeking {
            Seeking::Room(room) => Some(room),
            _ => None,
        });
        rooms
            .flat_map(|room| room.victims.iter().chain(&room.after).copied())
            .collect()
    }

    fn set_victims(&mut self, id: ModelId, victims: Vec<RunId>) {
        if let Some(Model {
            seeking: Seeking::Room(room),
            ..
        }) = self.model_mut(id)
        {
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
    }

    fn make_go(&mut self, id: ModelId) {
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

    fn start(&mut self, id: ModelId, placement: Placement) {
        let run_id = RunId(self.next_run);
        let (now, stamp) = (self.now, self.next_stamp());
        let Some(Model {
            seeking: Seeking::Room(room),
            name,
            ..
        }) = self.model(id)
        else {
            return;
        };
        let (demand, name) = (room.demand.clone(), name.clone());
        if self.ledger.claim(run_id, &name, &placement).is_err() {
            return;
        }
        self.next_run += 1;
        self.living.insert(run_id, id);
        self.set_seeking(id, Seeking::Nothing);
        let Some(model) = self.model_mut(id) else { return };
        let until = now + model.spec.load_timeout;
        model.preload = false;
        model.run = Some(Run {
            id: run_id,
            phase: Phase::Loading { until },
            demand,
            placement: placement.clone(),
            in_flight: 0,
            stamp,
            owed: 0,
            draining: None,
            suspect: None,
            killed_for: None,
        });
        self.arm(until);
        self.emit(Effect::Start {
            run: run_id,
            model: id,
            placement,
        });
    }

    /// A preload takes what is free and makes nobody go.
    fn skip_preload(&mut self, id: ModelId) {
        self.set_seeking(id, Seeking::Nothing);
        if let Some(model) = self.model_mut(id) {
            model.preload = false;
            let text = format!(
                "{} was not preloaded: it does not fit beside what is loaded",
                model.name
            );
            model.record.note(Reason::new("not_preloaded", text));
        }
    }

    fn refuse_for_good(&mut self, id: ModelId, never: Never) {
        if let Some(model) = self.model_mut(id) {
            model.record.note(never.reason.clone());
        }
        self.give_up(id, refusal::never(never));
    }

    fn give_up(&mut self, id: ModelId, refusal: Refusal) {
        self.set_seeking(id, Seeking::Nothing);
        self.refuse_queue(id, &refusal);
    }
}
