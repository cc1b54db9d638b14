//! Reads from `config.json` what each layer caches for a token or for a sequence.
//!
//! DECISION: no architecture is guessed by its name. The fields say it, and a field that is known to change
//! the cache in another way is refused.

use crate::fields::{ConfigError, Fields};

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Keys and values of all tokens.
    Full,
    /// Keys and values of the last tokens, of this number.
    Sliding(u64),
    /// Keys and values of the tokens of one chunk, of this size.
    Chunked(u64),
    /// A state of fixed size for each sequence.
    Recurrent,
    /// Nothing.
    Stateless,
}

/// Fields of models whose cache has another form. Each is refused, with its name.
const OTHER_FORMS: [&str; 12] = [
    "attn_type_list",
    "compress_ratios",
    "cross_attention_layers",
    "global_head_dim",
    "indexer_compress_ratio",
    "is_encoder_decoder",
    "linear_attn_config",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "swa_head_dim",
    "swa_num_key_value_heads",
    "swa_v_head_dim",
];

/// What the layers keep, in their order.
pub(crate) fn layers(fields: Fields<'_>) -> Result<Vec<Layer>, ConfigError> {
    if let Some(field) = OTHER_FORMS.into_iter().find(|field| fields.says(field)) {
        return Err(ConfigError::Unknown(field));
    }
    let number = usize::try_from(fields.needed("num_hidden_layers")?).unwrap_or(usize::MAX);
    if number > 4096 {
        return Err(ConfigError::Number { field: "num_hidden_layers", value: number.to_string() });
    }
    if let Some(pattern) = fields.text("hybrid_override_pattern") {
        return by_pattern(pattern, number);
    }
    if let Some(list) = fields.value("layer_types").and_then(serde_json::Value::as_array) {
        return by_types(fields, list, number);
    }
    let every = |field, rest: Layer| -> Result<Option<Vec<Layer>>, ConfigError> {
        let Some(interval) = fields.number(field)? else {
            return Ok(None);
        };
        let is_full = |index: &u64| (index + 1).is_multiple_of(interval);
        Ok(Some((0..number as u64).map(|index| if is_full(&index) { Layer::Full } else { rest }).collect()))
    };
    if let Some(layers) = every("full_attention_interval", Layer::Recurrent)? {
        return Ok(layers);
    }
    let window = window(fields)?;
    if let Some(window) = window {
        for field in ["sliding_window_pattern", "_sliding_window_pattern"] {
            if let Some(layers) = every(field, Layer::Sliding(window))? {
                return Ok(layers);
            }
        }
    }
    if let Some(chunk) = fields.number("attention_chunk_size")? {
        return by_position(fields, chunk, number);
    }
    Ok(vec![window.map_or(Layer::Full, Layer::Sliding); number])
}

/// The window in tokens, where the model uses one.
fn window(fields: Fields<'_>) -> Result<Option<u64>, ConfigError> {
    let is_off = fields.value("use_sliding_window").is_some() && !fields.says("use_sliding_window");
    if is_off { Ok(None) } else { fields.number("sliding_window") }
}

/// `M-M*E`: `M` a recurrent layer, `*` attention, `-` and `E` neither.
fn by_pattern(pattern: &str, number: usize) -> Result<Vec<Layer>, ConfigError> {
    let field = "hybrid_override_pattern";
    let layer = |sign: char| match sign {
        'M' => Ok(Layer::Recurrent),
        '*' => Ok(Layer::Full),
        '-' | 'E' => Ok(Layer::Stateless),
        other => Err(ConfigError::Kind { field, kind: other.to_string() }),
    };
    let layers = pattern.chars().take(number + 1).map(layer).collect::<Result<Vec<_>, _>>()?;
    of_length(field, layers, number)
}

fn by_types(
    fields: Fields<'_>,
    list: &[serde_json::Value],
    number: usize,
) -> Result<Vec<Layer>, ConfigError> {
    let field = "layer_types";
    let layer = |kind: &serde_json::Value| {
        let kind = kind.as_str().unwrap_or("?");
        Ok(match kind {
            "full_attention" | "attention" => Layer::Full,
            // A model may name its layers so and switch the window off.
            "sliding_attention" => window(fields)?.map_or(Layer::Full, Layer::Sliding),
            "chunked_attention" => Layer::Chunked(fields.needed("attention_chunk_size")?),
            "linear_attention" | "mamba" => Layer::Recurrent,
            other => return Err(ConfigError::Kind { field, kind: other.to_owned() }),
        })
    };
    let layers = list.iter().take(number + 1).map(layer).collect::<Result<Vec<_>, _>>()?;
    of_length(field, layers, number)
}

/// Chunked attention but for the layers without positions: every fourth, unless `no_rope_layers` lists them
/// (`vllm/model_executor/models/llama4.py:Llama4Attention @ 0.11`).
fn by_position(fields: Fields<'_>, chunk: u64, number: usize) -> Result<Vec<Layer>, ConfigError> {
    let field = "no_rope_layers";
    let list = fields.value(field).and_then(serde_json::Value::as_array).filter(|list| !list.is_empty());
    let layer = |has_positions: bool| if has_positions { Layer::Chunked(chunk) } else { Layer::Full };
    let layers = match list {
        Some(list) => list.iter().take(number + 1).map(|it| layer(it.as_u64() != Some(0))).collect(),
        None => (0..number).map(|index| layer((index + 1) % 4 != 0)).collect(),
    };
    of_length(field, layers, number)
}

fn of_length(field: &'static str, layers: Vec<Layer>, number: usize) -> Result<Vec<Layer>, ConfigError> {
    if layers.len() == number {
        Ok(layers)
    } else {
        Err(ConfigError::Layers { field, found: layers.len(), layers: number })
    }
}
