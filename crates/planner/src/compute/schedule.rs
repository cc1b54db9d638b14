//! Simulation of ggml's backend scheduler: the device of each operation, and the copies between devices.
//!
//! The code mirrors `ggml-backend.cpp: ggml_backend_sched_split_graph @ b10605`.

use super::allocator::{AllocationStep, Allocator};
use super::graph::{Id, OpGraph, OpKind, OpNode};
use crate::layout::TensorDevice;

/// `GGML_OP_OFFLOAD_MIN_BATCH`: with fewer rows, copying a weight to a card takes longer than using it on the host.
const OFFLOAD_MIN_BATCH: u64 = 32;

/// The devices to which operations are assigned, and the flags that affect the assignment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendSet {
    pub(super) devices: usize,
    pub(super) copies: u64,
    /// Host weights may be copied to the first card for large batches.
    pub(super) op_offload: bool,
}

/// Peak bytes of each card's compute buffer and, last, of the host's.
pub(super) fn reserve(graph: &mut OpGraph, backends: BackendSet) -> Vec<u64> {
    let places = assign(graph, backends);
    // Copies are made while the graph is split, so the allocator sees them as tensors of the graph.
    let mut splitter =
        Splitter { backends, places, copies: Vec::new(), steps: Vec::new(), leaves: Vec::new() };
    splitter.split(graph);
    let mut leaves = splitter.leaves;
    leaves.extend(graph.leaves.iter().map(|&leaf| (leaf, TensorDevice::Host)));
    Allocator::new(graph, backends.devices).peaks(&leaves, &splitter.steps)
}

/// Passes 1 to 4: a device for every tensor.
pub(super) fn assign(graph: &OpGraph, backends: BackendSet) -> Vec<TensorDevice> {
    let mut places: Vec<Option<TensorDevice>> =
        graph.nodes().iter().map(|node| fixed(graph, node, backends)).collect();
    let computing: Vec<usize> =
        graph.order.iter().filter(|id| graph.node(**id).kind != OpKind::View).map(|id| id.index()).collect();
    // Cards spread in both directions before the host does: an operation between two cards belongs to a card.
    let on_card = |place: TensorDevice| place != TensorDevice::Host;
    spread(graph, &mut places, computing.iter().copied(), on_card);
    spread(graph, &mut places, computing.iter().rev().copied(), on_card);
    spread(graph, &mut places, computing.iter().copied(), |_| true);
    spread(graph, &mut places, computing.iter().rev().copied(), |_| true);
    // Pass 3: only operations without any assigned neighbour are left.
    for node in computing {
        places[node].get_or_insert(TensorDevice::Host);
    }
    follow(graph, &mut places);
    places.into_iter().map(|place| place.unwrap_or(TensorDevice::Host)).collect()
}

/// Pass 1, `ggml_backend_sched_backend_id_from_cur`.
fn fixed(graph: &OpGraph, node: &OpNode, backends: BackendSet) -> Option<TensorDevice> {
    if node.pinned.is_some() {
        return node.pinned;
    }
    let memory = |node: &OpNode| match node.kind {
        OpKind::Weight(place) | OpKind::Cache(place) => Some(place),
        _ => None,
    };
    if let Some(place) = memory(node).or_else(|| node.root.and_then(|root| memory(graph.node(root)))) {
        return Some(place);
    }
    match node.kind {
        // The host writes all inputs.
        OpKind::Input => return Some(TensorDevice::Host),
        OpKind::Rope | OpKind::Attention => return None,
        _ => {}
    }
    let weight = node.sources.iter().flatten().find_map(|&source| match graph.node(source).kind {
        OpKind::Weight(place) => Some(place),
        _ => None,
    })?;
    // A large batch makes it worth copying the weight, always to the first card.
    let offloads = backends.op_offload && backends.devices > 0 && node.batch >= OFFLOAD_MIN_BATCH;
    Some(if weight == TensorDevice::Host && offloads { TensorDevice::Card(0) } else { weight })
}

/// Pass 2: unassigned operations take the device of the one before, if that device `spreads` and can run them.
fn spread(
    graph: &OpGraph,
    places: &mut [Option<TensorDevice>],
    order: impl Iterator<Item = usize>,
    spreads: impl Fn(TensorDevice) -> bool,
) {
    let mut current = None;
    for node in order {
        match places[node] {
            Some(place) => current = Some(place).filter(|place| spreads(*place)),
            None => {
                places[node] =
                    current.filter(|&place| place == TensorDevice::Host || !graph.nodes()[node].host_only)
            }
        }
    }
}

