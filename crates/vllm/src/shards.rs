//! Reads `model.safetensors.index.json`, which lists the files that hold a model's tensors.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Error: an index is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardsError {
    #[error("the index is not JSON with a `weight_map`: {0}")]
    Json(String),
    #[error("the index names the file `{0}`, which is not in the model's folder")]
    Outside(String),
    #[error("the index names no file")]
    Empty,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The names of the files, each once, in alphabetical order. A name with a path is refused: the model's
/// folder is the only place that its own index may name.
pub fn shards(text: &str) -> Result<Vec<String>, ShardsError> {
    let index: Index = serde_json::from_str(text).map_err(|error| ShardsError::Json(error.to_string()))?;
    let files: BTreeSet<String> = index.weight_map.into_values().collect();
    let is_outside =
        |file: &&String| file.contains(['/', '\\', '\0']) || file.starts_with('.') || file.is_empty();
    if let Some(file) = files.iter().find(is_outside) {
        return Err(ShardsError::Outside(file.clone()));
    }
    if files.is_empty() { Err(ShardsError::Empty) } else { Ok(files.into_iter().collect()) }
}
