//! Lists the GGUF keys of a synthetic model: those that llama.cpp requires, and those that memory depends on.

use plimsoll_model::gguf::{Datum, DraftHeader, ValueType};
use plimsoll_model::tiny::{Token, Vocabulary};

use super::tensors::latent;
use super::{Family, Recipe};

impl Family {
    const fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
            Self::GptOss => "gpt-oss",
            Self::DeepSeek2 => "deepseek2",
        }
    }
}

pub(super) fn entries(recipe: &Recipe) -> Vec<(String, Datum)> {
    let mut draft = DraftHeader::default();
    draft.put("general.architecture", recipe.family.architecture());
    draft.put("general.type", "model");
    draft.put("general.name", recipe.name);
    let mut put =
        |key: &str, datum: Datum| draft.put(format!("{}.{key}", recipe.family.architecture()), datum);
    shared(recipe, &mut put);
    match recipe.family {
        Family::GptOss => gpt_oss(&mut put),
        Family::DeepSeek2 => deepseek2(&mut put),
        Family::Llama | Family::Qwen3 | Family::Qwen3Moe => {}
    }
    filled(recipe.tokens(), recipe.vocabulary).put(&mut draft);
    draft.entries
}

/// The vocabulary with fillers up to `size` tokens, as many as the model that is imitated has.
pub(super) fn filled(mut vocabulary: Vocabulary, size: u32) -> Vocabulary {
    let missing = size.saturating_sub(vocabulary.len());
    let fillers = (0..missing).map(|number| Token {
        text: format!("▁w{number}"),
        score: -1.0,
        // `llama.h: LLAMA_TOKEN_TYPE_NORMAL @ b10605`.
        kind: 1,
    });
    vocabulary.tokens.extend(fillers);
    vocabulary
}

/// The keys of one file of a set. The types are those that `gguf-split` writes and llama.cpp insists on.
pub(super) fn put_split(draft: &mut DraftHeader, number: u16, count: u16, tensors: usize) {
    draft.put("split.no", number);
    draft.put("split.count", count);
    let tensors = u64::try_from(tensors).unwrap_or(u64::MAX);
    draft.put("split.tensors.count", Datum::Number(ValueType::I32, tensors));
}

fn shared(recipe: &Recipe, put: &mut impl FnMut(&str, Datum)) {
    put("block_count", recipe.layers.into());
    put("context_length", recipe.context.into());
    put("embedding_length", recipe.embedding.into());
    put("feed_forward_length", recipe.feed_forward.into());
    put("attention.head_count", recipe.heads.into());
    put("attention.head_count_kv", recipe.heads_kv.into());
    put("attention.key_length", recipe.head_length.into());
    put("attention.value_length", value_length(recipe).into());
    put("attention.layer_norm_rms_epsilon", 1e-5_f32.into());
    put("rope.dimension_count", rope_dimension(recipe).into());
    put("rope.freq_base", 500_000_f32.into());
    put("vocab_size", recipe.vocabulary_size().into());
    if recipe.experts.count > 0 {
        put("expert_count", recipe.experts.count.into());
        put("expert_used_count", recipe.experts.used.into());
        put("expert_feed_forward_length", recipe.experts.feed_forward.into());
    }
    if recipe.pools {
        /// `LLAMA_POOLING_TYPE_MEAN`.
        const MEAN: u32 = 1;
        put("pooling_type", MEAN.into());
    }
}

fn value_length(recipe: &Recipe) -> u32 {
    match recipe.family {
        Family::DeepSeek2 => latent::KEY_VALUE_RANK,
        _ => recipe.head_length,
    }
}

fn rope_dimension(recipe: &Recipe) -> u32 {
    match recipe.family {
        Family::DeepSeek2 => latent::ROPE,
        _ => recipe.head_length,
    }
}

fn gpt_oss(put: &mut impl FnMut(&str, Datum)) {
    put("attention.sliding_window", 128_u32.into());
    put("rope.scaling.type", "yarn".into());
    put("rope.scaling.factor", 32_f32.into());
    put("rope.scaling.original_context_length", 4096_u32.into());
}

fn deepseek2(put: &mut impl FnMut(&str, Datum)) {
    /// `LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID`.
    const SIGMOID: u32 = 2;
    put("leading_dense_block_count", 1_u32.into());
    put("expert_shared_count", 1_u32.into());
    put("expert_weights_scale", 2.827_f32.into());
    put("expert_weights_norm", true.into());
    put("expert_gating_func", SIGMOID.into());
    put("attention.q_lora_rank", latent::QUERY_RANK.into());
    put("attention.kv_lora_rank", latent::KEY_VALUE_RANK.into());
    put("attention.key_length_mla", (latent::HEAD + latent::ROPE).into());
    put("attention.value_length_mla", latent::HEAD.into());
}
