//! Computes the time of one token from its work and the rates.

use super::rates::{HostRates, SpeedRates};
use super::work::{AttentionWork, DeviceWork};
use crate::CELLS;

/// Cells from which grouped queries take the matrix kernel, and heads of a key beyond which they are grouped
/// (`fattn.cu: ggml_cuda_get_best_fattn_kernel @ 0.5.0`).
const MATRIX_FROM: u64 = 8192;
const FEW: u64 = 4;
/// The longest head of the vector kernel, the step of its lengths, and the one that it lacks.
const LONGEST_VECTOR: u64 = 256;
const VECTOR_STEP: u64 = 64;
const NO_VECTOR: u64 = 192;
/// The longest head with the first of two rates.
pub(super) const SHORT: u64 = 64;
/// Elements of short heads take longer, in percent of those of others.
pub(super) const SHORT_HEADS: u64 = 125;
/// Cells of a cache that occupy the whole card.
const FILLING: u64 = 4096;
/// Work is counted in thousandths.
const THOUSAND: u64 = 1000;
/// Bytes of an element of a key and of one of a value, in F16.
const F16: u64 = 4;

impl SpeedRates {
    /// Femtoseconds of a card's part of one token at a depth.
    pub(super) fn card(&self, work: &DeviceWork, depth: u64, micro_batch: u64) -> u64 {
        let attend = |of: &AttentionWork| self.attend(of, of.cells(depth, micro_batch));
        let attention: u64 = work.attention.iter().map(attend).fold(0, u64::saturating_add);
        let thousandths = sum([(work.steps, self.step), (work.kernels, self.kernel)]);
        sum([(thousandths / THOUSAND, 1), (work.floats, self.byte), (attention, 1)])
    }

    /// Femtoseconds of the attention of one layer to so many cells.
    fn attend(&self, of: &AttentionWork, cells: u64) -> u64 {
        let rates = &self.attention;
        let bytes = of.row.saturating_mul(cells);
        let filled = rates.filled.saturating_mul(cells.min(FILLING)) / FILLING;
        let quantised = if of.quantised { rates.quantised } else { 0 };
        if of.takes_vector(cells) {
            let elements = of.heads.saturating_mul(of.length).saturating_mul(cells);
            let rate = match of.quantised {
                true => rates.vector_quantised[usize::from(of.length > SHORT)],
                false if of.length > SHORT => rates.vector,
                false => rates.vector.saturating_mul(SHORT_HEADS) / 100,
            };
            return sum([(1, filled), (1, quantised), (elements, rate), (bytes, self.byte)]);
        }
        let plain = of.heads_kv.saturating_mul(of.length).saturating_mul(F16).saturating_mul(cells);
        let converted = if of.quantised { bytes } else { 0 };
        let (start, rate) =
            if of.heads > of.heads_kv { (2 * filled, rates.grouped) } else { (rates.matrix, rates.single) };
        sum([(1, start), (1, quantised), (plain, rate), (converted, rates.converted)])
    }
}

impl HostRates {
    /// Femtoseconds of the host's part of one token at a depth.
    pub(super) fn host(&self, work: &DeviceWork, depth: u64) -> u64 {
        let cache = |of: &AttentionWork| of.row.saturating_mul(depth.min(of.window.unwrap_or(depth)));
        let cache = work.attention.iter().map(cache).fold(0, u64::saturating_add);
        let plain = work.weights.saturating_add(work.floats);
        sum([
            (plain, self.byte),
            (work.tables, self.table_byte),
            (work.kernels / THOUSAND, self.kernel),
            (cache, self.cache),
        ])
    }
}

/// The sum of counts times their rates; sizes saturate, because a hostile header may state any shape.
pub(super) fn sum<const N: usize>(terms: [(u64, u64); N]) -> u64 {
    terms.into_iter().map(|(count, rate)| count.saturating_mul(rate)).fold(0, u64::saturating_add)
}

impl AttentionWork {
    /// Cells that the kernel reads: whole steps, and of a sliding layer those that its cache has.
    pub(super) fn cells(&self, depth: u64, micro_batch: u64) -> u64 {
        let whole = |cells: u64| cells.max(1).checked_next_multiple_of(CELLS).unwrap_or(u64::MAX);
        let cached = self.window.map_or(u64::MAX, |window| whole(window.saturating_add(micro_batch)));
        whole(depth).min(cached)
    }

    /// True where five heads or more share a key.
    fn is_grouped(&self) -> bool {
        self.heads > FEW.saturating_mul(self.heads_kv)
    }

    fn takes_vector(&self, cells: u64) -> bool {
        let has_kernel = self.length <= LONGEST_VECTOR
            && self.length.is_multiple_of(VECTOR_STEP)
            && self.length != NO_VECTOR;
        let is_long = self.length >= LONGEST_VECTOR || cells >= MATRIX_FROM;
        has_kernel && (self.quantised || !self.is_grouped() || !is_long)
    }

    /// True for heads that a calibration has, or whose kernel has the rates of one that it has.
    pub(super) fn is_measured(&self) -> bool {
        match self.length {
            64 | 128 | 256 => true,
            length => length == 96 && self.heads == self.heads_kv,
        }
    }
}
