//! The part of a command line that memory depends on, with the engine's defaults filled in.
//!
//! Defaults are llama-server's (`common/common.h: common_params @ b10605`), not those of the C API, which
//! differ (`swa_full`).

use crate::model::TensorType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLayers {
    /// Not given: as many as fit; planned as all.
    Auto,
    All,
    Count(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitMode {
    None,
    Layer,
    Row,
    Tensor,
}

/// `-np`: how many requests at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// Not given: llama-server takes 4 with a unified cache, other programs 1.
    Auto,
    Count(u32),
}

/// One `-ot PATTERN=BUFFER`; the first whose pattern matches a tensor's name wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferOverride {
    pub pattern: String,
    /// `CPU`, `CUDA0`, …
    pub buffer: String,
}

/// Which of llama.cpp's programs reads the flags: their defaults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Server,
    /// llama-cli, llama-perplexity and the rest.
    Other,
}

/// What the user wants of an engine, as far as memory goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    pub model: Option<String>,
    /// Where the model comes from when it is no local file: a Hugging Face or Docker repository, or an address.
    pub remote: Option<String>,
    pub draft_model: Option<String>,
    pub projector: Option<String>,
    pub adapters: Vec<String>,
    /// `-c`; 0 is the model's own training context.
    pub context: u32,
    pub batch: u32,
    pub micro_batch: u32,
    pub parallel: Parallel,
    /// `-kvu`; `None` when not given.
    pub unified_cache: Option<bool>,
    pub cache_key: TensorType,
    pub cache_value: TensorType,
    pub flash_attention: FlashAttention,
    pub gpu_layers: GpuLayers,
    pub split_mode: SplitMode,
    /// `-ts`; empty when not given.
    pub tensor_split: Vec<f32>,
    pub main_gpu: u32,
    /// `-dev`; empty when not given, `["none"]` for no card.
    pub devices: Vec<String>,
    pub cache_offload: bool,
    pub op_offload: bool,
    pub full_sliding_cache: bool,
    pub overrides: Vec<BufferOverride>,
    /// `--cpu-moe` is `u32::MAX` layers, `--n-cpu-moe N` is N.
    pub experts_on_host: u32,
    pub embeddings: bool,
    pub rerank: bool,
    pub mmap: bool,
    /// `--spec-draft-n-max`; only with a draft model or MTP.
    pub draft_tokens: u32,
    pub draft_context: u32,
    pub draft_gpu_layers: GpuLayers,
}
