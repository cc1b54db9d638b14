//! Admission of a request by the runtime: it arrives, waits, is sent or refused, and ends exactly once.
//!
//! A waiting request holds a ticket, an admitted one a pass. Dropping either ends the request, so a client
//! that disconnects leaves nothing behind.

use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll_base::Reason;
use plimsoll_scheduler::{
    ClientId, ModelId, ModelState, RequestDepth, RequestId, RequestRefusal, RequestRefusalKind,
    SchedulerEvent,
};
use tokio::sync::oneshot;

use super::Runtime;
use super::request_log::RequestRecord;
use super::run::EngineRun;
use crate::route::{
    AnswerTokens, HttpProblem, Limits, ModelService, Pass, RequestPrompt, RouteOptions, StallLimit, Upstream,
};

/// A connection breaks a moment before the death of its process is noticed.
const DEATH_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which the cause of a wait is looked at again, at first and after some time.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

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
    record: Option<RequestRecord>,
    over: bool,
}

impl AdmissionTicket {
    fn take(
        runtime: &Rc<Runtime>,
        request: RequestId,
        model: ModelId,
        client: ClientId,
        record: Option<RequestRecord>,
    ) -> Self {
        let answer = enlist(runtime, request);
        Self { runtime: Rc::clone(runtime), request, model, client, answer, record, over: false }
    }

    async fn wait(mut self, prompt: RequestPrompt<'_>) -> Result<RunPass, HttpProblem> {
        let mut answer = self.next_answer().await;
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
                return Err(self.refused(HttpProblem::from(*refusal)));
            }
            Ok(AdmissionAnswer::MeasureDepth { .. }) | Err(_) => return Err(self.refused(shutting_down())),
        };
        let mut record = self.record.take();
        record.iter_mut().for_each(|record| record.sent_to(&run));
        match run.upstream() {
            Some(upstream) => Ok(RunPass {
                counts_tokens: runtime.wants_tokens(&run),
                runtime,
                request,
                run,
                upstream,
                client: self.client,
                record,
                over: false,
            }),
            // The engine died after the scheduler had sent the request to it.
            None => Box::pin(bounce(runtime, request, self.model, self.client, prompt, record)).await,
        }
    }

    /// Waits for the next answer, and logs the causes of the wait.
    async fn next_answer(&mut self) -> Result<AdmissionAnswer, oneshot::error::RecvError> {
        if let Ok(answer) = self.answer.try_recv() {
            return Ok(answer);
        }
        let mut pause = LOOK_AGAIN.0;
        while RequestRecord::is_logged() {
            self.record.iter_mut().for_each(RequestRecord::waits);
            if let Ok(answer) = tokio::time::timeout(pause, &mut self.answer).await {
                return answer;
            }
            // A thousand that wait for minutes would otherwise be looked at a thousand times a second.
            pause = (pause * 3 / 2).min(LOOK_AGAIN.1);
        }
        (&mut self.answer).await
    }

    fn refused(&mut self, problem: HttpProblem) -> HttpProblem {
        self.record.iter_mut().for_each(|record| record.refused(problem.status));
        problem
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
        self.next_answer().await
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
    record: Option<RequestRecord>,
) -> Result<RunPass, HttpProblem> {
    let ticket = AdmissionTicket::take(&runtime, request, model, client, record);
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
    /// The scheduler or an extension wants to know the tokens.
    counts_tokens: bool,
    client: ClientId,
    record: Option<RequestRecord>,
    over: bool,
}

