//! Simulates ggml's graph allocator to find the peak size of each buffer, without allocating memory.
//!
//! The code mirrors `ggml-alloc.c: ggml_dyn_tallocr_alloc, ggml_dyn_tallocr_free_bytes,
//! ggml_gallocr_alloc_graph_impl @ b10605`.

use crate::compute::{Id, OpGraph, OpKind};
use crate::{CARD_ALIGNMENT, HOST_ALIGNMENT, TensorDevice};

/// Free memory of one buffer, by offset; the last block is unbounded.
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

// Half the range, so that offsets within the last block never overflow.
const ENDLESS: u64 = u64::MAX / 2;

impl Heap {
    fn new(alignment: u64) -> Self {
        Self { alignment, free: vec![FreeBlock { offset: 0, size: ENDLESS }], peak: 0 }
    }

    fn aligned(&self, size: u64) -> u64 {
        size.min(ENDLESS / 2).next_multiple_of(self.alignment)
    }

    /// The smallest free block that holds `size`, the last of equals; the endless one only where no other
    /// does.
    fn allocate(&mut self, size: u64) -> u64 {
        let size = self.aligned(size);
        let last = self.free.len() - 1;
        let fitting = self.free[..last].iter().enumerate().rev().filter(|(_, block)| block.size >= size);
        let best = fitting.min_by_key(|(_, block)| block.size);
        // The engine's last block has the rest of the address space: taking it first would never reuse
        // anything.
        let at = best.map_or(last, |(i, _)| i);
        let block = &mut self.free[at];
        let offset = block.offset;
        block.offset = offset.saturating_add(size);
        block.size = block.size.saturating_sub(size);
        // A used-up block goes; the last one always stays.
        if block.size == 0 && at != last {
            self.free.remove(at);
        }
        self.peak = self.peak.max(offset.saturating_add(size));
        offset
    }

    /// Joins the first block that it touches, and that one's other neighbour (`ggml_dyn_tallocr_free_bytes`).
    fn release(&mut self, offset: u64, size: u64) {
        let size = self.aligned(size);
        let end = offset.saturating_add(size);
        // Tensors without elements leave blocks of no size amid others, so two blocks that touch need not be
        // neighbours in the list, and the engine then leaves them apart.
        let touching = self.free.iter().position(|block| block.end() == offset || block.offset == end);
        let Some(at) = touching else {
            // Nothing touches it: it becomes a block of its own, in order of offsets.
            let at = self.free.iter().position(|block| block.offset >= offset);
            self.free.insert(at.unwrap_or(self.free.len()), FreeBlock { offset, size });
            return;
        };
        let block = &mut self.free[at];
        let grows = block.end() == offset;
        block.offset = if grows { block.offset } else { offset };
        block.size = block.size.saturating_add(size);
        let Some(first) = (at + usize::from(grows)).checked_sub(1) else { return };
        if let [block, next, ..] = &mut self.free[first..]
            && block.end() == next.offset
        {
            block.size = block.size.saturating_add(next.size);
            self.free.remove(first + 1);
        }
    }
}

/// The allocator's record of a tensor.
#[derive(Clone, Copy, Debug, Default)]
struct TensorState {
    offset: u64,
    children: u32,
    views: u32,
    heap: usize,
    /// The tensor holds memory of a heap.
    allocated: bool,
    /// The tensor was given memory at some time, even if another tensor reuses it now.
    settled: bool,
}

/// One step of allocation or release, in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum AllocationStep {
    /// Run this operation on this place.
    Run(Id, TensorDevice),
    /// Keep this tensor until here, because a copy of it is made.
    Keep(Id),
    /// The copy of a tensor on another place.
    Receive(Id, TensorDevice),
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
        Self { graph, heaps, states: vec![TensorState::default(); graph.nodes().len()] }
    }

    /// Peaks of the cards' heaps and of the host's.
    pub(super) fn peaks(mut self, leaves: &[(Id, TensorDevice)], steps: &[AllocationStep]) -> Vec<u64> {
        for &(leaf, place) in leaves {
            self.settle(leaf, place);
        }
        // The engine counts all readers before it allocates: a tensor's last use is known from the start.
        for step in steps {
            self.count(*step);
        }
        for step in steps {
            match *step {
                AllocationStep::Run(id, place) => {
                    self.settle(id, place);
                    self.graph.node(id).sources.into_iter().flatten().for_each(|source| self.used(source));
                }
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

    fn heap(&self, place: TensorDevice) -> usize {
        match place {
            TensorDevice::Card(device) => usize::from(device),
            TensorDevice::Host => self.heaps.len() - 1,
        }
    }

    /// Bytes of a tensor in a heap; scratch is a card's alone.
    fn bytes(&self, id: Id, heap: usize) -> u64 {
        let node = self.graph.node(id);
        // The last heap is the host's.
        let scratch = if heap + 1 == self.heaps.len() { 0 } else { node.scratch };
        node.bytes.saturating_add(scratch)
    }

    /// `ggml_gallocr_allocate_node`.
    fn settle(&mut self, id: Id, place: TensorDevice) {
        let node = self.graph.node(id);
        // Weights and caches have buffers of their own, and a view has the memory of its root.
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
        *state = TensorState { heap, offset, allocated: true, settled: true, ..*state };
    }

    /// A source whose memory the result may take over: it fits, and `id` is its only remaining reader.
    fn reusable(&self, id: Id) -> Option<Id> {
        let node = self.graph.node(id);
        if !matches!(node.kind, OpKind::InPlace | OpKind::Rope) {
            return None;
        }
        // The first such source wins: this is why the order of a sum's operands decides the peak.
        node.sources.iter().flatten().copied().find(|&source| {
            let state = &self.states[source.index()];
            let parent = self.graph.node(source);
            let free = state.allocated && state.children == 1 && state.views == 0;
            free && !parent.output && parent.layout == node.layout
        })
    }

    fn take_over(&mut self, id: Id, parent: Id) -> (usize, u64) {
        let state = &mut self.states[parent.index()];
        state.allocated = false;
        let (heap, offset) = (state.heap, state.offset);
        let had = self.heaps[heap].aligned(self.bytes(parent, heap));
        let needs = self.heaps[heap].aligned(self.bytes(id, heap));
        // Scratch behind the old tensor is not needed any more, so it returns to the heap.
        if had > needs {
            self.heaps[heap].release(offset.saturating_add(needs), had - needs);
        }
        (heap, offset)
    }

    /// One reader of `id` is done.
    fn used(&mut self, id: Id) {
        let state = &mut self.states[id.index()];
        state.children = state.children.saturating_sub(1);
        if state.children > 0 || state.views > 0 {
            return;
        }
        // A view that is done frees its root only after the last of its other views.
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

    fn release(&mut self, id: Id) {
        let state = self.states[id.index()];
        if !state.allocated || self.graph.node(id).output {
            return;
        }
        self.states[id.index()].allocated = false;
        let bytes = self.bytes(id, state.heap);
        self.heaps[state.heap].release(state.offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_block_keeps_its_neighbours_apart() {
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
