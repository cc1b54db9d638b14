//! Records the scheduler's actions and the ends of engines for displays, such as the timeline of the web
//! page.

use plimsoll_base::{Bytes, Card, CardId, CardKind, End, Hint, Order, Placement, Reason};
use plimsoll_doctor::EngineVerdict;
use plimsoll_scheduler::{ModelId, ModelState, RequestRefusal, RequestRefusalKind, SchedulerEffect};

use super::{Board, PlannedTerms};
use crate::in_a_line;
use crate::overflow::move_to_host;
use crate::run::EngineRun;

impl Board {
    /// Records what an effect means for displays; `was` is the state that a model had before it.
    pub(crate) fn mark_effect(&self, effect: &SchedulerEffect, was: ModelState) {
        // Each request has one, which no display shows.
        if matches!(effect, SchedulerEffect::Dispatch { .. }) {
            return;
        }
        let (now, marks) = (self.state.now(), &self.marks);
        match effect {
            SchedulerEffect::Start { run, model, placement } => {
                let terms = self.planned_terms(*model, placement);
                self.terms.borrow_mut().insert(*run, terms);
                let bytes: Bytes = placement.shares.iter().map(|share| share.bytes).sum();
                marks.add(now, "load", Some(*model), format!("reserves {bytes}"));
            }
            SchedulerEffect::Stop { run, .. } => {
                let Some(model) = self.state.run(*run).map(|run| run.model) else { return };
                let why = self.state.scheduler.borrow().at(now).stop_reason(*run);
                marks.add(now, "stop", Some(model), why.map_or(String::new(), |why| in_a_line(&why)));
            }
            // DECISION: a request that is refused because its model failed is not a failure of its own. The
            // mark of the model has the engine's words, and requests that failed are counted elsewhere.
            SchedulerEffect::Refuse { refusal, .. } if !is_of_a_failed_model(refusal) => {
                self.mark_failure("refused", None, &refusal.reason, &refusal.hints);
            }
            SchedulerEffect::StateChanged { model, state: ModelState::Ready } => {
                let stays = if was == ModelState::Draining {
                    "its memory is no longer needed by another \
                    model"
                } else {
                    ""
                };
                marks.add(now, "ready", Some(*model), stays.to_owned());
            }
            SchedulerEffect::GiveUpLoad { model, reason } => {
                self.mark_failure("refused", Some(*model), reason, &[]);
            }
            SchedulerEffect::StateChanged { model, state: ModelState::Failed } => self.mark_failed(*model),
            _ => {}
        }
    }

    fn mark_failure(&self, kind: &'static str, model: Option<ModelId>, reason: &Reason, hints: &[Hint]) {
        let is_new = self.marks.fail(self.state.now(), kind, model, reason, hints);
        self.failed.notify_one();
        if let Some(webhook) = self.webhook.as_ref().filter(|_| is_new) {
            webhook.send(self.failure_document());
        }
    }

    /// Records a failure without an engine, such as a damaged file.
    fn mark_failed(&self, model: ModelId) {
        let view = self.state.view(model);
        let failure = view.and_then(|view| view.last_failure);
        let (now, marks) = (self.state.now(), &self.marks);
        let is_reported =
            |failure: &Reason| marks.just_reported(now, model, &failure.text) || marks.caused(now, failure);
        if let Some(failure) = failure.filter(|failure| !is_reported(failure)) {
            let hints = self.state.statuses.with(model, |status| status.hints.clone());
            self.mark_failure("failed", Some(model), &failure, &hints);
        }
    }

    /// Records the end of an engine.
    pub(crate) fn mark_end(&self, run: &EngineRun, verdict: &EngineVerdict) {
        self.terms.borrow_mut().remove(&run.id);
        let (now, marks) = (self.state.now(), &self.marks);
        match &verdict.end {
            End::Expected => marks.add(now, "gone", Some(run.model), String::new()),
            End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason, .. } => {
                let mut hints = verdict.hints.clone();
                hints.extend(self.state.statuses.with(run.model, |status| status.hints.clone()));
                let diagnosed = verdict.diagnosis.iter().flat_map(|diagnosis| &diagnosis.hints);
                hints.extend(diagnosed.cloned());
                hints.dedup();
                self.mark_failure("failed", Some(run.model), reason, &hints);
            }
        }
    }

    fn planned_terms(&self, model: ModelId, placement: &Placement) -> PlannedTerms {
        let demand = self.state.statuses.demand(model);
        let served = self.state.settings.served().into_iter();
        let cards: Vec<Card> = served.filter(|card| placement.cards().any(|id| *id == card.id)).collect();
        let mut planned = demand.map(|demand| demand.terms(&cards)).unwrap_or_default();
        move_to_host(&self.state.overflow(model, placement), &mut planned);
        // Mapped weights are page cache, which is not measured: what is there is of the other terms first.
        let hosts = self.state.settings.cards().filter(|card| card.kind == CardKind::Host);
        let hosts: Vec<&CardId> = hosts.map(|card| &card.id).collect();
        for (_, terms) in planned.iter_mut().filter(|(card, _)| hosts.contains(&card)) {
            terms.order_by_key(|(term, _)| match *term {
                "prompts" => 2,
                "weights" => 1,
                _ => 0,
            });
        }
        planned
    }
}

/// True where the model's own failure has a mark.
fn is_of_a_failed_model(refusal: &RequestRefusal) -> bool {
    matches!(
        refusal.kind,
        RequestRefusalKind::LoadFailed | RequestRefusalKind::Unstartable | RequestRefusalKind::EngineDied
    )
}
