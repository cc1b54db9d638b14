//! Computes the time of a prompt from the work of one token and the rates.

use super::decode::{SHORT, SHORT_HEADS, sum};
use super::rates::{PrefillRates, SpeedRates};
use super::work::{AttentionWork, DeviceWork};

/// Rates of operations are of a million.
const MILLION: u64 = 1_000_000;
/// Operations of attention for each element of a query at one position: two products of two operations.
const ATTENDED: u64 = 4;

/// Kernels are counted in thousandths.
const THOUSAND: u64 = 1000;

impl SpeedRates {
    /// Femtoseconds of a card's part of a prompt from the start of the context.
    pub(super) fn prompt(&self, work: &DeviceWork, tokens: u64, micro_batch: u64) -> u64 {
        let rates = &self.prefill;
        let each = sum([
            (work.products, rates.product),
            (work.routed_products, rates.routed_product),
            (work.others / THOUSAND, rates.kernel),
        ]);
        let computed = sum([(work.dense / MILLION, rates.dense), (work.routed / MILLION, rates.routed)]);
        let attention = work.attention.iter().map(|of| rates.attend(of, tokens, micro_batch));
        sum([
            (tokens.div_ceil(micro_batch.max(1)), each),
            (tokens, computed),
            (1, attention.fold(0, u64::saturating_add)),
        ])
    }

    /// Femtoseconds of the part of a prompt whose weights are in host memory: each micro-batch moves them to
    /// the card (`ggml-backend.cpp: ggml_backend_sched_backend_id_from_cur @ 0.5.0`), and the host attends.
    pub(super) fn hosted(&self, work: &DeviceWork, tokens: u64, micro_batch: u64) -> u64 {
        let moved = work.stored.saturating_mul(tokens.div_ceil(micro_batch.max(1)));
        let attended = work.attention.iter().map(|of| of.attended(tokens, micro_batch) / MILLION);
        let attended = attended.fold(0, u64::saturating_add);
        let computed = DeviceWork { attention: Vec::new(), ..work.clone() };
        let computed = self.prompt(&computed, tokens, micro_batch);
        sum([(moved, self.host.bus), (attended, self.host.attended), (1, computed)])
    }
}

impl AttentionWork {
    /// Operations of the attention of a prompt.
    fn attended(&self, tokens: u64, micro_batch: u64) -> u64 {
        // A micro-batch attends to all cells before its end, of a sliding layer to those that its cache has.
        let seen = (tokens / 2).saturating_add(micro_batch.min(tokens) / 2);
        let seen = seen.min(self.cells(tokens, micro_batch));
        let elements = self.heads.saturating_mul(self.length).saturating_mul(seen).saturating_mul(tokens);
        elements.saturating_mul(ATTENDED)
    }
}

impl PrefillRates {
    fn attend(&self, of: &AttentionWork, tokens: u64, micro_batch: u64) -> u64 {
        let rate = match (of.heads > of.heads_kv, of.length > SHORT) {
            (true, true) => self.grouped,
            (true, false) => self.grouped.saturating_mul(SHORT_HEADS) / 100,
            (false, _) => self.single,
        };
        (of.attended(tokens, micro_batch) / MILLION).saturating_mul(rate)
    }
}
