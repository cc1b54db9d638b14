//! Represents a compute graph without data: the tensors that its operations create, with sizes, sources and
//! devices.
//!
//! The code mirrors `ggml.c: ggml_build_forward_expand` and the shapes of its operations `@ b10605`.

use std::num::NonZeroU32;

use crate::TensorDevice;

/// A tensor of the graph, by its number from 1. It is small because a node holds seven of them and the graph
/// of a large model takes a megabyte, in which the first access to each page costs a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(NonZeroU32);

impl Id {
    pub(super) fn index(self) -> usize {
        // No target has a `usize` below 32 bits, so the number never changes here.
        usize::try_from(self.0.get() - 1).unwrap_or(usize::MAX)
    }

    /// The last of `count` tensors.
    fn last(count: usize) -> Self {
        let number = u32::try_from(count).ok().and_then(NonZeroU32::new);
        Self(number.expect("a graph has fewer nodes than memory could hold 2^32 of"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    /// A weight; already in memory at its device.
    Weight(TensorDevice),
    /// A tensor of the cache; already in memory at its device.
    Cache(TensorDevice),
    /// A graph input, written by the host.
    Input,
    /// Shows another tensor's memory and computes nothing.
    View,
    /// Computes, and may reuse the memory of a source with the same layout (`ggml_op_can_inplace`).
    InPlace,
    /// Like `InPlace`, but its weight is too small to choose a device (rotary embedding).
    Rope,
    /// Computes into newly allocated memory.
    Own,
    /// Flash attention: like `Own`, and its sinks are too small to choose a device.
    Attention,
    /// Writes into the cache, or into another tensor's memory: a view that computes.
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

/// Element size and shape; tensors of equal layout can share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLayout {
    pub(super) element: u64,
    pub(super) shape: [u64; 4],
}

/// Maximum number of sources: those of a scan over states.
const SOURCES: usize = 7;

#[derive(Clone, Debug)]
pub(super) struct OpNode {
    pub(super) kind: OpKind,
    pub(super) layout: MemoryLayout,
    /// Bytes of its data.
    pub(super) bytes: u64,
    /// Bytes behind its data on a card: working memory of the operation, or padding of quantised rows.
    pub(super) scratch: u64,
    pub(super) sources: [Option<Id>; SOURCES],
    /// The tensor whose memory it views.
    pub(super) root: Option<Id>,
    /// Never freed and never reused.
    pub(super) output: bool,
    /// No card has a kernel for it.
    pub(super) host_only: bool,
    /// A device that the engine insists on.
    pub(super) pinned: Option<TensorDevice>,
    /// `get_op_batch_size`: rows that decide whether a host weight is worth copying to a card.
    pub(super) batch: u64,
}

#[derive(Debug, Default)]
pub(super) struct OpGraph {
    nodes: Vec<OpNode>,
    visited: Vec<bool>,
    /// Operations in the order in which they run.
    pub(super) order: Vec<Id>,
    /// Inputs, weights and cache tensors in the order in which they are met.
    pub(super) leaves: Vec<Id>,
    /// Tensors that stay until another is computed, though nothing reads them.
    kept: Vec<(Id, Vec<Id>)>,
    /// Stack of [`Self::expand`], kept for its memory.
    pending: Vec<(Id, usize)>,
}

impl OpGraph {
    /// Empties the graph and makes room for `count` tensors, which then do not move while it is built.
    pub(super) fn clear(&mut self, count: usize) {
        self.nodes.clear();
        self.nodes.reserve(count);
        self.visited.clear();
        self.visited.reserve(count);
        self.order.clear();
        self.leaves.clear();
        self.kept.clear();
    }

    /// Keeps `tensors` until `until` is computed on a card.
    pub(super) fn keep(&mut self, tensors: impl IntoIterator<Item = Id>, until: Id) {
        self.kept.push((until, tensors.into_iter().collect()));
    }

    /// The operations and inputs made from `first` to `last`.
    pub(super) fn between(&self, first: Id, last: Id) -> Vec<Id> {
        let all = (first.index()..=last.index()).map(|at| Id::last(at + 1));
        all.filter(|&id| !matches!(self.node(id).kind, OpKind::Weight(_) | OpKind::Cache(_))).collect()
    }

    pub(super) fn kept_until(&self, id: Id) -> impl Iterator<Item = Id> {
        let kept = self.kept.binary_search_by_key(&id, |(until, _)| *until);
        kept.ok().into_iter().flat_map(|at| self.kept[at].1.iter().copied())
    }

    pub(super) fn node(&self, id: Id) -> &OpNode {
        &self.nodes[id.index()]
    }

    pub(super) fn node_mut(&mut self, id: Id) -> &mut OpNode {
        &mut self.nodes[id.index()]
    }

    pub(super) fn nodes(&self) -> &[OpNode] {
        &self.nodes
    }

    pub(super) fn shape(&self, id: Id) -> [u64; 4] {
        self.node(id).layout.shape
    }

    fn push(&mut self, kind: OpKind, element: u64, shape: [u64; 4], sources: &[Id]) -> Id {
        // Sources beyond the array would be a bug of a builder: no operation reads more.
        let mut occupied = [None; SOURCES];
        for (slot, source) in occupied.iter_mut().zip(sources) {
            *slot = Some(*source);
        }
        self.nodes.push(OpNode {
            kind,
            layout: MemoryLayout { element, shape },
            // Sizes saturate, because a hostile header may state any shape.
            bytes: elements(&shape).saturating_mul(element),
            scratch: 0,
            sources: occupied,
            root: None,
            output: false,
            host_only: false,
            pinned: None,
            batch: elements(&shape[1..]),
        });
        self.visited.push(false);
        Id::last(self.nodes.len())
    }

    /// A weight or a tensor of the cache, of any element type.
    pub(super) fn stored(&mut self, kind: OpKind, bytes: u64, padding: u64, shape: [u64; 4]) -> Id {
        // Blocks of a quantised type have no size for one element; only views of the tensor would ask for it.
        let id = self.push(kind, 0, shape, &[]);
        let node = self.node_mut(id);
        (node.bytes, node.scratch) = (bytes, padding);
        id
    }

    /// An F32 tensor of the cache: one row for each state that is kept.
    pub(super) fn states(&mut self, place: TensorDevice, row: u64, rows: u64) -> Id {
        self.push(OpKind::Cache(place), F32, [row, rows, 1, 1], &[])
    }

    pub(super) fn input(&mut self, element: u64, shape: [u64; 4]) -> Id {
        self.push(OpKind::Input, element, shape, &[])
    }

    /// An operation whose result has the layout of its first source and may reuse its memory.
    pub(super) fn in_place(&mut self, sources: &[Id]) -> Id {
        let like = self.node(sources[0]).layout;
        self.push(OpKind::InPlace, like.element, like.shape, sources)
    }

    /// Such operations one after the other, each with these operands beside the result of the one before.
    pub(super) fn chain(&mut self, of: Id, alongside: &[&[Id]]) -> Id {
        alongside.iter().fold(of, |of, alongside| self.in_place(&[&[of], *alongside].concat()))
    }

    pub(super) fn rope(&mut self, sources: &[Id]) -> Id {
        let like = self.node(sources[0]).layout;
        let id = self.push(OpKind::Rope, like.element, like.shape, sources);
        // `get_op_batch_size`: of a rotary embedding the tokens are the third dimension.
        self.node_mut(id).batch = like.shape[2];
        id
    }

    /// An operation with an F32 result in newly allocated memory.
    pub(super) fn own(&mut self, shape: [u64; 4], sources: &[Id]) -> Id {
        self.own_of(F32, shape, sources)
    }

    pub(super) fn own_of(&mut self, element: u64, shape: [u64; 4], sources: &[Id]) -> Id {
        self.push(OpKind::Own, element, shape, sources)
    }

    /// An operation with an F32 result of the shape of `of`, in newly allocated memory.
    pub(super) fn own_like(&mut self, of: Id, sources: &[Id]) -> Id {
        self.own(self.shape(of), sources)
    }

    pub(super) fn gather(&mut self, shape: [u64; 4], table: Id, rows: Id) -> Id {
        let id = self.push(OpKind::Gather, F32, shape, &[table, rows]);
        self.node_mut(id).batch = 0;
        id
    }

    /// `ggml_mul_mat`: F32 of the weight's rows by the activations' columns.
    pub(super) fn multiply(&mut self, weight: Id, activations: Id) -> Id {
        // `ne[1]` of both: the weight is stored by rows.
        let rows = self.shape(weight)[1];
        let [_, columns, second, third] = self.shape(activations);
        let id = self.own([rows, columns, second, third], &[weight, activations]);
        self.node_mut(id).batch = columns;
        id
    }

    /// `ggml_mul_mat_id`: one product for each of the `used` experts of a token.
    pub(super) fn multiply_experts(&mut self, weight: Id, activations: Id, chosen: Id) -> Id {
        let rows = self.shape(weight)[1];
        let [used, tokens, ..] = self.shape(chosen);
        let id = self.own([rows, used, tokens, 1], &[weight, activations, chosen]);
        self.node_mut(id).batch = tokens;
        id
    }

    pub(super) fn attention(&mut self, shape: [u64; 4], scratch: u64, sources: &[Id]) -> Id {
        let id = self.push(OpKind::Attention, F32, shape, sources);
        self.node_mut(id).scratch = scratch;
        id
    }

    /// A view of the same memory in another shape, or of a part of it.
    pub(super) fn view(&mut self, of: Id, shape: [u64; 4]) -> Id {
        let &OpNode { layout, bytes, root, .. } = self.node(of);
        let id = self.push(OpKind::View, layout.element, shape, &[of]);
        // A view of everything has the bytes of its source, which its element type may not tell.
        if elements(&shape) == elements(&layout.shape) {
            self.node_mut(id).bytes = bytes;
        }
        // Views of views share one root, so that the allocator counts all of them in one place.
        self.node_mut(id).root = Some(root.unwrap_or(of));
        id
    }

    /// `ggml_cont` of a permuted tensor: a copy in another order of its dimensions.
    pub(super) fn turned(&mut self, of: Id, shape: [u64; 4]) -> Id {
        let view = self.view(of, shape);
        self.own(shape, &[view])
    }

    /// A part of each row. The bytes between two parts count, because a copy of it has them too
    /// (`ggml_nbytes`).
    pub(super) fn slice(&mut self, of: Id, shape: [u64; 4]) -> Id {
        let MemoryLayout { element, shape: all } = self.node(of).layout;
        let rows = elements(&all[1..]).max(1);
        let before = (rows - 1).saturating_mul(all[0]);
        let all = before.saturating_add(elements(&shape) / rows);
        self.cache_view(of, shape, all.saturating_mul(element))
    }

    /// A view whose bytes are not those of its shape times a plain element.
    pub(super) fn cache_view(&mut self, of: Id, shape: [u64; 4], bytes: u64) -> Id {
        let id = self.view(of, shape);
        self.node_mut(id).bytes = bytes;
        id
    }

    /// An operation whose result is written into the memory of `target`.
    pub(super) fn overwrite(&mut self, sources: &[Id], target: Id) -> Id {
        let &OpNode { layout, root, .. } = self.node(target);
        let id = self.push(OpKind::Store, layout.element, layout.shape, sources);
        self.node_mut(id).root = Some(root.unwrap_or(target));
        id
    }

    /// The same, added to the graph: `ggml_set_rows`, `ggml_cpy`.
    pub(super) fn write(&mut self, sources: &[Id], target: Id) {
        let written = self.overwrite(sources, target);
        self.expand(written);
    }

    /// A tensor of the same size for a copy of `source`.
    pub(super) fn duplicate(&mut self, source: Id) -> Id {
        let &OpNode { kind, layout, bytes, scratch, .. } = self.node(source);
        let id = self.own_of(layout.element, layout.shape, &[]);
        let copy = self.node_mut(id);
        copy.bytes = bytes;
        // The padding of a quantised weight is copied with it; the working memory of an operation is not.
        copy.scratch = if kind.is_leaf() { scratch } else { 0 };
        id
    }

    /// `ggml_build_forward_expand`: everything `id` needs, sources first, then `id`.
    pub(super) fn expand(&mut self, id: Id) {
        // A stack of its own, because recursion over a hundred layers would be deep.
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

pub(super) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |all: u64, &n| all.saturating_mul(n))
}
