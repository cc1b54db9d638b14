//! Tests that a model which failed to load stops no other model for a while.

use plimsoll_scheduler::{ModelId, ModelState, RequestRefusalKind, RunId, SchedulerEvent};

use crate::runner::admit::desk::Desk;

/// The load of model 1 takes so long and fails; model 0 left for it.
fn costs(desk: &mut Desk, seconds: u64) {
    let neighbour = loaded_in(desk, 8);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped().len(), 1);
    desk.gone(neighbour);
    let run = desk.started().unwrap();
    desk.pass(seconds);
    desk.crashes(run);
    desk.memory_returned(run);
}

/// Model 0, after a load of so many seconds.
fn loaded_in(desk: &mut Desk, seconds: u64) -> RunId {
    let request = desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.pass(seconds);
    desk.ready(run);
    desk.finish(request);
    desk.pass(30);
    run
}

#[test]
fn a_model_that_failed_to_load_evicts_nobody_for_ten_times_what_its_try_cost() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    costs(&mut desk, 4);
    let neighbour = loaded_in(&mut desk, 8);
    for _ in 0..8 {
        desk.pass(10);
        desk.ask(1);
        desk.surveyed(1);
        assert_eq!(desk.view(0).run, Some(neighbour));
        assert_eq!(desk.state(1), ModelState::Failed);
    }
    // A try cost 4 s, and 8 s for the next load of the neighbour.
    desk.pass(10);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.view(0).state, ModelState::Stopping, "it may have been mended");
}

#[test]
fn its_requests_are_given_the_reason_and_the_time() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    costs(&mut desk, 4);
    loaded_in(&mut desk, 8);
    desk.ask(1);
    desk.surveyed(1);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::LoadFailed);
    assert!(refusal.retry_after.unwrap().as_secs() > 60);
    let reported = refusal.reason.to_string();
    assert!(
        reported.contains("displaces no other model") && reported.contains("killed by signal 11"),
        "{reported}"
    );
}

#[test]
fn free_memory_and_an_operators_order_are_tried_before() {
    let mut desk = Desk::new(&[20], &[8, 8]);
    desk.ask(1);
    desk.surveyed(1);
    let run = desk.started().unwrap();
    desk.pass(8);
    desk.crashes(run);
    desk.memory_returned(run);
    desk.pass(2);
    desk.ask(1);
    desk.surveyed(1);
    assert!(desk.started().is_some(), "the memory is free");

    let mut desk = Desk::new(&[10], &[8, 8]);
    costs(&mut desk, 4);
    let neighbour = loaded_in(&mut desk, 8);
    desk.send(SchedulerEvent::LoadWanted { model: ModelId(1) });
    desk.surveyed(1);
    assert_eq!(desk.view(0).run, Some(neighbour));
    assert_eq!(desk.state(0), ModelState::Stopping, "the operator has probably removed the cause");
}
