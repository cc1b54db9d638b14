//! Tests of plans against the memory of whole processes on an NVIDIA H200, measured by nvidia-smi and guard
//! (`data/measured/h200-process-b10605.json`, `h200-growth-b8799.json`).
//!
//! `cargo test -p plimsoll-planner runner::h200 -- --nocapture` prints the tables.
#![allow(clippy::print_stdout)]

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::{EngineBuild, EngineKind, MeasuredContext, Plan, PlanRequest, plan};
use serde::Deserialize;

use super::zoo;

const CARD: &str = "name=H200,total=143771MiB,free=143139MiB,cc=9.0";

#[derive(Deserialize)]
struct Processes {
    rows: Vec<Process>,
}

/// MiB.
#[derive(Deserialize)]
struct Process {
    model: String,
    args: String,
    after_load: u64,
    after_prompt: u64,
}

#[derive(Deserialize)]
struct Growth {
    depth: Vec<Depth>,
    budgets: Vec<Budget>,
    fits: Vec<Fit>,
}

/// MiB of a process that was given a prompt of nearly its whole context.
#[derive(Deserialize)]
struct Depth {
    pool: String,
    kv: String,
    ubatch: u32,
    context: u64,
    after_prompt: u64,
}

/// Bytes by guard's page.
#[derive(Deserialize)]
struct Budget {
    pool: String,
    kv: String,
    budget_mib: u64,
    context: u64,
    counted: Bytes,
    ooms: u64,
}

#[derive(Deserialize)]
struct Fit {
    pool: String,
    kv: String,
    budget_mib: u64,
    best: u64,
    step: u64,
    best_filled: bool,
    one_step_more_filled: bool,
}

fn growth() -> Growth {
    serde_json::from_str(include_str!("../../../data/measured/h200-growth-b8799.json")).unwrap()
}

fn model(name: &str) -> Model {
    let draft = plimsoll_specimens::specimen(name)
        .unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0));
    zoo::read(&draft)
}

fn planned(model: &Model, build: u32, args: &str, card: &str) -> Plan {
    planned_with(model, build, args, card, &[])
}

fn planned_with(model: &Model, build: u32, args: &str, card: &str, contexts: &[MeasuredContext]) -> Plan {
    let argv: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    let card: Card = card.parse().unwrap();
    plan(&PlanRequest {
        model,
        draft: None,
        projector: None,
        params: &Options::from_argv(&argv).unwrap().params(ProgramKind::LlamaServer).unwrap(),
        engine: EngineBuild { kind: EngineKind::LlamaCpp, build: Some(build) },
        program: ProgramKind::LlamaServer,
        cards: &[card],
        contexts,
        processor: None,
    })
    .unwrap()
}

/// Of an engine before b9400, whose pool grows.
fn older(model: &Model, (pool, kv): (&str, &str), ubatch: u32, context: u64, more: &str) -> Plan {
    let args = format!("-ngl 99 -b 2048 -fa on -np 1 -ctk {kv} -ctv {kv} -ub {ubatch} -c {context}");
    planned(model, 8799, &args, &format!("{CARD},pool={pool}{more}"))
}

fn off(planned: Bytes, measured: u64) -> i64 {
    i64::try_from(planned.get() >> 20).unwrap() - i64::try_from(measured).unwrap()
}

#[test]
fn whole_processes_match_after_load_and_after_a_long_prompt() {
    let text = include_str!("../../../data/measured/h200-process-b10605.json");
    let rows = serde_json::from_str::<Processes>(text).unwrap().rows;
    assert_eq!(rows.len(), 36);
    for row in rows {
        let plan = planned(&model(&row.model), 10_605, &format!("-ngl 99 {}", row.args), CARD);
        for (when, planned, measured) in [
            ("after load", plan.cards[0].loaded, row.after_load),
            ("after 30 000 tokens", plan.cards[0].peak, row.after_prompt),
        ] {
            let off = off(planned, measured);
            println!("{:15} {:38} {when:19} {measured:6} {off:+5}", row.model, row.args);
            let bound = (measured * 15 / 1000).max(48);
            assert!(
                off.unsigned_abs() <= bound,
                "{} {} {when}: {off} MiB of {measured}",
                row.model,
                row.args
            );
        }
    }
}

