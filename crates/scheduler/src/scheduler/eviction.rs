//! Makes room for waiting models: chooses the engines that must stop, and stops them.
//!
//! Models are handled oldest first. A model that has waited longer than `patience` reserves the memory that
//! it needs. The runs that are in use there go on until their turns are over.

use plimsoll_base::{Bytes, CardId, Placement, RunId};

use super::Scheduler;
use super::search::SearchStep;
use crate::effect::SchedulerEffect;
use crate::models::{Drain, MemoryWait, ModelSlot, NeighbourQuery, RoomObstacle, RunState};
use crate::place::{Account, PlacementVerdict, Reservations};
use crate::state::{Contention, RoomVerdict, StateRef};
use crate::time::{ModelId, Moment};

/// Searches for one event. Each follows from a change of the one before, and two or three are usual.
const SEARCHES: usize = 8;

impl Scheduler {
    /// Looks at all models that wait for memory, and again if that changed something.
    pub(super) fn make_room(&mut self) {
        let mut searches = 0;
        while searches < SEARCHES && self.placements.take_dirty() {
            self.search();
            searches += 1;
        }
        if searches == 0 {
            return;
        }
        self.begin_reads();
        // Models that still wait were not helped by the runs that are idle now.
        let idle = self.state().idle_runs();
        self.placements.remember_failed(idle);
    }

    /// A run has become idle: it may leave now, or when its hold ends.
    pub(super) fn became_idle(&mut self, id: ModelId) {
        if self.models.none_waits() {
            return;
        }
        let idle = self.state().idle_runs();
        self.placements.mark_dirty_for_idle(&idle);
        let state = self.state();
        let hold_end = self.models.get(id).and_then(|slot| state.kept_until(slot, state.all_wait()));
        if let Some(at) = hold_end.filter(|at| *at > self.now) {
            self.arm(at);
        }
    }

    /// Looks for room for a model.
    pub(super) fn find_room(
        &mut self,
        id: ModelId,
        since: Moment,
        contention: &Contention,
        reserved: &mut Reservations,
    ) -> SearchStep {
        // A model is evicted only for one that was surveyed (its files show that it can load) and that fits
        // once the evicted models are gone.
        let Some(found) = self.state().verdict(id, contention, reserved) else {
            return SearchStep::Unchanged;
        };
        if let PlacementVerdict::Unplanned(sets) = found.verdict {
            self.ask_need(id, sets);
            return SearchStep::Unchanged;
        }
        self.planned(id);
        let RoomVerdict { verdict, barred, obstacle, next } = found;
        let is_calm = !matches!(obstacle, RoomObstacle::Motion { .. });
        self.set_obstacle(id, obstacle);
        let pressing = self.models.get(id).is_some_and(ModelSlot::pressing);
        match verdict {
            PlacementVerdict::Fits(placement)
                if is_calm
                    && barred.is_empty()
                    && (!StateRef::needs_reading(&placement) || self.has_reading()) =>
            {
                self.take_slack(None, &placement, reserved);
                self.start(id, placement);
                return SearchStep::Changed;
            }
            PlacementVerdict::Fits(placement) => {
                // Those that come after it would keep its cards in motion.
                if !is_calm && self.models.get(id).is_some_and(|slot| slot.spec.measures_free) {
                    reserved.keep_calm(&placement);
                }
                reserved.reserve_load(id, &placement, &barred, self.ledger());
            }
            // Every other way would stop a model, which a preload may not.
            _ if !pressing => {
                self.skip_preload(id);
                return SearchStep::Changed;
            }
            PlacementVerdict::FitsAfter { stop, .. } if self.spares(id, &stop) => {
                self.refuse_sparing(id);
                return SearchStep::Changed;
            }
            _ if self.asks_neighbours(id, &verdict) => self.set_victims(id, Vec::new()),
            PlacementVerdict::FitsAfter { placement, stop, waits: false }
                if self.state().waits_rather(id, &stop, placement.total(), reserved.models()) =>
            {
                self.set_victims(id, Vec::new());
                self.set_obstacle(id, RoomObstacle::Turn);
            }
            PlacementVerdict::FitsAfter { placement, stop, waits } => {
                let impatient = since + self.settings.patience;
                next.into_iter().filter(|_| waits).for_each(|at| self.arm(at));
                if !waits || impatient <= self.now {
                    reserved.reserve_load(id, &placement, &stop, self.ledger());
                    let drains = self.commit(id, &placement, stop, contention);
                    return if drains { SearchStep::Changed } else { SearchStep::Unchanged };
                }
                self.set_victims(id, Vec::new());
                self.note_need(id, &placement);
                self.arm(impatient);
                let any_idle = self.state().idle_for(contention, id).0;
                return if any_idle { SearchStep::Unchanged } else { SearchStep::Waits };
            }
            // Victims chosen earlier may be needed no more; without this their drain would not be called off.
            PlacementVerdict::Later | PlacementVerdict::Unplanned(_) => self.set_victims(id, Vec::new()),
            // Memory of other processes may be back since the last reading.
            PlacementVerdict::Never(never) if never.crowded_out && !self.has_reading() => {}
            PlacementVerdict::Never(never) => {
                self.refuse_for_good(id, *never);
                return SearchStep::Changed;
            }
        }
        SearchStep::Unchanged
    }

