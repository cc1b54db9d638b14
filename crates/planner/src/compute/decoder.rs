//! Builds a decoder's whole compute graph: embedding, layers and output.
//!
//! The operations of a layer follow from its tensors, so an unknown architecture's graph can be estimated.

mod layer;
mod prediction;

use super::inputs::Inputs;
use plimsoll_model::Tensor;

use crate::compute::{F16, F32, I32, I64, Id, Layer, ModelLayers, OpGraph, OpKind};
use crate::weights::row_padding;
use crate::{CacheKind, EngineQuirks, Flash, GraphVariant, Reserve, TensorDevice, WantedRows};

/// Endings of the roles of a matrix and of its bias.
pub(super) const WEIGHT: &str = ".weight";
pub(super) const BIAS: &str = ".bias";

// `models/llama.cpp, qwen2.cpp, qwen3.cpp, qwen3moe.cpp, gemma3.cpp, openai-moe.cpp, deepseek2.cpp @ b10605`.
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
    /// The layer that is built.
    pub(super) at: usize,
    pub(super) inputs: Inputs,
    /// Masks, and their copies for flash attention.
    pub(super) masks: Vec<(Id, Id)>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(layers: &'a ModelLayers<'a>, reserve: &'a Reserve, quirks: EngineQuirks) -> Self {
        let (cache, flash) = (layers.cache, layers.flash);
        let mut graph = layers.graph();
        let mut variant = GraphVariant::of(layers.model, quirks.picks_rows_early);
        if layers.predict {
            variant.wanted = variant.wanted_of_prediction;
        }
        let mask = if flash.on && !quirks.casts_mask { F16 } else { F32 };
        let inputs = layers.inputs(&mut graph, reserve, if variant.images { 4 } else { 1 }, mask);
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
            at: 0,
            inputs,
            masks: Vec::new(),
        }
    }

    /// The layer that is built; there is one wherever a layer's operations are.
    pub(super) fn block(&self) -> &'a Layer<'a> {
        &self.layers.blocks[self.at]
    }

    pub(super) fn build(&mut self) {
        if self.layers.predict {
            return self.predict();
        }
        let embedded = self.embed();
        // Gemma 3n alone has streams.
        let current = self.streams(embedded).unwrap_or_else(|| self.all_layers(embedded));
        self.finish(current);
    }

    fn all_layers(&mut self, mut current: Id) -> Id {
        let last = self.layers.blocks.len().saturating_sub(1);
        for at in 0..self.layers.blocks.len() {
            self.at = at;
            current = self.layer(current, at == last);
        }
        if self.variant.wanted == WantedRows::AfterLastLayer {
            // Prediction layers read all rows, so the engine marks them as an output.
            self.graph.node_mut(current).output = true;
            current = self.wanted_rows(current);
        }
        current
    }

    /// `build_inp_embd`: the host looks up the tokens; the input for ready-made embeddings is reserved as
    /// well.
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
        // Expanding fixes the order of operations, and Gemma's graphs do not expand here (`models/gemma*.cpp
        // @ b10605`).
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
        let norm = if self.variant.ends_with_token_norm { "token_embd_norm" } else { "output_norm" };
        let mut normed = match self.outer(&format!("{norm}.weight")) {
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
        let mut result = normed;
        if let Some(matrix) = self.output_matrix() {
            result = self.graph.multiply(matrix, normed);
            self.graph.node_mut(result).output = true;
        }
        self.graph.expand(result);
        // Pooling reads the embeddings of the last norm beside the logits.
        if let Some(pooling) = self.reserve.pooling {
            self.pool(pooling, normed);
        }
    }

    /// The matrix of the logits, which may be the embedding's.
    fn output_matrix(&mut self) -> Option<Id> {
        let layers = self.layers;
        let tied = || {
            let (embedding, _) = layers.other("token_embd.weight")?;
            // A copy of the embedding lies on the output's device; encoders have no logits.
            layers.model.hyper.cached.then_some((embedding, layers.output))
        };
        let (matrix, place) = layers.other("output.weight").or_else(tied)?;
        Some(self.stored(matrix, place))
    }
}

