//! `plimsoll load`: asks a running server for a model, and says whether the load began, waits or was refused.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::{ServerAddress, ServerVerbError, done};
use crate::screen;

/// The server decides within a few milliseconds, after a reading of the cards; an engine that rejects its
/// command line ends within a second.
const DECIDED_WITHIN: Duration = Duration::from_millis(1500);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// Name or alias of the model
    model: String,
    #[command(flatten)]
    server: ServerAddress,
}

pub(crate) fn load(arguments: &Load) -> Result<ExitCode, ServerVerbError> {
    let server = &arguments.server;
    let model = &own_name(server, &arguments.model);
    let order = || server.ask_json(Method::POST, "/models/load", &json!({ "model": model }));
    let (mut answer, ordered) = (order(), Instant::now());
    // One that was ordered to leave is gone in a moment, unless it still answers.
    while answer.as_ref().is_err_and(|error| error.has_code("model_leaves"))
        && ordered.elapsed() < DECIDED_WITHIN
    {
        thread::sleep(BETWEEN_LOOKS);
        answer = order();
    }
    // Already in the requested state, or moving to it.
    let was_loaded = answer.as_ref().is_err_and(|error| error.has_code("model_running"));
    if !was_loaded {
        answer?;
    }
    let requested = Instant::now();
    loop {
        let status = server.ask_json(Method::GET, "/api/status", &Value::Null)?;
        let is_requested = |entry: &&Value| entry["name"].as_str() == Some(model);
        let entry = status["models"].as_array().into_iter().flatten().find(is_requested);
        let is_over = requested.elapsed() >= DECIDED_WITHIN;
        match entry.map(|entry| {
            (entry["state"].as_str().unwrap_or_default(), screen::in_a_line(&entry["last_failure"]))
        }) {
            Some(("unloaded" | "failed", why)) if is_over && !why.is_empty() => {
                return Err(ServerVerbError::NotLoaded { model: model.clone(), why });
            }
            Some(("unloaded" | "failed" | "queued" | "loading", _)) if !is_over => {
                thread::sleep(BETWEEN_LOOKS);
            }
            Some(("queued", _)) => {
                let waits_for = match entry.map(|entry| &entry["outlook"]["wait"]["cause"]) {
                    Some(cause) if cause == "check" => "the check of its files",
                    _ => "memory",
                };
                return done(format_args!(
                    "{model} waits for {waits_for}; `plimsoll ps` shows when it is ready"
                ));
            }
            Some(("ready", _)) | None if was_loaded => {
                return done(format_args!("{model} is already loaded"));
            }
            Some(("ready", _)) => return done(format_args!("{model} is ready")),
            _ => return done(format_args!("{model} is being loaded; `plimsoll ps` shows when it is ready")),
        }
    }
}

/// The name of a model that may be asked for by an alias; the lists of the server show names alone.
fn own_name(server: &ServerAddress, requested: &str) -> String {
    // A server that does not list its models answers the load all the same.
    let listed = server.ask_json(Method::GET, "/v1/models", &Value::Null).unwrap_or_default();
    let is_alias = |model: &&Value| {
        let mut aliases = model["aliases"].as_array().into_iter().flatten();
        aliases.any(|alias| alias == requested)
    };
    // A name is never the alias of another model.
    let aliased = listed["data"].as_array().into_iter().flatten().find(is_alias);
    aliased.and_then(|model| model["id"].as_str()).unwrap_or(requested).to_owned()
}
