//! Which operation runs where, and what must be copied between places.
//!
//! Mirrors `ggml-backend.cpp: ggml_backend_sched_split_graph @ b10605`: operations go where their weights are,
//! unassigned neighbours follow, cards before the host; a source on another place is copied once for each place
//! that reads it, and in a pipeline every copy is held four times.

use super::allocator::{Allocator, Step};
use super::graph::{Graph, Id, Kind, Node};
use crate::layout::Place;

/// `GGML_OP_OFFLOAD_MIN_BATCH`: with fewer rows a weight in host memory is used where it is.
const OFFLOAD_MIN_BATCH: u64 = 32;

/// What the scheduler depends on besides the graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) devices: usize,
    pub(super) copies: u64,
    /// Host weights may be copied to the first card for large batches.
    pub(super) op_offload: bool,
}

/// Peak bytes of each card's compute buffer and, last, of the host's.
pub(super) fn reserve(graph: &mut Graph, machine: Machine) -> Vec<u64> {
    let places = assign(graph, machine);
    let mut splitter = Splitter {
        machine,
        places,
        copies: Vec::new(),
        steps: Vec::new(),
        leaves: Vec::new(),
    };
    splitter.split(graph);
    let mut leaves = splitter.leaves;
    leaves.extend(graph.leaves.iter().map(|&leaf| (leaf, Place::Host)));
    Allocator::new(graph, machine.devices).peaks(&leaves, &splitter.steps)
}

/// Passes 1 to 4: a place for every tensor.
pub(super) fn assign(graph: &Graph, machine: Machine) -> Vec<Place> {
    let mut places: Vec<Option<Place>> = graph
        .nodes()
        .iter()
        .map(|node| fixed(graph, node, machine))
        .collect();
    let computing: Vec<usize> = graph
        .order
        .iter()
        .filter(|id| graph.node(**id).kind != Kind::View)
        .map(|id| id.index())
        .collect();
    let on_card = |place: Place| place != Place::Host;
    spread(graph, &mut places, computing.iter().copied(), on_card);
    spread(graph, &mut places, computing.iter().rev().copied(), on_card);
    spread(graph, &mut places, computing.iter().copied(), |_| true);
    spread(graph, &mut places, computing.iter().rev().copied(), |_| true);
    // pass 3
    for node in computing {
        places[node].get_or_insert(Place::Host);
    }
    follow(graph, &mut places);
    places
        .into_iter()
        .map(|place| place.unwrap_or(Place::Host))
        .collect()
}

/// Pass 1, `ggml_backend_sched_backend_id_from_cur`.
fn fixed(graph: &Graph, node: &Node, machine: Machine) -> Option<Place> {
    if node.pinned.is_some() {
        return node.pinned;
    }
    let memory = |node: &Node| match node.kind {
        Kind::Weight(place) | Kind::Cache(place) => Some(place),
        _ => None,
    };
    if let Some(place) = memory(node).or_else(|| node.root.and_then(|root| memory(graph.node(root)))) {
        return Some(place);
    }
    match node.kind {
        Kind::Input => return Some(Place::Host),
        Kind::Rope | Kind::Attention => return None,
        _ => {}
    }
    let weight = node
        .sources
        .iter()
        .flatten()
        .find_map(|&source| match graph.node(source).kind {
            Kind::Weight(place) => Some(place),
            _ => None,
        })?;
    let offloads = machine.op_offload && machine.devices > 0 && node.batch >= OFFLOAD_MIN_BATCH;
    Some(if weight == Place::Host && offloads {
        Place::Device(0)
    } else {
        weight
    })
}

/// Pass 2: unassigned operations take the place of the one before, as long as that place `spreads` and can run them.
fn spread(
    graph: &Graph,
    places: &mut [Option<Place>],
    order: impl Iterator<Item = usize>,
    spreads: impl Fn(Place) -> bool,
) {
    let mut current = None;
    for node in order {
        match places[node] {
            Some(place) => current = Some(place).filter(|place| spreads(*place)),
            None => {
                places[node] = current.filter(|&place| place == Place::Host || !graph.nodes()[node].host_only)
            }
        }
    }
}

