//! Reads `config.json`: the figures of a model that decide the memory of its cache and of its activations.

use serde_json::Value;

use crate::fields::{ConfigError, Fields};
use crate::layers::{Layer, layers};

/// What a model's `config.json` says of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// What each layer keeps, in their order.
    pub layers: Vec<Layer>,
    pub attention: Attention,
    /// The state of a recurrent layer, where the model has such layers.
    pub state: Option<StateShape>,
    /// Bytes of a number of the model: 2 or 4.
    pub number: u64,
    /// True if the checkpoint asks for a cache of 8 bits.
    pub wants_small_cache: bool,
    /// How the weights are quantised, as `quantization_config` names it.
    pub quantisation: Option<String>,
    pub vocabulary: u64,
    /// Elements of a token's vector between the layers.
    pub hidden: u64,
    /// Elements of the widest vector within a layer: of the MLP, or of the experts that a token takes.
    pub inner: u64,
    /// Elements within one expert, where the model has experts.
    pub expert: Option<u64>,
    /// The longest context of the model, in tokens.
    pub longest: u64,
}

/// What attention keeps for a token, in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Keys and values of each head.
    Heads { heads: u64, key: u64, value: u64 },
    /// One compressed vector for all heads (MLA), and the keys of an index where attention is sparse.
    Latent { width: u64, index: Option<u64> },
}

/// Elements of the state of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Elements of the last inputs of the convolution, for each of its rows.
    pub convolution: u64,
    /// Rows of the convolution: its kernel without the newest input.
    pub rows: u64,
    /// Heads, which tensor parallelism divides.
    pub heads: u64,
    /// Elements of the state for each head.
    pub head: u64,
    /// Bytes of a number of the state, where the model says it.
    pub number: Option<u64>,
}

impl ModelConfig {
    /// Reads the text of `config.json`. A model with a part for images has its language model in
    /// `text_config`.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ConfigError::Json(error.to_string()))?;
        let outer =
            value.as_object().ok_or_else(|| ConfigError::Json("it is a list or a value".to_owned()))?;
        let outer = Fields(outer);
        let fields = outer.object("text_config").unwrap_or(outer);
        let heads = fields.needed("num_attention_heads")?;
        let hidden = fields.needed("hidden_size")?;
        let layers = layers(fields)?;
        let has_state = layers.contains(&Layer::Recurrent);
        Ok(Self {
            attention: attention(fields, heads, hidden)?,
            state: if has_state { Some(state(fields, hidden)?) } else { None },
            layers,
            number: number(fields, outer)?,
            wants_small_cache: wants_small_cache(outer, fields),
            quantisation: quantisation(outer, fields),
            vocabulary: fields.needed("vocab_size")?,
            hidden,
            inner: inner(fields, hidden)?,
            expert: expert(fields)?,
            longest: fields.number_or("max_position_embeddings", 2048)?,
        })
    }
}

fn attention(fields: Fields<'_>, heads: u64, hidden: u64) -> Result<Attention, ConfigError> {
    if let Some(rank) = fields.number("kv_lora_rank")? {
        let index = fields.number("index_head_dim")?;
        // Keys of 8 bits, and a scale of 4 bytes for each 128 of them:
        // `vllm/model_executor/models/deepseek_v2.py:DeepseekV32IndexerCache @ 0.11`.
        let index = index.map(|dim| dim + 4 * dim.div_ceil(128));
        return Ok(Attention::Latent { width: rank + fields.number_or("qk_rope_head_dim", 0)?, index });
    }
    let key = fields.number_or("head_dim", (hidden / heads).max(1))?;
    Ok(Attention::Heads {
        heads: fields.number_or("num_key_value_heads", heads)?,
        key,
        value: fields.number_or("v_head_dim", key)?,
    })
}

