//! Requests of Ollama's API (`/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`).
//!
//! Texts and images stay slices of the body: they may be megabytes, and go to the engine as they came.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{bounded, keep_alive, refused};
use crate::route::HttpProblem;

/// Messages of a request, and images or tool calls of one message.
const MOST_MESSAGES: usize = 16 * 1024;
const MOST_PARTS: usize = 256;
/// The longest value that is read as a tree, in which a byte may become thirty.
const LONGEST_TREE: usize = 64 * 1024;

/// A body of any of the four endpoints; each uses the fields that it knows.
#[derive(Debug, Deserialize)]
pub(super) struct OllamaRequest<'a> {
    #[serde(borrow, default)]
    pub(super) model: Cow<'a, str>,
    pub(super) stream: Option<bool>,
    #[serde(default, deserialize_with = "short")]
    pub(super) keep_alive: Option<Value>,
    #[serde(default, deserialize_with = "short")]
    pub(super) options: Map<String, Value>,
    #[serde(borrow)]
    pub(super) format: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "short")]
    pub(super) think: Option<Value>,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_MESSAGES>")]
    pub(super) messages: Vec<OllamaMessage<'a>>,
    #[serde(borrow)]
    pub(super) tools: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) suffix: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) system: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) template: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(super) raw: bool,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_PARTS>")]
    pub(super) images: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    pub(super) dimensions: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OllamaMessage<'a> {
    #[serde(borrow)]
    pub(super) role: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_PARTS>")]
    pub(super) images: Vec<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_PARTS>")]
    pub(super) tool_calls: Vec<OllamaToolCall<'a>>,
    pub(super) tool_name: Option<String>,
    pub(super) tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OllamaToolCall<'a> {
    pub(super) id: Option<String>,
    #[serde(borrow)]
    pub(super) function: OllamaFunctionCall<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OllamaFunctionCall<'a> {
    pub(super) name: String,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// A value that is read as a tree, and therefore of bounded length.
fn short<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    let text = <&RawValue>::deserialize(deserializer)?.get();
    if text.len() > LONGEST_TREE {
        return Err(D::Error::custom(format_args!("a setting is longer than {LONGEST_TREE} bytes")));
    }
    serde_json::from_str(text).map(Option::unwrap_or_default).map_err(D::Error::custom)
}

pub(super) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl<'a> OllamaRequest<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, HttpProblem> {
        if body.is_empty() {
            return Err(refused("missing request body".to_owned()));
        }
        let request: Self = serde_json::from_slice(body)
            .map_err(|error| refused(format!("the body is not a valid request of this API: {error}")))?;
        match request.model.is_empty() {
            true => Err(refused("model is required".to_owned())),
            false => Ok(request),
        }
    }

    pub(super) fn streams(&self) -> bool {
        self.stream != Some(false)
    }

    pub(super) fn keep(&self) -> Result<Option<Duration>, HttpProblem> {
        let value = self.keep_alive.as_ref().filter(|value| !value.is_null());
        value.map(keep_alive::read).transpose()
    }
}

/// A JSON string as it is written, or `None` for null, nothing and an empty one.
pub(super) fn text<'a>(name: &str, value: Option<&'a RawValue>) -> Result<Option<&'a RawValue>, HttpProblem> {
    match value.map(RawValue::get) {
        None | Some("null" | "\"\"") => Ok(None),
        Some(text) if text.starts_with('"') => Ok(value),
        Some(_) => Err(refused(format!("`{name}` must be text"))),
    }
}

/// The name of a model in a body of the other endpoints: `model`, or `name` as older clients write.
pub(super) fn model_of(body: &[u8]) -> Result<(String, bool), HttpProblem> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, deserialize_with = "null_is_empty")]
        model: String,
        #[serde(default, deserialize_with = "null_is_empty")]
        name: String,
        stream: Option<bool>,
    }
    let named: Named = serde_json::from_slice(body)
        .map_err(|error| refused(format!("the body is not a valid request of this API: {error}")))?;
    let name = [named.model, named.name].into_iter().find(|name| !name.is_empty());
    let name = name.ok_or_else(|| refused("model is required".to_owned()))?;
    Ok((name, named.stream != Some(false)))
}
