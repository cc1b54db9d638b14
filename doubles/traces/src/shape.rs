//! Shapes of models, reduced to the figures that determine the size of an engine's memory pool.
//!
//! The shapes are those of public models.

// For Gemma-4-31B, the head counts and sizes are from llama.cpp issue 22748; embedding size and number of
// query heads are assumed.
/// Shape of a model. For a layer with latent attention ([`Latent`]), a trace contains only that attention,
/// because its products are the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    pub name: &'static str,
    pub layers: u64,
    pub embedding: u64,
    pub heads: u64,
    /// Heads of K and V.
    pub kv_heads: u64,
    pub head_size: u64,
    /// Width of the feed-forward part, of one expert where there are several.
    pub feed_forward: u64,
    pub vocabulary: u64,
    pub experts: Option<ExpertShape>,
    pub window: Option<WindowShape>,
    pub latent: Option<Latent>,
}

/// Numbers of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    pub count: u64,
    /// For each token.
    pub used: u64,
}

/// Sliding-window layers, which attend to the last tokens only, between layers that attend to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowShape {
    pub tokens: u64,
    /// Every n-th layer sees all tokens.
    pub global_every: u64,
    /// Heads of K and V in the layers that see all.
    pub global_kv_heads: u64,
    pub global_head_size: u64,
}

/// Sizes of multi-head latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    pub rank: u64,
    pub rope: u64,
    pub nope: u64,
    pub value: u64,
}

/// The heads of K and V in one layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvHeads {
    pub(super) count: u64,
    pub(super) size: u64,
    pub(super) window: Option<u64>,
}

impl ModelShape {
    /// A dense model whose heads have 128 values.
    const fn dense(
        name: &'static str,
        [layers, embedding, heads, kv_heads, feed_forward, vocabulary]: [u64; 6],
    ) -> Self {
        Self {
            name,
            layers,
            embedding,
            heads,
            kv_heads,
            head_size: 128,
            feed_forward,
            vocabulary,
            experts: None,
            window: None,
            latent: None,
        }
    }

    pub const LLAMA3_8B: Self = Self::dense("llama3-8b", [32, 4096, 32, 8, 14_336, 128_256]);

    /// The model of the recorded traces: Llama-3-8B with eight layers and a small vocabulary.
    pub const M8: Self = Self::dense("m8", [8, 4096, 32, 8, 14_336, 32_000]);

    pub const QWEN3_30B_A3B: Self = Self {
        experts: Some(ExpertShape { count: 128, used: 8 }),
        ..Self::dense("qwen3-30b-a3b", [48, 2048, 32, 4, 768, 151_936])
    };

    pub const GEMMA3_12B: Self = Self {
        head_size: 256,
        window: Some(WindowShape {
            tokens: 1024,
            global_every: 6,
            global_kv_heads: 8,
            global_head_size: 256,
        }),
        ..Self::dense("gemma3-12b", [48, 3840, 16, 8, 15_360, 262_144])
    };

    pub const GEMMA4_31B: Self = Self {
        head_size: 256,
        window: Some(WindowShape {
            tokens: 1024,
            global_every: 6,
            global_kv_heads: 4,
            global_head_size: 512,
        }),
        ..Self::dense("gemma4-31b", [60, 5376, 32, 16, 21_504, 262_144])
    };

    pub const DEEPSEEK_V3: Self = Self {
        latent: Some(Latent { rank: 512, rope: 64, nope: 128, value: 128 }),
        ..Self::dense("deepseek-v3", [61, 7168, 128, 0, 0, 0])
    };

    pub const KIMI_K2: Self = Self { name: "kimi-k2", heads: 64, ..Self::DEEPSEEK_V3 };

    pub(super) fn head(&self, layer: u64) -> KvHeads {
        let own = KvHeads { count: self.kv_heads, size: self.head_size, window: None };
        match &self.window {
            Some(window) if (layer + 1).is_multiple_of(window.global_every) => {
                KvHeads { count: window.global_kv_heads, size: window.global_head_size, window: None }
            }
            Some(window) => KvHeads { window: Some(window.tokens), ..own },
            None => own,
        }
    }
}