    /// True if the figures at hand are fresh; else the cards are read first.
    fn has_reading(&mut self) -> bool {
        let (now, age) = (self.now, self.settings.reading_age);
        if self.placements.is_fresh(now, age) {
            return true;
        }
        // The periodic reading may be a second old: another process could have filled the card since.
        if self.placements.request_reading(now) {
            self.emit(SchedulerEffect::ReadCards);
        }
        false
    }

    /// True while guarded processes are requested to release idle memory. This happens once in each search
    /// for room, before another model is stopped and before a model is refused because of memory that they
    /// hold.
    fn asks_neighbours(&mut self, id: ModelId, verdict: &PlacementVerdict) -> bool {
        let could_help = match verdict {
            PlacementVerdict::Fits(_) | PlacementVerdict::Later | PlacementVerdict::Unplanned(_) => false,
            PlacementVerdict::FitsAfter { .. } => true,
            PlacementVerdict::Never(never) => never.crowded_out,
        };
        if could_help && self.models.running().any(|(_, _, run)| run.measures_now()) {
            // Memory that neighbours free now would mislead its engine; the search continues when it is
            // ready.
            return self.settings.asks;
        }
        let asks = self.settings.asks && could_help;
        let Some(room) = self.room_mut(id) else { return false };
        if room.neighbours == NeighbourQuery::Before && asks {
            room.neighbours = NeighbourQuery::Pending;
            self.emit(SchedulerEffect::AskNeighbours { model: id });
            return true;
        }
        room.neighbours == NeighbourQuery::Pending
    }

    // DECISION: a load takes longest where it reads from the disk, and only its own memory on the card has to
    // wait for others. The files are read once in each search, and not beside another load, which they would
    // slow down.
    /// Lets the driver read the files of models that wait for other runs.
    fn begin_reads(&mut self) {
        let loads = self.models.running().any(|(_, _, run)| run.is_loading());
        // Where cards share the host's memory, a full page cache obstructs the load.
        if loads || self.settings.largest_first {
            return;
        }
        let waits = |slot: &ModelSlot| {
            slot.room().is_some_and(|room| !room.has_read && !room.wait.obstacle.occupied().1.is_empty())
        };
        let reads = self.models.waiting().filter(|(_, slot)| waits(slot)).map(|(id, _)| id);
        for id in reads.collect::<Vec<_>>() {
            if let Some(room) = self.room_mut(id) {
                room.has_read = true;
            }
            self.emit(SchedulerEffect::ReadAhead { model: id });
        }
    }

    pub(super) fn neighbours_requested(&mut self, id: ModelId) {
        if let Some(room) = self.room_mut(id).filter(|room| room.neighbours == NeighbourQuery::Pending) {
            room.neighbours = NeighbourQuery::Done;
            self.mark_dirty();
        }
    }

    /// Lowers claims of other runs as far as `placement` lacks memory, after subtracting the memory reserved
    /// for older models.
    pub(super) fn take_slack(
        &mut self,
        except: Option<ModelId>,
        placement: &Placement,
        reserved: &Reservations,
    ) {
        for share in placement.shares.iter().filter(|share| !share.bytes.is_zero()) {
            let wanted = share.bytes + reserved.on(&share.card);
            self.lower_claims(except, &share.card, |_, account| account.lacking(wanted));
        }
    }

