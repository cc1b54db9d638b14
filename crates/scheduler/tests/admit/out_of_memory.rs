//! Tests of the cause of an out-of-memory failure: the model's need, or memory that other processes took.

use plimsoll_base::{AllocationLimit, Bytes, CardId, End, Reason, RunId, Shortfall, Stage};
use plimsoll_scheduler::SchedulerEvent;
use proptest::prelude::*;

use crate::runner::admit::desk::{Desk, gib};

const MIB: fn(u64) -> Bytes = Bytes::mib;

fn card(free: Bytes) -> Vec<(CardId, Bytes)> {
    vec![(CardId::new("card0"), free)]
}

/// The driver refuses `bytes` more than were free, and the engine ends.
fn refused(desk: &mut Desk, run: RunId, stage: Stage, bytes: Bytes, free: Bytes, occupied: Bytes) {
    let limit = AllocationLimit::Driver { card: Some(CardId::new("card0")), free, occupied };
    die(desk, run, stage, Some(Shortfall { bytes, limit }));
}

fn die(desk: &mut Desk, run: RunId, stage: Stage, shortfall: Option<Shortfall>) {
    let end = End::OutOfMemory { stage, reason: Reason::new("cuda_oom", "out of memory"), shortfall };
    desk.send(SchedulerEvent::Ended { run, end });
}

fn failure(desk: &Desk) -> Reason {
    desk.view(0).last_failure.expect("it failed")
}

#[test]
fn a_neighbour_that_takes_the_card_of_a_serving_engine_is_named_and_teaches_nothing() {
    for missing in [Bytes::ZERO, MIB(50), gib(2)] {
        let mut desk = Desk::new(&[24], &[8]);
        desk.read(card(gib(24)));
        let run = desk.loaded(0);
        // The neighbour left 8 MiB beside the 8 GiB of the engine, whose memory is back by now.
        desk.read(card(gib(8)));
        refused(&mut desk, run, Stage::Serving, missing, MIB(8), gib(7));
        assert_eq!(desk.view(0).learned, Bytes::ZERO);
        let failure = failure(&desk);
        assert_eq!((failure.code, failure.facts.get("foreign")), ("foreign_memory", Some(&gib(16).into())));
        assert_eq!(failure.because[0].code, "cuda_oom");
    }
}

#[test]
fn a_neighbour_that_has_left_again_shows_in_the_answer_of_the_driver_at_the_refusal() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.read(card(gib(24)));
    let run = desk.loaded(0);
    desk.read(card(gib(24)));
    refused(&mut desk, run, Stage::Serving, gib(1), MIB(8), gib(7));
    assert_eq!((desk.view(0).learned, failure(&desk).code), (Bytes::ZERO, "foreign_memory"));
}

#[test]
fn of_what_was_missing_only_the_part_that_no_other_process_took_is_learned() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.read(card(gib(24)));
    let run = desk.loaded(0);
    desk.read(card(gib(23)));
    refused(&mut desk, run, Stage::Serving, gib(3), MIB(8), gib(22));
    assert_eq!((desk.view(0).learned, failure(&desk).code), (gib(2), "cuda_oom"));
}

#[test]
fn without_an_answer_of_the_driver_nothing_is_learned_and_the_reason_names_it() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    desk.read(Vec::new());
    refused(&mut desk, run, Stage::Serving, gib(3), gib(15), gib(8));
    assert_eq!(desk.view(0).learned, Bytes::ZERO);
    let reported = failure(&desk).to_string();
    assert!(reported.contains("the driver did not report the memory of card0"), "{reported}");
}

#[test]
fn an_engine_that_guard_held_to_its_own_budget_teaches_its_need_whatever_the_neighbours_do() {
    let mut desk = Desk::new(&[24], &[8]);
    let run = desk.loaded(0);
    desk.read(card(gib(8)));
    let shortfall = Shortfall { bytes: gib(1), limit: AllocationLimit::Budget };
    die(&mut desk, run, Stage::Serving, Some(shortfall));
    assert_eq!(desk.view(0).learned, gib(1));
}

#[test]
fn a_load_that_only_its_words_call_out_of_memory_is_tried_twice_and_teaches_nothing() {
    let mut desk = Desk::new(&[24], &[8]);
    desk.ask(0);
    desk.surveyed(0);
    for _ in 0..2 {
        let run = desk.started().expect("it is tried");
        die(&mut desk, run, Stage::Loading, None);
        desk.memory_returned(run);
    }
    assert_eq!((desk.view(0).learned, desk.started()), (Bytes::ZERO, None));
    let reported = failure(&desk).to_string();
    assert!(reported.contains("guard recorded no refused allocation"), "{reported}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Deaths with any figures, also impossible ones: the second leaves a claim of at most 1.25 times the
    /// plan, and a neighbour that took what was missing leaves nothing.
    #[test]
    fn deaths_with_any_figures_raise_a_claim_within_its_bounds(
        deaths in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()), 1..6),
    ) {
        let mut desk = Desk::new(&[100], &[8]);
        let mut lessons = 0;
        for (missing, free, occupied, neighbour) in deaths {
            desk.read(card(gib(100)));
            desk.pass(100);
            desk.ask(0);
            desk.surveyed(0);
            let Some(run) = desk.started() else { break };
            desk.ready(run);
            let (before, left) = (desk.view(0).learned, if neighbour { 0 } else { 100 });
            desk.read(card(gib(left)));
            let missing = Bytes::new(missing % gib(100).get());
            refused(&mut desk, run, Stage::Serving, missing, Bytes::new(free), Bytes::new(occupied));
            let learned = desk.view(0).learned;
            prop_assert!(!neighbour || learned == before, "{learned} after {before}");
            lessons += u32::from(learned != before);
            prop_assert!(lessons < 2 || learned <= gib(2), "{learned} after {lessons}");
            desk.memory_returned(run);
        }
    }
}
