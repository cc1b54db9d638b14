//! Computes the temporary GPU memory of attention: a constant part, and a part for each token in the KV
//! cache.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, TensorType};
use plimsoll_pool::demand::attention::{AttentionType, Call, Kernel};
use plimsoll_pool::demand::{DemandGroup, Rules, product};

use super::ik::LatentPool;
use super::{PoolInputs, sum};
use crate::{CELLS, LatentAttention, Reserve};

/// Pool memory for the attention of one layer over a whole micro-batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttentionPool {
    /// Bytes at any depth.
    constant: Bytes,
    /// Bytes of each cell in use.
    pub(super) growth: Bytes,
    /// A kernel that copies the cache.
    call: Option<Call>,
}

impl AttentionPool {
    pub(super) fn of(model: &Model, layer: u32, reserve: &Reserve, inputs: PoolInputs) -> Self {
        let (rules, cache) = (inputs.rules, inputs.cache);
        if !inputs.flash_attention {
            return Self::plain(model, layer, reserve, inputs);
        }
        if let Some(latent) = cache.latent.filter(|latent| latent.mode > 0) {
            let latent = LatentPool {
                latent,
                heads: model.hyper.heads.at(layer),
                key: cache.key,
                tokens: reserve.tokens,
                processors: rules.processors,
            };
            let (constant, growth) = latent.attention(inputs.cells);
            return Self { constant, growth, call: None };
        }
        // Since PR 23907 the copies are in the compute buffer.
        if !rules.engine.copies() {
            return Self::default();
        }
        let call = call(model, layer, reserve.tokens, inputs);
        Self {
            // A prompt can end with any number of tokens, and some numbers split the work into more partial
            // results.
            constant: Bytes::new(call.cut_at_most(rules)),
            growth: sum(call.copies(Kernel::Matrix)),
            call: Some(call),
        }
    }

    /// The probabilities in f16 for the product with V, and its result in f16.
    fn plain(model: &Model, layer: u32, reserve: &Reserve, inputs: PoolInputs) -> Self {
        let heads = u64::from(model.hyper.heads.at(layer));
        let step = |latent: LatentAttention| latent.heads_a_step(heads, reserve.tokens, inputs.cells);
        let at_once = inputs.cache.latent.map_or(heads, step);
        let value = u64::from(model.hyper.head_lengths(layer).1);
        // cuBLAS reads and writes f16 here.
        let halves = Bytes::new(2) * reserve.tokens * at_once;
        Self { constant: halves * value, growth: halves, call: None }
    }

    /// The most bytes in use at once with this many cells in use.
    pub(super) fn most(&self, cells: u64) -> Bytes {
        self.constant + self.growth * cells
    }

    /// Blocks of a whole micro-batch with this many cells in use, of an operation.
    pub(super) fn group(&self, rules: Rules, cells: u64) -> DemandGroup<5> {
        match self.call {
            Some(call) => Call { cells, ..call }.group(rules),
            // Without a kernel, copies that grow (of the probabilities, of latent vectors) and the result.
            None => [(self.growth * cells).get(), self.constant.get(), 0, 0, 0],
        }
    }
}

/// The call of flash attention with one cell in use.
fn call(model: &Model, layer: u32, tokens: u64, inputs: PoolInputs) -> Call {
    let hyper = &model.hyper;
    let heads = u64::from(hyper.heads.at(layer));
    let (key, value) = hyper.head_lengths(layer);
    let (key, value, kv_heads) = match inputs.cache.latent {
        // `-mla 0` caches whole heads, one of keys and values for each of queries.
        Some(latent) => (latent.key, latent.value, heads),
        None => (u64::from(key), u64::from(value), u64::from(hyper.heads_kv.at(layer))),
    };
    Call {
        key,
        value,
        heads,
        kv_heads,
        tokens,
        sequences: 1,
        cells: 1,
        k: element(inputs.cache.key),
        v: element(inputs.cache.value),
        v_is_k: inputs.cache.latent.is_none() && hyper.mla.is_some(),
        masked: true,
        together: true,
        biased: false,
    }
}

fn element(kind: TensorType) -> AttentionType {
    match kind.name {
        "f16" => AttentionType::F16,
        "f32" => AttentionType::F32,
        _ if kind.quantised() => AttentionType::Quantised,
        _ => AttentionType::Other,
    }
}

/// First blocks of a warm-up of two tokens: a product of width `n_embd`, and attention to the first cells.
pub(super) fn warm_up(model: &Model, inputs: PoolInputs) -> [DemandGroup<5>; 2] {
    // `common.cpp: common_init_from_params` decodes the first and the last special token.
    const TOKENS: u64 = 2;
    let activations = product::vectors(u64::from(model.hyper.embedding), TOKENS);
    let call = Call { cells: CELLS, ..call(model, 0, TOKENS, inputs) };
    [[activations, 0, 0, 0, 0], call.group(inputs.rules)]
}
