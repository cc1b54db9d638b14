//! Counts the tokens that a request may reach: its prompt plus the longest answer that it allows.
//!
//! A prompt has at most as many tokens as its body has bytes. The tokens are counted only if memory is too
//! small for this bound.

use plimsoll_base::Slots;

/// Depth of a request: its tokens in the KV cache, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDepth {
    /// Tokens of all its prompts, or an upper bound; `None` if unbounded.
    pub prompt: Option<u64>,
    /// Tokens of each answer at most; `None` if the request sets no limit.
    pub answer: Option<u64>,
    /// Number of answers requested, each of which uses its own slot.
    pub answers: u64,
    /// The engine has counted the tokens, or cannot count them: the number will not become more exact.
    pub exact: bool,
}

impl RequestDepth {
    /// A request that does not use the cache.
    pub const NOTHING: Self = Self { prompt: Some(0), answer: Some(0), answers: 1, exact: true };
    /// A request of unknown depth.
    pub const UNKNOWN: Self = Self { prompt: None, answer: None, answers: 1, exact: true };

    /// Tokens that it occupies in the cache at most. The engine ends it at the size of its slots.
    pub fn tokens(&self, slots: &Slots) -> u64 {
        let answers = self.answers.max(1);
        // llama-server ends an answer when its slot is full, so that no request gets deeper than its slots.
        let most = slots.each.saturating_mul(answers).min(slots.full);
        // The engine's own limit (`-n`) applies to requests that set none.
        let answer = self.answer.or(slots.answer);
        match (self.prompt, answer) {
            (Some(prompt), Some(answer)) => prompt.saturating_add(answer.saturating_mul(answers)).min(most),
            _ => most,
        }
    }

    /// True if the prompt alone fills its slot, so that the engine refuses it by itself.
    pub fn overflows(&self, slots: &Slots) -> bool {
        let most = slots.each.saturating_mul(self.answers.max(1));
        self.exact && self.prompt.is_some_and(|prompt| prompt >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: Slots =
        Slots { count: 4, each: 1000, full: 3000, unified: true, keeps: true, scatter: 0, answer: None };

    fn depth(prompt: u64, answer: Option<u64>, answers: u64) -> RequestDepth {
        RequestDepth { prompt: Some(prompt), answer, answers, exact: true }
    }

    #[test]
    fn prompt_and_answers_add_up_to_no_more_than_the_slots_have() {
        assert_eq!(depth(100, Some(50), 1).tokens(&SLOTS), 150);
        assert_eq!(depth(100, Some(50), 3).tokens(&SLOTS), 250);
        assert_eq!(depth(900, Some(500), 1).tokens(&SLOTS), 1000);
        assert_eq!(depth(9000, Some(500), 9).tokens(&SLOTS), 3000);
        assert_eq!(RequestDepth::NOTHING.tokens(&SLOTS), 0);
    }

    #[test]
    fn without_a_limit_an_answer_takes_what_the_slot_has_or_the_engines_own_limit() {
        assert_eq!(depth(100, None, 1).tokens(&SLOTS), 1000);
        assert_eq!(RequestDepth::UNKNOWN.tokens(&SLOTS), 1000);
        let limited = Slots { answer: Some(20), ..SLOTS };
        assert_eq!(depth(100, None, 1).tokens(&limited), 120);
    }

    #[test]
    fn only_a_counted_prompt_is_said_to_overflow() {
        assert!(depth(1000, None, 1).overflows(&SLOTS));
        assert!(!depth(999, None, 1).overflows(&SLOTS));
        let bound = RequestDepth { exact: false, ..depth(1000, None, 1) };
        assert!(!bound.overflows(&SLOTS));
    }
}
