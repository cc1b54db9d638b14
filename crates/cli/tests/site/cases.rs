//! Conversations of a page with its planner: recorded rows of engines, and damaged headers.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_fuzz::some_mutants;
use plimsoll_model::gguf::{Datum, DraftHeader, DraftTensor};
use plimsoll_model::types::{F32, Q8_0};
use serde_json::{Value, json};

/// Cards for a question; the host's memory is checked with the last ones.
pub(crate) const CARDS: [&[&str]; 4] = [
    &["3090"],
    &["2x3060"],
    &["name=H200,total=143771MiB,free=140000MiB,cc=9.0"],
    &["name=a<b>,total=8GiB,cc=8.6", "RX 7900 XTX"],
];

/// A model file, or its header with the length of the whole.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) head: Arc<[u8]>,
    pub(crate) length: u64,
}

/// Models and a question, as `plimsoll_plan::QuestionText` reads it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) main: Sample,
    pub(crate) draft: Option<Sample>,
    pub(crate) question: Value,
}

impl Sample {
    pub(crate) fn of(draft: &DraftHeader) -> Self {
        let head: Arc<[u8]> = draft.header().into();
        let length = u64::try_from(head.len()).unwrap() + draft.data_length().get();
        Self { head, length }
    }

    /// The bytes of a range, with zeros behind the header.
    pub(crate) fn part(&self, from: u64, to: u64) -> Vec<u8> {
        let to = to.min(self.length);
        let place = |offset: u64| usize::try_from(offset).unwrap().min(self.head.len());
        let mut bytes = self.head[place(from)..place(to)].to_vec();
        bytes.resize(usize::try_from(to.saturating_sub(from)).unwrap(), 0);
        bytes
    }
}

/// All rows of `data/measured` whose model and flags are stated, each with a question.
pub(crate) fn recorded() -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/measured");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "json"));
    files.sort();
    let (mut cases, mut samples) = (Vec::new(), HashMap::new());
    for file in files {
        let record: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let lists = record.as_object().into_iter().flat_map(|record| record.values());
        let rows = lists.filter_map(Value::as_array).flatten();
        cases.extend(rows.enumerate().filter_map(|(number, row)| of_row(row, number, &mut samples)));
    }
    cases
}

fn of_row(row: &Value, number: usize, samples: &mut HashMap<String, Option<Sample>>) -> Option<Case> {
    let mut specimen = |name: &Value| {
        let shape = |name| Some(plimsoll_specimens::shape(name)?.files(1).remove(0));
        let made = || {
            let name = name.as_str()?;
            Some(Sample::of(&plimsoll_specimens::specimen(name).or_else(|| shape(name))?))
        };
        samples.entry(name.as_str()?.to_owned()).or_insert_with(made).clone()
    };
    let words = |value: &Value| -> Option<Vec<String>> {
        match value {
            Value::String(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
            Value::Array(words) => words.iter().map(|word| Some(word.as_str()?.to_owned())).collect(),
            _ => None,
        }
    };
    let flags = row.get("args").or_else(|| row.get("flags")).and_then(words)?;
    let mut question = json!({ "flags": flags, "cards": CARDS[number % CARDS.len()] });
    if let Some(program) = row["program"].as_str() {
        question["program"] = json!(program);
    }
    if number.is_multiple_of(3) {
        question["host"] = json!("64GiB");
    }
    let draft = row.get("draft").and_then(&mut specimen);
    Some(Case { main: specimen(&row["model"])?, draft, question })
}

/// Small models and `count` mutants of their headers. Every other one has single bytes changed, which leaves
/// more of them plannable than moved and repeated pieces do.
pub(crate) fn fuzzed(count: usize) -> Vec<Case> {
    let seeds = [sound(3), sound(2)];
    let seeds = [seeds[0].as_slice(), seeds[1].as_slice()];
    let tokens: [&[u8]; 6] =
        [b"GGUF", b"llama.block_count", b"split.count", &[8, 0, 0, 0], &[255; 7], b"blk.3.attn_q.weight"];
    let mut cases = Vec::new();
    some_mutants(count, &seeds, &tokens, |mutant| {
        let number = cases.len();
        let mutant =
            if number.is_multiple_of(2) { mutant.to_vec() } else { changed(seeds[number / 2 % 2], number) };
        let context = 256_u32 << (number % 12);
        let main = Sample { length: u64::try_from(mutant.len()).unwrap() + (4 << 20), head: mutant.into() };
        let flags = ["-c".to_owned(), context.to_string(), "-ub".to_owned(), "256".to_owned()];
        let question = json!({ "flags": flags, "cards": CARDS[number % CARDS.len()] });
        cases.push(Case { main, draft: None, question });
    });
    cases
}

/// The seed with up to three other bytes.
fn changed(seed: &[u8], number: usize) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for change in 0..=number / 2 % 3 {
        // Fibonacci hashing (Knuth, TAOCP 6.4): places that are spread, and the same in every run.
        let hash = (number * 3 + change).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> 20) % bytes.len();
        bytes[place] = [0, 1, 2, 7, 8, 31, 127, 255][hash >> 61];
    }
    bytes
}

/// A small model with a vocabulary, as a version of the format writes it.
fn sound(version: u32) -> Vec<u8> {
    let mut draft = DraftHeader { version, ..DraftHeader::default() };
    draft.put("general.architecture", "llama");
    draft.put("general.name", "Small");
    for (key, number) in [
        ("block_count", 2_u32),
        ("context_length", 8192),
        ("embedding_length", 256),
        ("feed_forward_length", 512),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 4),
    ] {
        draft.put(format!("llama.{key}"), number);
    }
    draft.put("tokenizer.ggml.model", "gpt2");
    let tokens = (0..64_u8).map(|number| vec![b'a' + number % 26, number]);
    draft.put("tokenizer.ggml.tokens", Datum::Texts(tokens.collect()));
    let mut add = |name: &str, kind, shape: &[u64]| {
        draft.tensors.push(DraftTensor { name: name.to_owned(), kind, shape: shape.to_vec() });
    };
    add("token_embd.weight", Q8_0, &[256, 64]);
    add("output_norm.weight", F32, &[256]);
    for layer in 0..2 {
        for (name, shape) in [
            ("attn_q", [256, 256]),
            ("attn_k", [256, 128]),
            ("attn_v", [256, 128]),
            ("attn_output", [256, 256]),
            ("ffn_gate", [256, 512]),
            ("ffn_up", [256, 512]),
            ("ffn_down", [512, 256]),
        ] {
            add(&format!("blk.{layer}.{name}.weight"), Q8_0, &shape);
        }
        add(&format!("blk.{layer}.attn_norm.weight"), F32, &[256]);
        add(&format!("blk.{layer}.ffn_norm.weight"), F32, &[256]);
    }
    draft.header()
}
