//! Tests of unreliable information: unanswered requests, learned memory needs, and loads that only write log
//! lines.
//!
//! They also cover memory of other processes, and outdated memory readings.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, End, Reason, Stage};
use plimsoll_scheduler::{
    Discrepancy, Health, ModelId, ModelState, ProbeOutcome, RequestId, RequestRefusalKind, RunId,
    SchedulerEffect, SchedulerEvent, Stopping,
};

use crate::runner::admit::desk::{Desk, gib};

fn card(free: u64) -> Vec<(CardId, Bytes)> {
    vec![(CardId::new("card0"), gib(free))]
}

/// A request of this client that its engine drops.
fn bounce(desk: &mut Desk, client: u64) -> RequestId {
    let request = desk.ask_as(client, 0, 600);
    desk.bounce(request);
    request
}

/// A request that a healthy engine drops twice.
fn drop_twice(desk: &mut Desk, run: RunId, client: u64) {
    let request = bounce(desk, client);
    desk.health(run, Health::Answers);
    assert_eq!(desk.dispatched(), [request], "it is sent once more");
    desk.bounce(request);
    desk.health(run, Health::Answers);
}

fn probes(desk: &Desk) -> usize {
    desk.effects.iter().filter(|effect| matches!(effect, SchedulerEffect::Probe { .. })).count()
}

/// An answer that is an error of the engine's own.
fn fail(desk: &mut Desk) -> usize {
    let request = desk.ask(0);
    desk.send(SchedulerEvent::Finished { request, tokens: None, failed: true });
    probes(desk)
}

#[test]
fn a_request_that_a_healthy_engine_drops_is_refused_alone() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let other = desk.ask(0);
    bounce(&mut desk, 1);
    assert_eq!(desk.effects, [SchedulerEffect::CheckHealth { run }, SchedulerEffect::Probe { run }]);
    let meanwhile = desk.ask(0);
    assert_eq!(desk.dispatched(), [meanwhile], "the model goes on serving");
    desk.health(run, Health::Answers);
    let again = desk.dispatched()[0];
    desk.bounce(again);
    desk.health(run, Health::Answers);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::Unanswered);
    assert_eq!((desk.refusals().len(), desk.state(0)), (1, ModelState::Ready));
    desk.pass(3);
    assert_eq!(desk.stopped(), []);
    desk.finish(other);
    desk.finish(meanwhile);
    assert_eq!(desk.view(0).in_flight, 0);
}

#[test]
fn clients_whose_requests_an_engine_drops_cut_no_answer_of_others() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let stream = desk.ask_as(9, 0, 600);
    for client in 1..=3 {
        drop_twice(&mut desk, run, client);
        desk.send(SchedulerEvent::Probed { run, outcome: ProbeOutcome::Lives });
        assert_eq!(desk.state(0), ModelState::Ready, "after {client}");
    }
    desk.pass(60);
    assert_eq!((desk.stopped(), desk.state(0)), (vec![], ModelState::Ready));
    desk.finish(stream);
}

#[test]
fn an_engine_that_fails_each_request_of_our_own_is_replaced_whatever_its_health_path_says() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    assert_eq!(fail(&mut desk), 1);
    desk.send(SchedulerEvent::Probed { run, outcome: ProbeOutcome::Fails });
    assert_eq!(desk.state(0), ModelState::Draining);
    let waits = desk.ask(0);
    desk.pass(2);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill)]);
    assert_eq!(desk.scheduler.at(desk.now).stop_reason(run).unwrap().code, "unresponsive");
    desk.ended(run);
    assert_eq!((desk.refusals().len(), desk.surveys()), (0, 1), "the first time it is loaded again at once");
    desk.memory_returned(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    desk.ready(next);
    assert_eq!(desk.dispatched(), [waits]);
}

#[test]
fn one_probe_at_a_time_and_none_for_five_seconds_after_it() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    assert_eq!((fail(&mut desk), fail(&mut desk)), (1, 0));
    desk.send(SchedulerEvent::Probed { run, outcome: ProbeOutcome::Lives });
    desk.pass(4);
    assert_eq!(fail(&mut desk), 0);
    desk.pass(1);
    assert_eq!(fail(&mut desk), 1);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.send(SchedulerEvent::Probed { run, outcome: ProbeOutcome::Fails });
    desk.ended(run);
    assert_eq!(desk.view(0).last_failure, None, "a process that was told to stop fails in any case");
}

#[test]
fn an_engine_that_is_silent_while_it_works_for_another_client_is_not_suspect() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let other = desk.ask(0);
    bounce(&mut desk, 1);
    desk.health(run, Health::Silent);
    assert_eq!(desk.state(0), ModelState::Ready);
    let again = desk.dispatched()[0];
    desk.finish(again);
    desk.finish(other);
    bounce(&mut desk, 1);
    desk.health(run, Health::Silent);
    assert_eq!(desk.state(0), ModelState::Draining);
}

