//! Reader of the hyper-parameters that all architectures share (`llama-model.cpp: load_hparams @ b10605`).

use super::keys::ArchKeys;
use super::{Rotates, Traits, layers, traits};
use crate::gguf::{GgufValue, Header};
use crate::{Experts, HyperParameters, Mla, ModelError, Pooling, Tensor};

/// `LLAMA_MAX_LAYERS`.
const MOST_LAYERS: u32 = 512;

/// The hyper-parameters that `header` states for `architecture`. The tensors help where a key is missing.
pub(crate) fn read(
    header: &Header<'_>,
    architecture: &str,
    tensors: &[Tensor],
) -> Result<HyperParameters, ModelError> {
    if !is_language_model(header, architecture)? {
        return Ok(HyperParameters::default());
    }
    let keys = ArchKeys::new(header, architecture);
    let (traits, known) = traits(architecture);
    let mut hyper = dimensions(&keys, &traits)?;
    hyper.known = known;
    hyper.vocabulary = vocabulary(&keys, tensors)?;
    hyper.layers_with_cache = layers_with_cache(&keys, &traits, hyper.layers)?;
    hyper.experts = experts(&keys)?;
    hyper.mla = mla(&keys, &hyper)?;
    hyper.older_mla = older_mla(&keys, &hyper)?;
    // In this order: the sliding pattern may depend on the recurrent layers.
    hyper.recurrent = layers::recurrent(&keys, &traits, &hyper)?;
    hyper.sliding = layers::sliding(&keys, &traits, &hyper)?;
    hyper.indexer = layers::indexer(&keys, &traits, &hyper)?;
    Ok(hyper)
}

/// Projectors and adapters are weights and nothing else.
fn is_language_model(header: &Header<'_>, architecture: &str) -> Result<bool, ModelError> {
    let kind = header.text("general.type")?;
    Ok(architecture != "clip" && !matches!(kind, Some("adapter" | "mmproj" | "imatrix")))
}

fn dimensions(keys: &ArchKeys<'_, '_>, traits: &Traits) -> Result<HyperParameters, ModelError> {
    let layers = keys.required("block_count")?;
    let nextn_layers = keys.number_or_0("nextn_predict_layers")?;
    // llama.cpp has arrays of this size and aborts beyond; 0 layers would underflow below.
    if layers == 0 || layers > MOST_LAYERS || nextn_layers > layers {
        return Err(ModelError::Layers { layers, nextn_layers });
    }
    let heads = keys.per_layer("attention.head_count", layers)?.unwrap_or_default();
    let heads_kv = keys.per_layer("attention.head_count_kv", layers)?;
    let lengths = Lengths::read(keys, heads.at(0))?;
    Ok(HyperParameters {
        layers,
        nextn_layers,
        context_train: keys.required("context_length")?,
        embedding: keys.required("embedding_length")?,
        // Without the key every head has its own K and V.
        heads_kv: heads_kv.unwrap_or_else(|| heads.clone()),
        heads,
        feed_forward: keys.per_layer("feed_forward_length", layers)?.unwrap_or_default(),
        key_length: lengths.key,
        value_length: lengths.value,
        sliding_key_length: keys.number("attention.key_length_swa")?.unwrap_or(lengths.key),
        sliding_value_length: keys.number("attention.value_length_swa")?.unwrap_or(lengths.value),
        rope_dimension: if rotates(keys, traits)? { lengths.rope } else { 0 },
        scales_embedding: factor(keys, "embedding_scale").is_some(),
        scales_residual: factor(keys, "residual_scale").is_some(),
        pooling: keys.number("pooling_type")?.and_then(Pooling::from_number),
        nextn_cached: traits.nextn_cached,
        cached: traits.cached,
        causal: traits.causal && keys.flag("attention.causal")?.unwrap_or(true),
        ..HyperParameters::default()
    })
}

/// `granite-hybrid.cpp: load_arch_hparams @ b10605` takes one key for the switch that it is not elsewhere.
fn rotates(keys: &ArchKeys<'_, '_>, traits: &Traits) -> Result<bool, ModelError> {
    Ok(match traits.rotates {
        Rotates::Always => true,
        Rotates::Never => false,
        Rotates::UnlessDeclined => keys.flag("rope.scaling.finetuned")?.unwrap_or(true),
    })
}

