//! Describes the tensors of a model and their ggml element types.

use plimsoll_base::Bytes;

use super::gguf::TensorInfo;

/// Element type: its number in the file, its name, and its block sizes.
///
/// It is a plain value and not an enum, so that an engine's own types (ik_llama.cpp) are rows of a second
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub id: u32,
    pub name: &'static str,
    /// Elements in a block.
    pub block: u64,
    /// Bytes of a block.
    pub size: u64,
    /// Bytes of a row in addition to its blocks; only some of ik_llama.cpp's types have any.
    pub row_extra: u64,
}

impl TensorType {
    /// `ggml_is_quantized`.
    pub const fn quantised(self) -> bool {
        // ggml counts F32, F16, BF16 and the integers as plain: blocks of one element.
        self.block > 1
    }

    /// `ggml_row_size`: bytes of `elements` in a row; `None` if they are not a whole number of blocks.
    pub fn row(self, elements: u64) -> Option<Bytes> {
        elements
            // ggml stores no partial block: a row of another length is of another type.
            .is_multiple_of(self.block)
            .then(|| Bytes::new(elements / self.block) * self.size + Bytes::new(self.row_extra))
    }
}

/// A tensor as listed in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub kind: TensorType,
    /// `ne`: elements along each dimension, the row first; absent dimensions are 1.
    pub shape: [u64; 4],
    /// Bytes of its data.
    pub bytes: Bytes,
    /// The file of a split set that holds it, from 0.
    pub file: u16,
    layer: Option<u32>,
    expert: bool,
}

impl Tensor {
    /// The tensor that `info` lists in the file of this number. Its name is parsed once, because plans need
    /// the result for every tensor repeatedly.
    pub(super) fn listed(info: &TensorInfo<'_>, file: u16) -> Self {
        Self {
            name: info.name.to_owned(),
            kind: info.kind,
            shape: info.shape,
            bytes: info.bytes,
            file,
            // Parsed once here; searches over placements read it for every tensor of every attempt.
            layer: layer(info.name),
            expert: is_expert(info.name),
        }
    }

    /// The layer a name belongs to: `blk.7.attn_q.weight` → 7.
    pub fn layer(&self) -> Option<u32> {
        self.layer
    }

    /// The name within its layer: `blk.7.attn_q.weight` → `attn_q.weight`.
    pub fn role(&self) -> Option<&str> {
        self.name.strip_prefix("blk.")?.split_once('.').map(|(_, role)| role)
    }

    /// Does it hold routed experts, by the engine's pattern for their names?
    pub fn is_expert(&self) -> bool {
        self.expert
    }
}

fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// `common/common.h: LLM_FFN_EXPS_REGEX @ b10605`: `\.ffn_(up|down|gate|gate_up)_(ch|)exps`.
fn is_expert(name: &str) -> bool {
    let expert = |part: &str| {
        let (matrix, suffix) = part.strip_prefix("ffn_")?.rsplit_once('_')?;
        let matrix = matches!(matrix, "up" | "down" | "gate" | "gate_up");
        // Shared experts (`shexp`) are not routed and stay on the card.
        Some(matrix && matches!(suffix, "exps" | "chexps"))
    };
    name.split('.').any(|part| expert(part) == Some(true))
}
