//! Reads the texts of a model's tokens, and computes the fewest tokens that a text can have.
//!
//! A tokenizer divides a text into words of its vocabulary, so the division into the fewest words is a lower
//! bound on what any tokenizer with these words gives. It needs no rule of merges and no pattern of a
//! pre-tokenizer.

use crate::gguf::{GgufError, Header};

/// The sign that stands for a blank in the words of SentencePiece.
const BLANK: &str = "\u{2581}";

// DECISION: only the two kinds of tokenizer that keep every byte of a text. WordPiece makes one unknown token
// of a word of any length, and others normalise the text before they divide it. Blanks count nothing:
// templates cut them off, and special words swallow those beside them.
/// The words of a tokenizer that keeps every byte of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTexts {
    /// Sorted, each once.
    words: Vec<Vec<u8>>,
    longest: usize,
}

/// How the words of a vocabulary are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// Each byte is a letter (`gpt2`, `encoder.py:bytes_to_unicode`).
    Letters,
    /// Text, with words such as `<0x0A>` for single bytes (`llama`).
    Pieces,
}

impl TokenTexts {
    /// The vocabulary of a header; `None` for a tokenizer that may lose bytes, and for a header without
    /// words.
    pub fn of(header: &Header<'_>) -> Result<Option<Self>, GgufError> {
        let spelling = match header.text("tokenizer.ggml.model")? {
            Some("gpt2") => Spelling::Letters,
            Some("llama") => Spelling::Pieces,
            _ => return Ok(None),
        };
        let words = header.array("tokenizer.ggml.tokens")?.and_then(|array| array.texts());
        Ok(words.and_then(|words| Self::from_words(spelling, words)))
    }

    fn from_words<'a>(spelling: Spelling, written: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut words = Vec::new();
        for word in written {
            words.extend(spelling.read(word));
            // A special word stands for its own text.
            words.push(word.to_vec());
        }
        words.sort_unstable();
        words.dedup();
        words.retain(|word| !word.is_empty());
        let longest = words.iter().map(Vec::len).max()?;
        let vocabulary = Self { words, longest };
        // A byte without a word would be dropped.
        let has = |byte: u8| vocabulary.words.binary_search_by(|word| word.as_slice().cmp(&[byte])).is_ok();
        (0..=u8::MAX).all(has).then_some(vocabulary)
    }

    /// The fewest words into which the text can be divided, without its blanks.
    pub fn fewest_tokens(&self, text: &[u8]) -> u64 {
        // The fewest up to each of the last positions; the text may be long and no word is.
        let size = self.longest + 1;
        let mut fewest = vec![u64::MAX; size];
        fewest[0] = 0;
        for at in 0..text.len() {
            let here = std::mem::replace(&mut fewest[at % size], u64::MAX);
            let mut reach = |length: usize, tokens: u64| {
                let there = &mut fewest[(at + length) % size];
                *there = tokens.min(*there);
            };
            if text[at].is_ascii_whitespace() {
                reach(1, here);
            }
            self.lengths_at(&text[at..], |length| reach(length, here.saturating_add(1)));
        }
        fewest[text.len() % size]
    }

    /// The lengths of the words with which the text begins.
    fn lengths_at(&self, text: &[u8], mut found: impl FnMut(usize)) {
        let mut words = self.words.as_slice();
        for (depth, byte) in text.iter().enumerate() {
            // Those that go on with this byte; a word that ends before sorts first.
            let from = words.partition_point(|word| word.get(depth).is_none_or(|other| other < byte));
            let to = words.partition_point(|word| word.get(depth).is_none_or(|other| other <= byte));
            words = &words[from..to];
            let Some(first) = words.first() else { return };
            if first.len() == depth + 1 {
                found(depth + 1);
            }
        }
    }
}