/// `vllm/model_executor/layers/mamba/mamba_utils.py:MambaStateShapeCalculator @ 0.11`, for the two forms that
/// the fields tell apart.
fn state(fields: Fields<'_>, hidden: u64) -> Result<StateShape, ConfigError> {
    let stated = fields.text("mamba_ssm_dtype").or_else(|| fields.text("mamba_ssm_cache_dtype"));
    let number = stated.map(|name| width("mamba_ssm_dtype", name)).transpose()?;
    if let Some(values) = fields.number("linear_num_value_heads")? {
        let keys = fields.needed("linear_num_key_heads")?;
        let (key, value) = (fields.needed("linear_key_head_dim")?, fields.needed("linear_value_head_dim")?);
        return Ok(StateShape {
            convolution: 2 * keys * key + values * value,
            rows: fields.number_or("linear_conv_kernel_dim", 4)?.saturating_sub(1),
            heads: values,
            head: key * value,
            number,
        });
    }
    let first = |names: [&'static str; 2]| -> Result<u64, ConfigError> {
        match fields.number(names[0])? {
            Some(number) => Ok(number),
            None => fields.needed(names[1]),
        }
    };
    let heads = first(["mamba_num_heads", "mamba_n_heads"])?;
    let dim = match fields.number("mamba_head_dim")?.or(fields.number("mamba_d_head")?) {
        Some(dim) => dim,
        None => (fields.number_or("mamba_expand", 2)? * hidden / heads).max(1),
    };
    let groups = first(["n_groups", "mamba_n_groups"])?;
    let size = first(["ssm_state_size", "mamba_d_state"])?;
    Ok(StateShape {
        convolution: heads * dim + 2 * groups * size,
        rows: first(["conv_kernel", "mamba_d_conv"])?.saturating_sub(1),
        heads,
        head: dim * size,
        number,
    })
}

/// Bytes of a number of the type that a field names.
fn width(field: &'static str, name: &str) -> Result<u64, ConfigError> {
    match name.trim_start_matches("torch.") {
        "float32" => Ok(4),
        "bfloat16" | "float16" => Ok(2),
        other => Err(ConfigError::Type { field, name: other.to_owned() }),
    }
}

/// `vllm/config/model.py:_resolve_auto_dtype @ 0.11`: a model in 32 bits is loaded in 16.
fn number(fields: Fields<'_>, outer: Fields<'_>) -> Result<u64, ConfigError> {
    let stated = |of: Fields<'_>| of.value("dtype").or_else(|| of.value("torch_dtype")).cloned();
    let Some(Value::String(name)) = stated(fields).or_else(|| stated(outer)) else {
        return Ok(2);
    };
    width("torch_dtype", &name).map(|_| 2)
}

/// Elements within an expert. Models whose layers all have experts state them as `intermediate_size`.
fn expert(fields: Fields<'_>) -> Result<Option<u64>, ConfigError> {
    let stated = fields.number("moe_intermediate_size")?;
    if stated.is_some() || fields.number("num_experts_per_tok")?.is_none() {
        return Ok(stated);
    }
    fields.number("intermediate_size")
}

/// Elements within a layer, for a token.
fn inner(fields: Fields<'_>, hidden: u64) -> Result<u64, ConfigError> {
    let taken = fields.number_or("num_experts_per_tok", 1)?;
    let experts = expert(fields)?.unwrap_or_default().saturating_mul(taken);
    Ok(experts.max(fields.number("intermediate_size")?.unwrap_or(4 * hidden)))
}

fn quantised<'a>(outer: Fields<'a>, fields: Fields<'a>) -> Option<Fields<'a>> {
    let of = |fields: Fields<'a>| {
        fields.object("quantization_config").or_else(|| fields.object("compression_config"))
    };
    of(outer).or_else(|| of(fields))
}

fn quantisation(outer: Fields<'_>, fields: Fields<'_>) -> Option<String> {
    quantised(outer, fields)?.text("quant_method").map(str::to_owned)
}

/// A checkpoint of compressed-tensors or ModelOpt may ask for it:
/// `vllm/model_executor/layers/attention/attention.py:_init_kv_cache_quant @ 0.15`.
fn wants_small_cache(outer: Fields<'_>, fields: Fields<'_>) -> bool {
    quantised(outer, fields).is_some_and(|of| {
        of.object("kv_cache_scheme").and_then(|scheme| scheme.value("num_bits")?.as_u64()) == Some(8)
            || of.text("kv_cache_quant_algo") == Some("FP8")
    })
}
