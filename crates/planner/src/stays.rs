//! Weights that stay where the file is read: on the host.
//!
//! An engine that maps its file reads these from the page cache while it computes. The tables of the input stay there too,
//! whatever the flags say (`llama-arch.cpp: LLM_TENSOR_LAYER_INPUT @ b10605`), but only a row of them is read for each token, so
//! they are not counted.

use plimsoll_base::Bytes;
use plimsoll_model::Model;

use super::cost::draft_wish;
use super::error::PlanError;
use super::layout::{DeviceLayout, TensorDevice, is_input};
use super::request::PlanRequest;

/// Bytes of weights of the model and its draft that are computed with on the host.
pub fn computed_on_host(request: &PlanRequest<'_>) -> Result<Bytes, PlanError> {
    let own = of(request, request.model)?;
    let Some(draft) = request.draft else {
        return Ok(own);
    };
    let wish = draft_wish(request.wish);
    let request = PlanRequest {
        wish: &wish,
        ..*request
    };
    Ok(own + of(&request, draft)?)
}

fn of(request: &PlanRequest<'_>, model: &Model) -> Result<Bytes, PlanError> {
    let layout = DeviceLayout::new(request, model)?;
    let stays = model
        .tensors
        .iter()
        .filter(|tensor| !is_input(&tensor.name) && layout.tensor(tensor) == TensorDevice::Host);
    Ok(stays.map(|tensor| tensor.bytes).sum())
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::{Options, Program};
    use plimsoll_model::Dialect;
    use plimsoll_model::gguf::Header;

    use super::*;
    use crate::Engine;

    fn on_host(flags: &[&str]) -> Bytes {
        let file = plimsoll_specimens::shape("q30").unwrap().files(1).remove(0);
        let bytes = file.header();
        let length = u64::try_from(bytes.len()).unwrap() + file.data_length().get();
        let header = Header::read(&bytes, length, Dialect::Ggml).unwrap();
        let model = Model::from_headers(&[header]).unwrap();
        let words: Vec<String> = flags.iter().map(|word| (*word).to_owned()).collect();
        let wish = Options::from_argv(&words)
            .unwrap()
            .wish(Program::LlamaServer)
            .unwrap();
        let card = "name=Orin,total=8GiB,cc=8.7".parse().unwrap();
        computed_on_host(&PlanRequest {
            model: &model,
            draft: None,
            projector: None,
            wish: &wish,
            engine: Engine::LLAMA_CPP,
            program: Program::LlamaServer,
            cards: &[card],
            contexts: &[],
        })
        .unwrap()
    }

    #[test]
    fn layers_and_experts_that_stay_are_counted_and_tables_of_the_input_are_not() {
        assert_eq!(on_host(&["-ngl", "99"]), Bytes::ZERO);
        assert_eq!(on_host(&[]), Bytes::ZERO);
        let (one, half, none) = (
            on_host(&["-ngl", "48"]),
            on_host(&["-ngl", "24"]),
            on_host(&["-ngl", "0"]),
        );
        assert!(
            Bytes::ZERO < one && one < half && half < none,
            "{one} {half} {none}"
        );
        assert!(on_host(&["--n-cpu-moe", "1"]) > Bytes::mib(100));
        assert!(on_host(&["-ot", "blk\\.7\\.=CPU"]) > Bytes::mib(100));
        assert_eq!(on_host(&["-dev", "none"]), none);
    }
}
