//! A whole graph: embedding, layers, output.
//!
//! Mirrors the graphs of the llama family (`models/llama.cpp, qwen2.cpp, qwen3.cpp, qwen3moe.cpp, gemma3.cpp,
//! openai-moe.cpp, deepseek2.cpp @ b10605`), which differ by the tensors they have. What a layer does is read off
//! its tensors, so that a model of an unknown name with known parts is estimated well.

use super::form::{Form, WantedRows};
use super::graph::{F32, Graph, I32, I64, Id, Kind};
use super::inputs::{Inputs, inputs};
use super::sketch::{Block, Sketch};
use crate::model::{Model, Tensor};
use crate::plan::flash::Flash;
use crate::plan::kv::CacheKind;
use crate::plan::layout::Place;
use crate::plan::reserve::Reserve;
use crate::plan::weights::row_padding;

/// How the roles of a matrix and of what is added to its product end.
pub(super) const WEIGHT: &str = ".weight";
pub(super) const BIAS: &str = ".bias";

/// What builds of the engine do differently in one graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Room for f16 copies of the cache behind the result of attention.
    pub(super) copies_cache: bool,
    /// Flash attention gets an F16 copy of an F32 mask, instead of a mask that is F16.
    pub(super) casts_mask: bool,
    /// Rows whose logits are wanted are picked within the last layer, by every architecture.
    pub(super) picks_rows_early: bool,
    /// Ready-made embeddings may stand among tokens in one batch, for which a second input is kept.
    pub(super) mixes_embeddings: bool,
    /// A graph for tokens has no place for ready-made embeddings, and a norm and its weight are one operation (ik_llama.cpp).
    pub(super) is_lean: bool,
    /// Mamba 2 projects each sequence's tokens for themselves, and looks at the result as one batch.
    pub(super) projects_by_sequence: bool,
    /// Norms are pinned to their layers; llama-fit-params forgets where (`ggml-backend.cpp: ggml_backend_sched_reserve_size @ b10605`).
    pub(super) pins_norms: bool,
    /// Numbers limited to a range are a view of them.
    pub(super) clamps_views: bool,
    /// Gate and up of the experts are one operation, with one result (ik_llama.cpp).
    pub(super) fuses_experts: bool,
    /// What each expert has of a batch on average, not the batch, makes copying experts to a card worth it (ik_llama.cpp).
    pub(super) shares_batch: bool,
}

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

