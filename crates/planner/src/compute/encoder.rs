//! Encoders: what is added to the embedding, layers that norm after their sums, and the pooling of what they result in.
//!
//! Mirrors `models/bert.cpp` and `llama-graph.cpp: build_pooling, build_dense_out @ b10605`. Pooling is asked for by flags, and
//! follows a decoder that embeds as well.

use plimsoll_model::Pooling;

use super::decoder::Decoder;
use super::graph::{F32, I32, TensorId};
use super::sketch::ModelBlock;

impl Decoder<'_> {
    /// Kinds of tokens (the first one) and learned positions are added, and the sum is normed, each where the file has it.
    pub(super) fn encoder_input(&mut self, embedded: TensorId) -> TensorId {
        let [width, tokens, ..] = self.graph.shape(embedded);
        let mut sum = embedded;
        if let Some((kinds, place)) = self.sketch.other("token_types.weight") {
            let bytes = kinds.kind.row(width).unwrap_or_default().get();
            let kinds = self.stored(kinds, place);
            let first = self.graph.cache_view(kinds, [width, 1, 1, 1], bytes);
            sum = self.graph.in_place(&[sum, first]);
        }
        if let Some((positions, place)) = self.sketch.other("position_embd.weight") {
            let positions = self.stored(positions, place);
            let rows = self
                .graph
                .gather([width, tokens, 1, 1], positions, self.inputs.positions);
            sum = self.graph.in_place(&[rows, sum]);
        }
        let weight = self.outer("token_embd_norm.weight");
        let bias = self.outer("token_embd_norm.bias");
        match (weight, self.sketch.blocks.first()) {
            (Some(weight), Some(first)) => self.norm_by(first, (weight, bias), sum),
            _ => sum,
        }
    }

    /// `llama_model_bert::graph`.
    pub(super) fn encoder_layer(
        &mut self,
        block: &ModelBlock<'_>,
        input: TensorId,
        is_last: bool,
    ) -> TensorId {
        let mut current = self.attention(block, input);
        let mut residual = input;
        if is_last {
            current = self.wanted_rows(current);
            residual = self.wanted_rows(residual);
        }
        current = self.graph.in_place(&[current, residual]);
        current = self.norm(block, "attn_output_norm", current);
        if block.has("attn_norm_2.weight") {
            current = self.graph.in_place(&[current, residual]);
            current = self.norm(block, "attn_norm_2", current);
        }
        let active = self.feed_forward(block, current);
        let sum = self.graph.in_place(&[active, current]);
        self.norm(block, "layer_output_norm", sum)
    }

    /// `build_pooling`, and the dense layers behind it.
    pub(super) fn pool(&mut self, pooling: Pooling, embedded: TensorId) {
        let mean_first = self.sketch.model.architecture == "modern-bert";
        let mut pooled = match pooling {
            Pooling::Each => embedded,
            Pooling::Mean => self.mean(embedded),
            Pooling::Rank if mean_first => self.mean(embedded),
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
        for layer in ["dense_2", "dense_3"] {
            pooled = self.outer_linear(layer, pooled).unwrap_or(pooled);
        }
        self.graph.mark_output(pooled);
        self.graph.expand(pooled);
    }

    /// Each sequence's mean over its tokens.
    fn mean(&mut self, embedded: TensorId) -> TensorId {
        let [width, rows, ..] = self.graph.shape(embedded);
        let sequences = self.sequences();
        let shares = self.graph.input(F32, [self.tokens, sequences, 1, 1]);
        let turned = self.graph.view(embedded, [rows, width, 1, 1]);
        let turned = self.graph.own(F32, [rows, width, 1, 1], &[turned]);
        self.graph.multiply(turned, shares)
    }

    fn classify(&mut self, pooled: TensorId) -> TensorId {
        let mut score = pooled;
        if let Some(hidden) = self.outer_linear("cls", score) {
            score = self.graph.in_place(&[hidden]);
            if let Some(weight) = self.outer("cls.norm.weight") {
                let shape = self.graph.shape(score);
                let normed = self.graph.own(F32, shape, &[score]);
                score = self.graph.in_place(&[normed, weight]);
            }
        }
        score = self.outer_linear("cls.output", score).unwrap_or(score);
        match self.sketch.model.architecture.as_str() {
            "qwen3" | "qwen3vl" => self.graph.in_place(&[score]),
            _ => score,
        }
    }

    /// A tensor outside of layers.
    pub(super) fn outer(&mut self, name: &str) -> Option<TensorId> {
        let (tensor, place) = self.sketch.other(name)?;
        Some(self.stored(tensor, place))
    }

    /// A matrix outside of layers, and its bias.
    fn outer_linear(&mut self, name: &str, input: TensorId) -> Option<TensorId> {
        let weight = self.outer(&format!("{name}.weight"))?;
        let product = self.graph.multiply(weight, input);
        Some(match self.outer(&format!("{name}.bias")) {
            Some(bias) => self.graph.in_place(&[product, bias]),
            None => product,
        })
    }
}
