//! Prompts of our own, of a depth that is asked for, the same in every round.

use bytes::Bytes;
use serde_json::json;

/// Words that are one token each in the vocabularies in use, as far as any word is.
const WORDS: [&str; 32] = [
    "ship", "line", "load", "water", "deck", "sea", "hold", "port", "wind", "rope", "bell", "crew", "mast",
    "salt", "tide", "wave", "dock", "hull", "iron", "coal", "north", "south", "east", "west", "light",
    "night", "storm", "calm", "depth", "mark", "weight", "captain",
];

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    /// Tokens of the prompt, about.
    pub(crate) depth: u64,
    /// Tokens of the answer, at most.
    pub(crate) answer: u64,
    /// Distinguishes prompts of one depth; the same number gives the same words.
    pub(crate) number: u64,
    /// Stands before everything, so that nothing cached fits; 0 for none.
    pub(crate) nonce: u64,
}

/// The body of a request, as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) body: Bytes,
}

impl Prompt {
    pub(crate) fn request(&self, model: &str) -> Request {
        let body = json!({
            "model": model,
            "messages": [{ "role": "user", "content": self.text() }],
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_tokens": self.answer,
            "temperature": 0,
        });
        Request {
            body: Bytes::from(body.to_string()),
        }
    }

    fn text(&self) -> String {
        let mut text = match self.nonce {
            0 => String::new(),
            nonce => format!("{nonce} "),
        };
        // A linear congruence: any fixed order of words would do.
        let mut state = self.number.wrapping_mul(7919).wrapping_add(self.depth);
        for _ in 0..self.depth {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let place = usize::try_from(state >> 59).unwrap_or_default();
            text.push_str(WORDS[place % WORDS.len()]);
            text.push(' ');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: Prompt = Prompt {
        depth: 100,
        answer: 4,
        number: 1,
        nonce: 0,
    };

    #[test]
    fn the_same_number_asks_the_same_and_another_one_something_else() {
        assert_eq!(PROMPT.text(), PROMPT.text());
        assert_ne!(PROMPT.text(), Prompt { number: 2, ..PROMPT }.text());
        assert_eq!(PROMPT.text().split_whitespace().count(), 100);
        let fresh = Prompt { nonce: 77, ..PROMPT };
        assert_eq!(fresh.text(), format!("77 {}", PROMPT.text()));
    }
}
