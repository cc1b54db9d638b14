//! Weights that stay in host memory, where the CPU computes with them.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, Tensor};

use super::cost::draft_wish;
use super::error::PlanError;
use super::layout::{DeviceLayout, TensorDevice, is_input};
use super::request::PlanRequest;

/// Bytes of weights of the model and its draft that the host computes with.
pub fn computed_on_host(request: &PlanRequest<'_>) -> Result<Bytes, PlanError> {
    let own = host_weights(request, request.model)?;
    let Some(draft) = request.draft else {
        return Ok(own);
    };
    // A draft model has flags of its own for layers and overrides.
    let wish = draft_wish(request.wish);
    let request = PlanRequest { wish: &wish, ..*request };
    Ok(own + host_weights(&request, draft)?)
}

fn host_weights(request: &PlanRequest<'_>, model: &Model) -> Result<Bytes, PlanError> {
    // Tables of the input layer (`llama-arch.cpp: LLM_TENSOR_LAYER_INPUT @ b10605`) are not counted, because
    // each token reads only one row of them.
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
        let wish = Options::from_argv(&words).unwrap().wish(ProgramKind::LlamaServer).unwrap();
        let card = "name=Orin,total=8GiB,cc=8.7".parse().unwrap();
        computed_on_host(&PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            wish: &wish,
            engine: EngineBuild::LLAMA_CPP,
            program: ProgramKind::LlamaServer,
            cards: &[card],
            contexts: &[],
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
