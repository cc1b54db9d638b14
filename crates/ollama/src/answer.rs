//! Translates an engine's answers into those of Ollama's API.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::endpoints::Endpoint;
use super::engine_answer::{
    EmbeddingsAnswer, EngineAnswer, EngineTimings, EngineUsage, ToolCallPart, error_text,
};

/// Bytes of tool calls that are held until the end of an answer.
const MOST_OCCUPIED: usize = 1024 * 1024;
/// Tool calls of one answer.
pub const MOST_CALLS: usize = 256;

/// Failure of an engine's answer, as the client gets it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("{0}")]
    Engine(String),
    #[error("the engine's answer is not JSON of the OpenAI API: {0}")]
    Unreadable(String),
    #[error("the engine's answer ended early")]
    EndedEarly,
    #[error("the model called the tool {name:?} with arguments that are not a JSON object")]
    Arguments { name: String },
    #[error("the model's tool calls are longer than {MOST_OCCUPIED} bytes, or more than {MOST_CALLS}")]
    TooManyCalls,
    #[error("an event of the engine's answer is longer than {0} bytes")]
    LongEvent(usize),
    #[error("the engine's answer is longer than {0} bytes")]
    LongAnswer(usize),
}

/// Times of a request.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTimes {
    pub now: Timestamp,
    /// Since the request arrived.
    pub total: Duration,
    /// From there to the first byte of the engine's answer.
    pub first_byte: Duration,
}

/// An answer as far as it has come.
#[derive(Debug)]
pub struct PartialAnswer {
    endpoint: Endpoint,
    /// The model's name as the client wrote it.
    model: String,
    calls: Vec<CollectedCall>,
    occupied: usize,
    finish: Option<String>,
    usage: EngineUsage,
    timings: Option<EngineTimings>,
}

#[derive(Debug, Default)]
struct CollectedCall {
    id: String,
    name: String,
    arguments: String,
}

/// Text of an answer, or of a part of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AnswerText {
    pub content: String,
    pub thinking: String,
}

