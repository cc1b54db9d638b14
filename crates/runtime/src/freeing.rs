//! Asks idle engines to free memory without exiting, before any engine is stopped for another model.

use std::rc::Rc;
use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_base::{Bytes, RunId};
use plimsoll_config::Freeing;
use plimsoll_scheduler::SchedulerEvent;
use serde_json::Value;
use tokio::task::JoinSet;

use super::run::EngineRun;
use super::{Runtime, SchedulerState};

/// The longest answer of an engine that is read: a queue of ComfyUI holds whole graphs.
const LONGEST: usize = 16 << 20;
/// Time for an engine to free its memory: vLLM copies its weights to the host's memory before it answers.
const FREE_WITHIN: Duration = Duration::from_secs(10);
/// Time for the copy back.
const WAKE_WITHIN: Duration = Duration::from_secs(60);
/// Pauses between readings after the answer, and their number: ComfyUI frees later, on its worker's thread.
const PAUSE: Duration = Duration::from_millis(200);
const READINGS: u32 = 10;
/// Memory that has to be back for the engine to count as done.
const SHARE_BACK: u64 = 2;

/// Asks idle engines that can free memory to do so, and waits until the cards show it.
pub async fn free_idle(runtime: &Runtime) {
    let state = &runtime.state;
    let mut requested = JoinSet::new();
    for (run, freeing) in state.able_to_free() {
        let before = (run.id, state.measured_of(&run));
        requested.spawn_local(async move { free(&run, &freeing).await.then_some(before) });
    }
    let slept: Vec<(RunId, Bytes)> = requested.join_all().await.into_iter().flatten().collect();
    for (run, _) in &slept {
        runtime.submit(SchedulerEvent::Slept { run: *run });
    }
    for _ in 0..READINGS {
        let is_occupied = |(id, before): &(RunId, Bytes)| {
            let run = state.run(*id).filter(|_| state.is_asleep(*id));
            run.is_some_and(|run| state.measured_of(&run) > before.scaled(1, SHARE_BACK))
        };
        if !slept.iter().any(is_occupied) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
        runtime.read_cards().await;
    }
}

impl SchedulerState {
    /// Idle runs that have something to free.
    fn able_to_free(&self) -> Vec<(Rc<EngineRun>, Freeing)> {
        let idle = self.idle_runs();
        let runs = self.runs().into_iter().filter(|run| idle.contains(&run.id) && !self.is_asleep(run.id));
        runs.filter_map(|run| run.entry.freeing().map(|freeing| (run, freeing))).collect()
    }

    fn is_asleep(&self, run: RunId) -> bool {
        self.scheduler.borrow().is_asleep(run)
    }

    /// Last measured memory of a run.
    fn measured_of(&self, run: &EngineRun) -> Bytes {
        let view = self.view(run.model).filter(|view| view.run == Some(run.id));
        view.and_then(|view| self.settings.on_own_cards(&view.measured)).unwrap_or_default()
    }
}

/// Asks an idle engine to free its memory; true if it agreed.
async fn free(run: &Rc<EngineRun>, freeing: &Freeing) -> bool {
    if let Some(path) = freeing.jobs
        && !run.ask(Method::GET, path, None, FREE_WITHIN).await.is_some_and(|jobs| is_at_rest(&jobs))
    {
        return false;
    }
    // A client's request may come while the engine is at it: it waits for the end, and then wakes the engine.
    let _turn = run.waking.lock().await;
    run.needs_wake.set(freeing.wake.is_some());
    let (path, body) = freeing.free;
    let body: Option<Value> = serde_json::from_str(body).ok();
    let agreed = run.ask(Method::POST, path, body.as_ref(), FREE_WITHIN).await.is_some();
    run.needs_wake.set(agreed && freeing.wake.is_some());
    if agreed {
        tracing::info!("{} frees its memory while it is idle", run.entry.name);
    }
    agreed
}

/// True if all lists of jobs are empty. An unreadable answer means a busy engine.
fn is_at_rest(body: &[u8]) -> bool {
    let jobs: Value = serde_json::from_slice(body).unwrap_or_default();
    let lists = jobs.as_object().map(|jobs| jobs.values().collect::<Vec<_>>()).unwrap_or_default();
    !lists.is_empty() && lists.iter().all(|jobs| jobs.as_array().is_some_and(Vec::is_empty))
}

impl EngineRun {
    /// The body of an answer with status 200; `None` for any other, and after this time.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        within: Duration,
    ) -> Option<Vec<u8>> {
        let upstream = self.upstream()?;
        let requested = upstream.ask(method, path, body, LONGEST);
        let (status, body) = tokio::time::timeout(within, requested).await.ok().flatten()?;
        (status == StatusCode::OK).then_some(body)
    }

    /// True if a request has to wait until the engine was woken.
    pub(super) fn is_occupied_asleep(&self) -> bool {
        self.needs_wake.get() || self.waking.try_lock().is_err()
    }

    /// Wakes an engine that was asked to sleep. Its next answer shows any failure.
    pub(super) async fn wake(&self) {
        let Some(path) = self.entry.freeing().and_then(|freeing| freeing.wake) else { return };
        // One request wakes it, and those behind it wait for that.
        let _turn = self.waking.lock().await;
        if self.needs_wake.replace(false) && self.ask(Method::POST, path, None, WAKE_WITHIN).await.is_none() {
            tracing::warn!(
                "the engine of {} did not restore its memory to the card within {} s",
                self.entry.name,
                WAKE_WITHIN.as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_at_rest;

    #[test]
    fn only_lists_that_are_all_empty_are_rest() {
        for (body, rests) in [
            (r#"{"queue_running":[],"queue_pending":[]}"#, true),
            (r#"{"queue_running":[[0,"id",{}]],"queue_pending":[]}"#, false),
            (r#"{"queue_running":[],"queue_pending":[[1]]}"#, false),
            (r#"{"queue_running":null,"queue_pending":[]}"#, false),
            ("{}", false),
            ("[]", false),
            ("", false),
            ("\u{fffd}", false),
        ] {
            assert_eq!(is_at_rest(body.as_bytes()), rests, "{body}");
        }
    }
}
