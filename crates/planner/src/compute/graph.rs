//! A graph of operations as far as memory goes: sizes, sources, views and places, no arithmetic.
//!
//! Mirrors `ggml.c: ggml_build_forward_expand` and the shapes of its operations `@ b10605`. Operations that only
//! look at memory are views; the few kinds below are what allocation and placement tell apart.

use std::num::NonZeroU32;

use crate::layout::TensorDevice;

/// A tensor of the graph, by its number from 1. Small, because a node has room for seven and what is touched for the first time
/// costs a page fault: a graph of all layers of a large model is a megabyte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorId(NonZeroU32);

impl TensorId {
    pub(super) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// Of the last of `count` tensors.
    fn last(count: usize) -> Self {
        let number = u32::try_from(count).ok().and_then(NonZeroU32::new);
        Self(number.expect("a graph has fewer nodes than memory could hold 2^32 of"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    /// A weight; already in memory at its place.
    Weight(TensorDevice),
    /// A tensor of the cache; already in memory at its place.
    Cache(TensorDevice),
    /// A graph input, written by the host.
    Input,
    /// Looks at another tensor's memory and computes nothing.
    View,
    /// Computes, and may write over a source of the same layout (`ggml_op_can_inplace`).
    InPlace,
    /// Like `InPlace`, but its weight is too small to choose a device (rotary embedding).
    Rope,
    /// Computes into memory of its own.
    Own,
    /// Flash attention: like `Own`, and its sinks are too small to choose a device.
    Attention,
    /// Writes into the cache, or into another tensor's memory; a view of it that computes.
    Store,
    /// Gathers rows: never worth moving weights for.
    Gather,
}

impl OpKind {
    pub(super) const fn is_leaf(self) -> bool {
        matches!(self, Self::Weight(_) | Self::Cache(_) | Self::Input)
    }
}

pub(super) const F16: u64 = 2;
pub(super) const F32: u64 = 4;
pub(super) const I32: u64 = 4;
pub(super) const I64: u64 = 8;

/// How a tensor lies in memory; equal layouts can share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLayout {
    pub(super) element: u64,
    pub(super) shape: [u64; 4],
}

/// As many as a scan over states reads.
const SOURCES: usize = 7;

#[derive(Clone, Debug)]
pub(super) struct OpNode {
    pub(super) kind: OpKind,
    pub(super) layout: MemoryLayout,
    /// Bytes of its data.
    pub(super) bytes: u64,
    /// Bytes that its operation, or the padding of its rows, wants behind its data on a card.
    pub(super) scratch: u64,
    pub(super) sources: [Option<TensorId>; SOURCES],
    /// The tensor whose memory it looks at.
    pub(super) root: Option<TensorId>,
    /// Never freed nor written over.
    pub(super) output: bool,
    /// No card has a kernel for it.
    pub(super) host_only: bool,
    /// Where the engine insists that it is computed.
    pub(super) pinned: Option<TensorDevice>,
    /// `get_op_batch_size`: rows that make copying a host weight to a card worth it.
    pub(super) batch: u64,
}

impl OpNode {
    /// What a card adds behind the rows of a quantised tensor, and so behind a copy of it.
    fn padding(&self) -> u64 {
        if self.kind.is_leaf() { self.scratch } else { 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct OpGraph {
    nodes: Vec<OpNode>,
    visited: Vec<bool>,
    /// Operations in the order in which they run.
    pub(super) order: Vec<TensorId>,
    /// Inputs, weights and cache tensors in the order in which they are met.
    pub(super) leaves: Vec<TensorId>,
    /// What [`Self::expand`] has yet to look at, kept for its memory.
    pending: Vec<(TensorId, usize)>,
}

impl OpGraph {
    /// Empty, with room for `count` tensors, which do not move while it is built.
    pub(super) fn clear(&mut self, count: usize) {
        self.nodes.clear();
        self.nodes.reserve(count);
        self.visited.clear();
        self.visited.reserve(count);
        self.order.clear();
        self.leaves.clear();
    }

    pub(super) fn node(&self, id: TensorId) -> &OpNode {
        &self.nodes[id.index()]
    }

    fn node_mut(&mut self, id: TensorId) -> &mut OpNode {
        &mut self.nodes[id.index()]
    }

    pub(super) fn nodes(&self) -> &[OpNode] {
        &self.nodes
    }

    pub(super) fn shape(&self, id: TensorId) -> [u64; 4] {
        self.node(id).layout.shape
    }

    pub(super) fn push(&mut self, node: OpNode) -> TensorId {
        self.nodes.push(node);
        self.visited.push(false);
        TensorId::last(self.nodes.len())
    }

    fn new_node(&mut self, kind: OpKind, element: u64, shape: [u64; 4], sources: &[TensorId]) -> TensorId {
        let mut held = [None; SOURCES];
        for (slot, source) in held.iter_mut().zip(sources) {
            *slot = Some(*source);
        }
        let bytes = shape.iter().fold(element, |bytes, &n| bytes.saturating_mul(n));
        let layout = MemoryLayout { element, shape };
        self.push(OpNode {
            kind,
            layout,
            bytes,
            scratch: 0,
            sources: held,
            root: None,
            output: false,
            host_only: false,
            pinned: None,
            batch: shape[1].saturating_mul(shape[2]).saturating_mul(shape[3]),
        })
    }

    /// A weight or a tensor of the cache, of any element type.
    pub(super) fn stored(&mut self, kind: OpKind, bytes: u64, padding: u64, shape: [u64; 4]) -> TensorId {
        let id = self.new_node(kind, 0, shape, &[]);
        self.node_mut(id).bytes = bytes;
        self.node_mut(id).scratch = padding;
        id
    }

    /// A tensor of the cache of F32: one row for each state that is kept.
    pub(super) fn states(&mut self, place: TensorDevice, row: u64, rows: u64) -> TensorId {
        self.new_node(OpKind::Cache(place), F32, [row, rows, 1, 1], &[])
    }

    pub(super) fn input(&mut self, element: u64, shape: [u64; 4]) -> TensorId {
        self.new_node(OpKind::Input, element, shape, &[])
    }

    /// An operation whose result has the layout of its first source.
    pub(super) fn in_place(&mut self, sources: &[TensorId]) -> TensorId {
        let like = self.node(sources[0]).layout;
        self.new_node(OpKind::InPlace, like.element, like.shape, sources)
    }

    pub(super) fn pin(&mut self, id: TensorId, place: TensorDevice) {
        self.node_mut(id).pinned = Some(place);
    }

    pub(super) fn keep_on_host(&mut self, id: TensorId) {
        self.node_mut(id).host_only = true;
    }

    pub(super) fn rope(&mut self, sources: &[TensorId]) -> TensorId {
        let like = self.node(sources[0]).layout;
        let id = self.new_node(OpKind::Rope, like.element, like.shape, sources);
        self.node_mut(id).batch = like.shape[2];
        id
    }

    pub(super) fn own(&mut self, element: u64, shape: [u64; 4], sources: &[TensorId]) -> TensorId {
        self.new_node(OpKind::Own, element, shape, sources)
    }

    pub(super) fn gather(&mut self, shape: [u64; 4], table: TensorId, rows: TensorId) -> TensorId {
        let id = self.new_node(OpKind::Gather, F32, shape, &[table, rows]);
        self.node_mut(id).batch = 0;
        id
    }

    /// `ggml_mul_mat`: F32 of the weight's rows by the activations' columns.
    pub(super) fn multiply(&mut self, weight: TensorId, activations: TensorId) -> TensorId {
        let rows = self.shape(weight)[1];
        let [_, columns, second, third] = self.shape(activations);
        let id = self.new_node(
            OpKind::Own,
            F32,
            [rows, columns, second, third],
            &[weight, activations],
        );
        self.node_mut(id).batch = columns;
        id
    }

    /// `ggml_mul_mat_id`: one product for each of the `used` experts of a token.
    pub(super) fn multiply_experts(
        &mut self,
        weight: TensorId,
        activations: TensorId,
        chosen: TensorId,
    ) -> TensorId {
        let rows = self.shape(weight)[1];
        let [used, tokens, ..] = self.shape(chosen);
        let id = self.new_node(
            OpKind::Own,
            F32,
            [rows, used, tokens, 1],
            &[weight, activations, chosen],
        );
        self.node_mut(id).batch = tokens;
        id
    }

    /// Says how many rows make copying a host weight for this worth it, where the shape does not.
    pub(super) fn count_batch(&mut self, id: TensorId, rows: u64) {
        self.node_mut(id).batch = rows;
    }

    /// ik_llama.cpp's `ggml_moe_up_gate`: two products for each expert of a token, of which one result is left.
    pub(super) fn multiply_both(
        &mut self,
        up: TensorId,
        gate: TensorId,
        activations: TensorId,
        chosen: TensorId,
    ) -> TensorId {
        let id = self.multiply_experts(up, activations, chosen);
        self.node_mut(id).sources[3] = Some(gate);
        id
    }

    pub(super) fn attention(&mut self, shape: [u64; 4], scratch: u64, sources: &[TensorId]) -> TensorId {
        let id = self.new_node(OpKind::Attention, F32, shape, sources);
        self.node_mut(id).scratch = scratch;
        id
    }

    /// The same memory in another shape, or a part of it.
    pub(super) fn view(&mut self, of: TensorId, shape: [u64; 4]) -> TensorId {
        let &OpNode {
            layout, bytes, root, ..
        } = self.node(of);
        let MemoryLayout { element, shape: all } = layout;
        let root = root.unwrap_or(of);
        let id = self.new_node(OpKind::View, element, shape, &[of]);
        if count(&shape) == count(&all) {
            self.node_mut(id).bytes = bytes;
        }
        self.node_mut(id).root = Some(root);
        id
    }

    /// A part of each row. What lies between belongs to the next, and so to a copy of it, too (`ggml_nbytes`).
    pub(super) fn slice(&mut self, of: TensorId, shape: [u64; 4]) -> TensorId {
        let MemoryLayout { element, shape: all } = self.node(of).layout;
        let rows = count(&all[1..]).max(1);
        let before = (rows - 1).saturating_mul(all[0]);
        let id = self.view(of, shape);
        self.node_mut(id).bytes = before
            .saturating_add(count(&shape) / rows)
            .saturating_mul(element);
        id
    }

    /// A view of the cache whose bytes are not those of its shape times a plain element.
    pub(super) fn cache_view(&mut self, of: TensorId, shape: [u64; 4], bytes: u64) -> TensorId {
        let id = self.view(of, shape);
        self.node_mut(id).bytes = bytes;
        id
    }

    pub(super) fn store(&mut self, values: TensorId, rows: TensorId, cache: TensorId) -> TensorId {
        self.overwrite(&[values, rows, cache], cache)
    }

    /// An operation whose result is written into the memory of `target`.
    pub(super) fn overwrite(&mut self, sources: &[TensorId], target: TensorId) -> TensorId {
        let &OpNode {
            layout: like, root, ..
        } = self.node(target);
        let root = root.unwrap_or(target);
        let id = self.new_node(OpKind::Store, like.element, like.shape, sources);
        self.node_mut(id).root = Some(root);
        id
    }

    /// `ggml_cpy`.
    pub(super) fn copy_into(&mut self, of: TensorId, target: TensorId) -> TensorId {
        self.overwrite(&[of, target], target)
    }

    /// A tensor of the same size for a copy of `source`.
    pub(super) fn duplicate(&mut self, source: TensorId) -> TensorId {
        let node = self.node(source);
        let (layout, bytes, padding) = (node.layout, node.bytes, node.padding());
        let id = self.new_node(OpKind::Own, layout.element, layout.shape, &[]);
        self.node_mut(id).bytes = bytes;
        self.node_mut(id).scratch = padding;
        id
    }

    pub(super) fn replace_source(&mut self, id: TensorId, slot: usize, source: TensorId) {
        self.node_mut(id).sources[slot] = Some(source);
    }

    pub(super) fn mark_output(&mut self, id: TensorId) {
        self.node_mut(id).output = true;
    }

    /// `ggml_build_forward_expand`: everything `id` needs, sources first, then `id`.
    pub(super) fn expand(&mut self, id: TensorId) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.push((id, 0));
        while let Some((id, next)) = pending.pop() {
            if next == 0 && std::mem::replace(&mut self.visited[id.index()], true) {
                continue;
            }
            let rest = self.node(id).sources.iter().enumerate().skip(next);
            let unvisited = rest
                .filter_map(|(i, source)| source.map(|source| (i, source)))
                .find(|(_, source)| !self.visited[source.index()]);
            if let Some((i, source)) = unvisited {
                pending.push((id, i + 1));
                pending.push((source, 0));
            } else if self.node(id).kind.is_leaf() {
                self.leaves.push(id);
            } else {
                self.order.push(id);
            }
        }
        self.pending = pending;
    }
}

fn count(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |all: u64, &n| all.saturating_mul(n))
}
