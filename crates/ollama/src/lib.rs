//! Translates between Ollama's API (`/api/chat`, `/api/generate` and others) and the engines' OpenAI API.
//!
//! It reads and writes bytes only: `route` receives the requests and sends what this crate makes of them.
#![forbid(unsafe_code)]

pub mod answer;
mod bounded;
mod endpoints;
mod engine_answer;
mod images;
mod keep_alive;
mod lines;
mod messages;
pub mod options;
pub mod request;
mod translate;

pub use self::endpoints::{Endpoint, StoreEndpoint};
pub use self::engine_answer::error_text;
pub use self::lines::OllamaLines;
pub use self::translate::{EngineRequest, translate};

/// The release of Ollama whose API this follows. Its clients ask for the number first: VS Code wants 0.6.4.
pub const VERSION: &str = "0.14.0";

/// A request that has no translation, in words for its client.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(pub String);

fn refused(message: String) -> InvalidRequest {
    InvalidRequest(message)
}
