//! Describes the operations of Ollama's API for the OpenAPI document of this server.

use plimsoll_ollama::{Endpoint, StoreEndpoint};

use super::operation::{LINES, OLLAMA, Operation, does, json, shows};

pub(super) const fn of_engine(endpoint: Endpoint) -> Operation {
    let summary = match endpoint {
        Endpoint::Chat => "Answers a conversation",
        Endpoint::Generate => "Continues a prompt",
        Endpoint::Embed => "Embeds texts",
        Endpoint::Embeddings => "Embeds one text",
    };
    let operation = shows(OLLAMA, summary, json("Object")).takes("OllamaOrder").of_engine();
    match endpoint {
        Endpoint::Chat | Endpoint::Generate => operation.or_shows(LINES),
        Endpoint::Embed | Endpoint::Embeddings => operation,
    }
}

pub(super) const fn of_store(endpoint: StoreEndpoint) -> Operation {
    let status = json("OllamaStatus");
    let (operation, body) = match endpoint {
        StoreEndpoint::Tags => return shows(OLLAMA, "Lists the models", json("OllamaModels")),
        StoreEndpoint::Running => return shows(OLLAMA, "Lists the loaded models", json("OllamaModels")),
        StoreEndpoint::Push => {
            return Operation {
                successes: &[],
                ..does(OLLAMA, "Refused: models cannot be pushed").refuses(&[501])
            };
        }
        StoreEndpoint::Show => (shows(OLLAMA, "Describes a model", json("Object")), "OllamaOrder"),
        StoreEndpoint::Pull => {
            (shows(OLLAMA, "Downloads a model of the hub", status).or_shows(LINES), "OllamaOrder")
        }
        StoreEndpoint::Create => {
            (shows(OLLAMA, "Derives a model from a served one", status).or_shows(LINES), "OllamaCreate")
        }
        StoreEndpoint::Copy => (does(OLLAMA, "Gives a served model a second name"), "OllamaCopy"),
        StoreEndpoint::Delete => (does(OLLAMA, "Removes a downloaded or derived model"), "OllamaOrder"),
    };
    operation.takes(body).refuses(&[404, 429, 500, 501, 502])
}
