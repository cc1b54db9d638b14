//! Generates the tensor data of synthetic models, in pieces.
//!
//! F32, F16, Q8_0 and Q4_0 are encoded; every other type gets zeros, which are valid in all of them.

use plimsoll_model::TensorType;
use plimsoll_model::gguf::DraftTensor;
use plimsoll_model::tiny::{Rows, encode, half, nearest};
use plimsoll_model::types::{F16, F32, Q4_0, Q8_0};

use super::{Contents, Recipe};

/// A piece is at least so long, unless it is the last.
const PIECE: u64 = 1 << 16;

/// The data of one tensor, as an iterator over pieces of whole rows.
#[derive(Debug)]
pub struct Weights<'a> {
    tensor: &'a DraftTensor,
    rows: Rows,
    left: u64,
}

impl<'a> Weights<'a> {
    pub(super) fn new(recipe: &Recipe, tensor: &'a DraftTensor) -> Self {
        Self {
            tensor,
            rows: Rows::new(tensor, recipe.seed, recipe.contents == Contents::Words),
            left: tensor.shape.iter().skip(1).product(),
        }
    }
}

impl Iterator for Weights<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let length = self.tensor.shape.first().copied().unwrap_or(1);
        let row_bytes = self.tensor.kind.row(length)?.get().max(1);
        let rows = PIECE.div_ceil(row_bytes).min(self.left);
        if rows == 0 || length == 0 {
            return None;
        }
        self.left -= rows;
        if !encodes(self.tensor.kind) {
            // Drawing numbers for gigabytes of zeros would take minutes.
            return Some(vec![0; usize::try_from(rows * row_bytes).ok()?]);
        }
        let mut piece = Vec::new();
        for _ in 0..rows {
            let row = self.rows.next_row()?;
            if !encode(self.tensor.kind, row, &mut piece) {
                row.chunks(32).for_each(|block| encode_q4_0(block, &mut piece));
            }
        }
        Some(piece)
    }
}

const fn encodes(kind: TensorType) -> bool {
    kind.id == F32.id || kind.id == F16.id || kind.id == Q8_0.id || kind.id == Q4_0.id
}

/// A scale that makes the largest number -8, then the numbers as shares of it plus 8, the two halves of the
/// block in the two halves of a byte (`ggml-quants.c: quantize_row_q4_0_ref @ b10605`).
pub fn encode_q4_0(block: &[f32], out: &mut Vec<u8>) {
    let further = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
    let scale = block.iter().fold(0.0_f32, further) / -8.0;
    let share = |number: f32| {
        if scale == 0.0 { 8 } else { nearest(number / scale + 8.0).clamp(0, 15).to_le_bytes()[0] }
    };
    let (low, high) = block.split_at(block.len() / 2);
    out.extend(half(scale).to_le_bytes());
    out.extend(low.iter().zip(high).map(|(&low, &high)| share(high) << 4 | share(low)));
}
