//! Whose turn it is among those who wait for memory.
//!
//! Usually the oldest's. DECISION: where cards take the host's memory the largest need goes first, while memory is least filled and
//! least in pieces: what each load reads stays in the page cache, in the way of the next. Age still bounds it: whoever has waited
//! for the patience goes before all who have not, the oldest first, so that nobody is passed for longer than that. To know who is the
//! largest, a turn waits until those who are being surveyed are known too, no longer than the patience. Preloads, for
//! which nobody waits, come last and one after another.

use std::cmp::Reverse;

use plimsoll_base::{Bytes, Declared, Demand};

use super::model::{Model, Phase, Room, Seeking};
use super::moment::{ModelId, Moment};
use super::scheduler::Scheduler;
use crate::place::{Answers, Ask, need};

/// One that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) model: ModelId,
    pub(super) what: What,
    /// Since when the oldest who wants it has waited.
    pub(super) since: Moment,
    /// None where turns go by age alone.
    size: Option<Bytes>,
    /// It has waited for so long that its age counts and nothing else.
    overdue: bool,
    /// When that is, as far as it can be told.
    due: Moment,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// To go deeper: the model runs.
    Depth,
    Load,
    /// Nobody waits for it yet.
    Preload,
}

impl Turn {
    /// Smaller is sooner.
    pub(super) fn key(&self) -> (bool, bool, Reverse<Bytes>, Moment, ModelId) {
        let by_age = self.what == What::Depth || self.overdue;
        let size = self.size.filter(|_| !by_age);
        (
            self.what == What::Preload,
            size.is_some(),
            Reverse(size.unwrap_or_default()),
            self.since,
            self.model,
        )
    }
}

impl Scheduler {
    /// `room` is what a model waits for that does not run.
    pub(super) fn turn(&self, id: ModelId, model: &Model, room: Option<&Room>) -> Turn {
        let since = self.waits_since(model);
        let due = room.map_or(since, |room| since.min(room.since)) + self.settings.patience;
        let what = match room {
            None => What::Depth,
            Some(_) if model.pressing() => What::Load,
            Some(_) => What::Preload,
        };
        Turn {
            model: id,
            what,
            since,
            size: room.filter(|_| self.settings.largest_first).map(|room| room.size),
            overdue: due <= self.now && what != What::Preload,
            due,
        }
    }

    /// Whether it is not to be looked at yet, though it comes before others.
    pub(super) fn holds_back(&mut self, turn: &Turn) -> bool {
        if turn.size.is_none() || turn.overdue {
            return false;
        }
        if turn.due > self.now {
            self.arm(turn.due);
        }
        let surveyed = || {
            let mut models = self.models.iter().flatten();
            models.any(|model| matches!(model.seeking, Seeking::Survey { .. }) && model.wanted())
        };
        let awaits = turn.due > self.now && surveyed();
        awaits || (turn.what == What::Preload && self.is_loading())
    }

    fn is_loading(&self) -> bool {
        let mut models = self.living.values().filter_map(|id| self.model(*id));
        models.any(|model| {
            let phase = model.run.as_ref().map(|run| run.phase);
            matches!(phase, Some(Phase::Loading { .. }))
        })
    }

    /// Something happened that may change whose turn it is.
    pub(super) fn stir_for_turns(&mut self) {
        if self.settings.largest_first {
            self.stir();
        }
    }

    /// What a model would take with nobody else there.
    pub(super) fn size(&self, model: &Model, demand: &dyn Demand, answers: &Answers) -> Bytes {
        let known = model.record.measured.filter(|_| demand.alone()).map(Declared);
        let ask = Ask {
            name: &model.name,
            demand: known.as_ref().map_or(demand, |known| known),
            answers,
            learned: model.record.learned,
            allowed: &model.spec.allowed,
            named: demand.named(),
        };
        need(&ask, &self.ledger)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const PATIENCE: u64 = 5;

    fn turn(id: u32, what: What, since: u64, size: Option<u64>, now: u64) -> Turn {
        let since = Moment::at(Duration::from_secs(since));
        let due = since + Duration::from_secs(PATIENCE);
        Turn {
            model: ModelId(id),
            what,
            since,
            size: size.map(Bytes::gib),
            overdue: due <= Moment::at(Duration::from_secs(now)) && what != What::Preload,
            due,
        }
    }

    fn waiting(sized: bool) -> impl Strategy<Value = Vec<Turn>> {
        let what = prop_oneof![Just(What::Depth), Just(What::Load), Just(What::Preload)];
        let one = (what, 0_u64..=20, 0_u64..9);
        prop::collection::vec(one, 0..12).prop_map(move |all| {
            let numbered = (0..).zip(all);
            numbered
                .map(|(id, (what, since, size))| turn(id, what, since, Some(size).filter(|_| sized), 20))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn by_age_alone_the_oldest_goes_first_and_preloads_last(mut queue in waiting(false)) {
            queue.sort_by_key(Turn::key);
            let plain = |turn: &Turn| (turn.what == What::Preload, turn.since, turn.model);
            prop_assert!(queue.is_sorted_by_key(plain));
        }

        // Nobody starves: those who have waited for the patience go before all others, in the order of age.
        #[test]
        fn who_has_waited_long_goes_before_all_who_have_not(mut queue in waiting(true)) {
            queue.sort_by_key(Turn::key);
            for (place, turn) in queue.iter().enumerate().filter(|(_, turn)| turn.overdue) {
                for before in &queue[..place] {
                    prop_assert!(before.since <= turn.since, "{before:?} {turn:?}");
                }
            }
        }

        #[test]
        fn of_the_others_the_largest_goes_first(mut queue in waiting(true)) {
            queue.sort_by_key(Turn::key);
            for what in [What::Load, What::Preload] {
                let sizes = queue.iter().filter(|turn| turn.what == what && !turn.overdue).map(|turn| turn.size);
                prop_assert!(sizes.collect::<Vec<_>>().is_sorted_by(|a, b| a >= b));
            }
        }
    }
}
