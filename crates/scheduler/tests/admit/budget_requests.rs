//! Tests of running engines that request a larger memory budget.

use plimsoll_base::{Bytes, CardId};
use plimsoll_scheduler::{RequestId, RunId, SchedulerEffect, SchedulerEvent};

use crate::runner::admit::desk::{Desk, gib};

/// Asks for `asked` on the first card, with which the run would hold `wanted`; returns the answer, if there
/// is one.
fn ask_budget(desk: &mut Desk, run: RunId, requested: u64, wanted: u64) -> Option<Option<Bytes>> {
    desk.send(SchedulerEvent::BudgetRequested {
        run,
        card: CardId::new("card0"),
        requested: gib(requested),
        wanted: gib(wanted),
    });
    answer(desk)
}

fn answer(desk: &Desk) -> Option<Option<Bytes>> {
    desk.effects.iter().find_map(|effect| match effect {
        SchedulerEffect::AnswerBudget { claim, .. } => Some(*claim),
        _ => None,
    })
}

fn claim(desk: &Desk, model: u32) -> Bytes {
    desk.view(model).claim[0].bytes
}

/// A model at work: idle ones may go for others themselves.
fn busy(desk: &mut Desk, model: u32) -> (RunId, RequestId) {
    let run = desk.loaded(model);
    (run, desk.ask(model))
}

#[test]
fn room_that_nobody_claims_is_given_at_once() {
    let mut desk = Desk::new(&[10], &[4, 4]);
    let (run, _) = busy(&mut desk, 0);
    desk.loaded(1);
    assert_eq!(ask_budget(&mut desk, run, 2, 6), Some(Some(gib(6))));
    assert_eq!(claim(&desk, 0), gib(6));
    assert!(desk.stopped().is_empty());
}

#[test]
fn the_least_recently_used_goes_if_it_suffices_and_the_claim_is_raised_when_its_memory_is_back() {
    let mut desk = Desk::new(&[10], &[3, 3, 3]);
    let old = desk.loaded(0);
    desk.loaded(1);
    let (run, _) = busy(&mut desk, 2);
    assert_eq!(ask_budget(&mut desk, run, 3, 6), None);
    assert_eq!(desk.stopped().iter().map(|(run, _)| *run).collect::<Vec<_>>(), [old]);
    let why = desk.scheduler.at(desk.now).stop_reason(old).unwrap();
    assert_eq!(why.text, "m2 requests 3072 MiB more memory");
    desk.ended(old);
    assert_eq!(answer(&desk), None, "the driver has not got it back yet");
    desk.memory_returned(old);
    assert_eq!(answer(&desk), Some(Some(gib(6))));
}

#[test]
fn nobody_goes_for_a_room_request_that_all_who_are_idle_cannot_meet() {
    let mut desk = Desk::tuned(&[10], &[3, 3, 3], |id, spec| spec.pinned = id == 1);
    desk.loaded(0);
    desk.loaded(1);
    let (run, _) = busy(&mut desk, 2);
    assert_eq!(ask_budget(&mut desk, run, 5, 8), Some(None));
    assert!(desk.stopped().is_empty());
    assert_eq!(claim(&desk, 2), gib(3));
}

#[test]
fn busy_runs_do_not_stop_for_a_budget_request() {
    let mut desk = Desk::new(&[10], &[4, 4]);
    busy(&mut desk, 0);
    let (run, _) = busy(&mut desk, 1);
    assert_eq!(ask_budget(&mut desk, run, 3, 7), Some(None));
    assert!(desk.stopped().is_empty());
}

#[test]
fn memory_that_the_driver_lacks_stops_idle_runs_too() {
    let mut desk = Desk::new(&[10], &[4, 4]);
    let idle = desk.loaded(0);
    let (run, _) = busy(&mut desk, 1);
    let card = CardId::new("card0");
    desk.read(vec![(card, Bytes::mib(100))]);
    assert_eq!(ask_budget(&mut desk, run, 1, 3), None, "within its claim");
    assert_eq!(desk.stopped().len(), 1);
    desk.gone(idle);
    assert_eq!(answer(&desk), Some(Some(gib(4))));
}

#[test]
fn no_model_stops_for_a_budget_request_that_other_programs_leave_too_little_for() {
    let mut desk = Desk::new(&[10], &[4, 4]);
    let idle = desk.loaded(0);
    let (run, _) = busy(&mut desk, 1);
    let card = CardId::new("card0");
    for (run, used) in [(idle, gib(1)), (run, gib(4))] {
        desk.send(SchedulerEvent::Measured { run, used: vec![(card.clone(), used)] });
    }
    // 7 GiB are left for 8 GiB of claims: without the idle model there are 3 GiB more.
    desk.read(vec![(card, gib(2))]);
    assert_eq!(ask_budget(&mut desk, run, 4, 8), Some(None));
    assert!(desk.stopped().is_empty());
    assert_eq!(ask_budget(&mut desk, run, 3, 7), None);
    desk.gone(idle);
    assert_eq!(answer(&desk), Some(Some(gib(7))));
}

#[test]
fn a_run_that_ends_while_its_room_request_waits_is_not_answered_and_nothing_is_left() {
    let mut desk = Desk::new(&[10], &[3, 6]);
    let idle = desk.loaded(0);
    let (run, request) = busy(&mut desk, 1);
    assert_eq!(ask_budget(&mut desk, run, 3, 9), None);
    desk.send(SchedulerEvent::Abandoned { request });
    desk.crashes(run);
    desk.memory_returned(run);
    desk.gone(idle);
    assert_eq!(answer(&desk), None);
    assert!(desk.scheduler.ledger().account(&CardId::new("card0")).unwrap().claimed().is_zero());
}

#[test]
fn growth_is_learned_of_a_run_and_kept_for_the_next() {
    let mut desk = Desk::new(&[10], &[4]);
    let run = desk.loaded(0);
    for (tokens, mebibytes) in [(1000, 3000), (9000, 3008)] {
        let used = Bytes::mib(mebibytes);
        desk.send(SchedulerEvent::GrowthObserved { run, tokens, used });
    }
    let growth = desk.view(0).growth.unwrap();
    assert_eq!(growth.bytes_per_token, Bytes::new((8 << 20) / 8000));
    desk.crashes(run);
    desk.memory_returned(run);
    desk.loaded(0);
    assert_eq!(desk.view(0).growth, Some(growth));
}
