//! Tests of plans against the log of llama.cpp b10605 on an NVIDIA H200 (`data/measured`).
//!
//! `cargo test -p plimsoll-planner runner::measured -- --nocapture` prints the table.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::{EngineBuild, EngineKind, Plan, PlanRequest, plan};
use serde::Deserialize;

use super::shapes;

#[derive(Deserialize)]
struct Measured {
    #[serde(rename = "static", default)]
    reserved: Vec<Reserved>,
    totals: Vec<Total>,
}

#[derive(Deserialize)]
struct Reserved {
    model: String,
    args: String,
    #[serde(rename = "CUDA0")]
    card: Buffers,
    #[serde(rename = "Host")]
    host: Buffers,
}

/// Whole MiB, rounded down by the engine.
#[derive(Deserialize)]
struct Buffers {
    model: u64,
    context: u64,
    compute: u64,
}

#[derive(Deserialize)]
struct Total {
    model: String,
    args: String,
    after_load: u64,
    #[serde(default)]
    after_prompt: BTreeMap<u64, u64>,
}

/// The build of the recorded engine.
const B10605: EngineBuild = EngineBuild { build: Some(10_605), ..EngineBuild::LLAMA_CPP };

fn measured() -> Measured {
    serde_json::from_str(include_str!("../../../data/measured/h200-b10605.json")).unwrap()
}

/// Rows that were measured after the formulas and the calibration were written.
fn measured_blind() -> Measured {
    serde_json::from_str(include_str!("../../../data/measured/h200-x2-b10605.json")).unwrap()
}

fn h200() -> Card {
    Card {
        id: CardId::new("CUDA0"),
        kind: CardKind::Cuda,
        name: "NVIDIA H200".to_owned(),
        uuid: None,
        total: Bytes::mib(143_771),
        free: Bytes::mib(143_000),
        compute_capability: Some((9, 0)),
        legacy_pool: false,
        shares_host: false,
        counting: Counting::Driver,
        maker: plimsoll_base::CardMaker::Nvidia,
        address: None,
    }
}

fn planned(model: &Model, args: &str, program: ProgramKind, engine: EngineBuild, card: Card) -> Plan {
    let argv: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    let params = Options::from_argv(&argv).unwrap().params(program).unwrap();
    plan(&PlanRequest {
        model,
        draft: None,
        projector: None,
        params: &params,
        engine,
        program,
        cards: &[card],
        contexts: &[],
        processor: None,
    })
    .unwrap()
}

/// The engine prints whole MiB, cut off.
fn cut(bytes: Option<Bytes>) -> u64 {
    bytes.unwrap().get() >> 20
}

#[test]
fn every_static_row_matches_to_the_mebibyte() {
    let rows = measured().reserved;
    assert_eq!(rows.len(), 42);
    println!("| model | flags | weights | KV | compute | host weights | host compute |");
    println!("|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for row in &rows {
        let model = shapes::model(&row.model);
        let plan = planned(&model, &row.args, ProgramKind::LlamaFitParams, B10605, h200());
        let terms = &plan.cards[0].terms;
        let pairs = [
            ("weights", row.card.model, cut(terms.weights.bytes)),
            ("KV", row.card.context, cut(terms.kv.bytes)),
            ("compute", row.card.compute, cut(terms.compute.bytes)),
            ("host weights", row.host.model, cut(plan.host.terms.weights.bytes)),
            ("host compute", row.host.compute, cut(plan.host.terms.compute.bytes)),
        ];
        let cells: Vec<String> =
            pairs.iter().map(|(_, measured, planned)| format!("{measured} / {planned}")).collect();
        println!("| {} | `{}` | {} |", row.model, row.args, cells.join(" | "));
        assert_eq!(row.host.context, cut(plan.host.terms.kv.bytes));
        for (term, measured, planned) in pairs {
            if measured != planned {
                wrong.push(format!(
                    "{} {}: {term} measured {measured}, planned {planned}",
                    row.model, row.args
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// MiB by which a whole process may differ from its plan: rounding by the driver, and variation between runs.
const PROCESS_BOUND: u64 = 16;

#[test]
fn the_whole_process_matches() {
    println!("| model | flags | loaded | planned | deepest | planned |");
    println!("|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for row in measured().totals.into_iter().chain(measured_blind().totals) {
        let model = shapes::model(&row.model);
        let plan = planned(&model, &row.args, ProgramKind::LlamaServer, B10605, h200());
        let (loaded, peak) = (plan.cards[0].loaded.whole_mib(), plan.cards[0].peak.whole_mib());
        let deepest = row.after_prompt.last_key_value();
        let shown = deepest.map_or("-".to_owned(), |(tokens, mib)| format!("{mib} at {tokens}"));
        println!("| {} | `{}` | {} | {loaded} | {shown} | {peak} |", row.model, row.args, row.after_load);
        if row.after_load.abs_diff(loaded) > PROCESS_BOUND {
            wrong.push(format!("{} {}: loaded {}, planned {loaded}", row.model, row.args, row.after_load));
        }
        for (tokens, mib) in row.after_prompt {
            let at_depth = loaded + pool_at(&plan, tokens);
            if mib.abs_diff(at_depth) > PROCESS_BOUND {
                wrong.push(format!(
                    "{} {}: {mib} at {tokens} tokens, planned {at_depth}",
                    row.model, row.args
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// MiB of pool after a prompt of `tokens`: the peak less the growth over the rest of the context.
fn pool_at(plan: &Plan, tokens: u64) -> u64 {
    let peak = plan.cards[0].terms.pool.known();
    let rest = plan.context.saturating_sub(tokens.next_multiple_of(256));
    peak.saturating_sub(plan.growth.pool * rest).whole_mib()
}

/// The older build: the copy of a quantised cache grows in the pool.
#[test]
fn builds_before_the_copy_moved_grow_with_depth() {
    let engine = EngineBuild { kind: EngineKind::LlamaCpp, build: Some(8799) };
    let model = shapes::model("m8");
    let legacy_card = Card { legacy_pool: true, counting: Counting::Driver, ..h200() };
    let quantised = "-c 65536 -fa on -b 2048 -ngl 99 -np 1 -ctk q8_0 -ctv q8_0";
    let plain = "-c 65536 -fa on -b 2048 -ngl 99 -np 1";
    let rows = [
        ("q8_0, VMM", quantised, h200(), 2975_u64, 3247_u64),
        ("q8_0, legacy", quantised, legacy_card, 2973, 7151),
        ("f16, VMM", plain, h200(), 3877, 3895),
    ];
    for (what, args, card, loaded, deepest) in rows {
        let plan = planned(&model, args, ProgramKind::LlamaServer, engine, card);
        let planned = (plan.cards[0].loaded.whole_mib(), plan.cards[0].peak.whole_mib());
        println!(
            "| m8 b8799 {what} | loaded {loaded} | planned {} | deepest {deepest} | planned {} |",
            planned.0, planned.1
        );
        assert!(loaded.abs_diff(planned.0) <= 80, "{what}: loaded {loaded}, planned {}", planned.0);
        assert!(
            deepest.abs_diff(planned.1) <= deepest / 20,
            "{what}: deepest {deepest}, planned {}",
            planned.1
        );
    }
    let plan = planned(&model, quantised, ProgramKind::LlamaServer, engine, h200());
    assert_eq!(plan.growth.pool, Bytes::new(4096));
}
