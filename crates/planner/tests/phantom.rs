//! Tests of plans against llama.cpp's own graph builder and allocator, run without a GPU
//! (`data/measured/phantom-b10605.json`). They cover several cards, latent attention, and experts in host
//! memory.
#![allow(clippy::print_stdout)]

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::{EngineBuild, Plan, PlanRequest, plan};
use serde::Deserialize;

use super::zoo;

#[derive(Deserialize)]
struct Measured {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    model: String,
    program: String,
    cards: usize,
    args: String,
    #[serde(default)]
    compute: Vec<f64>,
    kv: Option<f64>,
    host: Option<f64>,
}

fn model(name: &str) -> Model {
    zoo::read(&plimsoll_specimens::shape(name).unwrap().files(1)[0])
}

fn planned(row: &Row) -> Plan {
    let argv: Vec<String> = row.args.split_whitespace().map(str::to_owned).collect();
    let program = ProgramKind::from_name(&row.program).unwrap();
    let cards: Vec<Card> =
        (0..row.cards).map(|i| format!("name=card{i},total=80GiB,cc=8.9").parse().unwrap()).collect();
    plan(&PlanRequest {
        model: &model(&row.model),
        draft: None,
        projector: None,
        params: &Options::from_argv(&argv).unwrap().params(program).unwrap(),
        engine: EngineBuild::LLAMA_CPP,
        program,
        cards: &cards,
        contexts: &[],
        processor: None,
    })
    .unwrap()
}

/// MiB of room for the last printed digit and for what the notes cut off.
const ROUNDING: f64 = 1.0;

#[test]
fn several_cards_latent_attention_and_offloaded_experts_match() {
    let measured: Measured =
        serde_json::from_str(include_str!("../../../data/measured/phantom-b10605.json")).unwrap();
    let mut wrong = Vec::new();
    for row in &measured.rows {
        let plan = planned(row);
        let sum = |bytes: Vec<Bytes>| bytes.into_iter().sum::<Bytes>();
        let mut pairs: Vec<(&str, f64, Bytes)> = Vec::new();
        for (stated, card) in row.compute.iter().zip(&plan.cards) {
            pairs.push(("compute", *stated, card.terms.compute.known()));
        }
        if let Some(stated) = row.kv {
            pairs.push(("KV", stated, sum(plan.cards.iter().map(|card| card.terms.kv.known()).collect())));
        }
        if let Some(stated) = row.host {
            pairs.push(("host compute", stated, plan.host.terms.compute.known()));
        }
        for (term, stated, planned) in pairs {
            let mib = f64::from(u32::try_from(planned.get() >> 10).unwrap()) / 1024.0;
            println!("| {} | `{}` | {term} | {stated} | {mib:.2} |", row.model, row.args);
            if (mib - stated).abs() >= ROUNDING {
                wrong.push(format!("{} {}: {term} {stated}, planned {mib:.2}", row.model, row.args));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
