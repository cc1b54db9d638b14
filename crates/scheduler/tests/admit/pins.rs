//! Tests of pins, by which an operator keeps a model loaded.

use std::num::NonZeroUsize;
use std::time::Duration;

use plimsoll_scheduler::{
    ConfigChange, ModelId, ModelSpec, ModelState, Moment, RequestRefusalKind, SchedulerEvent,
    SchedulerSettings, Stopping,
};

use crate::runner::admit::desk::Desk;

impl Desk {
    fn pin(&mut self, model: u32, seconds: Option<u64>) {
        let until = seconds.map_or(Moment::NEVER, |seconds| self.now + Duration::from_secs(seconds));
        self.send(SchedulerEvent::PinWanted { model: ModelId(model), until });
    }
}

#[test]
fn a_pinned_model_makes_no_room_until_it_is_unpinned() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.pin(0, None);
    assert!(desk.view(0).pinned && desk.view(0).pinned_until.is_none());
    desk.ask(1);
    desk.surveyed(1);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NoRoom);
    assert!(refusal.reason.to_string().contains("the pinned model m0 holds"), "{}", refusal.reason);
    desk.pin(0, Some(0));
    assert!(!desk.view(0).pinned);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
}

#[test]
fn a_limit_of_models_that_pinned_ones_fill_is_named_and_not_taken_for_want_of_memory() {
    let limit = |settings: &mut SchedulerSettings| settings.models_max = NonZeroUsize::new(1);
    let mut desk = Desk::set_up(&[80], &[8, 8], |_, _| {}, limit);
    let run = desk.loaded(0);
    desk.pin(0, None);
    desk.ask(1);
    desk.surveyed(1);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NoRoom);
    let stated = refusal.reason.to_string();
    assert!(stated.contains("`models-max`") && stated.contains("the model m0 is pinned"), "{stated}");
    assert_eq!(refusal.hints[0].to_string(), "unpin m0");
    desk.pin(0, Some(0));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    let why = desk.scheduler.at(desk.now).stop_reason(run).unwrap().to_string();
    assert!(why.contains("at most one model is loaded at a time"), "{why}");
}

#[test]
fn a_pin_with_an_end_is_over_then_and_the_time_to_live_counts_again() {
    let mut desk = Desk::tuned(&[10], &[8, 8], |_, spec| spec.ttl = Some(Duration::from_secs(10)));
    let run = desk.loaded(0);
    desk.pin(0, Some(60));
    assert_eq!(desk.view(0).pinned_until, Some(desk.now + Duration::from_secs(60)));
    for _ in 0..59 {
        assert!(desk.pass(1).is_empty() || desk.stopped().is_empty());
    }
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.pass(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
}

/// Lets model 0 drain for model 1; returns the request that it still answers.
fn drain(desk: &mut Desk) -> plimsoll_scheduler::RequestId {
    desk.loaded(0);
    let busy = desk.ask(0);
    desk.pass(60);
    desk.ask(1);
    desk.surveyed(1);
    desk.pass(60);
    assert_eq!(desk.state(0), ModelState::Draining);
    busy
}

#[test]
fn a_victim_that_still_answers_is_kept_by_a_pin() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let busy = drain(&mut desk);
    desk.pin(0, None);
    assert_eq!(desk.state(0), ModelState::Ready);
    assert_eq!(desk.refusals().len(), 1);
    desk.finish(busy);
    assert!(desk.stopped().is_empty());
}

/// A victim that drains, for a model whose next search waits for a new reading of the cards' free memory.
fn draining_victim() -> (Desk, plimsoll_scheduler::RequestId) {
    let limit = |settings: &mut SchedulerSettings| settings.models_max = NonZeroUsize::new(1);
    let mut desk = Desk::set_up(&[80], &[8, 8], |_, _| {}, limit);
    let busy = drain(&mut desk);
    // The figures of the last reading are too old by now.
    desk.reads = false;
    desk.pass(60);
    (desk, busy)
}

#[test]
fn a_pin_keeps_a_draining_victim_before_the_cards_are_read() {
    let (mut desk, busy) = draining_victim();
    desk.pin(0, None);
    assert_eq!(desk.state(0), ModelState::Ready);
    desk.finish(busy);
    assert!(desk.stopped().is_empty(), "{:?}", desk.stopped());
    assert_eq!(desk.state(0), ModelState::Ready);
}

#[test]
fn a_pin_of_the_configuration_keeps_a_draining_victim_too() {
    let (mut desk, busy) = draining_victim();
    let spec = ModelSpec { pinned: true, ..ModelSpec::new("m0") };
    desk.send(SchedulerEvent::Configured(vec![(ModelId(0), ConfigChange::Retuned(spec))]));
    desk.finish(busy);
    assert!(desk.stopped().is_empty(), "{:?}", desk.stopped());
}

#[test]
fn a_pin_does_not_keep_what_was_ordered_to_stop_or_leaves_by_hand() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.pin(0, None);
    assert_eq!(desk.state(0), ModelState::Stopping);
    // What it was told to stop for stands, and its memory is still awaited.
    desk.gone(run);
    assert!(desk.started().is_some(), "{:?}", desk.effects);

    let (mut desk, busy) = draining_victim();
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.pin(0, None);
    assert_eq!(desk.state(0), ModelState::Draining);
    desk.finish(busy);
    assert_eq!(desk.stopped().len(), 1);
}

#[test]
fn a_pin_outlives_its_run_and_a_new_configuration_but_not_the_model() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.pin(0, None);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.gone(run);
    assert!(desk.view(0).pinned);
    let mut change = |change| {
        desk.send(SchedulerEvent::Configured(vec![(ModelId(0), change)]));
        desk.scheduler.view(ModelId(0), desk.now).is_some_and(|view| view.pinned)
    };
    assert!(change(ConfigChange::Retuned(ModelSpec::new("m0"))));
    assert!(change(ConfigChange::Replaced(ModelSpec::new("m0"))));
    change(ConfigChange::Removed);
    assert!(!change(ConfigChange::Added(ModelSpec::new("m0"))));
    // A model that does not exist is no panic.
    desk.pin(9, None);
}
