//! A whole graph: embedding, layers, output.
//!
//! Mirrors the graphs of the llama family (`models/llama.cpp, qwen2.cpp, qwen3.cpp, qwen3moe.cpp, gemma3.cpp,
//! openai-moe.cpp, deepseek2.cpp @ b10605`), which differ by the tensors they have. What a layer does is read off
//! its tensors, so that a model of an unknown name with known parts is estimated well.

use super::graph::{F16, F32, Graph, I32, I64, Id, Kind};
use super::sketch::{Block, Sketch};
use crate::model::{Tensor, TensorType};
use crate::plan::kv::{self, CacheKind};
use crate::plan::layout::Place;
use crate::plan::reserve::Reserve;
use crate::plan::weights::row_padding;

/// Inputs of one kind of cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheInputs {
    pub(super) key_rows: Id,
    pub(super) value_rows: Id,
    pub(super) mask: Id,
    /// Hadamard rotations of a quantised cache.
    pub(super) key_rotation: Option<Id>,
    pub(super) value_rotation: Option<Id>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs {
    pub(super) positions: Id,
    pub(super) full: CacheInputs,
    pub(super) sliding: CacheInputs,
    outputs: Id,
}

/// What builds of the engine do differently in one graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Room for f16 copies of the cache behind the result of attention.
    pub(super) copies_cache: bool,
    /// Ready-made embeddings may stand among tokens in one batch, for which a second input is kept.
    pub(super) mixes_embeddings: bool,
    /// Gate and up of the experts are one operation, with one result (ik_llama.cpp).
    pub(super) fuses_experts: bool,
    /// What each expert has of a batch on average, not the batch, makes copying experts to a card worth it (ik_llama.cpp).
    pub(super) shares_batch: bool,
}

pub(super) struct Decoder<'a> {
    pub(super) graph: Graph,
    pub(super) sketch: &'a Sketch<'a>,
    pub(super) reserve: &'a Reserve,
    pub(super) cache: CacheKind,
    pub(super) flash: bool,
    pub(super) habits: Habits,
    pub(super) tokens: u64,
    pub(super) inputs: Inputs,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        sketch: &'a Sketch<'a>,
        reserve: &'a Reserve,
        cache: CacheKind,
        flash: bool,
        habits: Habits,
    ) -> Self {
        let mut graph = Graph::default();
        let inputs = inputs(&mut graph, sketch, reserve, cache, flash);
        Self {
            graph,
            sketch,
            reserve,
            cache,
            flash,
            habits,
            tokens: reserve.tokens,
            inputs,
        }
    }

    pub(super) fn build(mut self) -> Graph {
        let mut current = self.embed();
        let last = self.sketch.blocks.len().saturating_sub(1);
        // gpt-oss gathers the wanted rows after its last layer, all others within it
        let early = self.sketch.model.architecture != "gpt-oss";
        for (i, block) in self.sketch.blocks.iter().enumerate() {
            current = self.layer(block, current, early && i == last);
        }
        if !early {
            self.graph.mark_output(current);
            current = self.wanted_rows(current);
        }
        self.finish(current);
        self.graph
    }

    /// `build_inp_embd`: the host looks the tokens up; the place for ready-made embeddings is reserved as well.
    fn embed(&mut self) -> Id {
        let width = u64::from(self.sketch.model.hyper.embedding);
        let tokens = self.graph.input(I32, [self.tokens, 1, 1, 1]);
        let ready = self.graph.input(F32, [width, self.tokens, 1, 1]);
        let embedded = match self.sketch.other("token_embd.weight") {
            Some((table, place)) => {
                let table = self.stored(table, place);
                self.graph.gather([width, self.tokens, 1, 1], table, tokens)
            }
            None => ready,
        };
        self.graph.expand(embedded);
        self.graph.expand(ready);
        if self.habits.mixes_embeddings {
            let second = self.graph.input(F32, [width, self.tokens, 1, 1]);
            let which = self.graph.input(I64, [self.tokens, 1, 1, 1]);
            self.graph.expand(second);
            self.graph.expand(which);
        }
        if self.sketch.model.architecture.starts_with("gemma") {
            return self.graph.in_place(&[embedded]);
        }
        embedded
    }

    fn layer(&mut self, block: &Block<'_>, input: Id, is_last: bool) -> Id {
        let normed = self.norm(block, "attn_norm", input);
        let mut current = self.attention(block, normed);
        let mut residual = input;
        if is_last {
            current = self.wanted_rows(current);
            residual = self.wanted_rows(residual);
        }
        let has_own_norm = block.has("ffn_norm.weight");
        if has_own_norm {
            current = self.norm(block, "post_attention_norm", current);
        }
        let residual = self.graph.in_place(&[current, residual]);
        let norm = if has_own_norm {
            "ffn_norm"
        } else {
            "post_attention_norm"
        };
        let normed = self.norm(block, norm, residual);
        let current = self.feed_forward(block, normed);
        let current = self.norm(block, "post_ffw_norm", current);
        self.graph.in_place(&[current, residual])
    }

    fn wanted_rows(&mut self, of: Id) -> Id {
        let width = self.graph.shape(of)[0];
        self.graph
            .gather([width, self.reserve.outputs, 1, 1], of, self.inputs.outputs)
    }

    fn finish(&mut self, current: Id) {
        let normed = match self.sketch.other("output_norm.weight") {
            Some((weight, place)) => {
                let weight = self.stored(weight, place);
                let normed = self.graph.in_place(&[current]);
                self.graph.in_place(&[normed, weight])
            }
            None => current,
        };
        self.graph.mark_output(normed);
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
    }

    /// `build_norm`; nothing where the layer has no such weight. Norms with a bias subtract the mean as well, which
    /// cannot be done in place.
    pub(super) fn norm(&mut self, block: &Block<'_>, role: &str, of: Id) -> Id {
        let Some(weight) = self.weight(block, &format!("{role}.weight")) else {
            return of;
        };
        let Some(bias) = self.weight(block, &format!("{role}.bias")) else {
            let normed = self.graph.in_place(&[of]);
            self.pin(normed, block);
            return self.graph.in_place(&[normed, weight]);
        };
        let shape = self.graph.shape(of);
        let normed = self.graph.own(F32, shape, &[of]);
        self.pin(normed, block);
        let scaled = self.graph.in_place(&[normed, weight]);
        self.graph.in_place(&[scaled, bias])
    }

    /// `llama-context.cpp: graph_get_cb @ b10605`: with all layers on cards a norm belongs to its layer, not to the one
    /// before, so that one tensor less crosses from card to card.
    fn pin(&mut self, normed: Id, block: &Block<'_>) {
        if self.sketch.all_on_cards() {
            self.graph.pin(normed, block.place);
        }
    }

    /// `build_lora_mm` and its bias, where the layer has such a weight.
    pub(super) fn linear(&mut self, block: &Block<'_>, role: &str, input: Id) -> Option<Id> {
        let weight = self.weight(block, &format!("{role}.weight"))?;
        let product = self.graph.multiply(weight, input);
        Some(match self.weight(block, &format!("{role}.bias")) {
            Some(bias) => self.graph.in_place(&[product, bias]),
            None => product,
        })
    }

    pub(super) fn weight(&mut self, block: &Block<'_>, role: &str) -> Option<Id> {
        block.get(role).map(|(tensor, place)| self.stored(tensor, place))
    }

    /// Frequencies of the rotary embedding, of which every device with a layer has its own.
    pub(super) fn rope_factors(&mut self, place: Place) -> Option<Id> {
        let names = ["rope_freqs.weight", "rope_factors_long.weight"];
        let (tensor, _) = names.iter().find_map(|name| self.sketch.other(name))?;
        Some(self.stored(tensor, place))
    }

    fn stored(&mut self, tensor: &Tensor, place: Place) -> Id {
        let padding = row_padding(tensor.kind, tensor.shape[0]).get();
        self.graph
            .stored(Kind::Weight(place), tensor.bytes.get(), padding, tensor.shape)
    }
}

