//! Parser of streamed chat completions, which measures speed and time to the first token and counts tokens.

use std::time::Duration;

use serde_json::Value;

use super::refused::{LoadRefusals, cut, reported};

/// Length limit of one event.
const MOST_EVENT: usize = 4 << 20;

/// A complete answer with its times and token counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadAnswer {
    /// Time from sending the request to the first token.
    pub first_token: Duration,
    pub whole: Duration,
    /// Number of events with content.
    pub pieces: u64,
    pub prompt_tokens: Option<u64>,
    pub answer_tokens: Option<u64>,
    /// Prompt tokens that the server had cached.
    pub cached_tokens: Option<u64>,
    /// Tokens per second by llama-server's own clock.
    pub prompt_speed: Option<f64>,
    pub answer_speed: Option<f64>,
}

/// Reason why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum LoadFailure {
    #[error("no connection: {0}")]
    Connect(String),
    #[error("status {status}: {refused}")]
    Status { status: u16, refused: Box<LoadRefusals> },
    #[error("the stream ended early")]
    Broken,
    #[error("the stream contained an error: {0}")]
    Event(String),
    #[error("the server did not answer within the time limit")]
    Late,
    #[error("the server's answer is invalid: {0}")]
    Malformed(&'static str),
}

impl LoadFailure {
    /// The text beyond the failure's kind, or empty.
    pub fn detail(&self) -> String {
        match self {
            Self::Connect(text) | Self::Event(text) => text.clone(),
            Self::Status { refused, .. } => refused.to_string(),
            Self::Broken | Self::Late | Self::Malformed(_) => String::new(),
        }
    }

    /// The failure without its varying parts, for counting failures of one kind.
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

/// Parser state of an answer that is still being received.
#[derive(Debug, Default)]
pub(super) struct StreamParser {
    answer: LoadAnswer,
    line: Vec<u8>,
    is_done: bool,
}

impl StreamParser {
    /// Takes bytes received `after` the request was sent.
    pub(super) fn feed(&mut self, bytes: &[u8], after: Duration) -> Result<(), LoadFailure> {
        let mut rest = bytes;
        // A TCP segment may end in the middle of an event, so the incomplete line is kept for the next call.
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.line.extend_from_slice(&rest[..end]);
            let line = std::mem::take(&mut self.line);
            self.take(&line, after)?;
            rest = &rest[end + 1..];
        }
        self.line.extend_from_slice(rest);
        // Checked after each feed, so a server that never ends its line cannot fill the memory.
        if self.line.len() > MOST_EVENT {
            Err(LoadFailure::Malformed("a server-sent event has no closing blank line"))
        } else {
            Ok(())
        }
    }

    /// Ends the stream. A server that sends no `[DONE]` must have sent content.
    pub(super) fn finish(mut self, after: Duration) -> Result<LoadAnswer, LoadFailure> {
        // A proxy that loses its upstream often closes the stream cleanly; without content that is no answer.
        if !self.is_done && self.answer.pieces == 0 {
            return Err(LoadFailure::Broken);
        }
        self.answer.whole = after;
        Ok(self.answer)
    }

    fn take(&mut self, line: &[u8], after: Duration) -> Result<(), LoadFailure> {
        let Some(data) = line.trim_ascii_end().strip_prefix(b"data:") else {
            // llama-server sends an error during a stream as an `error:` line instead of a `data:` line.
            return match line.strip_prefix(b"error:") {
                Some(text) => Err(LoadFailure::Event(match serde_json::from_slice(text) {
                    Ok(error) => reported(&error),
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
        let event: Value = serde_json::from_slice(data)
            .map_err(|_| LoadFailure::Malformed("a server-sent event is not JSON"))?;
        // Other servers, and newer builds of llama-server, send the error as an ordinary event.
        if !event["error"].is_null() {
            return Err(LoadFailure::Event(reported(&event["error"])));
        }
        self.note(&event, after);
        Ok(())
    }

    fn note(&mut self, event: &Value, after: Duration) {
        let choice = &event["choices"][0];
        let says = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
        // Reasoning models stream their thoughts in `reasoning_content`; old servers stream a bare `text`.
        let delta = &choice["delta"];
        if says(&delta["content"]) || says(&delta["reasoning_content"]) || says(&choice["text"]) {
            if self.answer.pieces == 0 {
                self.answer.first_token = after;
            }
            self.answer.pieces += 1;
        }
        // `usage` is OpenAI's field and `timings` is llama-server's own; the last event carries either or
        // both.
        let (usage, timings) = (&event["usage"], &event["timings"]);
        let answer = &mut self.answer;
        let first = |a: Option<u64>, b: Option<u64>, before: Option<u64>| a.or(b).or(before);
        answer.answer_tokens =
            first(usage["completion_tokens"].as_u64(), timings["predicted_n"].as_u64(), answer.answer_tokens);
        // `prompt_n` counts only the tokens that were evaluated, so the cached ones are added.
        let cached = timings["cache_n"].as_u64();
        let fresh = timings["prompt_n"].as_u64().map(|fresh| fresh + cached.unwrap_or(0));
        answer.prompt_tokens = first(usage["prompt_tokens"].as_u64(), fresh, answer.prompt_tokens);
        answer.cached_tokens =
            first(usage["prompt_tokens_details"]["cached_tokens"].as_u64(), cached, answer.cached_tokens);
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
            assert_eq!((answer.pieces, answer.prompt_tokens, answer.answer_tokens), (2, Some(7), Some(2)));
            assert_eq!((answer.cached_tokens, answer.prompt_speed), (Some(3), Some(99.5)));
            assert_eq!((answer.first_token.as_millis(), answer.whole.as_millis()), (5, 9));
        }
    }

    #[test]
    fn an_error_inside_the_stream_and_a_silent_end_are_failures() {
        for text in ["data: {\"error\":{\"message\":\"no\"}}\n", "error: {\"message\":\"no\"}\n"] {
            let error = StreamParser::default().feed(text.as_bytes(), Duration::ZERO).unwrap_err();
            assert_eq!(error.kind(), "error in the stream");
        }
        assert_eq!(StreamParser::default().finish(Duration::ZERO), Err(LoadFailure::Broken));
        assert!(StreamParser::default().feed(b"data: {\n", Duration::ZERO).is_err());
        assert!(StreamParser::default().feed(&vec![b'x'; MOST_EVENT + 1], Duration::ZERO).is_err());
    }
}
