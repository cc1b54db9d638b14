//! Computes the weights that each card holds, from the tensors of a checkpoint.
//!
//! Tensors are told apart by the names that vLLM's loaders know, never by the architecture. vLLM divides
//! matrices among the cards of tensor parallelism. It copies norms, routers and the projections into a
//! compressed vector.

use plimsoll_base::Bytes;

use crate::config::{Attention, ModelConfig};
use crate::header::Tensor;

/// Quantisation that vLLM applies while it loads a checkpoint in 16 bits (`--quantization`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadedAs {
    /// 8 bits for each weight of a linear layer.
    Fp8,
    /// 4 bits, and a scale of 4 bytes for each 64 weights:
    /// `vllm/model_executor/layers/quantization/bitsandbytes.py @ 0.11`.
    BitsAndBytes,
}

/// Parts of names whose tensors every card holds whole.
const COPIED: [&str; 12] = [
    "norm",
    "mlp.gate.",
    "block_sparse_moe.gate.",
    "router",
    "shared_expert_gate",
    "e_score_correction_bias",
    "q_a_proj",
    "kv_a_proj",
    "fused_qkv_a_proj",
    "indexer.",
    "rotary",
    "g_idx",
];

/// Parts of names of linear layers, which a quantisation at loading makes smaller.
const LINEAR: [&str; 14] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "in_proj",
    "out_proj",
    "kv_b_proj",
    "q_b_proj",
    "experts.",
];

/// Rows of the vocabulary are padded to a multiple of this:
/// `vllm/model_executor/layers/vocab_parallel_embedding.py:DEFAULT_VOCAB_PADDING_SIZE @ 0.11`.
const VOCABULARY_STEP: u64 = 64;

/// MXFP4's kernels pad the elements within an expert to a multiple of this. The size is that of vLLM's logs
/// for gpt-oss on an H100: `vllm/model_executor/layers/quantization/mxfp4.py:create_weights @ 0.11`.
const MXFP4_STEP: u64 = 256;

/// Bytes of the weights on each of `cards` cards.
pub fn weights(tensors: &[Tensor], config: &ModelConfig, cards: u64, loaded_as: Option<LoadedAs>) -> Bytes {
    let held = tensors.iter().filter(|tensor| !is_left_out(&tensor.name, config.layers.len()));
    held.map(|tensor| on_card(tensor, config, cards.max(1), loaded_as)).sum()
}

/// Layers behind the model's own predict further tokens (MTP); they are loaded for drafts alone.
fn is_left_out(name: &str, layers: usize) -> bool {
    if name.starts_with("mtp.") || name.contains(".mtp.") {
        return true;
    }
    let index = name.split_once("layers.").and_then(|(before, rest)| {
        let is_vision = before.contains("vis");
        rest.split('.').next()?.parse::<usize>().ok().filter(|_| !is_vision)
    });
    index.is_some_and(|index| index >= layers)
}

fn on_card(tensor: &Tensor, config: &ModelConfig, cards: u64, loaded_as: Option<LoadedAs>) -> Bytes {
    let bytes = loaded_bytes(tensor, config, loaded_as);
    let name = tensor.name.as_str();
    if COPIED.iter().any(|part| name.contains(part)) {
        return bytes;
    }
    let parts = match config.attention {
        Attention::Heads { heads, .. } if name.contains("k_proj") || name.contains("v_proj") => {
            cards.min(heads)
        }
        _ => cards,
    };
    let bytes = Bytes::new(bytes.get().div_ceil(parts.max(1)));
    match config.expert {
        Some(expert) if name.ends_with("_blocks") || name.ends_with("_scales") => {
            let part = expert.div_ceil(cards).max(1);
            bytes.scaled(part.next_multiple_of(MXFP4_STEP), part)
        }
        _ => bytes,
    }
}

/// Bytes of a tensor as it is loaded. Plain numbers take the model's type; quantised ones stay as they are.
fn loaded_bytes(tensor: &Tensor, config: &ModelConfig, loaded_as: Option<LoadedAs>) -> Bytes {
    if !tensor.dtype.is_converted() {
        return tensor.bytes;
    }
    let name = tensor.name.as_str();
    let is_matrix = tensor.shape.len() >= 2;
    let elements = if is_matrix && (name.contains("embed_tokens") || name.contains("lm_head")) {
        let rows = tensor.shape.first().copied().unwrap_or_default();
        tensor.elements() / rows.max(1) * rows.next_multiple_of(VOCABULARY_STEP)
    } else {
        tensor.elements()
    };
    let is_linear = is_matrix && LINEAR.iter().any(|part| name.contains(part));
    Bytes::new(match loaded_as.filter(|_| is_linear) {
        None => elements.saturating_mul(config.number),
        Some(LoadedAs::Fp8) => elements,
        Some(LoadedAs::BitsAndBytes) => elements / 2 + elements / 16,
    })
}
