//! Tests of the order of loads where cards share the host's memory: the largest need goes first.

use plimsoll_scheduler::{ModelState, SchedulerEffect};

use crate::runner::admit::desk::{Desk, PATIENCE};

/// The models that the last event started, in that order.
fn started(desk: &Desk) -> Vec<u32> {
    let started = desk.effects.iter().filter_map(|effect| match effect {
        SchedulerEffect::Start { model, .. } => Some(model.0),
        _ => None,
    });
    started.collect()
}

/// Asks for each of these models, and surveys them after that.
fn ask_for(desk: &mut Desk, models: &[u32]) {
    for model in models {
        desk.ask(*model);
    }
    for model in models {
        desk.surveyed(*model);
    }
}

#[test]
fn of_three_that_wait_the_largest_goes_first_and_nobody_before_all_are_known() {
    let mut desk = Desk::largest_first(&[20], &[2, 4, 3], |_, _| {});
    for model in [0, 1, 2] {
        desk.ask(model);
    }
    desk.surveyed(0);
    desk.surveyed(1);
    assert_eq!(started(&desk), [0; 0], "the third is not known yet");
    desk.surveyed(2);
    assert_eq!(started(&desk), [1, 2, 0]);
    assert_eq!(desk.scheduler.ledger().accounts()[0].claims().len(), 3);
}

#[test]
fn room_for_one_goes_to_the_largest_first() {
    let mut desk = Desk::largest_first(&[10], &[6, 9, 7, 8], |_, _| {});
    let busy = desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ready(run);
    ask_for(&mut desk, &[2, 1, 3]);
    assert_eq!(desk.stopped(), []);
    desk.finish(busy);
    desk.gone(run);
    assert_eq!(started(&desk), [1]);
}

#[test]
fn an_overdue_model_precedes_a_larger_one() {
    for (waits, first) in [(PATIENCE - 2, 2), (PATIENCE, 1)] {
        let mut desk = Desk::largest_first(&[10], &[6, 5, 9], |_, _| {});
        let busy = desk.ask(0);
        desk.surveyed(0);
        let run = desk.started().unwrap();
        desk.ready(run);
        desk.ask(1);
        desk.surveyed(1);
        desk.pass(1);
        desk.ask(2);
        desk.surveyed(2);
        desk.pass(waits - 1);
        desk.finish(busy);
        desk.gone(run);
        assert_eq!(started(&desk), [first], "after {waits} s");
    }
}

#[test]
fn a_survey_that_does_not_end_keeps_the_others_for_the_patience_and_no_longer() {
    let mut desk = Desk::largest_first(&[20], &[2, 4], |_, _| {});
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(0);
    assert_eq!(started(&desk), [0; 0]);
    desk.pass(PATIENCE - 1);
    assert_eq!(started(&desk), [0; 0]);
    desk.pass(1);
    assert_eq!(started(&desk), [0]);
}

#[test]
fn a_survey_that_fails_keeps_nobody() {
    let mut desk = Desk::largest_first(&[20], &[2, 4], |_, _| {});
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(0);
    desk.survey_fails(1);
    assert_eq!(started(&desk), [0]);
}

#[test]
fn preloads_go_one_after_another_the_largest_first_and_a_request_waits_for_none() {
    let mut desk = Desk::largest_first(&[20], &[2, 4, 3, 1], |_, spec| spec.preload = true);
    for model in [0, 1, 2] {
        desk.surveyed(model);
    }
    desk.survey_fails(3);
    assert_eq!(started(&desk), [1]);
    desk.pass(3 * PATIENCE);
    assert_eq!(started(&desk), [0; 0], "nobody waits for them");
    desk.ask(0);
    assert_eq!(started(&desk), [0], "somebody does");
    let runs: Vec<_> = desk.scheduler.ledger().accounts()[0].claims().to_vec();
    for claim in runs {
        desk.ready(claim.run);
    }
    assert_eq!(started(&desk), [2]);
}

#[test]
fn elsewhere_the_first_to_be_known_goes_first_and_preloads_go_one_after_another_too() {
    let mut desk = Desk::new(&[20], &[2, 4]);
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(0);
    assert_eq!(started(&desk), [0]);

    let mut desk = Desk::tuned(&[20], &[2, 4], |_, spec| spec.preload = true);
    desk.surveyed(0);
    let first = desk.started().unwrap();
    desk.surveyed(1);
    assert_eq!(started(&desk), [0; 0]);
    assert_eq!(desk.state(0), ModelState::Loading);
    desk.ready(first);
    assert_eq!(started(&desk), [1]);
}
