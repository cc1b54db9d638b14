//! Tests of predicted speeds against llama.cpp 0.5.0 on an NVIDIA H200
//! (`data/measured/h200-speed-0.5.0.json`).
//!
//! The rates are fitted to three synthetic models (`h200-speed-rates-2-0.5.0.json`), none of which is here.
//! `cargo test -p plimsoll-planner runner::speed -- --nocapture` prints the table.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::sync::LazyLock;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::{EngineBuild, PlanRequest, SpeedRange, plan, speed};
use plimsoll_specimens::{ExpertSizes, Kinds, Recipe};
use serde::Deserialize;

use super::zoo;

#[derive(Deserialize)]
struct Measured {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    model: String,
    flags: Vec<String>,
    /// Tokens of the prompt, after which 64 tokens were generated.
    depth: u64,
    /// Threads of the host, for rows with a part of the model in its memory.
    threads: Option<u32>,
    prompt_ms: f64,
    predicted_n: f64,
    predicted_ms: f64,
}

/// A row beside its prediction.
struct Compared {
    row: Row,
    /// Predicted time over measured time, minus 1, in percent.
    decode: f64,
    prefill: Option<f64>,
    /// The measured speed lies within the predicted range.
    within: bool,
}

const H200: &str = "name=H200,total=143771MiB,free=143000MiB,cc=9.0";
const HYBRIDS_AND_EXPERTS: [&str; 9] = [
    "q30",
    "oss",
    "granite-h-tiny",
    "qwen35-9b",
    "olmoe-7b",
    "ernie-21b",
    "nemotron-h-9b",
    "hunyuan-moe",
    "lfm2-8b",
];

fn model(name: &str) -> Model {
    let shape = plimsoll_specimens::shape(name).map(|shape| shape.files(1).remove(0));
    zoo::read(&shape.or_else(|| plimsoll_specimens::specimen(name)).unwrap())
}