fn inputs(
    graph: &mut Graph,
    sketch: &Sketch<'_>,
    reserve: &Reserve,
    cache: CacheKind,
    flash: bool,
) -> Inputs {
    let positions = graph.input(I32, [reserve.tokens, 1, 1, 1]);
    let full = cache_inputs(graph, sketch, reserve, cache, flash, false);
    let sliding = match sketch.model.hyper.sliding {
        Some(_) => cache_inputs(graph, sketch, reserve, cache, flash, true),
        None => full,
    };
    Inputs {
        positions,
        full,
        sliding,
        outputs: graph.input(I32, [reserve.outputs, 1, 1, 1]),
    }
}

/// `build_attn_inp_kv_impl`, `build_attn_inp_no_cache`.
fn cache_inputs(
    graph: &mut Graph,
    sketch: &Sketch<'_>,
    reserve: &Reserve,
    cache: CacheKind,
    flash: bool,
    slides: bool,
) -> CacheInputs {
    let hyper = &sketch.model.hyper;
    let tokens = reserve.tokens;
    let element = if flash { F16 } else { F32 };
    let layer = (0..hyper.layers)
        .find(|&layer| hyper.slides(layer) == slides)
        .unwrap_or(0);
    let mask = if hyper.cached {
        let cells = kv::cells(hyper, layer, reserve);
        [cells, tokens / reserve.streams.max(1), 1, reserve.streams]
    } else {
        [tokens, tokens, 1, 1]
    };
    let widest = (0..hyper.layers)
        .map(|layer| hyper.value_row(layer))
        .max()
        .unwrap_or(0);
    let values = if cache.transposed {
        tokens.saturating_mul(widest.max(1))
    } else {
        tokens
    };
    CacheInputs {
        key_rows: graph.input(I64, [tokens, 1, 1, 1]),
        value_rows: graph.input(I64, [values, 1, 1, 1]),
        mask: graph.input(element, mask),
        key_rotation: rotation(
            graph,
            cache.key,
            head_length(sketch, layer, hyper.key_row(layer)),
            true,
        ),
        value_rotation: rotation(
            graph,
            cache.value,
            head_length(sketch, layer, hyper.value_row(layer)),
            false,
        ),
    }
}

fn head_length(sketch: &Sketch<'_>, layer: u32, row: u64) -> u64 {
    row / u64::from(sketch.model.hyper.heads_kv.at(layer)).max(1)
}

/// `llama-kv-cache.cpp: build_input_k_rot, build_input_v_rot @ b10605`: quantised caches are rotated, K by the
/// largest power of two times 64 that divides a head, V by 64.
fn rotation(graph: &mut Graph, kind: TensorType, head: u64, largest: bool) -> Option<Id> {
    const SMALLEST: u64 = 64;
    if !kind.quantised() || head == 0 || !head.is_multiple_of(SMALLEST) {
        return None;
    }
    let mut side = SMALLEST;
    while largest && head.is_multiple_of(side * 2) {
        side *= 2;
    }
    Some(graph.input(F32, [side, side, 1, 1]))
}
