//! The layers worth building: a model of a hundred equal layers needs its first few and its last ones.
//!
//! The allocator's state repeats from layer to layer, so its peak is reached within the first occurrences of
//! every kind of layer and neighbour, on every device, and at the end. Where it does not repeat, all are built.

use std::cell::{OnceCell, RefCell};

use plimsoll_model::{HyperParameters, Model, Tensor};

use super::graph::OpGraph;
use crate::flash::Flash;
use crate::layout::{DeviceLayout, TensorDevice};

/// A layer with its tensors, by role: `attn_q.weight`.
#[derive(Debug)]
pub(crate) struct ModelBlock<'a> {
    pub(super) layer: u32,
    pub(super) place: TensorDevice,
    tensors: Vec<(&'a str, &'a Tensor, TensorDevice)>,
}

impl<'a> ModelBlock<'a> {
    pub(super) fn get(&self, role: &str) -> Option<(&'a Tensor, TensorDevice)> {
        let found = self.tensors.iter().find(|(own, ..)| *own == role);
        found.map(|&(_, tensor, place)| (tensor, place))
    }

    /// A tensor by the two halves of its role: `attn_q` and `.weight`.
    pub(super) fn part(&self, role: &str, ending: &str) -> Option<(&'a Tensor, TensorDevice)> {
        let mut tensors = self.tensors.iter();
        let found = tensors.find(|(own, ..)| own.strip_prefix(role) == Some(ending));
        found.map(|&(_, tensor, place)| (tensor, place))
    }

    pub(super) fn has(&self, role: &str) -> bool {
        self.get(role).is_some()
    }
}

/// What the graph is built from.
#[derive(Debug)]
pub(crate) struct ModelLayers<'a> {
    pub(super) model: &'a Model,
    pub(super) blocks: Vec<ModelBlock<'a>>,
    /// Where each layer of the model is.
    layers: Vec<TensorDevice>,
    /// Tensors outside of layers.
    others: Vec<(&'a Tensor, TensorDevice)>,
    pub(super) output: TensorDevice,
    pub(super) devices: usize,
    pub(super) copies: u64,
    /// Whether every device runs the kernel of the gated delta net, once it was asked; no context changes it.
    pub(super) fuses: OnceCell<bool>,
    /// The memory of the last graph for the next.
    spare: RefCell<OpGraph>,
}

/// Tensors of a graph for each of the model's that it is made of, at most in all that `plimsoll synth` knows.
const NODES: usize = 8;
/// The most that room is made for at once: a header may count millions.
const ROOM: usize = 1 << 16;

/// Layers that are looked back over for one of the same kind; the longest pattern in use repeats after 12.
const PATTERN: usize = 32;
/// How often a kind of layer between the same neighbours is built.
const REPETITIONS: usize = 2;
/// Layers at the end of a device's share that are always built.
const LAST: usize = 2;

impl<'a> ModelLayers<'a> {
    pub(crate) fn new(
        model: &'a Model,
        layers: std::ops::Range<u32>,
        layout: &DeviceLayout,
        flash: Flash,
    ) -> Self {
        let on_host = flash.on && flash.missing.is_some();
        let all = layout.is_scattered() || on_host;
        let mut blocks: Vec<ModelBlock<'a>> = layers
            .clone()
            .map(|layer| ModelBlock {
                layer,
                place: layout.layer(layer),
                tensors: Vec::new(),
            })
            .collect();
        let mut others = Vec::new();
        for tensor in &model.tensors {
            let place = layout.tensor(tensor);
            match tensor.layer() {
                None => others.push((tensor, place)),
                Some(layer) => {
                    let at = layer
                        .checked_sub(layers.start)
                        .and_then(|at| usize::try_from(at).ok());
                    if let (Some(block), Some(role)) = (at.and_then(|at| blocks.get_mut(at)), tensor.role()) {
                        block.tensors.push((role, tensor, place));
                    }
                }
            }
        }
        Self {
            model,
            blocks: representative(model, blocks, all),
            layers: (0..model.hyper.layers).map(|layer| layout.layer(layer)).collect(),
            others,
            output: layout.output,
            devices: layout.devices.len(),
            copies: layout.copies,
            fuses: OnceCell::new(),
            spare: RefCell::default(),
        }
    }

    /// An empty graph, to be handed back when it is done with.
    pub(super) fn graph(&self) -> OpGraph {
        let blocks = self.blocks.iter().map(|block| block.tensors.len());
        let tensors = self.others.len() + blocks.sum::<usize>();
        let mut graph = self.spare.take();
        graph.clear(tensors.saturating_mul(NODES).min(ROOM));
        graph
    }