impl Spelling {
    /// The bytes that a word stands for; `None` for one that is written otherwise.
    fn read(self, word: &[u8]) -> Option<Vec<u8>> {
        let text = str::from_utf8(word).ok()?;
        match self {
            Self::Letters => text.chars().map(byte_of).collect(),
            Self::Pieces => {
                let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                Some(byte.map_or_else(|| text.replace(BLANK, " ").into_bytes(), |byte| vec![byte]))
            }
        }
    }
}

/// The byte that a letter of `gpt2` stands for: printable ones stand for themselves, and the others follow
/// each other from 256 on.
fn byte_of(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    match u8::try_from(code) {
        Ok(byte) => is_printable(byte).then_some(byte),
        Err(_) => {
            let place = usize::try_from(code.checked_sub(256)?).ok()?;
            (0..=u8::MAX).filter(|byte| !is_printable(*byte)).nth(place)
        }
    }
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The letter of each byte.
    fn letters() -> Vec<String> {
        let mut other = 0;
        let letter = |byte: u8| {
            if is_printable(byte) {
                char::from(byte).to_string()
            } else {
                other += 1;
                char::from_u32(255 + other).unwrap().to_string()
            }
        };
        (0..=u8::MAX).map(letter).collect()
    }

    fn spelled(more: &[&str]) -> Option<TokenTexts> {
        let words: Vec<String> =
            letters().into_iter().chain(more.iter().map(|&word| word.to_owned())).collect();
        TokenTexts::from_words(Spelling::Letters, words.iter().map(|word| word.as_bytes()))
    }

    #[test]
    fn a_text_has_as_many_tokens_as_its_best_division() {
        let vocabulary = spelled(&["ab", "abc", "bcd", "d\u{120}e", "<|end|>"]).unwrap();
        for (text, fewest) in [
            ("", 0),
            ("a", 1),
            // Not "abc" first, which leaves "d".
            ("abcd", 2),
            ("abcabc", 2),
            ("d e", 1),
            ("x y  z\n\n", 3),
            ("<|end|>a", 2),
            ("\u{4e2d}", 3),
        ] {
            assert_eq!(vocabulary.fewest_tokens(text.as_bytes()), fewest, "{text:?}");
        }
    }

    #[test]
    fn pieces_have_a_sign_for_blanks_and_words_for_bytes() {
        let bytes = (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>"));
        let words: Vec<String> = bytes.chain(["\u{2581}the".to_owned(), "the".to_owned()]).collect();
        let of = |words: &[String]| {
            TokenTexts::from_words(Spelling::Pieces, words.iter().map(|word| word.as_bytes()))
        };
        let vocabulary = of(&words).unwrap();
        assert_eq!(vocabulary.fewest_tokens(b"the the\n"), 2);
        assert_eq!(vocabulary.fewest_tokens("tü".as_bytes()), 3);
        assert_eq!(of(&words[1..]), None, "a byte without a word is lost");
    }

    #[test]
    fn a_vocabulary_that_lacks_a_byte_bounds_nothing() {
        assert!(spelled(&[]).is_some());
        let lacks: Vec<String> = letters().into_iter().skip(1).collect();
        assert_eq!(TokenTexts::from_words(Spelling::Letters, lacks.iter().map(|word| word.as_bytes())), None);
    }

    #[test]
    fn no_division_has_fewer_tokens_than_the_bound() {
        let vocabulary = spelled(&["ab", "ba", "aab", "bb", "abba", "a\u{120}b"]).unwrap();
        // Any walk over words gives a text and a division of it.
        let mut state = 7_usize;
        for _ in 0..500 {
            let (mut text, mut tokens) = (Vec::new(), 0);
            for _ in 0..state % 23 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.extend_from_slice(&vocabulary.words[(state >> 33) % vocabulary.words.len()]);
                tokens += 1;
            }
            state = state.wrapping_add(1);
            assert!(vocabulary.fewest_tokens(&text) <= tokens, "{text:?}");
        }
    }
}
