//! Tests of plans for boards whose GPU uses the host's memory: there is one pool, and no advice to move bytes
//! within it.

use plimsoll_base::{Advice, Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_planner::fit::{ClosedForms, Dimension, fit};
use plimsoll_planner::{EngineBuild, Plan, PlanRequest, plan};

use super::zoo;

fn with<T>(model: &str, flags: &str, card: &str, ask: impl FnOnce(&PlanRequest<'_>) -> T) -> T {
    let draft = plimsoll_specimens::specimen(model)
        .unwrap_or_else(|| plimsoll_specimens::shape(model).unwrap().files(1).remove(0));
    let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let cards: [Card; 1] = [card.parse().unwrap()];
    ask(&PlanRequest {
        model: &zoo::read(&draft),
        draft: None,
        projector: None,
        params: &Options::from_argv(&words).unwrap().params(ProgramKind::LlamaServer).unwrap(),
        engine: EngineBuild::LLAMA_CPP,
        program: ProgramKind::LlamaServer,
        cards: &cards,
        contexts: &[],
        processor: None,
    })
}

fn planned(model: &str, flags: &str, card: &str) -> Plan {
    with(model, flags, card, |request| plan(request).unwrap())
}

#[test]
fn host_memory_of_a_plan_counts_on_a_unified_card() {
    for flags in ["-c 8192", "-c 8192 -ngl 20", "-c 8192 -nkvo"] {
        let own = planned("l8", flags, "name=Board,total=32GiB,cc=8.7");
        let shared = planned("l8", flags, "name=Board,total=32GiB,cc=8.7,kind=unified");
        assert!(own.host.peak > Bytes::mib(280), "{flags}: {}", own.host.peak);
        assert_eq!(shared.host.peak, Bytes::ZERO, "{flags}");
        assert_eq!(shared.cards[0].peak, own.cards[0].peak + own.host.peak, "{flags}");
    }
}

#[test]
fn no_advice_moves_bytes_from_the_pool_to_itself() {
    for (model, total) in [("l8", "6GiB"), ("q30", "30GiB"), ("q30", "24GiB")] {
        let card = format!("name=Board,total={total},cc=8.7,kind=unified");
        let plan = planned(model, "-c 32768", &card);
        assert!(!plan.fits && !plan.hints.is_empty(), "{model} {total}");
        for hint in &plan.hints {
            let flags = hint.advice.flags().unwrap_or_default();
            let moves =
                ["-ngl", "--n-cpu-moe", "--no-mmproj-offload"].iter().any(|flag| flags.contains(flag));
            let moves = moves || matches!(hint.advice, Advice::SpillCache(_));
            assert!(!moves && hint.advice != Advice::AnotherCard, "{model} {total}: {hint:?}");
        }
    }
    // On a card of its own, the same model gets such advice.
    let own = planned("q30", "-c 32768", "name=Card,total=24GiB,cc=8.6");
    assert!(own.hints.iter().any(|hint| hint.advice.flags().is_some_and(|flags| flags.contains("-ngl"))));
}

#[test]
fn the_largest_context_leaves_room_for_what_the_host_holds() {
    let largest = |kind: &str| {
        let card = format!("name=Board,total=8GiB,cc=8.7{kind}");
        planned("l8", "-c 4096", &card).largest_context.unwrap()
    };
    assert!(largest(",kind=unified") + 2048 < largest(""));
}

/// A larger micro-batch than 2048 processes prompts no faster; more is tried where it was asked for.
#[test]
fn the_search_for_a_micro_batch_stops_at_what_speeds_up() {
    let best = |flags: &str| {
        let ask = |request: &PlanRequest<'_>| {
            fit(request, &ClosedForms(*request), &[Dimension::MicroBatch]).unwrap().answers[0].best.clone()
        };
        with("l8", flags, "name=H200,total=141GiB,cc=9.0", ask)
    };
    assert_eq!(best("-c 32768"), Some(2048_u64.into()));
    assert_eq!(best("-c 32768 -b 4096 -ub 4096"), Some(4096_u64.into()));
}

/// Memory of other machines is not known, which a plan says rather than ignore the flag.
#[test]
fn servers_that_take_a_part_of_the_model_are_named() {
    let plan = planned("l8", "-c 4096 --rpc 10.0.0.2:50052", "name=Card,total=24GiB,cc=8.6");
    let stated = plan.warnings.iter().find(|reason| reason.code == "rpc_not_counted").unwrap();
    assert!(stated.text.contains("10.0.0.2:50052") && stated.text.contains("unknown"), "{}", stated.text);
}
