//! Fuzz test of the GGUF header reader with mutated headers: it never panics.

use plimsoll_fuzz::mutants;
use plimsoll_model::gguf::{Datum, DraftHeader, DraftTensor, Header, ValueType};
use plimsoll_model::types::Q8_0;
use plimsoll_model::{Dialect, Model};

/// A small model with experts, a window, per-layer lists and a vocabulary.
fn sound(version: u32, big_endian: bool) -> Vec<u8> {
    let mut draft = DraftHeader { version, big_endian, ..DraftHeader::default() };
    draft.put("general.architecture", "gemma4");
    for (key, number) in [
        ("block_count", 4_u32),
        ("context_length", 4096),
        ("embedding_length", 64),
        ("feed_forward_length", 128),
        ("attention.head_count", 4),
        ("attention.sliding_window", 512),
        ("expert_count", 8),
        ("ssm.state_size", 16),
    ] {
        draft.put(format!("gemma4.{key}"), number);
    }
    draft.put("gemma4.attention.head_count_kv", Datum::Numbers(ValueType::I32, vec![2, 2, 0, 2]));
    let tokens = (0..4).map(|number| format!("token{number}").into_bytes());
    draft.put("tokenizer.ggml.tokens", Datum::Texts(tokens.collect()));
    let tensor =
        |name: &str, shape: &[u64]| DraftTensor { name: name.to_owned(), kind: Q8_0, shape: shape.to_vec() };
    draft.tensors =
        vec![tensor("token_embd.weight", &[64, 8]), tensor("blk.0.ffn_down_exps.weight", &[32, 2, 8])];
    draft.header()
}

#[test]
fn million_model_headers() {
    let seeds = [sound(3, false), sound(2, false), sound(3, true)];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let tokens: [&[u8]; 8] = [
        b"GGUF",
        b"gemma4.block_count",
        b"general.architecture",
        b"split.count",
        &[9, 0, 0, 0, 9, 0, 0, 0],
        &[255, 255, 255, 255, 255, 255, 255, 127],
        &[8, 0, 0, 0],
        b"blk.3.attn_q.weight",
    ];
    mutants(&seeds, &tokens, |mutant| {
        for dialect in [Dialect::Ggml, Dialect::Ik] {
            if let Ok(header) = Header::read(mutant, 1 << 40, dialect) {
                let _ = Model::from_headers(&[header]);
            }
        }
    });
}
