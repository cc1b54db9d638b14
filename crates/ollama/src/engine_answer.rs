//! Parses engine answers of the OpenAI API and of llama-server's `/infill`: only the fields that Ollama's API
//! needs.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::MOST_CALLS;
use super::bounded;

/// The longest error of an engine that is read.
const LONGEST_ERROR: usize = 64 * 1024;

/// A whole answer, or one event of a stream.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct EngineAnswer<'a> {
    /// Ollama has one answer for each request, so others are not read.
    #[serde(default, deserialize_with = "bounded::first")]
    pub choices: Option<EngineChoice>,
    pub usage: Option<EngineUsage>,
    pub timings: Option<EngineTimings>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    /// `/infill`: the text, and the reason of its end.
    pub content: Option<String>,
    #[serde(default)]
    pub stop: bool,
    pub stop_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct EngineChoice {
    #[serde(alias = "delta")]
    pub message: Option<EngineText>,
    pub text: Option<String>,
    pub finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct EngineText {
    pub content: Option<String>,
    pub reasoning_content: Option<String>,
    /// The same in vLLM, which may write both.
    pub reasoning: Option<String>,
    #[serde(default, deserialize_with = "bounded::list::<_, _, MOST_CALLS>")]
    pub tool_calls: Vec<ToolCallPart>,
}

/// A tool call, or a part of it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ToolCallPart {
    pub index: Option<usize>,
    pub id: Option<String>,
    pub function: Option<FunctionPart>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct FunctionPart {
    pub name: Option<String>,
    pub arguments: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct EngineUsage {
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
}

/// llama-server's figures of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct EngineTimings {
    pub cache_n: Option<u64>,
    pub prompt_n: Option<u64>,
    pub prompt_ms: Option<f64>,
    pub predicted_n: Option<u64>,
    pub predicted_ms: Option<f64>,
}

/// Embeddings; the numbers stay text.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingsAnswer<'a> {
    #[serde(borrow)]
    pub data: Vec<EmbeddingEntry<'a>>,
    pub usage: Option<EngineUsage>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingEntry<'a> {
    #[serde(borrow)]
    pub embedding: &'a RawValue,
}

/// The message of an engine's error, in whatever shape it comes.
pub fn error_text(body: &[u8]) -> String {
    let known = Some(body).filter(|body| body.len() <= LONGEST_ERROR);
    let known = known.and_then(|body| serde_json::from_slice::<Value>(body).ok()).and_then(|body| {
        let error = body.get("error").unwrap_or(&body);
        message(error)
    });
    known.unwrap_or_else(|| {
        // vLLM and proxies answer some errors in plain text.
        let text = String::from_utf8_lossy(&body[..body.len().min(500)]);
        match text.trim() {
            "" => "the engine refused the request without a reason".to_owned(),
            text => text.to_owned(),
        }
    })
}

fn message(error: &Value) -> Option<String> {
    error.get("message").unwrap_or(error).as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_an_error_is_found_in_each_shape() {
        for (body, text) in [
            (r#"{"error":{"code":400,"message":"too long","type":"x"}}"#, "too long"),
            (r#"{"error":"plain"}"#, "plain"),
            (r#"{"object":"error","message":"of vLLM"}"#, "of vLLM"),
            ("Internal Server Error\n", "Internal Server Error"),
            ("", "the engine refused the request without a reason"),
            ("{\"error\":[]}", "{\"error\":[]}"),
        ] {
            assert_eq!(error_text(body.as_bytes()), text);
        }
        assert!(error_text(&[0xff; 9999]).chars().count() <= 500);
    }
}
