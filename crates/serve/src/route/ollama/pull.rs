//! Downloads by Ollama's `/api/pull`, and removals by its `/api/delete`.
//!
//! A model of the hub has the name that Ollama's clients give it: `hf.co/USER/REPO:QUANT`. The download goes on when
//! its client leaves, as one that was begun by `POST /models`.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use plimsoll_base::{Advice, Hint};
use plimsoll_config::KeyRight;
use serde_json::{Value, json};

use super::listing::{JSON, LINES};
use super::{LATEST, request};
use crate::route::HttpProblem;
use crate::route::body::{ClientBody, receive};
use crate::route::download_order::DownloadOrder;
use crate::route::feed::FeedListener;
use crate::route::model_service::ModelService;
use crate::route::reply::{self, Reply, ReplyBody};
use crate::route::server::HttpServer;

/// Hosts of the hub, as Ollama's clients write them before a repository.
const HUBS: [&str; 2] = ["hf.co/", "huggingface.co/"];

/// The name without the hub and without the tag that stands for none.
pub(super) fn on_hub(name: &str) -> &str {
    let bare = HUBS.iter().find_map(|hub| name.strip_prefix(hub)).unwrap_or(name);
    bare.strip_suffix(LATEST).unwrap_or(bare)
}

impl<H: ModelService> HttpServer<H> {
    /// Downloads a model, or succeeds at once with one that is served already.
    pub(super) async fn pull(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let received = receive(body, &self.bodies, &self.settings.limits).await?;
        let (name, streams) = request::model_of(&received.rope.copy(0..received.rope.len()))?;
        let known = self.ollama_model(head, &name).and_then(|model| self.permitted(head, model));
        let mut stream = match known {
            Ok(_) => PullStream::of_served(),
            // A name of Ollama's own registry has no user.
            Err(problem) if problem.status == StatusCode::NOT_FOUND && on_hub(&name).contains('/') => {
                self.pull_of_hub(head, on_hub(&name)).await?
            }
            Err(problem) => return Err(not_pulled(problem)),
        };
        let mut ending = self.ending();
        if streams {
            return Ok(reply::feed(LINES, ReplyBody::Pull(Box::new(stream), ending)));
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
        let order = DownloadOrder::read(&json!({ "model": name }))?;
        self.needs_right(head, KeyRight::Operate)?;
        self.permitted_name(head, &order.name)?;
        // Before the download begins, so that no event of it is missed.
        let events = self.service.events().listen_to_models();
        let is_coming = |model: &Value| model["id"] == order.name.as_str();
        if !self.service.downloading().iter().any(is_coming) {
            self.service.download(&order).await?;
            self.audit(head, "download", &order.name);
        }
        Ok(PullStream::new(events, order.name))
    }

    /// Removes a downloaded model, or cancels its download.
    pub(super) async fn delete(&self, head: &Parts, body: ClientBody) -> Result<Reply<H::Pass>, HttpProblem> {
        let received = receive(body, &self.bodies, &self.settings.limits).await?;
        let (name, _) = request::model_of(&received.rope.copy(0..received.rope.len()))?;
        let name = match self.ollama_model(head, &name) {
            Ok(model) => self.service.listing(self.permitted(head, model)?).name,
            // It may still be downloaded.
            Err(_) => on_hub(&name).to_owned(),
        };
        self.permitted_name(head, &name)?;
        self.service.remove(&name).await?;
        self.audit(head, "remove", &name);
        Ok(reply::empty(StatusCode::OK))
    }
}

fn not_pulled(problem: HttpProblem) -> HttpProblem {
    match problem.status {
        StatusCode::NOT_FOUND => problem.hint(Hint::new(Advice::Other(
            "pull hf.co/USER/REPO:QUANT, or add the model to the configuration of this server".to_owned(),
        ))),
        _ => problem,
    }
}

/// A download that failed, by its last line; without one the server ends.
fn broken_off(line: &[u8]) -> HttpProblem {
    let line: Value = serde_json::from_slice(line).unwrap_or_default();
    let why = line["error"].as_str().unwrap_or("the server is stopping; pull again to go on");
    HttpProblem::new(StatusCode::BAD_GATEWAY, "download_failed", why)
}

/// Lines of JSON that tell the progress of a download as Ollama does (`ProgressResponse`, `api/types.go @ 0.14.0`).
pub(crate) struct PullStream {
    /// `None` once the download has ended.
    events: Option<FeedListener>,
    name: String,
    /// Lines that are due before the next event.
    due: Option<Bytes>,
    has_succeeded: bool,
}

impl PullStream {
    fn new(events: FeedListener, name: String) -> Self {
        let due = Some(line(&json!({ "status": "pulling manifest" })));
        Self { events: Some(events), name, due, has_succeeded: false }
    }

