//! Parses the requests of Ollama's API (`/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`).
//!
//! Texts and images stay slices of the body: they may be megabytes, and go to the engine as they came.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{bounded, keep_alive, refused};
use crate::InvalidRequest;

/// Messages of a request, and images or tool calls of one message.
const MOST_MESSAGES: usize = 16 * 1024;
const MOST_PARTS: usize = 256;
/// The longest value that is read as a tree, in which a byte may become thirty.
const LONGEST_TREE: usize = 64 * 1024;

/// A body of any of the four endpoints; each uses the fields that it knows.
#[derive(Debug, Deserialize)]
pub struct OllamaRequest<'a> {
    #[serde(borrow, default)]
    pub model: Cow<'a, str>,
    pub stream: Option<bool>,
    #[serde(default, deserialize_with = "short")]
    pub keep_alive: Option<Value>,
    #[serde(default, deserialize_with = "short")]
    pub options: Map<String, Value>,
    #[serde(borrow)]
    pub format: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "short")]
    pub think: Option<Value>,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_MESSAGES>")]
    pub messages: Vec<OllamaMessage<'a>>,
    #[serde(borrow)]
    pub tools: Option<&'a RawValue>,
    #[serde(borrow)]
    pub prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    pub suffix: Option<&'a RawValue>,
    #[serde(borrow)]
    pub system: Option<&'a RawValue>,
    #[serde(borrow)]
    pub template: Option<&'a RawValue>,
    #[serde(borrow)]
    pub context: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub raw: bool,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_PARTS>")]
    pub images: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    pub dimensions: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct OllamaMessage<'a> {
    #[serde(borrow)]
    pub role: Cow<'a, str>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub thinking: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_PARTS>")]
    pub images: Vec<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "bounded::list::<_, _, MOST_PARTS>")]
    pub tool_calls: Vec<OllamaToolCall<'a>>,
    pub tool_name: Option<String>,
    pub tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct OllamaToolCall<'a> {
    pub id: Option<String>,
    #[serde(borrow)]
    pub function: OllamaFunctionCall<'a>,
}

#[derive(Debug, Deserialize)]
pub struct OllamaFunctionCall<'a> {
    pub name: String,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
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

pub fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl<'a> OllamaRequest<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, InvalidRequest> {
        if body.is_empty() {
            return Err(refused("missing request body".to_owned()));
        }
        let request: Self = serde_json::from_slice(body)
            .map_err(|error| refused(format!("the body is not a valid request of this API: {error}")))?;
        if request.model.is_empty() { Err(refused("model is required".to_owned())) } else { Ok(request) }
    }

    pub fn streams(&self) -> bool {
        self.stream != Some(false)
    }

    pub fn keep(&self) -> Result<Option<Duration>, InvalidRequest> {
        let value = self.keep_alive.as_ref().filter(|value| !value.is_null());
        value.map(keep_alive::read).transpose()
    }
}

/// A JSON string as it is written, or `None` for null, nothing and an empty one.
pub fn text<'a>(name: &str, value: Option<&'a RawValue>) -> Result<Option<&'a RawValue>, InvalidRequest> {
    match value.map(RawValue::get) {
        None | Some("null" | "\"\"") => Ok(None),
        Some(text) if text.starts_with('"') => Ok(value),
        Some(_) => Err(refused(format!("`{name}` must be text"))),
    }
}

/// The name of a model in a body of the other endpoints: `model`, or `name` as older clients write.
pub fn model_of(body: &[u8]) -> Result<(String, bool), InvalidRequest> {
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
