//! Computes the memory of latent attention (MLA) in ik_llama.cpp, by its flags `-mla` (mode) and `-amb`
//! (attention buffer).

use plimsoll_base::Bytes;
use plimsoll_model::{Mla, Model, Tensor, TensorType, types};
use plimsoll_pool::demand::latent as demand;

use crate::{CELLS, DeviceBytes, DeviceLayout, EngineKind, PlanRequest};

/// `common.h: gpt_params` (8337e4cd): `mla_attn` and, in MiB, `attn_max_batch`, which is at least the last.
const USUAL_MODE: u32 = 3;
const USUAL_PASS: u64 = 256;
const SMALLEST_PASS: u64 = 128;
/// More heads than any model has.
const MOST_HEADS: u64 = 1 << 10;

// Mode 0 caches whole heads. Mode 1 caches the latent vectors and, without flash attention, a transposed
// copy. Modes 2 and 3 cache the vectors once and decompress heads in groups under `-amb`.
//
// DECISION: the sizes come from the engine's sources @ 8337e4cd and published logs only. So every compute
// term of that engine is marked as estimated.
/// Form in which a layer caches a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LatentCache {
    Heads,
    Vector,
    VectorAndTransposed,
}

/// Sizes and mode of one model's latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatentAttention {
    /// Length of a latent vector.
    pub(super) rank: u64,
    pub(super) rope: u64,
    /// Length of a head's key, and of the part that is not rotary.
    pub(super) key: u64,
    pub(super) plain: u64,
    pub(super) value: u64,
    /// `-mla`.
    pub(super) mode: u32,
    /// `-amb` in MiB; `None` for no bound.
    pass: Option<u64>,
}

impl LatentAttention {
    /// Latent attention of a model; `None` for other engines, and for models without it.
    pub(super) fn of(request: &PlanRequest<'_>, model: &Model) -> Option<Self> {
        if request.engine.kind != EngineKind::IkLlamaCpp {
            return None;
        }
        let params = request.params;
        let pass = match params.attention_buffer.map(|bytes| bytes.get() >> 20) {
            None => Some(USUAL_PASS),
            Some(0) => None,
            Some(mebibytes) => Some(mebibytes.max(SMALLEST_PASS)),
        };
        // Files converted before llama.cpp knew latent attention describe it by other keys.
        let sizes = model.hyper.mla.or(model.hyper.older_mla)?;
        Some(Self::new(sizes, params.latent_attention.unwrap_or(USUAL_MODE).min(USUAL_MODE), pass))
    }

    fn new(sizes: Mla, mode: u32, pass: Option<u64>) -> Self {
        let (rope, key) = (u64::from(sizes.rope_dimension), u64::from(sizes.key_length));
        let (rank, value) = (u64::from(sizes.kv_lora_rank), u64::from(sizes.value_length));
        Self { rank, rope, key, plain: key.saturating_sub(rope), value, mode, pass }
    }

