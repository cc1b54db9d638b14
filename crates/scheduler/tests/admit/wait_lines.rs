//! Tests of the one-line explanation that a waiting client gets.

use std::time::Duration;

use plimsoll_base::CardId;
use plimsoll_scheduler::{ModelId, SchedulerEvent};

use crate::runner::admit::desk::{Desk, PATIENCE, gib};

fn line(desk: &Desk, model: u32) -> String {
    desk.scheduler.at(desk.now).wait_line(ModelId(model)).unwrap()
}

#[test]
fn each_step_to_an_answer_is_reported() {
    let mut desk = Desk::tuned(&[10], &[6, 6], |_, spec| spec.concurrency = Some(1));
    let request = desk.ask(0);
    assert_eq!(line(&desk, 0), "waiting for the check of m0's files");
    desk.surveyed(0);
    assert_eq!(line(&desk, 0), "waiting for m0 to load");
    let run = desk.started().unwrap();
    desk.ready(run);
    desk.ask(0);
    assert_eq!(line(&desk, 0), "waiting for a free slot of m0; it answers 1 request now");
    desk.ask(1);
    desk.surveyed(1);
    let patience = "the models that use it may keep it for 2 s";
    assert_eq!(line(&desk, 1), format!("waiting for 6144 MiB of memory on card0; {patience}"));
    desk.pass(PATIENCE);
    assert_eq!(
        line(&desk, 1),
        "waiting for 6144 MiB of memory on card0; m0 is unloaded when its answer ends"
    );
    assert_eq!(line(&desk, 0), "waiting for m0, which is being stopped and is loaded again if there is room");
    desk.finish(request);
    assert_eq!(line(&desk, 1), "waiting for 6144 MiB of memory on card0; m0 is being unloaded");
    desk.ended(run);
    assert_eq!(
        line(&desk, 1),
        "waiting for 6144 MiB of memory on card0; the memory of an engine that ended is still being returned"
    );
}

#[test]
fn a_victim_that_may_still_go_on_does_not_leave_now() {
    let mut desk = Desk::new(&[10], &[6, 6]);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ask(1);
    desk.surveyed(1);
    desk.pass(PATIENCE);
    assert_eq!(
        line(&desk, 1),
        "waiting for 6144 MiB of memory on card0; m0 is unloaded after its load and first answers"
    );
    desk.ready(run);
    desk.pass(0);
    assert_eq!(
        line(&desk, 1),
        "waiting for 6144 MiB of memory on card0; m0 is unloaded after its first answers"
    );
    desk.pass(3 * PATIENCE);
    assert_eq!(
        line(&desk, 1),
        "waiting for 6144 MiB of memory on card0; m0 is unloaded when its answer ends"
    );
}

#[test]
fn memory_that_no_model_holds_is_not_reported_as_that_of_models() {
    let mut desk = Desk::new(&[10], &[6]);
    let until = desk.now + Duration::from_secs(30);
    desk.send(SchedulerEvent::YieldWanted { card: CardId::new("card0"), bytes: gib(8), until });
    desk.ask(0);
    desk.surveyed(0);
    let (cause, reason) = desk.scheduler.state().wait_reason(ModelId(0)).unwrap();
    assert_eq!(
        (cause, &*reason.text),
        ("room", "the model still waits for memory that is kept free for other programs")
    );
    assert_eq!(reason.because[0].text, "`plimsoll yield` keeps free 8192 MiB of card0");
}

#[test]
fn a_model_behind_another_is_shown_its_place() {
    let mut desk = Desk::new(&[10], &[6, 6, 6]);
    desk.loaded(0);
    desk.ask(0);
    for model in [1, 2] {
        desk.ask(model);
        desk.surveyed(model);
        desk.pass(1);
    }
    assert_eq!(line(&desk, 2), "waiting for 6144 MiB of memory on card0, behind 1 model");
    assert_eq!(desk.scheduler.at(desk.now).wait_line(ModelId(9)), None);
}

#[test]
fn a_model_that_failed_has_a_line_too() {
    let mut desk = Desk::new(&[10], &[6]);
    for _ in 0..2 {
        desk.ask(0);
        if desk.started().is_none() {
            desk.surveyed(0);
        }
        let run = desk.started().unwrap();
        desk.crashes(run);
        desk.memory_returned(run);
        desk.pass(60);
    }
    desk.ask(0);
    assert!(line(&desk, 0).starts_with("waiting for "), "{}", line(&desk, 0));
}

#[test]
fn the_cause_of_a_wait_is_the_model_that_leaves() {
    let mut desk = Desk::new(&[10], &[1, 6, 8]);
    desk.loaded(0);
    desk.loaded(1);
    desk.ask(0);
    let busy = desk.ask(1);
    desk.ask(2);
    desk.surveyed(2);
    let causes = |desk: &Desk| {
        let (_, reason) = desk.scheduler.state().wait_reason(ModelId(2)).unwrap();
        reason.because.iter().map(|cause| cause.text.clone()).collect::<Vec<_>>()
    };
    let large = ["m1 holds 6144 MiB on card0"];
    assert_eq!(causes(&desk), large);
    desk.pass(PATIENCE);
    assert_eq!(causes(&desk), large, "m1 alone leaves");
    desk.finish(busy);
    assert_eq!(causes(&desk), large);
}
