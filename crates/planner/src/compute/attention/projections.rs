//! Adds the queries, keys and values of the batch to the compute graph, for ordinary and latent attention
//! (MLA).
//!
//! The code mirrors `llama-graph.cpp: build_qkv`, `models/deepseek2.cpp @ b10605`.

use crate::compute::{Decoder, Id, WEIGHT};

/// Queries, keys and values of the batch, `[head, heads, tokens]`.
pub(super) struct Projections {
    pub(super) query: Id,
    pub(super) key: Id,
    pub(super) value: Id,
    /// `attn_v_b`, which turns latent vectors back into values.
    pub(super) decompress: Option<Id>,
    /// Gates of the result, which some models compute with the queries.
    pub(super) gate: Option<Id>,
}

impl Decoder<'_> {
    pub(super) fn projections(&mut self, input: Id) -> Option<Projections> {
        if self.layers.model.hyper.mla.is_some() && self.block().has("attn_kv_a_mqa.weight") {
            return self.latent(input);
        }
        let hyper = &self.layers.model.hyper;
        let heads = u64::from(hyper.heads.at(self.block().layer)).max(1);
        let heads_kv = u64::from(hyper.heads_kv.at(self.block().layer)).max(1);
        let key_length = hyper.key_row(self.block().layer) / heads_kv;
        let value_length = hyper.value_row(self.block().layer) / heads_kv;
        let tokens = self.tokens;
        let shapes = [
            [key_length, heads, tokens, 1],
            [key_length, heads_kv, tokens, 1],
            [value_length, heads_kv, tokens, 1],
        ];
        let mut gate = None;
        let [query, key, value] = match self.linear("attn_qkv", input) {
            Some(fused) => shapes.map(|shape| self.graph.view(fused, shape)),
            None => {
                let query = self.linear("attn_q", input)?;
                let width = key_length.saturating_mul(heads);
                // Twice as wide as its heads: each query is followed by its gate (Qwen3-Next).
                if self.graph.shape(query)[0] == width.saturating_mul(2) {
                    let both = [key_length.saturating_mul(2), heads, tokens, 1];
                    let both = self.graph.view(query, both);
                    gate = Some(self.graph.slice(both, shapes[0]));
                }
                let query = self.fitting_norm("attn_q_norm", query);
                let key = self.linear("attn_k", input).map(|key| self.fitting_norm("attn_k_norm", key));
                // A damaged file may lack a matrix; the estimate then uses the one before.
                let key = key.unwrap_or(query);
                let value = self.linear("attn_v", input).unwrap_or(key);
                [(query, shapes[0]), (key, shapes[1]), (value, shapes[2])]
                    .map(|(id, shape)| self.graph.view(id, shape))
            }
        };
        let query = self.fitting_norm("attn_q_norm", query);
        let query = self.rotate(query);
        let key = self.fitting_norm("attn_k_norm", key);
        let key = self.rotate(key);
        Some(Projections {
            query,
            key,
            value: if self.variant.norms_values { self.graph.in_place(&[value]) } else { value },
            decompress: None,
            gate,
        })
    }

    /// `models/qwen3next.cpp: build_layer_attn @ b10605`.
    pub(super) fn gated(&mut self, attended: Id, gate: Id) -> Id {
        let gate = self.graph.own_like(attended, &[gate]);
        let mut gate = self.graph.in_place(&[gate]);
        if self.variant.views_gates {
            gate = self.graph.view(gate, self.graph.shape(attended));
        }
        self.graph.in_place(&[attended, gate])
    }

    /// A norm over all heads together (OLMo 2) or over each head (Qwen 3), whichever has the length of the
    /// weight.
    fn fitting_norm(&mut self, role: &str, of: Id) -> Id {
        let width = self.graph.shape(of)[0];
        match self.block().part(role, WEIGHT) {
            Some((norm, _)) if norm.shape[0] == width => self.norm(role, of),
            _ => of,
        }
    }

    pub(in crate::compute) fn rotate(&mut self, of: Id) -> Id {
        if self.layers.model.hyper.rope_dimension == 0 {
            return of;
        }
        let positions = self.inputs.positions;
        match self.rope_factors(self.block().place) {
            Some(factors) => self.graph.rope(&[of, positions, factors]),
            None => self.graph.rope(&[of, positions]),
        }
    }

    /// Latent attention with the key matrix absorbed into the query.
    fn latent(&mut self, input: Id) -> Option<Projections> {
        let hyper = &self.layers.model.hyper;
        let mla = hyper.mla.as_ref()?;
        let (rank, rope) = (u64::from(mla.kv_lora_rank), u64::from(mla.rope_dimension));
        let length = u64::from(mla.key_length);
        let (heads, tokens) = (u64::from(hyper.heads.at(self.block().layer)).max(1), self.tokens);
        // Large models compress their queries as well.
        let query = match self.linear("attn_q_a", input) {
            Some(low) => {
                let low = self.norm("attn_q_a_norm", low);
                self.linear("attn_q_b", low)?
            }
            None => self.linear("attn_q", input)?,
        };
        let query = self.graph.view(query, [length, heads, tokens, 1]);
        let compressed = self.linear("attn_kv_a_mqa", input)?;
        let latent = self.graph.view(compressed, [rank, tokens, 1, 1]);
        let rotary_key = self.graph.view(compressed, [rope, 1, tokens, 1]);
        let rotary_key = self.rotate(rotary_key);
        let latent = self.norm("attn_kv_a_norm", latent);
        let plain_query = self.graph.view(query, [length.saturating_sub(rope), tokens, heads, 1]);
        let rotary_query = self.graph.view(query, [rope, heads, tokens, 1]);
        let rotary_query = self.rotate(rotary_query);
        // The query is multiplied with the key matrix, so that the cache need not be.
        let absorb = self.weight("attn_k_b.weight")?;
        let absorbed = self.graph.multiply(absorb, plain_query);
        let absorbed = self.graph.view(absorbed, [rank, heads, tokens, 1]);
        let query = self.graph.own([rank + rope, heads, tokens, 1], &[absorbed, rotary_query]);
        // All heads share one key, whose first part is the value.
        let value = self.graph.view(latent, [rank, 1, tokens, 1]);
        let key = self.graph.own([rank + rope, 1, tokens, 1], &[value, rotary_key]);
        Some(Projections { query, key, value, decompress: self.weight("attn_v_b.weight"), gate: None })
    }
}
