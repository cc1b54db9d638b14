//! Translates an engine's event stream into a stream of Ollama's API (one JSON object a line).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{AnswerError, AnswerText, AnswerTimes, PartialAnswer};

/// Longest event of an engine; a longer one ends the stream with an error.
pub(crate) const MOST_EVENT: usize = 1024 * 1024;

/// Translator of a stream. The caller feeds bytes and passes the result on.
#[derive(Debug)]
pub struct OllamaLines {
    answer: PartialAnswer,
    events: EventReader,
    requested: Instant,
    first_byte: Duration,
    over: bool,
    failed: bool,
}

impl OllamaLines {
    /// `first_byte` is the time from `asked` to the first byte of the engine's answer.
    pub fn new(answer: PartialAnswer, requested: Instant, first_byte: Duration) -> Self {
        Self { answer, events: EventReader::default(), requested, first_byte, over: false, failed: false }
    }

    /// The last line was an error.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Takes a piece of the engine's stream and appends the lines that follow from it.
    pub fn feed(&mut self, mut piece: &[u8], lines: &mut Vec<u8>) {
        while !self.over {
            match self.events.next(&mut piece) {
                Ok(None) => return,
                Ok(Some(event)) => self.event(&event, lines),
                Err(error) => self.fail(&error, lines),
            }
        }
    }

    /// The engine's stream has ended.
    pub fn end(&mut self, lines: &mut Vec<u8>) {
        if !self.over {
            if self.answer.is_finished() {
                self.finish(lines)
            } else {
                self.fail(&AnswerError::EndedEarly, lines)
            }
        }
    }

    pub fn fail(&mut self, error: &AnswerError, lines: &mut Vec<u8>) {
        if !self.over {
            (self.over, self.failed) = (true, true);
            line(&json!({ "error": error.to_string() }), lines);
        }
    }

    fn event(&mut self, event: &[u8], lines: &mut Vec<u8>) {
        if event == b"[DONE]" {
            return self.finish(lines);
        }
        match self.answer.take(event) {
            Ok(text) if text == AnswerText::default() => {}
            Ok(text) => line(&self.answer.piece(&text, self.times()), lines),
            Err(error) => self.fail(&error, lines),
        }
    }

    fn finish(&mut self, lines: &mut Vec<u8>) {
        let times = self.times();
        match self.answer.called(times) {
            Ok(called) => {
                called.iter().for_each(|called| line(called, lines));
                line(&self.answer.last(&AnswerText::default(), times), lines);
                self.over = true;
            }
            Err(error) => self.fail(&error, lines),
        }
    }

    fn times(&self) -> AnswerTimes {
        AnswerTimes { now: Timestamp::now(), total: self.requested.elapsed(), first_byte: self.first_byte }
    }
}

fn line(object: &Value, lines: &mut Vec<u8>) {
    lines.extend_from_slice(object.to_string().as_bytes());
    lines.push(b'\n');
}

/// Reader of server-sent events; only their data is used.
#[derive(Debug, Default)]
struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    /// The last byte was a CR, so an LF that follows belongs to it.
    after_return: bool,
}

impl EventReader {
    /// Reads on in `piece` to the end of the next event with data, which is returned.
    fn next(&mut self, piece: &mut &[u8]) -> Result<Option<Vec<u8>>, AnswerError> {
        while let Some(end) = memchr::memchr2(b'\n', b'\r', piece) {
            let (text, rest) = piece.split_at(end);
            let is_second = std::mem::take(&mut self.after_return) && end == 0 && rest[0] == b'\n';
            self.after_return = rest[0] == b'\r';
            *piece = &rest[1..];
            if is_second {
                continue;
            }
            self.hold(text)?;
            if self.line.is_empty() && !self.data.is_empty() {
                return Ok(Some(std::mem::take(&mut self.data)));
            }
            self.take_line();
        }
        self.after_return &= piece.is_empty();
        self.hold(piece)?;
        *piece = &[];
        Ok(None)
    }

    fn hold(&mut self, text: &[u8]) -> Result<(), AnswerError> {
        if self.line.len() + self.data.len() + text.len() > MOST_EVENT {
            return Err(AnswerError::LongEvent(MOST_EVENT));
        }
        self.line.extend_from_slice(text);
        Ok(())
    }

    fn take_line(&mut self) {
        if let Some(data) = self.line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests;
