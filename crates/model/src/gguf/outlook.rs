//! Estimates the length of a GGUF header from its beginning, so that HTTP range requests fetch no more than
//! needed.
//!
//! The length of a vocabulary is estimated from the last words read and the trend of their lengths, because
//! words get longer towards the end.

use super::gap::GapRun;

/// Bytes of a key with a short value, of the chat template among the keys that follow a vocabulary, and of an
/// entry of the tensor list.
const KEY: u64 = 48;
const TEMPLATE: u64 = 2048;
const TENSOR: u64 = 60;
/// Bytes of a word before the first was seen, with its length.
const WORD: u64 = 16;
/// Bytes by which a pair of words, which a merge is, is longer than a word.
const MERGE: u64 = 3;

/// Elements of a header that were not read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    pub(super) keys: u64,
    pub(super) tensors: u64,
    /// Offset of the list of tensors; 0 before it is reached.
    pub(super) list_start: u64,
    all_tensors: u64,
}

/// Texts passed over most recently, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    texts: u64,
    bytes: u64,
}

impl Pace {
    /// Fewer bytes say little about the others.
    const LEAST: u64 = 16 << 10;

    pub(super) fn note(&mut self, texts: u64, bytes: u64) {
        if bytes >= Self::LEAST || self.bytes == 0 {
            *self = Self { texts, bytes };
        }
    }
}

impl Ahead {
    pub(super) fn new(keys: u64, tensors: u64) -> Self {
        Self { keys, tensors, list_start: 0, all_tensors: tensors }
    }

    /// Bytes behind `offset`, the first that was not read.
    pub(super) fn bytes(&self, offset: u64) -> u64 {
        let listed = self.all_tensors - self.tensors;
        let each = match offset.checked_sub(self.list_start) {
            Some(bytes) if self.list_start > 0 && listed > 0 => bytes.div_ceil(listed),
            _ => TENSOR,
        };
        let template = if self.keys > 0 { TEMPLATE } else { 0 };
        // Counts are claims, so the sum may be anything.
        let keys = self.keys.saturating_mul(KEY).saturating_add(template);
        keys.saturating_add(self.tensors.saturating_mul(each))
    }
}

impl GapRun {
    /// Bytes of the texts that are left with so many percent more, and of the arrays that follow them.
    pub(super) fn bytes<'a>(&self, pace: Pace, margin: u64, text: impl Fn(&str) -> Option<&'a str>) -> u64 {
        let passed = self.count - self.texts;
        // Sixteenths of a byte: the words are many, and a rounded length would be off by a lot.
        let each = |bytes: u64, texts: u64| bytes.saturating_mul(16).checked_div(texts);
        let mean = each(self.next - self.start, passed).unwrap_or(16 * WORD);
        let last = each(pace.bytes, pace.texts).unwrap_or(mean);
        // Lengths grow as the logarithm of the position. So the rest exceeds the last ones about as much as
        // those exceed the mean, and less where the rest is short.
        let ahead = self.texts.min(passed).saturating_mul(16).checked_div(passed).unwrap_or(0);
        let growth = last.saturating_sub(mean).saturating_mul(ahead) / 16;
        let rest = self.texts.saturating_mul(last.saturating_add(growth)) / 16;
        let rest = rest.saturating_add((rest / 100).saturating_mul(margin));
        if !self.key.ends_with(".tokens") {
            return rest;
        }
        // A type for each word, and a score or merges, as the kind of tokenizer has it.
        let merge = mean / 16 + MERGE;
        let besides = match (text("tokenizer.ggml.model"), text("tokenizer.ggml.pre")) {
            // Converted from tiktoken, with each way in which a word falls into two.
            (Some("gpt2"), Some("llama-bpe" | "llama3" | "gpt-4o" | "tekken" | "llama4")) => 4 + 2 * merge,
            (Some("gpt2"), _) => 4 + merge,
            (Some("llama" | "gemma4" | "t5"), _) => 4 + 4,
            _ => 4,
        };
        rest.saturating_add(self.count.saturating_mul(besides))
    }
}
