//! Sends the requests of `plimsoll ps`, `status`, `load`, `unload`, `pin`, `unpin`, `yield`, `download`,
//! `reload`, `logs`, `stop` and `top` to a running `plimsoll serve`.
//!
//! The commands call the server's HTTP API; `--json` prints its answers unchanged.

mod address;
mod download;
mod give_way;
mod list;
mod load;
mod names;
mod stop;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use plimsoll_base::one_line;
use plimsoll_http::{HttpClient, HttpClientError, collect_body};
use plimsoll_verb::{KEY_HINT, lasted};
use serde_json::{Value, json};

use crate::report::ErrorReport;
use crate::terminal;

pub(crate) use address::{ServerAddress, ServerArgument};
pub(crate) use download::{Download, download};
pub(crate) use give_way::{Yield, give_way};
pub(crate) use list::{List, list, status};
pub(crate) use load::{Load, load};
pub(crate) use names::{Names, names};
pub(crate) use stop::{Stop, stop};
pub(crate) use top::{Top, top};

/// Longest answer that is read: a status of some thousand models.
const LONGEST_ANSWER: usize = 16 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Unload {
    /// Name or alias of the model
    #[arg(required_unless_present = "all")]
    model: Option<String>,
    /// Unload all models
    #[arg(long, conflicts_with = "model")]
    all: bool,
    #[command(flatten)]
    server: ServerAddress,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pin {
    /// Name or alias of the model
    model: String,
    /// Time after which the pin ends, e.g. 90s, 30m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = plimsoll_verb::time)]
    time: Option<Duration>,
    #[command(flatten)]
    server: ServerAddress,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Unpin {
    /// Name or alias of the model
    model: String,
    #[command(flatten)]
    server: ServerAddress,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    server: ServerArgument,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// Name or alias of the model; all models if omitted
    model: Option<String>,
    /// Print new lines as they come, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    server: ServerAddress,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerVerbError {
    #[error(
        "{url} does not answer\nhint: is `plimsoll serve` running at this address? choose another address with --url\n\
        hint: `plimsoll top` shows this machine's cards, and the holders of their memory, without a server"
    )]
    Unreachable {
        url: String,
        #[source]
        error: HttpClientError,
    },
    #[error("{model} is not loaded: {why}")]
    NotLoaded { model: String, why: String },
    #[error("the server has no model {model}: {why}")]
    NotDownloaded { model: String, why: String },
    #[error("{url} refuses: {message}")]
    Refused { url: String, message: String, status: StatusCode, code: String },
    #[error(
        "the server at {url} is not a process of yours on this machine\nhint: stop it where it runs: as its \
        user or root, in its container, or with `systemctl stop plimsoll`"
    )]
    NotOwn { url: String },
    #[error("the answer from {url} is not from a plimsoll server\nhint: choose another address with --url")]
    Foreign {
        url: String,
        #[source]
        error: serde_json::Error,
    },
    #[error("{url} sends an event without an end, so it is not a plimsoll server")]
    Endless { url: String },
    #[error("`plimsoll top` needs a terminal\nhint: `plimsoll status` prints the same once, also to a pipe")]
    NoTerminal,
    #[error("`{0}` has characters that cannot be sent in an HTTP header or path")]
    Request(String),
    #[error("cannot start the HTTP client, or cannot write to stdout: {0}")]
    Io(#[from] io::Error),
}

impl ServerVerbError {
    /// Returns true for a refusal with this code.
    fn has_code(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }
}

/// A model that the server does not have, and text that cannot be sent, are input.
pub(super) fn report(error: ServerVerbError) -> ErrorReport {
    let is_input = match &error {
        ServerVerbError::Request(_) => true,
        ServerVerbError::Refused { status, .. } => *status == StatusCode::NOT_FOUND,
        _ => false,
    };
    ErrorReport::from(error).with_status(if is_input { 2 } else { 1 })
}

