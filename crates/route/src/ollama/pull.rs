//! Downloads models by Ollama's `/api/pull`, and removes them by its `/api/delete`.
//!
//! A model of the hub has the name that Ollama's clients use: `hf.co/USER/REPO:QUANT`. A download continues
//! when its client disconnects, as does one that `POST /models` has started.

use std::future::poll_fn;

use http::StatusCode;
use http::request::Parts;
use plimsoll_base::{Advice, Hint};
use plimsoll_config::KeyRight;
use plimsoll_ollama::request;
use serde_json::{Value, json};

use super::LATEST;
use super::listing::{JSON, LINES};
use super::progress::PullStream;
use crate::HttpProblem;
use crate::body::{ClientBody, receive_order};
use crate::download_order::DownloadOrder;
use crate::model_service::{ModelService, RequestRouter};
use crate::reply::{self, Reply};
use crate::server::HttpServer;

/// Hosts of the hub, as Ollama's clients write them before a repository.
const HUBS: [&str; 2] = ["hf.co/", "huggingface.co/"];

/// The name without the hub and without the tag that stands for none.
pub(super) fn on_hub(name: &str) -> &str {
    let bare = HUBS.iter().find_map(|hub| name.strip_prefix(hub)).unwrap_or(name);
    bare.strip_suffix(LATEST).unwrap_or(bare)
}

impl<H: RequestRouter> HttpServer<H> {
    /// Downloads a model, or succeeds at once with one that is served already.
    pub(super) async fn pull(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let order = receive_order(body, &self.bodies, &self.settings.limits).await?;
        let (name, streams) = request::model_of(&order)?;
        let mut stream = match self.ollama_model(head, &name) {
            Ok(_) => PullStream::of_served(),
            // A name of Ollama's own registry has no user.
            Err(problem) if problem.status == StatusCode::NOT_FOUND && on_hub(&name).contains('/') => {
                self.pull_of_hub(head, on_hub(&name)).await?
            }
            Err(problem) => return Err(not_pulled(&name, problem)),
        };
        let mut ending = self.ending(head);
        if streams {
            return Ok(reply::feed(LINES, ending, move |cx| stream.poll_next(cx)));
        }
        let mut last = None;
        while let Some(line) = poll_fn(|cx| ending.or(cx, |cx| stream.poll_next(cx))).await {
            last = Some(line);
        }
        match last {
            Some(line) if stream.has_succeeded => Ok(reply::text(JSON, line)),
            line => Err(broken_off(line.as_deref().unwrap_or_default())),
        }
    }

    async fn pull_of_hub(&self, head: &Parts, name: &str) -> Result<PullStream, HttpProblem> {
        let order = DownloadOrder::read(&json!({ "model": name }), !self.is_operator(head))?;
        self.needs_right(head, KeyRight::Operate)?;
        self.permitted_name(head, &order.name)?;
        // Before the download begins, so that no event of it is missed.
        let events = self.service.local().events().listen_to_models();
        let is_coming = |model: &Value| model["id"] == order.name.as_str();
        if !self.service.local().downloading().iter().any(is_coming) {
            self.service.local().download(&order).await?;
            self.audit(head, "download", &order.name);
        }
        Ok(PullStream::new(events, order.name))
    }

    /// Removes a downloaded or derived model, or cancels a download.
    pub(super) async fn delete(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let order = receive_order(body, &self.bodies, &self.settings.limits).await?;
        let (name, _) = request::model_of(&order)?;
        let name = match self.ollama_model(head, &name) {
            Ok((model, name)) => self.service.local().listing(model).named(&name).name,
            // It may still be downloaded.
            Err(problem) if problem.status != StatusCode::FORBIDDEN => on_hub(&name).to_owned(),
            Err(problem) => return Err(problem),
        };
        self.remove_named(head, &name).await?;
        Ok(reply::empty(StatusCode::OK))
    }
}

/// A name of Ollama's own library, which this server does not read: its clients show the message alone.
fn not_pulled(name: &str, problem: HttpProblem) -> HttpProblem {
    if problem.status != StatusCode::NOT_FOUND {
        return problem;
    }
    let message = format!(
        "pull model manifest: '{name}' is a name of Ollama's library, and this server pulls from Hugging Face: \
            pull hf.co/USER/REPO:QUANT"
    );
    let find =
        format!("find a GGUF file of it at https://huggingface.co/models?library=gguf&search={}", base(name));
    HttpProblem::new(StatusCode::NOT_FOUND, "model_not_found", message)
        .hint(Hint::new(Advice::Other(find)))
        .hint(Hint::new(Advice::Other("or add the model to the configuration of this server".to_owned())))
}

/// The name without its tag, as far as it can stand in an address.
fn base(name: &str) -> String {
    let base = name.split(':').next().unwrap_or_default();
    base.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')).take(64).collect()
}

/// A download that failed, by its last line; without one the server ends.
fn broken_off(line: &[u8]) -> HttpProblem {
    let line: Value = serde_json::from_slice(line).unwrap_or_default();
    let why = line["error"].as_str().unwrap_or("the server is stopping; pull again to continue");
    HttpProblem::new(StatusCode::BAD_GATEWAY, "download_failed", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_and_the_empty_tag_are_no_part_of_a_name() {
        for (written, name) in [
            ("hf.co/u/r:Q4", "u/r:Q4"),
            ("huggingface.co/u/r:latest", "u/r"),
            ("u/r", "u/r"),
            ("llama3.2:latest", "llama3.2"),
            ("hf.co/", ""),
            ("hf.co/hf.co/u", "hf.co/u"),
        ] {
            assert_eq!(on_hub(written), name);
        }
    }

    #[test]
    fn a_failure_is_reported_in_the_words_of_its_last_line() {
        assert_eq!(broken_off(b"{\"error\":\"the disk is full\"}\n").message, "the disk is full");
        assert!(broken_off(b"").message.contains("stopping"));
    }
}
