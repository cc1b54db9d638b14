//! Lists what one token costs each device: kernels, steps of matrices, bytes of weights and caches.
//!
//! Kernels are those that llama.cpp launches for a batch of one token: neighbouring operations that it fuses
//! count once (`ggml-cuda.cu: ggml_cuda_try_fuse @ 0.5.0`).

use plimsoll_model::{Model, Tensor};

use super::formats::{Format, Product};
use super::layer::{LayerTensors, kernels};
use crate::weights::tied_output;
use crate::{CacheKind, DeviceLayout, TensorDevice};

/// Work of one token on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceWork {
    /// Kernels of an answer, in thousandths of one of a narrow norm.
    pub(super) kernels: u64,
    /// Products with dense matrices and with experts in a prompt, and its other kernels in thousandths.
    pub(super) products: u64,
    pub(super) routed_products: u64,
    pub(super) others: u64,
    /// Steps of blocks of threads over the rows of matrices, in thousandths of one of Q4_K.
    pub(super) steps: u64,
    /// Bytes of quantised weights that a token reads, of those that are decoded by a table, and of plain
    /// floats.
    pub(super) weights: u64,
    pub(super) tables: u64,
    pub(super) floats: u64,
    /// Bytes of all matrices, of experts that a token does not use too.
    pub(super) stored: u64,
    /// Operations of the layers' matrices, dense and of experts: two for each weight of Q4_K.
    pub(super) dense: u64,
    pub(super) routed: u64,
    pub(super) attention: Vec<AttentionWork>,
}

/// Attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionWork {
    pub(super) heads: u64,
    pub(super) heads_kv: u64,
    /// Elements of a head's key.
    pub(super) length: u64,
    /// Bytes of the cache for each position: keys and values.
    pub(super) row: u64,
    pub(super) quantised: bool,
    /// The last positions that a sliding layer attends to.
    pub(super) window: Option<u64>,
}

/// Work of one token on all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenWork {
    /// By the position of a card in the layout.
    pub(super) cards: Vec<DeviceWork>,
    pub(super) host: DeviceWork,
    /// Times that the activations pass between devices.
    pub(super) crossings: u64,
    pub(super) vocabulary: u64,
    /// A matrix has a format that no calibration has.
    pub(super) has_unmeasured_format: bool,
}

