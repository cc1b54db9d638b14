//! Tests of engines that are restarted after a set number of requests.

use plimsoll_scheduler::{ModelState, RunId};

use crate::runner::admit::desk::{Desk, PATIENCE};

fn desk(most: u32) -> Desk {
    Desk::tuned(&[10], &[6], move |_, spec| spec.max_requests = Some(most))
}

/// Its code and text while a run stops.
fn reason(desk: &Desk, run: RunId) -> (&'static str, String) {
    let reason = desk.scheduler.at(desk.now).stop_reason(run).unwrap();
    (reason.code, reason.text)
}

#[test]
fn an_engine_ends_after_its_last_answer_and_the_next_request_starts_another() {
    let mut desk = desk(3);
    // The request for which it was loaded is the first.
    let run = desk.loaded(0);
    let (second, third) = (desk.ask(0), desk.ask(0));
    assert_eq!(desk.dispatched(), [third]);
    assert_eq!(desk.state(0), ModelState::Draining);
    let fourth = desk.ask(0);
    assert_eq!(desk.dispatched(), [], "it has had three");
    desk.finish(third);
    assert_eq!(desk.stopped(), [], "one is still answered");
    desk.finish(second);
    assert_eq!(desk.stopped().iter().map(|(run, _)| *run).collect::<Vec<_>>(), [run]);
    let (code, text) = reason(&desk, run);
    assert_eq!(code, "max_requests");
    assert!(text.contains("3 requests"), "{text}");
    desk.gone(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    desk.ready(next);
    assert_eq!(desk.dispatched(), [fourth]);
    assert_eq!(desk.state(0), ModelState::Ready, "it counts from the start");
}

#[test]
fn without_a_request_the_model_stays_unloaded_unless_it_is_preloaded() {
    for (preload, surveys) in [(false, 0), (true, 1)] {
        let mut desk = Desk::tuned(&[10], &[6], move |_, spec| {
            spec.max_requests = Some(1);
            spec.preload = preload;
        });
        let run = if preload {
            desk.surveyed(0);
            let run = desk.started().unwrap();
            desk.ready(run);
            let request = desk.ask(0);
            desk.finish(request);
            run
        } else {
            desk.loaded(0)
        };
        desk.ended(run);
        assert_eq!(desk.surveys(), surveys, "{preload}");
    }
}

#[test]
fn a_queue_goes_to_as_many_engines_as_its_requests_need() {
    let mut desk = desk(2);
    let mut run = desk.loaded(0);
    let mut requested = vec![desk.ask(0)];
    requested.extend((0..4).map(|_| desk.ask(0)));
    desk.finish(requested[0]);
    for pair in requested[1..].chunks(2) {
        desk.gone(run);
        desk.surveyed(0);
        run = desk.started().unwrap();
        desk.ready(run);
        assert_eq!(desk.dispatched(), pair);
        pair.iter().for_each(|request| {
            desk.finish(*request);
        });
    }
    assert_eq!(desk.stopped().len(), 1);
}

#[test]
fn behind_one_long_answer_others_wait_for_the_patience_and_are_sent_to_the_old_engine() {
    let mut desk = desk(3);
    let run = desk.loaded(0);
    let (long, quick) = (desk.ask(0), desk.ask(0));
    desk.finish(quick);
    let waits = desk.ask(0);
    desk.pass(PATIENCE - 1);
    assert_eq!(desk.dispatched(), []);
    desk.pass(1);
    assert_eq!(desk.dispatched(), [waits]);
    let next = desk.ask(0);
    assert_eq!(desk.dispatched(), [next], "nobody waits now");
    desk.finish(waits);
    assert_eq!(desk.stopped(), []);
    desk.finish(long);
    let late = desk.ask(0);
    assert_eq!(desk.dispatched(), [], "the long answer has ended");
    desk.finish(next);
    assert_eq!(desk.stopped().len(), 1);
    assert_eq!(reason(&desk, run).0, "max_requests");
    desk.gone(run);
    desk.surveyed(0);
    let another = desk.started().unwrap();
    desk.ready(another);
    assert_eq!(desk.dispatched(), [late]);
}
