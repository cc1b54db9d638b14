//! Tests of plans for the CPU against llama-server's own log on a machine without a GPU
//! (`data/measured/cpu-0.6.0-dev.json`).
#![allow(clippy::print_stdout)]

use plimsoll_base::{Bytes, Card, CardId, CardKind, Counting};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_model::gguf::DraftHeader;
use plimsoll_model::types::F32;
use plimsoll_planner::{EngineBuild, EngineKind, PlanRequest, plan};
use serde::Deserialize;

use super::{shapes, zoo};

#[derive(Deserialize)]
struct Measured {
    weights: f64,
    rows: Vec<Row>,
    families: Vec<FamilyRow>,
}

#[derive(Deserialize)]
struct FamilyRow {
    architecture: String,
    parts: Vec<String>,
    window: u32,
    args: String,
    kv: f64,
    compute: f64,
}

#[derive(Deserialize)]
struct Row {
    args: String,
    kv: f64,
    compute: f64,
    output: f64,
}

const B11549: EngineBuild = EngineBuild { kind: EngineKind::LlamaCpp, build: Some(11_549) };

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
        shares_host: false,
        counting: Counting::Driver,
        maker: plimsoll_base::CardMaker::Nvidia,
        address: None,
    }
}

/// Hundredths of a MiB, as the engine prints them.
fn hundredths(bytes: Option<Bytes>) -> u64 {
    bytes.unwrap().scaled(200, 1 << 20).get().div_ceil(2)
}

fn printed(mib: f64) -> u64 {
    format!("{:.0}", mib * 100.0).parse().unwrap()
}

/// A small model of a family, from the parts that make it one.
fn family(row: &FamilyRow) -> Model {
    let keys = shapes::Keys {
        layers: 8,
        context: 4096,
        embedding: 128,
        feed_forward: 384,
        heads: 4,
        heads_kv: 2,
        head_length: 32,
        vocabulary: 259,
        ..shapes::L8
    };
    let mut draft = shapes::plain_llama(&keys);
    let has = |part: &str| row.parts.iter().any(|own| own == part);
    for layer in 0..keys.layers {
        let mut add = |name: &str, shape: &[u32]| {
            shapes::add(&mut draft, &format!("blk.{layer}.{name}.weight"), F32, shape)
        };
        if has("head norms") {
            add("attn_q_norm", &[32]);
            add("attn_k_norm", &[32]);
        }
        if has("post norms") {
            add("post_attention_norm", &[128]);
            add("post_ffw_norm", &[128]);
        }
        if has("experts") {
            add("ffn_gate_inp", &[128, 8]);
            add("ffn_gate_exps", &[128, 384, 8]);
            add("ffn_up_exps", &[128, 384, 8]);
            add("ffn_down_exps", &[384, 128, 8]);
        }
        if has("bias") {
            shapes::add(&mut draft, &format!("blk.{layer}.attn_q.bias"), F32, &[128]);
            shapes::add(&mut draft, &format!("blk.{layer}.attn_k.bias"), F32, &[64]);
            shapes::add(&mut draft, &format!("blk.{layer}.attn_v.bias"), F32, &[64]);
        }
    }
    let dense = ["ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"];
    draft.tensors.retain(|tensor| {
        let replaced = has("experts") && dense.iter().any(|name| tensor.name.ends_with(name));
        let untied = has("tied") && tensor.name == "output.weight";
        !replaced && !untied
    });
    rename(&mut draft, &row.architecture);
    for (key, value) in
        [("expert_count", 8_u32), ("expert_used_count", 2), ("expert_feed_forward_length", 384)]
    {
        if has("experts") {
            draft.put(format!("{}.{key}", row.architecture), value);
        }
    }
    if row.window > 0 {
        draft.put(format!("{}.attention.sliding_window", row.architecture), row.window);
    }
    zoo::read(&draft)
}

fn rename(draft: &mut DraftHeader, architecture: &str) {
    for (key, value) in &mut draft.entries {
        if key == "general.architecture" {
            *value = architecture.into();
        }
        if let Some(rest) = key.strip_prefix("llama.") {
            *key = format!("{architecture}.{rest}");
        }
    }
}

#[test]
fn every_family_equals_the_engines_log() {
    let measured: Measured =
        serde_json::from_str(include_str!("../../../data/measured/cpu-0.6.0-dev.json")).unwrap();
    let cards = [host()];
    let mut wrong = Vec::new();
    for row in &measured.families {
        let argv: Vec<String> = row.args.split_whitespace().map(str::to_owned).collect();
        let params = Options::from_argv(&argv).unwrap().params(ProgramKind::LlamaServer).unwrap();
        let model = family(row);
        let plan = plan(&PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            params: &params,
            engine: B11549,
            program: ProgramKind::LlamaServer,
            cards: &cards,
            contexts: &[],
            processor: None,
        })
        .unwrap();
        let host = &plan.host.terms;
        for (term, stated, planned) in
            [("KV", row.kv, host.kv.bytes), ("compute", row.compute, host.compute.bytes)]
        {
            println!(
                "| {} | {} | {term} | {} | {} |",
                row.architecture,
                row.args,
                printed(stated),
                hundredths(planned)
            );
            if printed(stated).abs_diff(hundredths(planned)) > 1 {
                wrong.push(format!(
                    "{} {}: {term} {stated} MiB, planned {} B",
                    row.architecture,
                    row.args,
                    planned.unwrap().get()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_plan_for_the_host_equals_the_engines_log() {
    let measured: Measured =
        serde_json::from_str(include_str!("../../../data/measured/cpu-0.6.0-dev.json")).unwrap();
    let model = shapes::model("words");
    let cards = [host()];
    println!("| flags | KV | compute | output |");
    let mut wrong = Vec::new();
    for row in &measured.rows {
        let argv: Vec<String> = row.args.split_whitespace().map(str::to_owned).collect();
        let params = Options::from_argv(&argv).unwrap().params(ProgramKind::LlamaServer).unwrap();
        let plan = plan(&PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            params: &params,
            engine: B11549,
            program: ProgramKind::LlamaServer,
            cards: &cards,
            contexts: &[],
            processor: None,
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
        for (term, stated, planned) in pairs {
            println!("| {} | {term} | {} | {} |", row.args, printed(stated), hundredths(planned));
            // with embeddings every token is an output; the engine allocates those with the first request
            let later = term == "output" && row.args.contains("--embeddings");
            if !later && printed(stated).abs_diff(hundredths(planned)) > 1 {
                wrong.push(format!(
                    "{}: {term} {stated} MiB, planned {} B",
                    row.args,
                    planned.unwrap().get()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
