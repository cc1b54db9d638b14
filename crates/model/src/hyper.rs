//! Hyper-parameters of a model, with the names and meaning of `llama-hparams.h @ b10605`.

/// A quantity that is the same for all layers or differs between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerLayer<T> {
    Same(T),
    Each(Vec<T>),
}

impl<T: Default> Default for PerLayer<T> {
    fn default() -> Self {
        Self::Same(T::default())
    }
}

impl<T: Copy + Default> PerLayer<T> {
    /// The value for `layer`; layers beyond a list have the default value.
    pub fn at(&self, layer: u32) -> T {
        match self {
            Self::Same(value) => *value,
            Self::Each(values) => usize::try_from(layer)
                .ok()
                .and_then(|i| values.get(i))
                .copied()
                // Next-token-prediction layers lie beyond lists of the trunk.
                .unwrap_or_default(),
        }
    }
}

/// Sliding-window attention: the layers that attend to only the last `window` tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    pub window: u32,
    /// True for the layers that slide.
    pub layers: PerLayer<bool>,
}

/// Numbers of a mixture of experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experts {
    pub count: u32,
    pub used: u32,
    /// The chosen experts' weights are multiplied by a number (`expert_weights_scale`).
    pub scales_weights: bool,
}

/// Sizes of multi-head latent attention, which caches one latent vector for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mla {
    pub kv_lora_rank: u32,
    /// `n_rot`.
    pub rope_dimension: u32,
    pub key_length: u32,
    pub value_length: u32,
}

/// Recurrent layers, which keep a state of fixed size instead of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// True for the layers that are recurrent.
    pub layers: PerLayer<bool>,
    /// `n_embd_r`: elements (F32) of the rolling state of one layer and sequence.
    pub rolling: u64,
    /// `n_embd_s`: elements (F32) of the recurrent state of one layer and sequence.
    pub state: u64,
    /// True if a recurrent layer also has attention, and so a cache in addition to its state (Falcon-H1).
    pub attends: bool,
    /// `ssm_dt_b_c_rms`: the inputs of a scan are normed without a weight (FalconMamba).
    pub bare_norms: bool,
    /// True where rejected draft tokens are taken back by a state that is kept for each of them
    /// (`llama-arch.cpp: llm_arch_supports_rs_rollback @ b11063`).
    pub rolls_back: bool,
}

/// Sparse attention (DeepSeek-V3.2, GLM-5): a second cache with one small key for each token, by which tokens
/// are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexer {
    /// `indexer_head_size`: elements of one token's index key.
    pub key_length: u32,
    /// True for the layers that keep one.
    pub layers: PerLayer<bool>,
}

/// Pooling of a sequence's token embeddings into one (`llama.h: llama_pooling_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Every token keeps its own.
    Each,
    Mean,
    First,
    Last,
    /// By a classifier, to a score.
    Rank,
}

impl Pooling {
    /// By the number that files give it.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Each, Self::Mean, Self::First, Self::Last, Self::Rank]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// By the name that `--pooling` gives it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::Each,
            "mean" => Self::Mean,
            // llama.cpp's name for the first token.
            "cls" => Self::First,
            "last" => Self::Last,
            "rank" => Self::Rank,
            _ => return None,
        })
    }
}

