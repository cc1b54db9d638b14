//! Size of the weights on each device, computed exactly from the model's header.
//!
//! On a card, every tensor starts at a multiple of 128 bytes, and quantised rows are padded to 512 elements.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, Tensor, TensorType};

use super::architecture::GraphVariant;
use super::layout::{DeviceBytes, DeviceLayout, TensorDevice};

/// `ggml_backend_cuda_buffer_type_get_alignment @ b10605`.
pub(super) const CARD_ALIGNMENT: u64 = 128;
/// `ggml-cpu: TENSOR_ALIGNMENT`.
pub(super) const HOST_ALIGNMENT: u64 = 32;
/// `MATRIX_ROW_PADDING`: kernels read whole blocks of this many elements.
const ROW_PADDING: u64 = 512;

pub(super) fn weights(model: &Model, layout: &DeviceLayout, loads_prediction_layers: bool) -> DeviceBytes {
    let mut weights = DeviceBytes::none(layout);
    let mut add = |place: TensorDevice, tensor: &Tensor| {
        *weights.at(place) += match place {
            TensorDevice::Host => tensor.bytes.padded(HOST_ALIGNMENT),
            TensorDevice::Card(_) => on_card(tensor),
        };
    };
    let ends = model.hyper.layers.saturating_sub(model.hyper.nextn_layers);
    let loaded =
        |tensor: &&Tensor| loads_prediction_layers || tensor.layer().is_none_or(|layer| layer < ends);
    for tensor in model.tensors.iter().filter(loaded) {
        if tensor.layer().is_none() && is_rope_factor(&tensor.name) {
            // TENSOR_DUPLICATED: every device with a layer has its own copy.
            for place in places_with_layers(layout, model.hyper.layers) {
                add(place, tensor);
            }
        } else {
            add(layout.tensor(tensor), tensor);
        }
    }
    if let Some(tied) = tied_output(model) {
        add(layout.output, tied);
    }
    weights
}

/// The token embedding where it also serves as the output matrix, which makes it a second tensor on the output's device.
/// Encoders have none, except one that loads it all the same (`gemma-embedding.cpp: load_arch_tensors @ b10605`).
fn tied_output(model: &Model) -> Option<&Tensor> {
    let find = |name: &str| model.tensors.iter().find(|tensor| tensor.name == name);
    let loads_output = model.hyper.cached || GraphVariant::of(model, false).loads_output;
    match find("output.weight") {
        None if loads_output => find("token_embd.weight"),
        _ => None,
    }
}

/// Bytes of a tensor in a card's buffer.
pub(super) fn on_card(tensor: &Tensor) -> Bytes {
    // `ggml-alloc.c: ggml_backend_alloc_ctx_tensors_from_buft`, `ggml-cuda.cu:
    // ggml_backend_cuda_buffer_type_get_alloc_size @ b10605`.
    (tensor.bytes + row_padding(tensor.kind, tensor.shape[0])).padded(CARD_ALIGNMENT)
}

/// Padding that a card adds to a tensor whose quantised rows of `elements` are no multiple of 512.
pub(super) fn row_padding(kind: TensorType, elements: u64) -> Bytes {
    match elements % ROW_PADDING {
        0 => Bytes::ZERO,
        _ if !kind.quantised() => Bytes::ZERO,
        // Added once, at the end of the tensor, so that a kernel may read beyond its last row.
        rest => kind.row(ROW_PADDING - rest).unwrap_or_default(),
    }
}

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
