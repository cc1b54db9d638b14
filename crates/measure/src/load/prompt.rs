//! Generates prompts of a given length in tokens, identical in every round.

use bytes::Bytes;
use plimsoll_base::round_u64;
use serde_json::json;

/// Words that are one token each in common vocabularies.
const WORDS: [&str; 32] = [
    "ship", "line", "load", "water", "deck", "sea", "hold", "port", "wind", "rope", "bell", "crew", "mast",
    "salt", "tide", "wave", "dock", "hull", "iron", "coal", "north", "south", "east", "west", "light",
    "night", "storm", "calm", "depth", "mark", "weight", "captain",
];

/// Length of [`WORDS`].
const WORD_COUNT: u32 = 32;

/// Description of a prompt by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadPrompt {
    /// Approximate tokens of the prompt, including the chat template.
    pub depth: u64,
    /// Maximum tokens of the answer.
    pub answer: u64,
    /// Distinguishes prompts of equal depth; equal numbers give equal words.
    pub number: u64,
    /// Placed before all other text, so that no cached prefix matches; 0 for none.
    pub nonce: u64,
}

// DECISION: the number of tokens per word is measured with two prompts, because it depends on the model's
// vocabulary.
/// Size of the words in a server's tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WordLength {
    per_word: f64,
    /// Tokens that the chat template adds.
    around: f64,
}

impl Default for WordLength {
    /// For a server that reports no token counts: one token per word.
    fn default() -> Self {
        Self { per_word: 1.0, around: 0.0 }
    }
}

impl WordLength {
    /// Solves for both figures from the token counts of all words once and twice; `None` if these are
    /// inconsistent.
    pub fn of(once: u64, twice: u64) -> Option<Self> {
        // The template is in both counts, so the difference is the words alone.
        let per_word = number(twice.checked_sub(once)?)? / f64::from(WORD_COUNT);
        let around = number(once)? - per_word * f64::from(WORD_COUNT);
        (per_word > 0.0).then(|| Self { per_word, around: around.max(0.0) })
    }

    fn words(self, depth: u64) -> u64 {
        let depth = number(depth).unwrap_or(f64::from(u32::MAX));
        // Bounds the prompt's text: a billion words are several gigabytes already.
        round_u64(((depth - self.around) / self.per_word).clamp(1.0, 1e9))
    }
}

fn number(count: u64) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

/// A request that repeats all words `times` times, for an answer of one token.
pub(super) fn probe(model: &str, times: usize) -> Bytes {
    request(model, &format!("{} ", WORDS.join(" ")).repeat(times), 1)
}

impl LoadPrompt {
    pub(super) fn request(&self, model: &str, yardstick: WordLength) -> Bytes {
        request(model, &self.text(yardstick.words(self.depth)), self.answer)
    }

    fn text(&self, words: u64) -> String {
        let mut text = match self.nonce {
            0 => String::new(),
            nonce => format!("{nonce} "),
        };
        // A fixed permutation in which all words occur equally often, so the depth is right to a few tokens.
        // The multipliers are a prime and the constants of Knuth's MMIX generator; they spread nearby depths.
        let state = self
            .number
            .wrapping_mul(7919)
            .wrapping_add(self.depth)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let place = |bits: u64| usize::try_from(bits % 32).unwrap_or_default();
        // An odd step visits all 32 words before it repeats. The high bits of the generator are the good
        // ones.
        let (first, step) = (place(state >> 59), place(state >> 54) | 1);
        let mut word = first;
        for _ in 0..words {
            text.push_str(WORDS[word % WORDS.len()]);
            text.push(' ');
            word = (word + step) % WORDS.len();
        }
        text
    }
}

fn request(model: &str, text: &str, answer: u64) -> Bytes {
    let body = json!({
        "model": model,
        "messages": [{ "role": "user", "content": text }],
        "stream": true,
        "stream_options": { "include_usage": true },
        // Servers report token counts of a stream only on this request.
        "max_tokens": answer,
        // Greedy decoding makes rounds comparable; `max_tokens` bounds a model that does not stop.
        "temperature": 0,
    });
    Bytes::from(body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: LoadPrompt = LoadPrompt { depth: 100, answer: 4, number: 1, nonce: 0 };

    #[test]
    fn the_same_number_asks_the_same_and_another_one_something_else() {
        assert_eq!(PROMPT.text(100), PROMPT.text(100));
        assert_ne!(PROMPT.text(100), LoadPrompt { number: 2, ..PROMPT }.text(100));
        assert_eq!(PROMPT.text(100).split_whitespace().count(), 100);
        let text = PROMPT.text(96);
        for word in WORDS {
            assert_eq!(text.split_whitespace().filter(|other| *other == word).count(), 3, "{word}");
        }
        let fresh = LoadPrompt { nonce: 77, ..PROMPT };
        assert_eq!(fresh.text(100), format!("77 {}", PROMPT.text(100)));
    }

    #[test]
    fn a_depth_is_in_the_tokens_of_the_server() {
        assert_eq!(WordLength::default().words(100), 100);
        // 7 tokens a word, and 10 around all of them.
        let letters = WordLength::of(10 + 7 * 32, 10 + 14 * 32).unwrap();
        assert_eq!((letters.words(10 + 700), letters.words(1)), (100, 1));
        assert_eq!(WordLength::of(40, 40), None);
        assert_eq!(WordLength::of(40, 30), None);
        assert_eq!(WORDS.len(), WORD_COUNT as usize);
    }
}
