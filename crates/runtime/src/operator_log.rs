//! Logs one line on stderr for each action that takes or frees memory.
//!
//! Each line begins with the action and the model's name.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Card, CardId, End, Placement, Reason};
use plimsoll_scheduler::{
    ModelId, ModelState, ModelView, Moment, RequestRefusal, RunId, SchedulerEffect, Stopping,
};

use super::run::EngineRun;
use super::state::SchedulerState;

/// Time within which the same refusal is logged only once, so that a client that retries in a loop does not
/// fill the log.
const APART: Duration = Duration::from_secs(10);

/// The log, with its last message, so that a repeated one is left out.
#[derive(Debug)]
pub(super) struct OperatorLog {
    state: Rc<SchedulerState>,
    last: RefCell<Option<(Reason, Moment)>>,
    /// Warnings of the configuration that is in effect.
    pub(super) warned: RefCell<Vec<String>>,
}

impl OperatorLog {
    pub(super) fn of(state: Rc<SchedulerState>) -> Self {
        Self { state, last: RefCell::default(), warned: RefCell::default() }
    }

    /// Logs an effect before it is carried out.
    pub(super) fn effect(&self, effect: &SchedulerEffect) {
        match effect {
            SchedulerEffect::Start { model, placement, .. } => self.start(*model, placement),
            SchedulerEffect::Stop { run, how } => self.stop(*run, *how),
            SchedulerEffect::Refuse { refusal, .. } => self.refusal(refusal),
            SchedulerEffect::StateChanged { model, state: ModelState::Failed } => self.failure(*model),
            SchedulerEffect::GiveUpLoad { reason, .. } => tracing::warn!("{}", in_a_line(reason)),
            _ => {}
        }
    }

    fn start(&self, model: ModelId, placement: &Placement) {
        let (name, snapshot) = (&self.state.entry(model).name, self.state.snapshot());
        let places = placement.shares.iter().map(|share| {
            let card = snapshot.cards.iter().find(|card| card.id == share.card);
            let occupied = card
                .map_or(String::new(), |card| format!(" ({} of {} reserved)", card.claimed, card.capacity));
            format!("{} on {}{occupied}", share.bytes, self.state.settings.label(&share.card))
        });
        let places = places.collect::<Vec<_>>().join(", ");
        match placement {
            // An engine for the CPU still gets a line, because it takes host memory.
            _ if places.is_empty() => tracing::info!("load {name}: the model needs no card"),
            Placement { alone: true, .. } => {
                tracing::info!("load {name} alone ({places}), because the model's memory need is unknown");
            }
            _ => tracing::info!("load {name}: {places}"),
        }
    }

    fn stop(&self, run: RunId, how: Stopping) {
        let Some(model) = self.state.run(run).map(|run| run.model) else { return };
        // The scheduler names the reason right after its decision; later it may have forgotten it.
        let name = &self.state.entry(model).name;
        let why = self.state.scheduler.borrow().at(self.state.now()).stop_reason(run);
        let why = why.map_or_else(String::new, |reason| format!(": {}", in_a_line(&reason)));
        // A process that has not ended after its stop is killed, again and again until it is gone.
        let act = match how {
            Stopping::Graceful => "stop",
            Stopping::Kill => "kill",
        };
        tracing::info!("{act} {name}{}{why}", self.idle(model));
    }

    /// Logs why a model does not run, unless the end of its run was just logged.
    fn failure(&self, model: ModelId) {
        let failure = self.state.view(model).and_then(|view| view.last_failure);
        let Some(failure) = failure else { return };
        let reported = self.state.statuses.with(model, |status| status.reported.replace(failure.clone()));
        if reported.as_ref() != Some(&failure)
            && self.is_news(&failure, |stated, now| stated.text == now.text)
        {
            tracing::warn!("{}", in_a_line(&failure));
        }
    }

    fn refusal(&self, refusal: &RequestRefusal) {
        // Other figures are another refusal.
        if self.is_news(&refusal.reason, |stated, now| stated == now) {
            tracing::info!("request refused: {}", in_a_line(&refusal.reason));
        }
    }

