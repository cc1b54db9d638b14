//! Builds model headers from an engine's own error messages: each message adds the key or tensor that it
//! names as missing.
//!
//! An engine that refuses a file names what it lacks (`llama-model-loader.cpp: get_key, create_tensor @
//! 0.5.0`). So a header can be built for any architecture that the engine knows, including new ones.
//!
//! DECISION: no architecture is described here. A table has values for keys by their last words; a key
//! without a row is
//! 1. A model lacks everything that the engine does not require (biases, windows, experts).

use plimsoll_model::gguf::{Datum, DraftHeader, DraftTensor, ValueType};
use plimsoll_model::tiny::Vocabulary;
use plimsoll_model::types::{F32, Q4_K, Q8_0};

/// Layers: one group of the widest pattern that is usual, every sixth and every eighth among them.
const LAYERS: u32 = 8;
/// Context of the training, and of the plans: a search beyond it has nothing to find.
pub const GROWN_CONTEXT: u32 = 16_384;
const VOCABULARY: u32 = 32_000;
/// More tensors or elements are no model but a fault.
pub const MOST_TENSORS: usize = 4096;
const MOST_ELEMENTS: u64 = 1 << 36;
/// A message beyond is no message.
const LONGEST: usize = 4096;

/// Sizes that every model has.
const SIZES: [(&str, u32); 8] = [
    ("block_count", LAYERS),
    ("context_length", GROWN_CONTEXT),
    ("embedding_length", 2048),
    ("feed_forward_length", 8192),
    ("attention.head_count", 16),
    ("attention.head_count_kv", 4),
    ("rope.dimension_count", 128),
    ("vocab_size", VOCABULARY),
];

/// Values of keys by their ends.
const VALUES: [(&str, u32); 33] = [
    ("expert_count", 32),
    ("expert_used_count", 4),
    ("expert_shared_count", 1),
    ("expert_gating_func", 2),
    ("expert_group_count", 4),
    ("expert_group_used_count", 2),
    ("feed_forward_length", 1024),
    ("sliding_window", 1024),
    ("sliding_window_pattern", 4),
    ("q_lora_rank", 768),
    ("kv_lora_rank", 512),
    ("key_length_mla", 192),
    ("value_length_mla", 128),
    ("indexer.head_count", 32),
    ("indexer.key_length", 128),
    ("indexer.top_k", 2048),
    ("indexer.block_size", 64),
    ("key_length", 128),
    ("value_length", 128),
    ("key_length_swa", 128),
    ("value_length_swa", 128),
    ("ssm.conv_kernel", 4),
    ("ssm.inner_size", 4096),
    ("ssm.state_size", 128),
    ("ssm.time_step_rank", 32),
    ("ssm.group_count", 8),
    ("wkv.head_size", 64),
    ("token_shift_count", 2),
    ("time_mix_extra_dim", 32),
    ("time_decay_extra_dim", 64),
    ("lora_rank", 64),
    ("shortconv.l_cache", 3),
    ("embedding_length_per_layer_input", 256),
];

/// Words of refusals that name no key, and the keys that answer them.
const REMEDIES: [(&str, &[(&str, u32)]); 4] = [
    ("n_expert", EXPERTS),
    ("zero experts", EXPERTS),
    (
        "MLA",
        &[
            ("attention.q_lora_rank", 768),
            ("attention.kv_lora_rank", 512),
            ("attention.key_length_mla", 192),
            ("attention.value_length_mla", 128),
            ("attention.key_length", 576),
            ("attention.value_length", 512),
            ("rope.dimension_count", 64),
            ("attention.head_count_kv", 1),
        ],
    ),
    ("token type count", &[("tokenizer.ggml.token_type_count", 2)]),
];
const EXPERTS: &[(&str, u32)] =
    &[("expert_count", 32), ("expert_used_count", 4), ("expert_feed_forward_length", 1024)];

/// The state of a header after an engine has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The engine took the file.
    Whole,
    /// The header has changed: ask again.
    Grown,
    /// The engine's message, to which there is no answer.
    Stuck(String),
}

/// A header that grows.
#[derive(Clone, Debug)]
pub struct GrownModel {
    architecture: String,
    draft: DraftHeader,
}

