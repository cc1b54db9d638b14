//! Tests of plans for models with layers that predict further tokens (MTP), against recorded logs of
//! llama.cpp 0.5.0 on simulated cards (`data/exact/b11063-predictions.json`).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::Bytes;
use plimsoll_planner::exact::EngineSizes;
use plimsoll_planner::{Plan, plan};

use super::{Recorded, Requested, Row, joined, mib, show, terms};

fn recorded() -> Recorded {
    joined(&[include_str!("../../../../data/exact/b11063-predictions.json")])
}

/// The engine's terms of a row, and the default plan.
fn both(row: &Row, models: &mut BTreeMap<String, plimsoll_model::Model>, build: u32) -> (Plan, Plan) {
    let requested = Requested::of(row, models);
    let request = requested.request(build);
    let transcript = row.stated();
    let stated = EngineSizes { request: &request, transcript: &transcript, program: "llama-server" };
    (stated.plan(Ok(None)).unwrap(), plan(&request).unwrap())
}

#[test]
fn a_prediction_layers_context_is_planned_as_the_engine_reserves_it() {
    let recorded = recorded();
    let mut models = BTreeMap::new();
    let mut wrong: Vec<String> = Vec::new();
    let mut apart: Vec<String> = Vec::new();
    let mut predicted = BTreeSet::new();
    for row in &recorded.rows {
        let (stated, ours) = both(row, &mut models, recorded.build);
        if row.args.contains("draft-mtp") {
            predicted.insert((models[&row.model].architecture.clone(), row.args.clone()));
        }
        for card in 0..row.cards {
            let (theirs, ours) = (terms(&stated, card), terms(&ours, card));
            let off = [0, 1, 2].map(|term| (mib(ours[term]) - mib(theirs[term])).abs());
            println!("{} `{}` {card}: engine {}, planned {}", row.model, row.args, show(theirs), show(ours));
            let text = || {
                let (model, args) = (&row.model, &row.args);
                format!("{model} {args} card {card}: engine {}, planned {}", show(theirs), show(ours))
            };
            if off[0] > 1.0 || off[1] > 1.0 || off[2] > 16.0 {
                wrong.push(text());
            }
            if off[2] > 1.0 {
                apart.push(text());
            }
        }
    }
    let architectures: BTreeSet<_> = predicted.iter().map(|(architecture, _)| architecture).collect();
    assert!(architectures.len() >= 4 && predicted.len() >= 36, "{architectures:?} {}", predicted.len());
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    // Where layers are on the host, the inputs of the prediction are counted twice.
    assert!(apart.len() <= 1, "{} rows:\n{}", apart.len(), apart.join("\n"));
}

/// Figures that users printed or measured: the MTP context's own, and what the process takes more of a card.
#[test]
fn the_figures_that_users_printed_are_planned() {
    let recorded = recorded();
    let mut models = BTreeMap::new();
    let mut of = |args: &str| {
        let row = recorded.rows.iter().find(|row| row.model == "qwen36-27b-mtp" && row.args == args).unwrap();
        both(row, &mut models, recorded.build).1
    };
    let cache = |plan: &Plan| mib(terms(plan, 0)[1]);
    let compute = |plan: &Plan| mib(terms(plan, 0)[2]);
    let near = |ours: f64, printed: f64| assert!((ours - printed).abs() < 0.02, "{ours} for {printed}");
    // "estimated memory usage of MTP context is 552.06 MiB", of which 32 are a cache of 8192 tokens.
    let printed = of("-c 8192 -ub 2048 -np 1 -fa on --spec-type draft-mtp");
    near(compute(&printed), 2.0 * 520.06);
    near(cache(&printed), 512.0 + 4.0 * 149.625 + 32.0);
    // 581.77: 411 and 170.77.
    let printed = of("-c 105216 -np 1 -fa on --spec-type draft-mtp");
    near(compute(&printed), 224.77 + 170.77);
    near(cache(&printed), 6576.0 + 4.0 * 149.625 + 411.0);
    // Measured of the whole process: between what is loaded and what it may grow to, and within 2 % of the
    // whole.
    for (context, tokens, measured) in [(131_072, 2, 1292.0), (262_144, 2, 1932.0), (131_072, 4, 1630.0)] {
        let plain = of(&format!("-c {context} -np 1 -fa on"));
        let drafts = format!("--spec-type draft-mtp --spec-draft-n-max {tokens}");
        let with = of(&format!("-c {context} -np 1 -fa on {drafts}"));
        let more = |of: fn(&Plan) -> Bytes| mib(of(&with)) - mib(of(&plain));
        let (loaded, peak) = (more(|plan| plan.cards[0].loaded), more(|plan| plan.cards[0].peak));
        assert!(loaded <= measured && measured <= peak, "{loaded} {measured} {peak}");
        let whole = mib(plain.cards[0].loaded) + measured;
        assert!((mib(with.cards[0].loaded) - whole).abs() < whole * 0.02);
    }
}

/// `-ctk` is of the model's own cache; the prediction layers' has the type of a draft's.
#[test]
fn a_quantised_cache_of_the_model_leaves_that_of_its_prediction_layers_as_it_is() {
    let recorded = recorded();
    let mut models = BTreeMap::new();
    let row = recorded.rows.iter().find(|row| row.args.contains("-ctk q4_0") && !row.args.contains("-ctkd"));
    let (stated, ours) = both(row.unwrap(), &mut models, recorded.build);
    assert!((mib(terms(&stated, 0)[1]) - mib(terms(&ours, 0)[1])).abs() < 0.02);
}

/// Rows of an H200 that have experts: what one kernel computes at once keeps its operands.
#[test]
fn experts_are_planned_as_a_card_of_the_same_build_reserved_them() {
    #[derive(serde::Deserialize)]
    struct Rows {
        rows: Vec<Row>,
    }
    let text = include_str!("../../../../data/measured/h200-rows-0.5.0.json");
    let recorded: Rows = serde_json::from_str(text).unwrap();
    let mut models = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in recorded.rows.iter().filter(|row| row.draft.is_none() && row.projector.is_none()) {
        let (stated, ours) = both(row, &mut models, 11_063);
        for card in 0..row.cards {
            let (theirs, ours) = (terms(&stated, card), terms(&ours, card));
            let routed = models[&row.model].hyper.experts.is_some();
            if routed && (mib(ours[2]) - mib(theirs[2])).abs() > 1.0 {
                wrong.push(format!("{} {}: {} {}", row.model, row.args, show(theirs), show(ours)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows\n{}", wrong.len(), wrong.join("\n"));
}
