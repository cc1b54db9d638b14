//! Tests that synthetic headers of further architectures have the parameter count of the real model.

use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model};
use plimsoll_specimens::{million_parameters, specimen, specimens};

fn model(name: &str) -> Model {
    let draft = specimen(name).unwrap();
    let bytes = draft.header();
    let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
}

#[test]
fn every_specimen_has_its_models_parameters() {
    for (name, _) in specimens() {
        let Some(millions) = million_parameters(name) else { continue };
        let model = model(name);
        let count: u64 = model.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        let found = count / 1_000_000;
        assert!(found.abs_diff(millions) <= millions / 200 + 1, "{name}: {found} million");
        assert!(model.hyper.known, "{name}");
    }
}
