//! Builds one operation of the OpenAPI document from its row in the table of routes, with descriptions,
//! parameters and bodies.

use http::Method;

use super::{ollama, own};
use crate::api::Action;

/// Refusals of requests that go to an engine.
pub(super) const ENGINE_REFUSALS: [u16; 11] = [400, 404, 408, 413, 415, 422, 429, 500, 501, 502, 503];

/// Refusals of a name: no model has it, or a model whose configuration is wrong.
pub(super) const NAME_REFUSALS: &[u16] = &[404, 500];

const ENGINES: &str = "Engines";
pub(super) const LLAMA_SERVER: &str = "llama-server";
pub(super) const LLAMA_SWAP: &str = "llama-swap";
pub(super) const LM_STUDIO: &str = "LM Studio";
pub(super) const OLLAMA: &str = "Ollama";
pub(super) const OPENAI: &str = "OpenAI";
pub(super) const PLIMSOLL: &str = "Plimsoll";

/// Media type of a body, and the name of its schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) kind: &'static str,
    pub(super) schema: &'static str,
}

pub(super) const TEXT: Content = text("text/plain");
/// Events, each of which is JSON of its own form.
pub(super) const EVENTS: Content = Content { kind: "text/event-stream", schema: "Any" };
pub(super) const LINES: Content = text("application/x-ndjson");
const ANY: Content = Content { kind: "*/*", schema: "Any" };

pub(super) const fn text(kind: &'static str) -> Content {
    Content { kind, schema: "Text" }
}

pub(super) const fn json(schema: &'static str) -> Content {
    Content { kind: "application/json", schema }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    /// Parameters of the query, by their names in the components.
    pub(super) query: &'static [&'static str],
    pub(super) body: Option<Content>,
    pub(super) body_is_optional: bool,
    /// Forms of the body of a success.
    pub(super) answers: [Option<Content>; 2],
    pub(super) successes: &'static [u16],
    /// Refusals beyond those that every such request may meet.
    pub(super) refusals: &'static [u16],
    /// The request may reach an engine, whose answers pass as they are.
    pub(super) is_of_engine: bool,
}

/// An operation whose success has no body.
pub(super) const fn does(tag: &'static str, summary: &'static str) -> Operation {
    Operation {
        tag,
        summary,
        query: &[],
        body: None,
        body_is_optional: false,
        answers: [None; 2],
        successes: &[200],
        refusals: &[],
        is_of_engine: false,
    }
}

pub(super) const fn shows(tag: &'static str, summary: &'static str, answer: Content) -> Operation {
    Operation { answers: [Some(answer), None], ..does(tag, summary) }
}

/// An order about the model that its body names.
pub(super) const fn about_model(tag: &'static str, summary: &'static str) -> Operation {
    shows(tag, summary, json("Success")).takes("ModelOrder").refuses(&[404, 415, 500])
}

impl Operation {
    pub(super) const fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    pub(super) const fn takes(self, schema: &'static str) -> Self {
        Self { body: Some(json(schema)), ..self }
    }

    pub(super) const fn or_shows(self, other: Content) -> Self {
        Self { answers: [self.answers[0], Some(other)], ..self }
    }

    pub(super) const fn refuses(self, refusals: &'static [u16]) -> Self {
        Self { refusals, ..self }
    }

    pub(super) const fn of_engine(self) -> Self {
        Self { is_of_engine: true, ..self }
    }
}

impl Action {
    pub(super) fn operation(self, path: &str, method: &Method) -> Operation {
        let has_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        match self {
            Self::Engine => {
                let is_openai = path.starts_with("/v1/") || path.starts_with("/api/v0/");
                let tag = if is_openai { OPENAI } else { LLAMA_SERVER };
                let operation = passes(tag, "Passes the request to the engine of its model");
                if has_body {
                    operation.query(&["autoload"]).takes("ModelRequest")
                } else {
                    operation.query(&["of", "autoload"])
                }
            }
            Self::AnyEngine => {
                let operation =
                    passes(LLAMA_SERVER, "Passes the request to an engine whose flags enable this");
                operation.query(&["model", "autoload"]).may_take(has_body)
            }
            Self::Upstream => {
                passes(ENGINES, "Passes the rest of the path to the engine of the model").may_take(has_body)
            }
            Self::Stream => {
                let operation = passes(LLAMA_SERVER, "Follows the stream of a conversation, or ends it");
                let query: &[&str] = if path.contains('{') { &["model"] } else { &["conv_id", "model"] };
                Operation { successes: &[200, 204], ..operation.query(query) }
            }
            Self::StreamLookup => {
                shows(LLAMA_SERVER, "Finds the streams of conversations", json("List")).takes("StreamLookup")
            }
            Self::Ollama(endpoint) => ollama::of_engine(endpoint),
            // With `?model=` it is the engine that answers.
            Self::EngineOr(own) => own::operation(own).query(&["model", "autoload"]).of_engine(),
            Self::Own(own) => own::operation(own),
        }
    }
}

const fn passes(tag: &'static str, summary: &'static str) -> Operation {
    shows(tag, summary, ANY).of_engine()
}

impl Operation {
    fn may_take(self, has_body: bool) -> Self {
        Self { body: has_body.then_some(ANY), body_is_optional: true, ..self }
    }
}
