//! Builds the compute graph of Gemma 3n's layers: four parallel streams (AltUp) and a low-rank branch
//! (LAuReL).
//!
//! The code mirrors `models/gemma3n.cpp: altup_predict, altup_correct, laurel, gaussian_topk,
//! project_per_layer_inputs @ b10605`, and `models/gemma3n-iswa.cpp @ b8799`.

use crate::compute::{Decoder, I32, Id};

/// `n_layer_sparsity`: the first layers keep only their largest gates.
const SPARSE_LAYERS: u32 = 10;

/// Norm and matrix of the stream router, which is used twice a layer.
type Router = (Id, Id);

impl Decoder<'_> {
    /// All layers, with their streams merged again and the wanted rows picked; nothing for a model without
    /// streams.
    pub(super) fn streams(&mut self, embedded: Id) -> Option<Id> {
        let spread = self.outer("altup_proj.weight")?;
        let merge = self.outer("altup_unembd_proj.weight")?;
        let others = self.graph.shape(spread)[2];
        let per_layer = self.per_layer_inputs(embedded)?;
        let [width, tokens, ..] = self.graph.shape(embedded);
        // The other streams are projections of the first, scaled to its magnitude.
        let target = self.magnitude(embedded);
        let repeated = self.graph.own([width, tokens, others, 1], &[embedded]);
        let added = self.graph.multiply(spread, repeated);
        let added = self.rescaled(added, target);
        let both = [width, tokens, others.saturating_add(1), 1];
        let mut all = self.graph.own(both, &[embedded, added]);
        for at in 0..self.layers.blocks.len() {
            self.at = at;
            all = self.stream_layer(all, per_layer)?;
        }
        // The streams become one again: the others are projected back, scaled and averaged with the first.
        let first = self.graph.view(all, [width, tokens, 1, 1]);
        let target = self.magnitude(first);
        let rest = self.graph.view(all, [width, tokens, others, 1]);
        let rest = self.graph.multiply(merge, rest);
        let rest = self.rescaled(rest, target);
        let mut sum = self.graph.view(all, [width, tokens, 1, 1]);
        for _ in 0..others {
            let next = self.graph.view(rest, [width, tokens, 1, 1]);
            sum = self.graph.in_place(&[sum, next]);
        }
        let mean = self.graph.in_place(&[sum]);
        Some(self.wanted_rows(mean))
    }

    /// Inputs of each layer for each token, `[each, tokens, layers]`.
    fn per_layer_inputs(&mut self, embedded: Id) -> Option<Id> {
        let tokens = self.tokens;
        // The engine makes a second input of the token ids for this table.
        let ids = self.graph.input(I32, [tokens, 1, 1, 1]);
        let table = self.outer("per_layer_token_embd.weight")?;
        let project = self.outer("per_layer_model_proj.weight")?;
        let norm = self.outer("per_layer_proj_norm.weight")?;
        let (all, each) = (self.graph.shape(table)[0], self.graph.shape(norm)[0].max(1));
        let shape = [each, all / each, tokens, 1];
        let looked_up = self.graph.gather([all, tokens, 1, 1], table, ids);
        let looked_up = self.graph.view(looked_up, shape);
        let looked_up = self.graph.in_place(&[looked_up]);
        self.graph.expand(looked_up);
        let projected = self.graph.multiply(project, embedded);
        let projected = self.graph.in_place(&[projected]);
        let projected = self.graph.view(projected, shape);
        let normed = self.bare_norm(projected, false);
        let sum = self.graph.chain(normed, &[&[norm], &[looked_up], &[]]);
        // Layers come last, so that each layer's input is one piece.
        Some(self.graph.turned(sum, [each, tokens, all / each, 1]))
    }

    fn stream_layer(&mut self, all: Id, per_layer: Id) -> Option<Id> {
        let [width, tokens, ..] = self.graph.shape(all);
        let router = (self.weight("altup_router_norm.weight")?, self.weight("altup_router.weight")?);
        let predictions = self.predict_streams(router, all)?;
        let active = self.graph.view(predictions, [width, tokens, 1, 1]);
        let normed = self.norm("attn_norm", active);
        let branch = self.linear("laurel_l", normed)?;
        let branch = self.linear("laurel_r", branch)?;
        let branch = self.norm("laurel_post_norm", branch);
        let branch = self.graph.in_place(&[branch, normed]);
        let attended = self.attention(normed);
        let attended = self.norm("post_attention_norm", attended);
        let attended = self.graph.chain(attended, &[&[active], &[branch], &[]]);
        let active = self.stream_feed_forward(attended)?;
        let active = self.graph.in_place(&[active, attended]);
        let corrected = self.correct_streams(router, predictions, active)?;
        self.add_layer_input(corrected, per_layer)
    }

    fn stream_feed_forward(&mut self, input: Id) -> Option<Id> {
        let normed = self.norm("ffn_norm", input);
        let up = self.linear("ffn_up", normed)?;
        let mut gate = self.linear("ffn_gate", normed)?;
        if self.block().layer < SPARSE_LAYERS {
            gate = self.largest(gate);
        }
        let gate = self.graph.in_place(&[gate]);
        let active = self.graph.in_place(&[up, gate]);
        let down = self.linear("ffn_down", active)?;
        // Its norm is not pinned: the engine does not count it to the layer.
        let weight = self.weight("post_ffw_norm.weight")?;
        let normed = self.bare_norm(down, false);
        Some(self.graph.in_place(&[normed, weight]))
    }

    /// `gaussian_topk`.
    fn largest(&mut self, of: Id) -> Id {
        let one = [1, self.tokens, 1, 1];
        // Mean plus a multiple of the standard deviation is the least gate that passes.
        let mean = self.graph.own(one, &[of]);
        let squared = self.graph.chain(of, &[&[mean], &[]]);
        let deviation = self.graph.own(one, &[squared]);
        let deviation = self.graph.chain(deviation, &[&[], &[], &[]]);
        let least = self.graph.in_place(&[mean, deviation]);
        self.graph.chain(of, &[&[least], &[]])
    }

    /// `altup_compute_router_modalities`.
    fn route_streams(&mut self, (norm, matrix): Router, active: Id) -> Id {
        let normed = self.norm_by((norm, None), active);
        let normed = self.graph.in_place(&[normed]);
        let routed = self.graph.multiply(matrix, normed);
        self.graph.in_place(&[routed])
    }

    fn predict_streams(&mut self, router: Router, all: Id) -> Option<Id> {
        let [width, tokens, count, _] = self.graph.shape(all);
        let active = self.graph.view(all, [width, tokens, 1, 1]);
        let routed = self.route_streams(router, active);
        // One square matrix for each token mixes its streams.
        let factors = self.linear("altup_predict_coef", routed)?;
        let factors = self.graph.view(factors, [count, count, tokens, 1]);
        let turned = self.graph.turned(all, [count, width, tokens, 1]);
        let predictions = self.graph.multiply(turned, factors);
        let predictions = self.graph.turned(predictions, [width, tokens, count, 1]);
        Some(self.graph.in_place(&[predictions, all]))
    }

    fn correct_streams(&mut self, router: Router, predictions: Id, active: Id) -> Option<Id> {
        let shape = self.graph.shape(predictions);
        let [width, tokens, count, _] = shape;
        let routed = self.route_streams(router, active);
        let predicted = self.graph.view(predictions, [width, tokens, 1, 1]);
        // The error of the prediction of the active stream corrects all of them.
        let news = self.graph.in_place(&[active, predicted]);
        let factors = self.linear("altup_correct_coef", routed)?;
        let factors = self.graph.in_place(&[factors]);
        let view = self.graph.view(factors, [tokens, count, 1, 1]);
        let factors = self.graph.own([1, tokens, count, 1], &[view]);
        let news = self.graph.own(shape, &[news]);
        Some(self.graph.chain(news, &[&[factors], &[predictions]]))
    }

    /// Gates the first stream with the layer's own input, and adds the result to the other streams.
    fn add_layer_input(&mut self, corrected: Id, per_layer: Id) -> Option<Id> {
        let shape = self.graph.shape(corrected);
        let [width, tokens, count, _] = shape;
        let each = self.graph.shape(per_layer)[0];
        let first = self.graph.view(corrected, [width, tokens, 1, 1]);
        let scale = self.weight("altup_correct_scale.weight")?;
        let first = self.graph.in_place(&[first, scale]);
        let first = self.linear("inp_gate", first)?;
        let own = self.graph.view(per_layer, [each, tokens, 1, 1]);
        let first = self.graph.chain(first, &[&[], &[own]]);
        let first = self.linear("proj", first)?;
        let first = self.norm("post_norm", first);
        let kept = self.graph.view(corrected, [width, tokens, 1, 1]);
        let rest = self.graph.view(corrected, [width, tokens, count.saturating_sub(1), 1]);
        let rest = self.graph.in_place(&[rest, first]);
        Some(self.graph.own(shape, &[kept, rest]))
    }

    /// `calc_magnitude`.
    fn magnitude(&mut self, of: Id) -> Id {
        let [_, tokens, count, _] = self.graph.shape(of);
        let squared = self.graph.in_place(&[of]);
        let sum = self.graph.own([1, tokens, count, 1], &[squared]);
        self.graph.in_place(&[sum])
    }

    fn rescaled(&mut self, of: Id, target: Id) -> Id {
        let own = self.magnitude(of);
        self.graph.chain(of, &[&[target], &[own]])
    }
}
