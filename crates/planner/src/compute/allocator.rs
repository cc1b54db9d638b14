//! How large the buffers become: the engine's graph allocator, without memory.
//!
//! Mirrors `ggml-alloc.c: ggml_dyn_tallocr_alloc, ggml_dyn_tallocr_free_bytes, ggml_gallocr_alloc_graph_impl
//! @ b10605`: best fit among free blocks, results written over dying sources of the same layout, freed at their
//! last use. The order of operations decides the peak, so it is not a sum that one could write down.

use super::graph::{OpGraph, OpKind, TensorId};
use crate::layout::TensorDevice;
use crate::weights::{CARD_ALIGNMENT, HOST_ALIGNMENT};

/// Free memory of one buffer, by offset; the last block has no end.
#[derive(Debug)]
struct Heap {
    alignment: u64,
    free: Vec<FreeBlock>,
    peak: u64,
}

#[derive(Clone, Copy, Debug)]
struct FreeBlock {
    offset: u64,
    size: u64,
}

impl FreeBlock {
    const fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

const ENDLESS: u64 = u64::MAX / 2;

impl Heap {
    fn new(alignment: u64) -> Self {
        Self {
            alignment,
            free: vec![FreeBlock {
                offset: 0,
                size: ENDLESS,
            }],
            peak: 0,
        }
    }

    fn aligned(&self, size: u64) -> u64 {
        size.min(ENDLESS / 2).next_multiple_of(self.alignment)
    }

    /// The smallest free block that holds `size`, the last of equals; the endless one only where no other does.
    fn allocate(&mut self, size: u64) -> u64 {
        let size = self.aligned(size);
        let last = self.free.len() - 1;
        let fitting = self.free[..last]
            .iter()
            .enumerate()
            .filter(|(_, block)| block.size >= size);
        let best = fitting.fold(None, |best: Option<(usize, u64)>, (i, block)| match best {
            Some((_, smallest)) if block.size > smallest => best,
            _ => Some((i, block.size)),
        });
        let at = best.map_or(last, |(i, _)| i);
        let block = &mut self.free[at];
        let offset = block.offset;
        block.offset = offset.saturating_add(size);
        block.size = block.size.saturating_sub(size);
        if block.size == 0 && at != last {
            self.free.remove(at);
        }
        self.peak = self.peak.max(offset.saturating_add(size));
        offset
    }

    /// Joins the first block that it touches, and that one's neighbour on the other side. Tensors without elements leave blocks of
    /// no size amid others, so that not all that touch are neighbours: `ggml_dyn_tallocr_free_bytes`, to the letter.
    fn release(&mut self, offset: u64, size: u64) {
        let size = self.aligned(size);
        let end = offset.saturating_add(size);
        let touching = self
            .free
            .iter()
            .position(|block| block.end() == offset || block.offset == end);
        let Some(at) = touching else {
            let at = self.free.iter().position(|block| block.offset >= offset);
            self.free
                .insert(at.unwrap_or(self.free.len()), FreeBlock { offset, size });
            return;
        };
        let grows = self.free[at].end() == offset;
        self.free[at].size = self.free[at].size.saturating_add(size);
        let first = match grows {
            true => Some(at),
            false => {
                self.free[at].offset = offset;
                at.checked_sub(1)
            }
        };
        let Some(first) = first else { return };
        if let Some(next) = self.free.get(first + 1).copied()
            && self.free[first].end() == next.offset
        {
            self.free[first].size = self.free[first].size.saturating_add(next.size);
            self.free.remove(first + 1);
        }
    }
}

/// What the allocator keeps of a tensor.
#[derive(Clone, Copy, Debug, Default)]
struct TensorState {
    offset: u64,
    children: u32,
    views: u32,
    /// Of what is allocated.
    heap: u32,
    /// It holds memory of the allocator's.
    allocated: bool,
    /// It was given memory at some time, or has memory of its own.
    settled: bool,
}

/// One step of what is allocated and freed, in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum AllocationStep {
    /// Run this operation on this place.
    Run(TensorId, TensorDevice),
    /// Keep this tensor until here: a copy of it is made.
    Keep(TensorId),
    /// The copy of a tensor on another place.
    Receive(TensorId, TensorDevice),
}

pub(super) struct Allocator<'a> {
    graph: &'a OpGraph,
    heaps: Vec<Heap>,
    states: Vec<TensorState>,
}

impl<'a> Allocator<'a> {
    /// Heaps for `devices` cards and, last, the host.
    pub(super) fn new(graph: &'a OpGraph, devices: usize) -> Self {
        let mut heaps: Vec<Heap> = (0..devices).map(|_| Heap::new(CARD_ALIGNMENT)).collect();
        heaps.push(Heap::new(HOST_ALIGNMENT));
        Self {
            graph,
            heaps,
            states: vec![TensorState::default(); graph.nodes().len()],
        }
    }