    /// Records the context that a model will get instead of its own, and logs a change.
    pub(super) fn lowered(&self, model: ModelId, context: Option<u64>) {
        let before =
            self.state.statuses.with(model, |status| std::mem::replace(&mut status.lowered, context));
        if let Some(context) = context.filter(|_| before != context) {
            let name = &self.state.entry(model).name;
            tracing::warn!(
                "{name} does not fit with its configured context, so the context is lowered to the largest \
                that fits (-c {context})"
            );
        }
    }

    /// Logs whether a run's depth is tracked.
    pub(super) fn depth(&self, run: &EngineRun) {
        let view = self.state.view(run.model);
        let name = &run.entry.name;
        match view {
            Some(ModelView { depth: Some(depth), .. }) => tracing::info!(
                "{name} takes {} more memory for each token in use; memory is reserved for {} of its {} \
                    tokens, and a request for more waits until memory is free",
                depth.bytes_per_token,
                depth.covered,
                depth.full
            ),
            Some(ModelView { depth_unwatched: Some(why), .. }) => tracing::debug!(
                "requests to {name} are not limited by their depth (tokens in the KV cache): {why}"
            ),
            _ => {}
        }
    }

    /// Logs once that a run takes more of a card than models may use of it.
    pub(super) fn beyond(&self, run: &EngineRun) {
        let beyond = {
            let scheduler = self.state.scheduler.borrow();
            let ledger = scheduler.ledger();
            let mut taken = ledger.measured_shares(run.id).into_iter();
            taken.find_map(|share| {
                let account = ledger.account(&share.card).filter(|account| share.bytes > account.limit())?;
                Some((share.bytes, account.card().name.clone(), account.limit()))
            })
        };
        if let Some((taken, card, limit)) = beyond
            && !run.reported_beyond.replace(true)
        {
            tracing::warn!(
                "{} takes {taken} of {card}, of which models may use {limit}: its next load will be refused; \
                 enlarge `total` or `budget` of that card, or make the engine take less",
                run.entry.name
            );
        }
    }

    pub(super) fn ready(&self, run: &EngineRun) {
        let took = run.age().as_millis();
        tracing::info!("ready {} in {took} ms", run.entry.name);
    }

    pub(super) fn ended(&self, run: &EngineRun, end: &End) {
        match end {
            End::Expected => tracing::info!("stopped {}", run.entry.name),
            End::Crashed { reason } | End::OutOfMemory { reason, .. } | End::Unstartable { reason, .. } => {
                // Stored, so that the change of state that follows does not repeat it.
                self.state.statuses.with(run.model, |status| status.reported = Some(reason.clone()));
                tracing::warn!("{}", in_a_line(reason));
            }
        }
    }

    /// True unless the last message of the last seconds was about the same. The refusal of a model that fails
    /// states its failure in the same words, and names the processes that hold memory as well.
    fn is_news(&self, reason: &Reason, is_same: impl Fn(&Reason, &Reason) -> bool) -> bool {
        let (mut last, now) = (self.last.borrow_mut(), self.state.now());
        let stated =
            last.as_ref().is_some_and(|(stated, at)| is_same(stated, reason) && now.since(*at) < APART);
        if !stated {
            *last = Some((reason.clone(), now));
        }
        !stated
    }

    fn idle(&self, model: ModelId) -> String {
        let since = self.state.view(model).and_then(|view| view.idle_since);
        let idle = since.map(|since| self.state.now().since(since).as_secs_f64());
        idle.map_or_else(String::new, |seconds| format!(" (idle {seconds:.0} s)"))
    }
}

pub fn label(cards: &[&Card], id: &CardId) -> String {
    let Some(card) = cards.iter().find(|card| card.id == *id) else {
        return id.to_string();
    };
    // Eight equal cards are distinguished by their identifier only.
    let namesakes = cards.iter().filter(|other| other.name == card.name).count();
    match namesakes {
        1 => card.name.clone(),
        _ => format!("{} {id}", card.name),
    }
}

/// A reason and its chain of causes, the first at each branch, with the hint of an error of ours behind it.
pub fn in_a_line(reason: &Reason) -> String {
    let own = |reason: &Reason| reason.text.replace("\nhint: ", "; hint: ");
    let mut text = own(reason);
    let mut at = reason;
    // Further branches would make the line unreadable; `/api/status` has the whole tree.
    while let Some(cause) = at.because.first() {
        text += ": ";
        text += &own(cause);
        at = cause;
    }
    text
}
