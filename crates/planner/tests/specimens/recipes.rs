//! Tests of the tables from which synthetic models are made, and of the weights that they produce.

use plimsoll_base::Bytes;
use plimsoll_model::gguf::{DraftHeader, Header};
use plimsoll_model::tiny::half;
use plimsoll_model::{Dialect, Model, Tensor};
use plimsoll_specimens::{Recipe, SHAPES, encode_q4_0, shape};

fn model(recipe: &Recipe, count: u16) -> Model {
    let drafts = recipe.files(count);
    let headers: Vec<Vec<u8>> = drafts.iter().map(DraftHeader::header).collect();
    let read = |(bytes, draft): (_, &DraftHeader)| {
        let bytes: &Vec<u8> = bytes;
        let length = Bytes::new(u64::try_from(bytes.len()).unwrap()) + draft.data_length();
        Header::read(bytes, length.get(), Dialect::Ggml).unwrap()
    };
    let mut read_all = Vec::new();
    for pair in headers.iter().zip(&drafts) {
        read_all.push(read(pair));
    }
    Model::from_headers(&read_all).unwrap()
}

/// What llama.cpp puts on a CUDA card and what it leaves to the host, in whole MiB rounded down: 128-byte
/// alignment, and quantised rows padded to 512 elements (`ggml-cuda.cu: get_alloc_size @ b10605`).
fn weights(model: &Model) -> (u64, u64) {
    let on_card = |tensor: &Tensor| {
        let tail = (512 - tensor.shape[0] % 512) % 512;
        let padding = tensor.kind.row(tail).filter(|_| tensor.kind.quantised()).unwrap_or_default();
        (tensor.bytes + padding).padded(128)
    };
    let (host, card): (Vec<_>, Vec<_>) =
        model.tensors.iter().partition(|tensor| tensor.name == "token_embd.weight");
    let card: Bytes = card.into_iter().map(on_card).sum();
    let host: Bytes = host.into_iter().map(|tensor| tensor.bytes).sum();
    (card.get() >> 20, host.get() >> 20)
}

#[test]
fn the_measured_shapes_weigh_what_was_measured() {
    for (name, card, host) in [("l8", 4650, 281), ("q30", 30_658, 315), ("oss", 10_949, 586)] {
        let model = model(&shape(name).unwrap(), 1);
        assert_eq!(weights(&model), (card, host), "{name}");
    }
}

#[test]
fn every_shape_is_a_model_that_is_known() {
    for (name, _) in SHAPES {
        let recipe = shape(name).unwrap();
        let model = model(&recipe, 1);
        assert!(model.hyper.known, "{name}");
        assert_eq!(model.hyper.layers, recipe.layers);
        assert_eq!(model.name.as_deref(), Some(*name));
    }
}

#[test]
fn a_trillion_parameters_keep_one_latent_vector_a_token() {
    let model = model(&shape("kimi-k2").unwrap(), 1);
    assert_eq!((model.hyper.key_row(7), model.hyper.value_row(7)), (576, 0));
    let parameters: u64 = model.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
    assert_eq!(parameters / 1_000_000_000, 1026);
}

#[test]
fn files_of_a_set_make_the_same_model() {
    let recipe = shape("llama-70b").unwrap();
    let whole = model(&recipe, 1);
    let parts = model(&recipe, 6);
    assert_eq!(parts.hyper, whole.hyper);
    let names = |model: &Model| model.tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&parts), names(&whole));
    for file in recipe.files(6) {
        let share = file.data_length().whole_mib();
        assert!((5_000..8_000).contains(&share), "{share}");
    }
}

#[test]
fn weights_have_the_length_that_the_header_says() {
    for name in ["tiny", "tiny-embed"] {
        let recipe = shape(name).unwrap();
        for tensor in &recipe.files(1)[0].tensors {
            let length: usize = recipe.weights(tensor).map(|piece| piece.len()).sum();
            assert_eq!(Bytes::new(u64::try_from(length).unwrap()), tensor.bytes(), "{}", tensor.name);
        }
    }
}

#[test]
fn the_tiny_shape_is_the_tiny_model_of_the_product() {
    let recipe = shape("tiny").unwrap();
    let draft = &recipe.files(1)[0];
    let tiny = plimsoll_model::tiny::TinyModel::default();
    assert_eq!(*draft, tiny.header());
    let data: Vec<u8> = draft.tensors.iter().flat_map(|tensor| recipe.weights(tensor)).flatten().collect();
    let file = tiny.file();
    assert_eq!(file[draft.header().len()..][..data.len()], data);
}

#[test]
fn weights_are_the_same_each_time_and_differ_between_models() {
    let (tiny, other) = (shape("tiny").unwrap(), shape("tiny-embed").unwrap());
    let tensor = &tiny.files(1)[0].tensors[0];
    let data = |recipe: &Recipe| recipe.weights(tensor).flatten().collect::<Vec<u8>>();
    assert_eq!(data(&tiny), data(&tiny));
    assert_ne!(data(&tiny), data(&other));
}

#[test]
fn a_block_of_q4_0_is_its_scale_and_shares() {
    let mut block = [0.0_f32; 32];
    block[0] = -16.0;
    block[1] = 14.0;
    block[16] = 2.0;
    let mut bytes = Vec::new();
    encode_q4_0(&block, &mut bytes);
    assert_eq!(bytes.len(), 18);
    assert_eq!(bytes[..2], half(2.0).to_le_bytes());
    assert_eq!(bytes[2..5], [0x90, 0x8f, 0x88]);
    bytes.clear();
    encode_q4_0(&[0.0; 32], &mut bytes);
    assert_eq!(bytes[..3], [0, 0x80, 0x88]);
}
