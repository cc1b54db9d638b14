//! Probe of an engine that failed requests of clients: small requests of our own, of the kind that it answered last.

use std::rc::Rc;
use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_scheduler::{ProbeOutcome, RunId, SchedulerEvent};
use serde_json::{Value, json};

use super::Runtime;
use super::run::EngineRun;

/// Requests that have to fail, one after the other, and the pause between them.
const REQUESTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Time for the answer to one of them.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// An answer of one token or one vector is small.
const LONGEST: usize = 1 << 20;

/// Kind of a request, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeKind {
    Chat,
    Completion,
    /// llama-server's own completion.
    Native,
    Messages,
    Embedding,
    Rerank,
}

impl ProbeKind {
    /// The kind of a client's request; `None` where no small request is known for it.
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path.strip_prefix("/v1").unwrap_or(path) {
            "/chat/completions" => Self::Chat,
            "/completions" => Self::Completion,
            "/completion" => Self::Native,
            "/messages" => Self::Messages,
            "/embeddings" => Self::Embedding,
            "/rerank" | "/reranking" => Self::Rerank,
            _ => return None,
        })
    }

    fn request(self, model: &str) -> (&'static str, Value) {
        let turns = json!([{ "role": "user", "content": "a" }]);
        match self {
            Self::Chat => {
                ("/v1/chat/completions", json!({ "model": model, "messages": turns, "max_tokens": 1 }))
            }
            Self::Completion => {
                ("/v1/completions", json!({ "model": model, "prompt": "a", "max_tokens": 1 }))
            }
            Self::Native => ("/completion", json!({ "prompt": "a", "n_predict": 1 })),
            Self::Messages => ("/v1/messages", json!({ "model": model, "messages": turns, "max_tokens": 1 })),
            Self::Embedding => ("/v1/embeddings", json!({ "model": model, "input": "a" })),
            Self::Rerank => ("/v1/rerank", json!({ "model": model, "query": "a", "documents": ["a"] })),
        }
    }
}

// DECISION: a run is replaced only for requests of a kind that it has answered before, or that its own flags promise. A
// program that has no chat may answer one with an error of its own and be well.
/// The kind of request that shows whether the run answers; `None` if none is known.
fn kind(run: &EngineRun) -> Option<ProbeKind> {
    let options = run.entry.launch.options();
    let promised = || {
        let options = options?;
        let given = |flag: &str| options.get(flag).is_some();
        Some(match given("--embedding") || given("--embeddings") {
            _ if given("--reranking") || given("--rerank") => ProbeKind::Rerank,
            true => ProbeKind::Embedding,
            false => ProbeKind::Native,
        })
    };
    let answered = run.answered_kind.get().map(|kind| match kind {
        // It has this one beside the others, and a chat's template may refuse so short a chat.
        ProbeKind::Chat | ProbeKind::Completion | ProbeKind::Messages if options.is_some() => {
            ProbeKind::Native
        }
        kind => kind,
    });
    answered.or_else(promised)
}

/// Answers the scheduler's Probe.
pub(super) async fn probe(runtime: Rc<Runtime>, run_id: RunId) {
    let Some(run) = runtime.run(run_id) else { return };
    let outcome = match fails(&run).await {
        true => ProbeOutcome::Fails,
        false => ProbeOutcome::Lives,
    };
    if outcome == ProbeOutcome::Fails {
        tracing::warn!(
            "model {}: the engine failed requests of clients and {REQUESTS} of Plimsoll's own; it is replaced",
            run.entry.name
        );
    }
    runtime.submit(SchedulerEvent::Probed { run: run_id, outcome });
}

/// True if each of several requests fails, and no client is sent a byte of a good answer meanwhile.
async fn fails(run: &EngineRun) -> bool {
    let Some(kind) = kind(run) else { return false };
    let before = run.progress.get();
    for number in 0..REQUESTS {
        if number > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        if !fails_once(run, kind).await || run.progress.get() != before {
            return false;
        }
    }
    true
}

async fn fails_once(run: &EngineRun, kind: ProbeKind) -> bool {
    // It has ended, which the scheduler learns from its process.
    let Some(upstream) = run.upstream() else { return false };
    let model = run.entry.upstream_name.as_deref().unwrap_or(&run.entry.name);
    let (path, body) = kind.request(model);
    let answer = upstream.crowd_in(upstream.ask(Method::POST, path, Some(&body), LONGEST));
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        // Behind a long answer it waits for its turn, so that silence proves nothing.
        Err(_) => false,
        Ok(None) => true,
        Ok(Some((status, _))) => is_failure(status) && status != StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// True for an error that is the engine's own. One that has no such endpoint is well.
pub(super) fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_request_is_that_of_its_path_with_and_without_v1() {
        for (path, kind) in [
            ("/v1/chat/completions", Some(ProbeKind::Chat)),
            ("/chat/completions", Some(ProbeKind::Chat)),
            ("/completion", Some(ProbeKind::Native)),
            ("/v1/embeddings", Some(ProbeKind::Embedding)),
            ("/reranking", Some(ProbeKind::Rerank)),
            ("/v1/audio/speech", None),
            ("/health", None),
        ] {
            assert_eq!(ProbeKind::of(path), kind, "{path}");
        }
    }

    #[test]
    fn a_refusal_and_a_missing_endpoint_are_no_failure() {
        let failing: Vec<u16> =
            [200, 400, 404, 429, 500, 501, 502, 503].into_iter().filter(|code| fails(*code)).collect();
        assert_eq!(failing, [500, 502, 503]);
    }

    fn fails(code: u16) -> bool {
        is_failure(StatusCode::from_u16(code).unwrap())
    }
}
