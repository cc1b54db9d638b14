//! Tests of an operator's load command beside client requests for the same model: neither depends on the
//! other.

use plimsoll_base::Bytes;
use plimsoll_scheduler::{ModelId, ModelState, Moment, RequestId, SchedulerEffect, SchedulerEvent};

use crate::runner::admit::desk::{Desk, PATIENCE};

fn load(desk: &mut Desk, model: u32) {
    desk.send(SchedulerEvent::LoadWanted { model: ModelId(model) });
}

fn until(desk: &Desk, model: u32) -> Option<Option<Moment>> {
    let outlook = desk.scheduler.at(desk.now).outlook().into_iter().find(|(id, _)| *id == ModelId(model));
    outlook.unwrap().1.wait.map(|wait| wait.until)
}

/// Loads that were given up in the last event, each with its reason.
fn given_up(desk: &Desk) -> Vec<(ModelId, String)> {
    let given_up = desk.effects.iter().filter_map(|effect| match effect {
        SchedulerEffect::GiveUpLoad { model, reason } => Some((*model, reason.text.clone())),
        _ => None,
    });
    given_up.collect()
}

/// A busy `m0`, and a request that waits for `m1`, which needs its memory.
fn waiting() -> (Desk, RequestId, RequestId) {
    let mut desk = Desk::new(&[16], &[10, 10]);
    desk.loaded(0);
    let busy = desk.ask(0);
    let waits = desk.ask_until(1, 20);
    desk.surveyed(1);
    assert!(until(&desk, 1).unwrap().is_some(), "a request has a deadline");
    (desk, busy, waits)
}

#[test]
fn a_load_outlives_the_request_that_waited_before_it() {
    for leaves in [true, false] {
        let (mut desk, busy, waits) = waiting();
        load(&mut desk, 1);
        assert!(desk.view(1).load_wanted);
        assert_eq!(until(&desk, 1), Some(None), "it has no deadline");
        if leaves {
            desk.send(SchedulerEvent::Abandoned { request: waits })
        } else {
            desk.pass(20)
        };
        assert_eq!((desk.state(1), until(&desk, 1)), (ModelState::Queued, Some(None)));
        desk.pass(PATIENCE);
        desk.finish(busy);
        let run = desk.stopped()[0].0;
        desk.gone(run);
        let run = desk.started().unwrap();
        desk.ready(run);
        assert_eq!((desk.state(1), desk.view(1).load_wanted), (ModelState::Ready, false));
    }
}

#[test]
fn without_an_order_nothing_is_loaded_once_the_request_has_left() {
    let (mut desk, busy, waits) = waiting();
    desk.send(SchedulerEvent::Abandoned { request: waits });
    assert_eq!((desk.state(1), until(&desk, 1)), (ModelState::Unloaded, None));
    desk.finish(busy);
    assert_eq!((desk.started(), given_up(&desk)), (None, vec![]), "and nothing was given up");
}

#[test]
fn a_load_under_way_for_a_request_that_leaves_is_finished_for_the_operator() {
    let mut desk = Desk::new(&[16], &[10, 10]);
    let request = desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    load(&mut desk, 0);
    desk.send(SchedulerEvent::Abandoned { request });
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((desk.stopped(), desk.state(0)), (vec![], ModelState::Loading), "it is no idle load");
    desk.ready(run);
    assert!(!desk.view(0).load_wanted);
}

#[test]
fn a_load_without_room_is_given_up_aloud_and_beside_a_request_by_its_refusal() {
    let mut desk = Desk::new(&[16], &[10]);
    let (card, until) = (plimsoll_base::CardId::new("card0"), Moment::NEVER);
    desk.send(SchedulerEvent::YieldWanted { card, bytes: Bytes::gib(8), until });
    load(&mut desk, 0);
    desk.surveyed(0);
    let reported = given_up(&desk);
    assert!(reported.len() == 1 && reported[0].1.starts_with("m0 does not fit beside"), "{reported:?}");
    load(&mut desk, 0);
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!((given_up(&desk).len(), desk.refusals().len()), (0, 1));
    assert_eq!((desk.state(0), desk.view(0).load_wanted), (ModelState::Unloaded, false));
}
