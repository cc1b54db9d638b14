//! Simulates ggml's backend scheduler: the device of each operation, and the copies between devices.
//!
//! The code mirrors `ggml-backend.cpp: ggml_backend_sched_split_graph @ b10605`.

use super::allocator::{AllocationStep, Allocator};
use super::graph::OpNode;
use crate::TensorDevice;
use crate::compute::{Id, OpGraph, OpKind};

/// `GGML_OP_OFFLOAD_MIN_BATCH`: with fewer rows, copying a weight to a card takes longer than using it on the
/// host.
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
    let (steps, mut leaves) = Splitter {
        graph: &mut *graph,
        backends,
        places,
        copies: Vec::new(),
        inputs: Vec::new(),
        steps: Vec::new(),
        leaves: Vec::new(),
    }
    .split();
    leaves.extend(graph.leaves.iter().map(|&leaf| (leaf, TensorDevice::Host)));
    Allocator::new(graph, backends.devices).peaks(&leaves, &steps)
}

/// Passes 1 to 4: a device for every tensor.
pub(super) fn assign(graph: &OpGraph, backends: BackendSet) -> Vec<TensorDevice> {
    let mut places: Vec<Option<TensorDevice>> =
        graph.nodes().iter().map(|node| fixed(graph, node, backends)).collect();
    let computing: Vec<usize> =
        graph.order.iter().filter(|id| graph.node(**id).kind != OpKind::View).map(|id| id.index()).collect();
    // Cards spread in both directions before the host does: an operation between two cards belongs to a card.
    for host in [false, true] {
        spread(graph, &mut places, computing.iter(), host);
        spread(graph, &mut places, computing.iter().rev(), host);
    }
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

/// Places of tensors, as far as they are assigned.
type Places = [Option<TensorDevice>];

/// Pass 2: unassigned operations take the device of the one before, if it can run them. The `host` spreads
/// last.
fn spread<'a>(graph: &OpGraph, places: &mut Places, order: impl Iterator<Item = &'a usize>, host: bool) {
    let on_host = |place: TensorDevice| place == TensorDevice::Host;
    let mut current = None;
    for &node in order {
        match places[node] {
            Some(place) => current = Some(place).filter(|&place| host || !on_host(place)),
            None => places[node] = current.filter(|&place| on_host(place) || !graph.nodes()[node].host_only),
        }
    }
}

/// Pass 4: views are where their memory is, other tensors where they are first needed.
fn follow(graph: &OpGraph, places: &mut Places) {
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
struct Splitter<'a> {
    graph: &'a mut OpGraph,
    backends: BackendSet,
    places: Vec<TensorDevice>,
    /// Copies made so far: the tensor, the device and the copy.
    copies: Vec<(Id, TensorDevice, Id)>,
    /// Copies of the split that is built.
    inputs: Vec<AllocationStep>,
    steps: Vec<AllocationStep>,
    /// Inputs held several times in a pipeline; allocated before everything else.
    leaves: Vec<(Id, TensorDevice)>,
}

impl Splitter<'_> {
    fn split(mut self) -> (Vec<AllocationStep>, Vec<(Id, TensorDevice)>) {
        // Copies at the start of a split run before all of its operations, even those that do not need them.
        let order = self.graph.order.clone();
        // Views compute nothing, so they never start a split.
        let computes = |graph: &OpGraph, id: &Id| graph.node(*id).kind != OpKind::View;
        let first = order.iter().find(|id| computes(self.graph, id));
        let mut current = first.map_or(TensorDevice::Host, |id| self.places[id.index()]);
        let mut runs: Vec<AllocationStep> = Vec::new();
        for id in order {
            if computes(self.graph, &id) {
                let place = self.places[id.index()];
                // A split ends where the device changes, or where a copied weight can reuse memory.
                if place != current || (!self.inputs.is_empty() && self.brings_weight(id, current)) {
                    self.steps.append(&mut self.inputs);
                    self.steps.append(&mut runs);
                    current = place;
                }
                self.move_sources(id, current);
            }
            let place = self.places[id.index()];
            runs.push(AllocationStep::Run(id, place));
            if place != TensorDevice::Host {
                runs.extend(self.graph.kept_until(id).map(AllocationStep::Keep));
            }
        }
        self.steps.append(&mut self.inputs);
        self.steps.append(&mut runs);
        (self.steps, self.leaves)
    }

    /// True if `id` reads a weight that must be copied: a new split lets the memory of earlier copies be
    /// reused.
    fn brings_weight(&self, id: Id, current: TensorDevice) -> bool {
        let kind = |source: &Id| self.graph.node(*source).kind;
        let mut sources = self.graph.node(id).sources.iter().flatten();
        sources.any(|source| matches!(kind(source), OpKind::Weight(place) if place != current))
    }

    fn move_sources(&mut self, id: Id, current: TensorDevice) {
        for slot in 0..self.graph.node(id).sources.len() {
            let Some(source) = self.graph.node(id).sources[slot] else { continue };
            let at = self.places[source.index()];
            if self.backends.copies > 1 && self.graph.node(source).kind == OpKind::Input {
                self.hold(source, at);
            }
            if at != current {
                let copy = self.copy(source, current);
                self.graph.node_mut(id).sources[slot] = Some(copy);
            }
        }
    }

    fn copied(&self, source: Id, place: TensorDevice) -> Option<Id> {
        let found = self.copies.iter().find(|(of, at, _)| *of == source && *at == place);
        found.map(|(.., copy)| *copy)
    }

    /// The copy of `source` on `place`, made now if it is missing.
    fn copy(&mut self, source: Id, place: TensorDevice) -> Id {
        if let Some(copy) = self.copied(source, place) {
            return copy;
        }
        let copy = self.duplicate(source, place);
        self.copies.push((source, place, copy));
        self.inputs.extend([AllocationStep::Keep(source), AllocationStep::Receive(copy, place)]);
        if self.backends.copies > 1 {
            self.hold_all(copy, source, place);
        }
        copy
    }

    /// In a pipeline an input is also held several times on the device that writes it.
    fn hold(&mut self, input: Id, place: TensorDevice) {
        if self.copied(input, place).is_none() {
            self.copies.push((input, place, input));
            self.hold_all(input, input, place);
        }
    }

    /// Keeps the first copy and makes the others of a pipeline, which are allocated before everything else.
    fn hold_all(&mut self, first: Id, source: Id, place: TensorDevice) {
        let mut copy = first;
        for left in (0..self.backends.copies).rev() {
            // An output is never freed: the next batch may start while this one still reads its copy.
            self.graph.node_mut(copy).output = true;
            self.leaves.push((copy, place));
            if left > 0 {
                copy = self.duplicate(source, place);
            }
        }
    }

    fn duplicate(&mut self, source: Id, place: TensorDevice) -> Id {
        self.places.push(place);
        self.graph.duplicate(source)
    }
}
