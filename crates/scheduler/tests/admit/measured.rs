//! Tests of models whose measured memory exceeds the planned or declared memory.

use plimsoll_base::{Bytes, CardId, CardKind};
use plimsoll_scheduler::{
    ConfigChange, ModelId, ModelSpec, ModelState, RequestRefusalKind, RunId, SchedulerEvent,
};
use proptest::prelude::*;

use crate::runner::admit::desk::{Desk, gib};

const MODEL: ModelId = ModelId(0);

/// A model that declares this need, on a host that may give its models so much.
fn desk(total: u64, declared: u64) -> Desk {
    Desk::set_up(&[total], &[declared], |_, _| {}, |settings| settings.cards[0].card.kind = CardKind::Host)
}

fn measured(desk: &mut Desk, run: RunId, bytes: u64) {
    let used = vec![(CardId::new("card0"), gib(bytes))];
    desk.send(SchedulerEvent::Measured { run, used });
}

fn unload(desk: &mut Desk, run: RunId) {
    desk.send(SchedulerEvent::UnloadWanted { model: MODEL });
    desk.gone(run);
}

/// The answer to a request for the model, or to an operator's request to load it, when nothing runs. `None`
/// if it starts.
fn answer(desk: &mut Desk, operator: bool) -> Option<(RequestRefusalKind, bool, String)> {
    if operator {
        desk.send(SchedulerEvent::LoadWanted { model: MODEL });
    }
    desk.ask(0);
    if desk.refusals().is_empty() {
        desk.surveyed(0);
    }
    let refusal = desk.refusals().first().map(|refusal| (*refusal).clone());
    refusal.map(|refusal| (refusal.kind, refusal.retry_after.is_some(), refusal.reason.to_string()))
}

#[test]
fn a_model_measured_beyond_its_hosts_budget_is_refused_each_time_with_both_figures_and_the_remedy() {
    let mut desk = desk(10, 6);
    let run = desk.loaded(0);
    measured(&mut desk, run, 12);
    assert_eq!(desk.view(0).claim[0].bytes, gib(12), "the claim follows");
    unload(&mut desk, run);
    for wait in [0, 1, 16, 100, 3600] {
        desk.pass(wait);
        let (kind, retries, text) = answer(&mut desk, wait == 16).expect("it is refused");
        assert_eq!((kind, retries), (RequestRefusalKind::NeverFits, false), "{text}");
        assert!(text.contains("card0 has 10240 MiB available, but the model needs 12288 MiB"), "{text}");
        assert!(text.contains("6144 MiB more on each card than planned or declared"), "{text}");
        let hints: Vec<String> = desk.refusals()[0].hints.iter().map(ToString::to_string).collect();
        assert!(hints[0].contains("allow models 12288 MiB of card0"), "{hints:?}");
        assert_eq!(desk.state(0), ModelState::Failed);
    }
}

#[test]
fn of_two_models_that_together_take_more_than_the_budget_the_idle_one_leaves() {
    let mut desk =
        Desk::set_up(&[20], &[7, 7], |_, _| {}, |settings| settings.cards[0].card.kind = CardKind::Host);
    let first = desk.loaded(0);
    let second = desk.loaded(1);
    measured(&mut desk, first, 7);
    assert_eq!(desk.stopped(), [], "nothing is over");
    measured(&mut desk, second, 13);
    desk.send(SchedulerEvent::Measured { run: first, used: vec![(CardId::new("card0"), gib(13))] });
    let stopped: Vec<RunId> = desk.stopped().into_iter().map(|(run, _)| run).collect();
    assert_eq!(stopped, [first], "the one that was used longest ago");
    assert_eq!(desk.state(1), ModelState::Ready);
}

#[test]
fn a_changed_section_forgets_what_was_measured() {
    let mut desk = desk(10, 6);
    let run = desk.loaded(0);
    measured(&mut desk, run, 12);
    unload(&mut desk, run);
    assert!(answer(&mut desk, false).is_some());
    let changes = vec![(MODEL, ConfigChange::Replaced(ModelSpec::new("m0")))];
    desk.send(SchedulerEvent::Configured(changes));
    assert_eq!((answer(&mut desk, false), desk.view(0).learned), (None, Bytes::ZERO));
}

#[test]
fn a_guess_on_top_of_a_measured_need_does_not_change_the_answer() {
    let mut desk = desk(10, 6);
    let run = desk.loaded(0);
    measured(&mut desk, run, 9);
    unload(&mut desk, run);
    assert_eq!(answer(&mut desk, false), None);
    let run = desk.started().unwrap();
    measured(&mut desk, run, 11);
    // It ends out of memory, so that a shortfall is guessed as well.
    desk.runs_out_of_memory(run, Some(gib(1)));
    let refusal = desk.refusals()[0].clone();
    assert_eq!(refusal.kind, RequestRefusalKind::NeverFits, "{}", refusal.reason);
    desk.memory_returned(run);
    let (kind, ..) = answer(&mut desk, false).expect("it is refused");
    assert_eq!(kind, RequestRefusalKind::NeverFits);
}

#[test]
fn a_model_of_unknown_need_that_took_more_than_the_host_may_give_is_refused_each_time() {
    let mut desk = desk(10, 6);
    desk.unknown_need(0);
    let run = desk.loaded(0);
    measured(&mut desk, run, 12);
    unload(&mut desk, run);
    let answers: Vec<_> = (0..3).map(|_| answer(&mut desk, false).expect("it is refused")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0] && !answer.1), "{answers:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever was declared and measured: as long as nothing is learned between two requests, the second
    /// gets the answer of the first, and a refusal comes exactly where the figures do not fit.
    #[test]
    fn the_same_question_gets_the_same_answer(
        total in 1_u64..20, declared in 1_u64..20, taken in 0_u64..30, waits in prop::collection::vec((0_u64..200, any::<bool>()), 1..6),
    ) {
        let mut desk = desk(total, declared);
        let mut need = declared;
        if answer(&mut desk, false).is_none() {
            let run = desk.started().unwrap();
            desk.ready(run);
            measured(&mut desk, run, taken);
            need = declared.max(taken);
            unload(&mut desk, run);
        }
        let mut answers = Vec::new();
        for (wait, operator) in waits {
            desk.pass(wait);
            let answer = answer(&mut desk, operator);
            prop_assert_eq!(answer.is_some(), need > total, "{} of {}: {:?}", need, total, answer);
            if let Some(run) = desk.started() {
                unload(&mut desk, run);
            }
            answers.push(answer);
        }
        prop_assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
}
