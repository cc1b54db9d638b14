//! Tensors and the element types of ggml.

use crate::bytes::Bytes;

/// An element type: its number in the file, name, and block geometry.
///
/// A plain value rather than an enum, so that a type table is one table and an engine's own types (ik_llama.cpp)
/// are rows of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub id: u32,
    pub name: &'static str,
    /// Elements in a block.
    pub block: u64,
    /// Bytes of a block.
    pub size: u64,
    /// Bytes that a row has beside its blocks; only some of ik_llama.cpp's types have any.
    pub row_extra: u64,
}

impl TensorType {
    /// `ggml_is_quantized`.
    pub const fn quantised(self) -> bool {
        self.block > 1
    }

    /// `ggml_row_size`: bytes of `elements` in a row; `None` if they are no whole number of blocks.
    pub fn row(self, elements: u64) -> Option<Bytes> {
        elements
            .is_multiple_of(self.block)
            .then(|| Bytes::new(elements / self.block) * self.size + Bytes::new(self.row_extra))
    }
}

/// A tensor as the header lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub kind: TensorType,
    /// `ne`: elements along each dimension, the row first; absent dimensions are 1.
    pub shape: [u64; 4],
    /// Bytes of its data.
    pub bytes: Bytes,
    /// Which file of a split set holds it, from 0.
    pub file: u16,
}

impl Tensor {
    /// The layer a name belongs to: `blk.7.attn_q.weight` → 7.
    pub fn layer(&self) -> Option<u32> {
        self.name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
    }

    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all, &n| all.saturating_mul(n))
    }
}
