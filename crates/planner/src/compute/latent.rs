//! Builds the compute graph of latent attention (MLA) in ik_llama.cpp.
//!
//! The code mirrors `graphs/build_deepseek2.cpp: build_deepseek2_layer_attention @ ik_llama.cpp 8337e4cd`.

use crate::compute::graph::elements;
use crate::compute::{Decoder, F16, Id, OpKind, WEIGHT};
use crate::{LatentAttention, LatentCache, kv};

/// Passes that are built at each end. Those between need as much, except for a result that grows evenly.
const BUILT: u64 = 4;

/// Queries of the batch in two halves, `[length, heads, tokens]`, and the vectors for the cache.
struct LatentBatch {
    heads: u64,
    plain: Id,
    rotary: Id,
    vector: Id,
    rotary_key: Id,
}

/// Latent KV cache of a layer.
#[derive(Clone, Copy)]
struct LatentRows {
    cells: u64,
    tensor: Id,
}

impl Decoder<'_> {
    /// Builds the latent attention of a layer; `None` if its attention is not latent.
    pub(super) fn latent_attention(&mut self, input: Id, latent: &LatentAttention) -> Option<Id> {
        let batch = self.latent_batch(input, latent)?;
        let attended = match latent.cached(self.flash.on) {
            LatentCache::Heads => self.whole_heads(latent, &batch),
            _ => {
                let cache = self.keep(latent, &batch);
                if latent.restores(self.flash.on, self.tokens) {
                    self.restored(latent, &batch, cache)
                } else {
                    self.absorbed(latent, &batch, cache)
                }
            }
        };
        self.graph.expand(attended);
        Some(self.linear("attn_output", attended).unwrap_or(attended))
    }

    fn latent_batch(&mut self, input: Id, latent: &LatentAttention) -> Option<LatentBatch> {
        let heads = u64::from(self.layers.model.hyper.heads.at(self.block().layer)).max(1);
        let tokens = self.tokens;
        let low = self.linear("attn_q_a", input);
        let compressed = self.linear("attn_kv_a_mqa", input)?;
        let query = match low {
            Some(low) => {
                // Both first products read the same input, and the engine computes them side by side.
                self.graph.expand(low);
                self.graph.expand(compressed);
                let low = self.norm("attn_q_a_norm", low);
                self.linear("attn_q_b", low)?
            }
            None => self.linear("attn_q", input)?,
        };
        // Only a part of each head is rotated.
        let plain = self.graph.view(query, [latent.plain, heads, tokens, 1]);
        let rotary = self.graph.view(query, [latent.rope, heads, tokens, 1]);
        let rotary_key = self.graph.view(compressed, [latent.rope, 1, tokens, 1]);
        let vector = self.graph.view(compressed, [latent.rank, tokens, 1, 1]);
        let rotary = self.rotate(rotary);
        self.graph.expand(rotary);
        let rotary_key = self.rotate(rotary_key);
        self.graph.expand(rotary_key);
        let vector = self.norm("attn_kv_a_norm", vector);
        Some(LatentBatch { heads, plain, rotary, vector, rotary_key })
    }

    /// Writes the batch into the cache.
    fn keep(&mut self, latent: &LatentAttention, batch: &LatentBatch) -> LatentRows {
        let cells = kv::cells(&self.layers.model.hyper, self.block().layer, self.reserve);
        let rows = cells.saturating_mul(self.reserve.streams);
        let place = self.cache.device(self.block().place);
        let row = latent.rank + latent.rope;
        let tensor = self.cache_tensor(self.cache.key, row, rows, place);
        let both = [batch.rotary_key, batch.vector];
        let joined = self.graph.own([row, self.tokens, 1, 1], &both);
        // Rotary part first: the cache has this order, unlike llama.cpp's.
        self.graph.write(&[joined, self.inputs.full.key_rows, tensor], tensor);
        LatentRows { cells, tensor }
    }

    /// Keys and values of all that is cached, pass by pass over the heads.
    fn restored(&mut self, latent: &LatentAttention, batch: &LatentBatch, cache: LatentRows) -> Id {
        let (rope, value, cells, tokens) = (latent.rope, latent.value, cache.cells, self.tokens);
        let one_pass = latent.heads_a_pass(batch.heads, cells);
        let vectors = self.graph.cache_view(cache.tensor, [latent.rank, cells, 1, 1], 0);
        let rotary = self.graph.cache_view(cache.tensor, [rope, cells, 1, 1], 0);
        // A quantised cache is cast before its rotary part is repeated for every head.
        let rotary = match self.cache.key.name {
            "f16" => rotary,
            _ => self.graph.own_of(F16, [rope, cells, 1, 1], &[rotary]),
        };
        let rotary = self.graph.own_of(F16, [rope, cells, one_pass, 1], &[rotary]);
        let length = latent.plain + rope;
        let query = self.graph.own([length, batch.heads, tokens, 1], &[batch.rotary, batch.plain]);
        self.graph.expand(query);
        let mut joined = None;
        for pass in ends(batch.heads / one_pass) {
            let matrix = self.restoring(latent, one_pass);
            let both = self.graph.multiply(matrix, vectors);
            let values = self.graph.view(both, [value, cells, one_pass, 1]);
            let keys = self.graph.view(both, [latent.plain, cells, one_pass, 1]);
            let values = self.graph.own_of(F16, [value, cells, one_pass, 1], &[values]);
            let keys = self.graph.own_of(F16, [latent.plain, cells, one_pass, 1], &[keys]);
            // The engine expands both before it joins the keys, so both are in memory at once.
            self.graph.expand(keys);
            self.graph.expand(values);
            let keys = self.graph.own_of(F16, [length, cells, one_pass, 1], &[rotary, keys]);
            self.graph.expand(keys);
            let query = self.graph.view(query, [length, tokens, one_pass, 1]);
            let sources = [query, keys, values, self.inputs.full.mask];
            let attended = self.graph.attention([value, one_pass, tokens, 1], 0, &sources);
            let attended = self.graph.view(attended, [value.saturating_mul(one_pass), tokens, 1, 1]);
            let shape = [value.saturating_mul(one_pass).saturating_mul(pass), tokens, 1, 1];
            joined = Some(self.joined(joined, attended, shape));
        }
        joined.unwrap_or(query)
    }

    /// Results of passes are concatenated one by one, so the joined tensor grows with each.
    fn joined(&mut self, before: Option<Id>, result: Id, shape: [u64; 4]) -> Id {
        let all = before.map_or(result, |before| self.graph.own(shape, &[before, result]));
        self.graph.expand(all);
        all
    }

    /// The part of `attn_kv_b` for the heads of a pass, from the file or computed at load.
    fn restoring(&mut self, latent: &LatentAttention, heads: u64) -> Id {
        let shape = [latent.rank, latent.restored().saturating_mul(heads), 1, 1];
        self.latent_matrix(["attn_kv_b", "attn_k_b"], shape)
    }

    /// A matrix on the device of the first of these that the file has.
    fn latent_matrix(&mut self, alongside: [&str; 2], shape: [u64; 4]) -> Id {
        let found = alongside.iter().find_map(|role| self.block().part(role, WEIGHT));
        let place = found.map_or(self.block().place, |(_, place)| place);
        // Its bytes do not matter: it is allocated with the weights.
        self.graph.stored(OpKind::Weight(place), elements(&shape), 0, shape)
    }

    /// Attention to the vectors themselves: the key matrix is absorbed into the query, values are restored
    /// afterwards.
    fn absorbed(&mut self, latent: &LatentAttention, batch: &LatentBatch, cache: LatentRows) -> Id {
        let (rank, tokens, heads) = (latent.rank, self.tokens, batch.heads);
        let row = rank + latent.rope;
        let absorb = self.latent_matrix(["attn_k_b", "attn_kv_b"], [latent.plain, rank, heads, 1]);
        let plain = self.graph.view(batch.plain, [latent.plain, tokens, heads, 1]);
        let absorbed = self.graph.multiply(absorb, plain);
        let query = self.graph.own([row, tokens, heads, 1], &[batch.rotary, absorbed]);
        let attended = if self.flash.on && latent.absorbs() {
            let keys = self.graph.cache_view(cache.tensor, [row, cache.cells, 1, 1], 0);
            let values = self.graph.cache_view(cache.tensor, [rank, cache.cells, 1, 1], 0);
            let sources = [query, keys, values, self.inputs.full.mask];
            let attended = self.graph.attention([rank, heads, tokens, 1], 0, &sources);
            self.graph.view(attended, [rank, tokens, heads, 1])
        } else {
            self.stepwise(latent, query, cache, heads)
        };
        // One more product turns the attended vectors into values of each head.
        let decompress = self.latent_matrix(["attn_v_b", "attn_kv_b"], [rank, latent.value, heads, 1]);
        let values = self.graph.multiply(decompress, attended);
        let shape = [latent.value.saturating_mul(heads), tokens, 1, 1];
        self.graph.own(shape, &[values])
    }

    /// Scores, their softmax and their product with the transposed vectors, for as many heads at once as
    /// `-amb` allows.
    fn stepwise(&mut self, latent: &LatentAttention, query: Id, cache: LatentRows, heads: u64) -> Id {
        let (rank, tokens, cells) = (latent.rank, self.tokens, cache.cells);
        let step = latent.heads_a_step(heads, tokens, cells).max(1);
        let keys = self.graph.cache_view(cache.tensor, [rank + latent.rope, cells, 1, 1], 0);
        let mut values = self.graph.cache_view(cache.tensor, [cells, rank, 1, 1], 0);
        // Modes 2 and 3 cache no transposed vectors, so they are transposed here.
        if latent.mode > 1 {
            values = self.graph.own_of(F16, [cells, rank, 1, 1], &[values]);
        }
        let mut joined = None;
        for turn in ends(heads.div_ceil(step)) {
            // The last step has the heads that are left.
            let done = (turn * step).min(heads);
            let now = done - (turn - 1) * step;
            let query = self.graph.view(query, [rank + latent.rope, tokens, now, 1]);
            let mut scores = self.graph.own([cells, tokens, now, 1], &[keys, query]);
            // In one step, mode 1 copies the scores before their softmax.
            if latent.mode == 1 && now == heads {
                scores = self.graph.own([cells, tokens, now, 1], &[scores]);
            }
            let odds = self.graph.in_place(&[scores, self.inputs.full.mask]);
            let product = self.graph.own([rank, tokens, now, 1], &[values, odds]);
            joined = Some(self.joined(joined, product, [rank, tokens, done, 1]));
        }
        joined.unwrap_or(query)
    }

    /// `-mla 0`: whole heads are cached, as if the attention were not latent.
    fn whole_heads(&mut self, latent: &LatentAttention, batch: &LatentBatch) -> Id {
        let (tokens, heads, value) = (self.tokens, batch.heads, latent.value);
        let length = latent.plain + latent.rope;
        let cells = kv::cells(&self.layers.model.hyper, self.block().layer, self.reserve);
        let rows = cells.saturating_mul(self.reserve.streams);
        let place = self.cache.device(self.block().place);
        // The batch's own keys and values are restored before they are cached.
        let matrix = self.restoring(latent, heads);
        let both = self.graph.multiply(matrix, batch.vector);
        let plain = self.graph.view(both, [latent.plain, heads, tokens, 1]);
        let values = self.graph.view(both, [value, heads, tokens, 1]);
        let flat = [value.saturating_mul(heads), tokens, 1, 1];
        let values = self.graph.own(flat, &[values]);
        let query = self.graph.own([length, heads, tokens, 1], &[batch.plain, batch.rotary]);
        let keys = self.graph.own([length, heads, tokens, 1], &[plain, batch.rotary_key]);
        let key_cache = self.cache_tensor(self.cache.key, length.saturating_mul(heads), rows, place);
        let value_cache = self.cache_tensor(self.cache.value, value.saturating_mul(heads), rows, place);
        self.graph.write(&[keys, self.inputs.full.key_rows, key_cache], key_cache);
        self.graph.write(&[values, self.inputs.full.value_rows, value_cache], value_cache);
        let keys = self.graph.cache_view(key_cache, [length, cells, heads, 1], 0);
        let values = self.graph.cache_view(value_cache, [value, cells, heads, 1], 0);
        let query = self.graph.view(query, [length, tokens, heads, 1]);
        let mask = self.inputs.full.mask;
        if self.flash.on {
            let attended = self.graph.attention([value, heads, tokens, 1], 0, &[query, keys, values, mask]);
            return self.graph.view(attended, flat);
        }
        let scores = self.graph.own([cells, tokens, heads, 1], &[keys, query]);
        let odds = self.graph.in_place(&[scores, mask]);
        let product = self.graph.own([value, tokens, heads, 1], &[values, odds]);
        self.graph.own(flat, &[product])
    }
}

/// The first and the last numbers up to `count`, from 1.
fn ends(count: u64) -> impl Iterator<Item = u64> {
    let last = count.saturating_sub(BUILT).max(BUILT) + 1;
    (1..=count.min(BUILT)).chain(last..=count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_passes_are_all_built_and_of_many_both_ends() {
        let built = |count| ends(count).collect::<Vec<u64>>();
        assert_eq!(built(1), [1]);
        assert_eq!(built(8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(built(128), [1, 2, 3, 4, 125, 126, 127, 128]);
    }
}
