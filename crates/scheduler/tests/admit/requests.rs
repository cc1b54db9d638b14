//! Tests of the life cycle of a request.

use plimsoll_scheduler::{
    ModelId, ModelState, Moment, RequestId, RequestRefusalKind, SchedulerEffect, SchedulerEvent,
    UnknownRequest,
};

use crate::runner::admit::desk::Desk;

#[test]
fn a_request_to_a_ready_model_goes_straight_through() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    let request = desk.ask(0);
    assert_eq!(desk.effects, [SchedulerEffect::Dispatch { request, run }]);
    assert_eq!(desk.finish(request), []);
}

// LM Studio #1751: four parallel requests load four copies.
#[test]
fn loads_of_one_model_coalesce() {
    let mut desk = Desk::new(&[24], &[8]);
    let first = desk.ask(0);
    assert_eq!(desk.surveys(), 1);
    let second = desk.ask(0);
    assert_eq!(desk.surveys(), 0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    let third = desk.ask(0);
    assert_eq!(desk.started(), None);
    desk.ready(run);
    assert_eq!(desk.dispatched(), [first, second, third]);
}

#[test]
fn requests_beyond_the_concurrency_wait_in_order_and_are_not_refused() {
    let mut desk = Desk::tuned(&[24], &[8], |_, spec| spec.concurrency = Some(2));
    desk.loaded(0);
    let requested: Vec<RequestId> = (0..4).map(|_| desk.ask(0)).collect();
    assert_eq!((desk.view(0).in_flight, desk.view(0).queued), (2, 2));
    desk.finish(requested[1]);
    assert_eq!(desk.dispatched(), [requested[2]]);
    desk.finish(requested[0]);
    assert_eq!(desk.dispatched(), [requested[3]]);
}

#[test]
fn a_request_that_waits_until_its_deadline_is_refused_with_what_it_waited_for() {
    let mut desk = Desk::new(&[24], &[8]);
    let request = desk.ask_until(0, 3);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.pass(3);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::Deadline);
    assert!(refusal.reason.to_string().contains("still loading"), "{}", refusal.reason);
    desk.ready(run);
    assert_eq!(desk.dispatched(), []);
    assert_eq!(
        desk.stray(SchedulerEvent::Finished { request, tokens: None, failed: false }),
        UnknownRequest(request)
    );
}

#[test]
fn the_owner_is_woken_for_the_first_deadline() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask_until(0, 3);
    let at = Moment::at(std::time::Duration::from_secs(3));
    assert!(desk.effects.contains(&SchedulerEffect::WakeAt(at)));
}

#[test]
fn a_client_that_leaves_gives_up_its_place() {
    let mut desk = Desk::new(&[24], &[8]);
    let (first, second) = (desk.ask(0), desk.ask(0));
    desk.send(SchedulerEvent::Abandoned { request: first });
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ready(run);
    assert_eq!(desk.dispatched(), [second]);
}

#[test]
fn a_model_whose_clients_have_all_left_is_not_loaded() {
    let mut desk = Desk::new(&[24], &[8]);
    let request = desk.ask(0);
    desk.send(SchedulerEvent::Abandoned { request });
    desk.surveyed(0);
    assert_eq!(desk.started(), None);
    assert_eq!(desk.state(0), ModelState::Unloaded);
}

#[test]
fn a_full_queue_and_an_unknown_model_refuse_at_once() {
    let mut desk = Desk::new(&[24], &[8]);
    for _ in 0..1024 {
        desk.ask(0);
        assert!(desk.refusals().is_empty());
    }
    desk.ask(0);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::QueueFull);
    desk.ask(9);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::Unconfigured);
}

#[test]
fn an_event_about_a_run_that_is_over_changes_nothing_and_one_about_a_request_is_an_error() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    let request = desk.ask(0);
    desk.finish(request);
    for event in [
        SchedulerEvent::Finished { request, tokens: None, failed: false },
        SchedulerEvent::Abandoned { request },
        SchedulerEvent::Bounced { request },
        SchedulerEvent::DepthMeasured { request, run, depth: None },
    ] {
        assert_eq!(desk.stray(event), UnknownRequest(request));
    }
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.gone(run);
    assert_eq!(desk.ready(run), []);
    assert_eq!(desk.ended(run), []);
    assert_eq!(desk.memory_returned(run), []);
}

/// A model that takes one request at a time and has one in flight.
fn one_at_a_time() -> (Desk, RequestId) {
    let mut desk = Desk::tuned(&[10], &[6], |_, spec| spec.concurrency = Some(1));
    desk.loaded(0);
    let first = desk.ask(0);
    (desk, first)
}

#[test]
fn a_client_with_many_requests_delays_another_by_two_of_them() {
    let (mut desk, mut sent) = one_at_a_time();
    let many: Vec<RequestId> = (0..100).map(|_| desk.ask_as(1, 0, 600)).collect();
    let single = desk.ask_as(2, 0, 600);
    let mut before = 0;
    while sent != single {
        desk.finish(sent);
        sent = desk.dispatched()[0];
        before += usize::from(many.contains(&sent));
    }
    assert!(before <= 2, "{before}");
}

#[test]
fn a_client_alone_is_answered_in_order_and_new_clients_pass_nobody_for_ever() {
    let (mut desk, mut sent) = one_at_a_time();
    let mine: Vec<RequestId> = (0..5).map(|_| desk.ask_as(1, 0, 600)).collect();
    for request in &mine[..2] {
        desk.finish(sent);
        sent = desk.dispatched()[0];
        assert_eq!(sent, *request);
    }
    // A client of its own for each request, and never fewer than two of them wait.
    desk.ask_as(100, 0, 600);
    let mut passed = 0;
    while sent != mine[4] {
        desk.ask_as(101 + passed, 0, 600);
        desk.finish(sent);
        sent = desk.dispatched()[0];
        passed += 1;
        assert!(passed < 10, "the last of five waits for ever");
    }
}
