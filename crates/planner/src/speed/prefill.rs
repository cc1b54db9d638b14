//! Computes the time of a prompt from the work of one token and the rates.

use super::decode::sum;
use super::rates::{PrefillRates, SpeedRates};
use super::work::{AttentionWork, DeviceWork};

/// Rates of operations are of a million.
const MILLION: u64 = 1_000_000;
/// Operations of attention for each element of a query at one position: two products of two operations.
const ATTENDED: u64 = 4;

impl SpeedRates {
    /// Femtoseconds of a card's part of a prompt from the start of the context.
    pub(super) fn prompt(&self, work: &DeviceWork, tokens: u64) -> u64 {
        let PrefillRates { kernel, dense, routed, .. } = self.prefill;
        let each =
            sum([(work.kernels, kernel), (work.dense / MILLION, dense), (work.routed / MILLION, routed)]);
        let attention = work.attention.iter().map(|of| self.prefill.attend(of, tokens));
        each.saturating_mul(tokens).saturating_add(attention.fold(0, u64::saturating_add))
    }
}

impl PrefillRates {
    fn attend(&self, of: &AttentionWork, tokens: u64) -> u64 {
        // On average a token sees half of the prompt, or the window of its layer.
        let seen = (tokens / 2).min(of.window.unwrap_or(u64::MAX));
        let elements = of.heads.saturating_mul(of.length).saturating_mul(seen).saturating_mul(tokens);
        let rate = if of.heads > of.heads_kv { self.grouped } else { self.single };
        (elements / MILLION).saturating_mul(ATTENDED).saturating_mul(rate)
    }
}