    pub(super) fn hand_back(&self, graph: OpGraph) {
        self.spare.replace(graph);
    }

    pub(super) fn all_on_cards(&self) -> bool {
        let on_card = |place: &TensorDevice| *place != TensorDevice::Host;
        on_card(&self.output) && self.blocks.iter().all(|block| on_card(&block.place))
    }

    /// Layers on the host, beside a card that could compute them.
    pub(crate) fn reaches_host(&self) -> bool {
        self.devices > 0 && self.layers.contains(&TensorDevice::Host)
    }

    /// Where the cache is that `block` attends to: its own, or that of the last layer of its kind that has one
    /// (`llama-model.cpp: create_memory @ b10605`).
    pub(super) fn cache_place(&self, block: &ModelBlock<'_>) -> TensorDevice {
        let hyper = &self.model.hyper;
        if !shares_cache(hyper, block.layer) {
            return block.place;
        }
        let back = if hyper.slides(block.layer) { 2 } else { 1 };
        let layer = usize::try_from(hyper.layers_with_cache.saturating_sub(back)).ok();
        let place = layer.and_then(|layer| self.layers.get(layer));
        place.copied().unwrap_or(block.place)
    }

    pub(super) fn other(&self, name: &str) -> Option<(&'a Tensor, TensorDevice)> {
        self.others
            .iter()
            .find(|(tensor, _)| tensor.name == name)
            .copied()
    }
}

/// Does a layer attend to the cache of an earlier one?
pub(super) fn shares_cache(hyper: &HyperParameters, layer: u32) -> bool {
    hyper.cached && layer >= hyper.layers_with_cache
}

fn representative<'a>(model: &Model, blocks: Vec<ModelBlock<'a>>, all: bool) -> Vec<ModelBlock<'a>> {
    // A recurrent layer, or one whose weights are copied to the card, leaves other holes in the heap than it found, and the
    // next one falls into them: no state of the allocator repeats, so all layers are built. What the host attends to comes back in
    // copies that a pipeline keeps for each layer. So are those of a model whose layers
    // share caches: its first ones do what their tensors do not tell.
    let shares = model.hyper.layers_with_cache < model.hyper.layers;
    if model.hyper.recurrent.is_some() || all || shares {
        return blocks;
    }
    let mut kinds: Vec<usize> = Vec::with_capacity(blocks.len());
    for (i, block) in blocks.iter().enumerate() {
        let same = (0..i)
            .rev()
            .take(PATTERN)
            .find(|&j| alike(model, &blocks[j], block));
        kinds.push(same.map_or(i, |j| kinds[j]));
    }
    let mut seen: Vec<([Option<usize>; 3], usize)> = Vec::new();
    let mut keep = Vec::with_capacity(blocks.len());
    for i in 0..blocks.len() {
        let neighbours = [
            i.checked_sub(1).map(|j| kinds[j]),
            Some(kinds[i]),
            kinds.get(i + 1).copied(),
        ];
        let count = match seen.iter_mut().find(|(known, _)| *known == neighbours) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                seen.push((neighbours, 1));
                1
            }
        };
        let ends = (1..=LAST).any(|ahead| {
            blocks
                .get(i + ahead)
                .is_none_or(|next| next.place != blocks[i].place)
        });
        keep.push(count <= REPETITIONS || ends);
    }
    let mut keep = keep.into_iter();
    blocks
        .into_iter()
        .filter(|_| keep.next().unwrap_or(true))
        .collect()
}

/// Do two layers have the same operations of the same sizes on the same place?
fn alike(model: &Model, a: &ModelBlock<'_>, b: &ModelBlock<'_>) -> bool {
    let hyper = &model.hyper;
    a.place == b.place
        && hyper.slides(a.layer) == hyper.slides(b.layer)
        && hyper.recurs(a.layer) == hyper.recurs(b.layer)
        && hyper.caches(a.layer) == hyper.caches(b.layer)
        && hyper.heads.at(a.layer) == hyper.heads.at(b.layer)
        && a.tensors.len() == b.tensors.len()
        && a.tensors
            .iter()
            .zip(&b.tensors)
            .all(|((role_a, x, place_a), (role_b, y, place_b))| {
                role_a == role_b
                    && place_a == place_b
                    && x.shape == y.shape
                    && (x.kind == y.kind || *place_a == a.place)
            })
}
