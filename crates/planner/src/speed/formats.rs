//! Describes what a matrix of each format costs relative to others, in an answer and in a prompt.
//!
//! On a card, a block of 128 threads computes one row of an answer's product, and in a step it reads
//! `VDR * 128 / QI` quantised blocks of it (`mmvq.cu: mul_mat_vec_q`, `vecdotq.cuh: VDR_*_MMVQ @ 0.5.0`).
//!
//! DECISION: relative costs are those of single products that were timed on an H200
//! (`data/measured/h200-speed-kernels-0.5.0.json`), and a calibration scales them all. Models mix formats in
//! like proportions, so that a calibration cannot tell their costs apart.

use plimsoll_model::TensorType;

/// Rows that one block of threads shares where a row is shorter than a step (`mmvq.cu: calc_rows_per_block`).
const SHARED: u64 = 4;
/// Steps of Q8_0 that the compiler runs together.
const TOGETHER: u64 = 4;

/// Matrices that one kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    Single,
    /// A matrix and its gate, of one shape.
    Pair,
}

/// How a matrix of a format is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Elements of a row that one step reads; `None` for plain floats, whose kernel is another.
    step: Option<u64>,
    /// The start and the end of a row, and a step, in thousandths of a step of Q4_K.
    row: u64,
    cost: u64,
    /// What a step takes more that runs alone.
    alone: u64,
    /// An operation of a prompt, in thousandths of one with Q4_K.
    pub(super) prompt: u64,
    /// The host decodes its values by a table, which takes longer.
    pub(super) by_table: bool,
    /// It was timed, rather than one that is like it.
    pub(super) measured: bool,
}

impl Format {
    pub(super) fn of(kind: TensorType) -> Self {
        let (step, [row, cost, alone], prompt, by_table, measured) = match kind.name {
            "q4_0" => (Some(2048), [970, 805, 0], 1000, false, true),
            "q4_K" => (Some(2048), [1215, 1000, 0], 1000, false, true),
            "q5_K" => (Some(2048), [735, 1265, 0], 1100, false, true),
            "q6_K" => (Some(1024), [1070, 835, 0], 1220, false, true),
            "q8_0" => (Some(1024), [1205, 645, 355], 890, false, true),
            "mxfp4" => (Some(2048), [700, 1260, 0], 945, true, true),
            // Routers and other small matrices stay in F32; its kernel reads at the rate of the memory.
            "f32" => (None, [0; 3], 1800, false, true),
            "f16" | "bf16" => (None, [0; 3], 1000, false, false),
            name => (Some(2048), [735, 1265, 0], 1220, name.starts_with("iq"), false),
        };
        Self { step, row, cost, alone, prompt, by_table, measured }
    }

    /// The work of a product with one vector, in thousandths of a step of Q4_K; `None` for plain floats.
    pub(super) fn work(self, rows: u64, columns: u64, product: Product) -> Option<u64> {
        let step = self.step?;
        let is_short = columns < step;
        let blocks = if is_short { rows.div_ceil(SHARED) } else { rows };
        let steps = columns.div_ceil(step);
        let each = match product {
            Product::Single => {
                let alone = if is_short { 0 } else { steps % TOGETHER * self.alone };
                self.row.saturating_add(steps.saturating_mul(self.cost)).saturating_add(alone)
            }
            // The second row of a pair takes half of a start and an end.
            Product::Pair => (self.row * 3 / 2).saturating_add(steps.saturating_mul(2 * self.cost)),
        };
        Some(blocks.saturating_mul(each))
    }
}
