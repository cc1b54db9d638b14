//! Keeps the requests that have not ended, each with the channel by which its client learns of progress.
//!
//! A request is in the table from its arrival to its end. The scheduler's words about it are reported in
//! order. Only the end of its wait takes the client's place in the table.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use plimsoll_base::IdMap;
use plimsoll_scheduler::{RequestDepth, RequestId, RequestRefusal, RunId, SchedulerEvent, UnknownRequest};
use tokio::sync::mpsc;

use super::Runtime;
use super::run::EngineRun;
use plimsoll_task::spawn_local;

/// The scheduler's report on a request.
pub(super) enum AdmissionAnswer {
    Go(Rc<EngineRun>),
    Refused(Box<RequestRefusal>),
    /// The scheduler needs the depth of the request first.
    MeasureDepth {
        run: Rc<EngineRun>,
        exact: bool,
    },
}

/// State of a request that has not ended.
enum OpenRequest {
    /// Its client waits. It may be refused at any moment, also while its depth is measured.
    Waiting(mpsc::UnboundedSender<AdmissionAnswer>),
    /// It is known which run it will be sent to, so nobody waits for that.
    SentAtOnce,
    /// It is at an engine.
    Sent,
}

#[derive(Default)]
pub(super) struct RequestTable {
    next: Cell<u64>,
    open: RefCell<IdMap<RequestId, OpenRequest>>,
}

impl RequestTable {
    /// The number of a request that has just come.
    fn number(&self) -> RequestId {
        RequestId(self.next.replace(self.next.get() + 1))
    }

    /// Takes a request whose client waits for the scheduler; also one that comes back from its engine.
    fn wait(&self, request: RequestId) -> mpsc::UnboundedReceiver<AdmissionAnswer> {
        let (sender, answers) = mpsc::unbounded_channel();
        self.open.borrow_mut().insert(request, OpenRequest::Waiting(sender));
        answers
    }

    /// Sends the scheduler's report to the request's client. A refusal ends it.
    pub(super) fn notify(&self, request: RequestId, answer: AdmissionAnswer) -> Result<(), UnknownRequest> {
        let mut open = self.open.borrow_mut();
        let state = open.get_mut(&request).ok_or(UnknownRequest(request))?;
        let next = match &answer {
            AdmissionAnswer::Go(_) => Some(OpenRequest::Sent),
            AdmissionAnswer::MeasureDepth { .. } | AdmissionAnswer::Refused(_) => None,
        };
        let ends = matches!(answer, AdmissionAnswer::Refused(_));
        match state {
            // The receiver is gone if the client leaves in this moment; its side ends the request.
            OpenRequest::Waiting(client) => drop(client.send(answer)),
            OpenRequest::SentAtOnce if next.is_some() => {}
            OpenRequest::SentAtOnce | OpenRequest::Sent => return Err(UnknownRequest(request)),
        }
        match next {
            Some(next) => *state = next,
            None if ends => drop(open.remove(&request)),
            None => {}
        }
        Ok(())
    }

    /// Ends a request; false if it has ended before.
    fn end(&self, request: RequestId) -> bool {
        self.open.borrow_mut().remove(&request).is_some()
    }

    /// True until the request ends.
    pub(super) fn is_open(&self, request: RequestId) -> bool {
        self.open.borrow().contains_key(&request)
    }

    /// Lets a request go to its engine, which may have to be woken first.
    pub(super) fn send_on(self: &Rc<Self>, request: RequestId, run: Rc<EngineRun>) {
        if !run.is_occupied_asleep() {
            return self.answer(request, AdmissionAnswer::Go(run));
        }
        let table = Rc::clone(self);
        spawn_local(async move {
            run.wake().await;
            // The client may have left meanwhile.
            if table.is_open(request) {
                table.answer(request, AdmissionAnswer::Go(run));
            }
        });
    }

    /// Sends the scheduler's report to the request's client.
    pub(super) fn answer(&self, request: RequestId, answer: AdmissionAnswer) {
        report_stray(self.notify(request, answer));
    }
}

/// Reports a request that one side thinks has ended and the other does not.
pub(super) fn report_stray(handled: Result<(), UnknownRequest>) {
    if let Err(stray) = handled {
        tracing::error!("a bug in plimsoll, please report it: {stray}");
    }
}

/// Owner of a request until it ends. Dropping it ends the request, because its client has left.
pub(super) struct OwnedRequest {
    pub(super) runtime: Rc<Runtime>,
    pub(super) id: RequestId,
    /// The run that has it, and the pieces of answers that clients had been sent of that run before.
    sent: RefCell<Option<(Rc<EngineRun>, u64)>>,
}

impl OwnedRequest {
    fn numbered(runtime: &Rc<Runtime>) -> Self {
        let id = runtime.requests.number();
        Self { runtime: Rc::clone(runtime), id, sent: RefCell::default() }
    }

    /// Notes that the run has the request.
    pub(super) fn is_at(&self, run: &Rc<EngineRun>) {
        self.sent.replace(Some((Rc::clone(run), run.progress.get())));
    }

    /// A request whose client waits, before its arrival is reported.
    pub(super) fn waiting(runtime: &Rc<Runtime>) -> (Self, mpsc::UnboundedReceiver<AdmissionAnswer>) {
        let owned = Self::numbered(runtime);
        let answers = runtime.requests.wait(owned.id);
        (owned, answers)
    }

    /// A request that its arrival sends to a run that is known.
    pub(super) fn sent_at_once(runtime: &Rc<Runtime>) -> Self {
        let owned = Self::numbered(runtime);
        runtime.requests.open.borrow_mut().insert(owned.id, OpenRequest::SentAtOnce);
        owned
    }

    /// Reports that the engine closed the connection before the client saw a byte. The client waits again.
    pub(super) fn bounced(&self) -> mpsc::UnboundedReceiver<AdmissionAnswer> {
        let answers = self.runtime.requests.wait(self.id);
        self.sent.take();
        self.runtime.submit(SchedulerEvent::Bounced { request: self.id });
        answers
    }

    /// Reports the depth, unless the request ended while it was measured.
    pub(super) fn measured(&self, run: RunId, depth: Option<RequestDepth>) {
        if self.runtime.requests.is_open(self.id) {
            self.runtime.submit(SchedulerEvent::DepthMeasured { request: self.id, run, depth });
        }
    }

    /// Ends the request with the engine's answer, which may be an error of the engine's own.
    pub(super) fn finished(self, at: Instant, tokens: Option<u64>, failed: bool) {
        if self.runtime.requests.end(self.id) {
            let now = self.runtime.state.moment(at);
            self.runtime.submit_at(now, SchedulerEvent::Finished { request: self.id, tokens, failed });
        }
    }
}

impl Drop for OwnedRequest {
    fn drop(&mut self) {
        if self.runtime.requests.end(self.id) {
            let (request, sent) = (self.id, self.sent.take());
            let is_silent = sent.is_some_and(|(run, before)| run.progress.get() == before);
            self.runtime.submit(if is_silent {
                SchedulerEvent::GaveUp { request }
            } else {
                SchedulerEvent::Abandoned { request }
            });
        }
    }
}

#[cfg(test)]
mod tests;
