//! A streamed answer, read as it comes: when it began, how fast it went, what the server says of it.

use std::time::Duration;

use serde_json::Value;

use super::refused::{Refused, cut, told};

/// An event longer than this is no event.
const MOST_EVENT: usize = 4 << 20;

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// From the last byte of the request to the first token.
    pub first_token: Duration,
    pub whole: Duration,
    /// Events with content.
    pub pieces: u64,
    pub prompt_tokens: Option<u64>,
    pub answer_tokens: Option<u64>,
    /// Of the prompt, what the server had already.
    pub cached_tokens: Option<u64>,
    /// llama-server's own clock, in tokens per second.
    pub prompt_speed: Option<f64>,
    pub answer_speed: Option<f64>,
}

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Failure {
    #[error("no connection: {0}")]
    Connect(String),
    #[error("status {status}: {refused}")]
    Status { status: u16, refused: Box<Refused> },
    #[error("the stream broke off")]
    Broken,
    #[error("the stream carried an error: {0}")]
    Event(String),
    #[error("no answer in time")]
    Late,
    #[error("the answer makes no sense: {0}")]
    Malformed(&'static str),
}

impl Failure {
    /// Returns the details beyond the kind; empty where there are none.
    pub fn detail(&self) -> String {
        match self {
            Self::Connect(text) | Self::Event(text) => text.clone(),
            Self::Status { refused, .. } => refused.to_string(),
            Self::Broken | Self::Late | Self::Malformed(_) => String::new(),
        }
    }

    /// Without what differs from one to the next.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "no connection".to_owned(),
            Self::Status { status, refused } => match &refused.code {
                Some(code) => format!("status {status} ({code})"),
                None => format!("status {status}"),
            },
            Self::Event(_) => "error in the stream".to_owned(),
            other => other.to_string(),
        }
    }
}

/// An answer while it comes.
#[derive(Debug, Default)]
pub(super) struct StreamParser {
    answer: Answer,
    line: Vec<u8>,
    is_done: bool,
}

impl StreamParser {
    /// Takes bytes that came `after` the request was sent.
    pub(super) fn feed(&mut self, bytes: &[u8], after: Duration) -> Result<(), Failure> {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.line.extend_from_slice(&rest[..end]);
            let line = std::mem::take(&mut self.line);
            self.take(&line, after)?;
            rest = &rest[end + 1..];
        }
        self.line.extend_from_slice(rest);
        match self.line.len() > MOST_EVENT {
            true => Err(Failure::Malformed("an event without end")),
            false => Ok(()),
        }
    }

    /// The end of the stream. A server that sends no `[DONE]` has to have said something.
    pub(super) fn finish(mut self, after: Duration) -> Result<Answer, Failure> {
        if !self.is_done && self.answer.pieces == 0 {
            return Err(Failure::Broken);
        }
        self.answer.whole = after;
        Ok(self.answer)
    }

    fn take(&mut self, line: &[u8], after: Duration) -> Result<(), Failure> {
        // llama-server sends an error after the first token as an `error:` field, without an event of its
        // own.
        let Some(data) = line.trim_ascii_end().strip_prefix(b"data:") else {
            return match line.strip_prefix(b"error:") {
                Some(text) => Err(Failure::Event(match serde_json::from_slice(text) {
                    Ok(error) => told(&error),
                    Err(_) => cut(String::from_utf8_lossy(text.trim_ascii()).into_owned()),
                })),
                None => Ok(()),
            };
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let event: Value =
            serde_json::from_slice(data).map_err(|_| Failure::Malformed("an event that is no JSON"))?;
        if !event["error"].is_null() {
            return Err(Failure::Event(told(&event["error"])));
        }
        self.note(&event, after);
        Ok(())
    }

    fn note(&mut self, event: &Value, after: Duration) {
        let choice = &event["choices"][0];
        let says = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
        // Chat streams carry deltas, legacy completions carry `text`; reasoning models stream a second field.
        let delta = &choice["delta"];
        if says(&delta["content"]) || says(&delta["reasoning_content"]) || says(&choice["text"]) {
            if self.answer.pieces == 0 {
                self.answer.first_token = after;
            }
            self.answer.pieces += 1;
        }
        let (usage, timings) = (&event["usage"], &event["timings"]);
        let answer = &mut self.answer;
        let first = |a: Option<u64>, b: Option<u64>, before: Option<u64>| a.or(b).or(before);
        answer.answer_tokens = first(
            usage["completion_tokens"].as_u64(),
            timings["predicted_n"].as_u64(),
            answer.answer_tokens,
        );
        // llama-server counts only evaluated tokens in `prompt_n`; the cached prefix is in `cache_n`.
        let cached = timings["cache_n"].as_u64();
        let fresh = timings["prompt_n"]
            .as_u64()
            .map(|fresh| fresh + cached.unwrap_or(0));
        answer.prompt_tokens = first(usage["prompt_tokens"].as_u64(), fresh, answer.prompt_tokens);
        answer.cached_tokens = first(
            usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
            cached,
            answer.cached_tokens,
        );
        answer.prompt_speed = timings["prompt_per_second"].as_f64().or(answer.prompt_speed);
        answer.answer_speed = timings["predicted_per_second"].as_f64().or(answer.answer_speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n: a comment\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2},\"timings\":{\"cache_n\":3,\"prompt_n\":4,\"prompt_per_second\":99.5}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn an_answer_reads_the_same_however_it_is_cut() {
        for piece in 1..STREAM.len() {
            let mut coming = StreamParser::default();
            for piece in STREAM.as_bytes().chunks(piece) {
                coming.feed(piece, Duration::from_millis(5)).unwrap();
            }
            let answer = coming.finish(Duration::from_millis(9)).unwrap();
            assert_eq!(
                (answer.pieces, answer.prompt_tokens, answer.answer_tokens),
                (2, Some(7), Some(2))
            );
            assert_eq!((answer.cached_tokens, answer.prompt_speed), (Some(3), Some(99.5)));
            assert_eq!((answer.first_token.as_millis(), answer.whole.as_millis()), (5, 9));
        }
    }

    #[test]
    fn an_error_inside_the_stream_and_a_silent_end_are_failures() {
        for text in [
            "data: {\"error\":{\"message\":\"no\"}}\n",
            "error: {\"message\":\"no\"}\n",
        ] {
            let error = StreamParser::default()
                .feed(text.as_bytes(), Duration::ZERO)
                .unwrap_err();
            assert_eq!(error.kind(), "error in the stream");
        }
        assert_eq!(
            StreamParser::default().finish(Duration::ZERO),
            Err(Failure::Broken)
        );
        assert!(
            StreamParser::default()
                .feed(b"data: {\n", Duration::ZERO)
                .is_err()
        );
        assert!(
            StreamParser::default()
                .feed(&vec![b'x'; MOST_EVENT + 1], Duration::ZERO)
                .is_err()
        );
    }
}