    /// Peaks of the cards' heaps and of the host's.
    pub(super) fn peaks(mut self, leaves: &[(TensorId, TensorDevice)], steps: &[AllocationStep]) -> Vec<u64> {
        for &(leaf, place) in leaves {
            self.settle(leaf, place);
        }
        for step in steps {
            self.count(*step);
        }
        for step in steps {
            match *step {
                AllocationStep::Run(id, place) => self.run(id, place),
                AllocationStep::Receive(id, place) => self.settle(id, place),
                AllocationStep::Keep(id) => self.used(id),
            }
        }
        self.heaps.iter().map(|heap| heap.peak).collect()
    }

    fn count(&mut self, step: AllocationStep) {
        match step {
            AllocationStep::Keep(id) => self.states[id.index()].children += 1,
            AllocationStep::Receive(..) => {}
            AllocationStep::Run(id, _) => {
                let node = self.graph.node(id);
                if let Some(root) = node.root {
                    self.states[root.index()].views += 1;
                }
                for source in node.sources.iter().flatten() {
                    self.states[source.index()].children += 1;
                }
            }
        }
    }

    fn run(&mut self, id: TensorId, place: TensorDevice) {
        self.settle(id, place);
        let sources = self.graph.node(id).sources;
        for source in sources.into_iter().flatten() {
            self.used(source);
        }
    }

    fn heap(&self, place: TensorDevice) -> usize {
        match place {
            TensorDevice::Card(device) => usize::from(device),
            TensorDevice::Host => self.heaps.len() - 1,
        }
    }

    /// Bytes of a tensor in a heap; scratch is a card's alone.
    fn bytes(&self, id: TensorId, heap: usize) -> u64 {
        let node = self.graph.node(id);
        let scratch = if heap + 1 == self.heaps.len() {
            0
        } else {
            node.scratch
        };
        node.bytes.saturating_add(scratch)
    }

    /// `ggml_gallocr_allocate_node`.
    fn settle(&mut self, id: TensorId, place: TensorDevice) {
        let node = self.graph.node(id);
        let external = matches!(node.kind, OpKind::Weight(_) | OpKind::Cache(_));
        if external || node.root.is_some() || self.states[id.index()].settled {
            return;
        }
        let (heap, offset) = match self.reusable(id) {
            Some(parent) => self.take_over(id, parent),
            None => {
                let heap = self.heap(place);
                let bytes = self.bytes(id, heap);
                (heap, self.heaps[heap].allocate(bytes))
            }
        };
        let state = &mut self.states[id.index()];
        state.heap = u32::try_from(heap).unwrap_or(u32::MAX);
        state.offset = offset;
        state.allocated = true;
        state.settled = true;
    }

    /// A source that dies here and whose memory fits: its only remaining reader is `id`.
    fn reusable(&self, id: TensorId) -> Option<TensorId> {
        let node = self.graph.node(id);
        if !matches!(node.kind, OpKind::InPlace | OpKind::Rope) {
            return None;
        }
        node.sources.iter().flatten().copied().find(|&source| {
            let state = &self.states[source.index()];
            let parent = self.graph.node(source);
            let free = state.allocated && state.children == 1 && state.views == 0;
            free && !parent.output && parent.layout == node.layout
        })
    }

    fn take_over(&mut self, id: TensorId, parent: TensorId) -> (usize, u64) {
        let state = &mut self.states[parent.index()];
        state.allocated = false;
        let (heap, offset) = (state.heap as usize, state.offset);
        let had = self.heaps[heap].aligned(self.bytes(parent, heap));
        let needs = self.heaps[heap].aligned(self.bytes(id, heap));
        if had > needs {
            self.heaps[heap].release(offset.saturating_add(needs), had - needs);
        }
        (heap, offset)
    }

    /// One reader of `id` is done.
    fn used(&mut self, id: TensorId) {
        let state = &mut self.states[id.index()];
        state.children = state.children.saturating_sub(1);
        if state.children > 0 || state.views > 0 {
            return;
        }
        let Some(root) = self.graph.node(id).root else {
            self.release(id);
            return;
        };
        let state = &mut self.states[root.index()];
        state.views = state.views.saturating_sub(1);
        if state.views == 0 && state.children == 0 {
            self.release(root);
        }
    }

    fn release(&mut self, id: TensorId) {
        let state = self.states[id.index()];
        if !state.allocated || self.graph.node(id).output {
            return;
        }
        self.states[id.index()].allocated = false;
        let heap = state.heap as usize;
        let bytes = self.bytes(id, heap);
        self.heaps[heap].release(state.offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_without_size_keeps_its_neighbours_apart() {
        let mut heap = Heap::new(128);
        let starts = [128, 0, 128, 128, 128].map(|size| heap.allocate(size));
        assert_eq!(starts, [0, 128, 128, 256, 384]);
        heap.release(128, 128);
        heap.release(0, 128);
        heap.release(128, 0);
        heap.release(384, 128);
        heap.release(256, 128);
        // 512 bytes are free in a row, but not as one block
        assert_eq!(heap.allocate(512), 384);
    }
}
