//! Tests of requests that crash their engine, of other requests in that engine, and of silent engines that
//! clients give up on.

use plimsoll_base::Priority;
use plimsoll_scheduler::{
    ClientId, ModelId, ModelState, ProbeOutcome, RequestId, RequestRefusalKind, RequestTraits, RunId,
    SchedulerEffect, SchedulerEvent, Stopping,
};
use std::time::Duration;

use crate::runner::admit::desk::Desk;

/// The request that the last event cast suspicion on, and the engines that died under it.
fn suspected(desk: &Desk) -> Option<(RequestId, u32)> {
    desk.effects.iter().find_map(|effect| match effect {
        SchedulerEffect::Suspected { request, kills, .. } => Some((*request, *kills)),
        _ => None,
    })
}

/// The run dies, and those of its requests come back that had no byte.
fn dies(desk: &mut Desk, run: RunId, unanswered: &[RequestId]) -> Option<(RequestId, u32)> {
    desk.crashes(run);
    let suspect = suspected(desk);
    for request in unanswered {
        desk.bounce(*request);
    }
    desk.memory_returned(run);
    suspect
}

/// The next run of the model, once it is loaded; what it is sent is among the effects.
fn next(desk: &mut Desk) -> RunId {
    let mut waited = 0;
    while desk.state(0) != ModelState::Queued {
        desk.pass(1);
        waited += 1;
        assert!(waited < 9, "it is not loaded again");
    }
    desk.surveyed(0);
    let run = desk.started().expect("it is loaded again");
    desk.ready(run);
    run
}

/// A request arrives with the body of one under which an engine died.
fn arrives_suspect(desk: &mut Desk, request: RequestId) {
    let traits = RequestTraits { kills: 1, ..RequestTraits::default() };
    let deadline = desk.now + Duration::from_secs(600);
    let (model, client, priority) = (ModelId(0), ClientId(2), Priority::Normal);
    desk.send(SchedulerEvent::Arrived { request, model, client, priority, deadline, traits });
}

fn is_probed(desk: &Desk, run: RunId) -> bool {
    desk.effects.contains(&SchedulerEffect::Probe { run })
}

#[test]
fn the_request_that_was_sent_last_is_tried_alone_and_after_all_others() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let plain: Vec<RequestId> = (1..8).map(|client| desk.ask_as(client, 0, 600)).collect();
    let poison = desk.ask_as(9, 0, 600);
    let all: Vec<RequestId> = plain.iter().copied().chain([poison]).collect();
    assert_eq!(dies(&mut desk, run, &all), Some((poison, 1)));
    let second = next(&mut desk);
    let mut sent = desk.dispatched();
    sent.sort_unstable_by_key(|request| request.0);
    assert_eq!(sent, plain, "all but the suspect");
    for request in &plain[1..] {
        desk.finish(*request);
        assert_eq!(desk.dispatched(), []);
    }
    desk.finish(plain[0]);
    assert_eq!(desk.dispatched(), [poison]);
    let late = desk.ask_as(1, 0, 600);
    assert_eq!(desk.dispatched(), [], "it is alone");
    assert_eq!(dies(&mut desk, second, &[poison]), Some((poison, 2)));
    next(&mut desk);
    assert_eq!(desk.dispatched(), [poison], "an engine that dies by itself has not done so yet");
    desk.finish(poison);
    assert_eq!(desk.dispatched(), [late]);
}

#[test]
fn a_request_that_killed_two_engines_alone_is_refused_and_no_other_is() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let (plain, poison) = (desk.ask_as(1, 0, 600), desk.ask_as(2, 0, 600));
    dies(&mut desk, run, &[plain, poison]);
    let second = next(&mut desk);
    desk.finish(plain);
    assert_eq!(desk.dispatched(), [poison]);
    let waits = desk.ask_as(3, 0, 600);
    assert_eq!(dies(&mut desk, second, &[poison]), Some((poison, 2)));
    let third = next(&mut desk);
    assert_eq!(desk.dispatched(), [poison], "the first, and alone");
    desk.crashes(third);
    assert_eq!((suspected(&desk), desk.refusals().len()), (Some((poison, 3)), 0));
    desk.bounce(poison);
    let kinds: Vec<_> = desk.refusals().iter().map(|refusal| refusal.kind).collect();
    assert_eq!(kinds, [RequestRefusalKind::EngineDied]);
    desk.memory_returned(third);
    next(&mut desk);
    assert_eq!(desk.dispatched(), [waits]);
}

