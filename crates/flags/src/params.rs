//! Model parameters that affect memory, with the engine's defaults for those that are not given.
//!
//! The defaults are those of llama-server (`common/common.h: common_params @ b10605`).

use plimsoll_base::Bytes;
use plimsoll_model::{Pooling, TensorType, types};

use super::program::ProgramKind;

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

/// `-np`: the number of parallel requests.
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

/// Maximum tokens of a draft of n-grams, by its kind (`--spec-ngram-*-size-m`, `--spec-ngram-mod-n-max`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NgramTokens {
    pub simple: u32,
    pub map_k: u32,
    pub map_k4v: u32,
    pub modular: u32,
}

/// Source of a model that is not a local file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RemoteSource {
    /// `USER/REPO[:QUANT]` on a Hugging Face hub.
    Hub(String),
    Address(String),
    /// A repository of Docker Hub.
    Docker(String),
}

/// Model parameters that memory depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelParams {
    pub model: Option<String>,
    pub remote: Option<RemoteSource>,
    /// `--hf-file`: the file of the hub's repository, instead of the quantisation.
    pub remote_file: Option<String>,
    pub draft_model: Option<String>,
    pub draft_remote: Option<RemoteSource>,
    pub projector: Option<String>,
    pub projector_remote: Option<RemoteSource>,
    /// A repository's own projector is loaded with its model.
    pub projector_auto: bool,
    /// Nothing is fetched.
    pub offline: bool,
    /// The projector is loaded on a card.
    pub projector_offload: bool,
    pub adapters: Vec<String>,
    pub control_vectors: Vec<String>,
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
    /// `-mg`; `None` when not given, which is 0.
    pub main_gpu: Option<u32>,
    /// `-dev`; empty when not given, `["none"]` for no card.
    pub devices: Vec<String>,
    pub cache_offload: bool,
    pub op_offload: bool,
    pub full_sliding_cache: bool,
    pub overrides: Vec<BufferOverride>,
    /// `--cpu-moe` is `u32::MAX` layers, `--n-cpu-moe N` is N.
    pub experts_on_host: u32,
    pub embeddings: bool,
    /// `--pooling`, and `--rerank`; `None` means the setting in the model file.
    pub pooling: Option<Pooling>,
    pub mmap: bool,
    /// `--fit`: the engine may reduce context and layers to the free memory.
    pub fit: bool,
    /// `--fit-ctx`: but not the context below this.
    pub fit_context: u32,
    /// `-bs`: sampling on the card.
    pub backend_sampling: bool,
    /// `-cram`: prompt cache in host memory; `None` for no limit.
    pub host_cache: Option<Bytes>,
    /// `-ctxcp`: checkpoints of the context in host memory, per slot.
    pub checkpoints: u32,
    /// `--image-max-tokens`.
    pub image_tokens: Option<u32>,
    /// `--spec-type`: as named, e.g. `draft-mtp`.
    pub speculation: Vec<String>,
    /// `--spec-draft-n-max`; only with a draft model or MTP.
    pub draft_tokens: u32,
    /// Tokens of a draft that is made of the prompt's own.
    pub ngram_tokens: NgramTokens,
    /// 0 is that of the main model.
    pub draft_context: u32,
    pub draft_gpu_layers: GpuLayers,
    pub draft_devices: Vec<String>,
    pub draft_cache_key: TensorType,
    pub draft_cache_value: TensorType,
    pub draft_overrides: Vec<BufferOverride>,
    pub draft_experts_on_host: u32,
    /// `--rpc`: servers on other machines that take a part of the model.
    pub rpc_servers: Vec<String>,
    /// `--rope-scaling` and its like: positions are stretched beyond those of the training.
    pub stretched: bool,
    /// ik_llama.cpp's `-mla`; `None` when not given.
    pub latent_attention: Option<u32>,
    /// ik_llama.cpp's `-amb`; `None` when not given.
    pub attention_buffer: Option<Bytes>,
    /// ik_llama.cpp's `-fmoe` and `-no-fmoe`; `None` when not given.
    pub fused_experts: Option<bool>,
    /// `--load-mode mmap+mlock`: pages of the mapped file are locked.
    pub mlock: bool,
    /// `--no-host`: weights in host memory do not lie in a card's own buffers of it.
    pub no_host: bool,
    /// `--repack`: the CPU backend copies quantised weights into a layout of its own.
    pub cpu_repack: bool,
    /// ik_llama.cpp's `-rtr`: weights in host memory are copied into another order.
    pub repack: bool,
}

impl ModelParams {
    /// Sources of the model, the draft and the projector on servers, each where no file of this machine is
    /// named.
    pub fn remote_sources(&self) -> [Option<&RemoteSource>; 3] {
        [
            self.remote.as_ref().filter(|_| self.model.is_none()),
            self.draft_remote.as_ref().filter(|_| self.draft_model.is_none()),
            self.projector_remote.as_ref().filter(|_| self.projector.is_none()),
        ]
    }

    /// Defaults of a program. Programs differ in one thing: only llama-server resolves
    /// [`Parallel::Auto`] to 4 slots; the others decode one sequence.
    pub fn of(program: ProgramKind) -> Self {
        Self {
            model: None,
            remote: None,
            remote_file: None,
            draft_model: None,
            draft_remote: None,
            projector: None,
            projector_remote: None,
            projector_auto: true,
            offline: false,
            projector_offload: true,
            adapters: Vec::new(),
            control_vectors: Vec::new(),
            context: 0,
            batch: 2048,
            micro_batch: 512,
            parallel: match program {
                ProgramKind::LlamaServer => Parallel::Auto,
                ProgramKind::LlamaFitParams | ProgramKind::LlamaCli | ProgramKind::Library => {
                    Parallel::Count(1)
                }
            },
            unified_cache: None,
            cache_key: types::F16,
            cache_value: types::F16,
            flash_attention: FlashAttention::Auto,
            gpu_layers: GpuLayers::Auto,
            split_mode: SplitMode::Layer,
            tensor_split: Vec::new(),
            main_gpu: None,
            devices: Vec::new(),
            cache_offload: true,
            op_offload: true,
            full_sliding_cache: false,
            overrides: Vec::new(),
            experts_on_host: 0,
            embeddings: false,
            pooling: None,
            // The platforms that Plimsoll runs on support it.
            mmap: true,
            // On since `--fit` exists; other programs than llama-server have it as well.
            fit: true,
            fit_context: 4096,
            backend_sampling: false,
            // `common_params::cache_ram_mib`.
            host_cache: Some(Bytes::mib(8192)),
            // `common_params::n_ctx_checkpoints`.
            checkpoints: 32,
            image_tokens: None,
            speculation: Vec::new(),
            draft_tokens: 3,
            ngram_tokens: NgramTokens { simple: 48, map_k: 48, map_k4v: 48, modular: 64 },
            draft_context: 0,
            draft_gpu_layers: GpuLayers::Auto,
            draft_devices: Vec::new(),
            draft_cache_key: types::F16,
            draft_cache_value: types::F16,
            draft_overrides: Vec::new(),
            draft_experts_on_host: 0,
            rpc_servers: Vec::new(),
            stretched: false,
            latent_attention: None,
            attention_buffer: None,
            fused_experts: None,
            mlock: false,
            no_host: false,
            cpu_repack: true,
            repack: false,
        }
    }
}
