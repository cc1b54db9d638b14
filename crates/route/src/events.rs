//! Streams changes of model states (`/models/sse`) and the status document (`/api/status/stream`) to clients.
//!
//! `/models/sse` sends the same events as llama-server's router.

use bytes::Bytes;
use plimsoll_base::Bytes as Size;
use plimsoll_scheduler::ModelState;
use serde_json::{Value, json};

use super::feed::{Feed, FeedListener};
use super::listing::{SLEEPING, status};
use super::problem::without_engine_words;

#[derive(Debug, Default)]
pub struct Events {
    models: Feed,
    snapshots: Feed,
}

impl Events {
    /// Publishes a model's new state. `info` is the data that belongs to it: the progress of a load, a ready
    /// engine's description of its model, the exit code of an ended engine.
    ///
    /// llama-server's router documents `model_status`, but sends it only when a load begins, and
    /// `status_change` for everything (`server-models.cpp @ b10605`); clients of either are served.
    pub fn state_changed(&self, model: &str, state: ModelState, info: &Value) {
        // Asked here as well, because the payload is built below.
        if !self.models.is_heard() {
            return;
        }
        let mut data = json!({ "status": status(state) });
        // `info` is null where nothing goes with the state.
        if let (Some(data), Some(info)) = (data.as_object_mut(), info.as_object()) {
            data.extend(info.clone());
        }
        self.notify(model, "model_status", &data);
        self.notify(model, "status_change", &data);
    }

    /// Publishes that the model's engine sleeps.
    pub fn asleep(&self, model: &str) {
        let data = json!({ "status": SLEEPING });
        self.notify(model, "model_status", &data);
        self.notify(model, "status_change", &data);
    }

    /// Publishes that the configuration was read again.
    pub fn reloaded(&self) {
        self.notify("*", "models_reload", &json!({}));
    }

    /// Publishes the idle memory that neighbours released for this model.
    pub fn neighbours_gave(&self, model: &str, bytes: Size) {
        self.notify(model, "neighbours_gave", &json!({ "bytes": bytes }));
    }

    /// Publishes a step of a download, or the removal of a downloaded model.
    pub fn download(&self, model: &str, step: &str, data: Value) {
        self.notify(model, step, &data);
    }

    /// Publishes the steps that made room in the host's memory before a load.
    pub fn reclaimed(&self, model: &str, what: &Value) {
        self.notify(model, "reclaimed", what);
    }

    /// Publishes that the page cache of the model's files was dropped, and its size before.
    pub fn page_cache_dropped(&self, model: &str, cached: Size) {
        self.notify(model, "page_cache_dropped", &json!({ "cached": cached }));
    }

    /// Sends the status document; `document` is called only if there is a listener.
    pub fn show(&self, document: impl FnOnce() -> Value) {
        if self.snapshots.is_heard() {
            self.snapshots.publish(&snapshot_event(document()));
        }
    }

    /// True if there is a listener to the status document.
    pub fn is_watched(&self) -> bool {
        self.snapshots.is_heard()
    }

    pub(crate) fn listen_to_models(&self) -> FeedListener {
        self.models.listen(None)
    }

    /// Starts with `now`, so that a watcher needs nothing else.
    pub(crate) fn listen_to_snapshots(&self, now: Value) -> FeedListener {
        self.snapshots.listen(Some(snapshot_event(now)))
    }

    fn notify(&self, model: &str, event: &str, data: &Value) {
        if self.models.is_heard() {
            self.models.publish(&data_event(&json!({ "model": model, "event": event, "data": data })));
        }
    }
}

fn snapshot_event(document: Value) -> Bytes {
    // The document holds reasons, which may quote an engine's log.
    data_event(&without_engine_words(document))
}

fn data_event(data: &Value) -> Bytes {
    // A blank line ends an event (HTML standard, section 9.2).
    Bytes::from(format!("data: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_change_is_reported_under_both_names_with_its_information() {
        let events = Events::default();
        let mut listener = events.listen_to_models();
        events.state_changed("a", ModelState::Ready, &json!({ "info": 1 }));
        for name in ["model_status", "status_change"] {
            let event = poll_fn(|cx| listener.poll_next(cx)).await.unwrap();
            let event = std::str::from_utf8(&event).unwrap().strip_prefix("data: ").unwrap().to_owned();
            assert_eq!(
                serde_json::from_str::<Value>(&event).unwrap(),
                json!({"model": "a", "event": name, "data": {"status": "loaded", "info": 1}})
            );
        }
    }

    #[test]
    fn no_snapshot_is_made_for_nobody() {
        Events::default().show(|| unreachable!("nobody watches"));
    }
}
