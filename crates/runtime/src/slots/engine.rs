//! Asks a running llama-server for its slots, and has it save or restore them.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use plimsoll_route::Upstream;

/// A list of slots shows the parameters of each last request; a page of metrics is far shorter.
const LONGEST_LIST: usize = 16 << 20;
const LONGEST_ACTION: usize = 64 << 10;
/// Longest time for a list: an engine without a request answers within milliseconds.
const LIST_WITHIN: Duration = Duration::from_secs(1);

/// A slot, as `GET /slots` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct EngineSlot {
    pub(super) id: u32,
    #[serde(default)]
    pub(super) is_processing: bool,
    /// Tokens in its cache; absent if it was never used (`server-context.cpp: to_json @ b11063`).
    #[serde(default, rename = "n_prompt_tokens")]
    pub(super) tokens: u64,
}

/// Answer to a save or a restore.
#[derive(Deserialize)]
struct Action {
    #[serde(alias = "n_restored")]
    n_saved: u64,
}

pub(super) async fn slots(engine: &Upstream) -> Option<Vec<EngineSlot>> {
    read(list(engine, "/slots").await?)
}

/// Time that the engine took to compute a token of a prompt, over all its prompts (`server-task.cpp:
/// to_metrics`).
pub(super) async fn time_per_token(engine: &Upstream) -> Option<Duration> {
    let page = String::from_utf8(list(engine, "/metrics").await?).ok()?;
    let value = |name: &str| {
        let lines = page.lines().filter_map(|line| line.strip_prefix("llamacpp:")?.split_once(' '));
        let text = lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()?;
        text.trim().parse::<f64>().ok()
    };
    per_token(value("prompt_seconds_total")?, value("prompt_tokens_total")?)
}

fn per_token(seconds: f64, tokens: f64) -> Option<Duration> {
    let each = seconds / tokens;
    // A token never takes so long; the bound keeps products with it within their type.
    (tokens >= 1.0 && each > 0.0 && each < 3600.0).then(|| Duration::from_secs_f64(each))
}

/// Lets the engine write a slot into a file of its folder; returns its tokens.
pub(super) async fn save(engine: &Upstream, slot: u32, file: &str) -> Option<u64> {
    act(engine, slot, "save", file).await
}

/// Lets the engine read a slot from a file of its folder; returns its tokens.
pub(super) async fn restore(engine: &Upstream, slot: u32, file: &str) -> Option<u64> {
    act(engine, slot, "restore", file).await
}

async fn act(engine: &Upstream, slot: u32, action: &str, file: &str) -> Option<u64> {
    let (path, body) = (format!("/slots/{slot}?action={action}"), json!({ "filename": file }));
    let (status, answer) = engine.ask(Method::POST, &path, Some(&body), LONGEST_ACTION).await?;
    (status == StatusCode::OK).then_some(())?;
    read::<Action>(answer).map(|done| done.n_saved)
}

async fn list(engine: &Upstream, path: &str) -> Option<Vec<u8>> {
    let requested = engine.ask(Method::GET, path, None, LONGEST_LIST);
    let (status, answer) = tokio::time::timeout(LIST_WITHIN, requested).await.ok().flatten()?;
    (status == StatusCode::OK).then_some(answer)
}

fn read<T: DeserializeOwned>(text: Vec<u8>) -> Option<T> {
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_used_or_not_and_nonsense_is_none() {
        let text = br#"[{"id":0,"n_ctx":4096,"is_processing":false},
            {"id":1,"is_processing":true,"n_prompt_tokens":7,"params":{"a":[]},"prompt":"x"}]"#;
        let slot = |id, is_processing, tokens| EngineSlot { id, is_processing, tokens };
        assert_eq!(read::<Vec<EngineSlot>>(text.to_vec()), Some(vec![slot(0, false, 0), slot(1, true, 7)]));
        for text in ["", "{}", "[{}]", "[{\"id\":-1}]", "[{\"id\":0,\"n_prompt_tokens\":-5}]", "[[[["] {
            assert_eq!(read::<Vec<EngineSlot>>(text.as_bytes().to_vec()), None, "{text}");
        }
    }

    #[test]
    fn a_price_that_cannot_be_is_none() {
        assert_eq!(per_token(2.0, 1000.0), Some(Duration::from_millis(2)));
        for (seconds, tokens) in [
            (0.0, 0.0),
            (1.0, 0.0),
            (-1.0, 10.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (1e300, 1.0),
            (1.0, f64::NAN),
        ] {
            assert_eq!(per_token(seconds, tokens), None, "{seconds} {tokens}");
        }
    }
}
