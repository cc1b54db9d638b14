//! Builds the OpenAPI description of this server (`/openapi.json`) from its table of routes.
//!
//! Paths, methods, rights and shapes of errors come from what the server itself uses. An operation adds
//! words, parameters and the names of schemas, which `openapi/components.json` holds.

mod ollama;
mod operation;
mod own;

use std::collections::BTreeSet;

use http::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};

use self::operation::{Content, ENGINE_REFUSALS, Operation};
use super::api::{ROUTES, Route};
use super::problem::ErrorShape;
use super::rights;

/// Name of the response that is a refusal of this server, or an engine's own.
const ENGINE_ERROR: &str = "EngineError";
const ERROR: &str = "Error";
const OLLAMA_ERROR: &str = "OllamaError";

const COMPONENTS: &str = include_str!("openapi/components.json");

/// The description of a server that wants a key for each request, or of one that wants none.
pub fn description(wants_key: bool) -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        // Every GET answers HEAD as well, which is not worth an operation of its own.
        for method in route.methods.iter().filter(|method| **method != Method::HEAD) {
            let name = method.as_str().to_ascii_lowercase();
            // The first row that fits a request is used.
            if path.get(&name).is_none() {
                path[name] = route.described(method);
            }
        }
    }
    let key = if wants_key { json!([{ "bearer": [] }, { "header": [] }]) } else { json!([]) };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Plimsoll",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Serves models by the APIs of OpenAI, Anthropic, Ollama, LM Studio, llama-server \
                and llama-swap. A request loads the model that it names.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": key,
        "paths": paths,
        "components": components(),
    })
}

/// The components, with one response for each shape of an error.
fn components() -> Value {
    let mut components: Value = serde_json::from_str(COMPONENTS).unwrap_or_default();
    for name in [ERROR, OLLAMA_ERROR] {
        components["responses"][name] = json!({
            "description": "A refusal, or a failure. `code` is stable, and the message is for people.",
            "content": json_of(name),
        });
    }
    components["responses"][ENGINE_ERROR] = json!({
        "description": "A refusal of this server (`Error`), or an error of the engine as it is.",
        "content": json_of("Object"),
    });
    components
}

fn json_of(schema: &str) -> Value {
    json!({ "application/json": { "schema": schema_of(schema) } })
}

fn schema_of(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl Route {
    fn described(&self, method: &Method) -> Value {
        let operation = self.action.operation(self.path, method);
        let mut described = json!({
            "operationId": operation_id(method, self.path),
            "summary": operation.summary,
            "tags": [operation.tag],
            "parameters": self.parameters(&operation),
            "responses": self.responses(&operation),
        });
        if let Some(Content { kind, schema }) = operation.body {
            let content = json!({ (kind): { "schema": schema_of(schema) } });
            described["requestBody"] = json!({ "required": !operation.body_is_optional, "content": content });
        }
        let rights = self.rights(method);
        if self.action.is_public() {
            described["security"] = json!([]);
        } else if !rights.is_empty() {
            described["description"] = json!(format!("A named key needs the right {}.", rights.join(" or ")));
        }
        described
    }

    /// The rights of which a named key needs one, for a request without a query.
    fn rights(&self, method: &Method) -> Vec<String> {
        let request = Request::builder().method(method).uri(self.path).body(());
        let needed = request.map_or(&[][..], |request| rights::needed(self.action, &request.into_parts().0));
        needed.iter().map(|right| format!("`{}`", right.word())).collect()
    }

    fn parameters(&self, operation: &Operation) -> Vec<Value> {
        let in_path = self.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let names = in_path.map(|name| format!("path.{name}"));
        let names = names.chain(operation.query.iter().map(|name| format!("query.{name}")));
        names.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
    }

    fn responses(&self, operation: &Operation) -> Value {
        let mut responses = Map::new();
        for status in operation.successes {
            let mut response = json!({ "description": reason(*status) });
            let contents = operation.answers.iter().flatten().filter(|_| *status == 200);
            for Content { kind, schema } in contents {
                response["content"][*kind] = json!({ "schema": schema_of(schema) });
            }
            responses.insert(status.to_string(), response);
        }
        // Ollama's clients get an engine's error in their own shape.
        let is_ollama = ErrorShape::of(self.path) == ErrorShape::Ollama;
        let passes_errors = operation.is_of_engine && !is_ollama;
        let name = if passes_errors {
            ENGINE_ERROR
        } else if is_ollama {
            OLLAMA_ERROR
        } else {
            ERROR
        };
        let refused = json!({ "$ref": format!("#/components/responses/{name}") });
        for status in self.refusals(operation) {
            responses.entry(status.to_string()).or_insert_with(|| refused.clone());
        }
        if passes_errors {
            let engine = json!({ "description": "Any other answer of the engine." });
            responses.insert("default".to_owned(), engine);
        } else if operation.is_of_engine {
            responses.insert("default".to_owned(), refused);
        }
        Value::Object(responses)
    }

    /// Statuses of refusals: of every request, of every body, of every engine, and the operation's own.
    fn refusals(&self, operation: &Operation) -> BTreeSet<u16> {
        let mut refusals = BTreeSet::from([403]);
        if !self.action.is_public() {
            refusals.extend([401, 503]);
        }
        if operation.body.is_some() {
            refusals.extend([400, 408, 413]);
        }
        if operation.is_of_engine {
            refusals.extend(ENGINE_REFUSALS);
        }
        refusals.extend(operation.refusals);
        refusals
    }
}

fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
}

fn operation_id(method: &Method, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = [method.as_str().to_ascii_lowercase().as_str()]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join("_");
    // `/ui` and `/ui/` are two paths.
    if path.len() > 1 && path.ends_with('/') { name + "_folder" } else { name }
}

#[cfg(test)]
mod tests;
