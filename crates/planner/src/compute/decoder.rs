//! Builder of a decoder's whole compute graph: embedding, layers and output.
//!
//! The operations of a layer follow from its tensors, so the graph of an unknown architecture can be
//! estimated.

mod layer;
mod parts;

use super::graph::{F32, I32, I64, Id, OpGraph};
use super::inputs::{Inputs, inputs};
use super::model_layers::ModelLayers;
use crate::architecture::{GraphVariant, WantedRows};
use crate::flash::Flash;
use crate::kv::CacheKind;
use crate::layout::TensorDevice;
use crate::quirks::EngineQuirks;
use crate::reserve::Reserve;

/// Endings of the roles of a matrix and of its bias.
pub(super) const WEIGHT: &str = ".weight";
pub(super) const BIAS: &str = ".bias";

// The code mirrors `models/llama.cpp, qwen2.cpp, qwen3.cpp, qwen3moe.cpp, gemma3.cpp, openai-moe.cpp,
// deepseek2.cpp @ b10605`.
pub(super) struct Decoder<'a> {
    pub(super) graph: OpGraph,
    pub(super) layers: &'a ModelLayers<'a>,
    pub(super) reserve: &'a Reserve,
    pub(super) cache: CacheKind,
    pub(super) flash: Flash,
    pub(super) quirks: EngineQuirks,
    pub(super) variant: GraphVariant,
    /// Every layer's device has the kernel of the gated delta net.
    pub(super) fused: bool,
    /// Uses of that kernel, with the devices of their layers.
    pub(super) fused_nodes: Vec<(Id, TensorDevice)>,
    /// Uses of flash attention, with the devices of their layers.
    pub(super) attention_nodes: Vec<(Id, TensorDevice)>,
    pub(super) tokens: u64,
    pub(super) inputs: Inputs,
    /// Masks, and their copies for flash attention.
    pub(super) masks: Vec<(Id, Id)>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(layers: &'a ModelLayers<'a>, reserve: &'a Reserve, quirks: EngineQuirks) -> Self {
        let (cache, flash) = (layers.cache, layers.flash);
        let mut graph = layers.graph();
        let variant = GraphVariant::of(layers.model, quirks.picks_rows_early);
        let halved = flash.on && !quirks.casts_mask;
        let inputs = inputs(&mut graph, layers, reserve, halved, variant.positions);
        Self {
            graph,
            layers,
            reserve,
            cache,
            flash,
            quirks,
            variant,
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
        // Gemma 3n alone has streams.
        let current = match self.streams(embedded) {
            Some(merged) => merged,
            None => self.all_layers(embedded),
        };
        self.finish(current);
    }

    fn all_layers(&mut self, mut current: Id) -> Id {
        let last = self.layers.blocks.len().saturating_sub(1);
        for (i, block) in self.layers.blocks.iter().enumerate() {
            current = self.layer(block, current, i == last);
        }
        if self.variant.wanted == WantedRows::AfterLastLayer {
            // Prediction layers read all rows, so the engine marks them as an output.
            self.graph.node_mut(current).output = true;
            current = self.wanted_rows(current);
        }
        current
    }

    /// `build_inp_embd`: the host looks up the tokens; the input for ready-made embeddings is reserved as well.
    fn embed(&mut self) -> Id {
        let width = u64::from(self.layers.model.hyper.embedding);
        let tokens = self.graph.input(I32, [self.tokens, 1, 1, 1]);
        let table = self.layers.other("token_embd.weight");
        let ready = (table.is_none() || !self.quirks.is_lean)
            .then(|| self.graph.input(F32, [width, self.tokens, 1, 1]));
        let looked_up = table.map(|(table, place)| {
            let table = self.stored(table, place);
            self.graph.gather([width, self.tokens, 1, 1], table, tokens)
        });
        let mut embedded = looked_up.or(ready).unwrap_or(tokens);
        // Expanded here, because the engine adds both inputs to the graph before any layer.
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
        let hyper = &self.layers.model.hyper;
        if !hyper.cached {
            embedded = self.encoder_input(embedded);
        }
        // Expanding fixes the order of operations, and Gemma's graphs do not expand here (`models/gemma*.cpp @ b10605`).
        if self.variant.scales_tokens {
            return self.graph.in_place(&[embedded]);
        }
        if hyper.scales_embedding {
            embedded = self.graph.in_place(&[embedded]);
            self.graph.expand(embedded);
        }
        embedded
    }

    pub(super) fn wanted_rows(&mut self, of: Id) -> Id {
        let shape = [self.graph.shape(of)[0], self.reserve.outputs, 1, 1];
        self.graph.gather(shape, of, self.inputs.outputs)
    }

    fn finish(&mut self, current: Id) {
        let mut normed = match self.outer(self.variant.last_norm) {
            Some(weight) if self.quirks.is_lean => self.graph.own_like(current, &[current, weight]),
            Some(weight) => {
                let normed = self.bare_norm(current, self.variant.subtracts_mean);
                self.graph.in_place(&[normed, weight])
            }
            None => current,
        };
        // llama.cpp keeps the embeddings of the last norm for its callers; ik_llama.cpp does not.
        if !self.quirks.is_lean {
            self.graph.node_mut(normed).output = true;
        }
        if self.variant.wanted == WantedRows::AfterLastNorm {
            normed = self.wanted_rows(normed);
            self.graph.node_mut(normed).output = true;
        }
        let layers = self.layers;
        let tied = || {
            let (embedding, _) = layers.other("token_embd.weight")?;
            // A copy of the embedding lies on the output's device; encoders have no logits.
            layers.model.hyper.cached.then_some((embedding, layers.output))
        };
        let mut result = normed;
        if let Some((matrix, place)) = layers.other("output.weight").or_else(tied) {
            let matrix = self.stored(matrix, place);
            result = self.graph.multiply(matrix, normed);
            self.graph.node_mut(result).output = true;
        }
        self.graph.expand(result);
        // Pooling reads the embeddings of the last norm beside the logits.
        if let Some(pooling) = self.reserve.pooling {
            self.pool(pooling, normed);
        }
    }
}
