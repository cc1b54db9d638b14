//! Tests of measured CUDA context sizes in a plan, and of a plan's notes on changes that the engine makes
//! itself.

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_fuzz::mutants;
use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model};
use plimsoll_planner::{EngineBuild, EngineKind, MeasuredContext, Plan, PlanRequest, plan};

fn model() -> Model {
    let draft = plimsoll_specimens::shape("m8").unwrap().files(1).remove(0);
    let header = draft.header();
    let length = u64::try_from(header.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&header, length, Dialect::Ggml).unwrap()]).unwrap()
}

fn row(card: &str, build: u32) -> MeasuredContext {
    MeasuredContext {
        card: card.to_owned(),
        driver: "999.1".to_owned(),
        engine: EngineKind::LlamaCpp,
        build: Some(build),
        context: Bytes::mib(321),
        opened: None,
        cublas: Some(Bytes::mib(45)),
        speed: None,
        version: String::new(),
        measured: "2026-11-21".to_owned(),
    }
}

fn planned(flags: &str, cards: &[&str], contexts: &[MeasuredContext]) -> Plan {
    let cards: Vec<Card> = cards
        .iter()
        .map(|name| format!("name={name},total=40GiB,free=40GiB,cc=9.0").parse().unwrap())
        .collect();
    planned_on(flags, &cards, contexts)
}

fn planned_on(flags: &str, cards: &[Card], contexts: &[MeasuredContext]) -> Plan {
    let words: Vec<String> = flags.split(' ').map(str::to_owned).collect();
    let params = Options::from_argv(&words).unwrap().params(ProgramKind::LlamaServer).unwrap();
    plan(&PlanRequest {
        model: &model(),
        draft: None,
        projector: None,
        params: &params,
        engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(10_605) },
        program: ProgramKind::LlamaServer,
        cards,
        contexts,
        processor: None,
    })
    .unwrap()
}

#[test]
fn a_measured_context_comes_before_a_published_one_and_is_named() {
    let contexts = [row("Fake 9000", 1), row("Fake 9000", 10_605)];
    let plan = planned("-c 4096 -ngl 99", &["Fake 9000"], &contexts);
    let term = &plan.cards[0].terms.context;
    assert_eq!(term.bytes, Some(Bytes::mib(321)));
    assert_eq!(
        term.source.to_string(),
        "calibration Fake 9000, driver 999.1, llama.cpp@10605 (measured here on 2026-11-21)"
    );
    assert!(plan.reasons.iter().all(|reason| reason.code != "context_assumed"));
    let plan = planned("-c 4096 -ngl 99", &["Other"], &contexts);
    assert_eq!(plan.cards[0].terms.context.bytes, Some(Bytes::mib(512)));
    let assumed = plan.reasons.iter().find(|reason| reason.code == "context_assumed");
    assert!(assumed.unwrap().text.contains("`plimsoll measure calibrate`"));
}

#[test]
fn the_first_use_of_cublas_is_measured_as_well() {
    let flags = "-c 4096 -ngl 99 -fa off";
    let pool = |contexts: &[MeasuredContext]| {
        let plan = planned(flags, &["Fake 9000"], contexts);
        plan.cards[0].terms.pool.bytes.unwrap()
    };
    let without = MeasuredContext { cublas: None, ..row("Fake 9000", 10_605) };
    let published = pool(&[]);
    assert_eq!(pool(std::slice::from_ref(&without)), published);
    assert_eq!(pool(&[row("Fake 9000", 10_605)]) + Bytes::mib(98 - 45), published);
}

#[test]
fn a_visible_unused_card_costs_no_more_than_a_used_one() {
    let contexts = [row("NVIDIA H200", 10_605), row("Fake 9000", 10_605)];
    let plan = planned("-c 4096 -ngl 99 -sm none -mg 0", &["NVIDIA H200", "NVIDIA H200"], &contexts);
    let context = |card: usize| plan.cards[card].terms.context.bytes.unwrap();
    assert_eq!((context(0), context(1)), (Bytes::mib(321), Bytes::mib(321)));
}

#[test]
fn a_budget_counts_the_context_as_it_was_opened() {
    let context = |name: &str, opened: Option<Bytes>| {
        let card: Card = format!("name={name},total=40GiB,free=40GiB,cc=9.0").parse().unwrap();
        let contexts = [MeasuredContext { opened, ..row(name, 10_605) }];
        let plan = planned_on("-c 4096 -ngl 99", &[card.guarded(Bytes::gib(8))], &contexts);
        plan.cards[0].terms.context.bytes.unwrap()
    };
    assert_eq!(context("Fake 9000", Some(Bytes::mib(222))), Bytes::mib(222));
    assert_eq!(context("Fake 9000", None), Bytes::mib(321), "all of it");
    assert_eq!(context("Fake 9000", Some(Bytes::mib(999))), Bytes::mib(321), "no more than all");
    assert_eq!(context("4060 Ti", Some(Bytes::mib(222))), Bytes::mib(222), "before the published");
    assert_eq!(context("4060 Ti", None), Bytes::mib(107), "the published");
    let plan = planned(
        "-c 4096 -ngl 99",
        &["Fake 9000"],
        &[MeasuredContext { opened: Some(Bytes::mib(222)), ..row("Fake 9000", 10_605) }],
    );
    assert_eq!(plan.cards[0].terms.context.bytes, Some(Bytes::mib(321)), "by the driver all of it");
}

fn text_of(plan: &Plan, code: &str) -> Option<String> {
    plan.reasons.iter().find(|reason| reason.code == code).map(|reason| reason.text.clone())
}

#[test]
fn fit_may_reduce_only_what_the_flags_leave_open() {
    let small: Card = "name=small,total=1GiB,free=600MiB,cc=8.6".parse().unwrap();
    let reported =
        |flags: &str| text_of(&planned_on(flags, std::slice::from_ref(&small), &[]), "engine_may_shrink");
    let own = "; its own estimate omits the pool and the CUDA context";
    for (flags, open) in [
        ("--fit on", "-ngl and -c (to no less than 4096)"),
        ("-c 65536", "-ngl"),
        ("-ngl 99", "-c (to no less than 4096)"),
        ("-ngl 99 -fitc 1024", "-c (to no less than 1024)"),
    ] {
        let expected = format!("--fit is on, so llama-server may reduce {open}{own}");
        assert_eq!(reported(flags), Some(expected), "{flags}");
    }
    assert_eq!((reported("-c 65536 -ngl 99"), reported("--fit off")), (None, None));
}

#[test]
fn million_files_of_measured_contexts() {
    let seed = b"[[contexts]]\nengine = \"llama.cpp\"\ncard = \"H200\"\nbytes = 536870912\nsize = \"1GiB\"\n";
    mutants(&[seed], &[b"[[contexts]]\n"], |mutant| {
        drop(plimsoll_planner::contexts::read(&String::from_utf8_lossy(mutant)))
    });
}
