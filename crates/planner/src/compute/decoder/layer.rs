//! Adds one layer to the compute graph: attention or a recurrent layer, feed-forward network, residual sums.

use plimsoll_model::Model;

use crate::WantedRows;
use crate::compute::{Decoder, Id, Layer, ModelLayers};

/// The part of a layer before its feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mixer {
    Attention,
    DeltaNet,
    Mamba,
    Mamba2,
    ShortConvolution,
    /// The layer is a feed-forward alone.
    FeedForward,
}

impl Decoder<'_> {
    pub(super) fn layer(&mut self, input: Id, is_last: bool) -> Id {
        let hyper = &self.layers.model.hyper;
        // BERT and its relatives norm after their sums. Grok has norms of the same names before them.
        if !hyper.cached && self.block().has("layer_output_norm.weight") {
            return self.encoder_layer(input, is_last);
        }
        if self.variant.side_by_side {
            return self.layer_side_by_side(input, is_last);
        }
        let mixer = mixer(self.layers.model, self.block());
        let mut current = if hyper.recurrent.as_ref().is_some_and(|recurrent| recurrent.attends) {
            self.mix_alongside_attention(input)
        } else {
            let normed = self.norm("attn_norm", input);
            if self.variant.norm_first {
                self.graph.expand(normed);
            }
            self.mix(mixer, normed)
        };
        let mut residual = input;
        // Rows without logits are dropped before the last feed-forward, which then computes far fewer of
        // them.
        if is_last && self.variant.wanted == WantedRows::WithinLastLayer {
            current = self.wanted_rows(current);
            residual = self.wanted_rows(residual);
        }
        // Gemma norms the result of attention as well; elsewhere `post_attention_norm` is the feed-forward's
        // norm.
        let has_own_norm = self.block().has("ffn_norm.weight") || self.block().has("ffn_norm");
        if has_own_norm {
            current = self.norm("post_attention_norm", current);
        }
        let mut residual = self.sum(0, current, residual);
        if is_last && self.variant.wanted == WantedRows::AfterFirstSum {
            residual = self.wanted_rows(residual);
        }
        if mixer == Mixer::FeedForward || !has_feed_forward(self.block()) {
            return residual;
        }
        let norm = if has_own_norm { "ffn_norm" } else { "post_attention_norm" };
        let normed = self.norm(norm, residual);
        let current = self.feed_forward(normed);
        let current = self.norm("post_ffw_norm", current);
        self.sum(1, current, residual)
    }

    /// `models/command-r.cpp @ b10605`.
    fn layer_side_by_side(&mut self, input: Id, is_last: bool) -> Id {
        let normed = self.norm("attn_norm", input);
        let attended = self.attention(normed);
        let mut parts = [attended, input, normed];
        if is_last {
            parts = parts.map(|part| self.wanted_rows(part));
        }
        let [attended, residual, normed] = parts;
        let active = self.feed_forward(normed);
        self.graph.chain(active, &[&[residual], &[attended]])
    }

    fn mix(&mut self, mixer: Mixer, input: Id) -> Id {
        let mixed = match mixer {
            Mixer::Attention => Some(self.attention(input)),
            Mixer::FeedForward => Some(self.feed_forward(input)),
            Mixer::DeltaNet => self.delta_net(input),
            Mixer::Mamba => self.mamba(input),
            Mixer::Mamba2 => self.mamba2(input),
            Mixer::ShortConvolution => self.short_convolution(input),
        };
        // A damaged file may lack a tensor of the layer; the estimate then passes the tokens on.
        mixed.unwrap_or(input)
    }

    pub(in crate::compute) fn has_delta_nets(layers: &ModelLayers<'_>) -> bool {
        let mut blocks = layers.blocks.iter();
        blocks.any(|block| mixer(layers.model, block) == Mixer::DeltaNet)
    }

    /// Attention and Mamba 2 in parallel, each applying the same norm to the same input (Falcon-H1).
    fn mix_alongside_attention(&mut self, input: Id) -> Id {
        let Some(weights) = self.norm_weights("attn_norm") else { return input };
        let normed = self.norm_by(weights, input);
        let attended = self.attention(normed);
        let normed = self.norm_by(weights, input);
        let carried = self.mix(Mixer::Mamba2, normed);
        self.graph.in_place(&[attended, carried])
    }

    /// The first or the second residual sum of a layer.
    fn sum(&mut self, which: usize, current: Id, residual: Id) -> Id {
        let current =
            if self.layers.model.hyper.scales_residual { self.graph.in_place(&[current]) } else { current };
        // The first operand is the one whose memory the sum reuses, if both die here.
        let residual_first = self.variant.residual_first[which];
        self.graph.in_place(&if residual_first { [residual, current] } else { [current, residual] })
    }
}

/// Tensors that tell a layer's mixer, the first that it has. Both Mambas have `ssm_in`; only the first
/// computes its steps from a matrix of their own.
const MIXERS: [(&str, Mixer); 7] = [
    ("ssm_ba.weight", Mixer::DeltaNet),
    ("ssm_beta.weight", Mixer::DeltaNet),
    ("ssm_x.weight", Mixer::Mamba),
    ("ssm_in.weight", Mixer::Mamba2),
    ("shortconv.conv.weight", Mixer::ShortConvolution),
    ("attn_q.weight", Mixer::Attention),
    ("attn_qkv.weight", Mixer::Attention),
];

fn mixer(model: &Model, block: &Layer<'_>) -> Mixer {
    let named = MIXERS.iter().find(|(tensor, _)| block.has(tensor));
    match named {
        _ if model.hyper.recurrent.is_none() => Mixer::Attention,
        Some((_, mixer)) => *mixer,
        None if has_feed_forward(block) => Mixer::FeedForward,
        None => Mixer::Attention,
    }
}

fn has_feed_forward(block: &Layer<'_>) -> bool {
    let roles = ["ffn_up.weight", "ffn_gate_inp.weight", "ffn_down.weight"];
    roles.iter().any(|role| block.has(role))
}