pub(crate) fn pin(arguments: &Pin) -> Result<ExitCode, ServerVerbError> {
    // Rounded up, because a pin of zero seconds would not pin.
    let seconds = |time: Duration| format!("?for={}", time.as_millis().div_ceil(1000));
    let path = format!("/api/models/pin{}", arguments.time.map_or_else(String::new, seconds));
    arguments.server.ask_json(Method::POST, &path, &json!({ "model": arguments.model }))?;
    let model = &arguments.model;
    match arguments.time {
        Some(time) => {
            let time = lasted(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            done(format_args!("{model} is pinned for {time}"))
        }
        None => {
            done(format_args!("{model} is pinned until `plimsoll unpin {model}` or the end of the server"))
        }
    }
}

pub(crate) fn unpin(arguments: &Unpin) -> Result<ExitCode, ServerVerbError> {
    arguments.server.ask_json(Method::POST, "/api/models/unpin", &json!({ "model": arguments.model }))?;
    done(format_args!("{} is no longer pinned", arguments.model))
}

pub(crate) fn unload(arguments: &Unload) -> Result<ExitCode, ServerVerbError> {
    match &arguments.model {
        Some(model) => {
            let requested =
                arguments.server.ask_json(Method::POST, "/models/unload", &json!({ "model": model }));
            if requested.as_ref().is_err_and(|error| error.has_code("model_not_running")) {
                return done(format_args!("{model} is not loaded"));
            }
            let note = requested?["note"].as_str().map_or_else(String::new, |note| format!("; {note}"));
            done(format_args!("{model} will be unloaded once its current answers are finished{note}"))
        }
        None => {
            arguments.server.ask(Method::POST, "/api/models/unload", &Value::Null)?;
            done(format_args!("all models will be unloaded once their current answers are finished"))
        }
    }
}

pub(crate) fn reload(arguments: &Reload) -> Result<ExitCode, ServerVerbError> {
    let answer = arguments.server.server().ask_json(Method::GET, "/models?reload=1", &Value::Null)?;
    let notes = answer["reload"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let notes: String = notes.map(|note| format!("\n{note}")).collect();
    done(format_args!("the configuration was read again{notes}"))
}

/// Prints what was done.
fn done(text: std::fmt::Arguments<'_>) -> Result<ExitCode, ServerVerbError> {
    writeln!(terminal::stdout(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn logs(arguments: &Logs) -> Result<ExitCode, ServerVerbError> {
    let Logs { model, follow, server } = arguments;
    if *follow {
        server.follow(&format!("/logs/stream/{}", model.as_deref().map(encoded).unwrap_or_default()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = model.as_deref().map_or_else(String::new, |model| format!("?model={}", encoded(model)));
    let lines = server.ask(Method::GET, &format!("/logs{path}"), &Value::Null)?;
    let mut stdout = terminal::data();
    stdout.write_all(&lines)?;
    stdout.flush()?;
    if lines.is_empty() {
        let whose = model.as_deref().unwrap_or("any model");
        // A closed stderr must not fail the command.
        let _ = writeln!(
            terminal::stderr(),
            "plimsoll: no output of {whose} yet; output begins when an engine is first loaded"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// An answer whose texts are printable, each in one line.
fn printable(answer: &Value) -> Value {
    match answer {
        Value::String(text) => Value::String(one_line(text).into_owned()),
        Value::Array(items) => items.iter().map(printable).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), printable(value))).collect()
        }
        other => other.clone(),
    }
}

/// A model's name as one part of a path.
fn encoded(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

impl ServerAddress {
    /// Returns the answer with its texts printable in one line.
    fn ask_json(&self, method: Method, path: &str, body: &Value) -> Result<Value, ServerVerbError> {
        self.document(method, path, body).map(|answer| printable(&answer))
    }

    /// Returns the answer as the server sent it.
    fn document(&self, method: Method, path: &str, body: &Value) -> Result<Value, ServerVerbError> {
        let text = self.ask(method, path, body)?;
        let url = self.url.to_string();
        serde_json::from_slice(&text).map_err(|error| ServerVerbError::Foreign { url, error })
    }

    /// Returns a document of the server as text.
    pub(super) fn fetch(&self, path: &str) -> Result<String, ServerVerbError> {
        let body = self.ask(Method::GET, path, &Value::Null)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends one request and returns the body of a successful answer.
    fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Bytes, ServerVerbError> {
        block_on(async {
            // Without its client, an answer ends in the middle.
            let (_client, answer) = self.send(method, path, body).await?;
            let body = collect_body(answer, LONGEST_ANSWER).await;
            body.map_err(|error| self.unreachable(error))
        })
    }

    /// Prints a stream as the server sends it, until the server ends or Ctrl-C is pressed.
    fn follow(&self, path: &str) -> Result<(), ServerVerbError> {
        block_on(async {
            let (_client, answer) = self.send(Method::GET, path, &Value::Null).await?;
            let (mut answer, mut stdout) = (answer.into_body(), terminal::data());
            while let Some(frame) = answer.frame().await {
                let frame = frame.map_err(|error| self.unreachable(error.into()))?;
                if let Some(text) = frame.data_ref() {
                    stdout.write_all(text)?;
                    stdout.flush()?;
                }
            }
            Ok(())
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<(HttpClient, Response<Incoming>), ServerVerbError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url.base));
        if let Some(key) = &self.api_key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = request
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|_| ServerVerbError::Request(path.to_owned()))?;
        let mut client = HttpClient::new(self.url.host.as_str(), self.url.port);
        let answer = client.send(request).await.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() {
            return Ok((client, answer));
        }
        let status = answer.status();
        let body = collect_body(answer, LONGEST_ANSWER).await.map_err(|error| self.unreachable(error))?;
        let url = self.url.to_string();
        // Every refusal of a server of ours is JSON.
        let problem: Value = serde_json::from_slice(&body)
            .map_err(|error| ServerVerbError::Foreign { url: url.clone(), error })?;
        let problem = printable(&problem);
        let mut message =
            problem["error"]["message"].as_str().map_or_else(|| status.to_string(), str::to_owned);
        for hint in problem["error"]["hints"].as_array().into_iter().flatten() {
            message += &format!("\nhint: {}", hint["text"].as_str().unwrap_or_default());
        }
        if status == StatusCode::UNAUTHORIZED {
            message += KEY_HINT;
        }
        let code = problem["error"]["code"].as_str().unwrap_or_default().to_owned();
        Err(ServerVerbError::Refused { url, message, status, code })
    }

    fn unreachable(&self, error: HttpClientError) -> ServerVerbError {
        let url = self.url.to_string();
        ServerVerbError::Unreachable { url, error }
    }
}

fn block_on<T>(future: impl Future<Output = Result<T, ServerVerbError>>) -> Result<T, ServerVerbError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}
