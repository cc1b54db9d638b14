//! Writes the error responses of the HTTP API:
//! `{"error":{"message","type","code","param","reason","hints"}}`.
//!
//! Clients of OpenAI and of llama-server both read this shape; those of Anthropic's and Ollama's API get
//! their own.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use plimsoll_base::{Hint, Reason};
use plimsoll_scheduler::{RequestRefusal, RequestRefusalKind};
use serde_json::{Value, json};

/// The code of a reason that quotes an engine's log.
const ENGINE_WORDS: &str = "engine_said";

/// JSON shape of an error, which depends on the API that the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`.
    Anthropic,
    /// `{"error":"message"}`.
    Ollama,
}

impl ErrorShape {
    pub(crate) fn of(path: &str) -> Self {
        let is_ollama = |endpoint: &str| {
            let others = matches!(endpoint, "pull" | "push" | "create" | "copy" | "delete");
            others
                || matches!(endpoint, "chat" | "generate" | "embed" | "embeddings" | "tags" | "show" | "ps")
        };
        match path.strip_prefix("/api/") {
            Some(rest) if is_ollama(rest) || rest.starts_with("blobs/") => Self::Ollama,
            _ if path == "/v1/messages" || path.starts_with("/v1/messages/") => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }
}

#[derive(Clone, Debug)]
pub struct HttpProblem {
    pub status: StatusCode,
    /// Stable, for machines, e.g. `model_not_found`.
    pub code: Cow<'static, str>,
    pub message: String,
    pub retry_after: Option<Duration>,
    pub reason: Option<Box<Reason>>,
    pub hints: Vec<Hint>,
}

impl HttpProblem {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: Cow::Borrowed(code),
            message: message.into(),
            retry_after: None,
            reason: None,
            hints: Vec::new(),
        }
    }

    /// Says `reason` and its first cause, with the whole tree beside them.
    ///
    /// DECISION: clients show the message and nothing else, and the figures stand in the cause. Further
    /// causes would make a message that nobody reads.
    pub fn because(status: StatusCode, reason: Reason) -> Self {
        let cause = reason.because.iter().find(|cause| cause.code != ENGINE_WORDS);
        let message = match cause {
            Some(cause) if !reason.text.contains(&cause.text) => format!("{}: {}", reason.text, cause.text),
            _ => reason.text.clone(),
        };
        let mut problem = Self::new(status, reason.code, message);
        problem.reason = Some(Box::new(reason));
        problem
    }

    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }

    /// The names that OpenAI and llama-server give to kinds of errors.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::NOT_IMPLEMENTED => "not_supported_error",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    pub fn to_json(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.kind(),
            "code": self.code,
            // OpenAI's error object has this field in every case.
            "param": null,
        });
        if let Some(reason) = &self.reason {
            error["reason"] = without_engine_words(json!(reason));
        }
        if !self.hints.is_empty() {
            error["hints"] = json!(self.hints);
        }
        // In the body as well: across origins a script reads the header only where CORS exposes it.
        if let Some(wait) = self.retry_after {
            error["retry_after"] = json!(whole_seconds(wait));
        }
        json!({ "error": error })
    }

    /// The name that Anthropic gives to kinds of errors.
    fn anthropic_kind(&self) -> &'static str {
        match self.status {
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => self.kind(),
        }
    }

    pub(crate) fn body(&self, shape: ErrorShape) -> Bytes {
        let mut body = self.to_json();
        match shape {
            ErrorShape::OpenAi => {}
            ErrorShape::Anthropic => {
                body["type"] = json!("error");
                body["error"]["type"] = json!(self.anthropic_kind());
            }
            ErrorShape::Ollama => {
                // The rest stands beside it, for those who look.
                body = body["error"].take();
                body["error"] = body["message"].take();
                body.as_object_mut().map(|fields| fields.remove("message"));
            }
        }
        Bytes::from(body.to_string())
    }
}