impl GrownModel {
    pub fn new(architecture: &str) -> Self {
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", architecture);
        draft.put("general.type", "model");
        draft.put("general.name", architecture);
        for (key, value) in SIZES {
            draft.put(format!("{architecture}.{key}"), value);
        }
        for key in ["layer_norm_rms_epsilon", "layer_norm_epsilon"] {
            draft.put(format!("{architecture}.attention.{key}"), 1e-6_f32);
        }
        let mut vocabulary = crate::keys::filled(Vocabulary::bytes(), VOCABULARY);
        if let Some(last) = vocabulary.tokens.last_mut() {
            "<|endoftext|>".clone_into(&mut last.text);
        }
        vocabulary.put(&mut draft);
        Self { architecture: architecture.to_owned(), draft }
    }

    pub fn header(&self) -> &DraftHeader {
        &self.draft
    }

    /// Reads what an engine printed of the file.
    pub fn hear(&mut self, log: &str) -> Growth {
        if log.contains("constructing llama_context") {
            return Growth::Whole;
        }
        let refused = |line: &&str| line.contains("error loading model") || line.contains("GGML_ASSERT");
        // The first message names the cause; those that follow say that loading failed.
        let Some(message) = log.lines().find(refused).filter(|line| line.len() < LONGEST) else {
            let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
            return Growth::Stuck(cut(last));
        };
        match self.answer(message, log) {
            Some(()) if self.draft.tensors.len() <= MOST_TENSORS => Growth::Grown,
            _ => Growth::Stuck(cut(message)),
        }
    }

    /// Changes the header as a message asks; `None` where that is not understood, or was done before.
    fn answer(&mut self, message: &str, log: &str) -> Option<()> {
        if let Some(key) = after(message, "array key not found in model: ") {
            return self.add(key, list(key, LAYERS));
        }
        if let Some(key) = after(message, "key not found in model: ") {
            return self.add(key, value(key));
        }
        if let Some(rest) = after_all(message, ": key ").filter(|_| message.contains("has wrong")) {
            return self.retype(rest);
        }
        // The second is of tensors whose shape is read before they are made.
        let absent = quoted(message, "missing tensor '")
            .or_else(|| quoted(message, ": tensor '").filter(|_| message.trim_end().ends_with("not found")));
        if let Some(name) = absent {
            return self.add_tensor(name);
        }
        if message.contains("has wrong shape; expected") {
            return self.reshape(quoted(message, "tensor '")?, message);
        }
        if message.contains("wrong number of tensors") {
            return self.drop_unread(log);
        }
        self.remedy(message)
    }

    /// Keys for words that name none.
    fn remedy(&mut self, message: &str) -> Option<()> {
        let (_, keys) = REMEDIES.iter().find(|(words, _)| message.contains(words))?;
        let mut changed = None;
        for (key, value) in *keys {
            let key = if key.starts_with("tokenizer.") {
                (*key).to_owned()
            } else {
                format!("{}.{key}", self.architecture)
            };
            changed = self.put(&key, (*value).into()).or(changed);
        }
        changed
    }

    fn add(&mut self, key: &str, datum: Datum) -> Option<()> {
        let known = self.draft.entries.iter().any(|(name, _)| name == key);
        (!known).then(|| self.draft.put(key, datum))
    }