impl Runtime {
    /// Admits a request to a run of this server.
    pub(crate) async fn admit_here(
        self: Rc<Self>,
        model: ModelId,
        wish: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<RunPass, HttpProblem> {
        // Advisory only: the scheduler decides again, and a model that stops in this moment is loaded after
        // all.
        let mut record = RequestRecord::begin(&self, model, &wish);
        if self.shown(model) != ModelState::Ready {
            let not_loaded =
                || HttpProblem::new(StatusCode::BAD_REQUEST, "model_not_loaded", "model is not loaded");
            let unwanted = (!wish.autoload.unwrap_or_else(|| self.autoloads())).then(not_loaded);
            // A load may evict another model, for a body that the engine can only refuse.
            if let Some(problem) = unwanted.or_else(|| prompt.broken()) {
                record.refused(problem.status);
                return Err(problem);
            }
        }
        self.arrive(model, wish, prompt, record).await
    }

    /// Asks the scheduler for a run and waits for it.
    async fn arrive(
        self: Rc<Self>,
        model: ModelId,
        RouteOptions { client, priority, .. }: RouteOptions,
        prompt: RequestPrompt<'_>,
        record: RequestRecord,
    ) -> Result<RunPass, HttpProblem> {
        let request = self.next_request();
        // Counted from the end of the upload, not from the connection.
        let now = self.moment(record.arrived());
        self.slots.arrived(model, &prompt);
        let ticket = AdmissionTicket::take(&self, request, model, client, Some(record));
        let deadline = now + self.settings.wait;
        self.submit_at(now, SchedulerEvent::Arrived { request, model, client, priority, deadline });
        ticket.wait(prompt).await
    }

    /// The pass for a run that takes the request at once.
    pub(crate) fn pass_at_once(self: &Rc<Self>, model: ModelId, wish: RouteOptions) -> Option<RunPass> {
        let run = self.state.borrow().scheduler.free_run(model)?;
        let run = self.run(run).filter(|run| !run.is_held_asleep())?;
        let upstream = run.upstream()?;
        let mut record = RequestRecord::begin(self, model, &wish);
        let RouteOptions { client, priority, .. } = wish;
        let request = self.next_request();
        let now = self.moment(record.arrived());
        // The request waits after all where its engine ends before it answers.
        let deadline = now + self.settings.wait;
        self.submit_at(now, SchedulerEvent::Arrived { request, model, client, priority, deadline });
        record.sent_at_once();
        Some(RunPass {
            counts_tokens: self.wants_tokens(&run),
            runtime: Rc::clone(self),
            request,
            run,
            upstream,
            client,
            record: Some(record),
            over: false,
        })
    }

    fn next_request(&self) -> RequestId {
        RequestId(self.next_request.replace(self.next_request.get() + 1))
    }

    /// Adds hints of extensions to a failed load.
    fn hint(&self, model: ModelId, refusal: &mut RequestRefusal) {
        if matches!(refusal.kind, RequestRefusalKind::LoadFailed | RequestRefusalKind::Unstartable) {
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

    fn answers(&mut self, status: StatusCode) {
        self.record.iter_mut().for_each(|record| record.status(status));
    }

    fn stall_limit(&self) -> StallLimit {
        self.run.stall_limit.clone()
    }

    fn streams(&mut self) {
        self.record.iter_mut().for_each(RequestRecord::streams);
    }

    fn finished(mut self, tokens: Option<AnswerTokens>) {
        // Set before the events, which may drop other passes.
        self.over = true;
        let now = Instant::now();
        self.record.iter_mut().for_each(|record| record.finished(tokens, now));
        let tokens = tokens.filter(|_| self.counts_tokens).map(|tokens| tokens.total);
        if let Some(tokens) = tokens {
            for extension in &self.runtime.extensions {
                extension.answered(&self.runtime, &self.run, tokens);
            }
        }
        let now = self.runtime.moment(now);
        self.runtime.submit_at(now, SchedulerEvent::Finished { request: self.request, tokens });
    }

    /// Waits for the death first, so that the request is not sent to the dying run again.
    async fn bounced(mut self, prompt: RequestPrompt<'_>) -> Result<Self, HttpProblem> {
        // Reported too early, the bounce would find the run alive and cost a health check.
        let _ = self.fate().await;
        self.over = true;
        let (runtime, record) = (Rc::clone(&self.runtime), self.record.take());
        bounce(runtime, self.request, self.run.model, self.client, prompt, record).await
    }

    fn broke(mut self) -> Pin<Box<dyn Future<Output = HttpProblem>>> {
        self.record.iter_mut().for_each(RequestRecord::broke);
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
