//! ik_llama.cpp's own ways with latent attention: `-mla` and `-amb`.
//!
//! DECISION: read off its sources @ 8337e4cd (2026-08-15) and held to logs that its users published, so every compute term of that engine
//! is marked as estimated. `-mla 0` caches whole heads; 1 keeps the latent vectors, without flash attention a second time, transposed;
//! 2 and 3 keep them once and turn them back into keys and values for prompts, for all heads together or for as many as `-amb` allows. A file lacks
//! a matrix that a mode needs, depending on who converted it: the engine then computes it when it loads, beside the others.

use plimsoll_base::Bytes;
use plimsoll_model::{Mla, Model, Tensor, TensorType, types};
use plimsoll_pool::demand::latent as demand;

use super::layout::{DeviceLayout, TensorDevice};
use super::request::{EngineKind, PlanRequest};
use super::reserve::CELLS;
use super::weights::{CARD_ALIGNMENT, Weights};

/// `common.h: gpt_params` (8337e4cd): `mla_attn` and, in MiB, `attn_max_batch`, which is never less than the last.
const USUAL_MODE: u32 = 3;
const USUAL_PASS: u64 = 256;
const SMALLEST_PASS: u64 = 128;
/// More heads than any model has.
const MOST_HEADS: u64 = 1 << 10;

/// What is cached of a token in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LatentCache {
    Heads,
    Vector,
    VectorAndTransposed,
}

/// The sizes and the ways of one model's latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatentAttention {
    pub(super) sizes: Mla,
    /// `-mla`.
    pub(super) mode: u32,
    /// `-amb` in MiB; none for no bound.
    pass: Option<u64>,
}

impl LatentAttention {
    /// `None` for other engines, and for models whose attention is not latent.
    pub(super) fn of(request: &PlanRequest<'_>, model: &Model) -> Option<Self> {
        if request.engine.kind != EngineKind::IkLlamaCpp {
            return None;
        }
        let hyper = &model.hyper;
        let sizes = hyper.mla.or(hyper.older_mla)?;
        let wish = request.wish;
        let pass = match wish.attention_buffer.map(|bytes| bytes.get() >> 20) {
            None => Some(USUAL_PASS),
            Some(0) => None,
            Some(mebibytes) => Some(mebibytes.max(SMALLEST_PASS)),
        };
        Some(Self {
            sizes,
            mode: wish.latent_attention.unwrap_or(USUAL_MODE).min(USUAL_MODE),
            pass,
        })
    }

    pub(super) fn rank(&self) -> u64 {
        u64::from(self.sizes.kv_lora_rank)
    }

    pub(super) fn rope(&self) -> u64 {
        u64::from(self.sizes.rope_dimension)
    }

    /// Length of a head's key without its rotary part.
    pub(super) fn plain(&self) -> u64 {
        u64::from(self.sizes.key_length).saturating_sub(self.rope())
    }

    pub(super) fn value(&self) -> u64 {
        u64::from(self.sizes.value_length)
    }

    /// A head's key and value as one latent vector gives them.
    pub(super) fn restored(&self) -> u64 {
        self.plain() + self.value()
    }

    pub(super) fn cached(&self, flash: bool) -> LatentCache {
        match self.mode {
            0 => LatentCache::Heads,
            1 if !flash => LatentCache::VectorAndTransposed,
            _ => LatentCache::Vector,
        }
    }

    /// Elements of K and V that one token has in one layer's cache.
    pub(super) fn rows(&self, heads: u32, flash: bool) -> (u64, u64) {
        let heads = u64::from(heads);
        match self.cached(flash) {
            LatentCache::Heads => (u64::from(self.sizes.key_length) * heads, self.value() * heads),
            LatentCache::Vector => (self.rank() + self.rope(), 0),
            LatentCache::VectorAndTransposed => (self.rank() + self.rope(), self.rank()),
        }
    }

    /// Are keys and values of all that is cached restored for a prompt?
    pub(super) fn restores(&self, flash: bool, tokens: u64) -> bool {
        self.mode > 1 && flash && tokens >= demand::LEAST_PROMPT
    }

    /// Heads whose keys and values are restored at once.
    pub(super) fn heads_a_pass(&self, heads: u32, cells: u64) -> u64 {
        demand::heads_a_pass(self.pass, self.restored(), u64::from(heads), cells)
    }

    /// Heads that are attended to at once where no kernel does all of it (`build_deepseek2.cpp: n_per_step`).
    pub(super) fn heads_a_step(&self, heads: u32, tokens: u64, cells: u64) -> u64 {
        let heads = u64::from(heads).clamp(1, MOST_HEADS);
        let whole = (Bytes::new(4) * heads * tokens * cells).get() >> 20;
        match self.pass {
            Some(pass) if whole > pass => heads.div_ceil(whole.div_ceil(pass).min(heads)),
            _ => heads,
        }
    }

    /// Is there a kernel for queries with the key matrix absorbed?
    pub(super) fn absorbs(&self) -> bool {
        self.mode == 1 || self.mode == 3
    }

