//! Tests of the planner's formulas against the HIP backend of Debian's llama.cpp 0.7.0, run without a card
//! (`data/hip`).
//!
//! The formulas mirror an older engine, so each row states the allowed difference. `cargo test -p
//! plimsoll-planner runner::hip -- --nocapture` prints the table.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::exact::BufferKind::{Cache, Compute, Output, Weights};
use plimsoll_planner::exact::BufferPlace::{Card, Host};
use plimsoll_planner::exact::Transcript;
use plimsoll_planner::{EngineBuild, EngineKind, PlanRequest, plan};
use serde::Deserialize;

use super::zoo;

const TERMS: [&str; 6] = ["weights", "kv", "compute", "host weights", "host compute", "host output"];
/// The engine's lines have two digits of a MiB.
const OFF: f64 = 0.02;

#[derive(Deserialize)]
struct Row {
    model: String,
    flags: String,
    /// The engine's lines on its buffers.
    log: Vec<String>,
    /// Closed form less engine, in MiB, of the terms that are not equal.
    off: BTreeMap<String, f64>,
}

fn mib(bytes: Bytes) -> f64 {
    f64::from(u32::try_from(bytes.get() >> 10).unwrap()) / 1024.0
}

fn model(name: &str) -> Model {
    let draft = plimsoll_specimens::specimen(name)
        .unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0));
    zoo::read(&draft)
}

#[test]
fn the_closed_forms_miss_a_newer_engine_on_hip_by_what_is_recorded() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../../../data/hip/debian-0.7.0.json")).unwrap();
    assert_eq!(rows.len(), 45);
    let cards = ["name=card,total=96GiB,cc=8.9".parse().unwrap()];
    let (mut models, mut wrong) = (BTreeMap::new(), Vec::new());
    println!("| model | flags | {} |\n|---|---|{}", TERMS.join(" | "), "---|".repeat(TERMS.len()));
    for row in &rows {
        let model = models.entry(row.model.as_str()).or_insert_with(|| model(&row.model));
        let argv: Vec<String> =
            row.flags.split_whitespace().chain(["-dev", "ROCm0"]).map(str::to_owned).collect();
        let params = Options::from_argv(&argv).unwrap().params(ProgramKind::LlamaServer).unwrap();
        let plan = plan(&PlanRequest {
            model,
            draft: None,
            projector: None,
            params: &params,
            engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(11_669) },
            program: ProgramKind::LlamaServer,
            cards: &cards,
            contexts: &[],
            processor: None,
        })
        .unwrap();
        let (card, host) = (&plan.cards[0].terms, &plan.host.terms);
        let ours = [&card.weights, &card.kv, &card.compute, &host.weights, &host.compute, &host.output];
        let stated = Transcript::read(&row.log.join("\n"));
        let buffers = [
            (Card(0), Weights),
            (Card(0), Cache),
            (Card(0), Compute),
            (Host, Weights),
            (Host, Compute),
            (Host, Output),
        ];
        let theirs = buffers.map(|(place, kind)| mib(stated.sum(place, kind)));
        let mut cells = Vec::new();
        for ((term, ours), theirs) in TERMS.into_iter().zip(ours).zip(theirs) {
            let (off, recorded) = (mib(ours.known()) - theirs, row.off.get(term).copied().unwrap_or(0.0));
            cells.push(format!("{theirs:.2} {off:+.2}"));
            if (off - recorded).abs() > OFF {
                wrong.push(format!(
                    "{} {} {term}: off by {off:+.2}, not {recorded:+.2}",
                    row.model, row.flags
                ));
            }
        }
        println!("| {} | `{}` | {} |", row.model, row.flags, cells.join(" | "));
        // Such a plan says so itself.
        let stated = plan.warnings.iter().chain(&plan.reasons).any(|reason| reason.code == "formulas_off");
        let missed = row.off.get("compute").is_some_and(|off| off.abs() > 1.0);
        assert!(stated || !missed, "{} {}", row.model, row.flags);
    }
    assert!(wrong.is_empty(), "{} terms\n{}", wrong.len(), wrong.join("\n"));
}
