//! Tells guard (the preloaded library) how many tokens an engine's conversations hold.

use std::path::PathBuf;
use std::rc::Rc;

use http::{Method, StatusCode};
use plimsoll_probe::guard::{DepthReporter, LONGEST_SLOTS, SLOTS_WITHIN};
use tokio::time::timeout;

use plimsoll_runtime::{EngineRun, Runtime};

/// Reports the depths of an engine's conversations to its guard, until the task is ended.
pub(super) async fn report(
    runtime: Rc<Runtime>,
    run: Rc<EngineRun>,
    reporter: DepthReporter,
    pages: PathBuf,
) {
    let slots = async || {
        let upstream = run.upstream()?;
        let requested = upstream.ask(Method::GET, "/slots", None, LONGEST_SLOTS);
        let (status, slots) = timeout(SLOTS_WITHIN, requested).await.ok()??;
        (status == StatusCode::OK).then(|| slots.to_vec())
    };
    reporter.report(&pages, slots, |bus| runtime.bus_measured(bus)).await;
}
