//! Tests of yields, by which models leave memory of a card to other programs.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId};
use plimsoll_scheduler::{
    ModelId, ModelState, Moment, RequestRefusalKind, RunId, SchedulerEffect, SchedulerEvent,
    SchedulerSettings,
};

use crate::runner::admit::desk::{Desk, gib};

fn card() -> CardId {
    CardId::new("card0")
}

fn keep(desk: &mut Desk, bytes: Bytes, seconds: u64) {
    let until = desk.now + Duration::from_secs(seconds);
    desk.send(SchedulerEvent::YieldWanted { card: card(), bytes, until });
}

fn stopped(desk: &Desk) -> Vec<RunId> {
    desk.stopped().into_iter().map(|(run, _)| run).collect()
}

fn lacks(desk: &Desk) -> Option<Bytes> {
    desk.scheduler.at(desk.now).snapshot().cards[0].yielded.as_ref().map(|kept| kept.lacks)
}

/// Four models of 4 GiB on a card of 16 GiB; the first two are busy.
fn four() -> (Desk, Vec<RunId>, Vec<plimsoll_scheduler::RequestId>) {
    let mut desk = Desk::new(&[16], &[4, 4, 4, 4]);
    let runs = (0..4).map(|model| desk.loaded(model)).collect();
    let requests = (0..2).map(|model| desk.ask(model)).collect();
    (desk, runs, requests)
}

#[test]
fn idle_models_leave_at_once_and_busy_ones_after_their_last_answer() {
    let (mut desk, runs, requests) = four();
    keep(&mut desk, gib(12), 3600);
    assert_eq!(stopped(&desk), runs[2..]);
    assert_eq!(lacks(&desk), Some(gib(12)));
    assert_eq!(desk.state(0), ModelState::Draining, "the one that was used longest ago");
    assert_eq!(desk.state(1), ModelState::Ready);
    let reason = desk.scheduler.at(desk.now).stop_reason(runs[2]).unwrap();
    assert_eq!(
        (reason.code, &*reason.text),
        ("yields", "12288 MiB of card0 are kept free for other programs")
    );
    desk.gone(runs[2]);
    desk.gone(runs[3]);
    desk.finish(requests[0]);
    assert_eq!(stopped(&desk), runs[..1]);
    desk.gone(runs[0]);
    assert_eq!(lacks(&desk), Some(Bytes::ZERO));
    desk.finish(requests[1]);
    assert_eq!(desk.state(1), ModelState::Ready, "there is room for one");
}

#[test]
fn no_more_models_leave_than_the_room_needs() {
    let (mut desk, runs, _) = four();
    keep(&mut desk, gib(3), 3600);
    assert_eq!(stopped(&desk), runs[2..3]);
    keep(&mut desk, gib(4), 3600);
    assert_eq!(stopped(&desk), []);
}

#[test]
fn nothing_is_loaded_into_the_room_and_what_can_wait_for_its_end_waits() {
    let mut desk = Desk::new(&[16], &[8, 10]);
    keep(&mut desk, gib(8), 60);
    let small = desk.loaded(0);
    let waits = desk.ask_until(1, 120);
    desk.surveyed(1);
    assert_eq!((desk.started(), desk.refusals().len()), (None, 0));
    let line = desk.scheduler.at(desk.now).wait_line(ModelId(1)).unwrap();
    assert_eq!(line, "waiting for memory for m1; 8192 MiB of card0 are kept free for 60 s");
    let (_, reason) = desk.scheduler.state().wait_reason(ModelId(1)).unwrap();
    let causes: Vec<_> = reason.because.iter().map(|cause| &*cause.text).collect();
    assert_eq!(
        causes,
        ["`plimsoll yield` keeps free 8192 MiB of card0", "m0 holds 8192 MiB on card0"],
        "the yield is what it waits for"
    );
    desk.ask_until(1, 30);
    desk.pass(30);
    assert_eq!(desk.refusals().len(), 1, "its own time was over before");
    desk.pass(30);
    assert_eq!(stopped(&desk), [small], "it makes room as ever");
    desk.gone(small);
    let run = desk.started().unwrap();
    desk.ready(run);
    assert_eq!(desk.dispatched(), [waits]);
}

#[test]
fn a_request_that_cannot_outwait_a_yield_is_refused_with_that_reason() {
    let mut desk = Desk::new(&[16], &[10]);
    keep(&mut desk, gib(8), 3600);
    desk.ask_until(0, 600);
    desk.surveyed(0);
    let refusals = desk.refusals();
    assert_eq!(refusals[0].kind, RequestRefusalKind::NoRoom);
    assert!(refusals[0].reason.text.contains("kept free for other programs"), "{}", refusals[0].reason);
    let reported = format!("{:?}", refusals[0].reason);
    assert!(reported.contains("`plimsoll yield` keeps free 8192 MiB"), "{reported}");
    let hints = format!("{:?}", refusals[0].hints);
    assert!(hints.contains("plimsoll yield --end"), "{hints}");
}

#[test]
fn a_yield_that_is_taken_back_keeps_a_busy_model() {
    let (mut desk, runs, requests) = four();
    keep(&mut desk, gib(16), 3600);
    assert_eq!(stopped(&desk), runs[2..]);
    let later = desk.ask(0);
    assert_eq!(desk.dispatched(), []);
    keep(&mut desk, Bytes::ZERO, 3600);
    assert_eq!((desk.dispatched(), desk.state(0)), (vec![later], ModelState::Ready));
    desk.finish(requests[0]);
    assert_eq!(stopped(&desk), []);
    // The models that had left are gone all the same.
    assert_eq!(lacks(&desk), None);
}