pub(super) struct Decoder<'a> {
    pub(super) graph: Graph,
    pub(super) sketch: &'a Sketch<'a>,
    pub(super) reserve: &'a Reserve,
    pub(super) cache: CacheKind,
    pub(super) flash: Flash,
    pub(super) habits: Habits,
    pub(super) form: Form,
    /// Every layer's device has the kernel of the gated delta net.
    pub(super) fused: bool,
    /// Uses of that kernel, and where their layers are.
    pub(super) fused_nodes: Vec<(Id, Place)>,
    /// The same of flash attention.
    pub(super) attention_nodes: Vec<(Id, Place)>,
    pub(super) tokens: u64,
    pub(super) inputs: Inputs,
    /// Masks, and their copies for flash attention.
    pub(super) masks: Vec<(Id, Id)>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        sketch: &'a Sketch<'a>,
        reserve: &'a Reserve,
        cache: CacheKind,
        flash: Flash,
        habits: Habits,
    ) -> Self {
        let mut graph = sketch.graph();
        let inputs = inputs(&mut graph, sketch, reserve, cache, flash.on && !habits.casts_mask);
        Self {
            graph,
            sketch,
            reserve,
            cache,
            flash,
            habits,
            form: match habits.picks_rows_early {
                true => Form::of_older(sketch.model),
                false => Form::of(sketch.model),
            },
            fused: true,
            fused_nodes: Vec::new(),
            attention_nodes: Vec::new(),
            tokens: reserve.tokens,
            inputs,
            masks: Vec::new(),
        }
    }

    pub(super) fn build(&mut self) {
        let embedded = self.embed();
        let current = match self.streams(embedded) {
            Some(merged) => merged,
            None => self.layers(embedded),
        };
        self.finish(current);
    }

    fn layers(&mut self, mut current: Id) -> Id {
        let last = self.sketch.blocks.len().saturating_sub(1);
        let wanted = self.form.wanted;
        for (i, block) in self.sketch.blocks.iter().enumerate() {
            current = self.layer(block, current, i == last);
        }
        if wanted == WantedRows::AfterLastLayer {
            self.graph.mark_output(current);
            current = self.wanted_rows(current);
        }
        current
    }

    /// `build_inp_embd`: the host looks the tokens up; the place for ready-made embeddings is reserved as well.
    fn embed(&mut self) -> Id {
        let width = u64::from(self.sketch.model.hyper.embedding);
        let tokens = self.graph.input(I32, [self.tokens, 1, 1, 1]);
        let table = self.sketch.other("token_embd.weight");
        let ready = (table.is_none() || !self.habits.is_lean)
            .then(|| self.graph.input(F32, [width, self.tokens, 1, 1]));
        let looked_up = table.map(|(table, place)| {
            let table = self.stored(table, place);
            self.graph.gather([width, self.tokens, 1, 1], table, tokens)
        });
        let mut embedded = looked_up.or(ready).unwrap_or(tokens);
        self.graph.expand(embedded);
        if let Some(ready) = ready {
            self.graph.expand(ready);
        }
        if self.habits.mixes_embeddings {
            let second = self.graph.input(F32, [width, self.tokens, 1, 1]);
            let which = self.graph.input(I64, [self.tokens, 1, 1, 1]);
            self.graph.expand(second);
            self.graph.expand(which);
        }
        let model = self.sketch.model;
        if !model.hyper.cached {
            embedded = self.encoder_input(embedded);
        }
        if model.architecture.starts_with("gemma") {
            return self.graph.in_place(&[embedded]);
        }
        if model.hyper.scales_embedding {
            embedded = self.graph.in_place(&[embedded]);
            self.graph.expand(embedded);
        }
        embedded
    }

    fn layer(&mut self, block: &Block<'_>, input: Id, is_last: bool) -> Id {
        if norms_after_sums(block, self.sketch.model.hyper.cached) {
            return self.encoder_layer(block, input, is_last);
        }
        if self.form.side_by_side {
            return self.layer_side_by_side(block, input, is_last);
        }
        let mixer = mixer(self.sketch.model, block);
        let mut current = match self.attends_beside() {
            true => self.mix_beside_attention(block, input),
            false => {
                let normed = self.norm(block, "attn_norm", input);
                if self.form.norm_first {
                    self.graph.expand(normed);
                }
                self.mix(block, mixer, normed)
            }
        };
        let mut residual = input;
        if is_last && self.form.wanted == WantedRows::WithinLastLayer {
            current = self.wanted_rows(current);
            residual = self.wanted_rows(residual);
        }
        let has_own_norm = block.has("ffn_norm.weight") || block.has("ffn_norm");
        if has_own_norm {
            current = self.norm(block, "post_attention_norm", current);
        }
        let mut residual = self.sum(0, current, residual);
        if is_last && self.form.wanted == WantedRows::AfterFirstSum {
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
    fn layer_side_by_side(&mut self, block: &Block<'_>, input: Id, is_last: bool) -> Id {
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
    fn mix(&mut self, block: &Block<'_>, mixer: Mixer, input: Id) -> Id {
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

    pub(super) fn has_delta_nets(sketch: &Sketch<'_>) -> bool {
        let mut blocks = sketch.blocks.iter();
        blocks.any(|block| mixer(sketch.model, block) == Mixer::DeltaNet)
    }

    fn attends_beside(&self) -> bool {
        let recurrent = self.sketch.model.hyper.recurrent.as_ref();
        recurrent.is_some_and(|recurrent| recurrent.attends)
    }

    /// Attention and Mamba 2 side by side, each norming the same input by the same weight (Falcon-H1).
    fn mix_beside_attention(&mut self, block: &Block<'_>, input: Id) -> Id {
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
    fn sum(&mut self, which: usize, current: Id, residual: Id) -> Id {
        let current = match self.sketch.model.hyper.scales_residual {
            true => self.graph.in_place(&[current]),
            false => current,
        };
        match self.form.residual_first[which] {
            true => self.graph.in_place(&[residual, current]),
            false => self.graph.in_place(&[current, residual]),
        }
    }

    pub(super) fn wanted_rows(&mut self, of: Id) -> Id {
        let width = self.graph.shape(of)[0];
        self.graph
            .gather([width, self.reserve.outputs, 1, 1], of, self.inputs.outputs)
    }

    fn finish(&mut self, current: Id) {
        let mut normed = match self.sketch.other(self.form.last_norm) {
            Some((weight, place)) => {
                let weight = self.stored(weight, place);
                match self.habits.is_lean {
                    true => self.graph.own(F32, self.graph.shape(current), &[current, weight]),
                    false => {
                        let normed = self.bare_norm(current, self.form.subtracts_mean);
                        self.graph.in_place(&[normed, weight])
                    }
                }
            }
            None => current,
        };
        if !self.habits.is_lean {
            self.graph.mark_output(normed);
        }
        if self.form.wanted == WantedRows::AfterLastNorm {
            normed = self.wanted_rows(normed);
            self.graph.mark_output(normed);
        }
        let matrix = self.sketch.other("output.weight").or_else(|| {
            let (embedding, _) = self.sketch.other("token_embd.weight")?;
            self.sketch
                .model
                .hyper
                .cached
                .then_some((embedding, self.sketch.output))
        });
        let result = match matrix {
            Some((matrix, place)) => {
                let matrix = self.stored(matrix, place);
                let logits = self.graph.multiply(matrix, normed);
                self.graph.mark_output(logits);
                logits
            }
            None => normed,
        };
        self.graph.expand(result);
        if let Some(pooling) = self.reserve.pooling {
            self.pool(pooling, normed);
        }
    }

    /// `build_norm`; nothing where the layer has no such weight.
    pub(super) fn norm(&mut self, block: &Block<'_>, role: &str, of: Id) -> Id {
        match self.norm_weights(block, role) {
            Some(weights) => self.norm_by(block, weights, of),
            None => of,
        }
    }

    /// A norm's weight and bias. Falcon-H1 has one without the usual ending.
    fn norm_weights(&mut self, block: &Block<'_>, role: &str) -> Option<(Id, Option<Id>)> {
        let weight = self.part(block, role, WEIGHT);
        let weight = weight.or_else(|| self.weight(block, role))?;
        Some((weight, self.part(block, role, BIAS)))
    }

    pub(super) fn norm_by(&mut self, block: &Block<'_>, (weight, bias): (Id, Option<Id>), of: Id) -> Id {
        let subtracts_mean = bias.is_some() || self.form.subtracts_mean;
        if self.habits.is_lean && !subtracts_mean {
            let shape = self.graph.shape(of);
            let normed = self.graph.own(F32, shape, &[of, weight]);
            self.pin(normed, block);
            return normed;
        }
        let normed = self.bare_norm(of, subtracts_mean);
        self.pin(normed, block);
        let scaled = self.graph.in_place(&[normed, weight]);
        match bias {
            Some(bias) => self.graph.in_place(&[scaled, bias]),
            None => scaled,
        }
    }

    /// Norms that subtract the mean as well, as those with a bias do, cannot be done in place.
    pub(super) fn bare_norm(&mut self, of: Id, subtracts_mean: bool) -> Id {
        match subtracts_mean {
            true => {
                let shape = self.graph.shape(of);
                self.graph.own(F32, shape, &[of])
            }
            false => self.graph.in_place(&[of]),
        }
    }

    /// `llama-context.cpp: graph_get_cb @ b10605`: with all layers on cards a norm belongs to its layer, not to the one
    /// before, so that one tensor less crosses from card to card.
    fn pin(&mut self, normed: Id, block: &Block<'_>) {
        const FEW_TOKENS: u64 = 32;
        if self.habits.pins_norms && (self.sketch.all_on_cards() || self.tokens < FEW_TOKENS) {
            self.graph.pin(normed, block.place);
        }
    }

    /// `build_lora_mm` and its bias, where the layer has such a weight.
    pub(super) fn linear(&mut self, block: &Block<'_>, role: &str, input: Id) -> Option<Id> {
        let weight = self.part(block, role, WEIGHT)?;
        let product = self.graph.multiply(weight, input);
        Some(match self.part(block, role, BIAS) {
            Some(bias) => self.graph.in_place(&[product, bias]),
            None => product,
        })
    }

    pub(super) fn weight(&mut self, block: &Block<'_>, role: &str) -> Option<Id> {
        block.get(role).map(|(tensor, place)| self.stored(tensor, place))
    }

    /// The same by the two halves of its role.
    pub(super) fn part(&mut self, block: &Block<'_>, role: &str, ending: &str) -> Option<Id> {
        block
            .part(role, ending)
            .map(|(tensor, place)| self.stored(tensor, place))
    }

    /// Frequencies of the rotary embedding, of which every device with a layer has its own.
    pub(super) fn rope_factors(&mut self, place: Place) -> Option<Id> {
        let names = ["rope_freqs.weight", "rope_factors_long.weight"];
        let (tensor, _) = names.iter().find_map(|name| self.sketch.other(name))?;
        Some(self.stored(tensor, place))
    }

    pub(super) fn stored(&mut self, tensor: &Tensor, place: Place) -> Id {
        let padding = row_padding(tensor.kind, tensor.shape[0]).get();
        self.graph
            .stored(Kind::Weight(place), tensor.bytes.get(), padding, tensor.shape)
    }
}

/// Reads off a layer's tensors what it does with its tokens first.
fn mixer(model: &Model, block: &Block<'_>) -> Mixer {
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
fn norms_after_sums(block: &Block<'_>, cached: bool) -> bool {
    !cached && block.has("layer_output_norm.weight")
}

/// Is there anything after the mixer?
fn has_feed_forward(block: &Block<'_>) -> bool {
    ["ffn_up.weight", "ffn_gate_inp.weight", "ffn_down.weight"]
        .iter()
        .any(|role| block.has(role))
}
