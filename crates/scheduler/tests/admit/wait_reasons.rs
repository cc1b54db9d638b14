//! Tests of the reason for a wait: it names everything that must end before the model gets its memory, and
//! nothing else.

use std::time::Duration;

use plimsoll_base::{Bytes, CardId, Fact, Reason};
use plimsoll_scheduler::{ModelId, SchedulerEvent};
use proptest::prelude::*;

use crate::runner::admit::desk::{Desk, PATIENCE, gib};

fn reason(desk: &Desk, model: u32) -> Reason {
    let (word, reason) = desk.scheduler.state().wait_reason(ModelId(model)).unwrap();
    assert_eq!(word, "room", "{reason}");
    // Displays have the same tree.
    let outlook = desk.scheduler.at(desk.now).outlook().into_iter().find(|(id, _)| *id == ModelId(model));
    assert_eq!(outlook.unwrap().1.wait.unwrap().reason, reason);
    reason
}

fn keep(desk: &mut Desk, bytes: u64, seconds: u64) {
    let (card, until) = (CardId::new("card0"), desk.now + Duration::from_secs(seconds));
    desk.send(SchedulerEvent::YieldWanted { card, bytes: gib(bytes), until });
}

#[test]
fn a_yield_whose_end_makes_room_is_named_and_an_idle_model_beside_it_is_not() {
    let mut desk = Desk::new(&[16], &[1, 10]);
    desk.loaded(0);
    keep(&mut desk, 8, 8);
    desk.ask(1);
    desk.surveyed(1);
    let reported = "the model still waits for memory that is kept free for other programs\n  \
                `plimsoll yield` keeps free 8192 MiB of card0";
    let yields = reason(&desk, 1);
    assert_eq!(yields.to_string(), reported);
    assert_eq!((yields.because[0].code, &yields.because[0].facts["yield"]), ("yield", &Fact::Bytes(gib(8))));
    desk.pass(8);
    assert!(desk.started().is_some() && desk.stopped().is_empty(), "it loads beside the other");
}

#[test]
fn a_yield_and_the_model_that_must_leave_after_it_are_named_together() {
    let mut desk = Desk::new(&[16], &[8, 10]);
    desk.loaded(0);
    keep(&mut desk, 8, 60);
    desk.ask(1);
    desk.surveyed(1);
    let reported = "the model still waits for memory that is kept free for other programs, and memory that m0 holds\n  \
                `plimsoll yield` keeps free 8192 MiB of card0\n  m0 holds 8192 MiB on card0";
    assert_eq!(reason(&desk, 1).to_string(), reported);
}

#[test]
fn a_busy_holder_is_named_and_not_an_idle_one_whose_memory_would_not_do() {
    let mut desk = Desk::new(&[16], &[1, 10, 10]);
    desk.loaded(0);
    let slow = desk.loaded(1);
    let busy = desk.ask(1);
    desk.ask_until(2, 30);
    desk.surveyed(2);
    let reported = "the model still waits for memory that other models hold\n  m1 holds 10240 MiB on card0";
    assert_eq!(reason(&desk, 2).to_string(), reported);
    desk.pass(PATIENCE);
    assert_eq!(reason(&desk, 2).to_string(), reported, "chosen, and still busy");
    desk.pass(30 - PATIENCE);
    let refused = desk.refusals()[0].reason.because[0].to_string();
    assert_eq!(refused, reported, "the refusal agrees");
    desk.ask(2);
    desk.surveyed(2);
    desk.finish(busy);
    assert_eq!(desk.stopped()[0].0, slow);
    assert_eq!(reason(&desk, 2).to_string(), reported, "its memory is on the way");
}

#[test]
fn all_models_that_must_leave_together_are_named() {
    let mut desk = Desk::new(&[16], &[6, 6, 1, 12]);
    for model in 0..3 {
        desk.loaded(model);
    }
    for model in 0..2 {
        desk.ask(model);
    }
    desk.ask(3);
    desk.surveyed(3);
    let reported = "the model still waits for memory that m0 and m1 hold\n  \
                m0 holds 6144 MiB on card0\n  m1 holds 6144 MiB on card0";
    assert_eq!(reason(&desk, 3).to_string(), reported);
}

#[test]
fn a_model_that_leaves_anyway_is_not_named_where_its_memory_is_not_needed() {
    let mut desk = Desk::new(&[16], &[1, 10, 10]);
    desk.loaded(0);
    desk.loaded(1);
    desk.ask(1);
    desk.send(SchedulerEvent::UnloadWanted { model: ModelId(0) });
    desk.ask(2);
    desk.surveyed(2);
    let reported = "the model still waits for memory that other models hold\n  m1 holds 10240 MiB on card0";
    assert_eq!(reason(&desk, 2).to_string(), reported);
}