impl From<RequestRefusal> for HttpProblem {
    fn from(refusal: RequestRefusal) -> Self {
        let status = match refusal.kind {
            // 413 and not 503, because clients repeat a request after a 503, and this one can never succeed.
            RequestRefusalKind::NeverFits | RequestRefusalKind::TooDeep => StatusCode::PAYLOAD_TOO_LARGE,
            RequestRefusalKind::Unconfigured => StatusCode::NOT_FOUND,
            // As for a model whose configuration is wrong in itself: clients repeat a request after a 503.
            RequestRefusalKind::Unstartable => StatusCode::INTERNAL_SERVER_ERROR,
            // The engine was reached and gave no answer, which is what 502 means (RFC 9110, section 15.6.3).
            RequestRefusalKind::Unanswered => StatusCode::BAD_GATEWAY,
            // 503 is also what llama-server answers while it loads, so its clients try again.
            RequestRefusalKind::NoRoom
            | RequestRefusalKind::QueueFull
            | RequestRefusalKind::Deadline
            | RequestRefusalKind::LoadFailed
            | RequestRefusalKind::EngineDied
            | RequestRefusalKind::Unloaded
            | RequestRefusalKind::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut problem = Self::because(status, refusal.reason);
        problem.retry_after = refusal.retry_after;
        problem.hints = refusal.hints;
        problem
    }
}

/// Removes an engine's own log lines from a tree of reasons.
///
/// DECISION: engines log what clients send, so a line that explains one client's error may hold another
/// client's prompt. Clients get the kind of error and the sizes; the lines are on stderr and in `/logs`,
/// which is for the operator.
pub fn without_engine_words(mut tree: Value) -> Value {
    match &mut tree {
        Value::Array(items) => {
            items.retain(|item| item["code"] != ENGINE_WORDS);
            items.iter_mut().for_each(|item| *item = without_engine_words(item.take()));
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| *field = without_engine_words(field.take()));
            // A reason that lost all its causes must look like one that never had any.
            if fields.get("because").is_some_and(|causes| *causes == json!([])) {
                fields.remove("because");
            }
        }
        _ => {}
    }
    tree
}

/// Whole seconds for `Retry-After`, rounded up, at least one.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    // 0 would make clients repeat the request at once.
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Advice;

    use super::*;

    #[test]
    fn lines_of_an_engine_are_not_reported_to_clients() {
        let line = || Reason::new("engine_said", "prompt: 'my secret'");
        let oom = Reason::new("engine_out_of_memory", "a ran out").fact("asked", 7).because(line());
        let died = Reason::new("engine_died", "it went away").because(oom).because(line());
        let problem = HttpProblem::because(StatusCode::BAD_GATEWAY, died).to_json();
        assert!(!problem.to_string().contains("secret"), "{problem}");
        assert_eq!(problem["error"]["reason"]["because"][0]["facts"], json!({"asked": 7}));
        assert_eq!(problem["error"]["reason"]["because"][0].get("because"), None);
    }

    #[test]
    fn the_message_has_the_first_cause_with_its_figures() {
        let stated = |reason| HttpProblem::because(StatusCode::SERVICE_UNAVAILABLE, reason).message;
        let card = Reason::new("on_card", "the card has 3 GiB available, and 5 GiB are needed");
        let deeper = card.clone().because(Reason::new("held_by", "b holds 4 GiB"));
        let refused = Reason::new("no_room", "a does not fit").because(deeper).because(card);
        assert_eq!(stated(refused), "a does not fit: the card has 3 GiB available, and 5 GiB are needed");
        let line = Reason::new("engine_said", "prompt: 'my secret'");
        assert_eq!(stated(Reason::new("engine_died", "a died").because(line)), "a died");
        let reported =
            Reason::new("x", "the port 80 is in use").because(Reason::new("y", "port 80 is in use"));
        assert_eq!(stated(reported), "the port 80 is in use");
    }

    #[test]
    fn the_shape_is_that_of_openai_with_the_reason_beside_it() {
        let problem = HttpProblem::because(
            StatusCode::SERVICE_UNAVAILABLE,
            Reason::new("queue_full", "alpha has 9 requests waiting").fact("waiting", 9),
        )
        .retry_after(Duration::from_millis(1500))
        .hint(Hint::new(Advice::FewerSlots(2)));
        assert_eq!(
            problem.to_json(),
            json!({"error": {
                "message": "alpha has 9 requests waiting", "type": "unavailable_error",
                "code": "queue_full", "param": null, "retry_after": 2,
                "reason": {"code": "queue_full", "text": "alpha has 9 requests waiting", "facts": {"waiting": 9}},
                "hints": [{"text": "serve 2 requests in parallel (-np 2)", "flags": "-np 2"}],
            }})
        );
    }
}