    /// Length of a head's key and value as restored from a latent vector.
    pub(super) fn restored(&self) -> u64 {
        self.plain + self.value
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
            LatentCache::Heads => (self.key * heads, self.value * heads),
            LatentCache::Vector => (self.rank + self.rope, 0),
            LatentCache::VectorAndTransposed => (self.rank + self.rope, self.rank),
        }
    }

    /// True if a prompt restores keys and values of the whole cache.
    pub(super) fn restores(&self, flash: bool, tokens: u64) -> bool {
        self.mode > 1 && flash && tokens >= demand::LEAST_PROMPT
    }

    /// Heads whose keys and values are restored at once.
    pub(super) fn heads_a_pass(&self, heads: u64, cells: u64) -> u64 {
        demand::heads_a_pass(self.pass, self.restored(), heads, cells)
    }

    /// Heads that are attended to at once without an attention kernel (`build_deepseek2.cpp: n_per_step`).
    pub(super) fn heads_a_step(&self, heads: u64, tokens: u64, cells: u64) -> u64 {
        let heads = heads.clamp(1, MOST_HEADS);
        let whole = (Bytes::new(4) * heads * tokens * cells).get() >> 20;
        match self.pass {
            Some(pass) if whole > pass => heads.div_ceil(whole.div_ceil(pass).min(heads)),
            _ => heads,
        }
    }

    /// True if a kernel takes queries with the key matrix absorbed.
    pub(super) fn absorbs(&self) -> bool {
        self.mode == 1 || self.mode == 3
    }

    /// Depths below `cells`, in cells, at which one pass holds the most: one step deeper, fewer heads fit a
    /// pass. The engine reserves for the deepest cache alone and allocates more when a prompt passes one of
    /// these depths.
    pub(super) fn borders(&self, heads: u32, cells: u64) -> Vec<u64> {
        let Some(pass) = self.pass else { return Vec::new() };
        let heads = u64::from(heads).clamp(1, MOST_HEADS);
        let cell = 4 * self.restored().saturating_mul(heads).max(1);
        // The engine only makes passes of equally many heads.
        let divide = (1..heads).filter(|passes| heads.is_multiple_of(*passes));
        let deepest = divide.map(|passes| {
            // It compares whole mebibytes, so the bound holds up to just below the next one.
            let beyond = (u128::from(pass + 1) * u128::from(passes)) << 20;
            let deepest = u64::try_from((beyond - 1) / u128::from(cell)).unwrap_or(u64::MAX);
            deepest - deepest % CELLS
        });
        deepest.filter(|border| (1..cells).contains(border)).collect()
    }

    /// Adds the matrices that the engine computes when it loads to the weights (`llama.cpp:
    /// llm_prepare_mla`).
    pub(super) fn add_computed(&self, model: &Model, layout: &DeviceLayout, weights: &mut DeviceBytes) {
        for (alongside, bytes) in self.computed(model) {
            // A computed matrix is allocated beside the tensor that it is made from.
            weights.add(layout.tensor(alongside), bytes, Bytes::ZERO);
        }
    }

    /// Bytes of all computed matrices, on any device.
    pub(super) fn computed_bytes(&self, model: &Model) -> Bytes {
        self.computed(model).map(|(_, bytes)| bytes).sum()
    }

    /// The matrices that are computed, each with the tensor that it is made from.
    fn computed<'a>(&self, model: &'a Model) -> impl Iterator<Item = (&'a Tensor, Bytes)> {
        (0..model.hyper.layers).flat_map(move |layer| self.computed_for(model, layer))
    }

    fn computed_for<'a>(&self, model: &'a Model, layer: u32) -> Vec<(&'a Tensor, Bytes)> {
        let heads = u64::from(model.hyper.heads.at(layer));
        let find = |role: &str| {
            let name = format!("blk.{layer}.{role}.weight");
            model.tensors.iter().find(|tensor| tensor.name == name)
        };
        let size = |kind: TensorType, row: u64, each: u64| {
            kind.row(row).unwrap_or_default() * each.saturating_mul(heads)
        };
        match (find("attn_k_b"), find("attn_v_b"), find("attn_kv_b")) {
            // Newer files split the matrix in two; restoring needs it joined.
            (Some(key), Some(value), None) if self.mode != 1 => {
                let kind = joined_type(key.kind, value.kind);
                vec![(key, size(kind, self.rank, self.restored()))]
            }
            // Older files have it joined; absorbing needs it split.
            (None, _, Some(both)) if self.mode > 0 => {
                let kind = if both.kind.quantised() { types::Q8_0 } else { both.kind };
                vec![
                    (both, size(kind, self.plain, self.rank)),
                    (both, size(both.kind, self.rank, self.value)),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// The type of a matrix that is joined from two.
fn joined_type(key: TensorType, value: TensorType) -> TensorType {
    if key == value && !key.quantised() && key.size == 2 { key } else { types::Q8_0 }
}

/// Kimi K2's latent attention.
#[cfg(test)]
pub(super) fn kimi(mode: u32, pass: Option<u64>) -> LatentAttention {
    let sizes = Mla { kv_lora_rank: 512, rope_dimension: 64, key_length: 192, value_length: 128 };
    LatentAttention::new(sizes, mode, pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_divide_the_heads_and_keep_the_bound_down_to_one_head() {
        // 64 heads of 256 over 32768 cells are 2 GiB
        assert_eq!(kimi(3, None).heads_a_pass(64, 32_768), 64);
        assert_eq!(kimi(3, Some(256)).heads_a_pass(64, 32_768), 8);
        assert_eq!(kimi(3, Some(2048)).heads_a_pass(64, 32_768), 64);
        assert_eq!(kimi(3, Some(128)).heads_a_pass(20, 202_752), 1, "GLM 4.7 Flash");
        assert_eq!(kimi(3, Some(128)).heads_a_pass(64, 1 << 40), 1);
        for heads in [1, 2, 20, 64, 128] {
            let a_pass = kimi(3, Some(256)).heads_a_pass(heads, 65_536);
            assert!(u64::is_multiple_of(heads, a_pass), "{heads}: {a_pass}");
        }
    }

    #[test]
    fn a_border_is_the_deepest_cache_for_its_number_of_heads() {
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
    fn attention_without_a_kernel_takes_the_steps_of_pull_request_237() {
        // 163840 x 1024 x 128 x 4 bytes are 80 GiB: with -amb 1024 two heads at a time
        assert_eq!(kimi(3, Some(1024)).heads_a_step(128, 1024, 163_840), 2);
        assert_eq!(kimi(3, None).heads_a_step(128, 1024, 163_840), 128);
    }
}
