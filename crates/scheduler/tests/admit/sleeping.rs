//! Tests of engines that free their memory while they are idle.

use plimsoll_base::{Bytes, CardId};
use plimsoll_scheduler::{ModelId, ModelState, Moment, RunId, SchedulerEffect, SchedulerEvent, Stopping};

use crate::runner::admit::desk::{Desk, gib};

impl Desk {
    /// The run holds so much of the first card.
    fn holds(&mut self, run: RunId, bytes: Bytes) {
        self.send(SchedulerEvent::Measured { run, used: vec![(CardId::new("card0"), bytes)] });
    }

    /// Loads the first model and lets it fall asleep with 1 GiB.
    fn asleep(&mut self) -> RunId {
        let run = self.loaded(0);
        self.holds(run, gib(8));
        self.send(SchedulerEvent::Slept { run });
        self.holds(run, gib(1));
        run
    }

    fn claimed(&self) -> Bytes {
        self.scheduler.ledger().accounts()[0].claimed()
    }
}

#[test]
fn another_model_loads_beside_a_sleeping_one_and_nothing_is_stopped() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.asleep();
    assert_eq!(desk.claimed(), gib(8), "its claim stands while nothing wants it");
    desk.ask(1);
    desk.surveyed(1);
    assert!(desk.started().is_some() && desk.stopped().is_empty());
    assert_eq!((desk.claimed(), desk.state(0)), (gib(10), ModelState::Ready));
    assert!(
        desk.effects
            .iter()
            .any(|effect| matches!(effect, SchedulerEffect::ClaimChanged { run: of, .. } if *of == run))
    );
}

#[test]
fn a_request_wakes_an_engine_whose_memory_nobody_took() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    desk.asleep();
    let request = desk.ask(0);
    assert_eq!(desk.dispatched(), [request], "at once");
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((desk.started(), desk.claimed()), (None, gib(8)), "awake, it has nothing to lend");
}

#[test]
fn a_request_for_an_engine_whose_memory_was_lent_waits_until_others_have_left() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.asleep();
    let other = desk.loaded(1);
    let first = desk.ask(0);
    assert_eq!(desk.dispatched(), [], "it would take memory that is the other's");
    assert_eq!(
        desk.stopped(),
        [(other, Stopping::Graceful)],
        "as any idle model leaves for one that is asked"
    );
    let second = desk.ask(0);
    assert!(desk.scheduler.at(desk.now).wait_line(ModelId(0)).is_some());
    desk.gone(other);
    assert_eq!(desk.dispatched(), [first, second]);
    assert_eq!((desk.view(0).run, desk.claimed()), (Some(run), gib(8)));
}

#[test]
fn a_request_that_leaves_meanwhile_wakes_nothing_and_the_next_one_does() {
    let mut desk = Desk::patient(&[10], &[8, 8], 600, |_, _| {});
    desk.asleep();
    let other = desk.loaded(1);
    let busy = desk.ask(1);
    let (first, second) = (desk.ask(0), desk.ask(0));
    assert_eq!((desk.dispatched(), desk.stopped()), (Vec::new(), Vec::new()), "the other is busy");
    desk.send(SchedulerEvent::Abandoned { request: first });
    desk.finish(busy);
    desk.pass(60);
    desk.gone(other);
    assert_eq!(desk.dispatched(), [second]);
}

#[test]
fn an_engine_that_can_never_have_its_memory_back_ends_and_its_model_is_placed_anew() {
    let mut desk = Desk::tuned(&[10, 10], &[8, 8], |id, spec| spec.pinned = id == 1);
    let run = desk.asleep();
    desk.send(SchedulerEvent::YieldWanted {
        card: CardId::new("card1"),
        bytes: gib(10),
        until: Moment::NEVER,
    });
    desk.loaded(1);
    let request = desk.ask(0);
    assert_eq!(desk.stopped(), [(run, Stopping::Graceful)]);
    assert_eq!(desk.scheduler.at(desk.now).stop_reason(run).unwrap().code, "starts_afresh");
    desk.send(SchedulerEvent::YieldWanted {
        card: CardId::new("card1"),
        bytes: Bytes::ZERO,
        until: Moment::NEVER,
    });
    desk.gone(run);
    desk.surveyed(0);
    let anew = desk.started().unwrap();
    desk.ready(anew);
    assert_eq!(desk.dispatched(), [request]);
}