/// Hyper-parameters that determine the engine's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HyperParameters {
    /// `block_count`, which includes the next-token-prediction layers at the end, if any.
    pub layers: u32,
    /// `nextn_predict_layers`.
    pub nextn_layers: u32,
    pub context_train: u32,
    pub embedding: u32,
    pub vocabulary: u32,
    pub heads: PerLayer<u32>,
    pub heads_kv: PerLayer<u32>,
    /// `n_ff`; 0 where a layer has none.
    pub feed_forward: PerLayer<u32>,
    /// `n_embd_head_k`.
    pub key_length: u32,
    /// `n_embd_head_v`.
    pub value_length: u32,
    /// Head sizes of the sliding layers where they differ (`key_length_swa`, `value_length_swa`).
    pub sliding_key_length: u32,
    pub sliding_value_length: u32,
    /// `n_rot`; 0 where nothing is rotated.
    pub rope_dimension: u32,
    /// Embeddings are multiplied by a number before the first layer (`embedding_scale`).
    pub scales_embedding: bool,
    /// Residual branches are multiplied by a number (`residual_scale`).
    pub scales_residual: bool,
    pub sliding: Option<SlidingWindow>,
    pub experts: Option<Experts>,
    pub mla: Option<Mla>,
    /// The same of a file that states whole heads, as old converters of llama.cpp and ik_llama.cpp's do. Only
    /// ik_llama.cpp attends to the latent vectors of such a file.
    pub older_mla: Option<Mla>,
    pub recurrent: Option<Recurrent>,
    pub indexer: Option<Indexer>,
    /// Layers from here on reuse the cache of earlier ones (`n_layer_kv_from_start`).
    pub layers_with_cache: u32,
    /// True where builds before b11063 reserve a cache for the trunk and the next-token-prediction layers in
    /// each context, whichever of them it computes.
    pub nextn_cached: bool,
    /// False for encoders (the BERT family) and diffusion models, which keep no cache at all.
    pub cached: bool,
    /// `pooling_type`, where the file states one.
    pub pooling: Option<Pooling>,
    /// `causal_attn`: false where a batch is attended to in both directions.
    pub causal: bool,
    /// False for an architecture without a row in the table, or whose cache the table does not describe:
    /// sizes follow from the keys that most architectures share, and may be wrong.
    pub known: bool,
}

impl HyperParameters {
    /// `n_embd_k_gqa(il)`: elements of one token's K row in `layer`. With MLA a file states one KV head as
    /// long as the latent vector and its rotary part.
    pub fn key_row(&self, layer: u32) -> u64 {
        u64::from(self.head_lengths(layer).0) * u64::from(self.heads_kv.at(layer))
    }

    /// `n_embd_v_gqa(il)`: elements of one token's V row in `layer`; 0 with MLA, where V is a view of K.
    pub fn value_row(&self, layer: u32) -> u64 {
        match &self.mla {
            // The latent vector holds both; llama.cpp makes V a view of it.
            Some(_) => 0,
            None => u64::from(self.head_lengths(layer).1) * u64::from(self.heads_kv.at(layer)),
        }
    }

    pub fn slides(&self, layer: u32) -> bool {
        self.sliding.as_ref().is_some_and(|sliding| sliding.layers.at(layer))
    }

    pub fn recurs(&self, layer: u32) -> bool {
        self.recurrent.as_ref().is_some_and(|recurrent| recurrent.layers.at(layer))
    }

    /// Does `layer` attend at all, rather than only carry a state or be a feed-forward?
    pub fn attends(&self, layer: u32) -> bool {
        // Falcon-H1 has both in one layer.
        let recurs_only = self.recurs(layer) && !self.recurrent.as_ref().is_some_and(|own| own.attends);
        !recurs_only && self.key_row(layer) > 0
    }

    /// Layers of the trunk; the prediction layers are the last ones of the file.
    pub fn trunk(&self) -> u32 {
        self.layers.saturating_sub(self.nextn_layers)
    }

    /// Does a context that computes `layer` keep an attention cache for it?
    /// Mirrors `llama-model.cpp: create_memory` and `llama-hparams.cpp: has_kv @ b10605`.
    pub fn caches(&self, layer: u32) -> bool {
        let attends =
            !self.recurs(layer) || self.recurrent.as_ref().is_some_and(|recurrent| recurrent.attends);
        // Gemma 3n's last layers read the cache of earlier ones and have none.
        self.cached && attends && layer < self.layers_with_cache
    }

    /// Does `layer` keep an index key for each token?
    pub fn indexes(&self, layer: u32) -> bool {
        self.indexer.as_ref().is_some_and(|indexer| indexer.layers.at(layer))
    }

    /// Elements of one head's K and V row in `layer`.
    pub fn head_lengths(&self, layer: u32) -> (u32, u32) {
        // Gemma 4 has other head lengths in its sliding layers.
        if self.slides(layer) {
            (self.sliding_key_length, self.sliding_value_length)
        } else {
            (self.key_length, self.value_length)
        }
    }
}
