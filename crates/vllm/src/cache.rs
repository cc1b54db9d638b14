//! Computes the size of vLLM's KV cache: bytes of a block, groups of layers, and what a sequence takes.
//!
//! Mirrors `vllm/v1/kv_cache_interface.py` and `vllm/v1/core/kv_cache_utils.py` at commit 001cabc1be16 of
//! 2026. All layers of a model share one pool of blocks. A block holds one page for each layer of a group.

use plimsoll_base::Bytes;

use crate::config::{Attention, ModelConfig, StateShape};
use crate::layers::Layer;

/// Tokens of a block that attention kernels take, which a larger block is a multiple of.
const KERNEL_BLOCK: u64 = 16;
/// Tokens of a block for compressed vectors, in kernels that take no other.
const LATENT_BLOCK: u64 = 64;

/// Type of the numbers in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// The model's own, or 8 bits where the checkpoint asks for it.
    #[default]
    Auto,
    Bits16,
    Bits8,
    /// 8 bits, and a scale of 4 bytes for each token and head.
    Bits8WithScales,
    /// 4 bits, and a scale of 8 bits for each 16 numbers.
    Bits4,
}

/// What recurrent layers keep of a sequence besides its newest state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateHistory {
    /// Nothing: prefixes are not cached.
    None,
    /// One state more, at the end of a block, for the cache of prefixes.
    #[default]
    Aligned,
    /// One state for each block.
    All,
}

/// Settings of vLLM that decide the form of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Cards that share each layer.
    pub tensor_parallel: u64,
    pub cache_type: CacheType,
    /// Tokens of a block, where the user sets it.
    pub block: Option<u64>,
    /// True where the card's kernels for compressed vectors take blocks of 64 tokens alone.
    pub has_latent_blocks: bool,
    /// Tokens of one step, over all sequences.
    pub batched: u64,
    pub history: StateHistory,
    /// Bytes of a number of a state, where the user sets it.
    pub state_number: Option<u64>,
    /// True to keep all tokens in layers with a window too.
    pub is_one_group: bool,
}

/// The form of the cache on each card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// Tokens of a block in the layers with attention.
    pub block: u64,
    /// Bytes of a block: a page for each layer of a group.
    pub block_bytes: Bytes,
    /// Bytes that a token takes in all layers that keep all tokens.
    pub token_bytes: Bytes,
    groups: Vec<(Layer, u64)>,
    settings: CacheSettings,
}

/// Tokens of a block: `vllm/platforms/cuda.py:check_and_update_config @ 002db4951e0c`. The index of sparse
/// attention takes blocks of 64 tokens on every card.
fn block(attention: Attention, settings: CacheSettings) -> u64 {
    let asked = settings.block.unwrap_or(KERNEL_BLOCK);
    match attention {
        Attention::Latent { index: Some(_), .. } => LATENT_BLOCK,
        Attention::Latent { .. } if settings.has_latent_blocks && !asked.is_multiple_of(LATENT_BLOCK) => {
            LATENT_BLOCK
        }
        _ => asked,
    }
}

impl CacheLayout {
    /// The layout of a model's cache. `None` if no layer keeps anything.
    pub fn new(config: &ModelConfig, settings: CacheSettings) -> Option<Self> {
        let token = token_bytes(config, settings);
        let base = block(config.attention, settings);
        // The state of a recurrent layer takes one page, so attention's pages grow until they hold it.
        let state = config.state.map_or(0, |shape| state_bytes(shape, config.number, settings));
        let step = base.max(KERNEL_BLOCK);
        let block = base.max(step.saturating_mul(state.div_ceil(step.saturating_mul(token).max(1))));
        let page = Bytes::new(token) * block;
        let buckets = buckets(config, settings.is_one_group);
        let (least, most) = (buckets.iter().map(|(_, layers)| *layers).min()?, largest(&buckets));
        // `_get_kv_cache_groups_uniform_page_size`: groups have the size of the rarest kind, unless the most
        // frequent one has less than half as many layers more.
        let size = if 2 * most < 3 * least { most } else { least };
        let full: u64 =
            buckets.iter().filter(|(layer, _)| *layer == Layer::Full).map(|(_, layers)| layers).sum();
        let groups = buckets.into_iter().map(|(layer, layers)| (layer, layers.div_ceil(size))).collect();
        Some(Self {
            block,
            block_bytes: page * size,
            token_bytes: Bytes::new(token) * full,
            groups,
            settings,
        })
    }

    /// Number of groups of layers.
    pub fn groups(&self) -> u64 {
        self.groups.iter().map(|(_, groups)| groups).sum()
    }

    /// Blocks in this much memory.
    pub fn blocks(&self, memory: Bytes) -> u64 {
        memory.get() / self.block_bytes.get().max(1)
    }

