//! Tests of engines whose start measures free memory: on their cards nothing changes meanwhile.

use plimsoll_scheduler::{ModelId, ModelState, Moment, SchedulerEvent, Stopping};

use crate::runner::admit::desk::{Desk, gib};

/// A card with room for all but the last model; `m0` measures, and nothing is held after an answer.
fn desk() -> Desk {
    Desk::tuned(&[24], &[8, 6, 6, 8], |id, spec| spec.measures_free = id == 0)
}

fn loading(desk: &mut Desk, model: u32) -> plimsoll_scheduler::RunId {
    desk.ask(model);
    desk.surveyed(model);
    desk.started().unwrap_or_else(|| panic!("m{model} starts: {:?}", desk.effects))
}

#[test]
fn no_load_begins_on_a_card_while_a_start_on_it_measures() {
    let mut desk = desk();
    let measuring = loading(&mut desk, 0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((desk.started(), desk.state(1)), (None, ModelState::Queued));
    let (_, why) = desk.scheduler.state().wait_reason(ModelId(1)).unwrap();
    assert!(why.to_string().contains("m0, whose engine is measuring the free memory"), "{why}");
    desk.ready(measuring);
    assert!(desk.started().is_some());
}

#[test]
fn no_run_is_stopped_on_a_card_while_a_start_on_it_measures_whoever_wants_it() {
    let unload = SchedulerEvent::UnloadWanted { model: ModelId(1) };
    let keep_free = SchedulerEvent::YieldWanted {
        card: plimsoll_base::CardId::new("card0"),
        bytes: gib(14),
        until: Moment::NEVER,
    };
    let taken = SchedulerEvent::PrecedenceTaken {
        card: plimsoll_base::CardId::new("card0"),
        name: "game".to_owned(),
    };
    for event in [unload, keep_free, taken] {
        let mut desk = desk();
        let idle = desk.loaded(1);
        let measuring = loading(&mut desk, 0);
        desk.send(event.clone());
        assert_eq!((desk.stopped(), desk.state(1)), (vec![], ModelState::Draining), "{event:?}");
        desk.pass(30);
        assert_eq!(desk.stopped(), [], "{event:?}");
        desk.ready(measuring);
        assert_eq!(desk.stopped(), [(idle, Stopping::Graceful)], "{event:?}");
    }
}

#[test]
fn no_run_makes_room_and_none_expires_on_a_card_while_a_start_on_it_measures() {
    let ttl = std::time::Duration::from_secs(20);
    let mut desk = Desk::tuned(&[24], &[8, 6, 6, 8], |id, spec| {
        (spec.measures_free, spec.ttl) = (id == 0, Some(ttl).filter(|_| id == 2));
    });
    let (first, second) = (desk.loaded(1), desk.loaded(2));
    let measuring = loading(&mut desk, 0);
    desk.ask(3);
    desk.surveyed(3);
    desk.pass(30);
    assert_eq!((desk.stopped(), desk.started()), (vec![], None));
    desk.crashes(measuring);
    assert_eq!(desk.stopped(), []);
    desk.pass(0);
    let stopped = desk.stopped();
    assert!(stopped.contains(&(second, Stopping::Graceful)), "its time to live is over: {stopped:?}");
    assert!(!stopped.contains(&(first, Stopping::Kill)));
}

#[test]
fn a_start_that_measures_waits_for_loads_and_stops_on_its_card_and_not_for_those_that_come_later() {
    let mut desk = desk();
    let first = loading(&mut desk, 1);
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!(desk.started(), None);
    let (_, why) = desk.scheduler.state().wait_reason(ModelId(0)).unwrap();
    assert!(why.to_string().contains("its own engine measures the free memory"), "{why}");
    desk.pass(1);
    desk.ask(2);
    desk.surveyed(2);
    assert_eq!(desk.started(), None, "a later load would keep the card in motion");
    desk.ready(first);
    assert!(desk.started().is_some());
    assert_eq!((desk.state(0), desk.state(2)), (ModelState::Loading, ModelState::Queued));
}

#[test]
fn other_cards_and_engines_that_fail_wait_for_no_start() {
    let mut desk = Desk::tuned(&[10, 8], &[10, 8, 1], |id, spec| spec.measures_free = id == 0);
    let other = desk.loaded(1);
    loading(&mut desk, 0);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(1) });
    assert_eq!(desk.stopped(), [(other, Stopping::Graceful)]);
    desk.gone(other);
    loading(&mut desk, 1);
}