    /// Depths below `cells` at which as many heads as ever fit a pass, in cells: at the next step there are fewer, and all that a
    /// pass holds is smaller. The engine reserves for the deepest cache alone and takes more when a prompt comes by one of these.
    pub(super) fn borders(&self, heads: u32, cells: u64) -> Vec<u64> {
        let Some(pass) = self.pass else {
            return Vec::new();
        };
        let heads = u64::from(heads).clamp(1, MOST_HEADS);
        let cell = 4 * self.restored().saturating_mul(heads).max(1);
        let divide = (1..heads).filter(|passes| heads.is_multiple_of(*passes));
        let deepest = divide.map(|passes| {
            let beyond = (u128::from(pass + 1) * u128::from(passes)) << 20;
            let deepest = u64::try_from((beyond - 1) / u128::from(cell)).unwrap_or(u64::MAX);
            deepest - deepest % CELLS
        });
        deepest.filter(|border| (1..cells).contains(border)).collect()
    }

    /// Adds what the engine computes when it loads to the weights (`llama.cpp: llm_prepare_mla`).
    pub(super) fn add_computed(&self, model: &Model, layout: &DeviceLayout, weights: &mut Weights) {
        for layer in 0..model.hyper.layers {
            let heads = u64::from(model.hyper.heads.at(layer));
            for (beside, bytes) in self.computed(model, layer, heads) {
                match layout.tensor(beside) {
                    TensorDevice::Host => weights.host += bytes,
                    TensorDevice::Card(device) => {
                        weights.devices[usize::from(device)] += bytes.padded(CARD_ALIGNMENT)
                    }
                }
            }
        }
    }

    /// All of it, wherever it lies.
    pub(super) fn computed_bytes(&self, model: &Model) -> Bytes {
        let layers = 0..model.hyper.layers;
        let computed = layers.flat_map(|layer| {
            let heads = u64::from(model.hyper.heads.at(layer));
            self.computed(model, layer, heads)
        });
        computed.map(|(_, bytes)| bytes).sum()
    }

    /// What is computed for one layer, each beside the tensor that it is made from.
    fn computed<'a>(&self, model: &'a Model, layer: u32, heads: u64) -> Vec<(&'a Tensor, Bytes)> {
        let find = |role: &str| {
            let name = format!("blk.{layer}.{role}.weight");
            model.tensors.iter().find(|tensor| tensor.name == name)
        };
        let size = |kind: TensorType, row: u64, rows: u64| kind.row(row).unwrap_or_default() * rows;
        match (find("attn_k_b"), find("attn_v_b"), find("attn_kv_b")) {
            (Some(key), Some(value), None) if self.mode != 1 => {
                let kind = common(key.kind, value.kind);
                vec![(
                    key,
                    size(kind, self.rank(), self.restored().saturating_mul(heads)),
                )]
            }
            (None, _, Some(both)) if self.mode > 0 => {
                let kind = if both.kind.quantised() {
                    types::Q8_0
                } else {
                    both.kind
                };
                vec![
                    (both, size(kind, self.plain(), self.rank().saturating_mul(heads))),
                    (
                        both,
                        size(both.kind, self.rank(), self.value().saturating_mul(heads)),
                    ),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// The type of a matrix that is joined from two.
fn common(key: TensorType, value: TensorType) -> TensorType {
    match key == value && !key.quantised() && key.size == 2 {
        true => key,
        false => types::Q8_0,
    }
}

/// Kimi K2's latent attention.
#[cfg(test)]
pub(super) fn kimi(mode: u32, pass: Option<u64>) -> LatentAttention {
    LatentAttention {
        sizes: Mla {
            kv_lora_rank: 512,
            rope_dimension: 64,
            key_length: 192,
            value_length: 128,
        },
        mode,
        pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_divide_the_heads_and_stay_within_the_bound_until_one_head_is_left() {
        // 64 heads of 256 over 32768 cells are 2 GiB
        assert_eq!(kimi(3, None).heads_a_pass(64, 32_768), 64);
        assert_eq!(kimi(3, Some(256)).heads_a_pass(64, 32_768), 8);
        assert_eq!(kimi(3, Some(2048)).heads_a_pass(64, 32_768), 64);
        assert_eq!(kimi(3, Some(128)).heads_a_pass(20, 202_752), 1, "GLM 4.7 Flash");
        assert_eq!(kimi(3, Some(128)).heads_a_pass(64, 1 << 40), 1);
        for heads in [1, 2, 20, 64, 128] {
            let a_pass = kimi(3, Some(256)).heads_a_pass(heads, 65_536);
            assert!(u64::from(heads).is_multiple_of(a_pass), "{heads}: {a_pass}");
        }
    }

    #[test]
    fn as_many_heads_as_ever_fit_at_a_border_and_fewer_beyond_it() {
        let latent = kimi(3, Some(512));
        let borders = latent.borders(64, 131_072);
        assert_eq!(borders, [8192, 16_384, 32_768, 65_536]);
        for border in borders {
            let at = latent.heads_a_pass(64, border);
            assert!(latent.heads_a_pass(64, border + CELLS) < at, "{border}");
        }
        assert!(kimi(3, None).borders(64, 131_072).is_empty());
    }

    #[test]
    fn attention_without_a_kernel_goes_in_the_steps_of_pull_request_237() {
        // 163840 x 1024 x 128 x 4 bytes are 80 GiB: with -amb 1024 two heads at a time
        assert_eq!(kimi(3, Some(1024)).heads_a_step(128, 1024, 163_840), 2);
        assert_eq!(kimi(3, None).heads_a_step(128, 1024, 163_840), 128);
    }
}
