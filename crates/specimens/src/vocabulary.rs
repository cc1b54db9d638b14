//! Vocabularies in the manner of SentencePiece, which every build of llama.cpp reads.
//!
//! Tokens 0 to 2 are unknown, start and end; the 256 bytes follow, so that any text can be taken in. A model
//! that answers in words has printable characters and words behind them. SentencePiece merges neighbours two
//! at a time, so every beginning of a word must be a token for the word to be found; longer ones score higher
//! and win. Any model may have fillers at the end, up to the size of the vocabulary it imitates.

use std::collections::BTreeSet;

use super::{Contents, Recipe};

/// The token that ends an answer.
pub(super) const END: u32 = 2;

/// Where SentencePiece has a space.
const SPACE: char = '▁';

const WORDS: &str = "the a ship hull line cargo load water deep keel mast sail port harbour tide anchor deck bow \
    stern crew rope wind wave storm calm light weight ballast hold draught mark paint iron wood sea salt fresh \
    summer winter north tropical rises sinks floats carries holds stays leaves waits turns rests is was and or \
    but not with under over";

/// `llama_token_type`.
mod kind {
    pub(super) const NORMAL: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const CONTROL: u32 = 3;
    pub(super) const BYTE: u32 = 6;
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<Token>,
    /// The tokens that are whole words.
    pub(super) words: std::ops::Range<usize>,
}

/// How many tokens a recipe's model has: what it asks for, but no fewer than it needs.
pub(super) fn size(recipe: &Recipe) -> u32 {
    let needed = basis(recipe.contents).tokens.len();
    recipe.vocabulary.max(u32::try_from(needed).unwrap_or(u32::MAX))
}

pub(super) fn of(recipe: &Recipe) -> Vocabulary {
    sized(recipe.contents, size(recipe))
}

/// A vocabulary of this size, or of what its contents need.
pub(super) fn sized(contents: Contents, size: u32) -> Vocabulary {
    let mut vocabulary = basis(contents);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let missing = size.saturating_sub(vocabulary.tokens.len());
    let fillers = (0..missing).map(|number| token(format!("{SPACE}w{number}"), -1.0, kind::NORMAL));
    vocabulary.tokens.extend(fillers);
    vocabulary
}

pub(super) fn basis(contents: Contents) -> Vocabulary {
    let mut tokens = vec![
        token("<unk>", 0.0, kind::UNKNOWN),
        token("<s>", 0.0, kind::CONTROL),
        token("</s>", 0.0, kind::CONTROL),
    ];
    tokens.extend((0..=u8::MAX).map(|byte| token(format!("<0x{byte:02X}>"), 0.0, kind::BYTE)));
    if contents == Contents::Noise {
        return Vocabulary { words: 0..0, tokens };
    }
    let characters = ('!'..='~').chain([SPACE]);
    tokens.extend(characters.map(|character| token(character, 0.0, kind::NORMAL)));
    let words: BTreeSet<String> = WORDS.split(' ').map(|word| format!("{SPACE}{word}")).collect();
    let beginnings: BTreeSet<&str> = words.iter().flat_map(|word| beginnings(word)).collect();
    tokens.extend(
        beginnings
            .into_iter()
            .filter(|&text| !words.contains(text))
            .map(scored),
    );
    let first = tokens.len();
    tokens.extend(words.iter().map(|word| scored(word)));
    Vocabulary {
        words: first..tokens.len(),
        tokens,
    }
}

/// The beginnings of a word, from two characters on, without the word itself.
fn beginnings(word: &str) -> impl Iterator<Item = &str> {
    word.char_indices().skip(2).map(|(end, _)| &word[..end])
}

fn scored(text: &str) -> Token {
    let length = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
    token(text, length.into(), kind::NORMAL)
}

fn token(text: impl Into<String>, score: f32, kind: u32) -> Token {
    Token {
        text: text.into(),
        score,
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_of_a_word_is_a_token_once() {
        let vocabulary = basis(Contents::Words);
        let texts: BTreeSet<&str> = vocabulary
            .tokens
            .iter()
            .map(|token| token.text.as_str())
            .collect();
        assert_eq!(texts.len(), vocabulary.tokens.len());
        for word in &vocabulary.tokens[vocabulary.words.clone()] {
            assert!(
                beginnings(&word.text).all(|text| texts.contains(text)),
                "{}",
                word.text
            );
        }
        assert!(texts.contains("▁ship") && texts.contains("▁shi") && texts.contains("▁"));
    }
}
