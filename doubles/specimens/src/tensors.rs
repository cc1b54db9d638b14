//! Lists the tensors of each model family, as llama.cpp requires them (`src/models/*.cpp: load_arch_tensors @
//! b10605`).

use plimsoll_model::TensorType;
use plimsoll_model::gguf::DraftTensor;
use plimsoll_model::types::{F32, Q8_0};

use super::{Family, Recipe};

/// Kimi K2's and DeepSeek-V3's latent sizes.
pub(super) mod latent {
    pub(in super::super) const QUERY_RANK: u32 = 1536;
    pub(in super::super) const KEY_VALUE_RANK: u32 = 512;
    pub(in super::super) const ROPE: u32 = 64;
    pub(in super::super) const HEAD: u32 = 128;
}

pub(super) fn list(recipe: &Recipe) -> Vec<DraftTensor> {
    let mut list = List { tensors: Vec::new(), prefix: String::new() };
    let (embedding, vocabulary) = (recipe.embedding, recipe.vocabulary_size());
    list.add("token_embd.weight", recipe.kinds.embedding, &[embedding, vocabulary]);
    list.add("output_norm.weight", F32, &[embedding]);
    if let Some(kind) = recipe.kinds.output {
        list.add("output.weight", kind, &[embedding, vocabulary]);
    }
    for layer in 0..recipe.layers {
        list.prefix = format!("blk.{layer}.");
        match recipe.family {
            Family::Llama => dense(&mut list, recipe, false),
            Family::Qwen3 => dense(&mut list, recipe, true),
            Family::Qwen3Moe => qwen3_moe(&mut list, recipe),
            Family::GptOss => gpt_oss(&mut list, recipe),
            Family::DeepSeek2 => deepseek2(&mut list, recipe, layer == 0),
        }
    }
    list.tensors
}

struct List {
    tensors: Vec<DraftTensor>,
    prefix: String,
}

impl List {
    fn add(&mut self, name: &str, kind: TensorType, shape: &[u32]) {
        self.tensors.push(DraftTensor {
            name: format!("{}{name}", self.prefix),
            kind,
            shape: shape.iter().map(|&size| size.into()).collect(),
        });
    }
}

fn dense(list: &mut List, recipe: &Recipe, normed: bool) {
    attention(list, recipe, normed);
    list.add("ffn_norm.weight", F32, &[recipe.embedding]);
    feed_forward(list, recipe, "", recipe.feed_forward);
}

fn attention(list: &mut List, recipe: &Recipe, normed: bool) {
    let Recipe { embedding, head_length, kinds, .. } = *recipe;
    let (query, key) = (recipe.heads * head_length, recipe.heads_kv * head_length);
    list.add("attn_norm.weight", F32, &[embedding]);
    list.add("attn_q.weight", kinds.matrix, &[embedding, query]);
    list.add("attn_k.weight", kinds.matrix, &[embedding, key]);
    list.add("attn_v.weight", kinds.spared, &[embedding, key]);
    list.add("attn_output.weight", kinds.matrix, &[query, embedding]);
    if normed {
        list.add("attn_q_norm.weight", F32, &[head_length]);
        list.add("attn_k_norm.weight", F32, &[head_length]);
    }
}

fn feed_forward(list: &mut List, recipe: &Recipe, suffix: &str, width: u32) {
    let Recipe { embedding, kinds, .. } = *recipe;
    list.add(&format!("ffn_gate{suffix}.weight"), kinds.matrix, &[embedding, width]);
    list.add(&format!("ffn_up{suffix}.weight"), kinds.matrix, &[embedding, width]);
    list.add(&format!("ffn_down{suffix}.weight"), kinds.spared, &[width, embedding]);
}

fn experts(list: &mut List, recipe: &Recipe) {
    let (embedding, kind, sizes) = (recipe.embedding, recipe.kinds.experts, recipe.experts);
    list.add("ffn_gate_inp.weight", F32, &[embedding, sizes.count]);
    list.add("ffn_gate_exps.weight", kind, &[embedding, sizes.feed_forward, sizes.count]);
    list.add("ffn_up_exps.weight", kind, &[embedding, sizes.feed_forward, sizes.count]);
    list.add("ffn_down_exps.weight", kind, &[sizes.feed_forward, embedding, sizes.count]);
}

fn qwen3_moe(list: &mut List, recipe: &Recipe) {
    attention(list, recipe, true);
    list.add("ffn_norm.weight", F32, &[recipe.embedding]);
    experts(list, recipe);
}

fn gpt_oss(list: &mut List, recipe: &Recipe) {
    let Recipe { embedding, heads, head_length, experts: sizes, .. } = *recipe;
    let key = recipe.heads_kv * head_length;
    attention(list, recipe, false);
    list.add("attn_q.bias", F32, &[heads * head_length]);
    list.add("attn_k.bias", F32, &[key]);
    list.add("attn_v.bias", F32, &[key]);
    list.add("attn_output.bias", F32, &[embedding]);
    list.add("attn_sinks.weight", F32, &[heads]);
    list.add("post_attention_norm.weight", F32, &[embedding]);
    experts(list, recipe);
    list.add("ffn_gate_inp.bias", F32, &[sizes.count]);
    list.add("ffn_gate_exps.bias", F32, &[sizes.feed_forward, sizes.count]);
    list.add("ffn_up_exps.bias", F32, &[sizes.feed_forward, sizes.count]);
    list.add("ffn_down_exps.bias", F32, &[embedding, sizes.count]);
}

fn deepseek2(list: &mut List, recipe: &Recipe, leading: bool) {
    let Recipe { embedding, heads, kinds, .. } = *recipe;
    let (query, latent, head) = (latent::QUERY_RANK, latent::KEY_VALUE_RANK, latent::HEAD);
    list.add("attn_norm.weight", F32, &[embedding]);
    list.add("attn_q_a_norm.weight", F32, &[query]);
    list.add("attn_kv_a_norm.weight", F32, &[latent]);
    list.add("attn_q_a.weight", kinds.matrix, &[embedding, query]);
    list.add("attn_q_b.weight", kinds.matrix, &[query, heads * (head + latent::ROPE)]);
    list.add("attn_kv_a_mqa.weight", kinds.matrix, &[embedding, latent + latent::ROPE]);
    // Rows of 128 are no whole block of a K-quant, so quantisers fall back to Q8_0 here.
    list.add("attn_k_b.weight", Q8_0, &[head, latent, heads]);
    list.add("attn_v_b.weight", kinds.matrix, &[latent, head, heads]);
    list.add("attn_output.weight", kinds.matrix, &[heads * head, embedding]);
    list.add("ffn_norm.weight", F32, &[embedding]);
    if leading {
        return feed_forward(list, recipe, "", recipe.feed_forward);
    }
    experts(list, recipe);
    list.add("exp_probs_b.bias", F32, &[recipe.experts.count]);
    feed_forward(list, recipe, "_shexp", recipe.experts.feed_forward);
}