    fn of_served() -> Self {
        let due = Some(line(&json!({ "status": "success" })));
        Self { events: None, name: String::new(), due, has_succeeded: true }
    }

    /// The next lines; `None` after the last.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(due) = self.due.take() {
            return Poll::Ready(Some(due));
        }
        loop {
            let Some(events) = &mut self.events else { return Poll::Ready(None) };
            let Some(event) = ready!(events.poll_next(context)) else {
                let error = "this client reads too slowly to be told of the download, which goes on";
                return Poll::Ready(Some(self.end(&json!({ "error": error }))));
            };
            let lines = self.lines_of(&event);
            if !lines.is_empty() {
                return Poll::Ready(Some(lines));
            }
        }
    }

    /// The lines for an event of the feed; none for one of another model.
    fn lines_of(&mut self, event: &[u8]) -> Bytes {
        let event = event.strip_prefix(b"data: ").unwrap_or(event);
        let event: Value = serde_json::from_slice(event).unwrap_or_default();
        if event["model"] != self.name.as_str() {
            return Bytes::new();
        }
        match event["event"].as_str() {
            Some("download_progress") => progress(&event["data"]["progress"]),
            Some("download_finished") => {
                self.has_succeeded = true;
                self.end(&json!({ "status": "success" }))
            }
            Some("download_failed") => self.end(&json!({ "error": event["data"]["error"] })),
            _ => Bytes::new(),
        }
    }

    fn end(&mut self, last: &Value) -> Bytes {
        self.events = None;
        line(last)
    }
}

/// A line for each file.
fn progress(files: &Value) -> Bytes {
    let lines = files.as_object().into_iter().flatten().map(|(address, bytes)| {
        let file = address.rsplit('/').next().unwrap_or(address);
        // Clients draw a bar for each digest; the address is as much one of its own.
        line(&json!({
            "status": format!("pulling {file}"), "digest": address,
            "total": bytes["total"], "completed": bytes["done"],
        }))
    });
    Bytes::from(lines.collect::<Vec<Bytes>>().concat())
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::events::Events;

    async fn next(stream: &mut PullStream) -> Option<String> {
        let line = poll_fn(|cx| stream.poll_next(cx)).await?;
        Some(String::from_utf8(line.to_vec()).unwrap())
    }

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

    #[tokio::test]
    async fn the_steps_of_one_download_are_lines_and_those_of_others_are_not() {
        let events = Events::default();
        let mut stream = PullStream::new(events.listen_to_models(), "u/r".to_owned());
        events.download("u/other", "download_failed", json!({ "error": "no" }));
        events.download(
            "u/r",
            "download_progress",
            json!({ "progress": { "https://h/a/m.gguf": { "done": 1, "total": 2 } } }),
        );
        events.download("u/r", "download_finished", json!({}));
        assert_eq!(next(&mut stream).await.unwrap(), "{\"status\":\"pulling manifest\"}\n");
        let told: Value = serde_json::from_str(&next(&mut stream).await.unwrap()).unwrap();
        let wanted =
            json!({ "status": "pulling m.gguf", "digest": "https://h/a/m.gguf", "total": 2, "completed": 1 });
        assert_eq!(told, wanted);
        assert_eq!(next(&mut stream).await.unwrap(), "{\"status\":\"success\"}\n");
        assert!(stream.has_succeeded && next(&mut stream).await.is_none());
    }

    #[tokio::test]
    async fn a_failure_and_a_client_that_lags_end_the_stream_with_an_error() {
        let events = Events::default();
        let mut failing = PullStream::new(events.listen_to_models(), "u/r".to_owned());
        let mut lagging = PullStream::new(events.listen_to_models(), "u/r".to_owned());
        events.download("u/r", "download_failed", json!({ "error": "the disk is full" }));
        next(&mut failing).await;
        assert_eq!(next(&mut failing).await.unwrap(), "{\"error\":\"the disk is full\"}\n");
        assert!(!failing.has_succeeded && next(&mut failing).await.is_none());
        assert_eq!(broken_off(b"{\"error\":\"the disk is full\"}\n").message, "the disk is full");
        for _ in 0..2000 {
            events.download("u/r", "download_progress", json!({ "progress": {} }));
        }
        next(&mut lagging).await;
        assert!(next(&mut lagging).await.unwrap().contains("too slowly"));
        assert!(next(&mut lagging).await.is_none());
    }
}
