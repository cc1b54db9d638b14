//! Tests an engine that failed clients' requests, by small requests of the kind that it answered last.

use std::rc::Rc;
use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_scheduler::{ProbeOutcome, RunId, SchedulerEvent};

use super::Runtime;
use super::probe_kind::ProbeKind;
use super::run::EngineRun;
use super::work::WorkSample;
use plimsoll_route::Upstream;

/// Requests that have to fail, one after the other, and the pause between them.
const REQUESTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Time for the answer to one of them.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// An answer of one token or one vector is small.
const LONGEST: usize = 1 << 20;

// DECISION: a run is replaced only for requests of a kind that it has answered before, or that its own flags
// promise. A program that has no chat may answer one with an error of its own and be well.
/// The kind of request that shows whether the run answers; `None` if none is known.
fn kind(run: &EngineRun) -> Option<ProbeKind> {
    let options = run.entry.launch.options();
    let promised = || {
        let options = options?;
        let given = |flag: &str| options.get(flag).is_some();
        let embeds = given("--embedding") || given("--embeddings");
        Some(if given("--reranking") || given("--rerank") {
            ProbeKind::Rerank
        } else if embeds {
            ProbeKind::Embedding
        } else {
            ProbeKind::Native
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

/// Outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeAnswer {
    Good,
    Failed,
    /// No byte came, and the engine did no work meanwhile.
    Silent,
}

/// Answers the scheduler's Probe.
pub(super) async fn probe(runtime: Rc<Runtime>, run_id: RunId) {
    let Some(run) = runtime.state.run(run_id) else { return };
    let fault = fault(&run).await;
    if let Some(fault) = fault {
        tracing::warn!("model {}: {fault}; the engine is stopped and started again", run.entry.name);
    }
    let outcome = if fault.is_some() { ProbeOutcome::Fails } else { ProbeOutcome::Lives };
    runtime.submit(SchedulerEvent::Probed { run: run_id, outcome });
}

/// Proof that the engine answers nothing, unless a client gets a byte of a good answer meanwhile.
async fn fault(run: &EngineRun) -> Option<&'static str> {
    let before = run.progress.get();
    // It has ended, which the scheduler learns from its process.
    let upstream = run.upstream()?;
    let known = kind(run);
    for number in 0..REQUESTS {
        if number > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let answer = ask(run, &upstream, known).await;
        if run.progress.get() != before {
            return None;
        }
        match answer {
            ProbeAnswer::Good => return None,
            ProbeAnswer::Silent => {
                return Some("the engine sends no byte to clients, nor to Plimsoll, and does no work");
            }
            ProbeAnswer::Failed => {}
        }
    }
    Some("the engine failed requests of clients and three test requests of Plimsoll")
}

/// Sends a small request, and looks at the engine's work meanwhile. Where no kind of request is known, its
/// health is asked for, whose errors prove nothing.
async fn ask(run: &EngineRun, upstream: &Upstream, kind: Option<ProbeKind>) -> ProbeAnswer {
    let model = run.entry.upstream_name.as_deref().unwrap_or(&run.entry.name);
    let (method, path, body) = match kind.map(|kind| kind.request(model)) {
        Some((path, body)) => (Method::POST, path, Some(body)),
        None => (Method::GET, run.health_path().unwrap_or("/"), None),
    };
    let answer = upstream.crowd_in(upstream.ask(method, path, body.as_ref(), LONGEST));
    let before = WorkSample::take(run, upstream);
    let (before, answer) = tokio::join!(before, tokio::time::timeout(ANSWER_WITHIN, answer));
    match answer {
        // Behind a long answer it waits for its turn, so that silence alone proves nothing.
        Err(_) => {
            if before.rests_until(&WorkSample::take(run, upstream).await) {
                ProbeAnswer::Silent
            } else {
                ProbeAnswer::Good
            }
        }
        Ok(_) if kind.is_none() => ProbeAnswer::Good,
        Ok(None) => ProbeAnswer::Failed,
        Ok(Some((status, _))) if is_failure(status) && status != StatusCode::SERVICE_UNAVAILABLE => {
            ProbeAnswer::Failed
        }
        Ok(Some(_)) => ProbeAnswer::Good,
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
