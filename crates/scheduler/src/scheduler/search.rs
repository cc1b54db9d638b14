//! Goes through the models that wait for memory, in order, and decides for each: load it, stop another model
//! for it, or wait.

use plimsoll_base::{Company, NeedSize, Order};

use super::Scheduler;
use crate::models::{ModelSlot, NeighbourQuery, RequestedState, RoomObstacle, RoomSearch};
use crate::place::Reservations;
use crate::state::Contention;
use crate::state::turns::{QueueTurn, TurnGoal};
use crate::time::{ModelId, Moment};

/// Effect of the search for one model on those that come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
    /// A run or a line has changed.
    Changed,
    /// The model waits for runs in use, and its patience is not over.
    Waits,
    Unchanged,
}

impl Scheduler {
    /// Looks at all waiting models. The order is that of [`crate::state::turns`], and each search starts from
    /// scratch.
    pub(super) fn search(&mut self) {
        let mut is_blocked = self.settings.largest_first && self.lacks_sizes();
        let turns = self.waiting_turns();
        let shares_verdicts = turns.iter().all(|turn| turn.goal != TurnGoal::Depth);
        let mut reserved = Reservations::default();
        let mut contention = self.state().contention();
        let mut waiting: Vec<ModelId> = Vec::new();
        for turn in turns {
            if let Some(due) = turn.postponable(self.now) {
                self.arm(due);
            }
            let (model, since) = (turn.model, turn.since);
            if !is_blocked && self.waits_alike(model, since, &contention, &waiting) {
                continue;
            }
            let had_victims = self.models.get(model).is_some_and(|slot| slot.victims().next().is_some());
            let loads = reserved.models().len();
            let step = match turn.goal {
                // What it would take may be meant for the one before it, whose need is being told.
                _ if is_blocked => {
                    self.ask_ahead(model, &contention, &reserved);
                    SearchStep::Unchanged
                }
                _ if self.state().is_postponed(&turn) => {
                    self.set_obstacle(model, RoomObstacle::Turn);
                    SearchStep::Unchanged
                }
                TurnGoal::Depth => {
                    self.find_depth(model, since, &mut reserved);
                    SearchStep::Changed
                }
                TurnGoal::Load | TurnGoal::Preload => {
                    self.find_room(model, since, &contention, &mut reserved)
                }
            };
            is_blocked |= self.is_being_planned(model);
            if step == SearchStep::Changed {
                contention = self.state().contention();
            }
            if step == SearchStep::Changed || had_victims || reserved.models().len() > loads {
                waiting.clear();
            } else if step == SearchStep::Waits && shares_verdicts {
                waiting.push(model);
            }
        }
        self.call_off_drains();
    }

    /// The waiting models in their order.
    fn waiting_turns(&mut self) -> Vec<QueueTurn> {
        let mut turns: Vec<QueueTurn> = Vec::new();
        let waiting: Vec<ModelId> = self.models.waiting().map(|(id, _)| id).collect();
        for id in waiting {
            let Some(slot) = self.models.get(id) else { continue };
            match slot.seeking() {
                RequestedState::Room(room) if slot.wanted() => {
                    turns.push(self.state().turn(id, slot, Some(room)))
                }
                // All requests for it have left.
                RequestedState::Room(_) => self.set_seeking(id, RequestedState::Nothing),
                _ if slot.depth_wait().is_some() => turns.push(self.state().turn(id, slot, None)),
                _ => {}
            }
        }
        turns.order_by_key(QueueTurn::key);
        turns
    }

    // DECISION: most models that wait do so for runs in use, and need what another needs that waits with
    // them. The verdict on that one holds for them too: nothing was reserved and no run has changed since,
    // and no run is idle that the one would stop and the other not.
    /// True if a model waits for runs in use as one of `waiting` does; it then has that one's obstacle.
    fn waits_alike(
        &mut self,
        id: ModelId,
        since: Moment,
        contention: &Contention,
        waiting: &[ModelId],
    ) -> bool {
        let impatient = since + self.settings.patience;
        if waiting.is_empty() || impatient <= self.now {
            return false;
        }
        let Some(slot) = self.models.get(id).filter(|slot| self.may_share(slot)) else { return false };
        let is_alike = |other: &ModelId| {
            let other = self.models.get(*other)?;
            let room = other.room().filter(|_| needs_alike(slot, other))?;
            Some(room.wait.clone())
        };
        let Some(wait) = waiting.iter().find_map(is_alike) else { return false };
        let (any_idle, next) = self.state().idle_for(contention, id);
        if any_idle {
            return false;
        }
        self.planned(id);
        self.wait_mut(id).into_iter().for_each(|own| own.clone_from(&wait));
        // Before its patience is over, nothing but an idle run stops for it.
        self.arm(next.min(impatient));
        true
    }

    /// True if nothing but its need and its cards decides whether the model waits.
    fn may_share(&self, slot: &ModelSlot) -> bool {
        let has_asked = |room: &RoomSearch| room.neighbours == NeighbourQuery::Done || !self.settings.asks;
        slot.pressing()
            && slot.room().is_some_and(has_asked)
            && slot.victims().next().is_none()
            && slot.record.spares(self.now).is_none()
    }
}

/// True if the two models need the same, of the same cards, and no rule keeps either from others.
fn needs_alike(one: &ModelSlot, other: &ModelSlot) -> bool {
    let plain = |slot: &ModelSlot| slot.spec.port.is_none() && slot.spec.company == Company::default();
    let need = |slot| ModelSlot::room(slot).map(|room| slot.known_need(&room.need));
    plain(one)
        && plain(other)
        && need(one).is_some_and(|need| need.size != NeedSize::Planned)
        && need(one) == need(other)
        && one.record.learned() == other.record.learned()
        && one.spec.allowed == other.spec.allowed
}
