//! Functions that store the flags that change a model's memory, each listed under llama.cpp's main spelling.

use plimsoll_model::Pooling;

use super::Setter;
use crate::failure::FlagError;
use crate::given::GivenFlag;
use crate::params::{FlashAttention, ModelParams, RemoteSource};

/// Setter of each flag that changes a field of [`ModelParams`].
pub(super) const SETTERS: &[(&str, Setter)] = &[
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
