//! Chooses which layers to simulate: of many equal layers, the first few and the last stand for all.
//!
//! The allocator's state repeats from layer to layer, so more layers of one kind do not change the peak.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Range;

use plimsoll_model::{HyperParameters, Model, Tensor};

use crate::compute::OpGraph;
use crate::{CacheKind, DeviceLayout, Flash, TensorDevice};

/// A layer with its tensors, by role: `attn_q.weight`.
#[derive(Debug)]
pub(crate) struct Layer<'a> {
    pub(super) layer: u32,
    pub(super) place: TensorDevice,
    tensors: Vec<(&'a str, &'a Tensor, TensorDevice)>,
}

impl<'a> Layer<'a> {
    pub(super) fn get(&self, role: &str) -> Option<(&'a Tensor, TensorDevice)> {
        self.part(role, "")
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

/// The tensors of a model, by layer, with their devices.
#[derive(Debug)]
pub(crate) struct ModelLayers<'a> {
    pub(super) model: &'a Model,
    pub(crate) cache: CacheKind,
    pub(crate) flash: Flash,
    pub(super) blocks: Vec<Layer<'a>>,
    /// These are prediction layers, of which the graph computes one.
    pub(super) predict: bool,
    /// The device of each layer.
    layer_devices: Vec<TensorDevice>,
    /// Tensors outside of the layers.
    others: Vec<(&'a Tensor, TensorDevice)>,
    pub(super) output: TensorDevice,
    pub(super) devices: usize,
    pub(super) copies: u64,
    /// True if every device has the kernel of the gated delta net; unset until a graph needs it.
    pub(super) fuses: OnceCell<bool>,
    /// The last graph, whose memory the next one reuses.
    spare: RefCell<OpGraph>,
}

/// Tensors of a graph for each tensor of the model: the most in any model of `specimen`.
const NODES: usize = 8;
/// Room that is made at most at once, because a hostile header may state millions of tensors.
const ROOM: usize = 1 << 16;

/// Earlier layers that are compared with a layer; the longest pattern in use repeats after 12.
const PATTERN: usize = 32;
/// Occurrences that are built of a kind of layer between the same neighbours.
const REPETITIONS: usize = 2;
/// Layers at the end of a device's share that are always built.
const LAST: usize = 2;

impl<'a> ModelLayers<'a> {
    pub(crate) fn new(
        model: &'a Model,
        layers: Range<u32>,
        layout: &DeviceLayout,
        cache: CacheKind,
        flash: Flash,
    ) -> Self {
        let all = layout.is_scattered() || flash.is_on_host();
        let mut blocks: Vec<Layer<'a>> = layers
            .clone()
            .map(|layer| Layer { layer, place: layout.layer(layer), tensors: Vec::new() })
            .collect();
        let mut others = Vec::new();
        for tensor in &model.tensors {
            let place = layout.tensor(tensor);
            match tensor.layer() {
                None => others.push((tensor, place)),
                Some(layer) => {
                    let at = layer.checked_sub(layers.start).and_then(|at| usize::try_from(at).ok());
                    if let (Some(block), Some(role)) = (at.and_then(|at| blocks.get_mut(at)), tensor.role()) {
                        block.tensors.push((role, tensor, place));
                    }
                }
            }
        }
        let predict = model.hyper.nextn_layers > 0 && layers.start == model.hyper.trunk();
        if predict {
            blocks.truncate(1);
        }
        Self {
            model,
            cache,
            flash,
            predict,
            blocks: representative(model, blocks, all),
            layer_devices: (0..model.hyper.layers).map(|layer| layout.layer(layer)).collect(),
            others,
            output: layout.output,
            devices: layout.devices.len(),
            copies: layout.copies,
            fuses: OnceCell::new(),
            spare: RefCell::default(),
        }
    }

    /// An empty graph, to be handed back after use.
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
        // Of the whole model, whatever part of it the graph computes (`llama-context.cpp: graph_get_cb @
        // b10605`).
        on_card(&self.output) && self.layer_devices.iter().all(on_card)
    }

    /// True if a layer is on the host although a card could compute it.
    pub(crate) fn reaches_host(&self) -> bool {
        self.devices > 0 && self.layer_devices.contains(&TensorDevice::Host)
    }

    /// The device of the cache that `block` attends to: its own, or that of the last layer of its kind that
    /// has one (`llama-model.cpp: create_memory @ b10605`).
    pub(super) fn cache_place(&self, block: &Layer<'_>) -> TensorDevice {
        let hyper = &self.model.hyper;
        if !shares_cache(hyper, block.layer) {
            return block.place;
        }
        // The last two layers with a cache are a sliding one and a full one.
        let back = if hyper.slides(block.layer) { 2 } else { 1 };
        let layer = usize::try_from(hyper.layers_with_cache.saturating_sub(back)).ok();
        let place = layer.and_then(|layer| self.layer_devices.get(layer));
        place.copied().unwrap_or(block.place)
    }

    pub(super) fn other(&self, name: &str) -> Option<(&'a Tensor, TensorDevice)> {
        self.others.iter().find(|(tensor, _)| tensor.name == name).copied()
    }
}

/// True if a layer attends to the cache of an earlier one.
pub(super) fn shares_cache(hyper: &HyperParameters, layer: u32) -> bool {
    hyper.cached && layer >= hyper.layers_with_cache
}

fn representative<'a>(model: &Model, blocks: Vec<Layer<'a>>, all: bool) -> Vec<Layer<'a>> {
    // A recurrent layer, or one whose weights are copied to the card, leaves different holes in the heap than
    // it found. The next layer's tensors use them, so the allocator's state never repeats. Attention on the
    // host returns in copies that a pipeline keeps for each layer. Where layers share caches, the tensors of
    // the first ones do not show which of them store.
    let shares = model.hyper.layers_with_cache < model.hyper.layers;
    if model.hyper.recurrent.is_some() || all || shares {
        return blocks;
    }
    let mut kinds: Vec<usize> = Vec::with_capacity(blocks.len());
    for (i, block) in blocks.iter().enumerate() {
        let same = (0..i).rev().take(PATTERN).find(|&j| alike(model, &blocks[j], block));
        kinds.push(same.map_or(i, |j| kinds[j]));
    }
    let mut seen: HashMap<[Option<usize>; 3], usize> = HashMap::new();
    let places: Vec<TensorDevice> = blocks.iter().map(|block| block.place).collect();
    let is_kept = |&(i, _): &(usize, _)| {
        // A layer's peak depends on the holes that its neighbours leave, so neighbours are part of its kind.
        let neighbours = [i.checked_sub(1).map(|j| kinds[j]), Some(kinds[i]), kinds.get(i + 1).copied()];
        let count = seen.entry(neighbours).or_default();
        *count += 1;
        // The end of a device's share is followed by copies to the next device, or by the output.
        let ends = (1..=LAST).any(|ahead| places.get(i + ahead).is_none_or(|next| *next != places[i]));
        *count <= REPETITIONS || ends
    };
    blocks.into_iter().enumerate().filter(is_kept).map(|(_, block)| block).collect()
}

/// True if two layers have the same operations of the same sizes on the same device.
fn alike(model: &Model, a: &Layer<'_>, b: &Layer<'_>) -> bool {
    let hyper = &model.hyper;
    a.place == b.place
        && hyper.slides(a.layer) == hyper.slides(b.layer)
        && hyper.recurs(a.layer) == hyper.recurs(b.layer)
        && hyper.caches(a.layer) == hyper.caches(b.layer)
        && hyper.heads.at(a.layer) == hyper.heads.at(b.layer)
        && a.tensors.len() == b.tensors.len()
        && a.tensors.iter().zip(&b.tensors).all(|((role_a, x, place_a), (role_b, y, place_b))| {
            role_a == role_b
                    && place_a == place_b
                    && x.shape == y.shape
                    // Only the bytes of a weight that is copied enter the buffer, so types matter there
                    // alone.
                    && (x.kind == y.kind || *place_a == a.place)
        })
}
