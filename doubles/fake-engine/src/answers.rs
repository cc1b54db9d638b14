//! Writes response bodies of the fake engine in the shapes of llama-server (`server-task.cpp`,
//! `server-context.cpp @ b10605`).
//!
//! Generation is part of what benchmarks measure, so its bodies are written by hand; the others are built as
//! JSON. Every response also identifies this process under `fake`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::args::Args;

pub(crate) const LOADING: &str =
    r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
/// llama-server, once its backend answers every graph with an error (`server-context.cpp: update_slots @
/// b11063`).
pub(crate) const COMPUTE_ERROR: &str =
    r#"{"error":{"message":"Compute error.","type":"server_error","code":500}}"#;
pub(crate) const INVALID_KEY: &str =
    r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#;
pub(crate) const NOT_FOUND: &str =
    r#"{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}"#;
pub(crate) const HEALTHY: &str = r#"{"status":"ok"}"#;

const DONE: &str = "data: [DONE]\n\n";

/// The API in whose words a generation is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Completions,
    /// llama-server's own `/completion` and `/infill`.
    Native,
}

/// One answer to be given.
#[derive(Debug)]
pub(crate) struct Generation<'a> {
    pub(crate) dialect: Dialect,
    /// The model's name as a JSON string, quotes included.
    pub(crate) model: &'a str,
    /// Distinguishes this answer from all others: the process, as a number that comes once, and the answer's
    /// own.
    pub(crate) id: (&'a str, u64),
    pub(crate) prompt_tokens: u64,
    pub(crate) answer_tokens: u64,
    pub(crate) signature: &'a str,
}

