//! AttentionPool: what a layer blocks for, whatever the depth, and for each cell in use.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, TensorType};
use plimsoll_pool::demand::attention::{Call, Element, Kernel};
use plimsoll_pool::demand::{Group, Rules, product};

use super::{PoolInputs, ik, sum};
use crate::reserve::{CELLS, Reserve};

/// One layer's attention to a whole micro-batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttentionPool {
    /// What it takes at any depth.
    constant: Bytes,
    /// What each cell in use adds.
    pub(super) growth: Bytes,
    blocks: AttentionBlocks,
}

/// What its blocks are made of.
#[derive(Clone, Copy, Debug, Default)]
enum AttentionBlocks {
    #[default]
    Nothing,
    /// The kernel that copies the cache.
    Flash(Call),
    /// ik_llama.cpp's ways.
    Latent(ik::Restored),
    /// A copy of the probabilities.
    Plain,
}

impl AttentionPool {
    pub(super) fn of(
        model: &Model,
        layer: u32,
        reserve: &Reserve,
        (rules, depth): (Rules, PoolInputs),
    ) -> Self {
        let heads = model.hyper.heads.at(layer);
        if !depth.flash_attention {
            return Self::plain(model, layer, reserve, depth);
        }
        if let Some(latent) = depth.latent.filter(|latent| latent.mode > 0) {
            let batch = (reserve.tokens, rules.processors);
            let (constant, growth) = ik::attention(&latent, heads, depth.key, depth.cells, batch);
            let restored = ik::Restored::of(latent, heads, depth.key, batch);
            return Self {
                constant,
                growth,
                blocks: AttentionBlocks::Latent(restored),
            };
        }
        if !depth.engine.copies() {
            return Self::default();
        }
        let call = call(model, layer, reserve.tokens, depth);
        Self {
            // a prompt can end with any number of tokens
            constant: Bytes::new(call.cut_at_most(rules)),
            growth: sum(call.copies(Kernel::Matrix)),
            blocks: AttentionBlocks::Flash(call),
        }
    }

    /// The probabilities in f16, for the product with V, and its result in f16.
    fn plain(model: &Model, layer: u32, reserve: &Reserve, depth: PoolInputs) -> Self {
        let heads = model.hyper.heads.at(layer);
        let at_once = match depth.latent {
            Some(latent) => latent.heads_a_step(heads, reserve.tokens, depth.cells),
            None => u64::from(heads),
        };
        let value = u64::from(model.hyper.head_lengths(layer).1);
        let halves = Bytes::new(2) * reserve.tokens * at_once;
        Self {
            constant: halves * value,
            growth: halves,
            blocks: AttentionBlocks::Plain,
        }
    }

    /// The most that is alive at once with so many cells in use.
    pub(super) fn most(&self, cells: u64) -> Bytes {
        self.constant + self.growth * cells
    }

    /// Blocks of a whole micro-batch with so many cells in use, operation by operation.
    pub(super) fn groups(&self, rules: Rules, cells: u64) -> [Group<5>; 2] {
        match self.blocks {
            AttentionBlocks::Nothing => [[0; 5]; 2],
            AttentionBlocks::Flash(call) => [Call { cells, ..call }.group(rules), [0; 5]],
            AttentionBlocks::Latent(restored) => restored.groups(cells),
            AttentionBlocks::Plain => {
                let (copy, result) = (self.growth * cells, self.constant);
                [[copy.get(), result.get(), 0, 0, 0], [0; 5]]
            }
        }
    }
}

/// The call of flash attention with one cell in use.
fn call(model: &Model, layer: u32, tokens: u64, depth: PoolInputs) -> Call {
    let hyper = &model.hyper;
    let heads = u64::from(hyper.heads.at(layer));
    let (key, value) = hyper.head_lengths(layer);
    let (key, value, kv_heads) = match depth.latent {
        // whole heads are cached
        Some(latent) => (u64::from(latent.sizes.key_length), latent.value(), heads),
        None => (
            u64::from(key),
            u64::from(value),
            u64::from(hyper.heads_kv.at(layer)),
        ),
    };
    Call {
        key,
        value,
        heads,
        kv_heads,
        tokens,
        sequences: 1,
        cells: 1,
        k: element(depth.key),
        v: element(depth.value),
        v_is_k: depth.latent.is_none() && hyper.mla.is_some(),
        masked: true,
        together: true,
        biased: false,
    }
}

fn element(kind: TensorType) -> Element {
    match kind.name {
        "f16" => Element::F16,
        "f32" => Element::F32,
        _ if kind.quantised() => Element::Quantised,
        _ => Element::Other,
    }
}

/// What the two tokens of a warm-up ask for first: the activations of a product of width `n_embd`, and attention to the first cells.
pub(super) fn warm_up(model: &Model, depth: PoolInputs, rules: Rules) -> [Group<5>; 2] {
    const TOKENS: u64 = 2;
    let activations = product::vectors(u64::from(model.hyper.embedding), TOKENS);
    let call = Call {
        cells: CELLS,
        ..call(model, 0, TOKENS, depth)
    };
    [[activations, 0, 0, 0, 0], call.group(rules)]
}
