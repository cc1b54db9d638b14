//! The way of a model from being wanted to having a run: survey, room (in [`super::waiting`]), start.

use std::sync::Arc;

use plimsoll_base::{Bytes, Demand, Placement, Reason, RunId};

use super::effect::{Effect, Refusal};
use super::model::{Asking, Model, Phase, Room, Run, Seeking};
use super::moment::ModelId;
use super::refusal;
use super::scheduler::Scheduler;
use crate::place::{Answers, Never};

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
        if matches!(left, Seeking::Survey { .. }) {
            self.stir_for_turns();
        }
        if enters || leaves {
            self.stirred = true;
            self.fruitless.clear();
        }
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
        let answers = Answers::default();
        let Some(model) = self
            .model(id)
            .filter(|model| model.wanted() && self.closing.is_none())
        else {
            return;
        };
        let size = match self.settings.largest_first {
            true => self.size(model, &*demand, &answers),
            false => Bytes::ZERO,
        };
        self.set_seeking(
            id,
            Seeking::Room(Room {
                demand,
                answers,
                victims: Vec::new(),
                needs: Bytes::ZERO,
                size,
                since: self.now,
                after,
                asking: Asking::Before,
            }),
        );
    }

    pub(super) fn start(&mut self, id: ModelId, placement: Placement) {
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
        let occupancy = self.occupancy(id, &*demand, &placement);
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
            occupancy,
            stamp,
            owed: 0,
            draining: None,
            suspect: None,
            afresh: false,
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
    pub(super) fn skip_preload(&mut self, id: ModelId) {
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

    /// A need that is too large only for what was learned on top of it is a guess that went too far: it is
    /// forgotten, and the model is tried again later as any other that failed to load.
    pub(super) fn refuse_for_good(&mut self, id: ModelId, never: Never) {
        let now = self.now;
        let Some(model) = self.model_mut(id) else { return };
        if std::mem::take(&mut model.record.learned).is_zero() {
            model.record.note(never.reason.clone());
            return self.give_up(id, refusal::never(never));
        }
        let cause = model.record.last_failure.take();
        model.record.load_failed(now, never.reason.because_all(cause));
        let wait = model.record.held_back(now);
        let refusal = refusal::load_failed(&model.name, &model.record, wait);
        self.give_up(id, refusal);
    }

    fn give_up(&mut self, id: ModelId, refusal: Refusal) {
        self.set_seeking(id, Seeking::Nothing);
        self.refuse_queue(id, &refusal);
    }
}