    /// Sets a key; `None` where it has this value.
    fn put(&mut self, key: &str, datum: Datum) -> Option<()> {
        match self.draft.entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => (*old != datum).then(|| *old = datum),
            None => self.add(key, datum),
        }
    }

    /// `K has wrong type u32 but expected type f32`, `K has wrong array length; expected 4, got 8`.
    fn retype(&mut self, rest: &str) -> Option<()> {
        let (key, what) = rest.split_once(' ')?;
        if let Some(length) = after(what, "expected ").filter(|_| what.contains("array length")) {
            let length = length.trim_end_matches(',').parse().ok().filter(|&length| length <= 512)?;
            return self.put(key, list(key, length));
        }
        let datum = match after(what, "but expected type ")? {
            "f32" => 1_f32.into(),
            "bool" => false.into(),
            "str" => "none".into(),
            "arr" => list(key, LAYERS),
            "i32" => Datum::Number(ValueType::I32, 1),
            "u32" => value(key),
            _ => return None,
        };
        self.put(key, datum)
    }

    fn add_tensor(&mut self, name: &str) -> Option<()> {
        if name.len() > 128 || self.draft.tensors.iter().any(|tensor| tensor.name == name) {
            return None;
        }
        // A layer is like the one before, until the engine says otherwise.
        let copied = layer(name).and_then(|number| number.checked_sub(1)).map(|before| {
            let (old, new) = (format!("blk.{before}."), format!("blk.{}.", before + 1));
            let same = self.draft.tensors.iter().filter_map(|tensor| {
                let name = format!("{new}{}", tensor.name.strip_prefix(&old)?);
                Some(DraftTensor { name, ..tensor.clone() })
            });
            same.collect::<Vec<_>>()
        });
        let have = |name: &str| self.draft.tensors.iter().any(|tensor| tensor.name == name);
        let mut added: Vec<DraftTensor> = copied.unwrap_or_default();
        added.retain(|tensor| !have(&tensor.name));
        if !added.iter().any(|tensor| tensor.name == name) {
            added.push(DraftTensor { name: name.to_owned(), kind: F32, shape: vec![1] });
        }
        self.draft.tensors.extend(added);
        Some(())
    }

    /// `tensor 'T' has wrong shape; expected  2048,  2048, got     1,     1`.
    fn reshape(&mut self, name: &str, message: &str) -> Option<()> {
        let expected = message.split_once("; expected ")?.1.split_once(", got")?.0;
        let shape = expected.split(',').map(|size| size.trim().parse::<u64>().ok());
        let shape: Vec<u64> = shape.collect::<Option<_>>().filter(|shape: &Vec<u64>| shape.len() <= 4)?;
        // A width of nothing is that of experts, of which no key has told.
        if shape.contains(&0) && (name.contains("exp") || name.contains("gate_inp")) {
            return self.remedy("n_expert");
        }
        let elements = shape.iter().try_fold(1_u64, |sum, &size| sum.checked_mul(size));
        elements.filter(|&elements| elements > 0 && elements < MOST_ELEMENTS)?;
        let tensor = self.draft.tensors.iter_mut().find(|tensor| tensor.name == name)?;
        if tensor.shape == shape {
            return None;
        }
        (tensor.kind, tensor.shape) = (kind(name, &shape), shape);
        Some(())
    }

    /// Drops tensors that a layer was given after its neighbour and that the engine does not read.
    fn drop_unread(&mut self, log: &str) -> Option<()> {
        let read: std::collections::HashSet<&str> =
            log.lines().filter_map(|line| after_all(line, "loading tensor ")).map(str::trim).collect();
        let count = self.draft.tensors.len();
        self.draft.tensors.retain(|tensor| read.contains(tensor.name.as_str()));
        (!read.is_empty() && self.draft.tensors.len() < count).then_some(())
    }
}

/// The word after `words`.
fn after<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    after_all(message, words)?.split_whitespace().next()
}

fn after_all<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    message.split_once(words).map(|(_, rest)| rest)
}

fn quoted<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    after_all(message, words)?.split('\'').next()
}

fn cut(message: &str) -> String {
    message.trim().chars().take(160).collect()
}

/// The layer of a tensor.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

fn value(key: &str) -> Datum {
    if ["epsilon", "eps"].iter().any(|end| key.ends_with(end)) {
        return 1e-6_f32.into();
    }
    let row = VALUES.iter().find(|(end, _)| key.ends_with(end));
    row.map_or(1, |&(_, value)| value).into()
}

/// One number for each layer, or the four sections of positions.
fn list(key: &str, length: u32) -> Datum {
    let numbers = if key.ends_with("sections") {
        vec![16, 24, 24, 0]
    } else {
        vec![1; usize::try_from(length).unwrap_or(0)]
    };
    Datum::Numbers(ValueType::I32, numbers)
}

/// Matrices are quantised; norms, biases, routers and what a scan reads are not.
fn kind(name: &str, shape: &[u64]) -> plimsoll_model::TensorType {
    const WHOLE: [&str; 9] =
        ["norm", "bias", "gate_inp", "conv", "ssm_a", "ssm_d", "time_mix", "scale", "position"];
    let small = shape.len() < 2 || shape[0] < 256 || shape[1] < 64;
    if small || WHOLE.iter().any(|part| name.contains(part)) {
        return F32;
    }
    let fits = [Q4_K, Q8_0].into_iter().find(|kind| kind.row(shape[0]).is_some());
    fits.unwrap_or(F32)
}
