//! Translates Ollama's requests into those of an engine's OpenAI API.

use std::ops::Range;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::messages::{EngineMessage, message, messages};
use super::request::{OllamaRequest, text};
use super::{Endpoint, options, refused};
use crate::InvalidRequest;

/// A request for an engine.
#[derive(Debug)]
pub struct EngineRequest {
    pub path: &'static str,
    pub body: Vec<u8>,
    /// The place of the model's name, as JSON.
    pub name: Range<usize>,
}

/// Fields that several of the engine's endpoints share.
#[derive(Debug, Serialize)]
struct EngineBody<'a, T: Serialize> {
    // First, so that its place in the text is known.
    model: &'a str,
    #[serde(flatten)]
    prompt: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
    #[serde(flatten)]
    parameters: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct Chat<'a> {
    messages: Vec<EngineMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: NamedSchema<'a> },
}

#[derive(Debug, Serialize)]
struct NamedSchema<'a> {
    name: &'static str,
    schema: &'a RawValue,
}

/// A prompt that passes no chat template.
#[derive(Debug, Serialize)]
struct RawPrompt<'a> {
    prompt: &'a RawValue,
}

#[derive(Debug, Serialize)]
struct GapPrompt<'a> {
    input_prefix: &'a RawValue,
    input_suffix: &'a RawValue,
}

#[derive(Debug, Serialize)]
struct EmbeddingInput<'a> {
    input: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u64>,
}

/// The engine's request; `None` for one that only loads or unloads the model.
pub fn translate(
    endpoint: Endpoint,
    request: &OllamaRequest<'_>,
    model: &str,
) -> Result<Option<EngineRequest>, InvalidRequest> {
    match endpoint {
        Endpoint::Chat if request.messages.is_empty() => Ok(None),
        Endpoint::Chat => {
            let tools = request.tools.filter(|tools| !matches!(tools.get(), "null" | "[]"));
            chat(request, model, messages(&request.messages)?, tools).map(Some)
        }
        Endpoint::Generate => generate(request, model),
        Endpoint::Embed => {
            let input = request.input.filter(|input| !matches!(input.get(), "null" | "\"\"" | "[]"));
            if input.is_some_and(|input| !input.get().starts_with(['"', '['])) {
                return Err(refused("`input` must be a string or a list of strings".to_owned()));
            }
            embed(request, model, input)
        }
        Endpoint::Embeddings => embed(request, model, text("prompt", request.prompt)?),
    }
}

fn chat<'a>(
    request: &OllamaRequest<'a>,
    model: &str,
    messages: Vec<EngineMessage<'a>>,
    tools: Option<&'a RawValue>,
) -> Result<EngineRequest, InvalidRequest> {
    let mut parameters = options::parameters(&request.options)?;
    think(request, &mut parameters)?;
    let prompt = Chat { messages, tools, response_format: format(request)? };
    written("/v1/chat/completions", request, model, prompt, parameters)
}

fn generate(request: &OllamaRequest<'_>, model: &str) -> Result<Option<EngineRequest>, InvalidRequest> {
    let prompt = text("prompt", request.prompt)?;
    if text("template", request.template)?.is_some() {
        return Err(refused(
            "`template` cannot be set by a request; set --chat-template in the configuration".to_owned(),
        ));
    }
    if request.context.is_some_and(|context| !matches!(context.get(), "null" | "[]")) {
        return Err(refused("`context` is not supported; send the conversation to /api/chat".to_owned()));
    }
    let Some(prompt) = prompt else {
        if request.images.is_empty() {
            return Ok(None);
        }
        return Err(refused("an image without a prompt".to_owned()));
    };
    let suffix = text("suffix", request.suffix)?;
    if !request.raw && suffix.is_none() {
        let system = text("system", request.system)?.map(|system| message("system", Some(system), &[]));
        let user = message("user", Some(prompt), &request.images);
        let messages = system.into_iter().chain([user]).collect::<Result<_, _>>()?;
        return chat(request, model, messages, None).map(Some);
    }
    if !request.images.is_empty() || text("system", request.system)?.is_some() {
        return Err(refused("`raw` and `suffix` take neither `system` nor `images`".to_owned()));
    }
    let mut parameters = options::parameters(&request.options)?;
    if let Some(schema) = schema(request)? {
        parameters.insert("json_schema".to_owned(), schema);
    }
    match suffix {
        Some(input_suffix) => {
            let prompt = GapPrompt { input_prefix: prompt, input_suffix };
            written("/infill", request, model, prompt, parameters)
        }
        None => written("/v1/completions", request, model, RawPrompt { prompt }, parameters),
    }
    .map(Some)
}

