//! Admission of a request by the runtime: it arrives, waits, is sent or refused, and ends exactly once.
//!
//! A waiting request holds a ticket, an admitted one a pass. Dropping either ends the request, so a client
//! that disconnects leaves nothing behind.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use plimsoll_base::Reason;
use plimsoll_scheduler::{
    ClientId, ModelId, RequestDepth, RequestId, RequestRefusal, RequestRefusalKind, SchedulerEvent,
};
use tokio::sync::oneshot;

use super::Runtime;
use super::run::EngineRun;
use crate::route::{HttpProblem, Limits, Pass, RequestPrompt, StallLimit, Upstream};

/// A connection breaks a moment before the death of its process is noticed.
const DEATH_WITHIN: Duration = Duration::from_secs(1);

/// Answer of the scheduler to a request.
pub(super) enum AdmissionAnswer {
    Go(Rc<EngineRun>),
    Refused(Box<RequestRefusal>),
    /// The scheduler needs the depth of the request first.
    MeasureDepth {
        run: Rc<EngineRun>,
        exact: bool,
    },
}

/// A request that waits for admission.
struct AdmissionTicket {
    runtime: Rc<Runtime>,
    request: RequestId,
    model: ModelId,
    client: ClientId,
    answer: oneshot::Receiver<AdmissionAnswer>,
    over: bool,
}

impl AdmissionTicket {
    fn take(runtime: &Rc<Runtime>, request: RequestId, model: ModelId, client: ClientId) -> Self {
        Self {
            runtime: Rc::clone(runtime),
            request,
            model,
            client,
            answer: enlist(runtime, request),
            over: false,
        }
    }

    async fn wait(mut self, prompt: RequestPrompt<'_>) -> Result<RunPass, HttpProblem> {
        let mut answer = (&mut self.answer).await;
        // The scheduler may ask twice: for a bound, and for an exact count if that does not fit.
        while let Ok(AdmissionAnswer::MeasureDepth { run, exact }) = answer {
            answer = self.measure_depth(&run, exact, prompt).await;
        }
        // The scheduler has answered, so dropping the ticket must not report a client that left.
        self.over = true;
        let (runtime, request) = (Rc::clone(&self.runtime), self.request);
        let run = match answer {
            Ok(AdmissionAnswer::Go(run)) => run,
            Ok(AdmissionAnswer::Refused(mut refusal)) => {
                runtime.hint(self.model, &mut refusal);
                return Err(HttpProblem::from(*refusal));
            }
            Ok(AdmissionAnswer::MeasureDepth { .. }) | Err(_) => return Err(shutting_down()),
        };
        match run.upstream() {
            Some(upstream) => Ok(RunPass {
                counts_tokens: runtime.wants_tokens(&run),
                runtime,
                request,
                run,
                upstream,
                client: self.client,
                over: false,
            }),
            // The engine died after the scheduler had sent the request to it.
            None => Box::pin(bounce(runtime, request, self.model, self.client, prompt)).await,
        }
    }

    /// Measures the depth of the request and waits on. While an engine counts tokens, the request may still
    /// be refused.
    async fn measure_depth(
        &mut self,
        run: &EngineRun,
        exact: bool,
        prompt: RequestPrompt<'_>,
    ) -> Result<AdmissionAnswer, oneshot::error::RecvError> {
        // Enlisted before the count, because a refusal at the deadline comes by the same channel.
        self.answer = enlist(&self.runtime, self.request);
        let depth = match exact {
            false => Some(prompt.bound().await),
            true => tokio::select! {
                // The deadline may pass while the engine counts.
                answer = &mut self.answer => return answer,
                depth = count(run, prompt) => depth,
            },
        };
        self.runtime.submit(SchedulerEvent::DepthMeasured { request: self.request, run: run.id, depth });
        (&mut self.answer).await
    }
}

async fn count(run: &EngineRun, prompt: RequestPrompt<'_>) -> Option<RequestDepth> {
    let upstream = run.upstream()?;
    upstream.crowd_in(prompt.count(&upstream, &Limits::default())).await
}

/// Registers for the scheduler's next answer to the request.
fn enlist(runtime: &Runtime, request: RequestId) -> oneshot::Receiver<AdmissionAnswer> {
    let (sender, answer) = oneshot::channel();
    // Registered before the event: the answer may come before this call returns.
    runtime.state.borrow_mut().waiting.insert(request, sender);
    answer
}