impl Generation<'_> {
    pub(crate) fn whole(&self, content: &str) -> String {
        let Self { model, signature, prompt_tokens, answer_tokens, .. } = self;
        let (usage, timings) = (self.usage(), self.timings());
        match self.dialect {
            Dialect::Chat => {
                let identity = self.identity("chat.completion");
                format!(
                    r#"{{"choices":[{{"finish_reason":"stop","index":0,"message":{{"role":"assistant","content":"{content}"}}}}],{identity},{usage},{timings},"fake":{signature}}}"#
                )
            }
            Dialect::Completions => {
                let identity = self.identity("text_completion");
                format!(
                    r#"{{"choices":[{{"text":"{content}","index":0,"logprobs":null,"finish_reason":"stop"}}],{identity},{usage},{timings},"fake":{signature}}}"#
                )
            }
            Dialect::Native => format!(
                r#"{{"index":0,"content":"{content}","tokens":[],"id_slot":0,"stop":true,"model":{model},"tokens_predicted":{answer_tokens},"tokens_evaluated":{prompt_tokens},"truncated":false,"stop_type":"eos","stopping_word":"","tokens_cached":0,{timings},"fake":{signature}}}"#
            ),
        }
    }

    /// The event that opens a stream, where the dialect has one.
    pub(crate) fn opening(&self) -> Option<String> {
        let delta = r#"{"role":"assistant","content":null}"#;
        (self.dialect == Dialect::Chat).then(|| self.chat_event(delta, "null", ""))
    }

    pub(crate) fn event(&self, content: &str) -> String {
        match self.dialect {
            Dialect::Chat => self.chat_event(&format!(r#"{{"content":"{content}"}}"#), "null", ""),
            Dialect::Completions => self.text_event(content, "null", ""),
            Dialect::Native => format!(
                "data: {{\"index\":0,\"content\":\"{content}\",\"tokens\":[0],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":1,\"tokens_evaluated\":{}}}\n\n",
                self.prompt_tokens
            ),
        }
    }

    /// The events that close a stream. Only the OpenAI dialects end in `[DONE]`.
    pub(crate) fn closing(&self) -> String {
        let (usage, timings) = (self.usage(), self.timings());
        let stop = r#""stop""#;
        match self.dialect {
            Dialect::Chat => self.chat_event("{}", stop, &format!(",{timings}")) + DONE,
            Dialect::Completions => self.text_event("", stop, &format!(",{usage},{timings}")) + DONE,
            Dialect::Native => format!("data: {}\n\n", self.whole("")),
        }
    }

    fn chat_event(&self, delta: &str, finish_reason: &str, tail: &str) -> String {
        let identity = self.identity("chat.completion.chunk");
        format!(
            "data: {{\"choices\":[{{\"finish_reason\":{finish_reason},\"index\":0,\"delta\":{delta}}}],{identity}{tail}}}\n\n"
        )
    }

    fn text_event(&self, content: &str, finish_reason: &str, tail: &str) -> String {
        let identity = self.identity("text_completion");
        format!(
            "data: {{\"choices\":[{{\"text\":\"{content}\",\"index\":0,\"logprobs\":null,\"finish_reason\":{finish_reason}}}],{identity}{tail}}}\n\n"
        )
    }

    /// A millisecond for each half: the double measures nothing.
    fn timings(&self) -> String {
        let Self { prompt_tokens, answer_tokens, .. } = self;
        format!(
            r#""timings":{{"cache_n":0,"prompt_n":{prompt_tokens},"prompt_ms":1.0,"predicted_n":{answer_tokens},"predicted_ms":1.0}}"#
        )
    }

    fn identity(&self, object: &str) -> String {
        let Self { model, id: (process, number), .. } = self;
        format!(
            r#""created":{},"id":"chatcmpl-{process}-{number}","model":{model},"system_fingerprint":"b10605-fake","object":"{object}""#,
            now()
        )
    }

    fn usage(&self) -> String {
        let Self { prompt_tokens, answer_tokens, .. } = self;
        let total = prompt_tokens + answer_tokens;
        format!(
            r#""usage":{{"completion_tokens":{answer_tokens},"prompt_tokens":{prompt_tokens},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0}}}}"#
        )
    }
}

/// The entry of `/v1/models`, which is also what a child tells its router when it is ready.
pub(crate) fn model_entry(args: &Args) -> Value {
    json!({
        "id": args.name(), "aliases": args.aliases(), "tags": [], "object": "model", "created": now(), "owned_by": "llamacpp",
        "architecture": { "input_modalities": ["text"], "output_modalities": ["text"] },
        "meta": { "vocab_type": 2, "n_vocab": 32000, "n_ctx": args.context, "n_ctx_train": 32768, "n_embd": 64,
            "n_params": 1_000_000, "size": 2_000_000, "ftype": "F16" },
    })
}

pub(crate) fn models(args: &Args) -> Value {
    let entry =
        json!({ "name": args.name(), "model": args.name(), "type": "model", "capabilities": ["completion"] });
    json!({ "models": [entry], "object": "list", "data": [model_entry(args)] })
}

pub(crate) fn props(args: &Args) -> Value {
    json!({
        "default_generation_settings": { "params": {}, "n_ctx": args.context },
        "total_slots": if args.script.slots == 0 { 4 } else { args.script.slots }, "model_alias": args.name(), "model_path": args.model,
        "modalities": { "vision": false, "audio": false },
        "chat_template": "", "bos_token": "<s>", "eos_token": "</s>", "build_info": "b10605-fake", "is_sleeping": false,
    })
}

/// The slots, of which the first has all tokens that were computed (`server-context.cpp: to_json @ b11063`).
pub(crate) fn slots(args: &Args, in_flight: u64, tokens: u64, computed: u64) -> Value {
    let slot = |id: usize| {
        let busy = usize::try_from(in_flight).is_ok_and(|in_flight| id < in_flight);
        json!({
            "id": id, "n_ctx": args.context, "speculative": false, "is_processing": busy, "id_task": 0,
            "n_prompt_tokens": if id == 0 { tokens } else { 0 },
            "n_prompt_tokens_processed": if id == 0 { computed } else { 0 },
            "next_token": [{ "n_decoded": 0 }],
        })
    };
    (0..args.script.slots.max(1)).map(slot).collect()
}

pub(crate) fn embeddings(model: &str, prompt_tokens: u64) -> Value {
    json!({
        "model": model, "object": "list", "usage": { "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens },
        "data": [{ "embedding": [0.5, -0.5, 0.5, -0.5], "index": 0, "object": "embedding" }],
    })
}

pub(crate) fn native_embedding() -> Value {
    json!([{ "index": 0, "embedding": [[0.5, -0.5, 0.5, -0.5]] }])
}

/// One result a document, the first the most relevant.
pub(crate) fn rerank(model: &str, body: &[u8], prompt_tokens: u64) -> Value {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let documents = request["documents"].as_array().map_or(0, Vec::len);
    let results: Vec<Value> = (1..=documents)
        .map(|rank| json!({ "index": rank - 1, "relevance_score": rank_score(rank) }))
        .collect();
    json!({
        "model": model, "object": "list", "usage": { "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens },
        "results": results,
    })
}

fn rank_score(rank: usize) -> f64 {
    u32::try_from(rank).map_or(0.0, |rank| 1.0 / f64::from(rank))
}

pub(crate) fn tokenize(prompt_tokens: u64) -> String {
    let numbers: Vec<String> = (0..prompt_tokens).map(|token| (token % 32_000).to_string()).collect();
    format!(r#"{{"tokens":[{}]}}"#, numbers.join(","))
}

/// The double's template repeats the whole body, so that a prompt has as many tokens as its request.
pub(crate) fn apply_template(body: &[u8]) -> String {
    json!({ "prompt": String::from_utf8_lossy(body) }).to_string()
}

/// The number of this process with the moment of its start: the kernel gives numbers of ended processes
/// again.
pub(crate) fn process() -> String {
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", std::process::id(), start.as_nanos())
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(dialect: Dialect) -> Generation<'static> {
        Generation {
            dialect,
            model: "\"m\"",
            id: ("7-1a", 1),
            prompt_tokens: 2,
            answer_tokens: 3,
            signature: "{}",
        }
    }

    #[test]
    fn hand_written_answers_are_json() {
        for dialect in [Dialect::Chat, Dialect::Completions, Dialect::Native] {
            let whole: Value = serde_json::from_str(&generation(dialect).whole("text")).unwrap();
            assert_eq!(whole["model"], "m");
            for event in [generation(dialect).event("text"), generation(dialect).closing()] {
                let first = event.split("\n\n").next().unwrap();
                let event: Value = serde_json::from_str(first.strip_prefix("data: ").unwrap()).unwrap();
                assert!(event.is_object());
            }
        }
    }

    #[test]
    fn only_the_openai_dialects_end_in_done() {
        let ends = |dialect| generation(dialect).closing().ends_with("data: [DONE]\n\n");
        assert_eq!(
            [ends(Dialect::Chat), ends(Dialect::Completions), ends(Dialect::Native)],
            [true, true, false]
        );
    }

    #[test]
    fn rerank_scores_every_document() {
        let answer = rerank("m", br#"{"documents":["a","b"]}"#, 1);
        assert_eq!(answer["results"][1], json!({ "index": 1, "relevance_score": 0.5 }));
    }
}
