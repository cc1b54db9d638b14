//! Builds the compute graph of encoder models (BERT and relatives), with the pooling of their result.
//!
//! The code mirrors `models/bert.cpp` and `llama-graph.cpp: build_pooling, build_dense_out @ b10605`. Pooling
//! is also used after a decoder that computes embeddings.

use plimsoll_model::Pooling;

use crate::compute::{Decoder, F32, I32, Id};

impl Decoder<'_> {
    /// Adds the token type (always the first) and learned positions, and norms the sum, as far as there are
    /// any.
    pub(super) fn encoder_input(&mut self, embedded: Id) -> Id {
        let [width, tokens, ..] = self.graph.shape(embedded);
        let mut sum = embedded;
        if let Some((kinds, place)) = self.layers.other("token_types.weight") {
            let bytes = kinds.kind.row(width).unwrap_or_default().get();
            let kinds = self.stored(kinds, place);
            let first = self.graph.cache_view(kinds, [width, 1, 1, 1], bytes);
            sum = self.graph.in_place(&[sum, first]);
        }
        if let Some(positions) = self.outer("position_embd.weight") {
            let rows = self.graph.gather([width, tokens, 1, 1], positions, self.inputs.positions);
            sum = self.graph.in_place(&[rows, sum]);
        }
        // The norm is of no layer, but the engine places it with the first one.
        let weight = self.outer("token_embd_norm.weight");
        let bias = self.outer("token_embd_norm.bias");
        let weight = weight.filter(|_| !self.layers.blocks.is_empty());
        weight.map_or(sum, |weight| self.norm_by((weight, bias), sum))
    }

    /// `llama_model_bert::graph`.
    pub(super) fn encoder_layer(&mut self, input: Id, is_last: bool) -> Id {
        let mut current = self.attention(input);
        let mut residual = input;
        if is_last {
            current = self.wanted_rows(current);
            residual = self.wanted_rows(residual);
        }
        current = self.graph.in_place(&[current, residual]);
        current = self.norm("attn_output_norm", current);
        // Jina v2 norms twice.
        if self.block().has("attn_norm_2.weight") {
            current = self.graph.in_place(&[current, residual]);
            current = self.norm("attn_norm_2", current);
        }
        let active = self.feed_forward(current);
        let sum = self.graph.in_place(&[active, current]);
        self.norm("layer_output_norm", sum)
    }

    /// `build_pooling`, and the dense layers after it.
    pub(super) fn pool(&mut self, pooling: Pooling, embedded: Id) {
        let mut pooled = match pooling {
            Pooling::Each => embedded,
            Pooling::Mean => self.mean(embedded),
            Pooling::Rank if self.variant.ranks_mean => self.mean(embedded),
            Pooling::First | Pooling::Last | Pooling::Rank => {
                let [width, ..] = self.graph.shape(embedded);
                let sequences = self.sequences();
                let which = self.graph.input(I32, [sequences, 1, 1, 1]);
                self.graph.gather([width, sequences, 1, 1], embedded, which)
            }
        };
        if pooling == Pooling::Rank {
            pooled = self.classify(pooled);
        }
        self.graph.expand(pooled);
        // EmbeddingGemma widens its embedding and narrows it again.
        for layer in ["dense_2", "dense_3"] {
            pooled = self.outer_linear(layer, pooled).unwrap_or(pooled);
        }
        self.graph.node_mut(pooled).output = true;
        self.graph.expand(pooled);
    }

    /// Each sequence's mean over its tokens.
    fn mean(&mut self, embedded: Id) -> Id {
        let [width, rows, ..] = self.graph.shape(embedded);
        let sequences = self.sequences();
        let shares = self.graph.input(F32, [self.tokens, sequences, 1, 1]);
        // A product with the share of each token in its sequence, which needs the tokens side by side.
        let turned = self.graph.turned(embedded, [rows, width, 1, 1]);
        self.graph.multiply(turned, shares)
    }

    fn classify(&mut self, pooled: Id) -> Id {
        let mut score = pooled;
        if let Some(hidden) = self.outer_linear("cls", score) {
            score = self.graph.in_place(&[hidden]);
            if let Some(weight) = self.outer("cls.norm.weight") {
                let normed = self.graph.own_like(score, &[score]);
                score = self.graph.in_place(&[normed, weight]);
            }
        }
        score = self.outer_linear("cls.output", score).unwrap_or(score);
        // Qwen's rerankers score by the odds of "yes" over "no".
        if self.variant.softmaxes_rank { self.graph.in_place(&[score]) } else { score }
    }

    /// A matrix outside of the layers, and its bias.
    fn outer_linear(&mut self, name: &str, input: Id) -> Option<Id> {
        let weight = self.outer(&format!("{name}.weight"))?;
        let product = self.graph.multiply(weight, input);
        let bias = self.outer(&format!("{name}.bias"));
        Some(self.biased(product, bias))
    }
}