#[test]
fn a_crash_without_the_suspect_takes_the_suspicion_off_it() {
    let mut desk = Desk::new(&[10], &[8]);
    let mut run = desk.loaded(0);
    let requested: Vec<RequestId> = (1..4).map(|client| desk.ask_as(client, 0, 600)).collect();
    let mut lost = requested.clone();
    // An engine that dies by itself: whoever was suspected last waits when it dies again.
    for _ in 0..6 {
        let (suspect, kills) = dies(&mut desk, run, &lost).unwrap();
        assert_eq!((kills, desk.refusals().len()), (1, 0));
        run = next(&mut desk);
        lost = desk.dispatched();
        let served = desk.ask_as(7, 0, 600);
        desk.finish(served);
        assert!(!lost.contains(&suspect) && lost.len() == 2, "{suspect:?} of {lost:?}");
    }
}

#[test]
fn plain_requests_wait_through_a_short_back_off() {
    let mut desk = Desk::new(&[10], &[8]);
    let mut run = desk.loaded(0);
    for wait in [0, 1, 1, 1] {
        let requests: Vec<RequestId> = (1..4).map(|client| desk.ask_as(client, 0, 600)).collect();
        desk.finish(requests[0]);
        dies(&mut desk, run, &requests[1..]);
        let arrives = desk.ask_as(5, 0, 600);
        assert_eq!(desk.refusals().len(), 0, "after {wait} s");
        desk.pass(wait.max(1) - 1);
        run = next(&mut desk);
        for request in [requests[1], arrives, requests[2]] {
            desk.finish(request);
            assert_eq!(desk.refusals().len(), 0);
        }
    }
}

#[test]
fn a_suspect_goes_after_twenty_seconds_although_others_always_wait() {
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| spec.concurrency = Some(1));
    desk.loaded(0);
    let mut busy = desk.ask_as(1, 0, 600);
    let poison = RequestId(1000);
    arrives_suspect(&mut desk, poison);
    desk.ask_as(1, 0, 600);
    for _ in 0..19 {
        desk.pass(1);
        desk.ask_as(1, 0, 600);
        desk.finish(busy);
        busy = desk.dispatched()[0];
        assert_ne!(busy, poison);
    }
    desk.pass(1);
    desk.finish(busy);
    assert_eq!(desk.dispatched(), [poison]);
    desk.pass(10);
    desk.ask_as(1, 0, 600);
    assert_eq!(desk.dispatched(), [], "one at a time");
    desk.finish(poison);
    assert_eq!(desk.dispatched().len(), 1);
}

#[test]
fn a_new_request_with_the_body_of_a_suspect_goes_alone_too() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let busy = desk.ask_as(1, 0, 600);
    let suspect = RequestId(1000);
    arrives_suspect(&mut desk, suspect);
    assert_eq!(desk.dispatched(), []);
    desk.finish(busy);
    assert_eq!(desk.dispatched(), [suspect]);
    assert_eq!(dies(&mut desk, run, &[suspect]), Some((suspect, 2)));
}

#[test]
fn clients_that_give_up_without_a_byte_start_a_probe() {
    for (clients, seconds, probed) in [(1, 10, true), (3, 2, true), (2, 2, false), (1, 7, false)] {
        let mut desk = Desk::new(&[10], &[8]);
        let run = desk.loaded(0);
        for client in 0..clients {
            let request = desk.ask_as(client, 0, 600);
            desk.pass(seconds);
            desk.send(SchedulerEvent::GaveUp { request });
        }
        assert_eq!(is_probed(&desk, run), probed, "{clients} after {seconds} s");
    }
}

#[test]
fn an_answer_in_between_shows_that_the_engine_works() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    for _ in 0..10 {
        let (slow, quick) = (desk.ask_as(1, 0, 600), desk.ask_as(2, 0, 600));
        desk.pass(7);
        desk.send(SchedulerEvent::GaveUp { request: slow });
        assert!(!is_probed(&desk, run));
        desk.finish(quick);
    }
}

#[test]
fn a_silent_run_that_another_model_waits_for_is_probed_and_replaced() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.loaded(0);
    desk.pass(30);
    let stuck = desk.ask(0);
    let neighbour = desk.ask(1);
    desk.surveyed(1);
    let mut waited = 0;
    while !is_probed(&desk, run) {
        desk.pass(1);
        waited += 1;
        assert!(waited <= 20, "the neighbour waits for ever");
    }
    desk.send(SchedulerEvent::Probed { run, outcome: ProbeOutcome::Lives });
    desk.pass(5);
    assert!(!is_probed(&desk, run), "it was just looked at");
    desk.pass(5);
    assert!(is_probed(&desk, run));
    desk.send(SchedulerEvent::Probed { run, outcome: ProbeOutcome::Fails });
    desk.pass(2);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill)]);
    desk.ended(run);
    desk.bounce(stuck);
    desk.memory_returned(run);
    let next = desk.started().unwrap();
    desk.ready(next);
    assert_eq!(desk.dispatched(), [neighbour]);
}
