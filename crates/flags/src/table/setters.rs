//! Setters of the flags that change a model's memory, each listed under llama.cpp's main spelling.

use plimsoll_model::Pooling;

use super::Setter;
use crate::failure::FlagError;
use crate::given::GivenFlag;
use crate::wish::{FlashAttention, ModelParams, RemoteSource};

/// Setter of each flag that changes a field of [`ModelParams`].
pub(super) const SETTERS: &[(&str, Setter)] = &[
    ("--ctx-size", |wish, given| put(&mut wish.context, given.natural())),
    ("--batch-size", |wish, given| put(&mut wish.batch, given.natural())),
    ("--ubatch-size", |wish, given| put(&mut wish.micro_batch, given.natural())),
    ("--swa-full", |wish, _| put(&mut wish.full_sliding_cache, Ok(true))),
    ("--swa-checkpoints", |wish, given| put(&mut wish.checkpoints, given.natural())),
    ("--cache-ram", |wish, given| put(&mut wish.host_cache, given.mebibytes_or_no_limit())),
    ("--kv-unified", |wish, given| put(&mut wish.unified_cache, Ok(Some(given.on())))),
    ("--flash-attn", |wish, given| put(&mut wish.flash_attention, given.flash_attention())),
    ("--backend-sampling", |wish, _| put(&mut wish.backend_sampling, Ok(true))),
    ("--rope-scaling", stretch),
    ("--rope-scale", stretch),
    ("--rope-freq-base", stretch),
    ("--rope-freq-scale", stretch),
    ("--yarn-orig-ctx", stretch),
    ("--pooling", |wish, given| put(&mut wish.pooling, given.pooling().map(Some))),
    ("--kv-offload", |wish, given| put(&mut wish.cache_offload, Ok(given.on()))),
    ("--cache-type-k", |wish, given| put(&mut wish.cache_key, given.cache_type())),
    ("--cache-type-v", |wish, given| put(&mut wish.cache_value, given.cache_type())),
    ("--parallel", |wish, given| put(&mut wish.parallel, given.parallel())),
    ("--mmproj", |wish, given| put(&mut wish.projector, given.text().map(Some))),
    ("--mmproj-url", |wish, given| put(&mut wish.projector_remote, given.remote(RemoteSource::Address))),
    ("--mmproj-auto", |wish, given| {
        put(&mut wish.projector_auto, Ok(given.on()))?;
        put_if(!given.on(), &mut wish.projector_remote, None)?;
        put_if(!given.on(), &mut wish.projector, None)
    }),
    ("--mmproj-offload", |wish, given| put(&mut wish.projector_offload, Ok(given.on()))),
    ("--mmproj-device", |wish, given| {
        put(&mut wish.projector_offload, given.text().map(|name| name != "none"))
    }),
    ("--image-max-tokens", |wish, given| put(&mut wish.image_tokens, given.natural().map(Some))),
    ("--mlock", |wish, _| put(&mut wish.mmap, Ok(false))),
    ("--direct-io", |wish, _| put(&mut wish.mmap, Ok(false))),
    ("--no-host", |wish, _| put(&mut wish.no_host, Ok(true))),
    ("--repack", |wish, given| put(&mut wish.cpu_repack, Ok(given.on()))),
    ("--mmap", |wish, given| put(&mut wish.mmap, Ok(given.on()))),
    ("--load-mode", |wish, given| {
        let (maps, locks) = given.load_mode()?;
        put(&mut wish.mlock, Ok(locks))?;
        put(&mut wish.mmap, Ok(maps))
    }),
    ("--device", |wish, given| put(&mut wish.devices, given.names())),
    ("--override-tensor", |wish, given| add(&mut wish.overrides, given.overrides())),
    ("--cpu-moe", |wish, _| put(&mut wish.experts_on_host, Ok(u32::MAX))),
    ("--n-cpu-moe", |wish, given| raise(&mut wish.experts_on_host, given.natural())),
    ("--n-cpu-ffn", |wish, given| add(&mut wish.overrides, given.dense_layers_on_host())),
    ("--n-gpu-layers", |wish, given| put(&mut wish.gpu_layers, given.layers())),
    ("--split-mode", |wish, given| put(&mut wish.split_mode, given.split_mode())),
    ("--tensor-split", |wish, given| put(&mut wish.tensor_split, given.proportions())),
    ("--main-gpu", |wish, given| put(&mut wish.main_gpu, given.natural().map(Some))),
    ("--rpc", |wish, given| put(&mut wish.rpc_servers, given.fields())),
    ("--fit", |wish, given| put(&mut wish.fit, given.truth())),
    ("--fit-ctx", |wish, given| put(&mut wish.fit_context, given.natural())),
    ("--op-offload", |wish, given| put(&mut wish.op_offload, Ok(given.on()))),
    ("--lora", |wish, given| add(&mut wish.adapters, given.fields())),
    ("--lora-scaled", |wish, given| add(&mut wish.adapters, given.scaled_files())),
    ("--control-vector", |wish, given| add(&mut wish.control_vectors, given.fields())),
    ("--control-vector-scaled", |wish, given| add(&mut wish.control_vectors, given.fields())),
    ("--model", |wish, given| put(&mut wish.model, given.text().map(Some))),
    ("--model-url", |wish, given| put(&mut wish.remote, given.remote(RemoteSource::Address))),
    ("--docker-repo", |wish, given| put(&mut wish.remote, given.remote(RemoteSource::Docker))),
    ("--hf-repo", |wish, given| put(&mut wish.remote, given.remote(RemoteSource::Hub))),
    ("--hf-file", |wish, given| put(&mut wish.remote_file, given.text().map(Some))),
    ("--offline", |wish, _| put(&mut wish.offline, Ok(true))),
    ("--embeddings", |wish, _| put(&mut wish.embeddings, Ok(true))),
    ("--reranking", |wish, _| {
        put(&mut wish.embeddings, Ok(true))?;
        put(&mut wish.pooling, Ok(Some(Pooling::Rank)))
    }),
    ("--hf-repo-draft", |wish, given| put(&mut wish.draft_remote, given.remote(RemoteSource::Hub))),
    ("--cache-type-k-draft", |wish, given| put(&mut wish.draft_cache_key, given.cache_type())),
    ("--cache-type-v-draft", |wish, given| put(&mut wish.draft_cache_value, given.cache_type())),
    ("--override-tensor-draft", |wish, given| add(&mut wish.draft_overrides, given.overrides())),
    ("--cpu-moe-draft", |wish, _| put(&mut wish.draft_experts_on_host, Ok(u32::MAX))),
    ("--n-cpu-moe-draft", |wish, given| raise(&mut wish.draft_experts_on_host, given.natural())),
    ("--spec-draft-n-max", |wish, given| put(&mut wish.draft_tokens, given.natural())),
    ("--spec-ngram-simple-size-m", |wish, given| put(&mut wish.ngram_tokens.simple, given.natural())),
    ("--spec-ngram-map-k-size-m", |wish, given| put(&mut wish.ngram_tokens.map_k, given.natural())),
    ("--spec-ngram-map-k4v-size-m", |wish, given| put(&mut wish.ngram_tokens.map_k4v, given.natural())),
    ("--spec-ngram-mod-n-max", |wish, given| put(&mut wish.ngram_tokens.modular, given.natural())),
    ("--spec-default", |wish, _| add(&mut wish.speculation, Ok(vec!["ngram-mod".to_owned()]))),
    ("--device-draft", |wish, given| put(&mut wish.draft_devices, given.names())),
    ("--n-gpu-layers-draft", |wish, given| put(&mut wish.draft_gpu_layers, given.layers())),
    ("--model-draft", |wish, given| put(&mut wish.draft_model, given.text().map(Some))),
    ("--spec-type", |wish, given| add(&mut wish.speculation, given.speculation())),
    ("--draft-max", |wish, given| put(&mut wish.draft_tokens, given.natural())),
    ("--ctx-size-draft", |wish, given| put(&mut wish.draft_context, given.natural())),
    ("--no-flash-attn", |wish, _| put(&mut wish.flash_attention, Ok(FlashAttention::Off))),
    ("--mla-use", |wish, given| put(&mut wish.latent_attention, given.natural().map(Some))),
    ("--attention-max-batch", |wish, given| put(&mut wish.attention_buffer, given.mebibytes().map(Some))),
    ("--fused-moe", |wish, _| put(&mut wish.fused_experts, Ok(Some(true)))),
    ("--no-fused-moe", |wish, _| put(&mut wish.fused_experts, Ok(Some(false)))),
    ("--run-time-repack", |wish, _| {
        // Weights that are copied into another order can no longer be mapped from the file.
        put(&mut wish.mmap, Ok(false))?;
        put(&mut wish.repack, Ok(true))
    }),
];

/// A flag that stretches the positions of a model beyond those of its training.
fn stretch(wish: &mut ModelParams, given: &GivenFlag<'_>) -> Result<(), FlagError> {
    put(&mut wish.stretched, given.text().map(|text| text != "none"))
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