#[test]
fn a_model_behind_another_names_that_one() {
    let mut desk = Desk::new(&[10], &[6, 6, 6]);
    desk.loaded(0);
    desk.ask(0);
    for model in [1, 2] {
        desk.ask(model);
        desk.surveyed(model);
        desk.pass(1);
    }
    desk.pass(PATIENCE);
    let reported = "the model still waits for memory that m1 gets first\n  m1 comes first and needs 6144 MiB";
    assert_eq!(reason(&desk, 2).to_string(), reported);
    let holds = "the model still waits for memory that other models hold\n  m0 holds 6144 MiB on card0";
    assert_eq!(reason(&desk, 1).to_string(), holds);
}

#[test]
fn the_limit_of_loaded_models_is_named_with_the_one_that_leaves() {
    let one = |settings: &mut plimsoll_scheduler::SchedulerSettings| settings.models_max = 1.try_into().ok();
    let mut desk = Desk::set_up(&[16], &[1, 2], |_, _| {}, one);
    desk.loaded(0);
    desk.ask(0);
    desk.ask(1);
    desk.surveyed(1);
    let reported = "the model waits until another is unloaded: at most one model is loaded at a time (`models-max`)\n  \
                m0 holds 1024 MiB on card0";
    assert_eq!(reason(&desk, 1).to_string(), reported);
}

#[test]
fn before_the_cards_are_read_no_model_is_accused() {
    let mut desk = Desk::new(&[16], &[1, 2]);
    desk.loaded(0);
    desk.reads = false;
    desk.pass(60);
    desk.ask(1);
    desk.surveyed(1);
    assert_eq!(
        reason(&desk, 1).to_string(),
        "the model still waits for a new reading of the cards' free memory"
    );
}

#[test]
fn a_request_that_was_dropped_waits_for_the_check_of_its_engine() {
    let mut desk = Desk::new(&[16], &[1]);
    desk.loaded(0);
    let request = desk.ask(0);
    desk.bounce(request);
    let (word, reason) = desk.scheduler.state().wait_reason(ModelId(0)).unwrap();
    let reported = "the engine dropped the request, and is asked whether it is healthy";
    assert_eq!((word, reason.to_string().as_str()), ("check", reported));
    assert_eq!(desk.scheduler.wait_cause(ModelId(0)), Some("check"));
    let line = desk.scheduler.at(desk.now).wait_line(ModelId(0)).unwrap();
    assert_eq!(line, "waiting for a check of m0's engine, which dropped the request");
}

/// Bytes of the causes with this code.
fn bytes(reason: &Reason, code: &str, fact: &str) -> Vec<Bytes> {
    let causes = reason.because.iter().filter(|cause| cause.code == code);
    let bytes = causes.filter_map(|cause| match cause.facts.get(fact) {
        Some(Fact::Bytes(bytes)) => Some(*bytes),
        _ => None,
    });
    bytes.collect()
}

proptest! {
    #[test]
    fn named_obstacles_suffice_together_and_each_is_needed(
        needs in proptest::collection::vec(1_u64..12, 1..6),
        busy in proptest::collection::vec(any::<bool>(), 6),
        need in 1_u64..=32,
        kept in 0_u64..=24,
        waited in 0_u64..=2 * PATIENCE,
    ) {
        let newcomer = u32::try_from(needs.len()).unwrap();
        let all: Vec<u64> = needs.iter().copied().chain([need]).collect();
        let mut desk = Desk::new(&[32], &all);
        let room = |model: &u32| needs.iter().take(usize::try_from(*model).unwrap() + 1).sum::<u64>() <= 32;
        for model in (0..newcomer).filter(room) {
            let request = desk.ask(model);
            desk.surveyed(model);
            let run = desk.started().unwrap();
            desk.ready(run);
            if !busy[usize::try_from(model).unwrap()] {
                desk.finish(request);
            }
        }
        if kept > 0 {
            keep(&mut desk, kept, 60);
        }
        desk.ask(newcomer);
        desk.surveyed(newcomer);
        desk.pass(waited);
        let waits = desk.scheduler.state().wait_reason(ModelId(newcomer)).filter(|(word, _)| *word == "room");
        if let Some((_, reason)) = waits {
            let account = &desk.scheduler.ledger().accounts()[0];
            let yields = bytes(&reason, "yield", "yield");
            prop_assert_eq!(&yields, &vec![gib(kept); yields.len()]);
            let room = if yields.is_empty() { account.capacity() } else { account.limit() };
            let occupied = bytes(&reason, "holder", "holds");
            let suffices = |freed: Bytes| gib(need) + account.claimed() <= room + freed;
            let freed: Bytes = occupied.iter().copied().sum();
            prop_assert!(yields.len() + occupied.len() > 0 && suffices(freed), "{reason}");
            prop_assert!(yields.is_empty() || gib(need) > account.capacity(), "no yield is in the way: {reason}");
            for one in occupied {
                prop_assert!(!suffices(freed.saturating_sub(one)), "{one} is not needed: {reason}");
            }
        }
    }
}