/// Reports a request without an answer to the scheduler, which may give it one more try.
async fn bounce(
    runtime: Rc<Runtime>,
    request: RequestId,
    model: ModelId,
    client: ClientId,
    prompt: RequestPrompt<'_>,
) -> Result<RunPass, HttpProblem> {
    let ticket = AdmissionTicket::take(&runtime, request, model, client);
    runtime.submit(SchedulerEvent::Bounced { request, client });
    ticket.wait(prompt).await
}

impl Drop for AdmissionTicket {
    fn drop(&mut self) {
        if !self.over {
            self.runtime.state.borrow_mut().waiting.remove(&self.request);
            self.runtime.submit(SchedulerEvent::Abandoned { request: self.request });
        }
    }
}

/// Permission to send one request to one run.
pub(crate) struct RunPass {
    runtime: Rc<Runtime>,
    request: RequestId,
    run: Rc<EngineRun>,
    upstream: Rc<Upstream>,
    counts_tokens: bool,
    client: ClientId,
    over: bool,
}

impl Runtime {
    /// Asks the scheduler for a run and waits for it.
    pub(super) async fn arrive(
        self: Rc<Self>,
        model: ModelId,
        client: ClientId,
        prompt: RequestPrompt<'_>,
    ) -> Result<RunPass, HttpProblem> {
        let request = RequestId(self.next_request.replace(self.next_request.get() + 1));
        let ticket = AdmissionTicket::take(&self, request, model, client);
        // Counted from the end of the upload, not from the connection.
        let deadline = self.now() + self.settings.wait;
        self.submit(SchedulerEvent::Arrived { request, model, deadline });
        ticket.wait(prompt).await
    }

    /// Adds hints of extensions to a failed load.
    fn hint(&self, model: ModelId, refusal: &mut RequestRefusal) {
        if refusal.kind == RequestRefusalKind::LoadFailed {
            // They were collected before the load, which the scheduler knows nothing of.
            let hints = self.statuses.with(model, |status| status.hints.clone());
            refusal.hints.extend(hints);
        }
    }

    /// True if the tokens of the run's answers matter to the scheduler or to an extension.
    fn wants_tokens(&self, run: &EngineRun) -> bool {
        let tracked = self.state.borrow().scheduler.tracks_depth(run.id);
        tracked || self.extensions.iter().any(|extension| extension.wants_tokens(run))
    }
}

impl RunPass {
    async fn fate(&self) -> Option<Reason> {
        self.run.fate(DEATH_WITHIN).await.cloned()
    }
}

impl Pass for RunPass {
    fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }

    fn counts_tokens(&self) -> bool {
        self.counts_tokens
    }

    fn stall_limit(&self) -> StallLimit {
        self.run.stall_limit.clone()
    }

    fn finished(mut self, tokens: Option<u64>) {
        // Set before the events, which may drop other passes.
        self.over = true;
        if let Some(tokens) = tokens {
            for extension in &self.runtime.extensions {
                extension.answered(&self.runtime, &self.run, tokens);
            }
        }
        self.runtime.submit(SchedulerEvent::Finished { request: self.request, tokens });
    }

    /// Waits for the death first, so that the request is not sent to the dying run again.
    async fn bounced(mut self, prompt: RequestPrompt<'_>) -> Result<Self, HttpProblem> {
        // Reported too early, the bounce would find the run alive and cost a health check.
        let _ = self.fate().await;
        self.over = true;
        bounce(Rc::clone(&self.runtime), self.request, self.run.model, self.client, prompt).await
    }

    fn broke(self) -> Pin<Box<dyn Future<Output = HttpProblem>>> {
        Box::pin(async move { engine_died(self.fate().await) })
    }
}

impl Drop for RunPass {
    fn drop(&mut self) {
        if !self.over {
            self.runtime.submit(SchedulerEvent::Abandoned { request: self.request });
        }
    }
}

fn shutting_down() -> HttpProblem {
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "the server is shutting down")
}

fn engine_died(fate: Option<Reason>) -> HttpProblem {
    let mut reason = Reason::new("engine_died", "the engine stopped in the middle of its answer");
    if let Some(fate) = fate {
        reason = reason.because(fate);
    }
    HttpProblem::because(StatusCode::BAD_GATEWAY, reason)
}
