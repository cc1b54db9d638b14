//! Model parameters that affect memory: each with its field, the engine's default, and the flag that sets it.
//!
//! The defaults are those of llama-server (`common/common.h: common_params @ b10605`). A setter stands under
//! llama.cpp's main spelling of its flag.

mod values;

use plimsoll_base::Bytes;
use plimsoll_model::{Pooling, TensorType, types};

use super::failure::FlagError;
use super::given::GivenFlag;
use super::program::ProgramKind;
use super::table::Setter;

pub use self::values::{
    BufferOverride, FlashAttention, GpuLayers, NgramTokens, Parallel, RemoteSource, SplitMode,
};

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

/// Setter of each flag that changes a field of [`ModelParams`].
pub(crate) const SETTERS: &[(&str, Setter)] = &[
    ("--ctx-size", |params, given| put(&mut params.context, given.natural())),
    ("--batch-size", |params, given| put(&mut params.batch, given.natural())),
    ("--ubatch-size", |params, given| put(&mut params.micro_batch, given.natural())),
    ("--swa-full", |params, _| put(&mut params.full_sliding_cache, Ok(true))),
    ("--swa-checkpoints", |params, given| put(&mut params.checkpoints, given.natural())),
    ("--cache-ram", |params, given| put(&mut params.host_cache, given.mebibytes_or_no_limit())),
    ("--kv-unified", |params, given| put(&mut params.unified_cache, Ok(Some(given.on())))),
    ("--flash-attn", |params, given| put(&mut params.flash_attention, given.flash_attention())),
    ("--backend-sampling", |params, _| put(&mut params.backend_sampling, Ok(true))),
    ("--rope-scaling", stretch),
    ("--rope-scale", stretch),
    ("--rope-freq-base", stretch),
    ("--rope-freq-scale", stretch),
    ("--yarn-orig-ctx", stretch),
    ("--pooling", |params, given| put(&mut params.pooling, given.pooling().map(Some))),
    ("--kv-offload", |params, given| put(&mut params.cache_offload, Ok(given.on()))),
    ("--cache-type-k", |params, given| put(&mut params.cache_key, given.cache_type())),
    ("--cache-type-v", |params, given| put(&mut params.cache_value, given.cache_type())),
    ("--parallel", |params, given| put(&mut params.parallel, given.parallel())),
    ("--mmproj", |params, given| put(&mut params.projector, given.text().map(Some))),
    ("--mmproj-url", |params, given| put(&mut params.projector_remote, given.remote(RemoteSource::Address))),
    ("--mmproj-auto", |params, given| {
        put(&mut params.projector_auto, Ok(given.on()))?;
        put_if(!given.on(), &mut params.projector_remote, None)?;
        put_if(!given.on(), &mut params.projector, None)
    }),
    ("--mmproj-offload", |params, given| put(&mut params.projector_offload, Ok(given.on()))),
    ("--mmproj-device", |params, given| {
        put(&mut params.projector_offload, given.text().map(|name| name != "none"))
    }),
    ("--image-max-tokens", |params, given| put(&mut params.image_tokens, given.natural().map(Some))),
    ("--mlock", |params, _| put(&mut params.mmap, Ok(false))),
    ("--direct-io", |params, _| put(&mut params.mmap, Ok(false))),
    ("--no-host", |params, _| put(&mut params.no_host, Ok(true))),
    ("--repack", |params, given| put(&mut params.cpu_repack, Ok(given.on()))),
    ("--mmap", |params, given| put(&mut params.mmap, Ok(given.on()))),
    ("--load-mode", |params, given| {
        let (maps, locks) = given.load_mode()?;
        put(&mut params.mlock, Ok(locks))?;
        put(&mut params.mmap, Ok(maps))
    }),
    ("--device", |params, given| put(&mut params.devices, given.names())),
    ("--override-tensor", |params, given| add(&mut params.overrides, given.overrides())),
    ("--cpu-moe", |params, _| put(&mut params.experts_on_host, Ok(u32::MAX))),
    ("--n-cpu-moe", |params, given| raise(&mut params.experts_on_host, given.natural())),
    ("--n-cpu-ffn", |params, given| add(&mut params.overrides, given.dense_layers_on_host())),
    ("--n-gpu-layers", |params, given| put(&mut params.gpu_layers, given.layers())),
    ("--split-mode", |params, given| put(&mut params.split_mode, given.split_mode())),
    ("--tensor-split", |params, given| put(&mut params.tensor_split, given.proportions())),
    ("--main-gpu", |params, given| put(&mut params.main_gpu, given.natural().map(Some))),
    ("--rpc", |params, given| put(&mut params.rpc_servers, given.fields())),
    ("--fit", |params, given| put(&mut params.fit, given.truth())),
    ("--fit-ctx", |params, given| put(&mut params.fit_context, given.natural())),
    ("--op-offload", |params, given| put(&mut params.op_offload, Ok(given.on()))),
    ("--lora", |params, given| add(&mut params.adapters, given.fields())),
    ("--lora-scaled", |params, given| add(&mut params.adapters, given.scaled_files())),
    ("--control-vector", |params, given| add(&mut params.control_vectors, given.fields())),
    ("--control-vector-scaled", |params, given| add(&mut params.control_vectors, given.fields())),
    ("--model", |params, given| put(&mut params.model, given.text().map(Some))),
    ("--model-url", |params, given| put(&mut params.remote, given.remote(RemoteSource::Address))),
    ("--docker-repo", |params, given| put(&mut params.remote, given.remote(RemoteSource::Docker))),
    ("--hf-repo", |params, given| put(&mut params.remote, given.remote(RemoteSource::Hub))),
    ("--hf-file", |params, given| put(&mut params.remote_file, given.text().map(Some))),
    ("--offline", |params, _| put(&mut params.offline, Ok(true))),
    ("--embeddings", |params, _| put(&mut params.embeddings, Ok(true))),
    ("--reranking", |params, _| {
        put(&mut params.embeddings, Ok(true))?;
        put(&mut params.pooling, Ok(Some(Pooling::Rank)))
    }),
    ("--hf-repo-draft", |params, given| put(&mut params.draft_remote, given.remote(RemoteSource::Hub))),
    ("--cache-type-k-draft", |params, given| put(&mut params.draft_cache_key, given.cache_type())),
    ("--cache-type-v-draft", |params, given| put(&mut params.draft_cache_value, given.cache_type())),
    ("--override-tensor-draft", |params, given| add(&mut params.draft_overrides, given.overrides())),
    ("--cpu-moe-draft", |params, _| put(&mut params.draft_experts_on_host, Ok(u32::MAX))),
    ("--n-cpu-moe-draft", |params, given| raise(&mut params.draft_experts_on_host, given.natural())),
    ("--spec-draft-n-max", |params, given| put(&mut params.draft_tokens, given.natural())),
    ("--spec-ngram-simple-size-m", |params, given| put(&mut params.ngram_tokens.simple, given.natural())),
    ("--spec-ngram-map-k-size-m", |params, given| put(&mut params.ngram_tokens.map_k, given.natural())),
    ("--spec-ngram-map-k4v-size-m", |params, given| put(&mut params.ngram_tokens.map_k4v, given.natural())),
    ("--spec-ngram-mod-n-max", |params, given| put(&mut params.ngram_tokens.modular, given.natural())),
    ("--spec-default", |params, _| add(&mut params.speculation, Ok(vec!["ngram-mod".to_owned()]))),
    ("--device-draft", |params, given| put(&mut params.draft_devices, given.names())),
    ("--n-gpu-layers-draft", |params, given| put(&mut params.draft_gpu_layers, given.layers())),
    ("--model-draft", |params, given| put(&mut params.draft_model, given.text().map(Some))),
    ("--spec-type", |params, given| add(&mut params.speculation, given.speculation())),
    ("--draft-max", |params, given| put(&mut params.draft_tokens, given.natural())),
    ("--ctx-size-draft", |params, given| put(&mut params.draft_context, given.natural())),
    ("--no-flash-attn", |params, _| put(&mut params.flash_attention, Ok(FlashAttention::Off))),
    ("--mla-use", |params, given| put(&mut params.latent_attention, given.natural().map(Some))),
    ("--attention-max-batch", |params, given| put(&mut params.attention_buffer, given.mebibytes().map(Some))),
    ("--fused-moe", |params, _| put(&mut params.fused_experts, Ok(Some(true)))),
    ("--no-fused-moe", |params, _| put(&mut params.fused_experts, Ok(Some(false)))),
    ("--run-time-repack", |params, _| {
        // Weights that are copied into another order can no longer be mapped from the file.
        put(&mut params.mmap, Ok(false))?;
        put(&mut params.repack, Ok(true))
    }),
];

/// A flag that stretches the positions of a model beyond those of its training.
fn stretch(params: &mut ModelParams, given: &GivenFlag<'_>) -> Result<(), FlagError> {
    put(&mut params.stretched, given.text().map(|text| text != "none"))
}

/// Sets a field; a later flag of the same field wins.
fn put<T>(field: &mut T, value: Result<T, FlagError>) -> Result<(), FlagError> {
    *field = value?;
    Ok(())
}

fn put_if<T>(given: bool, field: &mut T, value: T) -> Result<(), FlagError> {
    if given {
        *field = value;
    }
    Ok(())
}

/// Sets a field that only grows: `-ncmoe 3 -ncmoe 2` keeps the experts of three layers.
fn raise(field: &mut u32, value: Result<u32, FlagError>) -> Result<(), FlagError> {
    *field = value?.max(*field);
    Ok(())
}

/// Appends to a list field, as every `-ot` does.
fn add<T>(field: &mut Vec<T>, values: Result<Vec<T>, FlagError>) -> Result<(), FlagError> {
    field.extend(values?);
    Ok(())
}