/// Pass 4: views are where their memory is, the rest where it is first needed.
fn follow(graph: &Graph, places: &mut [Option<Place>]) {
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

/// Pass 5: the order of steps, with copies at the start of each split.
struct Splitter {
    machine: Machine,
    places: Vec<Place>,
    /// Copies made so far: of which tensor, where, and the copy.
    copies: Vec<(Id, Place, Id)>,
    steps: Vec<Step>,
    /// Inputs held several times in a pipeline; allocated before everything else.
    leaves: Vec<(Id, Place)>,
}

impl Splitter {
    fn split(&mut self, graph: &mut Graph) {
        let order = graph.order.clone();
        let mut current = order
            .iter()
            .find(|id| graph.node(**id).kind != Kind::View)
            .map_or(Place::Host, |id| self.places[id.index()]);
        let mut inputs: Vec<Step> = Vec::new();
        let mut runs: Vec<Step> = Vec::new();
        for id in order {
            if graph.node(id).kind != Kind::View {
                let place = self.places[id.index()];
                if place != current || (!inputs.is_empty() && self.brings_weight(graph, id, current)) {
                    self.steps.append(&mut inputs);
                    self.steps.append(&mut runs);
                    current = place;
                }
                self.move_sources(graph, id, current, &mut inputs);
            }
            runs.push(Step::Run(id, self.places[id.index()]));
        }
        self.steps.append(&mut inputs);
        self.steps.append(&mut runs);
    }

    /// True if `id` reads a weight that must be copied: a new split lets the last one's memory be used again.
    fn brings_weight(&self, graph: &Graph, id: Id, current: Place) -> bool {
        let sources = graph.node(id).sources;
        sources
            .iter()
            .flatten()
            .any(|source| matches!(graph.node(*source).kind, Kind::Weight(place) if place != current))
    }

    fn move_sources(&mut self, graph: &mut Graph, id: Id, current: Place, inputs: &mut Vec<Step>) {
        for slot in 0..graph.node(id).sources.len() {
            let Some(source) = graph.node(id).sources[slot] else {
                continue;
            };
            let at = self.places[source.index()];
            if self.machine.copies > 1 && graph.node(source).kind == Kind::Input {
                self.hold(graph, source, at);
            }
            if at != current {
                let copy = self.copy(graph, source, current, inputs);
                graph.replace_source(id, slot, copy);
            }
        }
    }

    /// The copy of `source` on `place`, made now if there is none yet.
    fn copy(&mut self, graph: &mut Graph, source: Id, place: Place, inputs: &mut Vec<Step>) -> Id {
        if let Some((.., copy)) = self
            .copies
            .iter()
            .find(|(of, at, _)| *of == source && *at == place)
        {
            return *copy;
        }
        let copy = self.duplicate(graph, source, place);
        self.copies.push((source, place, copy));
        inputs.push(Step::Keep(source));
        inputs.push(Step::Receive(copy, place));
        if self.machine.copies > 1 {
            graph.mark_output(copy);
            self.leaves.push((copy, place));
            for _ in 1..self.machine.copies {
                let more = self.duplicate(graph, source, place);
                graph.mark_output(more);
                self.leaves.push((more, place));
            }
        }
        copy
    }

    /// In a pipeline an input is held several times where it is written, too.
    fn hold(&mut self, graph: &mut Graph, input: Id, place: Place) {
        if self.copies.iter().any(|(of, at, _)| *of == input && *at == place) {
            return;
        }
        graph.mark_output(input);
        self.copies.push((input, place, input));
        self.leaves.push((input, place));
        for _ in 1..self.machine.copies {
            let more = self.duplicate(graph, input, place);
            graph.mark_output(more);
            self.leaves.push((more, place));
        }
    }

    fn duplicate(&mut self, graph: &mut Graph, source: Id, place: Place) -> Id {
        let copy = graph.duplicate(source);
        self.places.push(place);
        copy
    }
}
