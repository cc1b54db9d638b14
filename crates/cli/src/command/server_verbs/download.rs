//! `plimsoll download`: has a running server fetch a model, and shows the progress.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::{ServerAddress, ServerVerbError, done, encoded};
use crate::screen;
use crate::terminal;

const MORE: &str = "\
The server reads the model's header first, and refuses what fits on no card or not on the disk. Ctrl-C leaves the \
download running; `plimsoll status` shows it. The configuration names the folder (`downloads` under [serve]).

Examples:
  plimsoll download ggml-org/Qwen3-4B-GGUF:Q4_K_M
  plimsoll download https://models.example/m-q8_0.gguf
  plimsoll download ggml-org/Qwen3-4B-GGUF:Q4_K_M --remove

Exit status: 0 once the model is there, 1 if the server does not answer or refuses, or if the download failed.";
/// Time between two looks, and between two lines where no terminal shows them in one place.
const LOOK: Duration = Duration::from_millis(300);
const LINE: Duration = Duration::from_secs(10);
/// Looks without a trace of it after which it counts as cancelled.
const MISSING: u32 = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Download {
    /// Model on Hugging Face's hub (USER/REPO:QUANT), or the address of its file (https://HOST/PATH.gguf)
    model: String,
    /// Download the model even if it fits on no card
    #[arg(long, conflicts_with = "remove")]
    force: bool,
    /// Cancel the model's download, or remove the downloaded model
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    server: ServerAddress,
}

pub(crate) fn download(arguments: &Download) -> Result<ExitCode, ServerVerbError> {
    let Download { model, force, remove, server } = arguments;
    if *remove {
        server.ask_json(Method::DELETE, &format!("/models?model={}", encoded(model)), &Value::Null)?;
        return done(format_args!("{model} is being removed, or its download cancelled"));
    }
    let order = json!({ "model": model, "force": force });
    let answer = server.ask_json(Method::POST, "/models", &order)?;
    let name = answer["model"].as_str().unwrap_or(model).to_owned();
    if let Some(memory) = answer["memory"].as_str() {
        writeln!(terminal::stderr(), "{name}: {memory}")?;
    }
    follow(&name, server)
}

/// Shows the progress until the download has ended.
fn follow(name: &str, server: &ServerAddress) -> Result<ExitCode, ServerVerbError> {
    let (begun, mut last) = (Instant::now(), None);
    let (mut first, mut missing) = (None, 0);
    loop {
        let status = server.ask_json(Method::GET, "/api/status", &Value::Null)?;
        let of_name = |list: &str| {
            let mut entries = status[list].as_array().into_iter().flatten();
            entries.find(|entry| entry["name"].as_str() == Some(name)).cloned()
        };
        match (of_name("downloads"), of_name("models")) {
            (Some(entry), _) if entry["error"].is_string() => {
                clear()?;
                let why = entry["error"].as_str().unwrap_or_default().to_owned();
                return Err(ServerVerbError::NotDownloaded { model: name.to_owned(), why });
            }
            (Some(entry), _) => {
                let start = *first.get_or_insert_with(|| entry["done"].as_u64().unwrap_or_default());
                let line = screen::download(&entry, start, begun.elapsed());
                if terminal::stderr_is_terminal() {
                    terminal::progress(&line)?;
                } else if last.is_none_or(|at: Instant| at.elapsed() >= LINE) {
                    last = Some(Instant::now());
                    writeln!(terminal::stderr(), "{line}")?;
                }
                thread::sleep(LOOK);
            }
            (None, Some(_)) => {
                clear()?;
                return done(format_args!("{name} is there, and served"));
            }
            // Between its end and the list of models, the configuration is read again.
            (None, None) if missing < MISSING => {
                missing += 1;
                thread::sleep(LOOK);
            }
            (None, None) => {
                clear()?;
                let why = "its download was cancelled".to_owned();
                return Err(ServerVerbError::NotDownloaded { model: name.to_owned(), why });
            }
        }
    }
}

fn clear() -> io::Result<()> {
    if terminal::stderr_is_terminal() { terminal::progress("") } else { Ok(()) }
}
