//! The default plan against what llama-server says of itself without a GPU (`data/measured/cpu-0.6.0-dev.json`).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "measured/shapes.rs"]
mod shapes;

use plimsoll_core::bytes::Bytes;
use plimsoll_core::flags::{self, Options};
use plimsoll_core::place::{Card, CardId, CardKind};
use plimsoll_core::plan::{Engine, EngineKind, PlanRequest, Program, plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct Measured {
    weights: f64,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    args: String,
    kv: f64,
    compute: f64,
    output: f64,
}

const B11549: Engine = Engine {
    kind: EngineKind::LlamaCpp,
    build: Some(11_549),
};

fn host() -> Card {
    Card {
        id: CardId::new("host"),
        kind: CardKind::Host,
        name: "host memory".to_owned(),
        uuid: None,
        total: Bytes::gib(8),
        free: Bytes::gib(8),
        compute_capability: None,
        legacy_pool: false,
    }
}

/// Hundredths of a MiB, as the engine prints them.
fn hundredths(bytes: Option<Bytes>) -> u64 {
    bytes.unwrap().scaled(200, 1 << 20).get().div_ceil(2)
}

fn printed(mib: f64) -> u64 {
    format!("{:.0}", mib * 100.0).parse().unwrap()
}

#[test]
fn a_plan_for_the_host_is_what_the_engine_prints() {
    let measured: Measured =
        serde_json::from_str(include_str!("../../../data/measured/cpu-0.6.0-dev.json")).unwrap();
    let model = shapes::model("words");
    let cards = [host()];
    println!("| flags | KV | compute | output |");
    let mut wrong = Vec::new();
    for row in &measured.rows {
        let argv: Vec<String> = row.args.split_whitespace().map(str::to_owned).collect();
        let wish = Options::from_argv(&argv)
            .unwrap()
            .wish(flags::Program::Server)
            .unwrap();
        let plan = plan(&PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            wish: &wish,
            engine: B11549,
            program: Program::LlamaServer,
            cards: &cards,
        })
        .unwrap();
        let host = &plan.host.terms;
        assert_eq!(plan.cards[0].peak, plan.host.peak);
        let pairs = [
            ("weights", measured.weights, host.weights.bytes),
            ("KV", row.kv, host.kv.bytes),
            ("compute", row.compute, host.compute.bytes),
            ("output", row.output, host.output.bytes),
        ];
        for (term, said, planned) in pairs {
            println!(
                "| {} | {term} | {} | {} |",
                row.args,
                printed(said),
                hundredths(planned)
            );
            // with embeddings every token is an output; the engine allocates those with the first request
            let later = term == "output" && row.args.contains("--embeddings");
            if !later && printed(said).abs_diff(hundredths(planned)) > 1 {
                wrong.push(format!(
                    "{}: {term} {said} MiB, planned {} B",
                    row.args,
                    planned.unwrap().get()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