/// A process and what its draft tokens add to it.
#[test]
fn processes_with_draft_tokens_match_within_one_percent_of_what_these_add() {
    #[derive(Deserialize)]
    struct Drafting {
        rows: Vec<DraftRow>,
    }
    #[derive(Deserialize)]
    struct DraftRow {
        drafts: u32,
        after_load: u64,
    }
    let text = include_str!("../../../data/measured/h200-mtp-process-0.5.0.json");
    let rows = serde_json::from_str::<Drafting>(text).unwrap().rows;
    let model = model("qwen36-27b-mtp");
    let loaded = |drafts: u32| {
        let flags = match drafts {
            0 => String::new(),
            _ => format!("--spec-type draft-mtp --spec-draft-n-max {drafts}"),
        };
        planned(&model, 11_063, &format!("-ngl 99 -c 32768 -np 1 -fa on {flags}"), CARD).cards[0].loaded
    };
    let (bare, measured_bare) = (loaded(0), rows[0].after_load);
    assert_eq!((rows.len(), rows[0].drafts), (8, 0));
    for row in &rows {
        let planned = loaded(row.drafts);
        assert!(off(planned, row.after_load).unsigned_abs() <= 10, "{}: {planned}", row.drafts);
        let added = row.after_load.saturating_sub(measured_bare);
        let apart = off(planned.saturating_sub(bare), added).unsigned_abs();
        assert!(apart * 100 <= added.max(400), "{}: {apart} of {added} MiB", row.drafts);
    }
}

#[test]
fn a_growing_pool_matches_at_its_depth() {
    let m8 = model("m8");
    for row in growth().depth {
        let plan = older(&m8, (&row.pool, &row.kv), row.ubatch, row.context, "");
        let off = off(plan.cards[0].peak, row.after_prompt);
        println!("{} {} ub {}: {} MiB {off:+}", row.pool, row.kv, row.ubatch, row.after_prompt);
        assert!(off.unsigned_abs() * 200 <= row.after_prompt, "{off} MiB");
    }
}

#[test]
fn guards_count_is_planned_to_the_byte() {
    let m8 = model("m8");
    let rows = growth().budgets;
    let whole = rows.iter().filter(|row| row.ooms == 0);
    let mut met = 0;
    for row in whole {
        let budget = format!(",budget={}MiB", row.budget_mib);
        let plan = older(&m8, (&row.pool, &row.kv), 512, row.context, &budget);
        assert_eq!(plan.cards[0].peak, row.counted, "{} {} -c {}", row.pool, row.kv, row.context);
        met += 1;
    }
    assert_eq!(met, 12);
}

#[test]
fn the_largest_context_is_the_last_that_survived_on_the_card() {
    let m8 = model("m8");
    for row in growth().fits {
        assert!(row.best_filled && !row.one_step_more_filled);
        let budget = format!(",budget={}MiB", row.budget_mib);
        let at = |context| older(&m8, (&row.pool, &row.kv), 512, context, &budget);
        assert_eq!(at(row.best).largest_context, Some(row.best));
        assert!(at(row.best).fits && !at(row.best + row.step).fits);
    }
}

/// The measurement of `plimsoll measure calibrate` against the published row, which is of other processes:
/// nvidia-smi counts whole pages of 2 MiB, and three of them make the difference.
#[test]
fn calibrate_measures_the_published_values() {
    #[derive(Deserialize)]
    struct Guarded {
        calibrate: Calibrate,
    }
    #[derive(Deserialize)]
    struct Calibrate {
        measured: Measured,
    }
    #[derive(Deserialize)]
    struct Measured {
        contexts: Vec<MeasuredContext>,
    }
    let text = include_str!("../../../data/measured/h200-guard-b10605.json");
    let measured = serde_json::from_str::<Guarded>(text).unwrap().calibrate.measured;
    let m8 = model("m8");
    let peak = |more: &str, contexts: &[MeasuredContext]| {
        let card = format!("{CARD}{more}");
        planned_with(&m8, 10605, "-ngl 99 -c 8192", &card, contexts).cards[0].peak
    };
    assert_eq!(measured.contexts[0].opened, Some(Bytes::mib(518)));
    assert_eq!(peak(",budget=4GiB", &measured.contexts), peak(",budget=4GiB", &[]));
    let off = peak("", &[]).get().abs_diff(peak("", &measured.contexts).get());
    assert!(off <= Bytes::mib(6).get(), "{off}");
}

/// A server that `plimsoll measure sweep` sent prompts of up to 16k tokens to: as planned for its build, and
/// no deeper cache adds to it.
#[test]
fn a_sweep_holds_what_was_planned() {
    #[derive(Deserialize)]
    struct Alongside {
        sweep: Sweep,
    }
    #[derive(Deserialize)]
    struct Sweep {
        /// Tokens, tokens a second of the prompt and of the answer, MiB.
        rows: Vec<[u64; 4]>,
    }
    let text = include_str!("../../../data/measured/h200-beside-b8799.json");
    let rows = serde_json::from_str::<Alongside>(text).unwrap().sweep.rows;
    let flags = "-ngl 99 -c 32768 -np 4 --kv-unified -ub 512 -fa on";
    let plan = planned(&model("m8"), 8799, flags, CARD);
    assert_eq!(rows.len(), 5);
    for [tokens, _, _, occupied] in rows {
        let off = off(plan.cards[0].peak, occupied);
        assert!(off.abs() <= 2, "{tokens} tokens: {off} MiB");
    }
}
