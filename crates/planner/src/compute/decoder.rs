//! A whole graph: embedding, layers, output.
//!
//! Mirrors the graphs of the llama family (`models/llama.cpp, qwen2.cpp, qwen3.cpp, qwen3moe.cpp, gemma3.cpp,
//! openai-moe.cpp, deepseek2.cpp @ b10605`), which differ by the tensors they have. What a layer does is read off
//! its tensors, so that a model of an unknown name with known parts is estimated well.

mod layer;
mod parts;

use super::form::{GraphVariant, WantedRows};
use super::graph::{F32, I32, I64, OpGraph, TensorId};
use super::inputs::{Inputs, inputs};
use super::sketch::ModelLayers;
use crate::flash::Flash;
use crate::kv::CacheKind;
use crate::layout::TensorDevice;
use crate::reserve::Reserve;

/// How the roles of a matrix and of what is added to its product end.
pub(super) const WEIGHT: &str = ".weight";
pub(super) const BIAS: &str = ".bias";

/// What builds of the engine do differently in one graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineQuirks {
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

pub(super) struct Decoder<'a> {
    pub(super) graph: OpGraph,
    pub(super) sketch: &'a ModelLayers<'a>,
    pub(super) reserve: &'a Reserve,
    pub(super) cache: CacheKind,
    pub(super) flash: Flash,
    pub(super) quirks: EngineQuirks,
    pub(super) variant: GraphVariant,
    /// Every layer's device has the kernel of the gated delta net.
    pub(super) fused: bool,
    /// Uses of that kernel, and where their layers are.
    pub(super) fused_nodes: Vec<(TensorId, TensorDevice)>,
    /// The same of flash attention.
    pub(super) attention_nodes: Vec<(TensorId, TensorDevice)>,
    pub(super) tokens: u64,
    pub(super) inputs: Inputs,
    /// Masks, and their copies for flash attention.
    pub(super) masks: Vec<(TensorId, TensorId)>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        sketch: &'a ModelLayers<'a>,
        reserve: &'a Reserve,
        cache: CacheKind,
        flash: Flash,
        quirks: EngineQuirks,
    ) -> Self {
        let mut graph = sketch.graph();
        let inputs = inputs(&mut graph, sketch, reserve, cache, flash.on && !quirks.casts_mask);
        Self {
            graph,
            sketch,
            reserve,
            cache,
            flash,
            quirks,
            variant: match quirks.picks_rows_early {
                true => GraphVariant::of_older(sketch.model),
                false => GraphVariant::of(sketch.model),
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

    fn layers(&mut self, mut current: TensorId) -> TensorId {
        let last = self.sketch.blocks.len().saturating_sub(1);
        let wanted = self.variant.wanted;
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
    fn embed(&mut self) -> TensorId {
        let width = u64::from(self.sketch.model.hyper.embedding);
        let tokens = self.graph.input(I32, [self.tokens, 1, 1, 1]);
        let table = self.sketch.other("token_embd.weight");
        let ready = (table.is_none() || !self.quirks.is_lean)
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
        if self.quirks.mixes_embeddings {
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

    pub(super) fn wanted_rows(&mut self, of: TensorId) -> TensorId {
        let width = self.graph.shape(of)[0];
        self.graph
            .gather([width, self.reserve.outputs, 1, 1], of, self.inputs.outputs)
    }

    fn finish(&mut self, current: TensorId) {
        let mut normed = match self.sketch.other(self.variant.last_norm) {
            Some((weight, place)) => {
                let weight = self.stored(weight, place);
                match self.quirks.is_lean {
                    true => self.graph.own(F32, self.graph.shape(current), &[current, weight]),
                    false => {
                        let normed = self.bare_norm(current, self.variant.subtracts_mean);
                        self.graph.in_place(&[normed, weight])
                    }
                }
            }
            None => current,
        };
        if !self.quirks.is_lean {
            self.graph.mark_output(normed);
        }
        if self.variant.wanted == WantedRows::AfterLastNorm {
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
}
