//! Lists the kinds of requests that an engine answers, with the smallest test request of each.

use serde_json::{Value, json};

/// Kind of a request, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeKind {
    Chat,
    Completion,
    /// llama-server's own completion.
    Native,
    Messages,
    Embedding,
    Rerank,
}

impl ProbeKind {
    /// The kind of a client's request; `None` where no small request is known for it.
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path.strip_prefix("/v1").unwrap_or(path) {
            "/chat/completions" => Self::Chat,
            "/completions" => Self::Completion,
            "/completion" => Self::Native,
            "/messages" => Self::Messages,
            "/embeddings" => Self::Embedding,
            "/rerank" | "/reranking" => Self::Rerank,
            _ => return None,
        })
    }

    /// The path and the body of a small request.
    pub(super) fn request(self, model: &str) -> (&'static str, Value) {
        let turns = json!([{ "role": "user", "content": "a" }]);
        match self {
            Self::Chat => {
                ("/v1/chat/completions", json!({ "model": model, "messages": turns, "max_tokens": 1 }))
            }
            Self::Completion => {
                ("/v1/completions", json!({ "model": model, "prompt": "a", "max_tokens": 1 }))
            }
            Self::Native => ("/completion", json!({ "prompt": "a", "n_predict": 1 })),
            Self::Messages => ("/v1/messages", json!({ "model": model, "messages": turns, "max_tokens": 1 })),
            Self::Embedding => ("/v1/embeddings", json!({ "model": model, "input": "a" })),
            Self::Rerank => ("/v1/rerank", json!({ "model": model, "query": "a", "documents": ["a"] })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_request_is_that_of_its_path_with_and_without_v1() {
        for (path, kind) in [
            ("/v1/chat/completions", Some(ProbeKind::Chat)),
            ("/chat/completions", Some(ProbeKind::Chat)),
            ("/completion", Some(ProbeKind::Native)),
            ("/v1/embeddings", Some(ProbeKind::Embedding)),
            ("/reranking", Some(ProbeKind::Rerank)),
            ("/v1/audio/speech", None),
            ("/health", None),
        ] {
            assert_eq!(ProbeKind::of(path), kind, "{path}");
        }
    }
}
