//! Computes the size of the weights on each device exactly, from the model's header.
//!
//! The size of the weights that the CPU computes with is listed separately.
//!
//! On a card, every tensor starts at a multiple of 128 bytes, and quantised rows are padded to 512 elements.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, Tensor, TensorType};

use crate::layout::is_input;
use crate::request::draft_params;
use crate::{DeviceBytes, DeviceLayout, GraphVariant, PlanError, PlanRequest, Repacking, TensorDevice};

/// `ggml_backend_cuda_buffer_type_get_alignment @ b10605`.
pub(super) const CARD_ALIGNMENT: u64 = 128;
/// `ggml-cpu: TENSOR_ALIGNMENT`.
pub(super) const HOST_ALIGNMENT: u64 = 32;
/// `MATRIX_ROW_PADDING`: kernels read whole blocks of this many elements.
const ROW_PADDING: u64 = 512;

pub(super) fn weights(
    model: &Model,
    layout: &DeviceLayout,
    loads_prediction_layers: bool,
    repacking: &Repacking,
) -> DeviceBytes {
    let mut weights = DeviceBytes::none(layout);
    let mut add = |place: TensorDevice, tensor: &Tensor| {
        weights.add(place, tensor.bytes, row_padding(tensor.kind, tensor.shape[0]));
    };
    for tensor in model.tensors.iter().filter(|tensor| is_loaded(model, tensor, loads_prediction_layers)) {
        if tensor.layer().is_none() && is_rope_factor(&tensor.name) {
            // TENSOR_DUPLICATED: every device with a layer has its own copy.
            let mut places: Vec<_> = (0..model.hyper.layers).map(|layer| layout.layer(layer)).collect();
            // A device has its layers in one piece.
            places.dedup();
            places.into_iter().for_each(|place| add(place, tensor));
        } else {
            add(layout.tensor(tensor), tensor);
        }
    }
    if let Some(tied) = tied_output(model) {
        // Two uses in one kind of buffer are one tensor (`llama-model.cpp:create_tensor, TENSOR_DUPLICATED @
        // b10605`).
        let is_shared = (layout.tensor(tied), layout.output) == (TensorDevice::Host, TensorDevice::Host);
        if !is_shared || repacking.copies(tied) {
            add(layout.output, tied);
        }
    }
    weights
}

/// False for the prediction layers of a model that is loaded without them.
pub(super) fn is_loaded(model: &Model, tensor: &Tensor, loads_prediction_layers: bool) -> bool {
    let ends = model.hyper.layers.saturating_sub(model.hyper.nextn_layers);
    loads_prediction_layers || tensor.layer().is_none_or(|layer| layer < ends)
}

/// The token embedding where it also serves as the output matrix, which makes it a second tensor on the
/// output's device. Encoders have none, except one that loads it all the same (`gemma-embedding.cpp:
/// load_arch_tensors @ b10605`).
pub(super) fn tied_output(model: &Model) -> Option<&Tensor> {
    let find = |name: &str| model.tensors.iter().find(|tensor| tensor.name == name);
    let loads_output = model.hyper.cached || GraphVariant::of(model, false).loads_output;
    let is_tied = loads_output && find("output.weight").is_none();
    is_tied.then(|| find("token_embd.weight")).flatten()
}

/// Bytes of a tensor in a card's buffer.
pub(super) fn on_card(tensor: &Tensor) -> Bytes {
    // `ggml_backend_alloc_ctx_tensors_from_buft`, `ggml_backend_cuda_buffer_type_get_alloc_size @ b10605`.
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

/// Bytes of weights of the model and its draft that the host computes with.
pub fn computed_on_host(request: &PlanRequest<'_>) -> Result<Bytes, PlanError> {
    let own = host_weights(request, request.model)?;
    let Some(draft) = request.draft else { return Ok(own) };
    // A draft model has flags of its own for layers and overrides.
    let params = draft_params(request.params);
    let request = PlanRequest { params: &params, ..*request };
    Ok(own + host_weights(&request, draft)?)
}

fn host_weights(request: &PlanRequest<'_>, model: &Model) -> Result<Bytes, PlanError> {
    // Tables of the input layer (`LLM_TENSOR_LAYER_INPUT @ b10605`) do not count: a token reads one row of
    // them.
    let layout = DeviceLayout::new(request, model)?;
    let on_host = |tensor: &&Tensor| !is_input(&tensor.name) && layout.tensor(tensor) == TensorDevice::Host;
    Ok(model.tensors.iter().filter(on_host).map(|tensor| tensor.bytes).sum())
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::{Options, ProgramKind};
    use plimsoll_model::Dialect;
    use plimsoll_model::gguf::Header;

    use super::*;
    use crate::EngineBuild;

    fn on_host(flags: &[&str]) -> Bytes {
        let file = plimsoll_specimens::shape("q30").unwrap().files(1).remove(0);
        let bytes = file.header();
        let length = u64::try_from(bytes.len()).unwrap() + file.data_length().get();
        let header = Header::read(&bytes, length, Dialect::Ggml).unwrap();
        let model = Model::from_headers(&[header]).unwrap();
        let words: Vec<String> = flags.iter().map(|word| (*word).to_owned()).collect();
        let params = Options::from_argv(&words).unwrap().params(ProgramKind::LlamaServer).unwrap();
        let card = "name=Orin,total=8GiB,cc=8.7".parse().unwrap();
        computed_on_host(&PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            params: &params,
            engine: EngineBuild::LLAMA_CPP,
            program: ProgramKind::LlamaServer,
            cards: &[card],
            contexts: &[],
            processor: None,
        })
        .unwrap()
    }

    #[test]
    fn layers_and_experts_on_the_host_are_counted_and_input_tables_are_not() {
        assert_eq!(on_host(&["-ngl", "99"]), Bytes::ZERO);
        assert_eq!(on_host(&[]), Bytes::ZERO);
        let (one, half, none) = (on_host(&["-ngl", "48"]), on_host(&["-ngl", "24"]), on_host(&["-ngl", "0"]));
        assert!(Bytes::ZERO < one && one < half && half < none, "{one} {half} {none}");
        assert!(on_host(&["--n-cpu-moe", "1"]) > Bytes::mib(100));
        assert!(on_host(&["-ot", "blk\\.7\\.=CPU"]) > Bytes::mib(100));
        assert_eq!(on_host(&["-dev", "none"]), none);
    }
}
