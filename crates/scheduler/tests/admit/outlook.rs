//! Tests of forecasts and dry runs: the scheduler later does what they predict.

use std::collections::BTreeSet;

use plimsoll_base::CardId;
use plimsoll_scheduler::{ModelId, ModelOutlook, Moment, RequestRefusalKind, SchedulerEvent, WhatIfVerdict};
use proptest::prelude::*;

use crate::runner::admit::desk::{Desk, PATIENCE, gib};

fn outlook(desk: &Desk, model: u32) -> ModelOutlook {
    let all = desk.scheduler.at(desk.now).outlook();
    all.into_iter().find(|(id, _)| *id == ModelId(model)).unwrap().1
}

#[test]
fn the_turn_to_leave_is_the_one_in_which_models_leave() {
    let mut desk = Desk::new(&[20], &[8, 8, 8]);
    desk.loaded(0);
    let second = desk.loaded(1);
    let again = desk.ask(0);
    assert_eq!((outlook(&desk, 0).leaves, outlook(&desk, 1).leaves), (None, Some(1)), "busy and new");
    desk.finish(again);
    assert_eq!((outlook(&desk, 0).leaves, outlook(&desk, 1).leaves), (Some(2), Some(1)));
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.stopped()[0].0, second);
    let why = outlook(&desk, 1).stops.unwrap();
    assert!(why.to_string().contains("m2 needs"), "{why}");
    let wait = outlook(&desk, 2).wait.unwrap();
    assert_eq!((wait.cause, wait.stops), ("room", vec!["m1".to_owned()]));
    assert_eq!(wait.until.unwrap().since(wait.since).as_secs(), 600);
    assert_eq!(outlook(&desk, 0).wait, None);
}

proptest! {
    #[test]
    fn a_dry_run_of_an_order_to_keep_memory_free_says_which_models_then_leave(
        needs in proptest::collection::vec(1_u64..12, 1..6),
        busy in proptest::collection::vec(any::<bool>(), 6),
        pinned in proptest::collection::vec(any::<bool>(), 6),
        kept in 0_u64..=32,
    ) {
        let mut desk = Desk::new(&[32], &needs);
        let mut loaded = BTreeSet::new();
        let room = |model: &u32| needs.iter().take(usize::try_from(*model).unwrap() + 1).sum::<u64>() <= 32;
        for model in (0..u32::try_from(needs.len()).unwrap()).filter(room) {
            let request = desk.ask(model);
            desk.surveyed(model);
            let run = desk.started().unwrap();
            desk.ready(run);
            let at = usize::try_from(model).unwrap();
            if !busy[at] {
                desk.finish(request);
            }
            if pinned[at] {
                desk.send(SchedulerEvent::PinWanted { model: ModelId(model), until: Moment::NEVER });
            }
            loaded.insert(model);
        }
        let (card, bytes) = (CardId::new("card0"), gib(kept));
        let before = desk.scheduler.at(desk.now).snapshot();
        let stated = desk.scheduler.what_if_kept_free(&card, bytes, desk.now);
        prop_assert_eq!(&desk.scheduler.at(desk.now).snapshot(), &before, "nothing is changed by it");
        desk.send(SchedulerEvent::YieldWanted { card, bytes, until: Moment::NEVER });
        let leaves = |model: &&u32| outlook(&desk, **model).stops.is_some();
        let left: BTreeSet<String> = loaded.iter().filter(leaves).map(|model| format!("m{model}")).collect();
        prop_assert_eq!(&left, &stated.stops.iter().cloned().collect::<BTreeSet<_>>());
        let stay = |model: &&u32| !left.contains(&format!("m{model}"));
        let occupied: u64 = loaded.iter().filter(stay).map(|model| needs[usize::try_from(*model).unwrap()]).sum();
        prop_assert_eq!(stated.lacks, gib((occupied + kept).saturating_sub(32)));
    }

    #[test]
    fn a_dry_run_says_what_a_load_then_does(
        cards in proptest::collection::vec(8_u64..32, 1..4),
        needs in proptest::collection::vec(1_u64..28, 2..7),
        busy in proptest::collection::vec(any::<bool>(), 7),
        waits in any::<bool>(),
    ) {
        let mut desk = Desk::new(&cards, &needs);
        let target = u32::try_from(needs.len() - 1).unwrap();
        for model in 0..target {
            let request = desk.ask(model);
            desk.surveyed(model);
            // Only what has room at once is loaded; the rest is given up.
            let Some(run) = desk.started() else {
                if desk.refusals().is_empty() {
                    desk.send(SchedulerEvent::Abandoned { request });
                }
                let stopped = desk.stopped();
                stopped.into_iter().for_each(|(run, _)| desk.gone(run));
                continue;
            };
            desk.ready(run);
            if !busy[usize::try_from(model).unwrap()] {
                desk.finish(request);
            }
        }
        if waits {
            desk.pass(PATIENCE);
        }
        let need = *needs.last().unwrap();
        let stated = desk.what_if(target, need);
        desk.ask(target);
        desk.surveyed(target);
        match stated.fits {
            WhatIfVerdict::Now => prop_assert!(desk.started().is_some() && stated.stops.is_empty()),
            WhatIfVerdict::Never => {
                prop_assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NeverFits);
            }
            WhatIfVerdict::Crowded => prop_assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NoRoom),
            WhatIfVerdict::After | WhatIfVerdict::Waits => {
                if stated.fits == WhatIfVerdict::Waits {
                    prop_assert_eq!(desk.started(), None);
                    // The wait begins with the request; busy models that have had their time go after it.
                    desk.pass(PATIENCE);
                }
                let waiting = outlook(&desk, target).wait.unwrap();
                let stops: BTreeSet<String> = waiting.stops.into_iter().collect();
                prop_assert_eq!(stops, stated.stops.into_iter().collect::<BTreeSet<_>>());
            }
        }
    }
}
