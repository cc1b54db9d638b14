//! Whether the next request of a queue may go: always, where depth costs nothing; else if the run's claim covers its depth.
//!
//! DECISION: the front of a queue decides for all behind it. A smaller request could often pass a deep one that waits, but then
//! the deep one might wait for ever. Only what leaves the cache alone passes.

use plimsoll_base::{Card, Demand, Placement, Reason, RunId};

use super::depth::Depth;
use super::effect::{Effect, Refusal};
use super::model::Model;
use super::moment::{ModelId, RequestId};
use super::occupancy::Occupancy;
use super::scheduler::Scheduler;

/// What is to be done with the front of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// Its depth has to be known first, or known better.
    Sound {
        exact: bool,
    },
    /// The owner is at it.
    Sounding,
    /// The claim does not cover its depth.
    Deep,
}

impl Scheduler {
    /// How deep a run that starts there will be; or why that is not watched.
    pub(super) fn occupancy(
        &self,
        id: ModelId,
        demand: &dyn Demand,
        placement: &Placement,
    ) -> Result<Occupancy, String> {
        let model = self.model(id).ok_or("the model is gone")?;
        if !model.spec.by_depth {
            return Err("the configuration says so".to_owned());
        }
        // An engine divides itself as memory is free, so that the curve has to see what the placement saw.
        let accounts = placement.cards().filter_map(|card| self.ledger.account(card));
        let cards = accounts.map(|account| Card {
            free: account.free(),
            ..account.card().clone()
        });
        let cards: Vec<Card> = cards.collect();
        let curve = demand.curve(&cards)?;
        if !curve.grows() {
            return Err("its memory does not grow with depth".to_owned());
        }
        Ok(Occupancy::new(curve, model.record.learned))
    }

    pub(super) fn gate(&self, model: &Model, id: RequestId) -> Gate {
        let (Some((run, occupancy)), Some(request)) = (model.watched(), self.requests.get(&id)) else {
            return Gate::Open;
        };
        let Some(depth) = request.depth.filter(|_| !request.sounding) else {
            return match request.sounding {
                true => Gate::Sounding,
                false => Gate::Sound { exact: false },
            };
        };
        let tokens = depth.tokens(occupancy.slots());
        match self.covers(run.id, occupancy) {
            _ if tokens == 0 => Gate::Open,
            Some(covered) if occupancy.with(tokens) <= covered => Gate::Open,
            _ if !depth.exact => Gate::Sound { exact: true },
            _ => Gate::Deep,
        }
    }

    /// The depth that the run's claim covers.
    pub(super) fn covers(&self, run: RunId, occupancy: &Occupancy) -> Option<u64> {
        occupancy.covered(|card| {
            let account = self.ledger.account(card);
            account.map_or_else(Default::default, |account| account.held_by(run))
        })
    }

    /// Asks the owner how deep the request may go.
    pub(super) fn sound(&mut self, id: RequestId, run: RunId, exact: bool) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.sounding = true;
            self.emit(Effect::Sound {
                request: id,
                run,
                exact,
            });
        }
    }

    /// Asks for the depth of everything that is queued for a run: that costs a look at each body, and all at once.
    pub(super) fn sound_queue(&mut self, model_id: ModelId) {
        let Some(model) = self.model(model_id) else { return };
        let Some(run) = model.watched().map(|(run, _)| run.id) else {
            return;
        };
        let unknown = |id: &RequestId| {
            let request = self.requests.get(id);
            request.is_some_and(|request| request.depth.is_none() && !request.sounding)
        };
        let unknown: Vec<RequestId> = model.queue.iter().copied().filter(unknown).collect();
        for id in unknown {
            self.sound(id, run, false);
        }
    }

    pub(super) fn sounded(&mut self, id: RequestId, run_id: RunId, depth: Option<Depth>) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.sounding) else {
            return;
        };
        request.sounding = false;
        let model_id = request.model;
        request.depth = depth.or(request.depth);
        let known = request.depth;
        let Some(model) = self.model(model_id) else { return };
        let watched = model
            .watched()
            .filter(|(run, _)| run.id == run_id && run.takes_requests());
        if let Some((_, occupancy)) = watched {
            let slots = *occupancy.slots();
            if known.is_some_and(|depth| depth.tokens(&slots) == 0) {
                self.bring_forward(model_id, id);
            }
            self.settle_depth(id, depth.is_some());
            if known.is_some_and(|depth| depth.overflows(&slots))
                && let Some(model) = self.model_mut(model_id)
            {
                model.overflows += 1;
            }
        }
        self.dispatch_queue(model_id);
    }

    /// An engine that is there and does not count will not do so next time.
    fn settle_depth(&mut self, id: RequestId, told: bool) {
        if let Some(request) = self.requests.get_mut(&id).filter(|_| !told) {
            request.depth = Some(Depth {
                exact: true,
                ..request.depth.unwrap_or(Depth::UNKNOWN)
            });
        }
    }

    fn bring_forward(&mut self, model_id: ModelId, id: RequestId) {
        if let Some(model) = self.model_mut(model_id) {
            let before = model.queue.len();
            model.queue.retain(|queued| *queued != id);
            if model.queue.len() < before {
                model.queue.push_front(id);
            }
        }
    }

    /// Refuses the front of a queue.
    pub(super) fn refuse_front(&mut self, model_id: ModelId, refusal: Refusal) {
        let front = self.model_mut(model_id).and_then(|model| model.queue.pop_front());
        let Some(id) = front else { return };
        if let Some(request) = self.requests.remove(&id) {
            self.deadlines.remove(&(request.deadline, id));
        }
        self.refuse(id, refusal);
    }

    /// Shows what a look at a model's files found, unless the model has been asked for meanwhile.
    pub(super) fn foreseen(&mut self, id: ModelId, reason: Reason) {
        self.moved = true;
        if let Some(model) = self.model_mut(id)
            && model.run.is_none()
            && !model.wanted()
        {
            model.record.note(reason);
        }
    }
}
