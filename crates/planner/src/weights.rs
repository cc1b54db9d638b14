//! Weights: exact from the header.
//!
//! Mirrors `ggml-alloc.c: ggml_backend_alloc_ctx_tensors_from_buft` and
//! `ggml-cuda.cu: ggml_backend_cuda_buffer_type_get_alloc_size @ b10605`: on a card every tensor starts at a
//! multiple of 128 bytes and quantised rows are padded to 512 elements. A model without an output matrix has its
//! token embedding a second time, on the output's device.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, Tensor};

use super::layout::{DeviceLayout, TensorDevice, is_input};

/// `ggml_backend_cuda_buffer_type_get_alignment @ b10605`.
pub(super) const CARD_ALIGNMENT: u64 = 128;
/// `ggml-cpu: TENSOR_ALIGNMENT`.
pub(super) const HOST_ALIGNMENT: u64 = 32;
/// `MATRIX_ROW_PADDING`.
const ROW_PADDING: u64 = 512;

/// Bytes of weights by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Weights {
    pub(super) devices: Vec<Bytes>,
    pub(super) host: Bytes,
}

impl Weights {
    fn add(&mut self, place: TensorDevice, tensor: &Tensor) {
        match place {
            TensorDevice::Host => self.host += tensor.bytes.padded(HOST_ALIGNMENT),
            TensorDevice::Card(device) => self.devices[usize::from(device)] += on_card(tensor),
        }
    }
}

pub(super) fn weights(model: &Model, layout: &DeviceLayout, loads_prediction_layers: bool) -> Weights {
    let mut weights = Weights {
        devices: vec![Bytes::ZERO; layout.devices.len()],
        host: Bytes::ZERO,
    };
    let ends = model.hyper.layers.saturating_sub(model.hyper.nextn_layers);
    let loaded =
        |tensor: &&Tensor| loads_prediction_layers || tensor.layer().is_none_or(|layer| layer < ends);
    for tensor in model.tensors.iter().filter(loaded) {
        if tensor.layer().is_none() && is_rope_factor(&tensor.name) {
            for place in places_with_layers(layout, model.hyper.layers) {
                weights.add(place, tensor);
            }
        } else {
            weights.add(layout.tensor(tensor), tensor);
        }
    }
    if let Some(tied) = tied_output(model) {
        weights.add(layout.output, tied);
    }
    weights
}

/// The token embedding where it also serves as the output matrix. Encoders have none, but for one that loads it all the
/// same (`gemma-embedding.cpp: load_arch_tensors @ b10605`).
pub(super) fn tied_output(model: &Model) -> Option<&Tensor> {
    let has_output = model.tensors.iter().any(|tensor| tensor.name == "output.weight");
    let loads_output = model.hyper.cached || model.architecture == "gemma-embedding";
    if has_output || !loads_output {
        return None;
    }
    model
        .tensors
        .iter()
        .find(|tensor| tensor.name == "token_embd.weight" && is_input(&tensor.name))
}

/// Bytes of a tensor in a card's buffer.
pub(super) fn on_card(tensor: &Tensor) -> Bytes {
    (tensor.bytes + row_padding(tensor.kind, tensor.shape[0])).padded(CARD_ALIGNMENT)
}

/// What a card adds to a tensor whose quantised rows of `elements` are no multiple of 512.
pub(super) fn row_padding(kind: plimsoll_model::TensorType, elements: u64) -> Bytes {
    match elements % ROW_PADDING {
        0 => Bytes::ZERO,
        _ if !kind.quantised() => Bytes::ZERO,
        rest => kind.row(ROW_PADDING - rest).unwrap_or_default(),
    }
}

/// Rope factors are duplicated to every device that has a layer (`TENSOR_DUPLICATED`).
fn is_rope_factor(name: &str) -> bool {
    name.starts_with("rope_freqs.") || name.starts_with("rope_factors_")
}

fn places_with_layers(layout: &DeviceLayout, layers: u32) -> Vec<TensorDevice> {
    let mut places: Vec<TensorDevice> = Vec::new();
    for place in (0..layers).map(|layer| layout.layer(layer)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}
