//! Tests of GGUF headers with a single false statement, each answered by the error that names it.

use plimsoll_model::gguf::{Datum, DraftHeader, DraftTensor, GgufError, Header, ValueType};
use plimsoll_model::types::F32;
use plimsoll_model::{Dialect, Model, ModelError};

use super::{model, part, read, sound, tensor};

/// The sound header with one lie.
fn lie(change: impl FnOnce(&mut DraftHeader)) -> Vec<u8> {
    let mut draft = sound();
    change(&mut draft);
    draft.header()
}

/// Replaces the first `from` in `bytes`.
fn patched(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes.splice(at..at + from.len(), to.iter().copied());
    bytes
}

/// The number that a `u64` after `name` holds, replaced.
fn after(bytes: Vec<u8>, name: &[u8], skip: usize, to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len() + skip;
    let mut bytes = bytes;
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

macro_rules! refused {
    ($bytes:expr, $error:pat) => {
        let bytes = $bytes;
        let result = model(&bytes);
        assert!(matches!(result, Err($error)), "{result:?}");
    };
}

#[test]
fn lies_about_the_file_are_named() {
    refused!(patched(sound().header(), b"GGUF", b"GGML"), ModelError::Key(GgufError::Magic { .. }));
    refused!(lie(|draft| draft.version = 1), ModelError::Key(GgufError::Version { version: 1 }));
    refused!(lie(|draft| draft.version = 4), ModelError::Key(GgufError::Version { version: 4 }));
    let mut counts = sound().header();
    counts[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    refused!(counts, ModelError::Key(GgufError::FileEnds { .. }));
    for alignment in [0_u32, 3, 48, u32::MAX] {
        refused!(
            lie(|draft| draft.entries[1].1 = alignment.into()),
            ModelError::Key(GgufError::Alignment { .. })
        );
    }
    refused!(lie(|draft| draft.entries[1].1 = 32_u16.into()), ModelError::Key(GgufError::Alignment { .. }));
}

#[test]
fn lies_about_keys_are_named() {
    refused!(lie(|draft| draft.put("", 1_u32)), ModelError::Key(GgufError::EmptyKey { .. }));
    refused!(
        lie(|draft| draft.put("general.alignment", 1_u32)),
        ModelError::Key(GgufError::DuplicateKey { .. })
    );
    let scores = b"tokenizer.ggml.scores";
    let nested = after(sound().header(), scores, 4, &9_u32.to_le_bytes());
    refused!(nested, ModelError::Key(GgufError::NestedArray { .. }));
    let unknown = after(sound().header(), scores, 0, &13_u32.to_le_bytes());
    refused!(unknown, ModelError::Key(GgufError::ValueType { id: 13, .. }));
    let many = after(sound().header(), scores, 8, &(1_u64 << 31).to_le_bytes());
    refused!(many, ModelError::Key(GgufError::TooLong { .. }));
    let long = after(sound().header(), b"general.architecture", 4, &u64::MAX.to_le_bytes());
    refused!(long, ModelError::Key(GgufError::TooLong { .. }));
    let beyond = after(sound().header(), b"general.architecture", 4, &(1_u64 << 29).to_le_bytes());
    refused!(beyond, ModelError::Key(GgufError::FileEnds { .. }));
    let not_text = patched(sound().header(), b"general.al", b"general.\xff\xff");
    refused!(not_text, ModelError::Key(GgufError::NotUtf8 { .. }));
}

#[test]
fn a_header_without_end_is_not_read_on() {
    let bytes = after(sound().header(), b"general.architecture", 4, &(1_u64 << 29).to_le_bytes());
    let result = Header::read(&bytes, u64::MAX, Dialect::Ggml);
    assert!(matches!(result, Err(GgufError::HeaderTooLong { .. })), "{result:?}");
}

#[test]
fn lies_about_tensors_are_named() {
    let with = |tensor: DraftTensor| lie(|draft| draft.tensors.push(tensor));
    refused!(with(tensor(&"x".repeat(64), &[32])), ModelError::Key(GgufError::TensorNameTooLong { .. }));
    refused!(with(tensor("token_embd.weight", &[32])), ModelError::Key(GgufError::DuplicateTensor { .. }));
    refused!(with(tensor("token_embd.weight\0x", &[32])), ModelError::Key(GgufError::DuplicateTensor { .. }));
    refused!(
        with(tensor("t", &[32, 1, 1, 1, 1])),
        ModelError::Key(GgufError::Dimensions { dimensions: 5, .. })
    );
    refused!(with(tensor("t", &[33])), ModelError::Key(GgufError::RowLength { row: 33, block: 32, .. }));
    refused!(with(tensor("t", &[1 << 40, 1 << 40])), ModelError::Key(GgufError::Shape { .. }));
    refused!(with(tensor("t", &[32, u64::MAX])), ModelError::Key(GgufError::Shape { .. }));
    refused!(with(tensor("t", &[1 << 21])), ModelError::Key(GgufError::TensorPastEnd { .. }));
    let mut wide = tensor("t", &[1 << 61]);
    wide.kind = F32;
    refused!(with(wide), ModelError::Key(GgufError::Shape { .. } | GgufError::TensorPastEnd { .. }));
    let kind = after(sound().header(), b"token_embd.weight", 20, &4_u32.to_le_bytes());
    refused!(kind, ModelError::Key(GgufError::TensorType { id: 4, .. }));
    for offset in [1_u64, 32, u64::MAX] {
        let moved = after(sound().header(), b"token_embd.weight", 24, &offset.to_le_bytes());
        refused!(moved, ModelError::Key(GgufError::TensorOffset { expected: 0, .. }));
    }
    let overlapping = after(sound().header(), b"blk.0.ffn_down_exps.weight", 32, &0_u64.to_le_bytes());
    refused!(overlapping, ModelError::Key(GgufError::TensorOffset { found: 0, expected: 544, .. }));
}

/// llama.cpp accepts these, so they are no lies.
#[test]
fn headers_valid_in_llama_cpp_are_accepted() {
    let with = |tensor: DraftTensor| lie(|draft| draft.tensors.push(tensor));
    for header in [
        with(tensor("empty", &[0, 7])),
        with(DraftTensor { name: "scalar".to_owned(), kind: F32, shape: vec![] }),
        lie(|draft| draft.put("not.text", Datum::Text(vec![0xff, 0xfe]))),
        lie(|draft| draft.put("no.words", Datum::Texts(vec![]))),
        lie(|draft| draft.put("gemma4.not.ours", 1.5_f32)),
    ] {
        assert!(model(&header).is_ok(), "{:?}", model(&header));
    }
}

#[test]
fn lies_about_layers_are_named() {
    let state = |key: &str, datum: Datum| {
        lie(|draft| {
            let entry = draft.entries.iter_mut().find(|(name, _)| name.ends_with(key)).unwrap();
            entry.1 = datum;
        })
    };
    refused!(state("block_count", 0_u32.into()), ModelError::Layers { layers: 0, .. });
    refused!(state("block_count", u32::MAX.into()), ModelError::Layers { .. });
    refused!(state("block_count", "many".into()), ModelError::Key(GgufError::WrongValue { .. }));
    refused!(state("nextn_predict_layers", 5_u32.into()), ModelError::Layers { nextn_layers: 5, .. });
    refused!(
        state("head_count_kv", Datum::Numbers(ValueType::I32, vec![1, 1])),
        ModelError::ListLength { expected: 4, found: 2, .. }
    );
    refused!(
        state("head_count_kv", Datum::Numbers(ValueType::F32, vec![0; 4])),
        ModelError::ListValue { .. }
    );
    refused!(
        state("head_count_kv", Datum::Numbers(ValueType::I64, vec![1, 1, 1, u64::MAX])),
        ModelError::ListValue { .. }
    );
    refused!(lie(|draft| drop(draft.entries.remove(0))), ModelError::MissingKey { .. });
}

#[test]
fn a_set_must_be_whole_and_in_order() {
    let (first, second) = (part(0).header(), part(1).header());
    let join = |files: &[&Vec<u8>]| {
        let headers: Vec<Header<'_>> = files.iter().map(|bytes| read(bytes).unwrap()).collect();
        Model::from_headers(&headers)
    };
    let joined = join(&[&first, &second]).unwrap();
    assert_eq!((joined.tensors.len(), joined.tensors[1].file), (2, 1));
    assert!(matches!(join(&[]), Err(ModelError::NoFile)));
    assert!(matches!(join(&[&first]), Err(ModelError::FileCount { stated: 2, given: 1 })));
    assert!(matches!(join(&[&second, &first]), Err(ModelError::FileNumber { expected: 1, .. })));
    assert!(matches!(join(&[&first, &first]), Err(ModelError::FileNumber { expected: 2, .. })));
    let mut again = part(1);
    again.tensors = part(0).tensors;
    assert!(matches!(join(&[&first, &again.header()]), Err(ModelError::DuplicateTensor { file: 2, .. })));
    let mut more = part(1);
    more.tensors.push(tensor("extra", &[32]));
    assert!(matches!(join(&[&first, &more.header()]), Err(ModelError::TensorCount { stated: 2, found: 3 })));
    let mut other = part(1);
    other.entries.iter_mut().find(|(key, _)| key == "split.count").unwrap().1 = 3_u16.into();
    assert!(matches!(join(&[&first, &other.header()]), Err(ModelError::FileNumber { stated_count: 3, .. })));
}
