//! Holds the state of all models, by model number.
//!
//! At every change, the table updates its count of waiting models and its list of models whose state must be
//! reported.

#[cfg(test)]
mod audit;
mod pauses;
mod run;
mod slot;

pub(crate) use run::{Drain, PartingCause, RunPhase, RunSleep, RunState, StartFigure};
pub(crate) use slot::{
    LeftClient, MemoryWait, ModelSlot, NeighbourQuery, PlanProgress, RequestedState, RoomObstacle, RoomSearch,
};

use std::time::Duration;

use plimsoll_base::RunId;

use super::effect::ModelState;
use super::time::{ModelId, Moment};

#[derive(Clone, Debug, Default)]
pub(crate) struct ModelTable {
    /// Models by number; `None` for unused numbers.
    slots: Vec<Option<ModelSlot>>,
    /// Models with a run, in order.
    running: Vec<ModelId>,
    /// Models that wait for memory, to load or to go deeper, in order.
    waiting: Vec<ModelId>,
    /// The sum of the known load times, and their number.
    load_times: (Duration, u32),
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

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ModelSlot> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn ids(&self) -> Vec<ModelId> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// Models with a run.
    pub(crate) fn running(&self) -> impl Iterator<Item = (ModelId, &ModelSlot, &RunState)> {
        self.running.iter().filter_map(|id| {
            let slot = self.get(*id)?;
            Some((*id, slot, slot.run.as_ref()?))
        })
    }

    /// Gives a model its run.
    pub(crate) fn begin_run(&mut self, id: ModelId, run: RunState) {
        if let Some(slot) = self.get_mut(id) {
            slot.run = Some(run);
            enter(&mut self.running, id);
        }
    }

    /// Takes the run of a model, which has ended.
    pub(crate) fn end_run(&mut self, id: ModelId) -> Option<RunState> {
        leave(&mut self.running, id);
        self.get_mut(id)?.run.take()
    }

    /// Takes the time of a model's last load.
    pub(crate) fn set_load_time(&mut self, id: ModelId, time: Duration) {
        if let Some(slot) = self.get_mut(id) {
            let before = slot.load_time.replace(time);
            self.forget_load_time(before);
            self.load_times = (self.load_times.0 + time, self.load_times.1 + 1);
        }
    }

    fn forget_load_time(&mut self, time: Option<Duration>) {
        if let Some(time) = time {
            self.load_times = (self.load_times.0 - time, self.load_times.1 - 1);
        }
    }

    /// The mean of the models' last load times.
    pub(crate) fn mean_load_time(&self) -> Option<Duration> {
        self.load_times.0.checked_div(self.load_times.1)
    }

    /// Models that wait for memory.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (ModelId, &ModelSlot)> {
        self.waiting.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    pub(crate) fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Changes a model, and its place in the list of those that wait.
    fn change<T>(&mut self, id: ModelId, change: impl FnOnce(&mut ModelSlot) -> T) -> Option<T> {
        let slot = self.get_mut(id)?;
        let waited = slot.waits();
        let changed = change(slot);
        match (waited, slot.waits()) {
            (false, true) => enter(&mut self.waiting, id),
            (true, false) => leave(&mut self.waiting, id),
            _ => {}
        }
        Some(changed)
    }

    /// Moves a model on its way to a run; returns its place before.
    pub(crate) fn set_seeking(&mut self, id: ModelId, seeking: RequestedState) -> Option<RequestedState> {
        self.states_dirty = true;
        self.change(id, |slot| std::mem::replace(&mut slot.seeking, seeking))
    }

    /// Makes a running model wait for more memory, or ends that; returns true if anything changed.
    pub(crate) fn set_depth_wait(&mut self, id: ModelId, wait: Option<MemoryWait>) -> bool {
        let enters = wait.is_some();
        let before = self.change(id, |slot| std::mem::replace(&mut slot.depth_wait, wait));
        before.is_some_and(|before| enters || before.is_some())
    }

    /// Takes a run off the victims of every model that waits.
    pub(crate) fn spare(&mut self, run: RunId) {
        // Memory of runs that were stopped stays awaited.
        let waits = self.iter_mut().filter_map(ModelSlot::wait_mut);
        waits.for_each(|wait| wait.victims.retain(|victim| *victim != run));
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
        let mut gone = Vec::new();
        for (id, place) in (0_u32..).zip(&mut self.slots) {
            let Some(slot) = place else { continue };
            let state = slot.state();
            if state != slot.reported {
                slot.reported = state;
                report(ModelId(id), state);
            }
            // Not earlier: the run of a removed model still holds memory and may have requests in flight.
            if slot.removed && slot.run.is_none() {
                gone.extend(place.take().map(|slot| (ModelId(id), slot.load_time)));
            }
        }
        for (id, load_time) in gone {
            leave(&mut self.waiting, id);
            self.forget_load_time(load_time);
        }
    }
}

/// Adds a model to a list in order.
fn enter(models: &mut Vec<ModelId>, id: ModelId) {
    if let Err(place) = models.binary_search(&id) {
        models.insert(place, id);
    }
}

fn leave(models: &mut Vec<ModelId>, id: ModelId) {
    if let Ok(place) = models.binary_search(&id) {
        models.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSpec;

    #[test]
    fn a_list_that_the_models_do_not_confirm_is_stale() {
        let id = ModelId(0);
        let mut table = ModelTable::default();
        table.insert(id, ModelSlot::new(ModelSpec::new("a")));
        assert_eq!(table.stale_list(), None);
        table.running.push(id);
        assert_eq!(table.stale_list(), Some("running"));
        table.running.clear();
        table.waiting.push(id);
        assert_eq!(table.stale_list(), Some("waiting"));
        table.waiting.clear();
        table.load_times.1 = 1;
        assert_eq!(table.stale_list(), Some("load times"));
        table.load_times.1 = 0;
        table.set_load_time(id, Duration::from_secs(2));
        assert_eq!(table.stale_list(), None);
    }
}
