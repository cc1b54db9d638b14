//! Admits a request: it arrives, waits, is sent or refused, and ends exactly once.
//!
//! A waiting request has a ticket, an admitted one a pass. Both own the request: dropping either ends it, so
//! a client that disconnects leaves nothing behind.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use plimsoll_base::Reason;
use plimsoll_scheduler::{
    ModelId, ModelState, RequestDepth, RequestRefusal, RequestRefusalKind, RequestTraits, SchedulerEvent,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Runtime;
use super::deadly::BodyDigest;
use super::probe::is_failure;
use super::probe_kind::ProbeKind;
use super::request_log::RequestRecord;
use super::requests::{AdmissionAnswer, OwnedRequest};
use super::run::EngineRun;
use super::survey::overlong;
use plimsoll_route::{
    AnswerTokens, HttpProblem, Limits, ModelService, Pass, RequestPrompt, RouteOptions, StallLimit, Upstream,
};

/// A connection breaks a moment before the death of its process is noticed.
const DEATH_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which the cause of a wait is looked at again, at first and after some time.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// A request that waits for admission.
struct AdmissionTicket {
    request: OwnedRequest,
    model: ModelId,
    answers: UnboundedReceiver<AdmissionAnswer>,
    record: Option<RequestRecord>,
    digest: Option<BodyDigest>,
}

impl AdmissionTicket {
    async fn wait(mut self, prompt: RequestPrompt<'_>) -> Result<RunPass, HttpProblem> {
        let mut answer = self.next_answer().await;
        // The scheduler may ask twice: for a bound, and for an exact count if that does not fit.
        while let Some(AdmissionAnswer::MeasureDepth { run, exact }) = answer {
            answer = self.measure_depth(&run, exact, prompt).await;
        }
        let run = match answer {
            Some(AdmissionAnswer::Go(run)) => run,
            Some(AdmissionAnswer::Refused(mut refusal)) => {
                self.request.runtime.hint(self.model, &mut refusal);
                return Err(self.refused(HttpProblem::from(*refusal)));
            }
            Some(AdmissionAnswer::MeasureDepth { .. }) | None => return Err(self.refused(shutting_down())),
        };
        let Self { request, model, mut record, digest, .. } = self;
        record.iter_mut().for_each(|record| record.sent_to(&run));
        request.is_at(&run);
        match run.upstream() {
            Some(upstream) => {
                let counts_tokens = request.runtime.wants_tokens(&run);
                Ok(RunPass { counts_tokens, request, run, upstream, failed: false, record, digest })
            }
            // The engine died after the scheduler had sent the request to it.
            None => Box::pin(bounce(request, model, prompt, (record, digest))).await,
        }
    }

    /// Waits for the next answer, and logs the causes of the wait.
    async fn next_answer(&mut self) -> Option<AdmissionAnswer> {
        if let Ok(answer) = self.answers.try_recv() {
            return Some(answer);
        }
        let mut pause = LOOK_AGAIN.0;
        while RequestRecord::is_logged() {
            self.record.iter_mut().for_each(RequestRecord::waits);
            if let Ok(answer) = tokio::time::timeout(pause, self.answers.recv()).await {
                return answer;
            }
            // A thousand that wait for minutes would otherwise be looked at a thousand times a second.
            pause = (pause * 3 / 2).min(LOOK_AGAIN.1);
        }
        self.answers.recv().await
    }

    fn refused(&mut self, problem: HttpProblem) -> HttpProblem {
        self.record.iter_mut().for_each(|record| record.refused(problem.status));
        problem
    }

    /// Measures the depth of the request and waits on. The request may be refused meanwhile.
    async fn measure_depth(
        &mut self,
        run: &EngineRun,
        exact: bool,
        prompt: RequestPrompt<'_>,
    ) -> Option<AdmissionAnswer> {
        let measure = async { if exact { count(run, prompt).await } else { Some(prompt.bound().await) } };
        tokio::select! {
            // First, because a request that has ended has no depth to report.
            biased;
            answer = self.answers.recv() => return answer,
            depth = measure => self.request.measured(run.id, depth),
        }
        self.next_answer().await
    }
}

async fn count(run: &EngineRun, prompt: RequestPrompt<'_>) -> Option<RequestDepth> {
    let upstream = run.upstream()?;
    upstream.crowd_in(prompt.count(&upstream, &Limits::default())).await
}

/// Reports a request without an answer to the scheduler, which may give it one more try.
async fn bounce(
    request: OwnedRequest,
    model: ModelId,
    prompt: RequestPrompt<'_>,
    (record, digest): (Option<RequestRecord>, Option<BodyDigest>),
) -> Result<RunPass, HttpProblem> {
    let answers = request.bounced();
    AdmissionTicket { request, model, answers, record, digest }.wait(prompt).await
}

/// Permission to send one request to one run.
pub struct RunPass {
    request: OwnedRequest,
    run: Rc<EngineRun>,
    upstream: Rc<Upstream>,
    /// The scheduler or an extension wants to know the tokens.
    counts_tokens: bool,
    /// The engine's answer is an error of its own.
    failed: bool,
    record: Option<RequestRecord>,
    /// Known where an engine of the model died lately.
    digest: Option<BodyDigest>,
}

impl fmt::Debug for RunPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunPass").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Admits a request to a run of this server.
    pub async fn admit(
        self: Rc<Self>,
        model: ModelId,
        options: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> Result<RunPass, HttpProblem> {
        // Advisory only: the scheduler decides again, and a model that stops in this moment is loaded after
        // all.
        let mut record = RequestRecord::begin(&self, model, &options);
        if self.state.statuses.shown(model) != ModelState::Ready {
            let not_loaded =
                || HttpProblem::new(StatusCode::BAD_REQUEST, "model_not_loaded", "model is not loaded");
            let unwanted = (!options.autoload.unwrap_or_else(|| self.autoloads())).then(not_loaded);
            // A load may evict another model, for a request that the engine can only refuse.
            let problem = match unwanted.or_else(|| prompt.broken()) {
                None => overlong(&self.state, model, &prompt).await,
                known => known,
            };
            if let Some(problem) = problem {
                record.refused(problem.status);
                return Err(problem);
            }
        }
        self.arrive(model, options, prompt, record).await
    }

    /// Asks the scheduler for a run and waits for it.
    async fn arrive(
        self: Rc<Self>,
        model: ModelId,
        RouteOptions { client, priority, .. }: RouteOptions,
        prompt: RequestPrompt<'_>,
        record: RequestRecord,
    ) -> Result<RunPass, HttpProblem> {
        let digest = self.deadly.look(model, &prompt);
        let kills = match self.deadly.kills((model, &self.state.entry(model).name), digest) {
            Ok(kills) => kills,
            Err(problem) => {
                let mut record = record;
                record.refused(problem.status);
                return Err(problem);
            }
        };
        let traits = RequestTraits { kills, slotless: prompt.needs_no_slot() };
        // Counted from the end of the upload, not from the connection.
        let now = self.state.moment(record.arrived());
        self.files.slots.arrived(model, &prompt);
        // In the table before the event: the answer may come before that returns.
        let (request, answers) = OwnedRequest::waiting(&self);
        let ticket = AdmissionTicket { request, model, answers, record: Some(record), digest };
        let (request, deadline) = (ticket.request.id, now + self.settings.wait);
        self.submit_at(now, SchedulerEvent::Arrived { request, model, client, priority, deadline, traits });
        ticket.wait(prompt).await
    }

    /// The pass for a run that takes the request at once.
    pub fn admit_at_once(self: &Rc<Self>, model: ModelId, options: RouteOptions) -> Option<RunPass> {
        if self.deadly.is_watched(model) {
            // The body has to be looked at.
            return None;
        }
        let run = self.state.scheduler.borrow().free_run(model)?;
        let run = self.state.run(run).filter(|run| !run.is_occupied_asleep())?;
        let upstream = run.upstream()?;
        let mut record = RequestRecord::begin(self, model, &options);
        let RouteOptions { client, priority, .. } = options;
        let owned = OwnedRequest::sent_at_once(self);
        let (request, now) = (owned.id, self.state.moment(record.arrived()));
        // The request waits after all where its engine ends before it answers.
        let deadline = now + self.settings.wait;
        let traits = RequestTraits::default();
        self.submit_at(now, SchedulerEvent::Arrived { request, model, client, priority, deadline, traits });
        record.sent_at_once();
        owned.is_at(&run);
        Some(RunPass {
            counts_tokens: self.wants_tokens(&run),
            request: owned,
            run,
            upstream,
            failed: false,
            record: Some(record),
            digest: None,
        })
    }

    /// Adds hints of extensions to a failed load.
    fn hint(&self, model: ModelId, refusal: &mut RequestRefusal) {
        if matches!(refusal.kind, RequestRefusalKind::LoadFailed | RequestRefusalKind::Unstartable) {
            // They were collected before the load, which the scheduler knows nothing of.
            let hints = self.state.statuses.with(model, |status| status.hints.clone());
            refusal.hints.extend(hints);
        }
    }

    /// True if the tokens of the run's answers matter to the scheduler or to an extension.
    fn wants_tokens(&self, run: &EngineRun) -> bool {
        let tracked = self.state.scheduler.borrow().tracks_depth(run.id);
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

    fn answers(&mut self, status: StatusCode, path: &str) {
        self.failed = is_failure(status);
        if status.is_success()
            && let Some(kind) = ProbeKind::of(path)
        {
            self.run.answered_kind.set(Some(kind));
        }
        self.record.iter_mut().for_each(|record| record.status(status));
    }

    fn note_body(&mut self, prompt: &RequestPrompt<'_>) {
        let deadly = &self.request.runtime.deadly;
        self.digest.get_or_insert_with(|| deadly.digest(prompt));
    }

    fn stall_limit(&self) -> StallLimit {
        self.run.stall_limit.clone()
    }

    fn yields(&self) {
        if !self.failed {
            self.run.progress.set(self.run.progress.get() + 1);
        }
    }

    fn streams(&mut self) {
        self.record.iter_mut().for_each(RequestRecord::streams);
    }

    fn finished(mut self, tokens: Option<AnswerTokens>) {
        let now = Instant::now();
        self.yields();
        self.record.iter_mut().for_each(|record| record.finished(tokens, now));
        let tokens = tokens.filter(|_| self.counts_tokens).map(|tokens| tokens.total);
        let runtime = Rc::clone(&self.request.runtime);
        if let Some(digest) = self.digest.filter(|_| !self.failed) {
            runtime.deadly.answered(self.run.model, digest);
        }
        if let Some(tokens) = tokens {
            for extension in &runtime.extensions {
                extension.answered(&runtime, &self.run, tokens);
            }
        }
        self.request.finished(now, tokens, self.failed);
    }

    /// Waits for the death first, so that the request is not sent to the dying run again.
    async fn bounced(self, prompt: RequestPrompt<'_>) -> Result<Self, HttpProblem> {
        // Reported too early, the bounce would find the run alive and cost a health check.
        let _ = self.fate().await;
        let deadly = &self.request.runtime.deadly;
        deadly.broke(self.request.id, || Some(deadly.digest(&prompt)));
        // Computed again if it is not known: an engine of the model has died now.
        let digest = self.digest.or_else(|| deadly.look(self.run.model, &prompt));
        bounce(self.request, self.run.model, prompt, (self.record, digest)).await
    }

    fn broke(mut self) -> Pin<Box<dyn Future<Output = HttpProblem>>> {
        self.record.iter_mut().for_each(RequestRecord::broke);
        Box::pin(async move {
            let fate = self.fate().await;
            self.request.runtime.deadly.broke(self.request.id, || self.digest);
            self.request.finished(Instant::now(), None, true);
            engine_died(fate)
        })
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
