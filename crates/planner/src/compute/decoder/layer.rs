//! One layer: what it does with its tokens first, its feed-forward, and the sums around both.

use plimsoll_model::Model;

use crate::compute::decoder::Decoder;
use crate::compute::form::WantedRows;
use crate::compute::graph::TensorId;
use crate::compute::sketch::{ModelBlock, ModelLayers};

/// What a layer does with its tokens before its feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mixer {
    Attention,
    DeltaNet,
    Mamba,
    Mamba2,
    ShortConvolution,
    /// Nothing: the feed-forward is all there is.
    FeedForward,
}

impl Decoder<'_> {
    pub(super) fn layer(&mut self, block: &ModelBlock<'_>, input: TensorId, is_last: bool) -> TensorId {
        if norms_after_sums(block, self.sketch.model.hyper.cached) {
            return self.encoder_layer(block, input, is_last);
        }
        if self.variant.side_by_side {
            return self.layer_side_by_side(block, input, is_last);
        }
        let mixer = mixer(self.sketch.model, block);
        let mut current = match self.attends_beside() {
            true => self.mix_beside_attention(block, input),
            false => {
                let normed = self.norm(block, "attn_norm", input);
                if self.variant.norm_first {
                    self.graph.expand(normed);
                }
                self.mix(block, mixer, normed)
            }
        };
        let mut residual = input;
        if is_last && self.variant.wanted == WantedRows::WithinLastLayer {
            current = self.wanted_rows(current);
            residual = self.wanted_rows(residual);
        }
        let has_own_norm = block.has("ffn_norm.weight") || block.has("ffn_norm");
        if has_own_norm {
            current = self.norm(block, "post_attention_norm", current);
        }
        let mut residual = self.sum(0, current, residual);
        if is_last && self.variant.wanted == WantedRows::AfterFirstSum {
            residual = self.wanted_rows(residual);
        }
        if mixer == Mixer::FeedForward || !has_feed_forward(block) {
            return residual;
        }
        let norm = if has_own_norm {
            "ffn_norm"
        } else {
            "post_attention_norm"
        };
        let normed = self.norm(block, norm, residual);
        let current = self.feed_forward(block, normed);
        let current = self.norm(block, "post_ffw_norm", current);
        self.sum(1, current, residual)
    }

    /// `models/command-r.cpp @ b10605`.
    fn layer_side_by_side(&mut self, block: &ModelBlock<'_>, input: TensorId, is_last: bool) -> TensorId {
        let normed = self.norm(block, "attn_norm", input);
        let attended = self.attention(block, normed);
        let mut parts = [attended, input, normed];
        if is_last {
            parts = parts.map(|part| self.wanted_rows(part));
        }
        let [attended, residual, normed] = parts;
        let active = self.feed_forward(block, normed);
        let sum = self.graph.in_place(&[active, residual]);
        self.graph.in_place(&[sum, attended])
    }

    /// A layer that lacks a tensor passes its tokens on.
    fn mix(&mut self, block: &ModelBlock<'_>, mixer: Mixer, input: TensorId) -> TensorId {
        let mixed = match mixer {
            Mixer::Attention => Some(self.attention(block, input)),
            Mixer::FeedForward => Some(self.feed_forward(block, input)),
            Mixer::DeltaNet => self.delta_net(block, input),
            Mixer::Mamba => self.mamba(block, input),
            Mixer::Mamba2 => self.mamba2(block, input),
            Mixer::ShortConvolution => self.short_convolution(block, input),
        };
        mixed.unwrap_or(input)
    }

    pub(in crate::compute) fn has_delta_nets(sketch: &ModelLayers<'_>) -> bool {
        let mut blocks = sketch.blocks.iter();
        blocks.any(|block| mixer(sketch.model, block) == Mixer::DeltaNet)
    }

    fn attends_beside(&self) -> bool {
        let recurrent = self.sketch.model.hyper.recurrent.as_ref();
        recurrent.is_some_and(|recurrent| recurrent.attends)
    }

    /// Attention and Mamba 2 side by side, each norming the same input by the same weight (Falcon-H1).
    fn mix_beside_attention(&mut self, block: &ModelBlock<'_>, input: TensorId) -> TensorId {
        let Some(weights) = self.norm_weights(block, "attn_norm") else {
            return input;
        };
        let normed = self.norm_by(block, weights, input);
        let attended = self.attention(block, normed);
        let normed = self.norm_by(block, weights, input);
        let carried = self.mix(block, Mixer::Mamba2, normed);
        self.graph.in_place(&[attended, carried])
    }

    /// The first or the second sum around a part of a layer.
    fn sum(&mut self, which: usize, current: TensorId, residual: TensorId) -> TensorId {
        let current = match self.sketch.model.hyper.scales_residual {
            true => self.graph.in_place(&[current]),
            false => current,
        };
        match self.variant.residual_first[which] {
            true => self.graph.in_place(&[residual, current]),
            false => self.graph.in_place(&[current, residual]),
        }
    }
}

/// Reads off a layer's tensors what it does with its tokens first.
fn mixer(model: &Model, block: &ModelBlock<'_>) -> Mixer {
    let attends = || block.has("attn_q.weight") || block.has("attn_qkv.weight");
    if model.hyper.recurrent.is_none() {
        Mixer::Attention
    } else if block.has("ssm_ba.weight") || block.has("ssm_beta.weight") {
        Mixer::DeltaNet
    } else if block.has("ssm_x.weight") {
        Mixer::Mamba
    } else if block.has("ssm_in.weight") {
        Mixer::Mamba2
    } else if block.has("shortconv.conv.weight") {
        Mixer::ShortConvolution
    } else if !attends() && has_feed_forward(block) {
        Mixer::FeedForward
    } else {
        Mixer::Attention
    }
}

/// BERT and its kin norm after their sums. Grok has norms of the same names before them.
fn norms_after_sums(block: &ModelBlock<'_>, cached: bool) -> bool {
    !cached && block.has("layer_output_norm.weight")
}

/// Is there anything after the mixer?
fn has_feed_forward(block: &ModelBlock<'_>) -> bool {
    ["ffn_up.weight", "ffn_gate_inp.weight", "ffn_down.weight"]
        .iter()
        .any(|role| block.has(role))
}