    /// Blocks that a sequence of this many tokens takes.
    pub fn blocks_of(&self, tokens: u64) -> u64 {
        let blocks = |tokens: u64| tokens.div_ceil(self.block);
        let settings = &self.settings;
        let of_layer = |layer: Layer| match layer {
            Layer::Full => blocks(tokens),
            // The window may begin within a block.
            Layer::Sliding(window) => {
                blocks((window - 1).saturating_add(settings.batched).min(tokens)).saturating_add(1)
            }
            Layer::Chunked(chunk) => blocks(chunk.saturating_add(settings.batched).min(tokens)),
            Layer::Recurrent => match settings.history {
                StateHistory::None => 1,
                StateHistory::Aligned => 2,
                StateHistory::All => blocks(tokens),
            },
            Layer::Stateless => 0,
        };
        let blocks = self.groups.iter().map(|(layer, groups)| groups.saturating_mul(of_layer(*layer)));
        blocks.fold(0, u64::saturating_add)
    }

    /// Memory that a sequence of this many tokens takes.
    pub fn memory_of(&self, tokens: u64) -> Bytes {
        self.block_bytes * self.blocks_of(tokens)
    }

    /// `GPU KV cache size`, as vLLM prints it from 0.23 on: sequences of the longest context, times that
    /// context.
    pub fn tokens(&self, blocks: u64, longest: u64) -> u64 {
        let wide = u128::from(blocks) * u128::from(longest) / u128::from(self.blocks_of(longest).max(1));
        u64::try_from(wide).unwrap_or(u64::MAX)
    }

    /// `GPU KV cache size`, as vLLM printed it before: tokens of the blocks that each group has.
    pub fn tokens_by_groups(&self, blocks: u64) -> u64 {
        (blocks / self.groups().max(1)).saturating_mul(self.block)
    }

    /// The longest sequence that takes at most this many blocks, up to `longest` tokens.
    pub fn longest(&self, blocks: u64, longest: u64) -> u64 {
        let (mut low, mut high) = (0, longest);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.blocks_of(middle) <= blocks {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

fn largest(buckets: &[(Layer, u64)]) -> u64 {
    buckets.iter().map(|(_, layers)| *layers).max().unwrap_or_default()
}

/// Layers of each kind that keep something, in the order of their first one.
fn buckets(config: &ModelConfig, is_one_group: bool) -> Vec<(Layer, u64)> {
    let has_full = config.layers.contains(&Layer::Full);
    let kept = config.layers.iter().filter(|layer| **layer != Layer::Stateless).map(|layer| match layer {
        // `unify_hybrid_kv_cache_specs`.
        Layer::Sliding(_) | Layer::Chunked(_) if is_one_group && has_full => Layer::Full,
        layer => *layer,
    });
    let mut buckets: Vec<(Layer, u64)> = Vec::new();
    for layer in kept {
        match buckets.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, layers)) => *layers += 1,
            None => buckets.push((layer, 1)),
        }
    }
    buckets
}

/// Bytes that a token takes in one layer, on each card: `real_page_size_bytes` for a block of one token.
fn token_bytes(config: &ModelConfig, settings: CacheSettings) -> u64 {
    let kind = match settings.cache_type {
        CacheType::Auto if config.wants_small_cache => CacheType::Bits8,
        CacheType::Auto => CacheType::Bits16,
        kind => kind,
    };
    let of = |elements: u64| match kind {
        CacheType::Auto | CacheType::Bits16 => elements * config.number,
        CacheType::Bits8 | CacheType::Bits8WithScales => elements,
        CacheType::Bits4 => elements / 2 + elements / 16,
    };
    match config.attention {
        Attention::Heads { heads, key, value } => {
            // A head that more cards than heads share is kept by each of them.
            let heads = (heads / settings.tensor_parallel).max(1);
            let scales = if kind == CacheType::Bits8WithScales { 2 * 4 } else { 0 };
            heads * (of(key) + of(value) + scales)
        }
        // `fp8_ds_mla` of sparse attention: `vllm/v1/attention/backends/mla/flashmla_sparse.py`.
        Attention::Latent { index: Some(index), .. } if kind == CacheType::Bits8 => 656 + index,
        Attention::Latent { width, index } => of(width) + index.unwrap_or_default(),
    }
}

/// Bytes of the state of one layer on each card: the last inputs of the convolution, and the state of each
/// head.
fn state_bytes(shape: StateShape, number: u64, settings: CacheSettings) -> u64 {
    let cards = settings.tensor_parallel;
    let convolution = shape.rows.saturating_mul(shape.convolution.div_ceil(cards)).saturating_mul(number);
    let state = settings.state_number.or(shape.number).unwrap_or(number);
    convolution.saturating_add(shape.heads.div_ceil(cards).saturating_mul(shape.head).saturating_mul(state))
}