fn embed(
    request: &OllamaRequest<'_>,
    model: &str,
    input: Option<&RawValue>,
) -> Result<Option<EngineRequest>, InvalidRequest> {
    let Some(input) = input else { return Ok(None) };
    let prompt = EmbeddingInput { input, dimensions: request.dimensions };
    let body = EngineBody { model, prompt, stream: None, stream_options: None, parameters: Map::new() };
    finish("/v1/embeddings", model, &body).map(Some)
}

fn written<T: Serialize>(
    path: &'static str,
    request: &OllamaRequest<'_>,
    model: &str,
    prompt: T,
    parameters: Map<String, Value>,
) -> Result<EngineRequest, InvalidRequest> {
    let streams = request.streams();
    // Engines count the tokens of a stream only where they are asked to.
    let stream_options = streams.then(|| json!({ "include_usage": true }));
    finish(path, model, &EngineBody { model, prompt, stream: Some(streams), stream_options, parameters })
}

fn finish(path: &'static str, model: &str, body: &impl Serialize) -> Result<EngineRequest, InvalidRequest> {
    let body = serde_json::to_vec(body).map_err(|error| refused(error.to_string()))?;
    let start = "{\"model\":".len();
    let name = start..start + Value::from(model).to_string().len();
    Ok(EngineRequest { path, body, name })
}

/// `think`: a switch for the chat template, or a level.
fn think(request: &OllamaRequest<'_>, parameters: &mut Map<String, Value>) -> Result<(), InvalidRequest> {
    let kwargs = match &request.think {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Bool(thinks)) => json!({ "enable_thinking": thinks }),
        Some(Value::String(level)) => {
            let level = match level.as_str() {
                "low" | "medium" | "high" => level,
                // Templates know three levels.
                "max" => "high",
                _ => return Err(refused("`think` must be true, false, low, medium, high or max".to_owned())),
            };
            json!({ "enable_thinking": true, "reasoning_effort": level })
        }
        Some(_) => return Err(refused("`think` must be true, false, low, medium, high or max".to_owned())),
    };
    parameters.insert("chat_template_kwargs".to_owned(), kwargs);
    Ok(())
}

fn format<'a>(request: &OllamaRequest<'a>) -> Result<Option<ResponseFormat<'a>>, InvalidRequest> {
    Ok(match request.format.map(|format| (format, format.get())) {
        None | Some((_, "null" | "\"\"")) => None,
        Some((_, "\"json\"")) => Some(ResponseFormat::JsonObject),
        Some((schema, text)) if text.starts_with('{') => {
            Some(ResponseFormat::JsonSchema { json_schema: NamedSchema { name: "response", schema } })
        }
        Some(_) => return Err(refused("`format` must be `json` or a JSON schema".to_owned())),
    })
}

/// The same as a schema, for endpoints of llama-server without `response_format`.
fn schema(request: &OllamaRequest<'_>) -> Result<Option<Value>, InvalidRequest> {
    Ok(match format(request)? {
        None => None,
        Some(ResponseFormat::JsonObject) => Some(json!({ "type": "object" })),
        Some(ResponseFormat::JsonSchema { json_schema }) => serde_json::from_str(json_schema.schema.get())
            .map_err(|error| refused(error.to_string()))
            .map(Some)?,
    })
}

#[cfg(test)]
mod tests;
