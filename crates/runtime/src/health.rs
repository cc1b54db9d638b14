//! Checks the health of an engine over a new connection, when the scheduler requests it.

use std::rc::Rc;
use std::time::Duration;

use http::{Request, Uri};
use plimsoll_scheduler::{Health, RunId, SchedulerEvent};

use super::Runtime;
use super::run::EngineRun;
use plimsoll_route::{Limits, Rope};

/// A busy llama-server answers its health path from a thread of its own within milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);

/// Answers the scheduler's CheckHealth.
pub(super) async fn check(runtime: Rc<Runtime>, run_id: RunId) {
    let health = match runtime.state.run(run_id) {
        Some(run) => tokio::time::timeout(ANSWER_WITHIN, ask(&run)).await,
        None => return,
    };
    let health = health.unwrap_or(Health::Silent);
    runtime.submit(SchedulerEvent::HealthChecked { run: run_id, health });
}

async fn ask(run: &EngineRun) -> Health {
    let Some(upstream) = run.upstream() else {
        return Health::Fails;
    };
    let Ok(mut wire) = upstream.connect(Limits::default().connect_time).await else {
        return Health::Fails;
    };
    // An engine without a health path is taken for alive if it accepts the connection.
    let Some(path) = run.health_path() else {
        return Health::Answers;
    };
    let mut request = Request::new(Rope::default().into());
    *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
    match wire.send(request).await {
        // A client error (an unknown path, a missing key) proves it alive; an internal one does not.
        Ok(response) if response.status().is_server_error() => Health::Fails,
        Ok(_) => Health::Answers,
        Err(_) => Health::Fails,
    }
}
