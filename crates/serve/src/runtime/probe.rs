//! Probe of an engine that failed requests of clients: small requests of our own, of the kind that it answered last.

use std::rc::Rc;
use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_scheduler::{ProbeOutcome, RunId, SchedulerEvent};

use super::Runtime;
use super::probe_kind::ProbeKind;
use super::run::EngineRun;

/// Requests that have to fail, one after the other, and the pause between them.
const REQUESTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Time for the answer to one of them.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// An answer of one token or one vector is small.
const LONGEST: usize = 1 << 20;

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
    fn a_refusal_and_a_missing_endpoint_are_no_failure() {
        let failing: Vec<u16> =
            [200, 400, 404, 429, 500, 501, 502, 503].into_iter().filter(|code| fails(*code)).collect();
        assert_eq!(failing, [500, 502, 503]);
    }

    fn fails(code: u16) -> bool {
        is_failure(StatusCode::from_u16(code).unwrap())
    }
}
