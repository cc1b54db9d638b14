//! Translates a download's progress into the lines of Ollama's `/api/pull`.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::feed::FeedListener;

/// Lines of JSON with the progress of a download as Ollama does (`ProgressResponse`, `api/types.go @
/// 0.14.0`).
pub(crate) struct PullStream {
    /// `None` once the download has ended.
    events: Option<FeedListener>,
    name: String,
    /// Lines that are due before the next event.
    due: Option<Bytes>,
    pub(super) has_succeeded: bool,
}

impl PullStream {
    pub(super) fn new(events: FeedListener, name: String) -> Self {
        let due = Some(line(&json!({ "status": "pulling manifest" })));
        Self { events: Some(events), name, due, has_succeeded: false }
    }

    pub(super) fn of_served() -> Self {
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
                let error = "this client reads too slowly to follow the download, which continues";
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
    use std::future::poll_fn;

    use super::*;
    use crate::events::Events;

    async fn next(stream: &mut PullStream) -> Option<String> {
        let line = poll_fn(|cx| stream.poll_next(cx)).await?;
        Some(String::from_utf8(line.to_vec()).unwrap())
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
        let reported: Value = serde_json::from_str(&next(&mut stream).await.unwrap()).unwrap();
        let wanted =
            json!({ "status": "pulling m.gguf", "digest": "https://h/a/m.gguf", "total": 2, "completed": 1 });
        assert_eq!(reported, wanted);
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
        for _ in 0..2000 {
            events.download("u/r", "download_progress", json!({ "progress": {} }));
        }
        next(&mut lagging).await;
        assert!(next(&mut lagging).await.unwrap().contains("too slowly"));
        assert!(next(&mut lagging).await.is_none());
    }
}
