//! Translates Ollama's chat messages into those of OpenAI's API.
//!
//! Ollama's tool calls may have no identifiers, so the results are matched to the calls by name and order.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::value::RawValue;

use super::images::{self, ContentPart};
use super::refused;
use super::request::{OllamaMessage, OllamaToolCall, text};
use crate::InvalidRequest;

#[derive(Debug, Serialize)]
pub(crate) struct EngineMessage<'a> {
    role: &'a str,
    content: EngineContent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<EngineToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum EngineContent<'a> {
    Text(&'a RawValue),
    Parts(Vec<ContentPart<'a>>),
    Empty(&'static str),
}

#[derive(Debug, Serialize)]
struct EngineToolCall<'a> {
    id: String,
    r#type: &'static str,
    function: EngineFunctionCall<'a>,
}

#[derive(Debug, Serialize)]
struct EngineFunctionCall<'a> {
    name: &'a str,
    /// JSON as text, which is what OpenAI's API has here.
    arguments: &'a str,
}

/// A message of `role` with a text and images.
pub(crate) fn message<'a>(
    role: &'a str,
    content: Option<&'a RawValue>,
    images: &[&'a RawValue],
) -> Result<EngineMessage<'a>, InvalidRequest> {
    let content = text("content", content)?;
    let content = match (content, images) {
        (Some(text), []) => EngineContent::Text(text),
        (None, []) => EngineContent::Empty(""),
        (text, images) => {
            let text = text.map(|text| Ok(ContentPart::Text { text }));
            let images = images.iter().map(|image| images::part(image));
            EngineContent::Parts(text.into_iter().chain(images).collect::<Result<_, _>>()?)
        }
    };
    Ok(EngineMessage { role, content, reasoning_content: None, tool_calls: Vec::new(), tool_call_id: None })
}

pub(crate) fn messages<'a>(chat: &'a [OllamaMessage<'a>]) -> Result<Vec<EngineMessage<'a>>, InvalidRequest> {
    let mut calls = PendingCalls::default();
    chat.iter().map(|message| calls.translate(message)).collect()
}

/// Tool calls without a result, the oldest first, as identifier and name.
#[derive(Debug, Default)]
struct PendingCalls {
    calls: VecDeque<(String, String)>,
    created: usize,
}

impl PendingCalls {
    fn translate<'a>(&mut self, from: &'a OllamaMessage<'a>) -> Result<EngineMessage<'a>, InvalidRequest> {
        let mut to = message(&from.role, from.content, &from.images)?;
        to.reasoning_content = text("thinking", from.thinking)?;
        to.tool_calls = from.tool_calls.iter().map(|call| self.call(call)).collect::<Result<_, _>>()?;
        if from.role == "tool" {
            to.tool_call_id = Some(self.result_of(from));
        }
        Ok(to)
    }

    fn call<'a>(&mut self, call: &'a OllamaToolCall<'a>) -> Result<EngineToolCall<'a>, InvalidRequest> {
        self.created += 1;
        let id =
            call.id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{}", self.created));
        let function = &call.function;
        self.calls.push_back((id.clone(), function.name.clone()));
        let arguments = function.arguments.map_or("{}", RawValue::get);
        if !arguments.starts_with('{') {
            return Err(refused("the arguments of a tool call are not an object".to_owned()));
        }
        Ok(EngineToolCall {
            id,
            r#type: "function",
            function: EngineFunctionCall { name: &function.name, arguments },
        })
    }

    /// The identifier of the call that a tool's message answers.
    fn result_of(&mut self, result: &OllamaMessage<'_>) -> String {
        let by_id = result.tool_call_id.as_ref().filter(|id| !id.is_empty());
        let place = match by_id {
            Some(id) => self.calls.iter().position(|(call, _)| call == id),
            None => {
                let named = |(_, name): &(String, String)| Some(name) == result.tool_name.as_ref();
                // Older clients name neither; they answer the calls in their order.
                self.calls.iter().position(named).or(Some(0))
            }
        };
        let call = place.and_then(|place| self.calls.remove(place)).map(|(id, _)| id);
        by_id.cloned().or(call).unwrap_or_else(|| "call_0".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::request::OllamaRequest;
    use super::*;

    fn translated(chat: &Value) -> Result<Value, String> {
        let body = json!({"model": "m", "messages": chat}).to_string();
        let request = OllamaRequest::read(body.as_bytes()).map_err(|problem| problem.0)?;
        let messages = messages(&request.messages).map_err(|problem| problem.0)?;
        Ok(json!(messages))
    }

    #[test]
    fn results_are_matched_to_calls_by_identifier_name_or_order() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"b": 1, "a": [2]}}});
        let chat = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("one"), call("two"), call("two")]},
            {"role": "tool", "content": "2", "tool_name": "two"},
            {"role": "tool", "content": "1"},
            {"role": "tool", "content": "3", "tool_call_id": "call_3"},
            {"role": "tool", "content": "4"},
        ]);
        let seen = translated(&chat).unwrap();
        let ids: Vec<&str> = (2..6).map(|at| seen[at]["tool_call_id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["call_2", "call_1", "call_3", "call_0"]);
        assert_eq!(seen[1]["reasoning_content"], "hm");
        assert_eq!(
            seen[1]["tool_calls"][0],
            json!({"id": "call_1", "type": "function",
                   "function": {"name": "one", "arguments": "{\"a\":[2],\"b\":1}"}})
        );
    }

    #[test]
    fn images_stand_alongside_the_text() {
        let chat = json!([{"role": "user", "content": "what?", "images": ["iVBORw0KGgo="]}]);
        let content = &translated(&chat).unwrap()[0]["content"];
        assert_eq!(content[0], json!({"type": "text", "text": "what?"}));
        assert_eq!(content[1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgo=");
    }

    #[test]
    fn wrong_messages_are_refused_in_words() {
        for (message, words) in [
            (json!({"content": "x"}), "missing field `role`"),
            (json!({"role": "user", "content": 7}), "`content` must be text"),
            (json!({"role": "user", "content": ["x"]}), "`content` must be text"),
            (json!({"role": "user", "images": [7]}), "an image is not base64"),
            (
                json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
                "not an object",
            ),
            (json!({"role": "assistant", "tool_calls": [{}]}), "missing field `function`"),
        ] {
            let refusal = translated(&json!([message])).unwrap_err();
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
