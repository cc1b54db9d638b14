//! Generates vocabularies of tiny models in SentencePiece's form, which every build of llama.cpp reads.
//!
//! SentencePiece merges two neighbouring tokens at a time, so every prefix of a word must itself be a token.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::gguf::{Datum, DraftHeader, ValueType};

/// The token that ends an answer.
pub(super) const END: u32 = 2;

/// SentencePiece writes a space as this character.
const SPACE: char = '▁';

const WORDS: &str = "the a ship hull line cargo load water deep keel mast sail port harbour tide anchor deck bow \
    stern crew rope wind wave storm calm light weight ballast hold draught mark paint iron wood sea salt fresh \
    summer winter north tropical rises sinks floats carries holds stays leaves waits turns rests is was and or \
    but not with under over";

/// Jinja; role and content of every message, a line each.
const CHAT_TEMPLATE: &str = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";

// `llama.h: llama_token_type @ b10605`.
const NORMAL: u32 = 1;
const UNKNOWN: u32 = 2;
const CONTROL: u32 = 3;
const BYTE: u32 = 6;

/// A token with its properties in `tokenizer.ggml.*`.
#[derive(Clone, Debug)]
pub struct Token {
    pub text: String,
    pub score: f32,
    pub kind: u32,
}

/// The tokens of a synthetic model.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    pub tokens: Vec<Token>,
    /// The tokens that are whole words.
    pub words: Range<usize>,
}

impl Vocabulary {
    /// Control tokens and bytes alone.
    pub fn bytes() -> Self {
        let mut tokens =
            vec![token("<unk>", 0.0, UNKNOWN), token("<s>", 0.0, CONTROL), token("</s>", 0.0, CONTROL)];
        tokens.extend((0..=u8::MAX).map(|byte| token(format!("<0x{byte:02X}>"), 0.0, BYTE)));
        Self { tokens, words: 0..0 }
    }

    /// Bytes, printable characters, words and their prefixes.
    pub fn words() -> Self {
        let Self { mut tokens, .. } = Self::bytes();
        // Without single characters SentencePiece would fall back to bytes inside words.
        let characters = ('!'..='~').chain([SPACE]);
        tokens.extend(characters.map(|character| token(character, 0.0, NORMAL)));
        let words: BTreeSet<String> = WORDS.split(' ').map(|word| format!("{SPACE}{word}")).collect();
        let prefixes: BTreeSet<&str> = words.iter().flat_map(|word| prefixes(word)).collect();
        // A prefix may be a word of its own ("a" of "anchor"); a text that is listed twice fails to load.
        let only_prefixes = prefixes.into_iter().filter(|&text| !words.contains(text));
        tokens.extend(only_prefixes.map(scored));
        let first = tokens.len();
        tokens.extend(words.iter().map(|word| scored(word)));
        Self { words: first..tokens.len(), tokens }
    }

    pub fn len(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Writes the keys `tokenizer.*`.
    pub fn put(&self, draft: &mut DraftHeader) {
        let texts = self.tokens.iter().map(|token| token.text.clone().into_bytes());
        let scores = self.tokens.iter().map(|token| token.score.to_bits().into());
        let kinds = self.tokens.iter().map(|token| token.kind.into());
        draft.put("tokenizer.ggml.model", "llama");
        draft.put("tokenizer.ggml.tokens", Datum::Texts(texts.collect()));
        draft.put("tokenizer.ggml.scores", Datum::Numbers(ValueType::F32, scores.collect()));
        draft.put("tokenizer.ggml.token_type", Datum::Numbers(ValueType::I32, kinds.collect()));
        draft.put("tokenizer.ggml.unknown_token_id", 0_u32);
        draft.put("tokenizer.ggml.bos_token_id", 1_u32);
        draft.put("tokenizer.ggml.eos_token_id", END);
        draft.put("tokenizer.ggml.add_bos_token", true);
        draft.put("tokenizer.chat_template", CHAT_TEMPLATE);
    }
}

/// The prefixes of a word from two characters on, without the word itself.
fn prefixes(word: &str) -> impl Iterator<Item = &str> {
    word.char_indices().skip(2).map(|(end, _)| &word[..end])
}

fn scored(text: &str) -> Token {
    let length = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
    // Merges are chosen by score, so the longest piece has to win.
    token(text, length.into(), NORMAL)
}

fn token(text: impl Into<String>, score: f32, kind: u32) -> Token {
    Token { text: text.into(), score, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_a_word_is_a_token_once() {
        let vocabulary = Vocabulary::words();
        let texts: BTreeSet<&str> = vocabulary.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts.len(), vocabulary.tokens.len());
        for word in &vocabulary.tokens[vocabulary.words.clone()] {
            assert!(prefixes(&word.text).all(|text| texts.contains(text)), "{}", word.text);
        }
        assert!(texts.contains("▁ship") && texts.contains("▁shi") && texts.contains("▁"));
    }
}