#[test]
fn lent_memory_that_is_free_again_is_taken_back() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    let run = desk.asleep();
    let other = desk.loaded(1);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(1) });
    desk.gone(other);
    assert_eq!(desk.claimed(), gib(2));
    let request = desk.ask(0);
    assert_eq!((desk.dispatched(), desk.claimed()), (vec![request], gib(8)));
    desk.finish(request);
    assert_eq!((desk.view(0).run, desk.state(0)), (Some(run), ModelState::Ready));
}

#[test]
fn an_engine_wakes_with_its_whole_claim_also_where_other_programs_left_the_card_too_small() {
    let mut desk = Desk::set_up(&[18], &[8, 8, 8], |_, _| {}, |settings| settings.gives_way = false);
    let run = desk.asleep();
    let other = desk.loaded(1);
    desk.send(SchedulerEvent::Slept { run: other });
    desk.holds(other, gib(1));
    let borrower = desk.loaded(2);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(2) });
    desk.gone(borrower);
    assert_eq!(desk.claimed(), gib(10), "2 GiB and 8 GiB");
    // Other programs left 8 GiB: lending 7 GiB of the other model frees 5 GiB, and 6 GiB were lent.
    desk.read(vec![(CardId::new("card0"), gib(6))]);
    let request = desk.ask(0);
    assert_eq!((desk.dispatched(), desk.stopped()), (vec![], vec![(other, Stopping::Graceful)]));
    desk.gone(other);
    assert_eq!((desk.dispatched(), desk.view(0).run), (vec![request], Some(run)));
    assert_eq!(desk.claimed(), gib(8));
}

#[test]
fn a_load_takes_the_slack_that_it_needs_at_once_also_on_an_overdrawn_card() {
    let mut desk = Desk::new(&[18], &[8, 8, 4]);
    desk.asleep();
    desk.loaded(1);
    // 14 GiB are left for 16 GiB of claims.
    desk.read(vec![(CardId::new("card0"), gib(5))]);
    desk.ask(2);
    desk.surveyed(2);
    assert!(desk.started().is_some() && desk.stopped().is_empty());
    assert_eq!(desk.claimed(), gib(14));
}

#[test]
fn memory_kept_free_for_other_programs_comes_from_sleeping_engines_first() {
    let mut desk = Desk::new(&[10], &[8]);
    desk.asleep();
    desk.send(SchedulerEvent::YieldWanted {
        card: CardId::new("card0"),
        bytes: gib(6),
        until: Moment::NEVER,
    });
    assert_eq!((desk.stopped(), desk.claimed()), (Vec::new(), gib(4)));
}

#[test]
fn memory_of_a_sleeping_engine_is_no_measured_need() {
    let mut desk = Desk::new(&[10], &[8, 8]);
    desk.unknown_need(0);
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::Slept { run });
    desk.holds(run, gib(1));
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!((desk.started(), desk.claimed()), (None, gib(10)), "it wakes with the next request");

    let mut desk = Desk::new(&[10], &[8, 8]);
    desk.unknown_need(0);
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::Slept { run });
    desk.holds(run, gib(1));
    let request = desk.ask(0);
    assert_eq!(desk.dispatched(), [request]);
    desk.holds(run, gib(6));
    assert!(desk.claimed() >= gib(6) && desk.claimed() < gib(7), "{}", desk.claimed());
    desk.send(SchedulerEvent::Finished { request, tokens: None, failed: false });
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.gone(run);
    desk.ask(0);
    desk.surveyed(0);
    assert!(desk.started().is_some() && desk.claimed() >= gib(6), "its need was learned awake");
}

#[test]
fn nothing_is_lent_of_an_engine_that_is_busy_or_not_measured_or_gone() {
    for (busy, occupied) in [(true, gib(1)), (false, Bytes::ZERO)] {
        let mut desk = Desk::new(&[10], &[8, 8]);
        let run = desk.loaded(0);
        if busy {
            desk.ask(0);
        }
        desk.send(SchedulerEvent::Slept { run });
        desk.holds(run, occupied);
        desk.ask(1);
        desk.surveyed(1);
        assert_eq!((desk.started(), desk.claimed()), (None, gib(8)), "{busy} {occupied}");
    }
    let mut desk = Desk::new(&[10], &[8]);
    let run = desk.loaded(0);
    desk.send(SchedulerEvent::Slept { run: RunId(999) });
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.send(SchedulerEvent::Slept { run });
    assert_eq!(desk.state(0), ModelState::Stopping);
    desk.gone(run);
    desk.send(SchedulerEvent::Slept { run });
    assert_eq!((desk.state(0), desk.claimed()), (ModelState::Unloaded, Bytes::ZERO));
}
