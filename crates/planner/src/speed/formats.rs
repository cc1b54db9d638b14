//! Describes how the kernels of one token read a matrix of each format.
//!
//! On a card, a block of 128 threads computes one row, and in a step it reads `VDR * 128 / QI` quantised
//! blocks of it (`mmvq.cu: mul_mat_vec_q`, `vecdotq.cuh: VDR_*_MMVQ @ 0.5.0`).

use plimsoll_model::TensorType;

/// Rows that one block of threads shares where a row is shorter than a step (`mmvq.cu: calc_rows_per_block`).
const SHARED: u64 = 4;

/// How a matrix of a format is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Elements of a row that one step reads; `None` for plain floats, whose kernel is another.
    step: Option<u64>,
    /// The host decodes its values by a table, which takes longer.
    pub(super) by_table: bool,
    /// A calibration has it, rather than one that is like it.
    pub(super) measured: bool,
}

impl Format {
    pub(super) fn of(kind: TensorType) -> Self {
        let (step, by_table, measured) = match kind.name {
            "q4_0" | "q4_K" => (Some(2048), false, true),
            "q6_K" | "q8_0" => (Some(1024), false, true),
            "mxfp4" => (Some(2048), true, true),
            // Routers and other small matrices stay in F32; its kernel reads at the rate of the memory.
            "f32" => (None, false, true),
            "f16" | "bf16" => (None, false, false),
            name => (Some(2048), name.starts_with("iq"), false),
        };
        Self { step, by_table, measured }
    }

    /// Steps of a product with a matrix; `None` for plain floats.
    pub(super) fn steps(self, rows: u64, columns: u64) -> Option<u64> {
        let step = self.step?;
        let blocks = if columns < step { rows.div_ceil(SHARED) } else { rows };
        Some(blocks.saturating_mul(columns.div_ceil(step)))
    }
}