fn with_request<T>(model: &Model, flags: &[String], card: &str, ask: impl Fn(&PlanRequest<'_>) -> T) -> T {
    let params = Options::from_argv(flags).unwrap().params(ProgramKind::LlamaServer).unwrap();
    let cards: [Card; 1] = [card.parse().unwrap()];
    ask(&PlanRequest {
        model,
        draft: None,
        projector: None,
        params: &params,
        engine: EngineBuild::LLAMA_CPP,
        program: ProgramKind::LlamaServer,
        cards: &cards,
        contexts: &[],
        processor: None,
    })
}

/// The rows of 12 models, which the tests share because their headers are large.
static COMPARED: LazyLock<Vec<Compared>> =
    LazyLock::new(|| compared(include_str!("../../../data/measured/h200-speed-0.5.0.json"), model));

fn compared(text: &str, model: impl Fn(&str) -> Model) -> Vec<Compared> {
    let rows = serde_json::from_str::<Measured>(text).unwrap().rows;
    let mut models = HashMap::new();
    let compare = |row: Row| {
        let model = models.entry(row.model.clone()).or_insert_with(|| model(&row.model));
        compare(row, model)
    };
    rows.into_iter().map(compare).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a depth has few digits")]
fn compare(row: Row, model: &Model) -> Compared {
    let speed = with_request(model, &row.flags, H200, |request| speed(request, row.depth).unwrap());
    let decode = speed.decode_at_depth.unwrap();
    let measured = 1000.0 * row.predicted_n / row.predicted_ms;
    let error =
        |predicted: &SpeedRange, measured: f64| 100.0 * (measured / predicted.likely.per_second() - 1.0);
    let prompt = 1000.0 * row.depth as f64 / row.prompt_ms;
    let compared = Compared {
        decode: error(&decode, measured),
        prefill: speed.prefill_at_depth.map(|speed| error(&speed, prompt)),
        within: (decode.low.per_second()..=decode.high.per_second()).contains(&measured),
        row,
    };
    let Compared { row, decode, prefill, .. } = &compared;
    println!("{:<15}{:>6} {decode:>6.1} {prefill:>7.1?}  {}", row.model, row.depth, row.flags.join(" "));
    compared
}

fn mean(errors: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = errors.clone().fold(0.0, |count, _| count + 1.0);
    errors.map(f64::abs).sum::<f64>() / count
}

fn worst(errors: impl Iterator<Item = f64>) -> f64 {
    errors.map(f64::abs).fold(0.0, f64::max)
}

/// Answers on a card alone hold the bounds: 8 % in the mean, 20 % for a dense model, 25 % for others.
fn assert_answers(rows: &[&Compared]) {
    let is_mixed = |it: &&&Compared| HYBRIDS_AND_EXPERTS.contains(&it.row.model.as_str());
    let error = |it: &&Compared| it.decode;
    let (all, mixed) = (mean(rows.iter().map(error)), worst(rows.iter().filter(is_mixed).map(error)));
    let dense = worst(rows.iter().filter(|it| !is_mixed(it)).map(error));
    println!("mean {all:.1}, worst of dense models {dense:.1}, of hybrids and experts {mixed:.1}");
    assert!(all <= 8.0 && dense <= 20.0 && mixed <= 25.0, "{all:.1} {dense:.1} {mixed:.1}");
    assert!(rows.iter().all(|it| it.within), "a row lies outside of its range");
}

/// Prompts on a card alone are predicted within 20 % in the mean of each length.
fn assert_prompts<'a>(rows: impl Iterator<Item = &'a Compared> + Clone) {
    for depth in [4096, 16_384] {
        let errors = rows.clone().filter(|it| it.row.depth == depth && it.row.threads.is_none());
        let mean = mean(errors.filter_map(|it| it.prefill));
        println!("{depth}: mean {mean:.1}");
        assert!(mean <= 20.0, "{depth}: {mean:.1}");
    }
}

#[test]
fn answers_on_a_card_are_predicted_within_eight_percent_in_the_mean() {
    let rows: Vec<&Compared> = COMPARED.iter().filter(|it| it.row.threads.is_none()).collect();
    assert_eq!(rows.len(), 12 * 4 * 2);
    assert_answers(&rows);
}

#[test]
fn answers_with_layers_or_experts_on_the_host_are_predicted_within_twenty_percent() {
    let rows: Vec<&Compared> = COMPARED.iter().filter(|it| it.row.threads.is_some()).collect();
    assert_eq!(rows.len(), 18);
    let worst = worst(rows.iter().map(|it| it.decode));
    println!("worst {worst:.1}");
    assert!(worst <= 20.0, "{worst:.1}");
    assert!(rows.iter().all(|it| it.within));
    // The synthetic models send all tokens to the same experts, so that only those move to the card.
    let dense = rows.iter().filter(|it| it.row.model == "l8").filter_map(|it| it.prefill);
    let prompts = mean(dense);
    println!("prompts {prompts:.1}");
    assert!(prompts <= 25.0, "{prompts:.1}");
}

#[test]
fn prompts_of_4096_and_of_16384_tokens_are_predicted_within_twenty_percent_in_the_mean() {
    assert_prompts(COMPARED.iter());
}

#[test]
fn three_models_that_were_sealed_for_the_rates_before_hold_the_bounds() {
    let rows = compared(include_str!("../../../data/measured/h200-speed-sealed-0.5.0.json"), sealed);
    assert_eq!(rows.len(), 3 * 5 * 2);
    assert_answers(&rows.iter().collect::<Vec<_>>());
    assert_prompts(rows.iter());
}

/// Four models that were opened once the rates were final.
#[test]
fn four_sealed_models_hold_the_bounds() {
    let rows = compared(include_str!("../../../data/measured/h200-speed-sealed-2-0.5.0.json"), sealed);
    assert_eq!(rows.len(), 4 * 6 * 2);
    assert_answers(&rows.iter().collect::<Vec<_>>());
    assert_prompts(rows.iter());
}

/// Four models of other families, opened after the last change of form and rates.
#[test]
fn four_models_of_the_last_seal_hold_the_bounds() {
    let rows = compared(include_str!("../../../data/measured/h200-speed-sealed-3-0.5.0.json"), sealed);
    assert_eq!(rows.len(), 4 * 5 * 2);
    assert_answers(&rows.iter().collect::<Vec<_>>());
    assert_prompts(rows.iter());
}

/// The models of `bench/gpu/speed.py sealed`, of today and of before.
fn sealed(name: &str) -> Model {
    if let Some(file) = plimsoll_specimens::specimen(name) {
        return zoo::read(&file);
    }
    let shape = |name| plimsoll_specimens::shape(name).unwrap();
    let (l8, q30, qwen3) = (shape("l8"), shape("q30"), shape("qwen3-4b"));
    let recipe = match name {
        "nemo-12b" => Recipe { layers: 40, embedding: 5120, vocabulary: 131_072, ..l8 },
        "olmoe-7b" => Recipe {
            layers: 16,
            vocabulary: 50_304,
            heads: 16,
            heads_kv: 16,
            experts: ExpertSizes { count: 64, used: 8, feed_forward: 1024 },
            kinds: l8.kinds,
            ..q30
        },
        "qwen3-1b7-q8" => Recipe {
            layers: 28,
            embedding: 2048,
            feed_forward: 6144,
            heads: 16,
            kinds: Kinds { output: None, ..q30.kinds },
            ..qwen3
        },
        "small-24b" => {
            Recipe { layers: 40, embedding: 5120, feed_forward: 32_768, vocabulary: 131_072, ..l8 }
        }
        "smol-1b7-q8" => Recipe {
            layers: 24,
            embedding: 2048,
            feed_forward: 8192,
            vocabulary: 49_152,
            heads_kv: 32,
            head_length: 64,
            kinds: Kinds { output: None, ..q30.kinds },
            ..l8
        },
        "ernie-21b" => Recipe {
            layers: 28,
            embedding: 2560,
            vocabulary: 103_424,
            heads: 20,
            experts: ExpertSizes { count: 64, used: 6, feed_forward: 1536 },
            kinds: l8.kinds,
            ..q30
        },
        "qwen3-14b" => {
            Recipe { layers: 40, embedding: 5120, feed_forward: 17_408, heads: 40, kinds: l8.kinds, ..qwen3 }
        }
        "granite-2b" => Recipe {
            layers: 40,
            embedding: 2048,
            feed_forward: 8192,
            vocabulary: 49_152,
            head_length: 64,
            kinds: qwen3.kinds,
            ..l8
        },
        "hunyuan-moe" => Recipe {
            layers: 24,
            embedding: 3072,
            vocabulary: 128_256,
            heads: 24,
            heads_kv: 8,
            experts: ExpertSizes { count: 32, used: 4, feed_forward: 2048 },
            ..q30
        },
        _ => panic!("no sealed model is called {name}"),
    };
    let mut file = recipe.files(1).remove(0);
    let spared = file.tensors.iter_mut().filter(|tensor| tensor.name.contains("ffn_down_exps"));
    spared.for_each(|tensor| tensor.kind = l8.kinds.spared);
    zoo::read(&file)
}

#[test]
fn a_model_that_does_not_fit_and_a_card_without_rates_have_no_speed() {
    let flags = ["-ngl".to_owned(), "99".to_owned()];
    let model = model("l8");
    let speed = |card| with_request(&model, &flags, card, |request| plan(request).unwrap().speed);
    let small = speed("name=H200,total=4GiB,cc=9.0");
    assert!(small.decode.is_none() && small.unknown.unwrap().starts_with("unusable"), "{small:?}");
    let unknown = speed("name=Fake 9000,total=80GiB,cc=9.0");
    assert_eq!((unknown.decode, unknown.unknown), (None, Some("no rates of this card were measured")));
    let known = speed(H200);
    let likely = |speed: Option<SpeedRange>| speed.unwrap().likely;
    assert_eq!(known.unknown, None);
    assert!(likely(known.decode) > likely(known.decode_at_depth));
}

#[test]
fn shapes_beyond_any_model_saturate() {
    let mut model = model("q30");
    for tensor in &mut model.tensors {
        tensor.shape = [1 << 32, 1 << 31, tensor.shape[2], 1];
        tensor.bytes = Bytes::new(u64::MAX / 2);
    }
    let flags = ["-ngl".to_owned(), "99".to_owned()];
    let speed = with_request(&model, &flags, H200, |request| speed(request, u64::MAX).unwrap());
    assert!(speed.decode.unwrap().likely.per_second() < 1.0);
}
