//! A request's way through the scheduler: it arrives, waits, is let through or refused, and ends exactly once.
//!
//! Dropping is the end in every case: a ticket that is dropped has left the queue, a pass that is dropped is
//! finished. So a client that goes away at any moment leaves nothing behind.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use plimsoll_base::Reason;
use plimsoll_scheduler::{Depth, Event, ModelId, Refusal, RefusalKind, RequestId, RunId};
use tokio::sync::oneshot;

use super::Owner;
use super::run::Run;
use crate::route::{Limits, Pass, Problem, Prompt, Upstream};

/// A connection breaks a moment before the death of its process is known.
const DEATH_WITHIN: Duration = Duration::from_secs(1);

/// What the scheduler says to a request.
pub(super) enum Answer {
    Go(Rc<Run>),
    Refused(Box<Refusal>),
    /// It wants to know how deep the request goes, and waits for that.
    Sound {
        run: Rc<Run>,
        exact: bool,
    },
}

/// A request that waits.
struct Ticket {
    owner: Rc<Owner>,
    request: RequestId,
    model: ModelId,
    answer: oneshot::Receiver<Answer>,
    over: bool,
}

impl Ticket {
    fn take(owner: &Rc<Owner>, request: RequestId, model: ModelId) -> Self {
        Self {
            owner: Rc::clone(owner),
            request,
            model,
            answer: enlist(owner, request),
            over: false,
        }
    }

    async fn wait(mut self, prompt: Prompt<'_>) -> Result<RunPass, Problem> {
        let mut answer = (&mut self.answer).await;
        while let Ok(Answer::Sound { run, exact }) = answer {
            answer = self.sound(&run, exact, prompt).await;
        }
        self.over = true;
        let (owner, request) = (Rc::clone(&self.owner), self.request);
        let run = match answer {
            Ok(Answer::Go(run)) => run,
            Ok(Answer::Refused(mut refusal)) => {
                owner.hint(self.model, &mut refusal);
                return Err(Problem::from(*refusal));
            }
            Ok(Answer::Sound { .. }) | Err(_) => return Err(shutting_down()),
        };
        match run.upstream() {
            Some(upstream) => Ok(RunPass {
                counts_tokens: run.guarded().is_some() || owner.watches(run.id),
                owner,
                request,
                run,
                upstream,
                over: false,
            }),
            // It died between the scheduler's word and now.
            None => Box::pin(bounce(owner, request, self.model, prompt)).await,
        }
    }

    /// Tells how deep the request goes, and waits on. While an engine counts, the request may still be refused.
    async fn sound(
        &mut self,
        run: &Run,
        exact: bool,
        prompt: Prompt<'_>,
    ) -> Result<Answer, oneshot::error::RecvError> {
        self.answer = enlist(&self.owner, self.request);
        let depth = match exact {
            false => Some(prompt.bound()),
            true => tokio::select! {
                answer = &mut self.answer => return answer,
                depth = count(run, prompt) => depth,
            },
        };
        self.owner.submit(Event::Sounded {
            request: self.request,
            run: run.id,
            depth,
        });
        (&mut self.answer).await
    }
}

async fn count(run: &Run, prompt: Prompt<'_>) -> Option<Depth> {
    let upstream = run.upstream()?;
    upstream
        .crowd_in(prompt.count(&upstream, &Limits::default()))
        .await
}

/// Where the scheduler's next answer to the request comes.
fn enlist(owner: &Owner, request: RequestId) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    owner.state.borrow_mut().waiting.insert(request, sender);
    answer
}

/// Hands a request back to the scheduler, which gives it one more try.
async fn bounce(
    owner: Rc<Owner>,
    request: RequestId,
    model: ModelId,
    prompt: Prompt<'_>,
) -> Result<RunPass, Problem> {
    let ticket = Ticket::take(&owner, request, model);
    owner.submit(Event::Bounced { request });
    ticket.wait(prompt).await
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.over {
            self.owner.state.borrow_mut().waiting.remove(&self.request);
            self.owner.submit(Event::Abandoned {
                request: self.request,
            });
        }
    }
}

/// The right to send one request to one run.
pub(crate) struct RunPass {
    owner: Rc<Owner>,
    request: RequestId,
    run: Rc<Run>,
    upstream: Rc<Upstream>,
    counts_tokens: bool,
    over: bool,
}

impl Owner {
    /// Asks the scheduler for a place and waits for it.
    pub(super) async fn arrive(
        self: Rc<Self>,
        model: ModelId,
        prompt: Prompt<'_>,
    ) -> Result<RunPass, Problem> {
        let request = RequestId(self.next_request.replace(self.next_request.get() + 1));
        let ticket = Ticket::take(&self, request, model);
        let deadline = self.now() + self.terms.wait;
        self.submit(Event::Arrived {
            request,
            model,
            deadline,
        });
        ticket.wait(prompt).await
    }

    /// Says beside a load that failed what was done before it.
    fn hint(&self, model: ModelId, refusal: &mut Refusal) {
        if refusal.kind == RefusalKind::LoadFailed {
            let hints = self.notes.with(model, |note| note.hints.clone());
            refusal.hints.extend(hints);
        }
    }

    fn watches(&self, run: RunId) -> bool {
        self.state.borrow().scheduler.watches(run)
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

    fn finished(mut self, tokens: Option<u64>) {
        self.over = true;
        if let Some(tokens) = tokens {
            self.owner.deepened(&self.run, tokens);
        }
        self.owner.submit(Event::Finished {
            request: self.request,
            tokens,
        });
    }

    /// Waits for the death first, so that the request is not sent to the dying run again.
    async fn bounced(mut self, prompt: Prompt<'_>) -> Result<Self, Problem> {
        let _ = self.fate().await;
        self.over = true;
        bounce(Rc::clone(&self.owner), self.request, self.run.model, prompt).await
    }

    fn broke(self) -> Pin<Box<dyn Future<Output = Problem>>> {
        Box::pin(async move { engine_died(self.fate().await) })
    }
}

impl Drop for RunPass {
    fn drop(&mut self) {
        if !self.over {
            self.owner.submit(Event::Abandoned {
                request: self.request,
            });
        }
    }
}

fn shutting_down() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "shutting_down",
        "the server is shutting down",
    )
}

fn engine_died(fate: Option<Reason>) -> Problem {
    let mut reason = Reason::new("engine_died", "the engine went away in the middle of its answer");
    if let Some(fate) = fate {
        reason = reason.because(fate);
    }
    Problem::because(StatusCode::BAD_GATEWAY, reason)
}
