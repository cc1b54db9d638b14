//! Tests of failures, and of the memory need and waits that the scheduler learns from them.

use std::time::Duration;

use plimsoll_base::{Bytes, End, Reason, Stage};
use plimsoll_scheduler::{
    Health, ModelId, ModelState, RequestRefusalKind, SchedulerEffect, SchedulerEvent, Stopping,
};

use crate::runner::admit::desk::{Desk, gib};

#[test]
fn a_failed_load_refuses_everybody_with_the_cause_and_holds_the_next_one_back() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.ask(0);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.crashes(run);
    assert_eq!(desk.refusals().len(), 2);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(
        (refusal.kind, refusal.retry_after),
        (RequestRefusalKind::LoadFailed, Some(Duration::from_secs(1)))
    );
    assert!(refusal.reason.to_string().contains("killed by signal 11"), "{}", refusal.reason);
    assert_eq!(desk.state(0), ModelState::Failed);
    desk.memory_returned(run);
    desk.ask(0);
    assert_eq!(desk.surveys(), 0);
    assert!(desk.refusals()[0].reason.to_string().contains("killed by signal 11"));
    desk.pass(1);
    desk.ask(0);
    assert_eq!(desk.surveys(), 1);
}

#[test]
fn a_crash_loop_backs_off() {
    let mut desk = Desk::new(&[10], &[8]);
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        desk.ask(0);
        desk.surveyed(0);
        let run = desk.started().unwrap();
        desk.crashes(run);
        assert_eq!(desk.refusals()[0].retry_after, Some(Duration::from_secs(wait)));
        desk.memory_returned(run);
        desk.pass(wait);
    }
}

#[test]
fn a_request_that_bounced_is_tried_once_more_and_then_refused() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let request = desk.ask(0);
    desk.bounce(request);
    assert_eq!(desk.dispatched(), []);
    desk.crashes(run);
    desk.memory_returned(run);
    desk.surveyed(0);
    let second = desk.started().unwrap();
    desk.ready(second);
    assert_eq!(desk.dispatched(), [request]);
    desk.crashes(second);
    desk.bounce(request);
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::EngineDied);
    assert!(refusal.reason.to_string().contains("killed by signal 11"));
}

#[test]
fn a_bounce_that_is_reported_late_finds_the_run_that_came_after() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let (first, second) = (desk.ask(0), desk.ask(0));
    desk.crashes(run);
    desk.bounce(first);
    desk.memory_returned(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    desk.ready(next);
    desk.bounce(second);
    assert_eq!(desk.effects, [], "it was sent last, and is tried alone");
    desk.finish(first);
    assert!(desk.effects.contains(&SchedulerEffect::Dispatch { request: second, run: next }));
}

// llama.cpp #14458: after running out of memory the process does not end.
#[test]
fn an_engine_that_dropped_a_request_and_does_not_end_is_killed() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let request = desk.ask(0);
    desk.bounce(request);
    desk.health(run, Health::Fails);
    desk.pass(2);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill)]);
}

#[test]
fn a_load_without_progress_is_killed_and_progress_keeps_it_alive() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.pass(100);
    desk.send(SchedulerEvent::Progressed { run, measured: true });
    desk.pass(119);
    assert_eq!(desk.stopped(), []);
    desk.pass(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill)]);
    desk.crashes(run);
    assert!(desk.refusals()[0].reason.to_string().contains("no progress in loading for 120 s"));
}

#[test]
fn an_engine_that_does_not_stop_is_killed() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.pass(9);
    assert_eq!(desk.stopped(), []);
    desk.pass(1);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill)]);
}

// llama.cpp #25326: a load that runs out of memory fails for ever although idle models hold it.
#[test]
fn out_of_memory_at_load_evicts_who_is_idle_on_the_card_and_tries_once_more_with_a_larger_need() {
    let mut desk = Desk::new(&[24], &[8, 8]);
    let idle = desk.loaded(0);
    let request = desk.ask(1);
    desk.surveyed(1);
    let run = desk.started().unwrap();
    desk.runs_out_of_memory(run, Some(gib(2)));
    assert_eq!(desk.stopped(), [(idle, Stopping::Graceful)]);
    assert_eq!((desk.view(1).learned, desk.refusals().len()), (gib(2), 0));
    desk.memory_returned(run);
    desk.ended(idle);
    assert_eq!(desk.started(), None);
    desk.memory_returned(idle);
    let again = desk.started().unwrap();
    assert_eq!(desk.view(1).claim[0].bytes, gib(10));
    desk.ready(again);
    assert_eq!(desk.dispatched(), [request]);
}

#[test]
fn out_of_memory_twice_is_refused_with_the_reason_tree() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    let first = desk.started().unwrap();
    desk.runs_out_of_memory(first, Some(gib(1)));
    desk.memory_returned(first);
    let second = desk.started().unwrap();
    desk.runs_out_of_memory(second, Some(gib(1)));
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::LoadFailed);
    assert!(refusal.reason.to_string().contains("cudaMalloc failed"), "{}", refusal.reason);
    assert!(desk.view(0).learned > Bytes::mib(64));
}

#[test]
fn a_lesson_that_leaves_no_place_is_reported_and_forgotten_for_the_next_try() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.runs_out_of_memory(run, Some(gib(4)));
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::LoadFailed);
    assert!(refusal.retry_after.is_some());
    let reported = refusal.reason.to_string();
    assert!(reported.contains("includes 4096 MiB more"), "{reported}");
    assert!(reported.contains("cudaMalloc failed"), "the cause itself is missing: {reported}");
    assert!(desk.view(0).learned.is_zero());
}

#[test]
fn out_of_memory_in_flight_is_learned_and_the_request_is_tried_again() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    let request = desk.ask(0);
    let reason = Reason::new("cuda_oom", "out of memory");
    let shortfall = Some(desk.refused_by_driver(gib(1)));
    let end = End::OutOfMemory { stage: Stage::Serving, reason, shortfall };
    desk.send(SchedulerEvent::Ended { run, end });
    desk.bounce(request);
    desk.memory_returned(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    assert_eq!(desk.view(0).claim[0].bytes, gib(9));
    desk.ready(next);
    assert_eq!(desk.dispatched(), [request]);
}

#[test]
fn a_crash_of_one_model_touches_no_other() {
    let mut desk = Desk::new(&[24], &[8, 8]);
    let run = desk.loaded(0);
    desk.loaded(1);
    let request = desk.ask(1);
    desk.crashes(run);
    assert!(desk.stopped().is_empty() && desk.refusals().is_empty());
    assert_eq!(desk.view(1).in_flight, 1);
    desk.finish(request);
}
