//! Tests that plans for AMD's cards, with their margin, cover what HIP and Vulkan engines requested from
//! simulated cards (`data/hip`, `data/vulkan`).

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::{EngineBuild, EngineKind, Plan, PlanRequest, plan};
use serde::Deserialize;

use super::zoo;

#[derive(Deserialize)]
struct Row {
    model: String,
    flags: String,
    /// Allocations in order, in bytes; below 0 is a free.
    events: Vec<i64>,
}

/// What the engine holds at the end.
fn held(row: &Row) -> Bytes {
    Bytes::new(u64::try_from(row.events.iter().sum::<i64>()).unwrap())
}

fn model(name: &str) -> Model {
    let draft = plimsoll_specimens::specimen(name)
        .unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0));
    zoo::read(&draft)
}

fn planned(model: &Model, flags: &str, card: &str) -> Plan {
    let cards: [Card; 1] = [card.parse().unwrap()];
    let argv: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    plan(&PlanRequest {
        model,
        draft: None,
        projector: None,
        params: &Options::from_argv(&argv).unwrap().params(ProgramKind::LlamaServer).unwrap(),
        engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(11_669) },
        program: ProgramKind::LlamaServer,
        cards: &cards,
        contexts: &[],
        processor: None,
    })
    .unwrap()
}

/// All that an engine allocates with its driver: on the card, and pinned on the host.
fn sum(plan: &Plan) -> Bytes {
    let (card, host) = (&plan.cards[0].terms, &plan.host.terms);
    [&card.weights, &card.kv, &card.compute, &host.compute, &host.output]
        .map(|term| term.known())
        .into_iter()
        .sum()
}

#[test]
fn no_engine_with_hip_or_vulkan_took_more_than_the_plan_with_its_margin() {
    let sources = [
        include_str!("../../../data/hip/debian-0.7.0.json"),
        include_str!("../../../data/vulkan/lavapipe-0.5.0.json"),
        include_str!("../../../data/vulkan/lavapipe-0.7.0.json"),
    ];
    let (mut models, mut wrong) = (BTreeMap::new(), Vec::new());
    for (source, text) in sources.into_iter().enumerate() {
        let rows: Vec<Row> = serde_json::from_str(text).unwrap();
        assert_eq!(rows.len(), 45);
        for row in &rows {
            let model = models.entry(row.model.clone()).or_insert_with(|| model(&row.model));
            let plan = planned(model, &row.flags, "name=AMD Radeon,total=96GiB");
            let (ours, theirs) = (sum(&plan), held(row));
            if ours < theirs {
                wrong.push(format!("{source} {} {}: {ours} is less than {theirs}", row.model, row.flags));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_margin_is_stated_and_a_card_of_nvidias_has_none() {
    let model = model("l8");
    let (on, off) = ("-c 8192 -fa on", "-c 8192 -fa off");
    let of = |flags, card: &str| planned(&model, flags, &format!("name={card},total=96GiB"));
    let compute = |plan: &Plan| plan.cards[0].terms.compute.known();
    let stated = |plan: &Plan| {
        let mut reasons = plan.warnings.iter().chain(&plan.reasons);
        reasons.find(|reason| reason.code == "margin").map(|reason| reason.text.clone())
    };
    let (nvidia, amd) = (of(on, "H200"), of(on, "AMD Radeon RX 7900 XTX"));
    assert_eq!((stated(&nvidia), compute(&amd)), (None, compute(&nvidia) + Bytes::mib(128)));
    assert!(stated(&amd).unwrap().contains("adds a margin of 128 MiB"));
    let (cuda, either) = (of(off, "H200"), of(off, "AMD Radeon RX 7900 XTX"));
    assert_eq!(compute(&either), compute(&cuda) + compute(&cuda) + Bytes::mib(128));
    let hip = of("-c 8192 -fa off -dev ROCm0", "AMD Radeon RX 7900 XTX");
    assert_eq!(compute(&hip), compute(&cuda) + Bytes::mib(128), "-dev says that it is not Vulkan");
    // One layer's keys and values of 8 heads of 128, as f16, for each token of depth.
    let (short, long) = (of(on, "Intel Arc B580"), of("-c 32768 -fa on", "Intel Arc B580"));
    let pool = |plan: &Plan| plan.cards[0].terms.pool.known();
    assert!(pool(&long) >= Bytes::mib(128) && pool(&short) >= Bytes::mib(32), "{:?}", pool(&long));
}

#[test]
fn an_error_of_the_formulas_is_stated_where_the_margin_does_not_cover_it() {
    let mut model = model("l8");
    let stated = |model: &Model, flags: &str, card: &str| {
        let plan = planned(model, flags, &format!("name={card},total=96GiB"));
        let error = plan.warnings.iter().find(|reason| reason.code == "formulas_off");
        error.map(|reason| reason.text.clone())
    };
    // Without flash attention an engine with Vulkan took 1028 MiB more; the doubled buffer covers it.
    for card in ["Intel Arc B580", "AMD Radeon RX 7900 XTX"] {
        for flags in ["-c 8192 -fa on", "-c 8192 -fa off"] {
            assert_eq!(stated(&model, flags, card), None, "{card} {flags}");
        }
    }
    model.architecture = "grok".to_owned();
    let grok = stated(&model, "-c 8192 -fa on", "Intel Arc B580").unwrap();
    assert!(grok.contains("up to 514 MiB too low"), "{grok}");
}