impl TokenWork {
    pub(super) fn of(model: &Model, layout: &DeviceLayout, cache: CacheKind) -> Self {
        let mut work = Self {
            cards: vec![DeviceWork::default(); layout.devices.len()],
            vocabulary: u64::from(model.hyper.vocabulary),
            ..Self::default()
        };
        let trunk = model.hyper.trunk();
        let mut layers: Vec<LayerTensors<'_>> = (0..trunk).map(|_| LayerTensors::default()).collect();
        for tensor in &model.tensors {
            let layer = tensor.layer().and_then(|layer| layers.get_mut(usize::try_from(layer).ok()?));
            layer.into_iter().for_each(|layer| layer.0.push(tensor));
        }
        for (number, layer) in (0..trunk).zip(&layers) {
            work.layer(model, layout, cache, number, layer);
        }
        let own = model.tensors.iter().find(|tensor| tensor.name == "output.weight");
        if let Some(output) = own.or_else(|| tied_output(model)) {
            work.product(layout.output, output, 1, Product::Single);
        }
        let last = work.device(layout.output);
        last.kernels += kernels::PRODUCT + kernels::ONE;
        work.crossings += boundaries(layout, trunk);
        work
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = &DeviceWork> {
        self.cards.iter().chain([&self.host])
    }

    fn device(&mut self, place: TensorDevice) -> &mut DeviceWork {
        match place {
            TensorDevice::Card(card) => &mut self.cards[usize::from(card)],
            TensorDevice::Host => &mut self.host,
        }
    }

    fn layer(
        &mut self,
        model: &Model,
        layout: &DeviceLayout,
        cache: CacheKind,
        number: u32,
        layer: &LayerTensors<'_>,
    ) {
        let (hyper, place) = (&model.hyper, layout.layer(number));
        let used = hyper.experts.as_ref().map_or(1, |experts| u64::from(experts.used).max(1));
        for tensor in layer.matrices() {
            let [columns, rows, count, _] = tensor.shape;
            let (at, used) = (layout.tensor(tensor), if count > 1 { used.min(count) } else { 1 });
            self.product(at, tensor, used, layer.product(tensor));
            let operations = rows.saturating_mul(columns).saturating_mul(2 * used);
            let operations = (operations / 1000).saturating_mul(Format::of(tensor.kind).prompt);
            let device = self.device(at);
            add(&mut device.stored, tensor.bytes.get());
            let (products, of_kind) = match count > 1 {
                true => (&mut device.routed_products, &mut device.routed),
                false => (&mut device.products, &mut device.dense),
            };
            *products += 1;
            add(of_kind, operations);
            if !layer.is_fused(tensor) {
                if tensor.kind.quantised() {
                    device.kernels += kernels::PRODUCT;
                } else {
                    device.kernels += kernels::FLOATS;
                    device.others += kernels::FLOATS;
                }
            }
        }
        if layer.0.iter().any(|tensor| tensor.is_expert() && layout.tensor(tensor) != place) {
            // There and back.
            self.crossings += 2;
        }
        let attention = layer.attends().then(|| AttentionWork::of(model, cache, number));
        let kernels = layer.kernels(hyper, attention.as_ref());
        let device = self.device(place);
        device.kernels += kernels;
        device.others += kernels;
        add(&mut device.floats, layer.state_bytes(hyper));
        if let Some(attention) = attention {
            self.device(cache.device(place)).attention.push(attention);
        }
    }

    /// Adds the product of one token with a matrix, or with `used` of its experts.
    fn product(&mut self, place: TensorDevice, tensor: &Tensor, used: u64, product: Product) {
        let [columns, rows, count, _] = tensor.shape;
        let format = Format::of(tensor.kind);
        self.has_unmeasured_format |= !format.measured;
        let device = self.device(place);
        let bytes = (tensor.bytes.get() / count.max(1)).saturating_mul(used);
        match format.work(rows, columns, product) {
            None => add(&mut device.floats, bytes),
            Some(steps) => {
                // Each matrix of a pair has half of its work.
                let steps = if product == Product::Pair { steps / 2 } else { steps };
                add(&mut device.steps, steps.saturating_mul(used));
                add(if format.by_table { &mut device.tables } else { &mut device.weights }, bytes);
            }
        }
    }
}

/// Sums saturate, because a hostile header may state any shape.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

impl AttentionWork {
    fn of(model: &Model, cache: CacheKind, layer: u32) -> Self {
        let hyper = &model.hyper;
        let [key, value] = [(cache.key, hyper.key_row(layer)), (cache.value, hyper.value_row(layer))]
            .map(|(kind, elements)| kind.row(elements).unwrap_or_default().get());
        let window = hyper.sliding.as_ref().filter(|_| hyper.slides(layer));
        Self {
            heads: u64::from(hyper.heads.at(layer)),
            heads_kv: u64::from(hyper.heads_kv.at(layer)).max(1),
            length: u64::from(hyper.head_lengths(layer).0),
            row: key.saturating_add(value),
            quantised: cache.key.quantised() || cache.value.quantised(),
            window: window.map(|sliding| u64::from(sliding.window)),
        }
    }
}

/// Places where a layer follows one on another device, and the way to the output.
fn boundaries(layout: &DeviceLayout, layers: u32) -> u64 {
    let places = (0..layers).map(|layer| layout.layer(layer)).chain([layout.output]);
    let next = places.clone().skip(1);
    places.zip(next).map(|(a, b)| u64::from(a != b)).sum()
}
