//! Tests of engines with slots: as many requests are sent as they work on at once, and clients take turns for
//! them.

use std::time::Duration;

use plimsoll_base::Priority;
use plimsoll_scheduler::{ClientId, ModelId, RequestId, RequestTraits, SchedulerEvent};

use crate::runner::admit::desk::Desk;

fn desk(slots: u32) -> Desk {
    Desk::tuned(&[10], &[8], move |_, spec| spec.slots = Some(slots))
}

#[test]
fn another_client_waits_for_the_next_free_slot_and_not_for_the_whole_queue() {
    let mut desk = desk(4);
    desk.loaded(0);
    let flood: Vec<RequestId> = (0..40).map(|_| desk.ask_as(1, 0, 600)).collect();
    assert_eq!(desk.view(0).in_flight, 4);
    let other = desk.ask_as(2, 0, 600);
    for (number, request) in flood.iter().take(4).enumerate() {
        desk.now = desk.now + Duration::from_secs(6);
        desk.finish(*request);
        assert_eq!(desk.view(0).in_flight, 4, "each slot has work again");
        if desk.dispatched() == [other] {
            assert!(number <= 2);
            return;
        }
    }
    panic!("it waits behind the flood");
}

#[test]
fn concurrency_precedes_slots_of_the_engine_and_these_precede_flags() {
    let mut desk = desk(2);
    let run = desk.loaded(0);
    let requested: Vec<RequestId> = (0..9).map(|_| desk.ask(0)).collect();
    assert_eq!(desk.view(0).in_flight, 2);
    desk.send(SchedulerEvent::SlotsKnown { run, slots: 3 });
    assert_eq!(desk.dispatched(), [requested[2]]);
    let mut desk = Desk::tuned(&[10], &[8], |_, spec| {
        (spec.slots, spec.concurrency) = (Some(2), Some(5));
    });
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::SlotsKnown { run, slots: 3 });
    for _ in 0..9 {
        desk.ask(0);
    }
    assert_eq!(desk.view(0).in_flight, 5);
}

#[test]
fn answers_of_a_moment_have_as_many_requests_again_waiting_at_the_engine() {
    for (milliseconds, in_flight) in [(20, 8), (2_000, 4)] {
        let mut desk = desk(4);
        desk.loaded(0);
        for _ in 0..20 {
            let request = desk.ask(0);
            desk.now = desk.now + Duration::from_millis(milliseconds);
            desk.finish(request);
        }
        for _ in 0..20 {
            desk.ask(0);
        }
        assert_eq!(desk.view(0).in_flight, in_flight, "{milliseconds} ms");
    }
}

#[test]
fn a_request_that_takes_no_slot_waits_for_none() {
    let mut desk = desk(1);
    desk.loaded(0);
    let (busy, waits) = (desk.ask(0), desk.ask(0));
    let count = RequestId(1000);
    desk.send(SchedulerEvent::Arrived {
        request: count,
        model: ModelId(0),
        client: ClientId(2),
        priority: Priority::Normal,
        deadline: desk.now + Duration::from_secs(600),
        traits: RequestTraits { slotless: true, ..RequestTraits::default() },
    });
    assert_eq!(desk.dispatched(), [count]);
    desk.finish(busy);
    assert_eq!(desk.dispatched(), [waits], "and it takes the slot of no other");
    desk.finish(count);
    desk.finish(waits);
    assert_eq!(desk.view(0).in_flight, 0);
}

#[test]
fn a_model_that_leaves_answers_what_is_in_its_slots_and_no_more() {
    let mut desk = Desk::tuned(&[10], &[8, 8], |_, spec| spec.slots = Some(4));
    let run = desk.loaded(0);
    let flood: Vec<RequestId> = (0..40).map(|_| desk.ask(0)).collect();
    desk.ask(1);
    desk.surveyed(1);
    // The patience of the one that waits, and the protection of the other.
    for _ in 0..20 {
        desk.pass(1);
    }
    for request in &flood[..4] {
        desk.finish(*request);
    }
    assert_eq!(desk.stopped().iter().map(|(run, _)| *run).collect::<Vec<_>>(), [run]);
}
