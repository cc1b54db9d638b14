//! Builds the gated delta net of Qwen3-Next and Qwen 3.5: linear attention whose state is one matrix for each
//! head.
//!
//! The code mirrors `models/qwen3next.cpp, qwen35.cpp, qwen35moe.cpp, delta-net-base.cpp @ b10605`.

use super::recurrent::RecurrentState;
use crate::compute::{Decoder, Id};

/// Tokens of a chunk without the kernel.
const CHUNK: u64 = 64;

/// Numbers and length of a delta net's heads; keys may have fewer heads than values.
#[derive(Clone, Copy)]
struct DeltaHeads {
    length: u64,
    keys: u64,
    values: u64,
}

/// Inputs of the recurrence, `[length, heads, tokens, sequences]` each.
struct Recurrence {
    query: Id,
    key: Id,
    value: Id,
    decay: Id,
    beta: Id,
}

/// Inputs of the small operations, as `[.., chunk, chunks, heads]`.
struct DeltaChunks {
    query: Id,
    key: Id,
    value: Id,
    key_beta: Id,
    value_beta: Id,
    decay: Id,
    count: u64,
    heads: u64,
}

impl Decoder<'_> {
    fn heads(&self) -> Option<DeltaHeads> {
        let sizes = self.scan_sizes()?;
        let values = self.block().get("ssm_a")?.0.shape[0].max(1);
        Some(DeltaHeads { length: (sizes.inner / values).max(1), keys: sizes.groups, values })
    }

    pub(super) fn delta_net(&mut self, input: Id) -> Option<Id> {
        let heads = self.heads()?;
        let wide = [heads.length, heads.values, self.each(), self.sequences()];
        let mixed = self.linear("attn_qkv", input)?;
        let gate = self.linear("attn_gate", input)?;
        let (beta, decay) = self.beta_and_decay(input, heads)?;
        let (mixed, carried) = self.convolved_and_state(mixed, heads)?;
        // The convolved channels hold queries and keys of few heads, then values of many.
        let narrow = [heads.length, heads.keys, self.each(), self.sequences()];
        let [query, key] = [(); 2].map(|()| self.graph.slice(mixed, narrow));
        let value = self.graph.slice(mixed, wide);
        let [query, key] = [query, key].map(|part| self.unit_rows(part, heads));
        let recurrence = Recurrence { query, key, value, decay, beta };
        let state = [heads.length, heads.length, heads.values, self.sequences()];
        let state = self.graph.view(carried.current, state);
        // Only the kernel writes the states that a draft rolls back to.
        let output = if self.fused || self.cache.rollback > 0 {
            self.fused_net(&recurrence, state, &carried)
        } else {
            self.chunked_net(&recurrence, state, &carried)
        };
        let normed = self.norm("ssm_norm", output);
        let gate = self.graph.view(gate, wide);
        let gate = self.graph.in_place(&[gate]);
        let gated = self.graph.in_place(&[normed, gate]);
        let gated = self.graph.view(gated, [heads.length.saturating_mul(heads.values), wide[2], wide[3], 1]);
        self.project_out("ssm_out", gated)
    }

    /// `build_conv_state`, the state of the recurrence, and the convolution, in the order in which they are
    /// built.
    fn convolved_and_state(&mut self, mixed: Id, heads: DeltaHeads) -> Option<(Id, RecurrentState)> {
        let sizes = self.scan_sizes()?;
        let (channels, taps) = (sizes.channels, sizes.taps);
        let shape = [channels, self.each(), self.sequences(), 1];
        let mixed = self.graph.view(mixed, shape);
        let recent = self.carry_plain(taps.saturating_mul(channels));
        let window = self.window(&recent, channels, taps, mixed);
        let side = heads.length.saturating_mul(heads.length);
        let carried = self.carry_plain(side.saturating_mul(heads.values));
        Some((self.convolve(window, channels)?, carried))
    }

    /// Write strength and forgetting of each token, from one matrix (early Qwen3-Next) or two.
    fn beta_and_decay(&mut self, input: Id, heads: DeltaHeads) -> Option<(Id, Id)> {
        let (each, sequences) = (self.each(), self.sequences());
        let flat = [heads.values, each, sequences, 1];
        let (beta, alpha) = match self.linear("ssm_ba", input) {
            Some(both) => {
                let half = [heads.values / heads.keys, heads.keys, each, sequences];
                let width = half[0].saturating_mul(2);
                let both = self.graph.view(both, [width, heads.keys, each, sequences]);
                let [beta, alpha] = [(); 2].map(|()| self.graph.slice(both, half));
                let beta = self.graph.own(half, &[beta]);
                let beta = self.graph.in_place(&[beta]);
                (beta, self.graph.own(flat, &[alpha]))
            }
            None => {
                let beta = self.linear("ssm_beta", input)?;
                let beta = self.graph.view(beta, [1, heads.values, each, sequences]);
                let alpha = self.linear("ssm_alpha", input)?;
                (self.graph.in_place(&[beta]), self.graph.view(alpha, flat))
            }
        };
        // The decay is a softplus of the biased product, times a learned rate.
        let bias = self.weight("ssm_dt.bias")?;
        let rate = self.weight("ssm_a")?;
        let decay = self.graph.chain(alpha, &[&[bias], &[], &[rate]]);
        let [beta, decay] =
            [beta, decay].map(|part| self.graph.view(part, [1, heads.values, each, sequences]));
        Some((beta, decay))
    }

    /// `ggml_l2_norm`, and keys repeated for every value head: always in Qwen3-Next, in later models without
    /// the kernel.
    fn unit_rows(&mut self, part: Id, heads: DeltaHeads) -> Id {
        let [length, _, each, sequences] = self.graph.shape(part);
        let unit = self.graph.own_like(part, &[part]);
        let always = self.variant.repeats_keys;
        // Newer kernels repeat the keys themselves.
        if heads.keys == heads.values || (!always && self.fused) {
            return unit;
        }
        if !always {
            return self.graph.own([length, heads.values, each, sequences], &[unit]);
        }
        let tokens = each.saturating_mul(sequences);
        let apart = self.graph.view(unit, [length, 1, heads.keys, tokens]);
        let times = heads.values / heads.keys;
        let repeated = self.graph.own([length, times, heads.keys, tokens], &[apart]);
        self.graph.view(repeated, [length, heads.values, each, sequences])
    }

    /// `build_delta_net_fused`: one result holds the outputs and the states after them.
    fn fused_net(&mut self, r: &Recurrence, state: Id, carried: &RecurrentState) -> Id {
        let [length, heads, each, sequences] = self.graph.shape(r.value);
        let snapshots = self.snapshots();
        let states = snapshots.saturating_mul(length).saturating_mul(sequences);
        let result = self.graph.own(
            [length.saturating_mul(heads), self.tokens.saturating_add(states), 1, 1],
            &[r.query, r.key, r.value, r.decay, r.beta, state],
        );
        self.fused_nodes.push((result, self.block().place));
        let output = self.graph.view(result, [length, heads, each, sequences]);
        let row = length.saturating_mul(length).saturating_mul(heads);
        let shape = [row, sequences, snapshots.min(each), 1];
        let last = self.graph.view(result, shape);
        self.write_back(carried, last, shape);
        output
    }

    /// `build_delta_net_chunking`.
    fn chunked_net(&mut self, r: &Recurrence, state: Id, carried: &RecurrentState) -> Id {
        let [length, heads, each, sequences] = self.graph.shape(r.value);
        let chunks = self.chunks(r);
        let (output, state) = self.over_chunks(&chunks, state);
        let output = self.graph.view(output, [length, each, heads, sequences]);
        let output = self.graph.view(output, [length, heads, each, sequences]);
        let state = self.graph.view(state, [length, length, heads, sequences]);
        let row = length.saturating_mul(length).saturating_mul(heads);
        self.write_back(carried, state, [row, sequences, 1, 1]);
        output
    }

    /// Pads the tokens to whole chunks and splits them.
    fn chunks(&mut self, r: &Recurrence) -> DeltaChunks {
        let [_, _, each, sequences] = self.graph.shape(r.value);
        let count = each.div_ceil(CHUNK);
        // The query is scaled before it is padded; keys are not scaled.
        let query = self.graph.in_place(&[r.query]);
        let [query, key, value, decay, beta] = [query, r.key, r.value, r.decay, r.beta].map(|part| {
            let [length, heads, each, sequences] = self.graph.shape(part);
            let turned = self.graph.view(part, [length, each, heads, sequences]);
            let shape = [length, count.saturating_mul(CHUNK), heads, sequences];
            self.graph.own(shape, &[turned])
        });
        let value_beta = self.graph.in_place(&[value, beta]);
        let key_beta = self.graph.in_place(&[key, beta]);
        let [query, key, value, key_beta, value_beta, decay] =
            [query, key, value, key_beta, value_beta, decay].map(|part| {
                let [length, _, heads, sequences] = self.graph.shape(part);
                let shape = [length, CHUNK, count, heads.saturating_mul(sequences)];
                self.graph.view(part, shape)
            });
        let heads = self.graph.shape(r.value)[1].saturating_mul(sequences);
        DeltaChunks { query, key, value, key_beta, value_beta, decay, count, heads }
    }

    /// A transposed copy of `of`.
    fn turned(&mut self, of: Id) -> Id {
        let [a, b, c, d] = self.graph.shape(of);
        self.graph.turned(of, [b, a, c, d])
    }

    /// Effects of the tokens of a chunk on each other for all chunks at once, then the state chunk by chunk.
    fn over_chunks(&mut self, c: &DeltaChunks, mut state: Id) -> (Id, Id) {
        let square = [CHUNK, CHUNK, c.count, c.heads];
        let decay = self.turned(c.decay);
        let sums = self.graph.own([CHUNK, 1, c.count, c.heads], &[decay]);
        let across = self.graph.view(sums, [1, CHUNK, c.count, c.heads]);
        let across = self.graph.own(square, &[across]);
        // Decay from every token of a chunk to every later one; what lies above the diagonal is masked.
        let mask = self.graph.in_place(&[across, sums]);
        let mask = self.graph.own(square, &[mask]);
        let mask = self.graph.in_place(&[mask]);
        let [key_key, key_query] = [c.key_beta, c.query].map(|with| {
            let product = self.graph.multiply(c.key, with);
            self.graph.in_place(&[product, mask])
        });
        let key_query = self.graph.own(square, &[key_query]);
        // The inverse of a triangular matrix: `solve_tri` of identity plus lower triangle.
        let lower = self.graph.own(square, &[key_key]);
        let diagonal = self.graph.view(lower, [CHUNK, 1, 1, 1]);
        let diagonal = self.graph.in_place(&[diagonal]);
        let identity = self.graph.own([CHUNK, CHUNK, 1, 1], &[diagonal]);
        let left = self.graph.in_place(&[lower, identity]);
        let right = self.graph.in_place(&[lower]);
        let solved = self.graph.own(square, &[left, right]);
        let within = self.graph.in_place(&[solved, identity]);
        // Values and keys as the tokens of their own chunk have changed them.
        let value_beta = self.turned(c.value_beta);
        let value = self.graph.multiply(value_beta, within);
        let growth = self.graph.in_place(&[sums]);
        let key_beta = self.turned(c.key_beta);
        let key_beta = self.graph.in_place(&[key_beta, growth]);
        let key_decay = self.graph.multiply(key_beta, within);
        let growth = self.turned(growth);
        let query = self.graph.in_place(&[c.query, growth]);
        // The decay at the end of each chunk, which the state takes over to the next one.
        let last = self.graph.turned(sums, [1, 1, c.count, c.heads]);
        let last_growth = self.graph.in_place(&[last]);
        let last_growth = self.graph.view(last_growth, [1, 1, c.count, c.heads]);
        let rest = self.graph.chain(sums, &[&[last], &[], &[]]);
        let rest = self.turned(rest);
        let key = self.graph.in_place(&[c.key, rest]);
        let key = self.turned(key);
        let length = self.graph.shape(c.value)[0];
        state = self.graph.view(state, [length, length, 1, c.heads]);
        let mut output = value;
        let value = self.turned(value);
        // Every chunk needs the state of the one before, so these operations repeat for each.
        for _ in 0..c.count {
            let parts = [key_decay, value, key_query, query, key, last_growth];
            (output, state) = self.next_chunk(parts, output, state);
        }
        (output, state)
    }

    fn next_chunk(&mut self, parts: [Id; 6], output: Id, state: Id) -> (Id, Id) {
        let [key_decay, value, key_query, query, key, growth] = parts.map(|part| {
            let [a, b, _, d] = self.graph.shape(part);
            self.graph.view(part, [a, b, 1, d])
        });
        let known = self.graph.multiply(key_decay, state);
        let news = self.graph.in_place(&[value, known]);
        let within = self.graph.multiply(news, key_query);
        let before = self.graph.multiply(state, query);
        let sum = self.graph.in_place(&[before, within]);
        // `ggml_set_inplace`: the chunk's rows of the output.
        let output = self.graph.overwrite(&[output, sum], output);
        let added = self.graph.multiply(key, news);
        let state = self.graph.in_place(&[state, growth]);
        (output, self.graph.in_place(&[state, added]))
    }
}