#[test]
fn a_request_held_for_a_health_check_is_tried_again_when_the_engine_ends() {
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    let request = bounce(&mut desk, 1);
    desk.crashes(run);
    assert_eq!((desk.surveys(), desk.refusals().len()), (1, 0));
    desk.memory_returned(run);
    desk.surveyed(0);
    let next = desk.started().unwrap();
    desk.ready(next);
    assert_eq!(desk.dispatched(), [request]);
    desk.health(run, Health::Answers);
    assert_eq!(desk.refusals().len(), 0);
}

#[test]
fn words_of_a_serving_engine_teach_nothing() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    let end = End::OutOfMemory {
        stage: Stage::Serving,
        reason: Reason::new("cuda_oom", "out of memory"),
        shortfall: None,
    };
    desk.send(SchedulerEvent::Ended { run, end });
    assert_eq!(desk.view(0).learned, Bytes::ZERO);
}

#[test]
fn a_learned_shortfall_expires_after_a_healthy_run() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    let first = desk.started().unwrap();
    desk.runs_out_of_memory(first, Some(gib(1)));
    desk.memory_returned(first);
    let second = desk.started().unwrap();
    desk.ready(second);
    let request = desk.ask(0);
    desk.finish(request);
    assert_eq!(desk.view(0).learned, gib(1));
    desk.pass(60);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.finish(RequestId(0));
    desk.gone(second);
    assert_eq!(desk.view(0).learned, Bytes::ZERO);
}

#[test]
fn a_load_that_only_talks_ends_at_ten_times_its_timeout() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.ask_until(0, 100_000);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    for _ in 0..11 {
        desk.pass(100);
        desk.send(SchedulerEvent::Progressed { run, measured: false });
        assert_eq!(desk.stopped(), []);
    }
    desk.pass(100);
    assert_eq!(desk.stopped(), [(run, Stopping::Kill)]);
}

#[test]
fn a_load_that_no_client_wants_any_more_makes_room_for_one_that_is_wanted() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let left = desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(desk.stopped(), [], "a client waits for it");
    desk.send(SchedulerEvent::Abandoned { request: left });
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    desk.gone(run);
    assert!(desk.started().is_some());
}

#[test]
fn a_load_is_decided_on_a_reading_that_was_taken_for_it() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.reads = false;
    desk.read(card(24));
    desk.now = desk.now + Duration::from_millis(300);
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!(desk.effects.last(), Some(&SchedulerEffect::ReadCards));
    assert_eq!(desk.started(), None);
    // Another process took 20 GiB 0.3 s ago.
    desk.read(card(4));
    assert_eq!((desk.started(), desk.refusals()[0].kind), (None, RequestRefusalKind::NoRoom));
    desk.ask(0);
    desk.surveyed(0);
    assert_eq!(desk.refusals()[0].kind, RequestRefusalKind::NoRoom, "it is known already");
    desk.now = desk.now + Duration::from_secs(1);
    desk.read(card(24));
    desk.ask(0);
    desk.surveyed(0);
    assert!(desk.started().is_some(), "a reading of the same moment is fresh");
}

#[test]
fn a_reading_that_was_taken_for_the_load_counts_however_long_the_driver_took() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.reads = false;
    desk.ask(0);
    desk.surveyed(0);
    let taken = desk.now;
    desk.now = desk.now + Duration::from_secs(4);
    desk.send(SchedulerEvent::CardsRead { free: card(24), taken });
    assert!(desk.started().is_some());
}

#[test]
fn a_load_that_other_processes_crowded_out_is_reported_with_their_bytes_and_teaches_nothing() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    desk.read(card(4));
    desk.runs_out_of_memory(run, Some(gib(4)));
    assert_eq!(desk.view(0).learned, Bytes::ZERO);
    let failure = desk.view(0).last_failure.unwrap();
    assert_eq!(failure.code, "foreign_memory");
    assert_eq!(failure.facts.get("foreign"), Some(&gib(20).into()));
    desk.memory_returned(run);
    desk.read(card(24));
    let waits = desk.refusals().is_empty();
    assert!(waits || desk.started().is_some(), "{:?}", desk.effects);
}

#[test]
fn after_a_load_the_difference_to_the_ledger_has_a_name() {
    for (measured, free, cause) in [
        (6, 18, Discrepancy::Growth),
        (9, 15, Discrepancy::Context),
        (6, 8, Discrepancy::Foreign),
        (0, 8, Discrepancy::Unknown),
    ] {
        let mut desk = Desk::new(&[24], &[8]);
        desk.ask(0);
        desk.surveyed(0);
        let run = desk.started().unwrap();
        desk.ready(run);
        assert_eq!(desk.view(0).load_check, []);
        let used = vec![(CardId::new("card0"), gib(measured))];
        desk.send(SchedulerEvent::Measured { run, used });
        desk.read(card(free));
        assert_eq!(desk.view(0).load_check[0].cause, cause);
    }
}

#[test]
fn memory_within_a_claim_that_was_raised_teaches_nothing() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    let card = CardId::new("card0");
    desk.send(SchedulerEvent::BudgetRequested {
        run,
        card: card.clone(),
        requested: gib(2),
        wanted: gib(10),
    });
    assert_eq!(desk.view(0).claim[0].bytes, gib(10));
    let used = vec![(card, gib(10))];
    desk.send(SchedulerEvent::Measured { run, used });
    assert_eq!(desk.view(0).learned, Bytes::ZERO);
}
