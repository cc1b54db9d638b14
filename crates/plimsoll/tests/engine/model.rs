//! Writes a small model that a real llama.cpp can load, chat and embed with: two layers, byte vocabulary, 0.4
//! MB.

use std::fs;
use std::path::Path;

const EMBEDDING: u64 = 64;
const FEED_FORWARD: u64 = 128;
const KEY_VALUE: u64 = 32;
const LAYERS: u32 = 2;
const HEADS: u32 = 4;
const KEY_VALUE_HEADS: u32 = 2;
const CONTEXT: u32 = 4096;
/// `<unk>`, `<s>`, `</s>` and the 256 bytes.
const VOCABULARY: u64 = 259;

/// Types of metadata values (`gguf.h: gguf_type @ b10605`).
const UINT32: u32 = 4;
const INT32: u32 = 5;
const FLOAT32: u32 = 6;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
/// Kinds of tokens (`llama.h: llama_token_type @ b10605`).
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

pub(crate) fn write(path: &Path) {
    let tensors = tensors();
    let metadata = metadata();
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend(len(&tensors).to_le_bytes());
    file.extend(len(&metadata).to_le_bytes());
    file.extend(metadata.concat());
    let mut weights = Weights::default();
    for (name, shape) in &tensors {
        file.extend(string(name));
        file.extend(u32::try_from(shape.len()).unwrap().to_le_bytes());
        file.extend(shape.iter().flat_map(|extent| extent.to_le_bytes()));
        file.extend(0_u32.to_le_bytes());
        file.extend(len(&weights.bytes).to_le_bytes());
        weights.add(shape);
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(weights.bytes);
    fs::write(path, file).unwrap();
}

fn metadata() -> Vec<Vec<u8>> {
    let number = |key: &str, value: u32| entry(key, UINT32, &value.to_le_bytes());
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain(bytes).collect();
    let kinds = [UNKNOWN, CONTROL, CONTROL].into_iter().chain([BYTE; 256]);
    vec![
        entry("general.architecture", STRING, &string("llama")),
        number("llama.block_count", LAYERS),
        number("llama.context_length", CONTEXT),
        number("llama.embedding_length", u32::try_from(EMBEDDING).unwrap()),
        number("llama.feed_forward_length", u32::try_from(FEED_FORWARD).unwrap()),
        number("llama.attention.head_count", HEADS),
        number("llama.attention.head_count_kv", KEY_VALUE_HEADS),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, &1e-5_f32.to_le_bytes()),
        entry("tokenizer.ggml.model", STRING, &string("llama")),
        entry("tokenizer.ggml.tokens", ARRAY, &array(STRING, tokens.iter().map(|token| string(token)))),
        entry(
            "tokenizer.ggml.token_type",
            ARRAY,
            &array(INT32, kinds.map(|kind| kind.to_le_bytes().to_vec())),
        ),
    ]
}

fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut all = vec![
        ("token_embd.weight".to_owned(), vec![EMBEDDING, VOCABULARY]),
        ("output.weight".to_owned(), vec![EMBEDDING, VOCABULARY]),
        ("output_norm.weight".to_owned(), vec![EMBEDDING]),
    ];
    for layer in 0..LAYERS {
        let shapes = [
            ("attn_norm", vec![EMBEDDING]),
            ("attn_q", vec![EMBEDDING, EMBEDDING]),
            ("attn_k", vec![EMBEDDING, KEY_VALUE]),
            ("attn_v", vec![EMBEDDING, KEY_VALUE]),
            ("attn_output", vec![EMBEDDING, EMBEDDING]),
            ("ffn_norm", vec![EMBEDDING]),
            ("ffn_gate", vec![EMBEDDING, FEED_FORWARD]),
            ("ffn_up", vec![EMBEDDING, FEED_FORWARD]),
            ("ffn_down", vec![FEED_FORWARD, EMBEDDING]),
        ];
        all.extend(shapes.map(|(name, shape)| (format!("blk.{layer}.{name}.weight"), shape)));
    }
    all
}

/// Norms of one, matrices of small numbers that look random and are the same each time.
#[derive(Default)]
struct Weights {
    bytes: Vec<u8>,
    state: u32,
}

impl Weights {
    fn add(&mut self, shape: &[u64]) {
        for _ in 0..shape.iter().product::<u64>() {
            let value = if shape.len() == 1 { 1.0 } else { self.next() };
            self.bytes.extend(value.to_le_bytes());
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(32), 0);
    }

    /// Returns a number in -0.1..0.1 from a linear congruential generator.
    fn next(&mut self) -> f32 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(self.state >> 16).unwrap()) / 327_680.0 - 0.1
    }
}

fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&string(key), &kind.to_le_bytes()[..], value].concat()
}

fn array(kind: u32, items: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<_> = items.collect();
    [&kind.to_le_bytes()[..], &len(&items).to_le_bytes(), &items.concat()].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&u64::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

fn len<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap()
}