/// Pass 4: views are where their memory is, other tensors where they are first needed.
fn follow(graph: &OpGraph, places: &mut [Option<TensorDevice>]) {
    for &id in &graph.order {
        let node = graph.node(id);
        if let (None, Some(root)) = (places[id.index()], node.root) {
            places[id.index()] = places[root.index()];
        }
        let here = places[id.index()];
        for source in node.sources.iter().flatten() {
            if places[source.index()].is_none() {
                let root = graph.node(*source).root;
                places[source.index()] = root.map_or(here, |root| places[root.index()]);
            }
        }
    }
}

// With pipeline parallelism, each copied tensor exists four times.
/// Pass 5: the order of steps, with copies at the start of each split.
struct Splitter {
    backends: BackendSet,
    places: Vec<TensorDevice>,
    /// Copies made so far: the tensor, the device and the copy.
    copies: Vec<(Id, TensorDevice, Id)>,
    steps: Vec<AllocationStep>,
    /// Inputs held several times in a pipeline; allocated before everything else.
    leaves: Vec<(Id, TensorDevice)>,
}

impl Splitter {
    fn split(&mut self, graph: &mut OpGraph) {
        // Copies at the start of a split run before all of its operations, even those that do not need them.
        let order = graph.order.clone();
        let mut current = order
            .iter()
            .find(|id| graph.node(**id).kind != OpKind::View)
            .map_or(TensorDevice::Host, |id| self.places[id.index()]);
        let mut inputs: Vec<AllocationStep> = Vec::new();
        let mut runs: Vec<AllocationStep> = Vec::new();
        for id in order {
            // Views compute nothing, so they never start a split.
            if graph.node(id).kind != OpKind::View {
                let place = self.places[id.index()];
                // A split ends where the device changes, or where a copied weight can reuse memory.
                if place != current || (!inputs.is_empty() && self.brings_weight(graph, id, current)) {
                    self.steps.append(&mut inputs);
                    self.steps.append(&mut runs);
                    current = place;
                }
                self.move_sources(graph, id, current, &mut inputs);
            }
            runs.push(AllocationStep::Run(id, self.places[id.index()]));
        }
        self.steps.append(&mut inputs);
        self.steps.append(&mut runs);
    }

    /// True if `id` reads a weight that must be copied: a new split lets the memory of earlier copies be reused.
    fn brings_weight(&self, graph: &OpGraph, id: Id, current: TensorDevice) -> bool {
        let sources = graph.node(id).sources;
        sources
            .iter()
            .flatten()
            .any(|source| matches!(graph.node(*source).kind, OpKind::Weight(place) if place != current))
    }

    fn move_sources(
        &mut self,
        graph: &mut OpGraph,
        id: Id,
        current: TensorDevice,
        inputs: &mut Vec<AllocationStep>,
    ) {
        for slot in 0..graph.node(id).sources.len() {
            let Some(source) = graph.node(id).sources[slot] else {
                continue;
            };
            let at = self.places[source.index()];
            if self.backends.copies > 1 && graph.node(source).kind == OpKind::Input {
                self.hold(graph, source, at);
            }
            if at != current {
                let copy = self.copy(graph, source, current, inputs);
                graph.node_mut(id).sources[slot] = Some(copy);
            }
        }
    }

    /// The copy of `source` on `place`, made now if there is none yet.
    fn copy(
        &mut self,
        graph: &mut OpGraph,
        source: Id,
        place: TensorDevice,
        inputs: &mut Vec<AllocationStep>,
    ) -> Id {
        if let Some((.., copy)) = self.copies.iter().find(|(of, at, _)| *of == source && *at == place) {
            return *copy;
        }
        let copy = self.duplicate(graph, source, place);
        self.copies.push((source, place, copy));
        inputs.push(AllocationStep::Keep(source));
        inputs.push(AllocationStep::Receive(copy, place));
        if self.backends.copies > 1 {
            self.hold_all(graph, copy, source, place);
        }
        copy
    }

    /// In a pipeline an input is also held several times on the device that writes it.
    fn hold(&mut self, graph: &mut OpGraph, input: Id, place: TensorDevice) {
        if self.copies.iter().any(|(of, at, _)| *of == input && *at == place) {
            return;
        }
        self.copies.push((input, place, input));
        self.hold_all(graph, input, input, place);
    }

    /// Keeps the first copy and makes the others of a pipeline, which are allocated before everything else.
    fn hold_all(&mut self, graph: &mut OpGraph, first: Id, source: Id, place: TensorDevice) {
        let mut copy = first;
        for left in (0..self.backends.copies).rev() {
            // An output is never freed: the next batch may start while this one still reads its copy.
            graph.node_mut(copy).output = true;
            self.leaves.push((copy, place));
            if left > 0 {
                copy = self.duplicate(graph, source, place);
            }
        }
    }

    fn duplicate(&mut self, graph: &mut OpGraph, source: Id, place: TensorDevice) -> Id {
        let copy = graph.duplicate(source);
        self.places.push(place);
        copy
    }
}