impl PartialAnswer {
    pub fn new(endpoint: Endpoint, model: String) -> Self {
        Self {
            endpoint,
            model,
            calls: Vec::new(),
            occupied: 0,
            finish: None,
            usage: EngineUsage::default(),
            timings: None,
        }
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Takes a whole answer or one event, and returns its text.
    pub fn take(&mut self, json: &[u8]) -> Result<AnswerText, AnswerError> {
        let answer: EngineAnswer<'_> =
            serde_json::from_slice(json).map_err(|error| AnswerError::Unreadable(error.to_string()))?;
        if let Some(error) = answer.error {
            return Err(AnswerError::Engine(error_text(error.get().as_bytes())));
        }
        if let Some(usage) = answer.usage {
            self.usage = usage;
        }
        self.timings = answer.timings.or(self.timings);
        let mut text = AnswerText { content: answer.content.unwrap_or_default(), ..AnswerText::default() };
        if answer.stop {
            self.finish = Some(answer.stop_type.unwrap_or_default());
        }
        if let Some(choice) = answer.choices {
            let stated = choice.message.unwrap_or_default();
            text.content += &stated.content.or(choice.text).unwrap_or_default();
            text.thinking = stated.reasoning_content.or(stated.reasoning).unwrap_or_default();
            for (at, call) in stated.tool_calls.into_iter().enumerate() {
                self.hold(at, call)?;
            }
            self.finish = choice.finish_reason.or(self.finish.take());
        }
        Ok(text)
    }

    fn hold(&mut self, at: usize, part: ToolCallPart) -> Result<(), AnswerError> {
        let index = part.index.unwrap_or(at);
        let function = part.function.unwrap_or_default();
        let (name, arguments) = (function.name.unwrap_or_default(), function.arguments.unwrap_or_default());
        let id = part.id.unwrap_or_default();
        self.occupied = self.occupied.saturating_add(id.len() + name.len() + arguments.len());
        if self.occupied > MOST_OCCUPIED || index >= MOST_CALLS {
            return Err(AnswerError::TooManyCalls);
        }
        if self.calls.len() <= index {
            self.calls.resize_with(index + 1, CollectedCall::default);
        }
        let call = &mut self.calls[index];
        call.id += &id;
        call.name += &name;
        call.arguments += &arguments;
        Ok(())
    }

    /// An object of a stream that is not the last.
    pub fn piece(&self, text: &AnswerText, times: AnswerTimes) -> Value {
        let mut piece = self.head(times);
        self.say(&mut piece, text);
        piece["done"] = json!(false);
        piece
    }

    /// The object with the tool calls of a stream; `None` without any.
    pub fn called(&self, times: AnswerTimes) -> Result<Option<Value>, AnswerError> {
        if self.calls.is_empty() {
            return Ok(None);
        }
        let mut piece = self.piece(&AnswerText::default(), times);
        piece["message"]["tool_calls"] = self.tool_calls()?;
        Ok(Some(piece))
    }

    /// The last object of a stream, or the only one.
    pub fn last(&self, text: &AnswerText, times: AnswerTimes) -> Value {
        let mut last = self.head(times);
        self.say(&mut last, text);
        last["done"] = json!(true);
        last["done_reason"] = json!(self.done_reason());
        self.figures(&mut last, times);
        last
    }

    /// The whole of an answer without a stream.
    pub fn whole(&self, text: &AnswerText, times: AnswerTimes) -> Result<Value, AnswerError> {
        let mut whole = self.last(text, times);
        if !self.calls.is_empty() {
            whole["message"]["tool_calls"] = self.tool_calls()?;
        }
        Ok(whole)
    }

    /// Embeddings, whose numbers stay as the engine wrote them.
    pub fn embeddings(&mut self, json: &[u8], times: AnswerTimes) -> Result<String, AnswerError> {
        let answer: EmbeddingsAnswer<'_> =
            serde_json::from_slice(json).map_err(|error| AnswerError::Unreadable(error.to_string()))?;
        let vectors: Vec<&str> = answer.data.iter().map(|entry| entry.embedding.get()).collect();
        if self.endpoint == Endpoint::Embeddings {
            return Ok(format!("{{\"embedding\":{}}}", vectors.first().unwrap_or(&"[]")));
        }
        self.usage = answer.usage.unwrap_or_default();
        let mut figures = json!({ "model": self.model, "embeddings": null });
        self.figures(&mut figures, times);
        // One key is put in by hand: parsing and printing millions of numbers again would stop all streams.
        Ok(figures.to_string().replacen("null", &format!("[{}]", vectors.join(",")), 1))
    }

    fn head(&self, times: AnswerTimes) -> Value {
        json!({ "model": self.model, "created_at": times.now.to_string() })
    }

    fn say(&self, object: &mut Value, text: &AnswerText) {
        let stated = match self.endpoint {
            Endpoint::Generate => {
                object["response"] = json!(text.content);
                object
            }
            _ => {
                object["message"] = json!({ "role": "assistant", "content": text.content });
                &mut object["message"]
            }
        };
        if !text.thinking.is_empty() {
            stated["thinking"] = json!(text.thinking);
        }
    }

    fn tool_calls(&self) -> Result<Value, AnswerError> {
        let calls = self.calls.iter().enumerate().map(|(index, call)| {
            let arguments = match call.arguments.trim() {
                "" => "{}",
                arguments => arguments,
            };
            let wrong = || AnswerError::Arguments { name: call.name.clone() };
            let arguments: Map<String, Value> = serde_json::from_str(arguments).map_err(|_| wrong())?;
            let function = json!({ "index": index, "name": call.name, "arguments": arguments });
            Ok(match call.id.as_str() {
                "" => json!({ "function": function }),
                id => json!({ "id": id, "function": function }),
            })
        });
        calls.collect()
    }

    /// In Ollama's words, which has none for a tool call.
    fn done_reason(&self) -> &str {
        match self.finish.as_deref() {
            Some("length" | "limit") => "length",
            _ => "stop",
        }
    }

    /// Counts and durations; what the engine does not report is left out.
    fn figures(&self, object: &mut Value, times: AnswerTimes) {
        let timings = self.timings.unwrap_or_default();
        let milliseconds = |time: Option<f64>| Duration::try_from_secs_f64(time? / 1000.0).ok();
        let prompt_time = milliseconds(timings.prompt_ms);
        let read = timings.prompt_n.map(|fresh| fresh.saturating_add(timings.cache_n.unwrap_or(0)));
        let answer_time = milliseconds(timings.predicted_ms);
        // The time before the first byte is the wait for the model, and the prompt's where it is reported; of
        // an answer in one piece also the time of its tokens.
        let before = times.first_byte.min(times.total.saturating_sub(answer_time.unwrap_or_default()));
        let load = before.saturating_sub(prompt_time.unwrap_or_default());
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for (name, figure) in [
            ("total_duration", Some(nanoseconds(times.total))),
            ("load_duration", Some(nanoseconds(load))),
            ("prompt_eval_count", self.usage.prompt_tokens.or(read)),
            ("prompt_eval_duration", prompt_time.map(nanoseconds)),
            ("eval_count", self.usage.completion_tokens.or(timings.predicted_n)),
            ("eval_duration", answer_time.map(nanoseconds)),
        ] {
            if let Some(figure) = figure {
                object[name] = json!(figure);
            }
        }
    }
}

#[cfg(test)]
mod tests;
