//! Table of all models, indexed by model number.
//!
//! At every change, the table updates its count of waiting models and its list of models whose state must be
//! reported.

mod pauses;
mod run;
mod slot;

pub(crate) use run::{Drain, PartingCause, RunPhase, RunSleep, RunState, StartFigure};
pub(crate) use slot::{
    DepthWait, LeftClient, ModelSlot, NeighbourQuery, ReadAhead, RequestedState, RoomObstacle, RoomSearch,
};

use std::time::Duration;

use plimsoll_base::RunId;

use super::effect::ModelState;
use super::time::{ModelId, Moment};

#[derive(Clone, Debug, Default)]
pub(crate) struct ModelTable {
    /// Models by number; `None` for unused numbers.
    slots: Vec<Option<ModelSlot>>,
    /// Models that wait for memory, to load or to go deeper.
    waiting: usize,
    /// An event may have changed a model's state.
    states_dirty: bool,
    /// The time at which a model became ready last.
    pub(crate) last_ready: Moment,
}

impl ModelTable {
    pub(crate) fn get(&self, id: ModelId) -> Option<&ModelSlot> {
        self.slots.get(usize::try_from(id.0).ok()?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ModelId) -> Option<&mut ModelSlot> {
        self.slots.get_mut(usize::try_from(id.0).ok()?)?.as_mut()
    }

    pub(crate) fn insert(&mut self, id: ModelId, slot: ModelSlot) {
        let Ok(index) = usize::try_from(id.0) else { return };
        // Numbers are dense, so that the table has no large gaps.
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(slot);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ModelId, &ModelSlot)> {
        let numbered = (0_u32..).map(ModelId).zip(&self.slots);
        numbered.filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    pub(crate) fn ids(&self) -> Vec<ModelId> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// Models with a run.
    pub(crate) fn running(&self) -> impl Iterator<Item = (ModelId, &ModelSlot, &RunState)> {
        self.iter().filter_map(|(id, slot)| Some((id, slot, slot.run.as_ref()?)))
    }

    /// Models that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Moves a model on its way to a run; returns its place before.
    pub(crate) fn set_seeking(&mut self, id: ModelId, seeking: RequestedState) -> Option<RequestedState> {
        let enters = matches!(seeking, RequestedState::Room(_));
        let slot = self.get_mut(id)?;
        let before = std::mem::replace(&mut slot.seeking, seeking);
        let leaves = matches!(before, RequestedState::Room(_));
        self.waiting = self.waiting + usize::from(enters) - usize::from(leaves);
        self.states_dirty = true;
        Some(before)
    }

    /// Makes a running model wait for more memory, or ends that; returns true if anything changed.
    pub(crate) fn set_depth_wait(&mut self, id: ModelId, wait: Option<DepthWait>) -> bool {
        let Some(slot) = self.get_mut(id) else {
            return false;
        };
        let enters = wait.is_some();
        let leaves = std::mem::replace(&mut slot.depth_wait, wait).is_some();
        self.waiting = self.waiting + usize::from(enters) - usize::from(leaves);
        enters || leaves
    }

    /// Takes a run off the victims of every model that waits.
    pub(crate) fn spare(&mut self, run: RunId) {
        for slot in self.slots.iter_mut().flatten() {
            slot.spare(run);
        }
    }

    /// Adds the load time of a run that left to the searches that it left for.
    pub(crate) fn displaced(&mut self, run: RunId, load_time: Duration) {
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.victims().any(|victim| *victim == run))
        {
            if let Some(room) = slot.room_mut() {
                room.displaced += load_time;
            }
        }
    }

    pub(crate) fn mark_states_dirty(&mut self) {
        self.states_dirty = true;
    }

    /// Reports models whose state differs from the last reported one, and drops removed models without a run.
    pub(crate) fn report_states(&mut self, mut report: impl FnMut(ModelId, ModelState)) {
        if !std::mem::take(&mut self.states_dirty) {
            return;
        }
        for (id, place) in (0_u32..).zip(&mut self.slots) {
            let Some(slot) = place else { continue };
            let state = slot.state();
            if state != slot.reported {
                slot.reported = state;
                report(ModelId(id), state);
            }
            // Not earlier: the run of a removed model still holds memory and may have requests in flight.
            if slot.removed && slot.run.is_none() {
                *place = None;
            }
        }
    }
}
