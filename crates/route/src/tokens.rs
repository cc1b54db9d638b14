//! Reads the token counts of an answer (OpenAI's `usage` or llama-server's `timings`) from its last bytes.
//!
//! A copy of the last few kilobytes is searched when the answer ends. If no count is found, it stays unknown.

use bytes::Bytes;
use memchr::memmem::rfind;
use memchr::memrchr_iter;

/// Number of bytes kept from the end of an answer. Both counts are within them, except if the engine was
/// ordered to repeat the prompt afterwards.
const LONGEST: usize = 4096;
/// Limit on a plausible token count.
const DEEPEST: u64 = 1 << 32;

/// The key of OpenAI's count, which most answers hold.
const TOTAL: &[u8] = b"\"total_tokens\"";
/// The keys of its parts, one of which stands beside it.
const CREATED: &[u8] = b"\"completion_tokens\"";
const READ: &[u8] = b"\"prompt_tokens\"";
/// The rare letter of these keys, and what stands behind it.
const RARE: (u8, &[u8]) = (b'k', b"ens\"");
/// Bytes on each side of the count within which its parts stand.
const ALONGSIDE: usize = 160;

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTokens {
    /// Of the prompt and of the answer together.
    pub total: u64,
    /// Of the answer, if it is reported.
    pub created: Option<u64>,
}

/// Last bytes of an answer.
#[derive(Debug, Default)]
pub(super) struct PromptTail(Vec<u8>);

impl PromptTail {
    pub(super) fn feed(&mut self, piece: &Bytes) {
        // Copied: a kept piece would hold the whole read buffer that it came in.
        self.0.extend_from_slice(&piece[piece.len().saturating_sub(LONGEST)..]);
        // Up to twice as much is kept, so that it is moved rarely.
        if self.0.len() > 2 * LONGEST {
            self.0.drain(..self.0.len() - LONGEST);
        }
    }

    pub(super) fn tokens(&self) -> Option<AnswerTokens> {
        AnswerTokens::in_end_of(&self.0)
    }
}

impl AnswerTokens {
    /// Reads the counts from the last bytes of an answer, or of its last pieces.
    pub(super) fn in_end_of(answer: &[u8]) -> Option<Self> {
        let text = &answer[answer.len().saturating_sub(LONGEST)..];
        let counted = end_of_last(TOTAL, text).and_then(|after| {
            let (at, total) = (after - TOTAL.len(), number_after(&text[after..])?);
            let alongside = &text[at.saturating_sub(ALONGSIDE)..text.len().min(after + ALONGSIDE)];
            let created = || number_after(&alongside[end_of_last(CREATED, alongside)?..]);
            let read = || total.checked_sub(number_after(&alongside[end_of_last(READ, alongside)?..])?);
            Some(AnswerTokens { total, created: created().or_else(read) })
        });
        let tokens = counted.or_else(|| timed(text)).filter(|tokens| tokens.total < DEEPEST)?;
        Some(AnswerTokens { created: tokens.created.filter(|created| *created <= tokens.total), ..tokens })
    }
}

/// llama-server's timings: tokens from the cache, of the rest of the prompt, and made.
fn timed(text: &[u8]) -> Option<AnswerTokens> {
    let timings = text.get(rfind(text, b"\"timings\"")?..)?;
    let prompt = number(timings, b"\"prompt_n\"")?;
    let created = number(timings, b"\"predicted_n\"")?;
    let cached = number(timings, b"\"cache_n\"").unwrap_or(0);
    let total = prompt.checked_add(created)?.checked_add(cached)?;
    Some(AnswerTokens { total, created: Some(created) })
}

/// The number behind the last occurrence of a key.
fn number(text: &[u8], key: &[u8]) -> Option<u64> {
    number_after(text.get(rfind(text, key)? + key.len()..)?)
}

/// The place behind the last occurrence of a key of tokens.
///
/// DECISION: a search for one rare letter, from the end, where the counts stand. `memmem` makes its tables
/// anew for a search backwards, and forwards it has to go on to the end behind each key that it finds; either
/// took three times as long.
fn end_of_last(key: &[u8], text: &[u8]) -> Option<usize> {
    let (letter, rest) = RARE;
    memrchr_iter(letter, text)
        .map(|at| at + 1 + rest.len())
        .find(|end| text.get(..*end).is_some_and(|text| text.ends_with(key)))
}

fn number_after(key: &[u8]) -> Option<u64> {
    let after = key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = after.iter().map_while(|byte| byte.is_ascii_digit().then(|| u64::from(byte - b'0')));
    let mut digits = digits.peekable();
    digits.peek()?;
    digits.try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(pieces: &[&str]) -> Option<u64> {
        reported(pieces).map(|tokens| tokens.total)
    }

    fn reported(pieces: &[&str]) -> Option<AnswerTokens> {
        let mut tail = PromptTail::default();
        for piece in pieces {
            tail.feed(&Bytes::copy_from_slice(piece.as_bytes()));
        }
        tail.tokens()
    }

    #[test]
    fn usage_and_timings_are_read_wherever_the_pieces_break() {
        let long = "x".repeat(9000);
        assert_eq!(tokens(&[&long, "\"usage\":{\"total_", "tokens\": 12", "34}}"]), Some(1234));
        let timings =
            "data: {\"timings\":{\"cache_n\":7,\"prompt_n\":20,\"prompt_ms\":3.5,\"predicted_n\":13}}\n\n";
        assert_eq!(tokens(&[&long, timings, "data: [DONE]\n\n"]), Some(40));
        assert_eq!(tokens(&["{\"timings\":{\"prompt_n\":20,\"predicted_n\":1}}"]), Some(21));
    }

    #[test]
    fn the_part_of_the_answer_is_reported_where_it_stands_beside_the_sum() {
        let of = |text: &str| reported(&[text]).unwrap().created;
        let usage = r#""usage":{"completion_tokens":7,"prompt_tokens":30,"total_tokens":37,"prompt_tokens_details":{"cached_tokens":3}}"#;
        assert_eq!(of(usage), Some(7));
        assert_eq!(of(r#""usage":{"prompt_tokens":30,"total_tokens":30}"#), Some(0), "embeddings");
        assert_eq!(of(r#""total_tokens":30"#), None);
        assert_eq!(of(r#""completion_tokens":31,"total_tokens":30"#), None, "more than there are");
        assert_eq!(of(&format!(r#""completion_tokens":3,{}"total_tokens":30"#, " ".repeat(500))), None);
        assert_eq!(of(r#""timings":{"prompt_n":20,"predicted_n":13}"#), Some(13));
    }

    #[test]
    fn unreported_token_counts_are_unknown() {
        for answer in
            ["", "{}", "\"total_tokens\":null", "\"total_tokens\":99999999999999999999", "\"total_tokens\""]
        {
            assert_eq!(tokens(&[answer]), None, "{answer}");
        }
        assert_eq!(tokens(&["\"total_tokens\":5", &"x".repeat(9000)]), None);
    }

    #[test]
    fn little_is_kept_however_long_the_answer() {
        let mut tail = PromptTail::default();
        for _ in 0..10_000 {
            tail.feed(&Bytes::from_static(b"data: {\"choices\":[]}\n\n"));
        }
        assert!(tail.0.len() <= 2 * LONGEST && tail.0.capacity() <= 4 * LONGEST);
    }
}
