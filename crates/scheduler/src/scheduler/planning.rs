//! Asks a plan or a model's engine how much memory the model needs, and takes the answers.
//!
//! DECISION: the driver plans, because a plan takes time, and knows what engines have told. Models that come
//! after the one in question wait for the answer for a moment, or they would take its memory. An answer that
//! is late holds up nobody: then others go first, and an answer for other free memory is better than none.

use std::time::Duration;

use plimsoll_base::{Curve, ModelNeed, NeedSize, Reason, RunId, Share};

use super::Scheduler;
use crate::effect::SchedulerEffect;
use crate::models::{ModelSlot, RoomObstacle, RoomSearch};
use crate::occupancy::Occupancy;
use crate::place::{CardSet, NeedAnswer, PlacementVerdict, Reservations};
use crate::refusal;
use crate::state::Contention;
use crate::time::{ModelId, SearchId};

/// Time for which others wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Time after which a question without an answer is repeated.
const AGAIN: Duration = Duration::from_secs(10);
/// Questions of one search without a pause. Each follows from the answers before, and three are usual.
const ROUNDS: u32 = 16;
/// Repetitions after which the load has failed.
const REPEATS: u32 = 3;

/// Why the depth of a run is not tracked whose growth was not told.
pub(super) const NOT_PLANNED: &str = "the plan of how its memory grows with the tokens in use was not \
    ready in time";

impl Scheduler {
    /// Asks what the model takes of these cards, unless an answer is on its way.
    pub(super) fn ask_need(&mut self, id: ModelId, sets: Vec<CardSet>) {
        let now = self.now;
        let Some(room) = self.room_mut(id) else { return };
        let (search, plan) = (room.id, &mut room.plan);
        room.wait.obstacle = RoomObstacle::Unplanned;
        let late_at = *plan.lacking_since.get_or_insert(now) + ANSWER_WITHIN;
        let becomes_late = late_at <= now && !plan.answers.takes_outdated;
        plan.answers.takes_outdated |= becomes_late;
        let repeats = plan.requested.is_some_and(|requested| requested + AGAIN <= now);
        let asks = repeats || plan.requested.is_none() && plan.rounds < ROUNDS;
        if asks {
            (plan.requested, plan.rounds) = (Some(now), plan.rounds.saturating_add(1));
            plan.repeats += u32::from(repeats);
        }
        if plan.repeats > REPEATS {
            return self.give_up_plan(id);
        }
        // Answers to other questions than those that were asked are as none.
        let next = *plan.requested.get_or_insert(now) + AGAIN;
        self.arm(if late_at > now { late_at } else { next });
        if becomes_late {
            self.mark_dirty();
        }
        if asks {
            self.emit(SchedulerEffect::AskNeed { model: id, search, sets });
        }
    }

    /// Refuses a model whose plan does not tell its need, as one that failed to load.
    fn give_up_plan(&mut self, id: ModelId) {
        let now = self.now;
        let Some(slot) = self.models.get_mut(id) else { return };
        let text = format!("the plan of {} does not state its memory on these cards", slot.name);
        slot.record.load_failed(now, Reason::new("unplanned", text), false);
        let refusal = refusal::load_failed(&slot.name, &slot.record, slot.record.deferred(now));
        self.give_up(id, refusal);
    }

    pub(super) fn need_answered(&mut self, id: ModelId, search: SearchId, answers: Vec<NeedAnswer>) {
        let Some(room) = self.room_mut(id).filter(|room| room.id == search) else { return };
        let plan = &mut room.plan;
        plan.answers.drop_if_many();
        plan.answers.extend(answers);
        plan.answers.takes_outdated = false;
        (plan.requested, plan.lacking_since) = (None, None);
        self.mark_dirty();
    }

    /// The model was placed without another question.
    pub(super) fn planned(&mut self, id: ModelId) {
        if let Some(room) = self.room_mut(id)
            && !room.plan.answers.takes_outdated
        {
            (room.plan.lacking_since, room.plan.rounds, room.plan.repeats) = (None, 0, 0);
        }
    }

    /// True while those that come after the model wait for an answer about it.
    pub(super) fn is_being_planned(&self, id: ModelId) -> bool {
        let room = self.models.get(id).and_then(ModelSlot::room);
        let since = room.and_then(|room| room.plan.lacking_since);
        since.is_some_and(|since| self.now < since + ANSWER_WITHIN)
    }

    /// Asks about a model that waits for the answer about another, so that both are known at once.
    pub(super) fn ask_ahead(&mut self, id: ModelId, contention: &Contention, reserved: &Reservations) {
        self.set_obstacle(id, RoomObstacle::Turn);
        let room = self.models.get(id).and_then(ModelSlot::room);
        if room.is_some_and(|room| room.need.size == NeedSize::Planned)
            && let Some(found) = self.state().verdict(id, contention, reserved)
            && let PlacementVerdict::Unplanned(sets) = found.verdict
        {
            self.ask_need(id, sets);
        }
    }

    /// Finds the sizes of waiting models, by which they are ordered. True while an answer is worth to wait
    /// for.
    pub(super) fn lacks_sizes(&mut self) -> bool {
        let is_unknown = |slot: &ModelSlot| slot.room().is_some_and(|room| room.size.is_none());
        let unknown = self.models.waiting().filter(|(_, slot)| is_unknown(slot)).map(|(id, _)| id);
        let mut lacks = false;
        for id in unknown.collect::<Vec<_>>() {
            let Some(slot) = self.models.get(id) else { continue };
            match slot.room().map(|room| self.state().size(slot, room)) {
                Some(Ok(size)) => self.room_mut(id).into_iter().for_each(|room| room.size = Some(size)),
                Some(Err(sets)) => {
                    self.ask_need(id, sets);
                    lacks |= self.is_being_planned(id);
                }
                None => {}
            }
        }
        lacks
    }

    /// Why the depth of a run that starts is not tracked, or not yet.
    pub(super) fn growth(slot: &ModelSlot, need: &ModelNeed) -> &'static str {
        match need.size {
            _ if !slot.spec.by_depth => "`depth-admission = false` in its section switches this limit off",
            NeedSize::Planned => NOT_PLANNED,
            _ => "it is unknown how much memory the model needs for each further token",
        }
    }

    /// Takes the growth of a run that loads. Once it has requests, their depths are not known any more.
    pub(super) fn growth_planned(&mut self, run_id: RunId, curve: Result<Curve, String>) {
        let Some((_, slot)) = self.living_mut(run_id) else { return };
        let learned = slot.record.learned().total();
        let Some(run) = slot.run_mut(run_id).filter(|run| run.is_loading() && run.awaits_growth) else {
            return;
        };
        run.awaits_growth = false;
        let is_own = |share: &Share| run.placement.cards().any(|card| *card == share.card);
        let unwatched = match curve {
            Err(reason) => reason,
            Ok(curve) if !curve.grows() => {
                "the model's memory does not grow with the tokens in use".to_owned()
            }
            Ok(curve) if !curve.at(0).iter().all(is_own) => {
                "the plan of how its memory grows is for other cards than the engine's".to_owned()
            }
            Ok(curve) => {
                (run.occupancy, run.depth_unwatched) = (Some(Occupancy::new(curve, learned)), None);
                return;
            }
        };
        run.depth_unwatched = Some(unwatched);
    }

    pub(super) fn room_mut(&mut self, id: ModelId) -> Option<&mut RoomSearch> {
        self.models.get_mut(id).and_then(ModelSlot::room_mut)
    }
}