/// Norms, products with weights, and the weight tensors.
impl Decoder<'_> {
    /// `build_norm`; returns the input itself if the layer has no such weight.
    pub(super) fn norm(&mut self, role: &str, of: Id) -> Id {
        self.norm_weights(role).map_or(of, |weights| self.norm_by(weights, of))
    }

    /// A norm's weight and bias. Falcon-H1 has one without the usual ending.
    pub(super) fn norm_weights(&mut self, role: &str) -> Option<(Id, Option<Id>)> {
        let weight = self.part(role, WEIGHT);
        let weight = weight.or_else(|| self.weight(role))?;
        Some((weight, self.part(role, BIAS)))
    }

    pub(super) fn norm_by(&mut self, (weight, bias): (Id, Option<Id>), of: Id) -> Id {
        // A bias tells `ggml_norm` from `ggml_rms_norm`, except for the models that `variant` names.
        let subtracts_mean = bias.is_some() || self.variant.subtracts_mean;
        if self.quirks.is_lean && !subtracts_mean {
            let normed = self.graph.own_like(of, &[of, weight]);
            self.pin(normed);
            return normed;
        }
        let normed = self.bare_norm(of, subtracts_mean);
        self.pin(normed);
        let scaled = self.graph.in_place(&[normed, weight]);
        self.biased(scaled, bias)
    }

    /// A norm without its weight.
    pub(super) fn bare_norm(&mut self, of: Id, subtracts_mean: bool) -> Id {
        // `ggml_norm` cannot be done in place, `ggml_rms_norm` can (`ggml_op_can_inplace`).
        if subtracts_mean { self.graph.own_like(of, &[of]) } else { self.graph.in_place(&[of]) }
    }

    /// `llama-context.cpp: graph_get_cb @ b10605`: with all layers on cards a norm belongs to its own layer.
    fn pin(&mut self, normed: Id) {
        const FEW_TOKENS: u64 = 32;
        if self.quirks.pins_norms && (self.layers.all_on_cards() || self.tokens < FEW_TOKENS) {
            self.graph.node_mut(normed).pinned = Some(self.block().place);
        }
    }

    /// `build_lora_mm` and its bias, where the layer has such a weight.
    pub(super) fn linear(&mut self, role: &str, input: Id) -> Option<Id> {
        let weight = self.part(role, WEIGHT)?;
        let product = self.graph.multiply(weight, input);
        let bias = self.part(role, BIAS);
        Some(self.biased(product, bias))
    }

    pub(super) fn biased(&mut self, of: Id, bias: Option<Id>) -> Id {
        bias.map_or(of, |bias| self.graph.in_place(&[of, bias]))
    }

    pub(super) fn weight(&mut self, role: &str) -> Option<Id> {
        self.part(role, "")
    }

    /// A weight by the two halves of its role.
    pub(super) fn part(&mut self, role: &str, ending: &str) -> Option<Id> {
        let (tensor, place) = self.block().part(role, ending)?;
        Some(self.stored(tensor, place))
    }

    /// A tensor outside of the layers.
    pub(super) fn outer(&mut self, name: &str) -> Option<Id> {
        let (tensor, place) = self.layers.other(name)?;
        Some(self.stored(tensor, place))
    }

    /// Frequencies of the rotary embedding; every device with a layer has a copy.
    pub(super) fn rope_factors(&mut self, place: TensorDevice) -> Option<Id> {
        // The reserved context is longer than any short factors apply to.
        let names = ["rope_freqs.weight", "rope_factors_long.weight"];
        let (tensor, _) = names.iter().find_map(|name| self.layers.other(name))?;
        Some(self.stored(tensor, place))
    }

    pub(super) fn stored(&mut self, tensor: &Tensor, place: TensorDevice) -> Id {
        // A copy of the weight on another card has the padding of its last row as well.
        let padding = row_padding(tensor.kind, tensor.shape[0]).get();
        let kind = OpKind::Weight(place);
        self.graph.stored(kind, tensor.bytes.get(), padding, tensor.shape)
    }
}
