//! Command-line arguments of `plimsoll pool` that describe the engine run for which an allocation trace is
//! generated.

use clap::{ArgAction, Args};
use plimsoll_planner::EngineBuild;
use plimsoll_pool::generate::{DemandRules, GeneratedRun, GeneratorCard, ModelShape, Outputs};

use crate::replay::advice::CacheType;

/// First build that reserves the copies of a quantised cache (llama.cpp PR 23907); see `planner::Engine`.
const RESERVES_SINCE: u32 = 9400;

#[derive(Clone, Debug, Args)]
pub(super) struct RunArguments {
    /// Model: llama3-8b, m8, qwen3-30b-a3b, gemma3-12b, gemma4-31b, deepseek-v3, kimi-k2
    #[arg(long, value_parser = shape)]
    pub(super) model: ModelShape,
    /// Type of the KV cache: f16, q8_0, q5_1, q5_0, q4_1, q4_0
    #[arg(long, default_value = "f16", value_parser = cache_type)]
    pub(super) kv: CacheType,
    /// Length of the prompt, in tokens
    #[arg(long, value_name = "TOKENS")]
    pub(super) ctx: u64,
    /// Micro-batch, in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub(super) ub: u64,
    /// Engine: ik, or a build of llama.cpp such as llama-b9000
    #[arg(long, default_value = "b10605", value_parser = engine)]
    pub(super) engine: DemandRules,
    /// Flash attention
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    pub(super) fa: bool,
    /// ik_llama.cpp's -amb: largest size of the keys and values that are decompressed at once, in MiB
    #[arg(long, value_name = "MIB")]
    pub(super) amb: Option<u64>,
    /// Split the prompt into parts of this many tokens, each with an answer; 0 sends the whole prompt at once
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub(super) part: u64,
    /// Tokens of the answer after each part
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub(super) answer: u64,
    /// Run two tokens first, as a server does to warm up
    #[arg(long)]
    pub(super) warm_up: bool,
    /// Compute every layer for every token, and no output matrix; by default, an output is computed for the
    /// last token
    #[arg(long)]
    pub(super) layers_only: bool,
    /// Card: H200, RTX3090
    #[arg(long, default_value = "H200", value_parser = card)]
    pub(super) card: GeneratorCard,
}

impl RunArguments {
    pub(super) fn run(&self) -> GeneratedRun {
        GeneratedRun {
            engine: self.engine,
            cache: self.kv.cache(),
            context: self.ctx,
            micro_batch: self.ub,
            part: self.part,
            answer: self.answer,
            warm_up: self.warm_up,
            outputs: if self.layers_only { Outputs::Layers } else { Outputs::Last },
            flash_attention: self.fa,
            attention_pass: self.amb,
        }
    }
}

fn cache_type(text: &str) -> Result<CacheType, String> {
    one_of(text, CacheType::ALL, |kind| kind.name)
}

fn shape(text: &str) -> Result<ModelShape, String> {
    one_of(text, ModelShape::ALL, |shape| shape.name)
}

fn card(text: &str) -> Result<GeneratorCard, String> {
    one_of(text, GeneratorCard::ALL, |card| card.name)
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

fn engine(text: &str) -> Result<DemandRules, String> {
    if text == "ik" {
        return Ok(DemandRules::Ik);
    }
    match EngineBuild::number_in(text) {
        // Builds differ in one point that the trace shows: copies of the cache in the pool or in the compute
        // buffer.
        Some(Some(build)) if build < RESERVES_SINCE => Ok(DemandRules::Copying),
        Some(_) => Ok(DemandRules::Reserving),
        None => Err("write ik, or a build of llama.cpp such as llama-b9000, b10605 or 0.7.0".to_owned()),
    }
}

/// The one of this name, in any case.
fn one_of<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: fn(&T) -> &'static str,
) -> Result<T, String> {
    let known = all.iter().find(|one| name(one).eq_ignore_ascii_case(text));
    known.copied().ok_or_else(|| format!("there are {}", all.each_ref().map(name).join(", ")))
}