#[test]
fn memory_that_other_processes_take_counts_as_part_of_the_room() {
    let (mut desk, runs, _) = four();
    keep(&mut desk, gib(8), 3600);
    desk.gone(runs[2]);
    desk.gone(runs[3]);
    for run in &runs[..2] {
        desk.send(SchedulerEvent::Measured { run: *run, used: vec![(card(), gib(4))] });
    }
    for free in [6, 2, 0] {
        desk.read(vec![(card(), gib(free))]);
        assert_eq!((stopped(&desk), lacks(&desk)), (vec![], Some(Bytes::ZERO)), "{free}");
    }
    assert_eq!(desk.scheduler.ledger().account(&card()).unwrap().kept_now(), Bytes::ZERO);
    desk.read(vec![(card(), gib(5))]);
    assert_eq!(desk.scheduler.ledger().account(&card()).unwrap().capacity(), gib(8));
}

#[test]
fn a_load_is_given_up_and_its_request_waits() {
    let mut desk = Desk::new(&[16], &[8]);
    let request = desk.ask_until(0, 120);
    desk.surveyed(0);
    let run = desk.started().unwrap();
    keep(&mut desk, gib(12), 60);
    assert_eq!(stopped(&desk), [run]);
    desk.gone(run);
    desk.surveyed(0);
    assert_eq!((desk.started(), desk.refusals().len()), (None, 0));
    desk.pass(60);
    let run = desk.started().unwrap();
    desk.ready(run);
    assert_eq!(desk.dispatched(), [request]);
}

#[test]
fn a_pinned_model_stays_and_the_room_lacks_its_memory() {
    let mut desk = Desk::tuned(&[16], &[8], |_, spec| spec.pinned = true);
    desk.loaded(0);
    keep(&mut desk, gib(12), 60);
    assert_eq!((stopped(&desk), lacks(&desk)), (vec![], Some(gib(4))));
}

#[test]
fn a_card_that_is_not_here_and_more_than_a_card_has_harm_nothing() {
    let (mut desk, runs, _) = four();
    let elsewhere = CardId::new("card9");
    desk.send(SchedulerEvent::YieldWanted { card: elsewhere.clone(), bytes: gib(8), until: Moment::NEVER });
    desk.send(SchedulerEvent::PrecedenceTaken { card: elsewhere, name: "x".to_owned() });
    assert_eq!(stopped(&desk), []);
    desk.send(SchedulerEvent::YieldWanted { card: card(), bytes: Bytes::MAX, until: Moment::NEVER });
    assert_eq!(stopped(&desk), runs[2..]);
    let wakes = desk.effects.iter().filter(|effect| matches!(effect, SchedulerEffect::WakeAt(Moment::NEVER)));
    assert_eq!(wakes.count(), 0);
}

/// One idle and one busy model of 6 GiB on a card of 16 GiB, each measured.
fn grown(gives_way: bool) -> (Desk, Vec<RunId>) {
    let set = |settings: &mut SchedulerSettings| settings.gives_way = gives_way;
    let mut desk = Desk::set_up(&[16], &[6, 6], |_, _| {}, set);
    let runs: Vec<RunId> = (0..2).map(|model| desk.loaded(model)).collect();
    desk.ask(1);
    for run in &runs {
        desk.send(SchedulerEvent::Measured { run: *run, used: vec![(card(), gib(6))] });
    }
    (desk, runs)
}

#[test]
fn an_idle_model_leaves_when_another_process_grows_into_its_memory_and_a_busy_one_does_not() {
    let (mut desk, runs) = grown(true);
    desk.read(vec![(card(), gib(1))]);
    assert_eq!(stopped(&desk), []);
    desk.read(vec![(card(), Bytes::ZERO)]);
    assert_eq!(stopped(&desk), [], "it has what was free");
    // The process is given the first MiB of the reserve, or evicts a page of ours.
    desk.send(SchedulerEvent::Measured { run: runs[1], used: vec![(card(), gib(7))] });
    assert_eq!(stopped(&desk), runs[..1]);
    let reason = desk.scheduler.at(desk.now).stop_reason(runs[0]).unwrap();
    assert_eq!((reason.code, &*reason.text), ("yields", "other programs take more memory of card0"));
    desk.gone(runs[0]);
    desk.read(vec![(card(), Bytes::ZERO)]);
    assert_eq!((stopped(&desk), desk.state(1)), (vec![], ModelState::Ready));
}

#[test]
fn without_the_setting_no_model_leaves_for_another_process() {
    let (mut desk, runs) = grown(false);
    desk.send(SchedulerEvent::Measured { run: runs[1], used: vec![(card(), gib(12))] });
    desk.read(vec![(card(), Bytes::ZERO)]);
    assert_eq!(stopped(&desk), []);
}

#[test]
fn idle_models_leave_for_a_program_with_precedence_and_come_back_when_asked_for() {
    let (mut desk, runs) = grown(false);
    desk.send(SchedulerEvent::PrecedenceTaken { card: card(), name: "blender".to_owned() });
    assert_eq!(stopped(&desk), runs[..1]);
    let reason = desk.scheduler.at(desk.now).stop_reason(runs[0]).unwrap();
    assert_eq!(&*reason.text, "the program blender, which has precedence (`yield-to`), has started on card0");
    desk.gone(runs[0]);
    desk.loaded(0);
}