    /// Lowers claims on a card, each by its slack at most, until nothing is `lacking`.
    pub(super) fn lower_claims(
        &mut self,
        except: Option<ModelId>,
        card: &CardId,
        lacking: impl Fn(&Self, &Account) -> Bytes,
    ) {
        for (run, slack) in
            self.state().all_slack(except).into_iter().filter(|(_, slack)| slack.card == *card)
        {
            let Some(account) = self.ledger().account(card) else { return };
            let (lacks, occupied) = (lacking(self, account), account.occupied_by(run));
            if lacks.is_zero() {
                return;
            }
            self.placements.ledger.shrink(run, card, occupied.saturating_sub(lacks.min(slack.bytes)));
            self.lent(run);
            self.claim_changed(run, card);
        }
    }

    pub(super) fn wait_mut(&mut self, id: ModelId) -> Option<&mut MemoryWait> {
        self.models.get_mut(id)?.wait_mut()
    }

    pub(super) fn set_victims(&mut self, id: ModelId, victims: Vec<RunId>) {
        if let Some(wait) = self.wait_mut(id) {
            wait.victims = victims;
        }
    }

    pub(super) fn set_obstacle(&mut self, id: ModelId, obstacle: RoomObstacle) {
        if let Some(wait) = self.wait_mut(id) {
            wait.obstacle = obstacle;
        }
    }

    /// Drains those of the victims that may be stopped now for the model; true if there is one.
    pub(super) fn commit(
        &mut self,
        id: ModelId,
        placement: &Placement,
        victims: Vec<RunId>,
        contention: &Contention,
    ) -> bool {
        let (now, next) = self.state().drains(contention, id, &victims);
        let drains = !now.is_empty();
        for victim in now {
            let sum = self.state().swap_sum(contention, id, victim);
            if let Some(run) = self.models.get_mut(victim).and_then(|slot| slot.run.as_mut()) {
                run.swap_sum = sum.or(run.swap_sum.take());
            }
            self.drain(victim, Drain::Evict);
        }
        next.into_iter().for_each(|at| self.arm(at));
        // Remembered, so that the log can name the reason when they stop.
        self.set_victims(id, victims);
        self.note_need(id, placement);
        drains
    }

    fn note_need(&mut self, id: ModelId, placement: &Placement) {
        if let Some(wait) = self.wait_mut(id) {
            (wait.needs, wait.cards) = (placement.total(), placement.cards().cloned().collect());
        }
    }

    // DECISION: a pin spares a run from the moment that it is set, as long as the run was only chosen, and
    // even if it drains. The search that follows may have to wait for a reading or for its turn, and the
    // drain could end meanwhile. A run that was ordered to stop ends all the same, and so does one that
    // leaves for its own model's sake; the pin is the next run's.
    /// Calls off the choice of a pinned model's run as a victim.
    pub(super) fn spare_pinned(&mut self, id: ModelId) {
        let Some(slot) = self.models.get_mut(id).filter(|slot| slot.is_pinned()) else { return };
        let Some(run) = slot.run.as_ref().filter(|run| !run.leaves()) else { return };
        let (spared, drains) = (run.id, run.draining.is_some());
        self.models.spare(spared);
        if drains {
            self.call_off(id);
        }
    }

    /// Calls off drains that no waiting model needs any more.
    pub(super) fn call_off_drains(&mut self) {
        let mut needed = self.state().victims_of(|_| true);
        needed.extend(self.yielding.keys());
        // A run that was ordered to stop cannot be kept; only one that still finishes requests can.
        let drains = |run: &RunState| run.draining == Some(Drain::Evict) && run.is_ready();
        let running = self.models.running();
        let spared = running.filter(|(_, _, run)| drains(run) && !needed.contains(&run.id));
        for id in spared.map(|(id, ..)| id).collect::<Vec<_>>() {
            self.call_off(id);
            self.mark_dirty();
        }
    }

    /// Calls off the drain of a model's run.
    fn call_off(&mut self, id: ModelId) {
        if let Some(run) = self.models.get_mut(id).and_then(|slot| slot.run.as_mut()) {
            (run.draining, run.swap_sum) = (None, None);
            self.models.mark_states_dirty();
            self.dispatch_queue(id);
        }
    }
}