/// A factor of graphs; 0 means no factor
/// (`llama-graph.cpp: build_inp_embd, build_moe_ffn, models/granite.cpp @ b10605`).
fn factor(keys: &ArchKeys<'_, '_>, key: &str) -> Option<f64> {
    match keys.value(key) {
        Some(GgufValue::Float(factor)) if factor != 0.0 => Some(factor),
        _ => None,
    }
}

/// Lengths of an attention head's key, value and rotary part.
#[derive(Default)]
struct Lengths {
    key: u32,
    value: u32,
    rope: u32,
}

impl Lengths {
    /// A model whose first layer has no heads has none of these, whatever its keys say.
    fn read(keys: &ArchKeys<'_, '_>, heads: u32) -> Result<Self, ModelError> {
        let Some(even) = keys.required("embedding_length")?.checked_div(heads) else {
            return Ok(Self::default());
        };
        let key = keys.number("attention.key_length")?.unwrap_or(even);
        Ok(Self {
            key,
            value: keys.number("attention.value_length")?.unwrap_or(even),
            rope: keys.number("rope.dimension_count")?.unwrap_or(key),
        })
    }
}

/// Tokens listed, else the key, else the rows of the embedding. `llama-vocab.cpp: load @ b10605`.
fn vocabulary(keys: &ArchKeys<'_, '_>, tensors: &[Tensor]) -> Result<u32, ModelError> {
    // The list wins over `vocab_size`, as in llama.cpp: the two may differ by padding.
    if let Some(tokens) = keys.header().array("tokenizer.ggml.tokens")? {
        return Ok(u32::try_from(tokens.count).unwrap_or(u32::MAX));
    }
    let rows = || {
        let embedding = tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
        embedding.and_then(|tensor| u32::try_from(tensor.shape[1]).ok())
    };
    Ok(keys.number("vocab_size")?.or_else(rows).unwrap_or(0))
}

fn layers_with_cache(keys: &ArchKeys<'_, '_>, traits: &Traits, layers: u32) -> Result<u32, ModelError> {
    let shared = keys.number_or_0("attention.shared_kv_layers")?;
    Ok(traits.layers_with_cache.unwrap_or(layers.saturating_sub(shared)))
}

/// The widths of experts are those of their tensors.
fn experts(keys: &ArchKeys<'_, '_>) -> Result<Option<Experts>, ModelError> {
    let count = keys.number_or_0("expert_count")?;
    if count == 0 {
        return Ok(None);
    }
    Ok(Some(Experts {
        count,
        used: keys.number_or_0("expert_used_count")?,
        // A factor of 1 adds no node to the graph.
        scales_weights: factor(keys, "expert_weights_scale").is_some_and(|factor| factor != 1.0),
    }))
}

/// `llama-hparams.cpp: is_mla @ b10605`: only with both lengths; files from before them keep whole heads.
fn mla(keys: &ArchKeys<'_, '_>, hyper: &HyperParameters) -> Result<Option<Mla>, ModelError> {
    let key_length = keys.number_or_0("attention.key_length_mla")?;
    let value_length = keys.number_or_0("attention.value_length_mla")?;
    Ok((key_length > 0 && value_length > 0).then_some(Mla {
        kv_lora_rank: keys.number_or_0("attention.kv_lora_rank")?,
        rope_dimension: hyper.rope_dimension,
        key_length,
        value_length,
    }))
}

fn older_mla(keys: &ArchKeys<'_, '_>, hyper: &HyperParameters) -> Result<Option<Mla>, ModelError> {
    let kv_lora_rank = keys.number_or_0("attention.kv_lora_rank")?;
    let is_older = hyper.mla.is_none() && kv_lora_rank > 0 && hyper.key_length > hyper.rope_dimension;
    Ok(is_older.then_some(Mla {
        kv_lora_rank,
        rope_dimension: hyper.rope_dimension,
        key_length: hyper.key_length,
        value_length: hyper.value_length,
    }))
}
