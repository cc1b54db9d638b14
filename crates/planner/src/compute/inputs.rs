//! Appends the input tensors to a planned compute graph: positions, cache rows, masks, recurrent states to
//! copy, rows to output.
//!
//! The code mirrors `llama-graph.cpp: build_inp_pos, build_inp_out_ids, build_attn_inp_kv_impl,
//! build_attn_inp_no_cache, build_rs_inp_impl @ b10605`.

use plimsoll_model::TensorType;

use crate::compute::{F32, I32, I64, Id, ModelLayers, OpGraph};
use crate::{Reserve, kv};

/// Input tensors of one kind of KV cache.
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
    /// Rows of the stored states from which the sequences of a batch continue.
    pub(super) states_of_batch: Id,
    /// States of sequences that are not in the batch; the reserved graph has none.
    pub(super) states_alongside: Id,
    pub(super) outputs: Id,
}

impl ModelLayers<'_> {
    /// Builds the inputs of a graph, with so many positions of a token and a mask of so large elements.
    pub(super) fn inputs(&self, graph: &mut OpGraph, reserve: &Reserve, positions: u64, mask: u64) -> Inputs {
        let positions = graph.input(I32, [positions.saturating_mul(reserve.tokens), 1, 1, 1]);
        let full = self.cache_inputs(graph, reserve, mask, false);
        // Without sliding layers one set of inputs serves all.
        let sliding = match self.model.hyper.sliding {
            Some(_) => self.cache_inputs(graph, reserve, mask, true),
            None => full,
        };
        // One input holds the rows of the batch's states and, after them, of all others.
        let states = graph.input(I32, [reserve.sequences, 1, 1, 1]);
        Inputs {
            positions,
            full,
            sliding,
            states_of_batch: graph.view(states, [reserve.sequences, 1, 1, 1]),
            states_alongside: graph.view(states, [0, 1, 1, 1]),
            outputs: graph.input(I32, [reserve.outputs, 1, 1, 1]),
        }
    }

    /// `build_attn_inp_kv_impl`, `build_attn_inp_no_cache`.
    fn cache_inputs(
        &self,
        graph: &mut OpGraph,
        reserve: &Reserve,
        element: u64,
        slides: bool,
    ) -> CacheInputs {
        let (hyper, cache, tokens) = (&self.model.hyper, self.cache, reserve.tokens);
        // The layers of one kind share their inputs, so the first of them gives the sizes.
        let layer = (0..hyper.layers)
            .find(|&layer| hyper.slides(layer) == slides && hyper.attends(layer))
            .unwrap_or(0);
        let heads = u64::from(hyper.heads_kv.at(layer)).max(1);
        let (key, value) = (hyper.key_row(layer) / heads, hyper.value_row(layer) / heads);
        let mask = if hyper.cached {
            let cells = kv::cells(hyper, layer, reserve);
            [cells, tokens / reserve.streams.max(1), 1, reserve.streams]
        } else {
            [tokens, tokens, 1, 1]
        };
        // A transposed V is scattered element by element, so every element has an index of its own.
        let each = if cache.transposed { kv::widest_value(hyper).max(1) } else { 1 };
        let values = tokens.saturating_mul(each);
        CacheInputs {
            key_rows: graph.input(I64, [tokens, 1, 1, 1]),
            value_rows: graph.input(I64, [values, 1, 1, 1]),
            mask: graph.input(element, mask),
            // Latent vectors are cached as they are (`build_attn` of `llm_graph_input_attn_k`).
            key_rotation: rotation(graph, cache.key, if hyper.mla.is_some() { 0 } else { key }, true),
            value_rotation: rotation(graph, cache.value, value, false),
        }
    }
}

/// `llama-kv-cache.cpp: build_input_k_rot, build_input_v_rot @ b10605`: quantised caches are rotated, K by
/// the largest power of two times 64 that divides a head, V by 64.
fn rotation(graph: &mut OpGraph, kind: TensorType, head: u64, largest: bool) -> Option<Id> {
    const SMALLEST: u64 = 64;
    if !kind.quantised() || head == 0 || !head.is_multiple_of(SMALLEST) {
        return None;
    }
    let side = if largest { 1 << head.trailing_zeros() } else { SMALLEST };
    Some(graph.input(F32, [side, side, 1, 1]))
}
