//! Orders the waiting models for memory: usually the one that has waited longest gets the next turn.
//!
//! A model that has waited longer than `patience` comes before all others. Models to preload come last. A
//! priority changes the time from which a wait counts.

use std::cmp::Reverse;

use plimsoll_base::{Bytes, RunId};

use super::StateRef;
use crate::models::{ModelSlot, RequestedState, RoomSearch};
use crate::place::{CardSet, need};
use crate::time::{ModelId, Moment};

/// Position of a waiting model in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueTurn {
    pub(crate) model: ModelId,
    pub(crate) goal: TurnGoal,
    /// The start of the oldest wait for it.
    pub(crate) since: Moment,
    /// A run has left for it, or is about to.
    begun: bool,
    /// The time from which its wait counts in the order, by its priority.
    counted: Moment,
    /// Memory need of the model; `None` if only age counts.
    size: Option<Bytes>,
    /// The model has waited longer than the patience, so that only its age counts.
    overdue: bool,
    /// The time at which it becomes overdue.
    due: Moment,
}

/// Purpose for which a model waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TurnGoal {
    /// More depth for a running model.
    Depth,
    Load,
    /// A load that no client waits for.
    Preload,
}

impl QueueTurn {
    /// Sort key; smaller is sooner.
    pub(crate) fn key(&self) -> (bool, bool, bool, Reverse<Bytes>, Moment, ModelId) {
        // DECISION: where cards share the host's memory, the model with the largest need comes first. Each
        // load fills the page cache, which obstructs later loads.
        let by_age = self.goal == TurnGoal::Depth || self.overdue;
        let size = self.size.filter(|_| !by_age);
        (
            self.goal == TurnGoal::Preload,
            // Memory that was freed for one model is not given to another, whatever its priority.
            !self.begun,
            // Overdue models have no size here and therefore come first.
            size.is_some(),
            Reverse(size.unwrap_or_default()),
            self.counted,
            self.model,
        )
    }

    /// The time until which the turn may be postponed; None if it may not.
    pub(crate) fn postponable(&self, now: Moment) -> Option<Moment> {
        (self.size.is_some() && !self.overdue && self.due > now).then_some(self.due)
    }
}

impl StateRef<'_> {
    /// The turn of a model; `room` is its search if it does not run.
    pub(crate) fn turn(self, id: ModelId, slot: &ModelSlot, room: Option<&RoomSearch>) -> QueueTurn {
        let since = self.waits_since(slot);
        let due = room.map_or(since, |room| since.min(room.since)) + self.settings.patience;
        let goal = match room {
            None => TurnGoal::Depth,
            Some(_) if slot.pressing() => TurnGoal::Load,
            Some(_) => TurnGoal::Preload,
        };
        QueueTurn {
            model: id,
            goal,
            since,
            begun: slot.victims().any(|run| self.is_leaving(*run)),
            counted: self.counts_since(slot),
            size: room.filter(|_| self.settings.largest_first).map(|room| room.size.unwrap_or_default()),
            overdue: due <= self.now && goal != TurnGoal::Preload,
            due,
        }
    }

    /// True for a run that was ordered to leave.
    fn is_leaving(self, run: RunId) -> bool {
        self.live(run).is_none_or(|(.., live)| live.draining.is_some() || live.leaves())
    }

    /// True if the turn has to wait although it precedes others.
    pub(crate) fn is_postponed(self, turn: &QueueTurn) -> bool {
        let surveyed = || {
            let mut models = self.models.iter();
            models.any(|(_, slot)| matches!(slot.seeking(), RequestedState::Survey { .. }) && slot.wanted())
        };
        let loads = || self.models.running().any(|(_, _, run)| run.is_loading());
        // Loads that share a disk take as long together as one after the other, and each of them as long as
        // all. A model that is being surveyed may turn out to be larger.
        turn.goal == TurnGoal::Preload && loads() || turn.postponable(self.now).is_some() && surveyed()
    }

    /// Memory that a model would take on empty cards; or the sets of cards that its plan has to tell of
    /// first.
    pub(crate) fn size(self, slot: &ModelSlot, room: &RoomSearch) -> Result<Bytes, Vec<CardSet>> {
        need(&slot.query(&slot.known_need(&room.need), &room.plan.answers), self.ledger)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const PATIENCE: u64 = 5;

    fn turn(id: u32, goal: TurnGoal, since: u64, size: Option<u64>, now: u64) -> QueueTurn {
        let since = Moment::at(Duration::from_secs(since));
        let due = since + Duration::from_secs(PATIENCE);
        QueueTurn {
            model: ModelId(id),
            goal,
            since,
            begun: false,
            counted: since,
            size: size.map(Bytes::gib),
            overdue: due <= Moment::at(Duration::from_secs(now)) && goal != TurnGoal::Preload,
            due,
        }
    }

    fn waiting(sized: bool) -> impl Strategy<Value = Vec<QueueTurn>> {
        let goal = prop_oneof![Just(TurnGoal::Depth), Just(TurnGoal::Load), Just(TurnGoal::Preload)];
        let one = (goal, 0_u64..=20, 0_u64..9);
        prop::collection::vec(one, 0..12).prop_map(move |all| {
            let numbered = (0..).zip(all);
            numbered
                .map(|(id, (goal, since, size))| turn(id, goal, since, Some(size).filter(|_| sized), 20))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn by_age_alone_the_oldest_goes_first_and_preloads_last(mut queue in waiting(false)) {
            queue.sort_by_key(QueueTurn::key);
            let plain = |turn: &QueueTurn| (turn.goal == TurnGoal::Preload, turn.since, turn.model);
            prop_assert!(queue.is_sorted_by_key(plain));
        }

        // No starvation: overdue models come before all others, in the order of age.
        #[test]
        fn an_overdue_model_goes_before_all_that_are_not(mut queue in waiting(true)) {
            queue.sort_by_key(QueueTurn::key);
            for (place, turn) in queue.iter().enumerate().filter(|(_, turn)| turn.overdue) {
                for before in &queue[..place] {
                    prop_assert!(before.since <= turn.since, "{before:?} {turn:?}");
                }
            }
        }

        #[test]
        fn of_the_others_the_largest_goes_first(mut queue in waiting(true)) {
            queue.sort_by_key(QueueTurn::key);
            for goal in [TurnGoal::Load, TurnGoal::Preload] {
                let sizes = queue.iter().filter(|turn| turn.goal == goal && !turn.overdue).map(|turn| turn.size);
                prop_assert!(sizes.collect::<Vec<_>>().is_sorted_by(|a, b| a >= b));
            }
        }
    }
}
