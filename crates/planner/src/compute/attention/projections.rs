//! Queries, keys and values of the batch: of whole heads, and of latent vectors with the key matrix absorbed.
//!
//! Mirrors `llama-graph.cpp: build_qkv`, `models/deepseek2.cpp @ b10605`.

use crate::compute::decoder::{Decoder, WEIGHT};
use crate::compute::graph::{F32, TensorId};
use crate::compute::sketch::ModelBlock;

/// Queries, keys and values of the batch, `[head, heads, tokens]`.
pub(super) struct Projections {
    pub(super) query: TensorId,
    pub(super) key: TensorId,
    pub(super) value: TensorId,
    /// `attn_v_b`, with which MLA turns latent vectors back into values.
    pub(super) decompress: Option<TensorId>,
    /// What scales the result, where queries come with as many gates.
    pub(super) gate: Option<TensorId>,
}

impl Decoder<'_> {
    pub(super) fn projections(&mut self, block: &ModelBlock<'_>, input: TensorId) -> Option<Projections> {
        if self.sketch.model.hyper.mla.is_some() && block.has("attn_kv_a_mqa.weight") {
            return self.latent(block, input);
        }
        let hyper = &self.sketch.model.hyper;
        let (heads, heads_kv) = (
            u64::from(hyper.heads.at(block.layer)).max(1),
            u64::from(hyper.heads_kv.at(block.layer)).max(1),
        );
        let key_length = hyper.key_row(block.layer) / heads_kv;
        let value_length = hyper.value_row(block.layer) / heads_kv;
        let tokens = self.tokens;
        let shapes = [
            [key_length, heads, tokens, 1],
            [key_length, heads_kv, tokens, 1],
            [value_length, heads_kv, tokens, 1],
        ];
        let mut gate = None;
        let [query, key, value] = match self.linear(block, "attn_qkv", input) {
            Some(fused) => shapes.map(|shape| self.graph.view(fused, shape)),
            None => {
                let query = self.linear(block, "attn_q", input)?;
                let width = key_length.saturating_mul(heads);
                if self.graph.shape(query)[0] == width.saturating_mul(2) {
                    let both = [key_length.saturating_mul(2), heads, tokens, 1];
                    let both = self.graph.view(query, both);
                    gate = Some(self.graph.slice(both, shapes[0]));
                }
                let query = self.wide_norm(block, "attn_q_norm", query);
                let key = self
                    .linear(block, "attn_k", input)
                    .map(|key| self.wide_norm(block, "attn_k_norm", key));
                let key = key.unwrap_or(query);
                let value = self.linear(block, "attn_v", input).unwrap_or(key);
                [(query, shapes[0]), (key, shapes[1]), (value, shapes[2])]
                    .map(|(id, shape)| self.graph.view(id, shape))
            }
        };
        let query = self.head_norm(block, "attn_q_norm", query);
        let query = self.rotate(block, query);
        let key = self.head_norm(block, "attn_k_norm", key);
        let key = self.rotate(block, key);
        let value = match self.variant.norms_values {
            true => self.graph.in_place(&[value]),
            false => value,
        };
        Some(Projections {
            query,
            key,
            value,
            decompress: None,
            gate,
        })
    }

    /// `models/qwen3next.cpp: build_layer_attn @ b10605`.
    pub(super) fn gated(&mut self, attended: TensorId, gate: TensorId) -> TensorId {
        let shape = self.graph.shape(attended);
        let gate = self.graph.own(F32, shape, &[gate]);
        let mut gate = self.graph.in_place(&[gate]);
        if self.variant.views_gates {
            gate = self.graph.view(gate, shape);
        }
        self.graph.in_place(&[attended, gate])
    }

    /// A norm over all heads together (OLMo 2).
    fn wide_norm(&mut self, block: &ModelBlock<'_>, role: &str, of: TensorId) -> TensorId {
        let width = self.graph.shape(of)[0];
        match block.part(role, WEIGHT) {
            Some((norm, _)) if norm.shape[0] == width => self.norm(block, role, of),
            _ => of,
        }
    }

    /// A norm over each head (Qwen 3).
    fn head_norm(&mut self, block: &ModelBlock<'_>, role: &str, of: TensorId) -> TensorId {
        let length = self.graph.shape(of)[0];
        match block.part(role, WEIGHT) {
            Some((norm, _)) if norm.shape[0] == length => self.norm(block, role, of),
            _ => of,
        }
    }

    pub(in crate::compute) fn rotate(&mut self, block: &ModelBlock<'_>, of: TensorId) -> TensorId {
        if self.sketch.model.hyper.rope_dimension == 0 {
            return of;
        }
        let positions = self.inputs.positions;
        match self.rope_factors(block.place) {
            Some(factors) => self.graph.rope(&[of, positions, factors]),
            None => self.graph.rope(&[of, positions]),
        }
    }

    /// LatentAttention attention with the key matrix absorbed into the query.
    fn latent(&mut self, block: &ModelBlock<'_>, input: TensorId) -> Option<Projections> {
        let hyper = &self.sketch.model.hyper;
        let mla = hyper.mla.as_ref()?;
        let (rank, rope, length) = (
            u64::from(mla.kv_lora_rank),
            u64::from(mla.rope_dimension),
            u64::from(mla.key_length),
        );
        let (heads, tokens) = (u64::from(hyper.heads.at(block.layer)).max(1), self.tokens);
        let query = match self.linear(block, "attn_q_a", input) {
            Some(low) => {
                let low = self.norm(block, "attn_q_a_norm", low);
                self.linear(block, "attn_q_b", low)?
            }
            None => self.linear(block, "attn_q", input)?,
        };
        let query = self.graph.view(query, [length, heads, tokens, 1]);
        let compressed = self.linear(block, "attn_kv_a_mqa", input)?;
        let latent = self.graph.view(compressed, [rank, tokens, 1, 1]);
        let rotary_key = self.graph.view(compressed, [rope, 1, tokens, 1]);
        let rotary_key = self.rotate(block, rotary_key);
        let latent = self.norm(block, "attn_kv_a_norm", latent);
        let plain_query = self
            .graph
            .view(query, [length.saturating_sub(rope), tokens, heads, 1]);
        let rotary_query = self.graph.view(query, [rope, heads, tokens, 1]);
        let rotary_query = self.rotate(block, rotary_query);
        let absorb = self.weight(block, "attn_k_b.weight")?;
        let absorbed = self.graph.multiply(absorb, plain_query);
        let absorbed = self.graph.view(absorbed, [rank, heads, tokens, 1]);
        let query = self
            .graph
            .own(F32, [rank + rope, heads, tokens, 1], &[absorbed, rotary_query]);
        let value = self.graph.view(latent, [rank, 1, tokens, 1]);
        let key = self
            .graph
            .own(F32, [rank + rope, 1, tokens, 1], &[value, rotary_key]);
        Some(Projections {
            query,
            key,
            value,
            decompress: self.weight(block, "attn_v_b.weight"),
            gate: None,
        })
    }
}
